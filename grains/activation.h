/* activation.h - the live instance of a grain: a group, its state, and what it may run next.
 * Way:     catalog (push) -> group -> [activation] -> admission -> turn -> method
 * States:  FREE -born-> BORN -item-> ACTIVATING -ok-> VALID -reason-> DEACTIVATING -> ENDED -> FREE
 *                                        \--failed or lost the registration-----------^
 * Threads: birth (type too) is written by who takes it from the slab, before its group takes items,
 *          and read on the group and under the shard's lock; fields marked G are the group's.
 * Source:  Orleans ActivationData, ORLEANS 1 and 2.3 */
#ifndef TEFFI_GRAINS_ACTIVATION_H
#define TEFFI_GRAINS_ACTIVATION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <teff/grain.h>
#include "admission.h"
#include "base/queue.h"
#include "ident.h"
#include "node/ctx.h"
#include "sched/group.h"

struct teffi_grains;

struct teff_grain_type {
    const teff_type_info *info;
    const void *methods;
    void *user;
    int8_t priority;
    /* atomic, by method: calls that go through the queue | how often it took long << 16 */
    _Atomic uint32_t *slow;
};

/* item kinds of an activation's group, beside TEFFI_MSG_* and TEFFI_ITEM_WAIT */
enum {
    TEFFI_ITEM_NUDGE = 10, /* see to what is asked for or can go on */
};

typedef enum __attribute__((packed)) teffi_phase {
    TEFFI_FREE = 0, /* its group is COMPLETE */
    TEFFI_BORN,     /* its first item begins its life */
    TEFFI_ACTIVATING,
    TEFFI_VALID,
    TEFFI_DEACTIVATING,
    TEFFI_ENDED /* what is still queued is handed back */
} teffi_phase;

enum { TEFFI_KEY_INLINE = 28 };

/* What an activation rarely has: made when first needed, given back when nothing is left in it. */
typedef struct teffi_more {
    teffi_queue pending;    /* msgs admission does not let start yet */
    uint32_t pending_of[3]; /* of them, by class (admission.h) */
    teffi_pid winner;       /* lost the registration: who won */
    char *failed_text;
} teffi_more;

/* The state of a type that has one; state.c's. */
typedef struct teffi_stored {
    ProtobufCMessage *message;
    teff_arena *arena;    /* heap; holds message */
    size_t compact_bytes; /* used when last compacted */
    uint64_t etag;
    bool saving; /* a store operation on it is under way */
} teffi_stored;

/* Three cache lines: what a request that comes looks at first; what changes with each turn; the
 * rest. */
typedef struct teffi_activation {
    teffi_group group;
    _Atomic uint64_t hash; /* the ident's, for who finds it without a lock; relaxed */
    const teff_grain_type *type;

    struct teffi_grains *grains; /* constant */
    struct teffi_turn *turns;    /* G: of requests, and life's, on their stacks */
    uint32_t running_of[3];      /* G: turns of requests, by class */
    uint32_t running;            /* G: of all classes */
    /* atomic, relaxed: requests pushed and not started; over queue_max: refused. Below 0 for a
     * moment when one came late to an activation that is another's now. */
    _Atomic uint32_t queued;
    _Atomic uint32_t used_ms; /* atomic: low bits of the coarse clock at the last request */
    /* The method whose turn runs, or ran last; relaxed: a constant string, for who describes it. */
    const char *_Atomic doing;
    _Atomic uint32_t slot;      /* relaxed: the same as long as anybody can know of it */
    uint32_t generation;        /* birth */
    uint16_t key_len;           /* birth */
    teffi_phase phase;          /* G */
    uint8_t reason;             /* G: teff_reason, why it ends; 0: it does not */
    bool busy;                  /* G: its own life's fiber (activate, deactivate) runs */
    bool registered;            /* shard's lock */
    _Atomic uint8_t end_reason; /* atomic: teff_reason asked for; 0: none */
    _Atomic bool nudged;        /* atomic: nudge is in the queue */

    teffi_item nudge;     /* in the queue; free: in the slab's list */
    teffi_more *more;     /* G; NULL: nothing of it */
    teffi_stored *stored; /* G; NULL: no state */
    teff_err failed;      /* G: activation failed with this; text in more */
    /* birth: key bytes and a zero byte, or where they are when they do not fit */
    _Alignas(4) uint8_t key[TEFFI_KEY_INLINE];
} teffi_activation;

