/* log.h - directs the log, and the lines of reports, to a file or to a function of the program.
 * Way:     silos, clients, process systems -> base/log -> [log] -> the program
 * Threads: any. */
#pragma once

#include <teff/error.h>

TEFF_BEGIN_C

typedef enum teff_log_level {
    TEFF_LOG_ERROR = 1, /* something was lost or cannot continue */
    TEFF_LOG_WARN = 2,  /* the runtime continues; an operator should look at it */
    TEFF_LOG_INFO = 3   /* only from silos without teff_silo_options.silent */
} teff_log_level;

/* A program's own log.
 * write gets one line: UTF-8, without time, level or newline, at most 999 bytes, control characters
 * replaced by '?'; line is valid until write returns.
 * Any thread may call write: workers, threads that read connections, threads that call teff. Calls
 * overlap, and are made inside turns and with teff's locks held. So write must not call teff,
 * throw, or wait for a thread that does, and must use little stack: a turn has 64 KiB in all. */
typedef struct teff_log_handler {
    void (*write)(void *arg, teff_log_level level, const char *line);
    void *arg;
} teff_log_handler;

/* teff_log_to - pass each log line of this process's silos, clients and process systems to a
 * handler instead of standard error. These are always written to standard error or output
 * instead: the message of an abort (a bug of teff, a broken rule of these headers, a stack
 * overflow), and the messages of teff_silo_main to its user (usage, ready, why it cannot start,
 * SIGUSR1).
 * in:   handler, borrowed until the process ends, since a concurrent line may still go to the
 *       previous handler; NULL: standard error again, each line with time and level.
 * runs: any thread, at any time; before the first silo or client, to get all lines.
 * from: Orleans takes the host's ILogger. */
TEFF_API void teff_log_to(const teff_log_handler *handler);

/* Takes one line of a report, without the newline; line is valid until the return. */
typedef void teff_line_fn(void *arg, const char *line);

/* teff_line_print - a teff_line_fn that prints the line to a file. in: file, a FILE *.
 * runs: any thread. */
TEFF_API void teff_line_print(void *file, const char *line);

TEFF_END_C
