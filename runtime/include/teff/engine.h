/* engine.h - an engine of schedulers: components, broadcast tasks, and data with owners.
 * Way:     broadcast -> every scheduler -> [the components that list the task] -> run
 * Threads: a component's functions run one at a time; those of an engine from any thread. */
#pragma once

#include <teff/process.h>

/* An engine has several schedulers, each with its own threads. Components are processes that are
 * added to a scheduler. A task is broadcast: each scheduler gets a copy and queues it at those of
 * its components that list the task's type, or drops it if none does. So components need not know
 * one another. Threads park when nothing is READY and are unparked by new work; only the conditions
 * of teff_component_wait may be polled, see poll_ms. There is no function that updates a
 * scheduler, dequeues its tasks or resumes a component: its threads do so when there is work. A
 * component asks for that by teff_component_yield and _drain, a thread by teff_engine_notify. */

TEFF_BEGIN_C

typedef struct teff_engine teff_engine;
typedef struct teff_component teff_component; /* a component, for its own functions and tasks */

/* ---- data ------------------------------------------------------------------------------- */

/* Constant; its address is its identity. Every function may be NULL and runs on the component. An
 * owner that is ended by force while others hold its data does not call fini. */
typedef struct teff_data_type {
    const char *name;
    size_t size;
    void (*init)(teff_component *component, void *data); /* owner, local: data is zeroed */
    void (*setup_owner)(teff_component *component,
                        void *data);                       /* owner: before others can bind it */
    void (*bind)(teff_component *component, void *data);   /* group, share: the owner was found */
    void (*setup)(teff_component *component, void *data);  /* all kinds, locked for writing */
    void (*unbind)(teff_component *component, void *data); /* group, share: the use ends */
    void (*fini)(teff_component *component, void *data);   /* local; owner: locked for writing */
} teff_data_type;

typedef enum teff_data_kind {
    TEFF_DATA_OWNER = 1, /* this component makes and frees it; one owner per scheduler */
    TEFF_DATA_LOCAL = 2, /* a private copy of this component */
    TEFF_DATA_GROUP = 3, /* owned by another component of the same scheduler */
    TEFF_DATA_SHARE = 4  /* owned by a component of any scheduler of the engine */
} teff_data_kind;

typedef struct teff_data_use {
    const teff_data_type *type;
    teff_data_kind kind;
} teff_data_use;

typedef enum teff_access { TEFF_READ = 1, TEFF_WRITE = 2 } teff_access;

typedef struct teff_need { /* data that a task reads or writes */
    const teff_data_type *type;
    teff_access access;
} teff_need;

/* ---- tasks ------------------------------------------------------------------------------ */

enum { TEFF_NEEDS_MAX = 8 };

/* Constant; its address is its identity. A task is size bytes, which are copied for each scheduler
 * and each component: a pointer in it must stay valid until all have run. */
typedef struct teff_task_type {
    const char *name;
    size_t size;
    /* data[i] is the data of needs[i], locked during the run. */
    void (*run)(teff_component *component, void *task, void *const *data);
    /* Called once for each component that got the task by a broadcast or send: ran = 1; or 0: it
     * did not run, since the component ended before, was evicted (teff_sched_options.waiting_max),
     * does not use the task's data, or could not lock it. For waking threads that wait for the
     * task. Runs on a thread of the component's scheduler. May be NULL. */
    void (*over)(void *task, int ran);
    uint32_t n_needs;
    teff_need needs[TEFF_NEEDS_MAX];
} teff_task_type;

/* A task that blocks its component until a condition is true; list it like any other task. */
typedef struct teff_until {
    int (*is_true)(void *arg);
    void *arg; /* must stay valid until the condition is true */
} teff_until;
TEFF_API extern const teff_task_type teff_task_until;

/* ---- components ---------------------------------------------------------------------------- */

enum { TEFF_COMPONENT_FIBER = 1 /* runs on a fiber: waiting suspends it */ };

/* Constant. A component begins in this order: owner data (init, setup_owner, then others may bind
 * it), local (init), group (bind), share (bind), then setup of all; it waits for owners that do not
 * exist yet. It ends if it cannot make its data: its scheduler has another owner of the type, or
 * memory is out. It ends in this order: share, group (unbind), local, owner (fini), then the rest
 * of its queue, without running it. When the owner of bound data ends, the component ends.
 *
 * Without run, queued tasks run in order. For fiber and run see the four ways in teff/process.h. */
typedef struct teff_component_type {
    const char *name;
    uint32_t flags;
    const teff_data_use *data;
    size_t n_data;
    const teff_task_type *const *tasks; /* the tasks that it executes; others are not queued */
    size_t n_tasks;
    /* Replaces the loop over the queue; the component ends when it returns. It runs queued tasks
     * with teff_component_drain. Without a fiber it must be its scheduler's only component. */
    void (*run)(teff_component *component);
} teff_component_type;

