/* log.h - format one line, safe to print, and hand it to the platform's log or to a report. */
#pragma once

#include <teff/log.h>

/* Where lines go; part of the platform. write gets a line without newline, from any thread. */
typedef struct teffi_log {
    void (*write)(void *arg, teff_log_level level, const char *line);
    void *arg;
    teff_log_level level; /* lines of a higher number are not formatted */
} teffi_log;

/* teffi_logf - format and write one line, cut at 999 bytes; control characters become '?'.
 * in:   log, may be NULL (nothing is written). */
void teffi_logf(const teffi_log *log, teff_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

enum { TEFFI_LINE_MAX = 400 };

/* Where a report goes. */
typedef struct teffi_lines {
    teff_line_fn *fn;
    void *arg;
} teffi_lines;

/* teffi_lines_write_line - format one line of a report and pass it on, cut at TEFFI_LINE_MAX - 1
 * bytes; control characters become '?'. */
void teffi_lines_write_line(const teffi_lines *to, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
