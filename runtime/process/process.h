/* process.h - the structs of a process and of a system of processes.
 * Way:     a sender -> send -> pid -> the process's group -> turn -> events -> step | wait
 * Threads: see the headings in the struct; "the turn's": used by the worker that runs the group.
 *          The memory is kept until the system is freed. A slot is used again with another
 *          generation; late events carry the old one.
 * Source:  Erlang/OTP's erts/emulator/beam/erl_process.c */
#pragma once

#include <assert.h>
#include "base/log.h"
#include "fiber/fiber.h"
#include "memory/slab.h"
#include "message/msg.h"
#include "os/thread.h"
#include "process/events.h"

enum { TEFFI_STEP_MAX = 64, TEFFI_STRIPES = 64 };

/* Bits of teff_process.signals. */
enum {
    TEFFI_SIGNAL_CANCEL = 1,
    TEFFI_SIGNAL_KILL = 2,
    TEFFI_SIGNAL_POKE = 4,
    TEFFI_SIGNAL_CANCELLED = 8 /* a cancel was sent in this life: ignore others */
};

/* A bit of teff_process_ops.flags besides the public ones: the process is the runtime's own and is
 * never evicted. Only the first life in a slot sets this, for all lives. So spawn such a process
 * before any process of its system has ended; it must live until its system ends. */
enum { TEFFI_PROCESS_KEPT = 1 << 16 };

/* What the process waits for before its next step. */
typedef enum teffi_process_status {
    TEFFI_STATUS_START = 0, /* nothing: init runs first */
    TEFFI_STATUS_CONTINUE,
    TEFFI_STATUS_IDLE,
    TEFFI_STATUS_BLOCK,
    TEFFI_STATUS_RETRY /* a poke: the same event comes again; or a cancel, which comes alone */
} teffi_process_status;

struct teff_process {
    teffi_group group;
    /* immutable */
    teff_process_system *system;
    uint32_t slot;
    /* atomic */
    /* odd = alive. The spawn that took the slot makes it odd; the process's end, under the
     * stripe's lock, makes it even */
    _Atomic uint32_t generation;
    _Atomic uint64_t sent, taken;        /* see send.h */
    const teff_process_ops *_Atomic ops; /* written by the spawn, then by the turn */
    _Atomic uint64_t turns, events, run_ns;
    _Atomic bool sleeping; /* its turn waits on parker; pairs with teffi_process_wake */
    uint8_t n_uncounted;   /* the turn's: events that the counters do not have yet */
    uint8_t gathered;      /* the turn's: items taken off the group for the next step */
    teffi_parker parker;
    /* guarded by the stripe's lock */
    uint16_t signals;
    uint16_t err;                   /* the turn's: a teff_err */
    uint32_t n_commands;            /* the turn's */
    struct teffi_command *commands; /* in flight */
    /* the turn's */
    union {
        struct {
            void *self;
            void *held; /* START: a teffi_start; later the event of receive or ask; or NULL */
        };
        teffi_slab_link free; /* the slab's link, while the slot is free */
    };
    teffi_fiber *fiber;
    struct teffi_waiting *wait;
    teffi_item again, signal;
    teffi_events urgent, mail; /* taken off the group, not handled yet */
    LIST_HEAD(, teffi_timer_event) timers;
    uint64_t serial;
    /* in one word, for teffi_process_awaits_any_event */
    teffi_process_status status : 3;
    uint32_t retry_n : 1; /* RETRY: the number of events that come again */
    uint32_t again_queued : 1, cancel : 1, poked : 1, forced : 1, over : 1, gone : 1;
    uint32_t started : 1; /* an init was called in this life */
};

static_assert(sizeof(struct teff_process) <= 256, "what an idle process costs");

/* Counters of one processor, in a cache line of their own; cell 0: threads that hold none. */
typedef struct teffi_cell {
    /* written by the processor's holder, without atomic additions; in cell 0 with them */
    _Alignas(64) _Atomic uint64_t turns;
    _Atomic uint64_t events, run_ns;
    /* atomic additions: after a retake two threads may use one processor's cell */
    _Atomic uint64_t spawned; /* TEFFI_SPAWNED for each spawn, plus 1 while it is in progress */
    _Atomic uint64_t ended;
} teffi_cell;

/* The unit in teffi_cell.spawned; fewer threads than this spawn at once. The number of spawns wraps
 * after 8 years at a million a second; spawned - ended is right even then. */
enum { TEFFI_SPAWNED = 1 << 16 };

