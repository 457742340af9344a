/* engine.h - an engine of schedulers: workers, broadcast tasks, and data with owners.
 * Way:     broadcast -> every scheduler -> [the workers that list the task] -> run
 * Threads: a worker's functions run one at a time; those of an engine from any thread.
 * Source:  the seed document about an engine of schedulers */
#ifndef TEFF_ENGINE_H
#define TEFF_ENGINE_H

#include <teff/process.h>

/* An engine has several schedulers, each with threads of its own. Workers are processes that are
 * added to a scheduler. Who has something to do broadcasts a task: each scheduler gets a copy and
 * gives it to those of its workers that list the task's type; where nobody does it is dropped. So
 * no worker needs to know another, and it does not matter who is there.
 *
 * A thread of a scheduler waits in one place, when nothing at all is ready; whatever is pushed
 * wakes it, so nothing is polled. The one thing that nobody tells it about is the condition that a
 * worker waits for (teff_worker_wait): see poll_ms. */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct teff_engine teff_engine;
typedef struct teff_worker teff_worker; /* seen from its own functions and tasks */

/* ---- data ------------------------------------------------------------------------------- */

/* Constant; its address is its identity. Every function may be NULL and runs on the worker. */
typedef struct teff_data_type {
    const char *name;
    size_t size;
    void (*init)(teff_worker *w, void *data);        /* the owner's, or local: zeroed before */
    void (*setup_owner)(teff_worker *w, void *data); /* the owner, before others may have it */
    void (*bind)(teff_worker *w, void *data);        /* group and share: found */
    void (*setup)(teff_worker *w, void *data);       /* every user, holding it to write */
    void (*unbind)(teff_worker *w, void *data);      /* group and share: let go */
    void (*fini)(teff_worker *w, void *data);        /* local; the owner, holding it to write */
} teff_data_type;

typedef enum teff_data_kind {
    TEFF_DATA_OWNER = 1, /* this worker makes it and takes it down; one owner in a scheduler */
    TEFF_DATA_LOCAL = 2, /* this worker's alone */
    TEFF_DATA_GROUP = 3, /* owned by another worker of the same scheduler */
    TEFF_DATA_SHARE = 4  /* owned by a worker of any scheduler of the engine */
} teff_data_kind;

typedef struct teff_data_use {
    const teff_data_type *type;
    teff_data_kind kind;
} teff_data_use;

typedef enum teff_access { TEFF_READ = 1, TEFF_WRITE = 2 } teff_access;

typedef struct teff_need { /* what a task reads or writes */
    const teff_data_type *type;
    teff_access access;
} teff_need;

/* ---- tasks ------------------------------------------------------------------------------ */

enum { TEFF_NEEDS_MAX = 8 };

/* Constant; its address is its identity. A task is size bytes that are copied for each scheduler
 * and each worker: no pointers to what may be gone. */
typedef struct teff_task_type {
    const char *name;
    size_t size;
    /* data[i] is what needs[i] names, held for the time of the run. */
    void (*run)(teff_worker *w, void *task, void *const *data);
    /* Once for each worker that got it: ran, or thrown away when the worker ended (ran = 0); here
     * those are released who wait for it. May be NULL. */
    void (*over)(void *task, int ran);
    uint32_t n_needs;
    teff_need needs[TEFF_NEEDS_MAX];
} teff_task_type;

/* A task that holds up its worker until a condition comes true; list it as any other. */
typedef struct teff_until {
    int (*is_true)(void *arg);
    void *arg; /* must live until then */
} teff_until;
TEFF_API extern const teff_task_type teff_task_until;

/* ---- workers ---------------------------------------------------------------------------- */

enum { TEFF_WORKER_FIBER = 1 /* has a stack of its own: waiting suspends it */ };

/* Constant. Set up in this order: owner data (init, then setup_owner, then others may have it),
 * local (init), group (bind), share (bind), then setup of all; a worker waits for owners that are
 * not there yet. Taken down: share, group (unbind), local, owner (fini), then what is left of
 * its queue, without running it. When the owner of what it bound is gone the worker ends.
 *
 * Without run: the tasks in its queue are run front to back. Four ways: see teff/process.h. */
typedef struct teff_worker_type {
    const char *name;
    uint32_t flags;
    const teff_data_use *data;
    size_t n_data;
    const teff_task_type *const *tasks; /* what it executes; other tasks are not given to it */
    size_t n_tasks;
    /* In the place of the queue's loop; ends the worker when it returns. It runs tasks by
     * teff_worker_drain. Without a fiber it must be its scheduler's only worker. */
    void (*run)(teff_worker *w);
} teff_worker_type;

typedef struct teff_worker_id {
    uint32_t scheduler;
    teff_pid pid;
} teff_worker_id;

/* ---- inside a worker -------------------------------------------------------------------- */

TEFF_API void *teff_worker_user(teff_worker *w);
TEFF_API teff_engine *teff_worker_engine(teff_worker *w);
TEFF_API teff_worker_id teff_worker_id_of(teff_worker *w);

/* teff_worker_data - data that the worker uses, NULL when it does not. Held or not: the caller has
 * to know what it may touch. */
