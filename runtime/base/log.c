/* log.c - format a line, make it safe to print, hand it to the platform. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void teffi_logf(const teffi_log *log, teffi_level level, const char *fmt, ...)
{
    char line[1000];
    va_list args;
    if (!log || !log->write || level > log->level)
        return;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    log->write(log->arg, level, line);
}
