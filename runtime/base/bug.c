/* bug.c - prints the reason and aborts. */
#include "base/bug.h"

#include <stdio.h>
#include <stdlib.h>

void teffi_abort_for_bug(const char *file, int line, const char *what)
{
    fprintf(stderr, "teff: bug at %s:%d: %s\n", file, line, what);
    abort();
}

void teffi_abort_for_broken_rule(const char *who, const char *rule)
{
    fprintf(stderr, "teff: %s: %s\n", who, rule);
    abort();
}