typedef struct teff_component_id {
    uint32_t scheduler;
    teff_pid pid;
} teff_component_id;

/* ---- inside a component -------------------------------------------------------------------- */

/* teff_component_user - the user argument of teff_engine_add. teff_component_engine - the engine of
 * the component. teff_component_id_of - the component's id.
 * in:   component, the calling component; also in all functions below.
 * out:  borrowed, valid while the component lives.
 * runs: inside any function of the component. */
TEFF_API void *teff_component_user(teff_component *component);
TEFF_API teff_engine *teff_component_engine(teff_component *component);
TEFF_API teff_component_id teff_component_id_of(teff_component *component);

/* teff_component_ctx - the context with which this component's tasks call grains and ask processes,
 * see teff_process_ctx.
 * in:   component, of an engine of a silo (teff_silo_make_engine), with TEFF_COMPONENT_FIBER.
 * out:  borrowed, valid until the component ends. NULL: no fiber, no silo, or out of memory.
 * runs: inside any function of the component. A call suspends the component, which keeps the data
 *       that its task has locked. */
TEFF_API teff_ctx *teff_component_ctx(teff_component *component);

/* teff_component_data - data that the component uses. It need not be locked: the caller must know
 * whether it may access it.
 * in:   type, of one of the component's uses.
 * out:  borrowed, valid until the component ends; NULL: the component does not use it.
 * runs: inside any function of the component. */
TEFF_API void *teff_component_data(teff_component *component, const teff_data_type *type);

/* teff_component_run_task - run a task now, inside another task or inside run; its `over` function
 * is not called.
 * in:   task, borrowed, may be changed by the run. lock, n needs to lock for the run; the caller
 *       must hold the locks of the task's other needs. lock = NULL, n = SIZE_MAX: lock all.
 * runs: inside the component; waits for the locks.
 * errs: TEFF_E_INVALID: a need is not used by the component or not locked; TEFF_E_DEADLOCK: its
 *       holder waits for data that the caller holds; TEFF_E_CLOSED: the data's owner has ended;
 *       TEFF_E_CANCELLED: the component is ending. On an error the task did not run. */
TEFF_API TEFF_MUST_USE teff_err teff_component_run_task(teff_component *component,
                                                        const teff_task_type *type, void *task,
                                                        const teff_need *lock, size_t n);

/* teff_component_lock - lock data until teff_component_unlock, or until the function that locked it
 * (of the task, or run) returns. Tasks inside need not lock it again, see teff_component_run_task.
 * in:   needs, n of them, up to TEFF_NEEDS_MAX: all are locked at once.
 * runs: inside a task or the run function; waits for the locks as teff_component_wait. A queued
 *       task is not run (over with ran = 0) if it waits for a component that waits for this lock.
 * errs: TEFF_E_NOMEM; else as teff_component_run_task. On an error nothing is locked. */
TEFF_API TEFF_MUST_USE teff_err teff_component_lock(teff_component *component,
                                                    const teff_need *needs, size_t n);

/* teff_component_unlock - release the data of the newest teff_component_lock.
 * in:   component.
 * runs: as teff_component_lock; does not wait.
 * errs: TEFF_E_NOT_FOUND: there is none in this task or run function. */
TEFF_API teff_err teff_component_unlock(teff_component *component);

/* teff_component_wait - wait until is_true(arg) returns non-zero. is_true is called when any task
 * of the engine has ended, on teff_engine_notify, and every poll_ms.
 * in:   is_true and arg, borrowed until the return.
 * runs: inside the component; suspends a component with a fiber, otherwise blocks the worker's
 *       stack (teff/process.h).
 * errs: TEFF_E_CANCELLED: the component is ending. */
TEFF_API TEFF_MUST_USE teff_err teff_component_wait(teff_component *component,
                                                    int (*is_true)(void *arg), void *arg);

/* teff_component_yield - let other components run first.
 * in:   component. runs, errs: as teff_component_wait. */
TEFF_API TEFF_MUST_USE teff_err teff_component_yield(teff_component *component);

/* teff_component_drain - for run functions: run the queued tasks.
 * in:   wait, 0 = return if the queue is empty; 1 = wait for at least one task.
 * runs: inside the run function.
 * errs: TEFF_E_CANCELLED: the component is ending: return from run. */
TEFF_API TEFF_MUST_USE teff_err teff_component_drain(teff_component *component, int wait);

/* teff_component_end - end the component after its current task has returned.
 * in:   component.
 * runs: inside any function of the component. */
TEFF_API void teff_component_end(teff_component *component);

/* ---- engines ---------------------------------------------------------------------------- */

