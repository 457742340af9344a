/* exec.h - what runs groups and fires timers: real workers, or the simulator's single thread.
 * Way:     group (READY) -> [exec] -> a worker -> teffi_group_run
 * Threads: as each function says. */
#ifndef TEFFI_SCHED_EXEC_H
#define TEFFI_SCHED_EXEC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <teff/error.h>
#include "platform/platform.h"
#include "sched/group.h"
#include "sched/warn.h"

struct teffi_fiber_pool;

/* A timer lives in its owner; zeroed = not set. fire runs once per set, on some worker, without
 * locks held; it must be short (it pushes an item). The timer may be set again from inside fire. */
typedef struct teffi_timer {
    void (*fire)(struct teffi_timer *timer);
    uint64_t due_ns;
    struct teffi_timer *prev, *next; /* the executor's */
    _Atomic uint32_t where;          /* the executor's: the wheel that holds it, 0 = not set */
    uint32_t bucket;                 /* the executor's */
} teffi_timer;

/* Work that is put off, so that it is done once for many that ask for it. */
typedef struct teffi_later {
    /* Once for each time that it was put off; then it may be put off again. Must not wait. */
    void (*run)(struct teffi_later *later);
    struct teffi_later *next; /* the executor's */
} teffi_later;

/* teffi_later_put - onto a list that any thread fills. out: it was empty. */
static inline bool teffi_later_put(teffi_later *_Atomic *list, teffi_later *later)
{
    teffi_later *head = atomic_load_explicit(list, memory_order_relaxed);
    do
        later->next = head;
    /* release: later->next, pairs with do_all, which takes all at once. seq_cst: before what the
     * caller looks at next. */
    while (!atomic_compare_exchange_weak_explicit(list, &head, later, memory_order_seq_cst,
                                                  memory_order_relaxed));
    return !head;
}

/* teffi_later_do_all - all that is on the list, each taken off before it runs. */
static inline void teffi_later_do_all(teffi_later *_Atomic *list)
{
    /* acquire: pairs with put */
    teffi_later *at = atomic_exchange_explicit(list, NULL, memory_order_acquire);
    while (at) {
        teffi_later *next = at->next; /* once it runs it may be put again */
        at->run(at);
        at = next;
    }
}

typedef struct teffi_exec teffi_exec;
struct teffi_direct_ops;

