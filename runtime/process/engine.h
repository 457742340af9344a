/* engine.h - the inside of engines: schedulers, workers, instances of data, claims on them.
 * Way:     broadcast.c -> a worker's mailbox -> task.c -> claim.c (its data) -> the task's run
 * Threads: lock order: scheduler.lock, engine.lock, then the stripes of processes.
 * Source:  the seed document about an engine of schedulers */
#ifndef TEFFI_PROCESS_ENGINE_H
#define TEFFI_PROCESS_ENGINE_H

#include <teff/engine.h>
#include "process/process.h"

typedef struct teffi_scheduler teffi_scheduler;
typedef struct teffi_claim teffi_claim;

typedef struct teffi_instance { /* one owner's data; local: one worker's */
    const teff_data_type *type; /* immutable, as scheduler */
    uint32_t scheduler;
    /* guarded by engine.lock */
    bool ready, gone; /* set up by its owner; taken down by it */
    uint32_t refs;
    struct teffi_hold *held;
    struct teffi_bound *bound;   /* workers to tell when it goes */
    struct teffi_instance *next; /* engine.instances */
    _Alignas(16) unsigned char bytes[];
} teffi_instance;

typedef struct teffi_bound { /* a worker's share in another's data; guarded by engine.lock */
    teff_worker *worker;     /* NULL: not in the list */
    struct teffi_bound *prev, *next;
} teffi_bound;

typedef struct teffi_hold {
    teffi_instance *instance;
    teff_access access;
    teffi_claim *claim;
    struct teffi_hold *prev, *next; /* instance.held */
} teffi_hold;

typedef enum teffi_claim_state {
    TEFFI_CLAIM_NONE = 0,
    TEFFI_CLAIM_WAITING,
    TEFFI_CLAIM_GRANTED,
    TEFFI_CLAIM_CLOSED, /* an owner is gone */
    TEFFI_CLAIM_DEADLOCK
} teffi_claim_state;

/* All that one task takes hold of: all of it at once, or it waits holding nothing of it. */
struct teffi_claim {
    teff_worker *worker;
    uint32_t n;
    teffi_hold holds[TEFF_NEEDS_MAX];
    /* guarded by engine.lock */
    teffi_claim_state state;
    teffi_claim *prev, *next; /* engine.waiters, oldest first */
};

/* of a worker's life, in this order */
typedef enum teffi_phase {
    TEFFI_PHASE_OWNER = 0,
    TEFFI_PHASE_LOCAL,
    TEFFI_PHASE_GROUP,
    TEFFI_PHASE_SHARE,
    TEFFI_PHASE_SETUP,
    TEFFI_PHASE_RUN,
    TEFFI_PHASE_UNBIND_SHARE,
    TEFFI_PHASE_UNBIND_GROUP,
    TEFFI_PHASE_FINI_LOCAL,
    TEFFI_PHASE_FINI_OWNER,
    TEFFI_PHASE_CLEAR,
    TEFFI_PHASE_GONE
} teffi_phase;

struct teff_worker {
    /* immutable once its process runs */
    teff_engine *engine;
    teffi_scheduler *scheduler;
    const teff_worker_type *type;
    void *user;
    teff_process *me;
    teff_pid pid;
    /* its process's turn */
    teffi_phase phase;
    size_t at; /* of type->data, where a phase waits */
    bool ending;
    teffi_claim claim; /* set-up's, the queue's task's, take-down's */
    /* guarded by engine.lock */
    uint32_t n_granted; /* claims that hold something */
    teffi_claim *waiting;
    uint32_t visit; /* the search for cycles */
    bool asleep;    /* in engine.sleepers */
    teff_worker *prev_asleep, *next_asleep;
    /* guarded by scheduler.lock */
    bool listed;
    teff_worker *prev, *next;
    teffi_bound *bound;     /* as data */
    teffi_instance *data[]; /* its turn's; as type->data; NULL: not there (any more) */
};

struct teffi_scheduler {
    /* immutable after init */
    teff_engine *engine;
    uint32_t index;
    teff_process_system *system;
    teff_pid dispatcher; /* the process whose mailbox is the scheduler's queue of tasks */
    /* guarded by lock */
    pthread_mutex_t lock;
    teff_worker *workers;
};

