/* child.h - this program once more, as a process of its own: a silo that others call.
 * Way:     a row -> [child] -> the same program with other arguments, until its input ends */
#pragma once

#include <stdbool.h>

typedef struct bench_child {
    int pid;
    int in;         /* closed: it stops */
    char said[300]; /* its first line */
} bench_child;

/* bench_child_start - it runs and has written a line: it is ready.
 * in: args: at most 8, NULL-ended, without the program's name. out: false: it is not. */
bool bench_child_start(bench_child *child, const char *const *args);

/* bench_child_stop - by ending its input. runs: waits for its end. */
void bench_child_stop(bench_child *child);

/* bench_child_ready - in the child: write the line, then wait until the input ends. */
void bench_child_ready(const char *line);

/* bench_child_seconds - processor time that it has used. */
double bench_child_seconds(const bench_child *child);
