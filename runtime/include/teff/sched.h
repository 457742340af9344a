/* sched.h - options and counters of a silo's or a process system's scheduler; yield, preemption and
 * blocking calls.
 * Way:     silo or process options -> [sched] -> runtime/sched -> metrics
 * Threads: options are plain data, read when the scheduler starts; the hooks run on its workers.
 * Source:  Go's src/runtime/proc.go; yatp's src/queue/multilevel.rs */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <teff/error.h>

TEFF_BEGIN_C

enum { TEFF_THREAD_BORROWED = 10000 };

/* Each thread that runs groups (turns of grains, steps of processes) calls these hooks; any may be
 * NULL. They must not block, call into teff, or wait for one another. thread: 0 to 9,999, the same
 * in all calls of one thread; TEFF_THREAD_BORROWED: a thread of the transport, which runs groups in
 * place of a parked worker, and calls start and end each time. In the order of a thread's life:
 *
 *     start -> (before -> after)* -> park -> unpark -> (before -> after)* -> ... -> end
 *
 * before and after nest if a turn runs inside another one: a call in place, or a turn without a
 * fiber that waits. */
typedef struct teff_sched_hooks {
    size_t size; /* sizeof(teff_sched_hooks) */
    void (*start)(void *arg, uint32_t thread);
    /* Around each run of a group and each call in place. group is an identifier only: its memory
     * may be gone. The system thread, which keeps a silo in its cluster, calls no hooks. */
    void (*before)(void *arg, uint32_t thread, const void *group);
    void (*after)(void *arg, uint32_t thread, const void *group);
    /* Around each sleep: the thread has found no work, or has no processor. */
    void (*park)(void *arg, uint32_t thread);
    void (*unpark)(void *arg, uint32_t thread);
    void (*end)(void *arg, uint32_t thread);
    void *arg;
} teff_sched_hooks;

enum { TEFF_SCHED_LEVELS = 3 };

/* A call in place costs the same with each policy, and with hooks, within 4 % (BENCH=guard: call*).
 * A group that is queued costs more if the policy orders it, because it goes through the one queue
 * that all workers share. With priority that is each group; with multilevel, those of levels 1 and
 * 2. */
typedef enum teff_sched_policy {
    /* The group that a turn wakes last runs next on the same worker (LIFO slot). Others wait in the
     * worker's deque, newest first, from which idle workers steal the oldest, or in the queue of
     * all workers, in order of arrival. */
    TEFF_SCHED_SINGLE = 0,
    /* The same for groups with little recent run time. Groups with more are queued in levels that
     * are picked less often, so that they delay short work less. */
    TEFF_SCHED_MULTILEVEL = 1,
    /* Strictly by priority; the number of READY groups may be limited (waiting_max). */
    TEFF_SCHED_PRIORITY = 2
} teff_sched_policy;

typedef struct teff_sched_options { /* zeroed, except size = all defaults */
    size_t size;                    /* sizeof(teff_sched_options) */
    /* Maximum number of threads, including those in blocking calls: 2 to 10,000; 0 = 10,000. At the
     * limit READY groups wait until a blocking call returns, and the log says so. Turns that run
     * long outside of blocking calls get at most about twice as many threads as workers. Unused
     * threads end after 10 to 20 s. If set, at least workers_max and the number of workers. */
    uint32_t threads_max;
    /* Maximum number of stacks of turns and processes that run or wait: 64 to 1,000,000; 0 =
     * 32,768. Each takes stack_bytes of address space and as much memory as its turn has touched.
     * Over it calls fail with TEFF_E_OVERLOADED. The tasks that keep a silo in its cluster have
     * stacks of their own. */
    uint32_t stacks_max;
    /* Maximum number of workers after a change at run time: from the number at the start to 1,024;
     * 0 = the number at the start. */
    uint32_t workers_max;
    teff_sched_policy policy; /* options that name another policy must be 0 */
    /* Multilevel: the run time from which a group is in level 1 and in level 2, in microseconds,
     * rising, up to 1,000,000; 0 = 5,000 and 100,000. A group's run time is halved every 10 s. */
    uint32_t level_us[TEFF_SCHED_LEVELS - 1];
    /* Multilevel: percentage of run time for level 0 while the other levels want more: 50 to 98;
     * 0 = 80. */
    uint32_t level0_percent;
    /* Priority: maximum number of groups that wait for a worker; 0 = no limit. Over it the least
     * urgent one is evicted: its requests fail with TEFF_E_OVERLOADED. */
    uint32_t waiting_max;
    const teff_sched_hooks *hooks; /* borrowed as these options; NULL = none */
    /* When the scheduler warns in the log; at most one line of each kind a second. A turn that goes
     * on is logged again each time its length has doubled. */
    uint32_t turn_warn_ms;  /* a turn runs this long without suspending: up to a day; 0 = 1 s */
    uint32_t delay_warn_ms; /* a work item was queued longer than this, or requests of a grain wait
                             * for a turn that is as old: up to a day; 0 = 10 s */
    uint32_t queue_warn;    /* one group has more queued work items than this; 0 = never */
    /* After this run time a turn yields at its next call of teff, if other groups are READY: 1 to
     * 1,000 ms, rounded up to a multiple of 2.5 ms; 0 = 10. */
    uint32_t slice_ms;
    /* How many times a group that becomes READY while it runs is run again in place, before it is
     * queued behind the others: up to 1,000; 0 = 5. */
    uint32_t repolls_max;
    /* Size of each of these stacks: 64 KiB to 8 MiB; 0 = 64 KiB. */
    size_t stack_bytes;
} teff_sched_options;

