/* fork.h - fork and join inside a turn: parts of one computation run on several workers.
 * Way:     a turn -> [fork] -> runtime/fork -> any worker -> join -> the same turn
 * Threads: a join belongs to the turn that forks; parts run anywhere.
 * Source:  Frigo, Leiserson and Randall: The implementation of the Cilk-5 multithreaded language,
 *          1998 */
#pragma once

#include <stdint.h>
#include <teff/error.h>

/* After e(), f(&arg) runs in parallel with g():
 *
 *     e();
 *     teff_join join = {0};
 *     teff_fork(&join, TEFF_STEAL_CONTINUATION, f, &arg);
 *     g();
 *     teff_join_wait(&join);
 *
 * A part may fork and join parts of its own, with a join of its own. */

TEFF_BEGIN_C

typedef enum teff_steal {
    /* f runs at once. The code after the fork is queued on this worker, where others may steal it.
     * Without a theft everything runs in the order of plain calls: e, f, g. */
    TEFF_STEAL_CONTINUATION = 0,
    /* f is queued, where other workers may steal it, and this turn continues: e, g, f. */
    TEFF_STEAL_CHILD = 1
} teff_steal;

typedef struct teff_join { /* zeroed = nothing forked */
    uint64_t inside[4];
} teff_join;

/* teff_fork - run fn(arg) in parallel with the code after the fork.
 * in:   join and arg, borrowed until teff_join_wait has returned. The turn or part must call it
 *       before it ends.
 * runs: in a turn with a fiber (see teff_yield), and in a forked part. A part has the priority and
 *       the level of its turn, and its run time is charged to the turn at the join. Elsewhere, and
 *       without memory, fn is called directly. The turn may continue on another thread. fn may
 *       call the functions of teff/sched.h and of this header. Reports name the part as its turn.
 *       A part is not a turn: of the functions with a context it may call only teff_ctx_check, on
 *       its turn's context, for deadline and cancellation. If it calls or awaits a grain or PID
 *       through that context, the process aborts with a line that names the turn. fn runs once in
 *       any case, also if the turn's call was cancelled before; a long fn asks teff_ctx_check. */
TEFF_API void teff_fork(teff_join *join, teff_steal how, void (*fn)(void *arg), void *arg);

/* teff_join_wait - wait until all parts forked on join have returned; their writes are visible
 * then. Other groups run on this worker meanwhile, but nothing else of the same grain or process.
 * join can be used again.
 * in:   join, the one passed to teff_fork.
 * runs: in the turn or part that forked, not in a blocking region (teff/sched.h). */
TEFF_API void teff_join_wait(teff_join *join);

TEFF_END_C
