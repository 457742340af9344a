/* line.c - lines of a report: formatted, made safe to print, handed over. */
#include "base/line.h"

#include <stdarg.h>
#include <stdio.h>

void teffi_line(const teffi_lines *to, const char *fmt, ...)
{
    char line[TEFFI_LINE_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    to->fn(to->arg, line);
}

void teff_line_print(void *file, const char *line)
{
    fprintf(file, "%s\n", line);
}