/* Counters of one worker since the start. They are read while they grow. */
typedef struct teff_sched_worker {
    uint64_t runs;   /* runs of groups: the sum of the next four */
    uint64_t lifo;   /* taken from the LIFO slot: the group that the previous turn woke last */
    uint64_t local;  /* taken from the worker's own queue */
    uint64_t global; /* taken from the queue that all workers share */
    uint64_t stolen; /* stolen from another worker and run at once */
    uint64_t steals; /* groups stolen from other workers, including those queued for later */
    uint64_t parks, unparks; /* times it parked; times another thread unparked it for work */
    uint64_t requeues;       /* runs that ended because the quantum was used up */
    uint64_t level_ns[TEFF_SCHED_LEVELS]; /* multilevel: run time by level */
} teff_sched_worker;

typedef struct teff_sched_metrics {
    uint32_t workers;     /* number of teff_sched_worker elements */
    uint32_t active;      /* workers in use now: the first ones of the array */
    uint32_t threads;     /* threads started so far, including those in blocking calls */
    uint32_t ready;       /* groups that are now in the queue that all workers share */
    double level0_chance; /* multilevel: the current probability that a pick is of level 0 */
    uint64_t evicted;     /* priority: groups evicted over waiting_max */
} teff_sched_metrics;

/* teff_yield - let other READY groups run first.
 * out:  true: it has yielded, or there were none.
 * runs: anywhere. Only a turn with a fiber can yield: every turn of a grain, and of a process with
 *       TEFF_PROCESS_FIBER. Elsewhere it returns false, and another thread runs the other groups.
 *       Nothing else of the same grain or process runs meanwhile. The turn may continue on another
 *       thread, so it must hold no lock. */
TEFF_API bool teff_yield(void);

/* teff_yield_if_due - for long computations: yield only if this turn's slice is over (slice_ms) and
 * other groups are READY. Every other call of teff in a turn (calls of grains, send, receive) does
 * the same.
 * out:  true: other groups ran before it returned. Takes 2 ns if there is nothing to do.
 * runs: as teff_yield. */
TEFF_API bool teff_yield_if_due(void);

typedef struct teff_preemptible {
    void *turn;
} teff_preemptible;

/* teff_preemptible_begin, teff_preemptible_end - mark a computation that may be preempted at any
 * instruction when the turn's time slice is over and other groups are READY. It continues later,
 * maybe on another thread. Between them only plain computation is allowed: no call of teff, no
 * lock, no malloc, no system call, nothing thread-local (such as errno). They do not nest. If the
 * turn waits or ends between them, the process aborts with a line that names the turn.
 * in:   region, what begin returned.
 * out:  the argument for end.
 * runs: anywhere. As for teff_yield, only a turn with a fiber is preempted; a turn without one
 *       loses its processor to another thread. Uses SIGURG and about 4 KiB (with AVX-512) of the
 *       stack. */
TEFF_API teff_preemptible teff_preemptible_begin(void);
TEFF_API void teff_preemptible_end(teff_preemptible region);

/* teff_blocking_begin, teff_blocking_end - call them around a call that blocks the thread: a system
 * call, a driver, a lock that is held for long. Another thread takes over the processor as soon as
 * a group is READY; end waits until the turn has a processor again. A turn with a fiber may then
 * continue on another thread, as after teff_yield. They nest.
 * runs: in a turn of a grain, process or engine; elsewhere they do nothing. If the turn ends
 *       between them, or calls a function of teff that waits, the process aborts with a line that
 *       names the turn. The monitor notices a turn that blocks without them after 10 ms. */
TEFF_API void teff_blocking_begin(void);
TEFF_API void teff_blocking_end(void);

TEFF_END_C
