/* log.h - one line a fact, to the platform's log; text is recorded once, at its origin. */
#ifndef TEFFI_BASE_LOG_H
#define TEFFI_BASE_LOG_H

typedef enum teffi_level { TEFFI_ERROR = 1, TEFFI_WARN = 2, TEFFI_INFO = 3 } teffi_level;

/* Where lines go; part of the platform. write gets a line without newline, from any thread. */
typedef struct teffi_log {
    void (*write)(void *arg, teffi_level level, const char *line);
    void *arg;
    teffi_level level; /* lines above it are not formatted */
} teffi_log;

/* teffi_logf - format and write one line, cut at 1,000 bytes; control characters become '?'.
 * in:   log, may be NULL (nothing is written). */
void teffi_logf(const teffi_log *log, teffi_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