TEFF_API void *teff_worker_data(teff_worker *w, const teff_data_type *type);

/* teff_worker_run - run a task now, inside another or inside run.
 * in:   task, borrowed, may be changed by the run. lock, what to take hold of, n of them; the rest
 *       of the task's needs must be held by the caller already. All: lock = NULL, n = SIZE_MAX.
 * runs: waits for the data.
 * errs: TEFF_E_INVALID: the task needs what is neither used nor locked; TEFF_E_DEADLOCK: others
 *       who wait for what the caller holds have it; TEFF_E_CLOSED: its owner is gone;
 *       TEFF_E_CANCELLED: the worker is ending. It did not run. */
TEFF_API TEFF_MUST_USE teff_err teff_worker_run(teff_worker *w, const teff_task_type *type,
                                                void *task, const teff_need *lock, size_t n);

/* teff_worker_wait - until is_true(arg): looked at whenever a task anywhere in the engine has
 * ended, on teff_engine_notify, and every poll_ms.
 * errs: TEFF_E_CANCELLED: the worker is ending. */
TEFF_API TEFF_MUST_USE teff_err teff_worker_wait(teff_worker *w, int (*is_true)(void *arg),
                                                 void *arg);

/* teff_worker_yield - let others have a turn. errs: TEFF_E_CANCELLED. */
TEFF_API TEFF_MUST_USE teff_err teff_worker_yield(teff_worker *w);

/* teff_worker_drain - for run functions: run the tasks in the queue.
 * in:   wait, 0 = return when it is empty; 1 = wait for one at least.
 * errs: TEFF_E_CANCELLED: the worker is ending: return from run. */
TEFF_API TEFF_MUST_USE teff_err teff_worker_drain(teff_worker *w, int wait);

/* teff_worker_end - the worker ends when its task has returned. */
TEFF_API void teff_worker_end(teff_worker *w);

/* ---- engines ---------------------------------------------------------------------------- */

typedef struct teff_engine_options { /* zeroed = all defaults */
    uint32_t schedulers;             /* 0 = 1 */
    uint32_t threads;                /* of each scheduler; 0 = 1 */
    teff_sched_options sched;        /* how each of them schedules */
    uint32_t queue_max;              /* tasks waiting at a scheduler and at a worker; 0 = 10,000 */
    uint32_t poll_ms; /* how often a waited-for condition is looked at with no notice of a
                          * change; 0 = only on notice. The seed's loop would be 1. */
    /* A worker has ended completely. On a thread of its scheduler. May be NULL. */
    void (*ended)(void *arg, teff_worker_id id);
    void *arg;
} teff_engine_options;

/* teff_engine_new - schedulers without workers; they run until the engine is freed.
 * in:   opt, borrowed, may be NULL. errs: TEFF_E_NOMEM, TEFF_E_IO, TEFF_E_INVALID. */
TEFF_API TEFF_MUST_USE teff_err teff_engine_new(const teff_engine_options *opt,
                                                teff_engine **engine);

/* teff_engine_add - one more worker, at once: it gets every task broadcast after the return.
 * in:   scheduler, from 0; type, constant; user, borrowed until the worker has ended.
 * errs: TEFF_E_INVALID (no such scheduler; a run function without a fiber beside others; no tasks
 *       and no run), TEFF_E_CLOSED (stopping), TEFF_E_NOMEM. */
TEFF_API TEFF_MUST_USE teff_err teff_engine_add(teff_engine *engine, uint32_t scheduler,
                                                const teff_worker_type *type, void *user,
                                                teff_worker_id *id);

/* teff_engine_remove - tell a worker to end; it does so in its own time.
 * errs: TEFF_E_NOT_FOUND, TEFF_E_CLOSED: it has ended. */
TEFF_API teff_err teff_engine_remove(teff_engine *engine, teff_worker_id id);

/* teff_engine_broadcast - a copy of task to every scheduler, in the same order everywhere.
 * runs: any thread, also inside tasks. Does not wait.
 * errs: TEFF_E_OVERLOADED (a scheduler's queue is full), TEFF_E_CLOSED, TEFF_E_NOMEM: with the
 *       first two no scheduler got it. */
TEFF_API TEFF_MUST_USE teff_err teff_engine_broadcast(teff_engine *engine,
                                                      const teff_task_type *type, const void *task);

/* teff_engine_notify - something changed that a worker may wait for. runs: any thread. */
TEFF_API void teff_engine_notify(teff_engine *engine);

typedef struct teff_engine_stats {
    uint64_t broadcasts;
    uint64_t given;   /* copies put into workers' queues */
    uint64_t dropped; /* copies at schedulers where nobody listed them */
    uint64_t refused; /* copies for workers whose queue was full */
    uint32_t workers; /* there now */
} teff_engine_stats;
TEFF_API void teff_engine_stats_get(teff_engine *engine, teff_engine_stats *stats);

/* teff_engine_stop - every worker is told to end; as teff_process_system_stop. */
TEFF_API teff_err teff_engine_stop(teff_engine *engine, uint32_t timeout_ms,
                                   teff_stop_report *report);

/* teff_engine_free - stops it first when that was not done. in: may be NULL. */
TEFF_API void teff_engine_free(teff_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
