/* process.h - the inside of processes: their memory, their events, who may touch what.
 * Way:     send, complete, timer -> [events on a group] -> process.c (turn) -> step | fiber
 * Threads: fields of a process belong to its turn (the worker that runs its group), except those
 *          under other headings. Its memory never goes before the system's: a slot is used again
 *          under another generation, and whatever arrives late carries the old one.
 * Source:  the "Scheduler" seed document; node/task.c for memory that is never taken apart */
#ifndef TEFFI_PROCESS_PROCESS_H
#define TEFFI_PROCESS_PROCESS_H

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <teff/process.h>
#include "base/queue.h"
#include "fiber/fiber.h"
#include "platform/thread.h"
#include "process/msg.h"
#include "sched/exec.h"

enum { TEFFI_MAIL_SHIFT = 40 }; /* what a mailbox holds: messages above, bytes below */
enum { TEFFI_STEP_MAX = 64, TEFFI_PROCESS_CHUNK = 256, TEFFI_STRIPES = 64 };

enum { /* item.kind */
       TEFFI_ITEM_AGAIN =
           1, /* teff_process.again: start, continue, pause, what one step left over */
       TEFFI_ITEM_SIGNAL = 2, /* teff_process.signal */
       TEFFI_ITEM_MESSAGE = 3,
       TEFFI_ITEM_YIELD = 4,
       TEFFI_ITEM_TIMER = 5,
       TEFFI_ITEM_RETURNED = 6 /* a message on its way back: in its own memory, of no mailbox */
};

enum { /* teff_process.signals */
       TEFFI_SIGNAL_CANCEL = 1,
       TEFFI_SIGNAL_KILL = 2,
       TEFFI_SIGNAL_POKE = 4,
       TEFFI_SIGNAL_CANCELLED = 8 /* had its cancel; the others are bits of what is queued now */
};

typedef struct teffi_event {
    _Alignas(16) teffi_item item;
    uint32_t generation; /* of the process's life that is meant */
    teff_event event;    /* data: behind the struct, or a yield's reply */
} teffi_event;

typedef struct teffi_yield {
    teffi_event e;
    struct teffi_yield *next; /* process.yields */
    uint64_t serial;
    uint32_t command;
    size_t data_len;
    void *reply; /* owned; e.event.data once completed */
    _Alignas(16) unsigned char data[];
} teffi_yield;

typedef struct teffi_ticker {
    teffi_event e;
    teffi_timer timer;
    teff_process *process;
    bool muted;                       /* given up while it fired: nobody is to see it */
    struct teffi_ticker *prev, *next; /* process.timers */
} teffi_ticker;

typedef struct teffi_events { /* FIFO through item.next */
    teffi_event *head, *tail;
} teffi_events;

/* What a process waits for in the middle of a function; lives on that function's stack. */
typedef struct teffi_waiting {
    bool (*ready)(teff_process *p, struct teffi_waiting *waiting);
    void *arg;
    bool blocked;              /* it waits for something it started: the state is BLOCKED */
    const teffi_event *awaits; /* this one does not go to the lists ... */
    teffi_event *answer;       /* ... but here */
} teffi_waiting;

typedef enum teffi_next {                         /* what the next step waits for */
                          TEFFI_STATUS_START = 0, /* nothing: init comes first */
                          TEFFI_STATUS_CONTINUE,
                          TEFFI_STATUS_IDLE,
                          TEFFI_STATUS_BLOCK,
                          TEFFI_STATUS_RETRY /* a poke or a cancel; the events are given again */
} teffi_next;