typedef struct teffi_exec_ops {
    /* A group became READY. Any thread. From a worker's own turn it goes to that worker's queue. */
    void (*ready)(teffi_exec *exec, teffi_group *group);
    /* Set (not set before). fire runs at or soon after due_ns (mono). Any thread. */
    void (*timer_set)(teffi_exec *exec, teffi_timer *timer, uint64_t due_ns);
    /* true: it was set and will not fire; false: not set, or its fire has run or is running. */
    bool (*timer_cancel)(teffi_exec *exec, teffi_timer *timer);
    /* Run it at the end of this worker's pass: when no queue, its own or another's, has work for
     * it, before it blocks or sleeps; soon in a long pass; at the latest when the executor has
     * stopped. in: later, not put off already; once it runs it may be put off anew. out: false:
     * this thread is no worker here, do it now. May be NULL. */
    bool (*put_off)(teffi_exec *exec, teffi_later *later);
    /* On a thread that is no worker and has just got work, such as a transport's: fn(arg) here, and
     * then what it made READY, with the slot of a worker that sleeps, so that nobody is woken.
     * in: fn, short; what runs after it may take as long as any turn. out: false: nobody sleeps, or
     * another thread does the same: nothing was done. May be NULL. */
    bool (*visit)(teffi_exec *exec, void (*fn)(void *arg), void *arg);
    /* fn(arg) on this thread; what it makes READY on a worker waits for that one, while its turns
     * are short: no other is woken for it. May be NULL. */
    void (*bring)(teffi_exec *exec, void (*fn)(void *arg), void *arg);
    /* Around a call that blocks the thread (a store driver, a system call): others get
     * its worker. */
    void (*blocking_begin)(teffi_exec *exec);
    void (*blocking_end)(teffi_exec *exec);
    /* NULL: a thread outside that waits sleeps on its context. Else it calls this until what it
     * waits for is done: the simulator, which has no other thread, lets something happen. */
    void (*park)(teffi_exec *exec);
    /* From a turn on a worker's own stack that waits: run one other READY group here, nested.
     * false: there is none, this thread may not, or it is nested too deep. May be NULL. */
    bool (*help)(teffi_exec *exec);
    /* The worker slot that this thread holds now: 1 .. exec->workers; 0 = none. May be NULL. */
    unsigned (*worker)(teffi_exec *exec);
    /* Run groups on n slots from now on, of exec->workers: turns under way go on; what a slot that
     * is used no more had queued, and its timers, move to the others. Any thread.
     * errs: TEFF_E_INVALID (0, or too many); TEFF_E_CLOSED (stopping); TEFF_E_IO: a thread could
     * not start, its slot waits for one. NULL: there are no slots. */
    teff_err (*scale)(teffi_exec *exec, unsigned n);
    /* What was done so far: *all, when not NULL, and workers[0 .. max). Any thread, without a lock.
     * out: how many workers were written. NULL: nothing is counted. */
    size_t (*metrics)(teffi_exec *exec, teff_sched_metrics *all, teff_sched_worker *workers,
                      size_t max);
    /* The group that this thread runs for this executor, the inner one of nested ones; NULL: none.
     * May be NULL: then nothing is told. */
    teffi_group *(*current)(teffi_exec *exec);
    /* Turns of other groups inside the turn that runs (direct.h). NULL: never. */
    const struct teffi_direct_ops *direct;
    /* Lines about workers, slots and queues, to fn(arg). From any thread. May be NULL. */
    void (*dump)(teffi_exec *exec, teff_line_fn *fn, void *arg);
    /* Stops and joins all workers: no group runs and no timer fires any more, while queues and
     * stacks keep their memory until free. Not from a worker. NULL: nothing runs by itself. */
    void (*stop)(teffi_exec *exec);
    /* Stops, if that has not been done, and frees exec. Not from a worker. */
    void (*free)(teffi_exec *exec);
} teffi_exec_ops;

struct teffi_exec {
    const teffi_exec_ops *ops;
    const teffi_platform *platform;
    struct teffi_fiber_pool *fibers; /* stacks for turns */
    unsigned workers;                /* slots, in use or not; 0 where there are none to count */
    teffi_warn warn;
    teffi_group null; /* the null context: items that belong to nobody (closure.h) */
};

/* teffi_warn_item - an item's turn has come: did it wait too long? The signed difference: a clock
 * that stands, or is not known, warns of nothing. */
static inline void teffi_warn_item(teffi_group *group, const teffi_item *item)
{
    teffi_warn *warn = &group->exec->warn;
    uint32_t waited_ms = teffi_warn_now(warn) - item->at_ms;
    if ((int32_t)waited_ms > (int32_t)warn->delay_warn_ms && item->at_ms)
        teffi_warn_late(group, waited_ms);
}

/* teffi_sched_check - are the options in their ranges? in: workers, as asked for, 0 = one a core.
 * out:  NULL: all are; else which one is not, and what was expected. */
const char *teffi_sched_check(const teff_sched_options *opt, unsigned workers);

/* teffi_exec_scale - ops->scale; TEFF_E_INVALID where there are no slots. */
teff_err teffi_exec_scale(teffi_exec *exec, uint32_t n);

/* teffi_exec_metrics - ops->metrics; zeroes and none where nothing is counted. */
size_t teffi_exec_metrics(teffi_exec *exec, teff_sched_metrics *all, teff_sched_worker *workers,
                          size_t max);

/* teffi_exec_real_new - worker threads with work-stealing deques.
 * in:   workers, 0 = one a core; opt, borrowed, NULL = all defaults.
 * errs: TEFF_E_INVALID (an option is out of its range), TEFF_E_NOMEM, TEFF_E_IO (a thread could not
 *       start). */
TEFF_MUST_USE teff_err teffi_exec_real_new(const teffi_platform *platform, unsigned workers,
                                           const teff_sched_options *opt, teffi_exec **exec);

#endif