struct teff_engine {
    /* immutable after init */
    teff_engine_options opt;
    uint32_t n_schedulers;
    teffi_scheduler *schedulers;
    /* atomic */
    _Atomic bool stopping;
    _Atomic uint64_t broadcasts, given, dropped, refused;
    _Atomic uint32_t workers;
    /* one broadcast at a time: the same order everywhere, and all or nothing */
    pthread_mutex_t broadcast_lock;
    /* guarded by lock */
    pthread_mutex_t lock;
    teffi_instance *instances;
    teffi_claim *first_waiter, *last_waiter;
    teff_worker *sleepers; /* wait for data that is not there, or for a condition */
    uint32_t visit;
};

typedef struct teffi_task_msg { /* what travels */
    const teff_task_type *type;
    _Alignas(16) unsigned char bytes[];
} teffi_task_msg;

/* ---- broadcast.c ---- */

extern const teff_process_ops teffi_dispatcher_ops; /* self: the scheduler */

/* ---- data.c ---- */

/* teffi_instance_new - owned by or local to a worker. out: NULL: memory is out, or owned: its
 * scheduler has an owner of this type already. */
teffi_instance *teffi_instance_new(teff_worker *w, const teff_data_type *type, bool owned);

/* teffi_instance_publish - others may bind it. */
void teffi_instance_publish(teff_engine *engine, teffi_instance *instance);

/* teffi_instance_bind - for type->data[i]: one that is ready, of the worker's scheduler or of any.
 * One reference; the worker is cancelled when it goes.
 * out:  NULL: not there yet; the worker is poked when some data is published. */
teffi_instance *teffi_instance_bind(teff_worker *w, size_t i, bool any);

/* teffi_instance_gone - nobody gets it any more; who waits for it learns that it is gone, who is
 * bound to it is told to end.
 * out:  true: nobody holds it. */
bool teffi_instance_gone(teff_engine *engine, teffi_instance *instance);

/* teffi_instance_drop - what is at data[i]: one reference less; the last frees it. */
void teffi_instance_drop(teff_worker *w, size_t i);

/* teffi_sleep, teffi_unsleep - be poked whenever something changed. */
void teffi_sleep(teff_worker *w);
void teffi_unsleep(teff_worker *w);

/* teffi_poke - have a worker look again. */
void teffi_poke(teff_worker *w);

/* ---- claim.c ---- */

/* teffi_claim_add - one more instance. */
void teffi_claim_add(teffi_claim *claim, teffi_instance *instance, teff_access access);

/* teffi_claim_start - take all or wait; the worker is poked when that has changed. */
teffi_claim_state teffi_claim_start(teffi_claim *claim, teff_worker *w);

/* teffi_claim_look - its state now. */
teffi_claim_state teffi_claim_look(teffi_claim *claim);

/* teffi_claim_end - let go of what it holds, or stop waiting; it may be started anew. */
void teffi_claim_end(teffi_claim *claim);

/* teffi_claim_gone - engine.lock held: who waits for the instance waits in vain. */
void teffi_claim_gone(teff_engine *engine, teffi_instance *instance);

/* teffi_claim_held - does the worker hold it in this way? */
bool teffi_claim_held(teff_worker *w, teffi_instance *instance, teff_access access);

/* ---- task.c ---- */

/* teffi_task_queued - run a task of the queue. out: false: it waits for its data; call again. */
bool teffi_task_queued(teff_worker *w, teffi_task_msg *task);

/* teffi_task_give_up - the queued task that waited does not run. */
void teffi_task_give_up(teff_worker *w, teffi_task_msg *task);

/* teffi_worker_told - has it been told to end? */
bool teffi_worker_told(teff_worker *w);

/* teffi_worker_until_poked - wait. out: false: it was told to end (with told), or forced. */
bool teffi_worker_until_poked(teff_worker *w, bool told);

/* teffi_worker_find - the instance that it uses of a type, with the kind of use; NULL: none. */
teffi_instance *teffi_worker_find(teff_worker *w, const teff_data_type *type, teff_data_kind *kind);

/* ---- life.c ---- */

/* A worker's process: without fiber and run; with either. */
extern const teff_process_ops teffi_worker_step_ops, teffi_worker_run_ops, teffi_worker_fiber_ops;

#endif
