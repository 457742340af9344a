/* child.h - a silo program as a child of the test, with its standard streams.
 * Way:     test_main.c, test_run.c -> [child] -> silo_program.c, silo_program_own.c */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

enum { CHILD_TEXT_MAX = 8192 };

typedef struct child {
    pid_t pid;
    int in, out, err;
    char text[CHILD_TEXT_MAX]; /* of standard error, or of output */
} child;

extern const char *child_program;

#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* child_run - start child_program. in: args, NULL-ended; closed: it has no standard output. */
child child_run(const char *const *args, bool closed);

/* child_read - to c->text, until the end, or until the line of what is wanted has come. */
void child_read(child *c, int fd, const char *wanted);

/* child_status - wait for its end. out: the exit status. */
int child_status(child *c);

/* child_refuses - these arguments end it with status 2, and this on standard error. */
void child_refuses(const char *const *args, const char *says);
