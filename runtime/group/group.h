/* group.h - work-item group: any thread pushes items, one worker at a time drains them.
 * Way:     process/, grains/activation -> [group] -> exec (run queues, workers) -> ops->handle
 * States:  IDLE -push-> READY -a worker-> RUNNING -no items-> IDLE; RUNNING -budget used-> READY.
 *          BLOCKED is IDLE for a process that waits; COMPLETE refuses pushes, until reuse.
 * Threads: push: any. handle: one worker at a time; each run sees what the runs before it did.
 * Source:  Orleans' src/Orleans.Runtime/Scheduler/WorkItemGroup.cs; yatp's src/task/future.rs */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/queue.h"

struct teffi_exec;
struct teffi_fiber;

typedef struct teffi_item { /* intrusive: in one group's queue at most */
    struct teffi_item *next;
    uint32_t kind;  /* the group's own numbering */
    uint32_t at_ms; /* coarse clock when it was pushed; 0: not known */
} teffi_item;

typedef struct teffi_group teffi_group;

typedef struct teffi_group_ops {
    /* Handle one item; it moves to the handler. */
    void (*handle)(teffi_group *group, teffi_item *item);
    /* The group is COMPLETE, its last item was handled, and the executor does not refer to it any
     * more: its memory may be freed. May be NULL. */
    void (*ended)(teffi_group *group);
    /* Resume the fiber of a turn that yielded, then do what handle does after a turn. While a turn
     * has yielded, handle is not called. After resuming a fiber, handle and resume must return at
     * once if teffi_group_has_yielded_turn. NULL: the group's turns cannot yield. */
    void (*resume)(teffi_group *group, struct teffi_fiber *fiber);
    /* In a run of a group that was evicted from the run queue (sched/policy/priority.h): drop this
     * item if possible. out: true: it was dropped, with an error to its sender; false: it will be
     * handled. NULL: the group has no priority: it comes before all others, and is never
     * evicted. */
    bool (*evict)(teffi_group *group, teffi_item *item);
    /* Describe the group in words. Called by any thread, even when another group uses the memory
     * already, so it reads only atomics and constants. If it is not NULL, the group's memory must
     * stay until the executor has stopped. NULL: a forked part, whose memory goes when it ends. */
    void (*describe)(teffi_group *group, char *text, size_t size);
} teffi_group_ops;

typedef enum teffi_group_state {
    TEFFI_GROUP_IDLE = 0,
    TEFFI_GROUP_READY = 1,
    TEFFI_GROUP_RUNNING = 2,
    TEFFI_GROUP_BLOCKED = 3,
    TEFFI_GROUP_COMPLETE = 4
} teffi_group_state;

/* One word holds the state and the newest pushed item, so that queue and state always agree, and
 * each transition is one CAS. The word encodes READY and RUNNING as "owned"; the flag running tells
 * them apart, for reports. Ownership passes from the pusher that took the group out of rest to a
 * run queue to a worker. Only the owner uses head; other threads only append to the word. When a
 * run has no items left, it takes the ones that were pushed meanwhile, up to exec.repolls_max
 * times; then the group is READY again. */
struct teffi_group {
    _Atomic uintptr_t word;     /* the newest pushed item | state */
    const teffi_group_ops *ops; /* immutable after init, as exec */
    struct teffi_exec *exec;
    teffi_item *head;        /* the owner's: items taken off the word, oldest first */
    teffi_qnode link;        /* the owner's: in a run queue, while READY */
    uint32_t used;           /* the owner's: decayed run time, or the number of an account that has
                              * it: see sched/policy/level.h */
    _Atomic int8_t priority; /* any thread; policy priority: higher ones run earlier */
    bool evicted : 1;        /* the owner's; set by the run queue, under its lock */
    bool shares : 1;         /* the owner's: used is the number of an account */
    bool blocked : 1;        /* the owner's: at rest the group is BLOCKED, not IDLE */
    bool system;             /* immutable once pushed to, see teffi_group_set_system */
    _Atomic bool running;    /* written by the owner; for teffi_group_state_of */
};

/* charge: charge the group for the run time since charge was last called, or since the run began.
 * Called while the run still owns the group. */
typedef struct teffi_meter {
    void (*charge)(struct teffi_meter *meter, teffi_group *group);
} teffi_meter;

/* teffi_group_init - IDLE and empty. in: ops, constant; exec, borrowed. */
void teffi_group_init(teffi_group *group, struct teffi_exec *exec, const teffi_group_ops *ops);

/* teffi_group_set_system - mark the group as a system group. A silo cannot stay in the cluster
 * without the work of such a group. So the group runs on the executor's system thread, if there is
 * one (exec ops->system). Call this after init, before the first push. */
static inline void teffi_group_set_system(teffi_group *group)
{
    group->system = true;
}

/* teffi_group_set_ready_with_item - after init: READY with one item; the caller queues it. */
void teffi_group_set_ready_with_item(teffi_group *group, teffi_item *item);

