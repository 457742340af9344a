/* engine.h - the structs of an engine: schedulers, components, instances of data, claims on them.
 * Way:     broadcast -> a component's mailbox -> task -> claim (its data) -> the task's run
 * Threads: lock order: scheduler.lock, engine.lock, then the stripes of processes. */
#pragma once

#include <sys/queue.h>
#include <teff/engine.h>
#include "process/process.h"

typedef struct teffi_scheduler teffi_scheduler;
typedef struct teffi_claim teffi_claim;

typedef struct teffi_instance { /* data of one owner, or local to one component */
    const teff_data_type *type; /* immutable, as scheduler */
    uint32_t scheduler;
    /* guarded by engine.lock */
    bool published;
    bool retired; /* its memory stays until refs is 0 */
    uint32_t refs;
    LIST_HEAD(, teffi_hold) held;
    LIST_HEAD(, teffi_bound) bound; /* components to cancel when it is retired */
    bool listed;
    TAILQ_ENTRY(teffi_instance) link; /* engine.instances */
    _Alignas(16) unsigned char bytes[];
} teffi_instance;

typedef struct teffi_bound {   /* a component's use of another's data; guarded by engine.lock */
    teff_component *component; /* NULL: not in the list */
    LIST_ENTRY(teffi_bound) link;
} teffi_bound;

typedef struct teffi_hold { /* a claim's part for one instance */
    teffi_instance *instance;
    teff_access access;
    teffi_claim *claim;
    LIST_ENTRY(teffi_hold) link; /* instance.held, while the claim is granted */
} teffi_hold;

typedef enum teffi_claim_state {
    TEFFI_CLAIM_NONE = 0,
    TEFFI_CLAIM_WAITING,
    TEFFI_CLAIM_GRANTED,
    TEFFI_CLAIM_CLOSED, /* the owner of some of its data has ended */
    TEFFI_CLAIM_DEADLOCK
} teffi_claim_state;

/* A claim on all data of one task: it holds all of it, or waits and holds nothing. */
struct teffi_claim {
    teff_component *component; /* NULL: not started */
    uint32_t n;
    teffi_hold holds[TEFF_NEEDS_MAX];
    /* guarded by engine.lock */
    teffi_claim_state state;
    TAILQ_ENTRY(teffi_claim) link; /* engine.waiters, oldest first */
};

typedef struct teffi_lock { /* of teff_component_lock */
    teffi_claim claim;
    struct teffi_lock *older;
} teffi_lock;

/* The phases of a component, in this order: set-up, RUN, take-down. */
typedef enum teffi_component_phase {
    TEFFI_PHASE_OWN = 0,
    TEFFI_PHASE_GROUP,
    TEFFI_PHASE_SHARE,
    TEFFI_PHASE_SETUP,
    TEFFI_PHASE_RUN,
    TEFFI_PHASE_TAKE_DOWN,
    TEFFI_PHASE_GONE
} teffi_component_phase;

struct teff_component {
    /* immutable once its process runs */
    teff_engine *engine;
    teffi_scheduler *scheduler;
    const teff_component_type *type;
    void *user;
    teff_process *me; /* NULL: init was not called */
    teff_pid pid;
    /* its process's turn */
    teffi_component_phase phase;
    size_t at; /* the index in type->data at which a phase waits */
    bool ending;
    teffi_claim claim; /* of set-up, of the queued task, of take-down */
    teffi_lock *locks; /* newest first */
    teffi_lock *outer; /* this lock and older ones belong to functions further out */
    /* guarded by engine.lock */
    uint32_t n_granted;   /* claims that hold data */
    teffi_claim *waiting; /* the claim that waits; NULL: none */
    uint32_t search;      /* the last search for cycles that has visited it */
    bool asleep;          /* it is in engine.sleepers */
    LIST_ENTRY(teff_component) sleeper;
    /* guarded by scheduler.lock */
    bool listed;
    LIST_ENTRY(teff_component) link;
    teffi_bound *bound;     /* immutable, elements guarded by engine.lock; indexed as data */
    teffi_instance *data[]; /* its turn's; indexed as type->data; NULL: not made or bound now */
};

struct teffi_scheduler {
    /* immutable after init */
    teff_engine *engine;
    uint32_t index;
    teff_process_system *system;
    teff_pid dispatcher; /* its mailbox is the scheduler's queue of broadcast tasks */
    bool ending;         /* the dispatcher's turn's */
    /* guarded by lock */
    pthread_mutex_t lock;
    LIST_HEAD(, teff_component) components;
};

/* The operations of the processes of one component type: they have its name. */
typedef struct teffi_component_ops {
    struct teffi_component_ops *next;
    const teff_component_type *type;
    teff_process_ops ops;
} teffi_component_ops;

struct teff_engine {
    /* immutable after init */
    teff_engine_options opt;
    uint32_t n_schedulers;
    teffi_scheduler *schedulers;
    teffi_exec *exec;          /* of a silo; NULL: each scheduler has its own */
    teffi_process_calls calls; /* of the silo */
    teff_engine *next;         /* the silo's next engine; set by the silo */
    /* atomic */
    _Atomic bool ending, stopped;
    _Atomic uint64_t broadcasts, given, dropped, refused, evicted;
    _Atomic uint32_t components;
    /* held for a whole broadcast: the schedulers get broadcasts in the same order */
    pthread_mutex_t broadcast_lock;
    /* guarded by lock */
    pthread_mutex_t lock;
    teffi_component_ops *ops;               /* of each type that was added; freed with the engine */
    TAILQ_HEAD(, teffi_instance) instances; /* with an owner; oldest first */
    TAILQ_HEAD(, teffi_claim) waiters;
    LIST_HEAD(, teff_component)
    sleepers;        /* components that wait for unpublished data or a condition */
    uint32_t search; /* number of the last search for cycles among claims */
};

