/* group.h - work-item group: any thread pushes, one worker at a time drains.
 * Way:     process/, grains/activation -> [group] -> exec (run queues, workers) -> ops->handle
 * Threads: push from anywhere; handle runs on one worker at a time, each run sees all before it.
 * Source:  Orleans WorkItemGroup; the scheduler seeds' process states and wake-up flag
 *
 *   One word holds the state (low bits) and the newest pushed item, so queue and state never
 *   disagree and every arrow is one CAS:
 *
 *            push                 a worker takes it off its run queue
 *     IDLE ---------> READY ------------------------------> RUNNING --(no item in the word)--> IDLE
 *       ^               ^                                    |  |  ^
 *       |               +---(budget used, or items came     -+  |  | push: the item in the word is
 *       |                    in after 5 re-polls)               |  | the WAKEUP; a re-poll in place
 *       +------------------ claim, release --------------------+  | takes it
 *
 *     For the word READY and RUNNING are one: somebody has the group, a push only appends. Who has
 *     it, the pusher that took it out of its rest, then the run queue, then the worker, owns head
 *     and puts no atomic step on the way: the pusher's item goes straight to head. Which of the two
 *     it is says a flag, for those who look.
 *
 *     BLOCKED is IDLE for a process that waits for a yield (same arrows, ops->blocked chooses);
 *     COMPLETE is for a process that ended: pushes are refused, until its memory is used again. */
#ifndef TEFFI_SCHED_GROUP_H
#define TEFFI_SCHED_GROUP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct teffi_exec;
struct teffi_fiber;

typedef struct teffi_item { /* intrusive: in a group's queue at most once */
    struct teffi_item *next;
    uint32_t kind;  /* the group's own numbering */
    uint32_t at_ms; /* when it was pushed, by the executor's coarse clock; 0: not known */
} teffi_item;

typedef struct teffi_group teffi_group;

typedef enum teffi_context_kind { /* what a turn belongs to; see context.h */
                                  TEFFI_CONTEXT_NULL = 0,
                                  TEFFI_CONTEXT_ACTIVATION,
                                  TEFFI_CONTEXT_TARGET,
                                  TEFFI_CONTEXT_TASK,
                                  TEFFI_CONTEXT_PROCESS,
                                  TEFFI_CONTEXT_GROUP /* of none of these kinds */
} teffi_context_kind;

typedef struct teffi_group_ops {
    /* One item, taken off the queue; the item is the handler's from here on. */
    void (*handle)(teffi_group *group, teffi_item *item);
    /* After teffi_group_complete, when the last item was handled and nothing in the scheduler
     * refers to the group any more: its memory may go. May be NULL. */
    void (*ended)(teffi_group *group);
    /* Asked before the group rests: true = it rests as BLOCKED. NULL: always IDLE. */
    bool (*blocked)(teffi_group *group);
    /* Go on with the turn that gave way in its middle: resume fiber, then what handle does after a
     * turn. NULL: the group's turns cannot give way. Until then handle is not called; it, and
     * resume, must return at once when teffi_group_yielded after they resumed a fiber. */
    void (*resume)(teffi_group *group, struct teffi_fiber *fiber);
    /* The group was evicted from a run queue that orders by priority and is full (prio.h): may this
     * item of it be dropped? true: it was, and whoever waits for it was told; false: it is handled
     * now. In the group's turn. NULL: the group is never evicted. */
    bool (*evict)(teffi_group *group, teffi_item *item);
    /* What it is and does, in words, for the log and for dumps. NULL: it has no name. Not NULL is
     * a promise that the group's memory stays until the executor has stopped: it is asked from any
     * thread, also when the group has become another's meanwhile, and reads atomics and what is
     * constant. */
    void (*describe)(teffi_group *group, char *text, size_t size);
    teffi_context_kind kind;
} teffi_group_ops;

typedef enum teffi_group_state {
    TEFFI_GROUP_IDLE = 0,
    TEFFI_GROUP_READY = 1,
    TEFFI_GROUP_RUNNING = 2,
    TEFFI_GROUP_BLOCKED = 3,
    TEFFI_GROUP_COMPLETE = 4
} teffi_group_state;

struct teffi_group {
    _Atomic uintptr_t word;     /* atomic: the newest pushed item | state */
    teffi_item *head;           /* who has it: items taken off the word, oldest first */
    const teffi_group_ops *ops; /* immutable after init, as exec */
    struct teffi_exec *exec;
    teffi_group *next; /* the executor's link while READY */
    /* running worker: what it used lately, in a coin of level.h's; read by who makes it READY */
    uint32_t used;
    _Atomic int8_t priority; /* atomic, any order: the higher the earlier, where that counts */
    bool evicted;            /* run queue's lock, then the worker that takes it */
    _Atomic bool running;    /* written by who has it; for state_of */
};

