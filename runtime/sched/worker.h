/* worker.h - M: a thread that runs groups while it holds a processor.
 * Way:     processor (staff) -> [worker] -> run (loop)
 * States:  teffi_worker_state
 * Threads: see the headings in the struct. A turn may lose its worker's processor (retake.h) and
 *          may resume on another worker.
 * Source:  Go's M (src/runtime/proc.go) */
#pragma once

#include <sys/queue.h>
#include "base/local.h"
#include "fiber/fiber.h"
#include "group/warn.h"
#include "os/thread.h"
#include "sched/processor.h"

enum { TEFFI_THREADS_MIN = 2, TEFFI_THREADS_MAX = TEFF_THREAD_BORROWED };

/* Guarded by idle_lock, as the list of the workers in each state. A RUNNING worker has a processor,
 * except the system thread, and a worker between teffi_scale_leave_processor and
 * teffi_regain_processor. */
typedef enum teffi_worker_state {
    TEFFI_WORKER_RUNNING = 0,
    TEFFI_WORKER_PARKED,  /* holds a processor; idle */
    TEFFI_WORKER_BLOCKED, /* in a blocking region with its processor; idle */
    TEFFI_WORKER_OUT,     /* in a blocking region, its processor handed over; the unused borrower */
    TEFFI_WORKER_LOST,    /* its turn took too long, its processor was retaken */
    TEFFI_WORKER_WAITING, /* in its turn, after a blocking region, for a processor */
    TEFFI_WORKER_SPARE,   /* between turns, without a processor */
    TEFFI_WORKER_ENDED,   /* its thread ends, because it was spare for long */
    TEFFI_WORKER_VACANT,  /* without a thread: it was joined, or did not start */
    TEFFI_WORKER_STATES
} teffi_worker_state;

/* How the monitor watches for long turns (report.c); guarded by idle_lock. */
typedef struct teffi_watched {
    uint64_t run, since_ns; /* the run it saw last, and when it saw it first */
    uint64_t next_ms;       /* it is logged when it has run for so long */
} teffi_watched;

/* Turns in place (direct.c). */
typedef struct teffi_direct_budget {
    uint64_t run;     /* the run that count and from_ms belong to */
    uint32_t from_ms; /* coarse clock at that run's first attempt */
    unsigned count;   /* attempts, also those that ran no turn, see group/direct.h */
    unsigned depth;   /* turns nested now */
    unsigned unseen;  /* turns since find.c last added them to lifo_picks, at a pick */
} teffi_direct_budget;

struct teffi_worker {
    /* immutable */
    teffi_sched *sched;
    uint32_t number; /* the hooks' argument thread: from 0; the borrower's: TEFF_THREAD_BORROWED;
                      * the system thread, which calls no hooks: UINT32_MAX */
    /* any thread */
    teffi_poll_parker parker;
    /* written by its own thread; read by the monitor and dumps */
    _Atomic uintptr_t running;  /* the group of the innermost turn (group/warn.h). release: the
                                  * group's set-up; pairs with readers' acquire */
    _Atomic uint64_t run;       /* that run's number: its processor's runs then; of the system
                                 * thread: its own count. relaxed */
    _Atomic bool blocked;       /* in a blocking region */
    _Atomic uint32_t held;      /* number of its processor, from 1; 0: none. Written with the field
                                 * processor: under idle_lock, by any thread */
    _Atomic bool backing_off;   /* see idle.h */
    _Atomic uint32_t in_region; /* preemptible: its turn may be interrupted */
    _Atomic uint32_t using_processor; /* pairs with retaken, see retake.h */
    /* written by others */
    _Atomic uint32_t retaken; /* by the monitor under idle_lock; cleared with a new processor, or
                               * when the retake is cancelled */
    _Atomic uint32_t preempt; /* preemption request, by the monitor, or by its own thread after a
                               * turn in place has yielded; cleared when a run begins */
    /* own thread */
    teffi_processor *processor; /* changed under idle_lock; its thread reads it while using it */
    bool searching;             /* while idle or SPARE: written under idle_lock by its waker */
    bool refuses_deferred; /* in teffi_run_deferred_and_refuse_new: no other work can be deferred */
    bool adds_to_batch;    /* groups that it makes READY are added to the local batch */
    unsigned nested;       /* runs nested in waiting turns */
    unsigned blocking;     /* depth of blocking regions */
    teffi_fiber *nested_on; /* the fiber of the turn that waits for a nested run, or NULL */
    uint64_t preemptions;   /* of the thread by the OS; see teffi_local_batch_sample_if_due */
    teffi_direct_budget direct;
    teffi_group *run_first;         /* fork: to run before the turn that yields */
    void (*after_yield)(void *arg); /* to call once the yielding turn's fiber is suspended */
    void *after_yield_arg;
    struct teffi_timed_run *timed;       /* run.c: the run under way, with policy multilevel */
    uint64_t timed_ns;                   /* run time since the last adjust_level0_chance */
    teffi_group *batch[TEFFI_STEAL_MAX]; /* groups on their way from one queue to another */
    /* guarded by idle_lock; thread is joined without it, and its tid is atomic */
    teffi_thread thread;
    teffi_worker_state state;
    TAILQ_ENTRY(teffi_worker) link; /* in the list of its state */
    uint64_t sleeps_until_ns;       /* while PARKED or SPARE */
    teffi_watched watched;
    /* the monitor's */
    uint64_t ran_ns,
        delayed_ns; /* of its thread, at the last sample (teffi_thread_read_run_times) */
};