typedef struct teffi_task_msg { /* the data of a broadcast message */
    const teff_task_type *type;
    _Alignas(16) unsigned char bytes[];
} teffi_task_msg;

/* teffi_engine_new_on - make an engine on the caller's executor (NULL: as teff_engine_new).
 * in:   calls, for its components. opt, of which threads and sched are ignored if exec is given.
 * out:  *engine: also set on an error if a scheduler was already made: the caller must stop the
 *       engine and call teffi_engine_free_stopped. NULL on other errors. errs: as teff_engine_new.
 * teffi_engine_free_stopped - free a stopped engine. If its executor is the caller's, the caller
 * frees the executor first. */
TEFF_MUST_USE teff_err teffi_engine_new_on(teffi_exec *exec, const teffi_process_calls *calls,
                                           const teff_engine_options *opt, teff_engine **engine);
void teffi_engine_free_stopped(teff_engine *engine);

/* teffi_engine_print - report the engine and its components as lines. runs: any thread. */
void teffi_engine_print(teff_engine *engine, const teffi_lines *to);

/* The operations of a component's process (life.c), without a name: with steps, a run function, a
 * fiber. */
extern const teff_process_ops teffi_component_step_ops, teffi_component_run_ops,
    teffi_component_fiber_ops;

/* ---- tasks of a component (task.c). runs: its turn ---- */

/* teffi_task_claim_data_and_run - claim the data of a queued task, run the task, and release the
 * data.
 * out:  true: the task ran or cannot run; its function `over` was called. false: the claim waits:
 *       call again after a poke. */
bool teffi_task_claim_data_and_run(teff_component *component, teffi_task_msg *task);

/* teffi_task_finish_and_notify - call the task's over, then teff_engine_notify. runs: without
 * locks, also after the component has ended. */
void teffi_task_finish_and_notify(teff_engine *engine, teffi_task_msg *task, int ran);

/* teffi_component_unlock_all_data - release all data locked by teff_component_lock. */
void teffi_component_unlock_all_data(teff_component *component);

/* teffi_component_wait_for_poke - wait for a poke. in: or_end: if true, the wait also ends
 * when the component is ending. out: false: the component is ending (only if or_end is true), or is
 * forced to end. */
bool teffi_component_wait_for_poke(teff_component *component, bool or_end);

/* ---- instances of data (data.c). runs: the turn of the component, without engine.lock ---- */

/* teffi_instance_new - make an instance that component owns, or, if not owned, a local one, with
 * one reference, which the caller stores in component->data.
 * out:  NULL: no memory; or owned, and the scheduler has one of this type, which is not retired. */
teffi_instance *teffi_instance_new(teff_component *component, const teff_data_type *type,
                                   bool owned);

/* teffi_instance_publish - let other components bind the instance. */
void teffi_instance_publish(teff_engine *engine, teffi_instance *instance);

/* teffi_instance_bind - bind component to a published instance of type->data[i], and take a
 * reference, which the caller stores in data[i]. When the instance is retired, component is
 * cancelled.
 * in:   any_scheduler: also look at other schedulers than the component's.
 * out:  NULL: there is none; component is added to the sleepers, which are poked when data is
 *       published. */
teffi_instance *teffi_instance_bind(teff_component *component, size_t i, bool any_scheduler);

/* teffi_instance_retire - forbid to bind or claim the instance from now on. Claims that wait for it
 * are closed, bound components are cancelled, sleepers are poked. out: true: no claim holds it. */
bool teffi_instance_retire(teff_engine *engine, teffi_instance *instance);

/* teffi_instance_drop_reference - drop component's reference to data[i]; the last one frees the
 * instance. */
void teffi_instance_drop_reference(teff_component *component, size_t i);

/* ---- claims and sleepers (claim.c). runs: the turn of the component; pokes: any thread. Without
 * engine.lock, unless said otherwise ---- */

/* teffi_claim_add_instance - add an instance to a claim that was not started. At most
 * TEFF_NEEDS_MAX different ones. If the instance was added before, write access replaces read
 * access. */
void teffi_claim_add_instance(teffi_claim *claim, teffi_instance *instance, teff_access access);

/* teffi_claim_start - hold all instances, wait or fail, unless the claim was started before. The
 * component is poked when a waiting claim's state changes. out: the state now; the caller calls
 * teffi_claim_end in any case. */
teffi_claim_state teffi_claim_start(teffi_claim *claim, teff_component *component);

/* teffi_claim_end - if the claim was started, release its data or stop waiting, and empty the
 * claim. */
void teffi_claim_end(teffi_claim *claim);

/* teffi_instance_close_waiting_claims - close the claims that wait for the instance, then grant
 * other claims that no longer have to wait. engine.lock held. */
void teffi_instance_close_waiting_claims(teff_engine *engine, teffi_instance *instance);

/* teffi_instance_is_held_by - is this component among the holders of the instance? It must hold the
 * instance for this access, or for writing. */
bool teffi_instance_is_held_by(teffi_instance *instance, teff_component *component,
                               teff_access access);

/* teffi_component_poke - make a component check its wait condition again. With or without
 * engine.lock. */
void teffi_component_poke(teff_component *component);

/* teffi_sleepers_add, teffi_sleepers_remove - list or unlist a component that waits for unpublished
 * data or a condition. teffi_sleepers_poke - poke all listed ones. _add, _poke: engine.lock is
 * held. */
void teffi_sleepers_add(teff_component *component);
void teffi_sleepers_remove(teff_component *component);
void teffi_sleepers_poke(teff_engine *engine);
