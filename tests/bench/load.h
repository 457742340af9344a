/* load.h - a process that computes and does nothing else: the background load of --busy.
 * Way:     bench.c, peers.py -> this program once more -> [load], until its input ends */
#pragma once

/* bench_load - computes at the lowest priority until the standard input ends; so the load ends in
 * whatever way its starter does. out: the exit status. */
int bench_load(void);