struct teff_process {
    teffi_group group;
    /* immutable */
    teff_process_system *system;
    uint32_t slot;
    /* atomic */
    /* odd = alive; written by who took the slot, then at the end under the stripe's lock */
    _Atomic uint32_t generation;
    /* mailbox, messages << 40 | bytes: sent - taken wait. taken is the turn's (no atomic step of
     * 9 ns); who reads it first and sent later sees too much waiting, never too little */
    _Atomic uint64_t sent, taken;
    const teff_process_ops *_Atomic ops; /* written by the turn */
    _Atomic uint64_t turns, events, run_ns;
    _Atomic bool sleeping; /* its turn sleeps on parker; pairs with teffi_process_woken */
    uint8_t status, gathered, retry_n; /* the turn's */
    teffi_parker parker;
    /* guarded by the stripe's lock */
    uint16_t signals;
    uint16_t err; /* the turn's: a teff_err */
    union {
        uint32_t n_yields;  /* the turn's */
        uint32_t next_free; /* while free: slot index + 1; who took it off a cell's list */
    };
    teffi_yield *yields; /* under way */
    /* the turn's */
    void *self;
    void *held; /* START: a teffi_start; later the event that receive gave out */
    teffi_fiber *fiber;
    teffi_waiting *wait;
    teffi_item again, signal;
    teffi_events urgent, mail; /* taken off the group, not given yet */
    teffi_ticker *timers;
    uint64_t serial;
    uint8_t given; /* events, not counted yet */
    bool again_queued, cancel, poked, forced, over, gone;
};

typedef struct teffi_start { /* init's arguments */
    const void *input;
    size_t len, bytes_len;
    _Alignas(16) char bytes[]; /* method, its zero byte, input */
} teffi_start;

static_assert(sizeof(struct teff_process) <= 256, "what an idle process costs");

struct teff_step {
    teff_process *process;
    teffi_next status;
    bool decided, done;
    teffi_yield *first, **last;      /* commands */
    const teff_process_ops *upgrade; /* NULL: no */
    void *upgrade_self;
    teffi_start *upgrade_start;
};

/* What is counted and kept by worker, so that workers do not meet; cell 0 is for other threads. */
typedef struct teffi_cell {
    /* written by whoever is that worker, without atomic additions */
    _Alignas(64) _Atomic uint64_t turns;
    _Atomic uint64_t events, run_ns;
    /* by atomic steps: a worker may lose its place to another thread at any moment */
    _Atomic uint64_t spawned; /* also those that go on now: each TEFFI_SPAWNING more */
    _Atomic uint64_t ended;
    _Atomic uint32_t
        free; /* slots of ended processes: index + 1 of the last, linked by next_free */
} teffi_cell;

#define TEFFI_SPAWNING ((uint64_t)1 << 40)

typedef struct teffi_pid_route {
    /* A message or a cancel to a process of another silo. errs: as teff_process_send. NULL: there
     * is no way. */
    teff_err (*send)(void *arg, teff_pid to, const teff_event *message);
    void *arg;
    uint32_t silo, incarnation; /* of this system's own PIDs */
} teffi_pid_route;

struct teff_process_system {
    /* immutable after init */
    teff_process_options opt; /* defaults filled in */
    teffi_exec *exec;
    teffi_platform *own_platform; /* of an executor of its own; NULL: the executor is somebody's */
    teffi_pid_route route;
    struct {
        teff_command_fn *fn;
        void *arg;
    } handlers[TEFF_COMMANDS_MAX];
    teffi_cell *cells; /* one a worker, the first for threads that are none */
    uint32_t n_cells;
    /* atomic */
    teff_process *_Atomic *chunks; /* release: pairs with teffi_process_at */
    _Atomic uint32_t n_slots;      /* written under lock */
    _Atomic uint64_t refused, dropped, evicted;
    _Atomic bool
        stopping;         /* seq_cst: a spawn counts itself, then looks; stop sets it, then waits */
    teffi_parker stopper; /* who waits until none is alive */
    pthread_mutex_t stripes[TEFFI_STRIPES]; /* by slot; outside the executor's */
    pthread_mutex_t lock;                   /* making new slots */
};

/* ---- system.c ---- */

/* teffi_process_system_on - a system on somebody's executor, which must be freed before the system
 * is. in: opt as for teff_process_system_new; workers does not count. errs: the same. */
TEFF_MUST_USE teff_err teffi_process_system_on(teffi_exec *exec, const teff_process_options *opt,
                                               teff_process_system **system);

/* teffi_process_system_drop - the memory of a system whose executor is gone. in: may be NULL. */
void teffi_process_system_drop(teff_process_system *system);