/* What a run has to be told of, before the group may be anybody's again. */
typedef struct teffi_meter {
    void (*charge)(struct teffi_meter *meter, teffi_group *group);
} teffi_meter;

/* teffi_group_init - IDLE and empty. in: ops, constant; exec, borrowed. */
void teffi_group_init(teffi_group *group, struct teffi_exec *exec, const teffi_group_ops *ops);

/* teffi_group_init_ready - after init: one item is in it and it is READY; the caller queues it. */
void teffi_group_init_ready(teffi_group *group, teffi_item *item);

/* teffi_group_init_complete - after init: as after the end of a life, until teffi_group_reuse. */
void teffi_group_init_complete(teffi_group *group);

/* teffi_group_push - append an item and see to it that the group runs.
 * in:   item, moves to the group.
 * out:  false: the group is COMPLETE and the item is still the caller's.
 * runs: any thread, also from inside handle of the same group. Never blocks. The pusher must know
 *       that the group's memory lives until the push has returned.
 * Items are handled in the order in which pushes took effect. */
bool teffi_group_push(teffi_group *group, teffi_item *item);

/* teffi_group_run - drain it: for executors, after taking a READY group off a run queue.
 * in:   items_max, quantum end (mono ns; 0 = no time limit).
 * out:  true: still READY, put it at the tail of the global queue; false: leave it alone, it is
 *       IDLE or COMPLETE (its memory may be gone), or somebody else's already.
 * runs: on a worker's own stack. */
bool teffi_group_run(teffi_group *group, unsigned items_max, uint64_t until_ns);

/* teffi_group_run_counted - as teffi_group_run.
 * out:  twice the number of items that it handled, and one more for true. */
unsigned teffi_group_run_counted(teffi_group *group, unsigned items_max, uint64_t until_ns);

/* A fiber that gave way in the middle of its group's turn, as the first of the group's items; on
 * that fiber's stack. The group's own kinds stay below it. */
typedef struct teffi_gave_way {
    teffi_item item;
    struct teffi_fiber *fiber;
    bool stays; /* RUNNING, so that a push only appends, until teffi_group_go_on; else READY */
} teffi_gave_way;

#define TEFFI_ITEM_GAVE_WAY UINT32_MAX

/* teffi_group_yield - from inside handle or resume, on the fiber, just before it is suspended. */
void teffi_group_yield(teffi_group *group, teffi_gave_way *gave);

static inline bool teffi_group_yielded(const teffi_group *group)
{
    return group->head && group->head->kind == TEFFI_ITEM_GAVE_WAY;
}

/* teffi_group_go_on - a turn that gave way and was to be left alone may go on now: RUNNING ->
 * READY, and to the executor. runs: any thread, once. */
void teffi_group_go_on(teffi_group *group);

/* teffi_group_run_with - as teffi_group_run.
 * in:   meter, charged while the group is still this run's, for the last time at its end; may be
 *       NULL. evicted: each item is offered to ops->evict before it is handled. */
bool teffi_group_run_with(teffi_group *group, unsigned items_max, uint64_t until_ns,
                          teffi_meter *meter, bool evicted);

/* teffi_group_claim - take an idle group at once: IDLE and empty -> RUNNING, without a queue.
 * out:  true: the caller's worker is now the one that runs it and must teffi_group_release it. */
bool teffi_group_claim(teffi_group *group);

/* teffi_group_release - after a claim: run what came meanwhile through exec, else IDLE. */
void teffi_group_release(teffi_group *group);

/* teffi_group_left - instead of release, when the claim's turn gave way in its middle.
 * out:  true: READY, the caller queues it behind others; false: left until teffi_group_go_on. */
bool teffi_group_left(teffi_group *group);

/* teffi_group_complete - from inside handle or a claim: no more pushes are taken; what is queued is
 * still handled (handle sees it as before), then ops->ended is called. */
void teffi_group_complete(teffi_group *group);

/* teffi_group_reuse - COMPLETE -> IDLE: the memory serves another life. From ops->ended on, once.
 * Whoever still holds the group may push to it then: items must tell which life they mean. */
void teffi_group_reuse(teffi_group *group);

/* teffi_group_drain - one queued item; NULL: none.
 * runs: inside handle (a handler that waits on its own stack takes what comes meanwhile), or the
 *       owner when the executor is gone. */
teffi_item *teffi_group_drain(teffi_group *group);

/* teffi_group_state_name - "IDLE" and so on. */
const char *teffi_group_state_name(teffi_group_state state);

/* teffi_group_state_of - what it was at some moment of the call; acquire: sees what led to it. */
teffi_group_state teffi_group_state_of(teffi_group *group);

#endif
