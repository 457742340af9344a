/* exec.h - executor: the interface that runs groups and fires timers. Two implementations: the
 * scheduler (sched/exec.h), and the simulator's single thread.
 * Way:     group (READY) -> [exec] -> a worker -> teffi_group_run
 * Threads: as each function says. */
#pragma once

#include <sys/queue.h>
#include "os/platform.h"
#include "os/poller.h"
#include "group/warn.h"

struct teffi_fiber_pool;

/* A timer lives in its owner; zeroed = not set. fire runs once per set, unless it is cancelled: on
 * some worker or, when that is late, on the monitor's thread, without locks held. It must be short
 * (it pushes an item), and may set the timer again. The executor does not use the timer after it
 * has called fire. */
typedef struct teffi_timer {
    void (*fire)(struct teffi_timer *timer);
    uint64_t due_ns;
    LIST_ENTRY(teffi_timer) link; /* the executor's */
    _Atomic uint32_t where;       /* the executor's: the wheel that holds it, 0 = not set */
    uint32_t bucket;              /* the executor's */
} teffi_timer;

typedef struct teffi_exec teffi_exec;
struct teffi_direct_ops;
struct teffi_deferred;
struct teffi_inbound;

typedef struct teffi_exec_ops {
    /* A group became READY. Any thread. From a worker's turn it goes to that worker's queue, unless
     * the policy orders it or it is a system group. */
    void (*ready)(teffi_exec *exec, teffi_group *group);
    /* Set a timer that is not set; fire runs at due_ns (mono) or soon after. Any thread. */
    void (*timer_set)(teffi_exec *exec, teffi_timer *timer, uint64_t due_ns);
    /* Cancel a timer. out: true: it was set and will not fire; false: it is not set, or fire has
     * run, is running, or is about to run on another thread. */
    bool (*timer_cancel)(teffi_exec *exec, teffi_timer *timer);
    /* Call work->run when this worker finds no group in any queue, before it blocks or parks, or
     * soon if it always finds one; at the latest when the executor has stopped. in: work, not
     * deferred yet (deferred.h). out: false: this thread is no worker, or may not use a processor
     * now, so the caller does the work. May be NULL. */
    bool (*defer)(teffi_exec *exec, struct teffi_deferred *work);
    /* Run a batch of received messages once, and release it (inbound.h). A worker runs it here, and
     * the groups that become READY are its local batch. Another thread borrows the processor of a
     * parked worker and runs the batch and those groups, which may take as long as any turn; if
     * that is not possible, a long batch is left to a worker, and this thread runs a short one.
     * NULL: the caller runs the batch, and does not release it. */
    void (*inbound)(teffi_exec *exec, struct teffi_inbound *batch);
    /* Workers that find no group wait in poller instead of sleeping, one at a time, and busy ones
     * look at it. Called once, before the poller's first event. in: poller, in use until stop. Any
     * thread. NULL: no worker waits in it. */
    void (*poll)(teffi_exec *exec, teffi_poller *poller);
    /* Around a call that blocks the thread (a store driver, a system call): others get its
     * processor. May be nested. blocking_end may suspend the turn. */
    void (*blocking_begin)(teffi_exec *exec);
    void (*blocking_end)(teffi_exec *exec);
    /* Called again and again by a thread that is no worker, until its wait is over. The simulator,
     * which has no other thread, runs a step. NULL: the thread sleeps instead. */
    void (*park)(teffi_exec *exec);
    /* From a turn that waits on a worker's own stack: run one other READY group, nested.
     * out: false: there is none, or the turn may not, or runs are nested too deep. May be NULL. */
    bool (*run_nested)(teffi_exec *exec);
    /* The processor that this thread holds now: 1 .. exec->workers; 0 = none, or in a blocking
     * region. May be NULL. */
    unsigned (*worker)(teffi_exec *exec);
    /* Run groups on n of exec->workers processors from now on. Turns under way go on; groups and
     * timers of deactivated processors move to active ones. Any thread. errs: TEFF_E_INVALID (0, or
     * too many); TEFF_E_CLOSED (stopping); TEFF_E_IO: a thread could not start, its processor stays
     * free. NULL: there are no processors. */
    teff_err (*scale)(teffi_exec *exec, unsigned n);
    /* Read the counters: *all, if not NULL, and workers[0 .. max). Any thread, without a lock.
     * out: how many workers were written. NULL: there are no counters. */
    size_t (*metrics)(teffi_exec *exec, teff_sched_metrics *all, teff_sched_worker *workers,
                      size_t max);
    /* How many runs of groups all processors have begun. It stands still while each of them is in
     * one long run, or idle. Any thread. NULL: it is not counted. */
    uint64_t (*runs)(teffi_exec *exec);
    /* The group that this thread runs for this executor, the innermost; NULL: none. May be NULL. */
    teffi_group *(*current)(teffi_exec *exec);
    /* Turns in place (direct.h). NULL: never. */
    const struct teffi_direct_ops *direct;
    /* Give system groups a thread and stacks of their own. Once, before an item is pushed to one of
     * them. errs: TEFF_E_NOMEM, TEFF_E_IO (the thread did not start). NULL: system groups run as
     * all others do. */
    teff_err (*system)(teffi_exec *exec);
    /* Report workers, processors and queues as lines, to fn(arg). Any thread. May be NULL. */
    void (*dump)(teffi_exec *exec, teff_line_fn *fn, void *arg);
    /* Report the turns that run now, a line for each, to fn(arg): also while stop waits for them.
     * out: their number. Any thread. NULL: other threads may not use the executor or its clock, as
     * in a simulator, so a stop is not watched (silo/stop_watch.c). */
    unsigned (*turns)(teffi_exec *exec, teff_line_fn *fn, void *arg);
    /* Stop and join all workers, then run the deferred work and the queued batches that are left:
     * afterwards no group runs and no timer fires. Queues and stacks keep their memory until free.
     * Not from a worker. NULL: nothing runs by itself. */
    void (*stop)(teffi_exec *exec);
    /* Call stop if that has not been done, and free exec. Not from a worker. */
    void (*free)(teffi_exec *exec);
} teffi_exec_ops;