/* teffi_group_set_initially_complete - after init: COMPLETE, until teffi_group_reuse. */
void teffi_group_set_initially_complete(teffi_group *group);

/* teffi_group_push - append an item, and make the group READY if it is IDLE or BLOCKED. Items are
 * handled in the order in which pushes took effect.
 * in:   item, moves to the group, whose memory must live until the push has returned.
 * out:  false: the group is COMPLETE and the item is still the caller's.
 * runs: any thread, also in handle of the same group. It takes only the executor's locks, so it is
 *       allowed under locks that come before them (ARCHITECTURE, "Lock order"). */
bool teffi_group_push(teffi_group *group, teffi_item *item);

/* teffi_group_run_and_count - handle the queued items: for executors, after taking the group off a
 * run queue.
 * in:   items_max; until_ns, end of the quantum (mono; 0 = none).
 * out:  twice the number of items that it handled, without a turn that it resumed, plus one if the
 *       group is still READY, or COMPLETE with items left: to be queued behind all others. Else do
 *       not touch it any more: it is IDLE, BLOCKED, COMPLETE (its memory may be freed), RUNNING
 *       until teffi_group_make_ready, or has another owner.
 * runs: the group's owner, on its thread's own stack. */
unsigned teffi_group_run_and_count(teffi_group *group, unsigned items_max, uint64_t until_ns);

/* teffi_group_run - as teffi_group_run_and_count. out: true: the caller must queue the group again,
 * behind all others. */
static inline bool teffi_group_run(teffi_group *group, unsigned items_max, uint64_t until_ns)
{
    return teffi_group_run_and_count(group, items_max, until_ns) & 1;
}

/* teffi_group_run_with_meter - as teffi_group_run_and_count.
 * in:   meter, charged at least at the end; may be NULL. evicted: each item is offered to
 *       ops->evict before it is handled. */
unsigned teffi_group_run_with_meter(teffi_group *group, unsigned items_max, uint64_t until_ns,
                                    teffi_meter *meter, bool evicted);

/* A turn that yielded, as the first item of its group; it is on the fiber's stack. The group's own
 * kinds are below TEFFI_ITEM_YIELDED. */
typedef struct teffi_yielded_turn {
    teffi_item item;
    struct teffi_fiber *fiber;
    bool stays; /* the group stays RUNNING until teffi_group_make_ready; else it is READY */
} teffi_yielded_turn;

#define TEFFI_ITEM_YIELDED UINT32_MAX

/* teffi_group_prepend_yielded_turn - make turn the group's first item. The next run of the group
 * then resumes the fiber. runs: in handle, resume or a claim, on the fiber, just before the fiber
 * is suspended. */
void teffi_group_prepend_yielded_turn(teffi_group *group, teffi_yielded_turn *turn);

/* teffi_group_has_yielded_turn - has the group's turn yielded, and not resumed yet? runs: the
 * owner. */
static inline bool teffi_group_has_yielded_turn(const teffi_group *group)
{
    return group->head && group->head->kind == TEFFI_ITEM_YIELDED;
}

/* teffi_group_make_ready - let a turn that yielded with `stays` set go on: make its group READY.
 * Once, after the run or claim in which the turn yielded has ended. Any thread. */
void teffi_group_make_ready(teffi_group *group);

/* teffi_group_claim - IDLE and empty -> RUNNING, without a queue.
 * out:  true: the caller's worker owns the group until it calls teffi_group_release_claim or, if
 *       the turn has yielded, teffi_group_release_yielded_claim. false: the group is not IDLE. */
bool teffi_group_claim(teffi_group *group);

/* teffi_group_release_claim - end a claim: RUNNING -> READY, and queue it, if items were pushed
 * meanwhile; else IDLE or BLOCKED; or call ops->ended if the group is COMPLETE and has no items. */
void teffi_group_release_claim(teffi_group *group);

/* teffi_group_release_yielded_claim - end a claim whose turn has yielded; call it instead of
 * teffi_group_release_claim.
 * out:  true: the group is READY and the caller queues it; false: it stays RUNNING until
 *       teffi_group_make_ready. */
bool teffi_group_release_yielded_claim(teffi_group *group);

/* teffi_group_complete - in handle, resume or a claim: refuse pushes from now on. Queued items are
 * still handled, then ops->ended is called. */
void teffi_group_complete(teffi_group *group);

/* teffi_group_reuse - COMPLETE -> IDLE, to use the memory again, after ops->ended was called.
 * Threads with old pointers may push to it, so each item must say for which use of the memory it
 * is. */
void teffi_group_reuse(teffi_group *group);

/* teffi_group_take_item - take one queued item; drop a turn that has yielded.
 * out:  the item, now the caller's; NULL: there is none.
 * runs: in a turn of the group, or one thread once the executor has stopped. */
teffi_item *teffi_group_take_item(teffi_group *group);

/* teffi_group_state_name - "IDLE" and so on. */
const char *teffi_group_state_name(teffi_group_state state);

/* teffi_group_state_of - the group's state at some moment of the call. Any thread. */
teffi_group_state teffi_group_state_of(teffi_group *group);
