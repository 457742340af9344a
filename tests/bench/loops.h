/* loops.h - the timed loops of rows that call Targets (bench.proto).
 * Way:     bench.c (a Driver's turn), client_rows.c (a thread) -> [loops.c] -> Target */
#pragma once

#include "bench.teff.h"

/* bench_loop - does plan->n operations.
 * in:  ctx, of a turn or a client; its arena holds the responses then. plan->what: call, new,
 *      fan-out, window (plan->width at most 1,024 under way), one-way, blob-call, blob-one-way
 *      (64 KiB each); plan->first, a key.
 * out: ns, the time they took.
 * errors: INVALID, no such loop; those of the calls. */
teff_err bench_loop(teff_ctx *ctx, const bench_plan *plan, uint64_t *ns);
