/* scheduler.h - the state that the workers of one executor share.
 * Threads: see the headings in the struct.
 * Source:  Go's schedt (src/runtime/runtime2.go) */
#pragma once

#include "group/inbound.h"
#include "sched/policy/contention.h"
#include "sched/policy/level.h"
#include "sched/policy/priority.h"
#include "sched/processor.h"
#include "sched/queue/runqueue.h"
#include "sched/worker.h"

/* idle_word: searching workers, and idle ones from bit 16 on. */
enum {
    TEFFI_SEARCHING = 1,
    TEFFI_IDLE = 1 << 16,
    TEFFI_SEARCHING_MASK = TEFFI_IDLE - 1,
};

enum { TEFFI_ATTEND_STOP = 1, TEFFI_ATTEND_WAITING = 2 }; /* bits of attention */

/* The monitor's own state (monitor.c, poll.c, report.c). */
typedef struct teffi_monitor {
    teffi_thread thread;
    teffi_parker parker;              /* woken by any thread */
    uint64_t watched_ns;              /* when it last looked for long turns */
    bool reclaims;                    /* there is more to reclaim */
    uint32_t seen_claims, seen_waits; /* poller->claims, sched->waits at the last tick */
    size_t reclaimed_bytes;           /* freed to the allocator since its heap was last trimmed */
    teffi_contention contention;
} teffi_monitor;

/* A thread that is no worker and has borrowed a processor (borrow.c). */
typedef struct teffi_borrow {
    bool active;                      /* guarded by idle_lock */
    teffi_parker left;                /* wakes the thread that stops the scheduler */
    _Alignas(64) teffi_worker worker; /* the worker that the thread acts as */
} teffi_borrow;

struct teffi_sched {
    teffi_exec exec;
    /* immutable after init */
    unsigned n_processors;
    unsigned threads_max;
    unsigned take_max;  /* groups taken from the global queue with the one to run */
    bool runs_extended; /* hooks before, after, or a policy: run_with_hooks_and_policy in run.c */
    bool no_membarrier; /* the kernel has none: teffi_processor_use_begin uses an exchange */
    teff_sched_hooks hooks;
    teffi_exec_ops ops;           /* with the policy's ready */
    uint32_t slice_ticks;         /* see retake.h */
    teffi_levels *levels;         /* multilevel; else NULL */
    teffi_priorities *priorities; /* priority; else NULL */
    teffi_processor *processors;
    void (*worker_main)(void *worker); /* what a worker's thread runs */
    /* atomic */
    _Alignas(64) _Atomic uint32_t idle_word; /* see idle.h */
    _Atomic uint32_t wake_below; /* see teffi_enough_workers_are_running; written by the monitor */
    _Alignas(64) _Atomic uint32_t attention;  /* not 0: stopping, or a worker waits */
    _Alignas(64) _Atomic uint32_t next_wheel; /* round robin, for timers set by other threads */
    _Atomic uint32_t n_backing_off;           /* workers */
    _Atomic uint32_t n_threads;               /* of workers; written under idle_lock */
    _Atomic uint32_t n_active;     /* the first n_active are in use; written under idle_lock */
    _Atomic bool has_system;       /* after ops->system; release: exec.system_fibers */
    teffi_poller *_Atomic poller;  /* NULL: none. Set once */
    teffi_worker *_Atomic polling; /* waits in the poller, or handles the events of that wait; NULL:
                                    * none does. Not set while a busy worker looks */
    _Atomic uint32_t waits;        /* how often a worker began to wait in the poller */
    const char *_Atomic refusal;   /* why a thread was refused, until the monitor has logged it */
    teffi_runqueue queue;          /* the global one; it has a lock */
    teffi_runqueue system_queue;   /* of the system thread; it has a lock */
    /* guarded by idle_lock */
    pthread_mutex_t idle_lock;
    teffi_worker_list in_state[TEFFI_WORKER_STATES];
    teffi_worker **workers; /* each is freed with the scheduler, even if it has no thread */
    unsigned n_workers, workers_room;
    bool stopping, monitor_asleep, refused_once;
    /* see their types */
    teffi_borrow borrow;
    teffi_inbound_queue inbound;
    teffi_worker system;   /* the system thread; it never holds a processor */
    teffi_monitor monitor; /* its thread's, except thread and parker */
};

/* teffi_sched_of - the scheduler whose first field is *exec. */
static inline teffi_sched *teffi_sched_of(teffi_exec *exec)
{
    return (teffi_sched *)(void *)exec;
}

/* teffi_sched_has_system_thread - is there a system thread? If there is none, system groups run on
 * workers. */
static inline bool teffi_sched_has_system_thread(const teffi_sched *sched)
{
    /* acquire: pairs with teffi_system_thread_start */
    return atomic_load_explicit(&sched->has_system, memory_order_acquire);
}

/* teffi_processor_is_active - is p one of the first n_active processors? A hint, unless idle_lock
 * is held. */
static inline bool teffi_processor_is_active(const teffi_sched *sched, const teffi_processor *p)
{
    return (size_t)(p - sched->processors) <
           atomic_load_explicit(&sched->n_active, memory_order_relaxed);
}

/* teffi_sched_is_stopping - does the scheduler stop? A hint, unless idle_lock is held. */
static inline bool teffi_sched_is_stopping(const teffi_sched *sched)
{
    return atomic_load_explicit(&sched->attention, memory_order_relaxed) & TEFFI_ATTEND_STOP;
}