typedef struct teff_engine_options { /* zeroed, except size = all defaults */
    size_t size;                     /* sizeof(teff_engine_options) */
    uint32_t schedulers;             /* up to 256; 0 = 1 */
    uint32_t threads;                /* of each scheduler; 0 = 1 */
    const teff_sched_options *sched; /* of each scheduler; borrowed; NULL = all defaults */
    uint32_t queue_max; /* tasks queued at a scheduler, and at a component; 0 = 10,000 */
    uint32_t poll_ms;   /* period at which conditions of teff_component_wait are tested without a
                          * notification; 0 = never */
    /* Called after a component has ended, on a thread of its scheduler. May be NULL. */
    void (*ended)(void *arg, teff_component_id id);
    void *arg;
} teff_engine_options;

/* teff_engine_new - start an engine without components; it runs until it is stopped.
 * in:   opt and opt->sched, borrowed, copied; NULL = all defaults.
 * out:  *engine, owned; NULL on an error.
 * runs: a thread outside.
 * errs: as teff_process_system_new. */
TEFF_API TEFF_MUST_USE teff_err teff_engine_new(const teff_engine_options *opt,
                                                teff_engine **engine);

/* teff_engine_add - add a component. It gets every task of its types that is broadcast after the
 * return.
 * in:   scheduler, from 0; type, constant; user, borrowed until the component has ended.
 * out:  *id, if not NULL.
 * runs: any thread, also inside components.
 * errs: TEFF_E_INVALID (no such scheduler; a run function without a fiber beside others; no tasks
 *       and no run), TEFF_E_CLOSED (ending), TEFF_E_NOMEM. */
TEFF_API TEFF_MUST_USE teff_err teff_engine_add(teff_engine *engine, uint32_t scheduler,
                                                const teff_component_type *type, void *user,
                                                teff_component_id *id);

/* teff_engine_remove - ask a component to end.
 * in:   id, of teff_engine_add.
 * runs: any thread. Does not wait.
 * errs: TEFF_E_NOT_FOUND, TEFF_E_CLOSED: it has ended. */
TEFF_API teff_err teff_engine_remove(teff_engine *engine, teff_component_id id);

/* teff_engine_broadcast - send a copy of task to every scheduler. All schedulers get the broadcasts
 * in the same order.
 * in:   type, constant; task, of its size, copied.
 * runs: any thread, also inside tasks. Does not wait.
 * errs: TEFF_E_OVERLOADED (a scheduler's queue is full), TEFF_E_CLOSED: no scheduler got the task.
 *       TEFF_E_NOMEM: some schedulers may have got it. */
TEFF_API TEFF_MUST_USE teff_err teff_engine_broadcast(teff_engine *engine,
                                                      const teff_task_type *type, const void *task);

/* teff_engine_send - send a task to one scheduler, as teff_engine_broadcast does to all.
 * in:   scheduler, from 0; type, task: as for teff_engine_broadcast.
 * runs: as teff_engine_broadcast. Its order with broadcasts is kept.
 * errs: TEFF_E_INVALID: no such scheduler; else as teff_engine_broadcast. */
TEFF_API TEFF_MUST_USE teff_err teff_engine_send(teff_engine *engine, uint32_t scheduler,
                                                 const teff_task_type *type, const void *task);

/* teff_engine_notify - test the conditions of teff_component_wait again, after a change.
 * in:   engine, borrowed.
 * runs: any thread. */
TEFF_API void teff_engine_notify(teff_engine *engine);

typedef struct teff_engine_stats {
    uint64_t broadcasts; /* and sends */
    uint64_t given;      /* copies put into components' queues */
    uint64_t dropped;    /* copies at schedulers where no component lists the task */
    uint64_t refused;    /* copies for components whose queue was full */
    uint64_t evicted;    /* given copies that did not run: over waiting_max */
    uint32_t components; /* components now */
} teff_engine_stats;
/* teff_engine_stats_get - the engine's counters since its start.
 * in:   stats, filled in.
 * runs: any thread. */
TEFF_API void teff_engine_stats_get(teff_engine *engine, teff_engine_stats *stats);

/* teff_engine_end - ask every component to end. Broadcasts, sends and new components are refused
 * from now on. Call teff_engine_stop, too, which waits for the end.
 * in:   engine.
 * runs: any thread, also inside components. Does not wait. */
TEFF_API void teff_engine_end(teff_engine *engine);

/* teff_engine_is_ending - has teff_engine_end or teff_engine_stop been called?
 * in:   engine.
 * out:  false: broadcasts are still taken.
 * runs: any thread. */
TEFF_API bool teff_engine_is_ending(teff_engine *engine);

/* teff_engine_stop - ask every component to end, then end the rest by force, as
 * teff_process_system_stop.
 * in:   timeout_ms, 0 = 10 s. report, may be NULL.
 * runs: a thread outside; blocks it.
 * errs: TEFF_E_TIMEOUT: *report says what was forced. */
TEFF_API teff_err teff_engine_stop(teff_engine *engine, uint32_t timeout_ms,
                                   teff_stop_report *report);

/* teff_engine_free - free an engine; stop it first if it runs. in: engine, may be NULL.
 * runs: a thread outside; blocks it while it stops. */
TEFF_API void teff_engine_free(teff_engine *engine);

TEFF_END_C