typedef struct teffi_pid_route {
    /* Send a message, a returned message or a cancel to a process of another silo. errs: as
     * teff_process_send. NULL: other silos cannot be reached. */
    teff_err (*send)(void *arg, teff_pid to, const teff_event *message);
    /* Respond to a request, wherever it comes from. errs: as teff_pid_respond. NULL: nobody sends
     * requests to this system's processes. */
    teff_err (*respond)(void *arg, const teff_event *request, teff_err err, const void *data,
                        size_t len);
    void *arg;
    uint32_t silo, incarnation; /* of this system's own PIDs */
} teffi_pid_route;

/* How processes call grains (call/process_ctx.c). */
typedef struct teffi_process_calls {
    void (*take_item)(teffi_item *item);    /* an item of a process's group that is no event */
    void (*free_ctx)(struct teff_ctx *ctx); /* the process's fiber ends; runs on it */
    struct teffi_home *home;
} teffi_process_calls;

/* What reports call the processes of a system. */
typedef struct teffi_process_words {
    const char *one, *many;
    bool idle_too; /* a dump also lists idle ones */
} teffi_process_words;

struct teff_process_system {
    /* immutable after init */
    teff_process_options opt; /* defaults filled in */
    teffi_exec *exec;
    teffi_platform *own_platform;     /* NULL: executor and platform belong to the caller */
    teffi_pid_route route;            /* set by the owner before the first spawn */
    teffi_process_calls calls;        /* likewise; home is NULL: the system belongs to no silo */
    const teffi_process_words *words; /* set by the owner before the first spawn */
    struct {
        teff_command_fn *fn;
        void *arg;
    } handlers[TEFF_COMMANDS_MAX];
    teffi_cell *cells; /* one a processor; the first: threads that hold none */
    uint32_t n_cells;
    teffi_slab slab; /* of teff_process; has locks of its own */
    /* atomic */
    _Atomic uint64_t refused, dropped, evicted;
    /* seq_cst: a spawn counts itself, then loads this; stop stores it, then waits for spawns */
    _Atomic bool stopping;
    pthread_mutex_t stripes[TEFFI_STRIPES]; /* by slot; taken before the executor's locks */
    pthread_mutex_t lock;                   /* guards stoppers, and spawns near processes_max */
    LIST_HEAD(, teffi_stopper) stoppers;    /* threads in teff_process_system_stop */
};

static inline teff_pid teffi_process_pid_of(const teff_process *p, uint32_t generation)
{
    const teffi_pid_route *route = &p->system->route;
    return (teff_pid){route->silo, route->incarnation, p->slot, generation};
}

/* teffi_process_accepts_event - does the process accept the event? true: the process has not ended,
 * and the event was not sent to an earlier process in the same slot. */
static inline bool teffi_process_accepts_event(const teff_process *p, const teffi_event *event)
{
    return !p->gone &&
           event->generation == atomic_load_explicit(&p->generation, memory_order_relaxed);
}

/* teffi_process_awaits_any_event - is the process idle, so that any event starts its next step?
 * If it is, and it has no fiber, then p->urgent and p->mail are empty before the step: a turn that
 * leaves events in them queues the again item. runs: in the group's ops->handle. */
static inline bool teffi_process_awaits_any_event(const teff_process *p)
{
    return p->status == TEFFI_STATUS_IDLE && !p->gathered && !p->again_queued && !p->cancel &&
           !p->forced && !p->over && !p->gone;
}

/* ---- system.c ---- */

/* teffi_process_system_new_on - make a system on the caller's executor, which must be freed before
 * the system is.
 * in:   opt as for teff_process_system_new, but workers and sched are ignored.
 * out:  *system, owned; NULL without memory; not written if opt is invalid.
 * errs: TEFF_E_NOMEM, TEFF_E_INVALID. */
TEFF_MUST_USE teff_err teffi_process_system_new_on(teffi_exec *exec,
                                                   const teff_process_options *opt,
                                                   teff_process_system **system);

/* teffi_process_system_free_memory - free a system whose executor is freed. in: may be NULL. */
void teffi_process_system_free_memory(teff_process_system *system);

/* teffi_processes_print - report the processes as lines. runs: any thread; no lock is held while a
 * line is written. */
void teffi_processes_print(teff_process_system *system, const teffi_lines *to);

/* A thread in teff_process_system_stop. Guarded by the system's lock. */
typedef struct teffi_stopper {
    teffi_parker parker;
    LIST_ENTRY(teffi_stopper) link;
} teffi_stopper;

/* teffi_stoppers_wake - wake the threads in teff_process_system_stop, after a process has ended. */
void teffi_stoppers_wake(teff_process_system *system);