/* teffi_activation_init - into zeroed memory, for the slab's image: free. */
void teffi_activation_init(teffi_activation *act, struct teffi_grains *grains);

/* teffi_activation_born - a new life's identity; its group takes items from now on. Under the
 * shard's lock. */
TEFF_MUST_USE teff_err teffi_activation_born(teffi_activation *act, const teff_grain_type *type,
                                             const teffi_ident *ident);

/* teffi_activation_end - ask it to deactivate: idle ones only when still idle. Any thread. */
void teffi_activation_end(teffi_activation *act, teff_reason reason);

/* teffi_activation_nudge - have it look at what it may do next. runs: any thread, while the catalog
 * has it, or on its group. */
void teffi_activation_nudge(teffi_activation *act);

/* teffi_activation_more - made when it is not there. On its group. NULL: memory is out. */
teffi_more *teffi_activation_more(teffi_activation *act);

static inline const uint8_t *teffi_activation_key_bytes(const teffi_activation *act)
{
    const uint8_t *away;
    if (act->key_len < TEFFI_KEY_INLINE)
        return act->key;
    memcpy(&away, act->key, sizeof away);
    return away;
}

/* teffi_activation_ident - points into act. On its group, or under the shard's lock. */
static inline teffi_ident teffi_activation_ident(const teffi_activation *act)
{
    return (teffi_ident){act->type->info->id, act->key_len, teffi_activation_key_bytes(act),
                         atomic_load_explicit(&act->hash, memory_order_relaxed)};
}

/* teffi_activation_key - as grain code sees it; text points into act. As above. */
static inline void teffi_activation_key(const teffi_activation *act, teff_key *key)
{
    teffi_key_view(key, act->type->info->key_kind, teffi_activation_key_bytes(act));
}

static inline ProtobufCMessage *teffi_activation_state(const teffi_activation *act)
{
    return act->stored ? act->stored->message : NULL;
}

/* A claim of the group's, from direct.c; the claimer is on the group, like its handler:
 * teffi_activation_is - the activation of ident, and up?
 * teffi_activation_open, _waits - may a request of the class start? Do some of it wait?
 * teffi_activation_settle_later - after a turn in place that did not give way: what a handler would
 *       do next is done by one, soon, if there is anything to do. */
void teffi_activation_settle_any(teffi_activation *act);

static inline void teffi_activation_settle_later(teffi_activation *act)
{
    if (act->reason || act->more || act->stored)
        teffi_activation_settle_any(act);
}

static inline bool teffi_activation_open(const teffi_activation *act, teffi_class class)
{
    return act->phase == TEFFI_VALID && !act->reason && !act->busy &&
           teffi_may_start(act->running_of, class);
}

static inline bool teffi_activation_waits(const teffi_activation *act, teffi_class class)
{
    return act->more && act->more->pending_of[class] > 0;
}

/* Who is free, or not up yet, is nobody whom the claimer could mean. */
static inline bool teffi_activation_is(const teffi_activation *act, const teffi_ident *ident)
{
    return act->phase == TEFFI_VALID && act->type->info->id == ident->type &&
           act->key_len == ident->key_len &&
           teffi_key_same(teffi_activation_key_bytes(act), ident->key, ident->key_len);
}

/* teffi_activation_pid - its process id in the cluster. */
teffi_pid teffi_activation_pid(const teffi_activation *act);

/* teffi_activation_discard - free what a life holds; after the executor is gone. */
void teffi_activation_discard(teffi_activation *act);

#endif
