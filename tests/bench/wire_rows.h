/* wire_rows.h - what crosses the wire beside plain calls: nng itself for comparison.
 * Way:     bench.c -> [wire_nng.c] */
#pragma once

#include "bench.h"

/* bench_nng - nng-round-trip, nng-64KiB-call, nng-64KiB-one-way. */
void bench_nng(const bench *b);

/* bench_nng_child - the other process of those rows. out: its exit status. */
int bench_nng_child(const char *url);