/* teffi_worker_set_running_group - record that this thread runs `group`, in the run with number
 * `run`. When a nested run has ended, the caller records the outer group again.
 * teffi_worker_clear_running_group - record that this thread runs no group. */
static inline void teffi_worker_set_running_group(teffi_worker *w, const teffi_group *group,
                                                  uint64_t run)
{
    atomic_store_explicit(&w->run, run, memory_order_relaxed);
    /* release: publishes w->run and the group's set-up; pairs with load_run() in report.c */
    atomic_store_explicit(&w->running, teffi_running_group_pack(group), memory_order_release);
}

static inline void teffi_worker_clear_running_group(teffi_worker *w)
{
    atomic_store_explicit(&w->running, 0, memory_order_relaxed);
}

/* teffi_worker_running_group - the group that this thread runs; NULL: none. */
static inline teffi_group *teffi_worker_running_group(const teffi_worker *w)
{
    return teffi_running_group_unpack(atomic_load_explicit(&w->running, memory_order_relaxed));
}

/* teffi_abort_for_rule_broken_by_turn - abort, because the turn that this worker runs broke a rule.
 * The error text names the turn. */
_Noreturn void teffi_abort_for_rule_broken_by_turn(const teffi_worker *w, const char *rule);

/* teffi_turn_abort_if_blocking - abort if the turn is still in a blocking region. Called after a
 * turn was suspended or has returned. */
static inline void teffi_turn_abort_if_blocking(const teffi_worker *w)
{
    if (__builtin_expect(w->blocking != 0, 0))
        teffi_abort_for_rule_broken_by_turn(
            w, "it waits, or returned, after teff_blocking_begin without teff_blocking_end");
}

/* teffi_worker_self - this thread's worker; NULL: none. Never inlined, since a turn that moved to
 * another thread must not use a cached value. teffi_own_worker - the same, for functions that are
 * never inlined and read it before any call that may suspend. */
teffi_worker *teffi_worker_self(void);
TEFFI_LOCAL_EXTERN teffi_worker *teffi_own_worker;

/* teffi_worker_set_self - set this thread's worker; NULL: the thread is no worker any more. */
void teffi_worker_set_self(teffi_worker *w);

/* ---- lists; idle_lock held ---- */

typedef TAILQ_HEAD(teffi_worker_list, teffi_worker) teffi_worker_list;

/* teffi_worker_set_state - move w to the head of the list of its new state. */
void teffi_worker_set_state(teffi_worker *w, teffi_worker_state state);

/* teffi_worker_wake - wake its thread. in: w, may be NULL. runs: with or without idle_lock. */
void teffi_worker_wake(teffi_worker *w);

/* teffi_worker_latest_in_state - the worker that entered this state last; NULL: none is in this
 * state.
 * teffi_worker_longest_in_state - the worker that has been in this state longest; NULL: as
 * above. */
teffi_worker *teffi_worker_latest_in_state(const teffi_sched *sched, teffi_worker_state state);
teffi_worker *teffi_worker_longest_in_state(const teffi_sched *sched, teffi_worker_state state);

/* teffi_worker_set_processor - w holds p from now on; NULL: no processor. The caller sets
 * p->worker. */
void teffi_worker_set_processor(teffi_worker *w, teffi_processor *p);

/* ---- threads ---- */

/* teffi_worker_init - make w a RUNNING worker of sched, without a thread. idle_lock held, or no
 * other thread knows sched. in: w, zeroed. */
void teffi_worker_init(teffi_worker *w, teffi_sched *sched, uint32_t number);

/* teffi_worker_start - start a thread that runs sched->worker_main with p. idle_lock held.
 * in:   searching: idle_word counts the worker as searching already.
 * out:  NULL: no thread was started, and p->worker may be NULL now; teffi_log_thread_refusal logs
 * why. */
teffi_worker *teffi_worker_start(teffi_sched *sched, teffi_processor *p, bool searching);

/* teffi_workers_join_ended - join the threads of ENDED workers, which become VACANT.
 * runs: the monitor, without idle_lock. */
void teffi_workers_join_ended(teffi_sched *sched);

/* teffi_workers_join_all - join the threads of all workers. Called after stopping was set, and when
 * the monitor has ended or did not start.
 * teffi_workers_free - free all workers. Called when their threads were joined. */
void teffi_workers_join_all(teffi_sched *sched);
void teffi_workers_free(teffi_sched *sched);

/* teffi_log_thread_refusal - log why no thread was started: the first reason, once per scheduler.
 * runs: the monitor, no lock held; or when there is no monitor. */
void teffi_log_thread_refusal(teffi_sched *sched);