/* teffi_process_route - whose PIDs these are, and the way to others. Before the first spawn. */
void teffi_process_route(teff_process_system *system, const teffi_pid_route *route);

/* teffi_start_new - init's arguments, copied. out: NULL when memory is out. */
teffi_start *teffi_start_new(const char *method, const void *input, size_t len);

/* teffi_start_free - in: may be NULL. */
void teffi_start_free(teffi_start *start);

/* ---- pid.c ---- */

/* teffi_process_at - the memory of a slot, NULL when there never was one. */
teff_process *teffi_process_at(teff_process_system *system, uint32_t slot);

/* teffi_process_find - the process that is alive under a PID of this system.
 * errs: TEFF_E_NOT_FOUND, TEFF_E_CLOSED: *process is NULL. It may end at any moment after. */
TEFF_MUST_USE teff_err teffi_process_find(teff_process_system *system, teff_pid pid,
                                          teff_process **process);

/* teffi_own_cell - of the worker that this thread is. */
teffi_cell *teffi_own_cell(teff_process_system *system);

/* teffi_processes_alive - those being spawned included; acquire: sees all that the others did. */
uint32_t teffi_processes_alive(teff_process_system *system);

/* teffi_slot_take, teffi_slot_give - a free slot's memory, from and to the own cell if possible.
 * errs: TEFF_E_OVERLOADED, TEFF_E_NOMEM. */
TEFF_MUST_USE teff_err teffi_slot_take(teff_process_system *system, teff_process **process);
void teffi_slot_give(teff_process_system *system, teff_process *process);

/* teffi_stripe - the lock over signals, yields and the generation of a slot. */
pthread_mutex_t *teffi_stripe(const teff_process *p);

static inline teff_pid teffi_process_pid_of(const teff_process *p, uint32_t generation)
{
    const teffi_pid_route *route = &p->system->route;
    return (teff_pid){route->silo, route->incarnation, p->slot, generation};
}

/* ---- events.c ---- */

static inline teffi_event *teffi_event_of(teffi_item *item)
{
    return item ? teffi_container(item, teffi_event, item) : NULL;
}

/* teffi_events_push, _pop - a plain FIFO. pop: NULL when empty. */
static inline void teffi_events_push(teffi_events *list, teffi_event *event)
{
    event->item.next = NULL;
    if (list->tail)
        list->tail->item.next = &event->item;
    else
        list->head = event;
    list->tail = event;
}

static inline teffi_event *teffi_events_pop(teffi_events *list)
{
    teffi_event *event = list->head;
    if (!event)
        return NULL;
    list->head = (teffi_event *)(void *)event->item.next; /* its first member */
    if (!list->head)
        list->tail = NULL;
    return event;
}

/* teffi_event_free - and take a message's share off the mailbox. runs: in the process's turn. */
void teffi_event_free(teff_process *p, teffi_event *event);

/* teffi_process_take_in - an item came off the group: into the lists and flags. */
void teffi_process_take_in(teff_process *p, teffi_item *item);

/* teffi_process_take_mail - the next message, taken off the group if need be; NULL: none. To be
 * freed with teffi_event_free. runs: inside the process's own functions. */
teffi_event *teffi_process_take_mail(teff_process *p);

/* teffi_process_forget - all that is queued, under way and set; at the end of a life. */
void teffi_process_forget(teff_process *p);

/* teffi_process_wants - is there something for the next step? */
bool teffi_process_wants(const teff_process *p);

/* teffi_mail_took - a message of len bytes does not wait any more. */
void teffi_mail_took(teff_process *p, size_t len);

/* ---- evict.c ---- */

/* teffi_process_give_back - p's group was evicted: an item that is a message goes back to its
 * sender, and with the one that says go on the messages that were taken in before.
 * out:  true: it was a message and has gone. */
bool teffi_process_give_back(teff_process *p, teffi_item *item);

/* ---- send.c ---- */

/* What a message with len bytes of data weighs in a mailbox. */
static inline uint64_t teffi_mail_charge(size_t len)
{
    return ((uint64_t)1 << TEFFI_MAIL_SHIFT) + sizeof(teffi_event) + len;
}

