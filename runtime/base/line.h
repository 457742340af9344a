/* line.h - lines of a report, formatted and safe to print, to whoever takes them. */
#ifndef TEFFI_BASE_LINE_H
#define TEFFI_BASE_LINE_H

#include <teff/sched.h>

enum { TEFFI_LINE_MAX = 400 };

/* Where a report goes. */
typedef struct teffi_lines {
    teff_line_fn *fn;
    void *arg;
} teffi_lines;

/* teffi_line - one line, cut at TEFFI_LINE_MAX bytes; control characters become '?'. */
void teffi_line(const teffi_lines *to, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
