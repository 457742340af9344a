/* sched.h - how a silo's or a process system's scheduler is set up, and what it has done.
 * Way:     silo or process options -> [sched] -> runtime/sched -> metrics
 * Threads: options are plain data, read when the scheduler starts; the hooks run on its workers.
 * Source:  the scheduler seeds */
#ifndef TEFF_SCHED_H
#define TEFF_SCHED_H

#include <stdbool.h>
#include <stdint.h>
#include <teff/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Called by the threads that run groups (turns of grains, steps of processes), each for itself; any
 * may be NULL. They must not block, call into teff, or wait for one another. thread: 0, 1, ..., the
 * same in all calls of one thread. In the order of a thread's life:
 *
 *     start -> (before -> after)* -> pause -> resume -> (before -> after)* -> ... -> end
 *
 * A turn that waits on its worker's own stack may run others meanwhile: before and after nest. */
typedef struct teff_sched_hooks {
    void (*start)(void *arg, uint32_t thread);
    /* Around each run of a group. group only tells one from another: its memory may be gone. */
    void (*before)(void *arg, uint32_t thread, const void *group);
    void (*after)(void *arg, uint32_t thread, const void *group);
    /* Around its sleep when it has found nothing to do, or was left without a core to use. */
    void (*pause)(void *arg, uint32_t thread);
    void (*resume)(void *arg, uint32_t thread);
    void (*end)(void *arg, uint32_t thread);
    void *arg;
} teff_sched_hooks;

enum { TEFF_SCHED_LEVELS = 3 };

typedef enum teff_sched_policy {
    /* What a turn wakes runs next on its worker; the rest in order of arrival. */
    TEFF_SCHED_SINGLE = 0,
    /* The same for what has used little run time lately; what has used more waits in levels that
     * are picked less often, so that it holds up short work less. */
    TEFF_SCHED_MULTILEVEL = 1,
    /* By priority, strictly; what waits may be limited. */
    TEFF_SCHED_PRIORITY = 2
} teff_sched_policy;

typedef struct teff_sched_options { /* zeroed = all defaults */
    /* Threads at most, those that sit in blocking calls included: 2 .. 10,000; 0 = 10,000. At the
     * limit what is READY waits until a thread comes back, and the log says so. */
    uint32_t threads_max;
    /* Workers at most, when their number is changed at run time: up to 1,024; 0 = as many as there
     * are at the start. */
    uint32_t workers_max;
    teff_sched_policy policy;
    /* Multilevel: from how much run time on a group is of level 1 and of level 2, in microseconds,
     * rising, up to 1,000,000; 0 = 5,000 and 100,000. Every 10 s half of it is forgotten. */
    uint32_t level_us[TEFF_SCHED_LEVELS - 1];
    /* Multilevel: the share of run time that level 0 is to have when the others want more: 50 to
     * 98; 0 = 80. */
    uint32_t level0_percent;
    /* Priority: groups that may wait for a worker; 0 = no limit. Over it the least urgent of them
     * is evicted: what others asked of it is refused as TEFF_E_OVERLOADED instead of waiting. */
    uint32_t waiting_max;
    teff_sched_hooks hooks;
    /* When the scheduler warns in the log; at most one line of each kind a second. */
    uint32_t turn_warn_ms;  /* a turn runs this long without a pause: up to a day; 0 = 1 s */
    uint32_t delay_warn_ms; /* a work item waited longer for its turn: up to a day; 0 = 10 s */
    uint32_t queue_warn;    /* more work items wait at one group; 0 = never */
} teff_sched_options;

/* What one worker did since the start. Each is a moment's value, read while it grows. */
typedef struct teff_sched_worker {
    uint64_t runs;   /* of groups: the next four together */
    uint64_t next;   /* taken from the hand-off: what the turn before woke last */
    uint64_t local;  /* from its own queue */
    uint64_t global; /* from the queue of all workers */
    uint64_t stolen; /* straight from another worker */
    uint64_t steals; /* groups taken from other workers, those that it kept for later included */
    uint64_t parks, wakes; /* it went to sleep; others woke it because there was work */
    uint64_t requeues;     /* runs that ended because their share was used up */
    uint64_t level_ns[TEFF_SCHED_LEVELS]; /* run time by level; with multilevel */
} teff_sched_worker;

typedef struct teff_sched_metrics {
    uint32_t workers;     /* how many of teff_sched_worker there are */
    uint32_t active;      /* of them: in use now, the first ones */
    uint32_t threads;     /* started so far, those in blocking calls included */
    uint32_t ready;       /* groups in the queue of all workers now */
    double level0_chance; /* with multilevel: that a pick is of level 0, as adapted by now */
    uint64_t evicted;     /* with priority: groups, over the limit */
} teff_sched_metrics;

/* teff_reschedule - in a long computation: give way when this turn has run for 10 ms and others
 * wait. Every other call of teff's in a turn (calls of grains, send, receive) does the same.
 * out:  true: others were let in before it returned. Cheap when they need not be: 2 ns.
 * runs: anywhere. Only a turn with a stack of its own can give way: any of a grain's, and that of a
 *       process with TEFF_PROCESS_FIBER; elsewhere it returns false, and the others are served by
 *       another thread. The turn goes on as before: nothing else of its grain or process has run,
 *       but it may go on in another thread. Hold no lock of your own. */
TEFF_API bool teff_reschedule(void);

/* teff_preemptible_begin, teff_preemptible_end - around a computation that calls nothing: between
 * them the turn is stopped wherever it is when its slice is over and others wait, and goes on
 * later, maybe in another thread. Only plain computation may stand between them: no call of teff's,
 * no lock, no malloc, no system call, nothing thread-local (errno too). They do not nest.
 * runs: anywhere; as for teff_reschedule, only a turn with a stack of its own is stopped, the
 *       others just lose their worker's place. Uses SIGURG and some 4 KiB (with AVX-512) of the
 *       stack. */
typedef struct teff_preemptible {
    void *turn;
} teff_preemptible;

TEFF_API teff_preemptible teff_preemptible_begin(void);
TEFF_API void teff_preemptible_end(teff_preemptible region);

/* teff_blocking_begin, teff_blocking_end - around a call that blocks the thread: a system call, a
 * driver, a lock held for long. The worker's place goes to another thread as soon as something is
 * READY; end gets a place again, waiting for one if need be. They nest.
 * runs: in a turn of a grain, process or engine; elsewhere they do nothing. No call of teff's that
 *       waits may stand between them. A turn that blocks without them is noticed after 10 ms. */
TEFF_API void teff_blocking_begin(void);
TEFF_API void teff_blocking_end(void);

/* Takes one line of a report, without its newline; it is gone after the return. */
typedef void teff_line_fn(void *arg, const char *line);

/* teff_line_print - a teff_line_fn. in: file, a FILE *. */
TEFF_API void teff_line_print(void *file, const char *line);

#ifdef __cplusplus
}
#endif
#endif