enum { TEFFI_REPOLLS_MAX = 5 }; /* a limit, since two groups may push to each other for ever */

struct teffi_exec {
    const teffi_exec_ops *ops;
    const teffi_platform *platform;
    struct teffi_fiber_pool *fibers; /* stacks for turns */
    /* stacks for system groups; NULL: they use fibers. Immutable after ops->system */
    struct teffi_fiber_pool *system_fibers;
    unsigned workers;           /* processors, active or not; 0 if there are none to count */
    _Atomic uint32_t coarse_ms; /* see teffi_coarse_ms; written by the monitor */
    uint32_t repolls_max;       /* teff_sched_options; 0: TEFFI_REPOLLS_MAX */
    teffi_warn warn;
    teffi_group null_group; /* for closures of no other group (closure.h) */
};

/* teffi_coarse_ms - the platform's clock in ms, modulo 2^32, late by about a tick of the monitor;
 * 0: not known, for example while all workers are parked. relaxed: a late value does no harm. */
static inline uint32_t teffi_coarse_ms(const teffi_exec *exec)
{
    return atomic_load_explicit(&exec->coarse_ms, memory_order_relaxed);
}

/* teffi_coarse_or_exact_ms - the coarse clock or, if it is not known, the platform's. */
static inline uint32_t teffi_coarse_or_exact_ms(const teffi_exec *exec)
{
    uint32_t ms = teffi_coarse_ms(exec);
    return ms ? ms : (uint32_t)(teffi_now(exec->platform) / 1000000u);
}

/* teffi_coarse_ms_set - set the value that teffi_coarse_ms returns from now on. */
static inline void teffi_coarse_ms_set(teffi_exec *exec, uint32_t ms)
{
    atomic_store_explicit(&exec->coarse_ms, ms, memory_order_relaxed);
}

/* teffi_exec_warn_if_item_late - log if item, which is about to be handled, waited too long. The
 * comparison is signed, so that a clock that is behind at_ms causes no warning. */
static inline void teffi_exec_warn_if_item_late(teffi_group *group, const teffi_item *item)
{
    teffi_exec *exec = group->exec;
    uint32_t now_ms = teffi_coarse_ms(exec);
    if ((int32_t)(now_ms - item->at_ms) > (int32_t)exec->warn.delay_warn_ms)
        teffi_warn_late_item(group, item->at_ms, now_ms);
}

/* teffi_exec_abort_if_in_turn - abort if a turn of exec calls this: function waits for the end of
 * all turns, so the turn would wait for itself. runs: at the beginning of function. */
void teffi_exec_abort_if_in_turn(teffi_exec *exec, const char *function);

/* teffi_exec_scale - call ops->scale. errs: as ops->scale; TEFF_E_INVALID: ops->scale is NULL. */
teff_err teffi_exec_scale(teffi_exec *exec, uint32_t n);

/* teffi_exec_metrics - call ops->metrics. out: as ops->metrics; if that is NULL: 0, *all zeroed. */
size_t teffi_exec_metrics(teffi_exec *exec, teff_sched_metrics *all, teff_sched_worker *workers,
                          size_t max);
