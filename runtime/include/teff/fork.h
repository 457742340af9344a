/* fork.h - fork and join inside a turn: parts of one computation on several workers.
 * Way:     a turn -> [fork] -> runtime/sched/fork -> any worker -> join -> the same turn
 * Threads: a join belongs to the turn that forks; parts run anywhere.
 * Source:  Cilk's spawn and sync; the seed document about Go's scheduler */
#ifndef TEFF_FORK_H
#define TEFF_FORK_H

#include <stdint.h>
#include <teff/error.h>

/* e(); fork f; g(); join:
 *
 *     teff_join join = {0};
 *     teff_fork(&join, TEFF_STEAL_CONTINUATION, f, &arg);
 *     g();
 *     teff_join_wait(&join);
 *
 * A part may fork and join parts of its own, with a join of its own. */

#ifdef __cplusplus
extern "C" {
#endif

typedef enum teff_steal {
    /* f runs at once; what comes after the fork waits in this worker's queue, where others may
     * steal it. When nobody does, everything runs in the order of plain calls: e, f, g. */
    TEFF_STEAL_CONTINUATION = 0,
    /* f waits in the queue, where others may steal it, and this turn goes on: e, g, f. */
    TEFF_STEAL_CHILD = 1
} teff_steal;

typedef struct teff_join { /* zeroed = nothing forked */
    uint64_t inside[2];
} teff_join;

/* teff_fork - let fn(arg) run beside what comes next.
 * in:   join, until teff_join_wait has returned; arg, borrowed as long.
 * runs: in a turn with a stack of its own (see teff_reschedule), and in a part. Elsewhere, and when
 *       memory is out, fn is simply called. The turn may go on in another thread. fn computes, and
 *       may call what teff/sched.h and this header have; it is no turn: a context of the forking
 *       turn is not its to use. */
TEFF_API void teff_fork(teff_join *join, teff_steal how, void (*fn)(void *arg), void *arg);

/* teff_join_wait - until all that was forked on join has returned; its effects are seen. Others run
 * on this worker meanwhile, but nothing else of the same grain or process. join is as new then. */
TEFF_API void teff_join_wait(teff_join *join);

#ifdef __cplusplus
}
#endif
#endif
