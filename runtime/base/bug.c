/* bug.c - the last words of a process that noticed a bug in itself. */
#include "base/bug.h"

#include <stdio.h>
#include <stdlib.h>

void teffi_bug(const char *file, int line, const char *what)
{
    fprintf(stderr, "teff: bug at %s:%d: %s\n", file, line, what);
    abort();
}
