/* activation.h - the live instance of a grain: a group, its state, and what it may run next.
 * Way:     catalog (push) -> group -> [activation] -> admission -> turn -> method
 * States:  FREE -start-> ACTIVATING -ok-> VALID -reason-> DEACTIVATING -> ENDED -last-> FREE
 *                            \--failed or lost the registration---------^
 * Threads: birth is written by who takes it from the pool, before START is pushed, and read on the
 *          group until FREE and under the shard's lock; fields marked G belong to the group.
 * Source:  Orleans ActivationData, ORLEANS 1 and 2.3 */
#ifndef TEFFI_GRAINS_ACTIVATION_H
#define TEFFI_GRAINS_ACTIVATION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <teff/grain.h>
#include "base/queue.h"
#include "ident.h"
#include "node/ctx.h"
#include "sched/group.h"

struct teffi_grains;

/* item kinds of an activation's group, beside TEFFI_MSG_* and TEFFI_ITEM_WAIT */
enum {
    TEFFI_ITEM_START = 10,
    TEFFI_ITEM_END = 11,  /* deactivate: idle or stopping */
    TEFFI_ITEM_PUMP = 12, /* go on with what is pending */
    TEFFI_ITEM_LAST = 13  /* everything pushed while the catalog had it has come */
};

typedef enum teffi_phase {
    TEFFI_FREE = 0,
    TEFFI_ACTIVATING,
    TEFFI_VALID,
    TEFFI_DEACTIVATING,
    TEFFI_ENDED
} teffi_phase;

enum { TEFFI_KEY_INLINE = 48 };

typedef struct teffi_activation {
    teffi_group group;
    struct teffi_grains *grains;
    uint32_t slot;
    /* birth */
    const teff_grain_type *type;
    teffi_ident ident;
    uint8_t *long_key;             /* when the key does not fit in key */
    uint8_t key[TEFFI_KEY_INLINE]; /* key bytes and a zero byte */
    teff_key user_key;             /* as grain code sees it; text points into the key bytes */
    uint32_t generation;
    bool registered; /* shard's lock */
    /* atomic */
    _Atomic uint64_t hash;       /* the ident's, for who finds it without a lock; relaxed */
    _Atomic uint32_t queued;     /* requests pushed and not started; over queue_max: refused */
    _Atomic uint32_t end_reason; /* teff_reason asked for by END; 0: END is not in the queue */
    _Atomic uint64_t used_ms;    /* coarse clock at the last request */
    /* The method whose turn runs, or ran last; relaxed: a constant string, for who describes it. */
    const char *_Atomic doing;
    /* G */
    teffi_phase phase;
    teff_reason reason; /* why it ends; 0: it does not */
    bool busy;          /* its own life's fiber (activate, deactivate) runs */
    bool pump_queued;
    uint32_t running;         /* turns of requests */
    struct teffi_turn *turns; /* those and life's, on their stacks */
    uint32_t running_of[3];   /* of them, by class */
    teffi_queue pending;      /* msgs admission does not let start yet */
    uint32_t pending_of[3];   /* of them, by class (admission.h) */
    teffi_pid winner;         /* lost the registration: who won */
    teff_err failed;          /* activation failed with this; text beside */
    char *failed_text;
    ProtobufCMessage *state;
    teff_arena *state_arena;    /* heap; NULL without state */
    size_t state_compact_bytes; /* used when last compacted */
    uint64_t etag;
    bool saving; /* a store operation on the state is under way */
    teffi_item start_item, end_item, pump_item, last_item;
    struct teffi_activation *next_free; /* pool's lock */
} teffi_activation;

/* teffi_activation_init - once, when its memory is made. */
void teffi_activation_init(teffi_activation *act, struct teffi_grains *grains, uint32_t slot);

/* teffi_activation_born - a new life: identity and START. Under the shard's lock. */
TEFF_MUST_USE teff_err teffi_activation_born(teffi_activation *act, const teff_grain_type *type,
                                             const teffi_ident *ident);

/* teffi_activation_end - ask it to deactivate: idle ones only when still idle. Any thread. */
void teffi_activation_end(teffi_activation *act, teff_reason reason);

/* teffi_activation_pid - its process id in the cluster. */
teffi_pid teffi_activation_pid(const teffi_activation *act);

/* teffi_activation_discard - free what a life holds; after the executor is gone. */
void teffi_activation_discard(teffi_activation *act);

#endif