/* teffi_process_deliver - an event from outside to a process of this system: a message with all its
 * fields, or a cancel. errs: as teff_process_send; TEFF_E_INVALID for the other kinds. */
TEFF_MUST_USE teff_err teffi_process_deliver(teff_process_system *system, teff_pid pid,
                                             const teff_event *event);

/* teffi_process_signal - set bits of signals, in this life only. errs: as teffi_process_find. */
teff_err teffi_process_signal(teff_process_system *system, teff_pid pid, uint32_t bits);

/* teffi_mail_load - what waits, in mail_charge's units; it may be less by now. */
uint64_t teffi_mail_load(teff_process *p);

/* teffi_process_room - would a message of len bytes be taken now? */
bool teffi_process_room(teff_process_system *system, teff_pid pid, size_t len);

/* teffi_process_woken - after a push: wake its turn, should it sleep on its own stack. */
void teffi_process_woken(teff_process *p);

/* ---- yield.c ---- */

/* teffi_yield_new - not under way yet. errs: NULL with *err: TEFF_E_NOMEM, TEFF_E_OVERLOADED. */
teffi_yield *teffi_yield_new(teff_process *p, uint32_t command, uint64_t tag, const void *data,
                             size_t len, teff_err *err);

/* teffi_yield_dispatch - under way: to its handler. yield may be completed when this returns. */
void teffi_yield_dispatch(teff_process *p, teffi_yield *yield);

/* teffi_yield_free - with its reply. */
void teffi_yield_free(teffi_yield *yield);

/* teffi_yield_drop - one that was not dispatched. */
void teffi_yield_drop(teff_process *p, teffi_yield *yield);

/* ---- timer.c ---- */

/* teffi_ticker_set - a timer of this process. out: NULL when memory is out. */
teffi_ticker *teffi_ticker_set(teff_process *p, uint64_t delay_ns, uint64_t tag);

/* teffi_ticker_arrived - it ran out and was taken off the group: no longer in process.timers. */
void teffi_ticker_arrived(teff_process *p, teffi_ticker *ticker);

/* teffi_ticker_cancel - this one, whether it fires or not. */
void teffi_ticker_cancel(teff_process *p, teffi_ticker *ticker);

/* teffi_tickers_drop - cancel all. */
void teffi_tickers_drop(teff_process *p);

/* ---- step.c ---- */

/* teffi_process_step - one step with what is there; sets status or over. */
void teffi_process_step(teff_process *p);

/* teffi_step_retry - give the same events again after a poke or a cancel. With step_max 1. */
teff_err teffi_step_retry(teff_step *out);

/* ---- wait.c ---- */

/* teffi_process_wait - until waiting->ready says so; asked again whenever an item came.
 * errs: TEFF_E_CLOSED: the process is being forced to end. */
TEFF_MUST_USE teff_err teffi_process_wait(teff_process *p, teffi_waiting *waiting);

/* teffi_process_take_items - what the group holds, now. runs: inside the process's own functions.
 * out:  false: nothing was there. */
bool teffi_process_take_items(teff_process *p);

/* teffi_process_again - push the again item, unless it is queued. */
void teffi_process_again(teff_process *p);

/* ---- process.c ---- */

extern const teffi_group_ops teffi_process_group_ops;

/* ---- list.c ---- */

/* teffi_process_describe - one line about a process. out: false: it is not alive. */
bool teffi_process_describe(teff_process *p, teff_process_info *info);

/* teffi_process_count - add to its own and its worker's counts. */
void teffi_process_count(teff_process *p, uint64_t turns, uint64_t events, uint64_t run_ns);

/* teffi_process_given - n events, at most TEFFI_STEP_MAX; counted with others, or when the turn
 * ends. */
static inline void teffi_process_given(teff_process *p, unsigned n)
{
    p->given = (uint8_t)(p->given + n);
    if (p->given < TEFFI_STEP_MAX)
        return;
    teffi_process_count(p, 0, p->given, 0);
    p->given = 0;
}

#endif
