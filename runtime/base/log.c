/* log.c - format a line, make it safe to print, hand it over. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

/* Formats a line. Control characters become '?', so that text from outside cannot forge a line of
 * the log. */
static void format_line(char *line, size_t size, const char *fmt, va_list args)
{
    vsnprintf(line, size, fmt, args);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
}

void teffi_logf(const teffi_log *log, teff_log_level level, const char *fmt, ...)
{
    char line[1000];
    va_list args;
    if (!log || !log->write || level > log->level)
        return;
    va_start(args, fmt);
    format_line(line, sizeof line, fmt, args);
    va_end(args);
    log->write(log->arg, level, line);
}

void teffi_lines_write_line(const teffi_lines *to, const char *fmt, ...)
{
    char line[TEFFI_LINE_MAX];
    va_list args;
    va_start(args, fmt);
    format_line(line, sizeof line, fmt, args);
    va_end(args);
    to->fn(to->arg, line);
}

void teff_line_print(void *file, const char *line)
{
    fprintf(file, "%s\n", line);
}
