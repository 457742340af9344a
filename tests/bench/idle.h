/* idle.h - what silos cost that nobody calls. */
#pragma once

#include <stdbool.h>

/* bench_idle - n silos around a file for some seconds.
 * out:  percent of a core, of one silo on the average; false: they did not start. */
bool bench_idle(int n, double seconds, double *percent);

/* bench_idle_silo - the whole of one such process (bench --idle STORE), until its input ends. */
int bench_idle_silo(const char *store);
