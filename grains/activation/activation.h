/* activation.h - the live instance of a grain: its group, state, turns and queued requests.
 * Way:     shard (push) -> [activation] -> group -> hosting/handler -> turn -> method
 * States:  FREE -born-> BORN -item-> ACTIVATING -ok-> VALID -reason-> DEACTIVATING -> ENDED -> FREE
 *                                        \--failed or lost the registration-----------^
 *          If teffi_shard_create_activation() has claimed the group: BORN -> VALID at once.
 * Threads: fields marked B, and type, change only while the group accepts no items; read on the
 *          group and under the shard's lock. G: on the group, or by the thread that has claimed it.
 * Source:  Orleans' src/Orleans.Runtime/Catalog/ActivationData.cs */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include "activation/admission.h"
#include "activation/grains.h"
#include "activation/ident.h"
#include "activation/type.h"
#include "call/ctx.h"
#include "call/wait.h"

/* item kinds of an activation's group, beside TEFFI_MSG_REQUEST, TEFFI_MSG_ONEWAY, TEFFI_ITEM_WAIT
 * and TEFFI_ITEM_CLOSURE */
enum {
    TEFFI_ITEM_NUDGE = 10, /* handle end_reason; start requests and ticks that may start now */
    TEFFI_ITEM_TICK = 11,  /* never queued: the kind of the request of a timer's tick (timers.c) */
    TEFFI_ITEM_VISIT = 20, /* do requests wait here? (waits.h) */
    TEFFI_ITEM_PROBE = 21, /* a message: is there a deadlock? (request/deadlock.h) */
    TEFFI_ITEM_BOUNCE = 22 /* a message: a notification was not delivered (observers.h) */
};

typedef enum __attribute__((packed)) teffi_phase {
    TEFFI_FREE = 0, /* its group is COMPLETE */
    TEFFI_BORN,     /* has its identity; its first item starts the activation */
    TEFFI_ACTIVATING,
    TEFFI_VALID,
    TEFFI_DEACTIVATING,
    TEFFI_ENDED /* queued requests are handed back: routed again, or get the error */
} teffi_phase;

enum { TEFFI_KEY_INLINE = 24 };

enum {
    TEFFI_BUSY_LIFE = 1,   /* a life turn has begun and not ended */
    TEFFI_BUSY_LOCKED = 4, /* more->lock: only requests of its transaction start */
    TEFFI_BUSY_HOOK = 8,   /* the life turn has called on_activate or on_deactivate */
    TEFFI_BUSY_COMPACT = 2 /* a pause: no turn starts until the state is compacted, at most 1 s */
};

/* Rarely used fields: allocated on first use, freed when `pending` is empty and there are no lock,
 * no timers and no observers, or with the activation. */
typedef struct teffi_more {
    teffi_queue pending;     /* requests that admission does not let start yet */
    uint32_t pending_of[3];  /* their number by class; those of newer callers: EXCLUSIVE */
    teffi_pid winner;        /* the activation that holds the grain instead; zero: none */
    char *failed_text;       /* NULL: none; text of teffi_activation.failed */
    bool failed_named;       /* send failed_text by teffi_node_respond_with_named_err */
    struct teffi_lock *lock; /* of a transaction (lock.h); NULL: none */
    struct teffi_grain_timers *timers; /* timers.h; NULL: none */
    struct teffi_observers *observers; /* observers.h; NULL: none */
    uint32_t pending_of_owner;         /* if lock: requests in pending of its transaction */
    uint32_t next_warn_ms; /* stuck.c logs the oldest turn from this age on; 0: not yet */
    bool judge_all;  /* lock was taken while requests waited: those of younger transactions die */
    uint8_t version; /* the type's newest version that newer callers need; 0: none */
    /* waits.c: */
    uint8_t pause;     /* visits from one probe to the next; 0: no probe is due */
    uint8_t countdown; /* visits until the next probe */
    bool has_probed;   /* since the last visit */
    bool has_new;      /* requests were set aside since the present countdown began */
} teffi_more;

/* The state, for a type that has one. All fields: G. */
typedef struct teffi_stored {
    ProtobufCMessage *message;
    teff_arena *arena;             /* heap; holds message */
    size_t compact_bytes;          /* arena->used_bytes after the last compaction or load */
    struct teffi_rooms *rooms;     /* in arena; keep.c; NULL: no list was appended to since then */
    size_t grown_bytes;            /* spare room from the first growth of each list since then */
    size_t pause_bytes;            /* arena->used_bytes at which a pause begins */
    struct teffi_pause *pause;     /* no turn starts until compacted; NULL: no pause */
    struct teffi_answers *answers; /* to calls with idempotency keys (answers.h); NULL: none */
    uint64_t etag;
    uint64_t tried_hash; /* if unsure: hash of the value in the last write */
    bool tried_remove;   /* if unsure: the last write was a removal */
    bool unsure;         /* the outcome of the last write is not known */
    bool lost;           /* another writer may have changed the row: never write it again */
    bool saving;         /* a save, a clear or the turn of a call with a key is under way */
    bool broken;         /* a turn ended in its middle, or a roll-back had no memory */
} teffi_stored;

/* teffi_activation.marks */
enum {
    TEFFI_NUDGED = 1, /* nudge is in the group's queue */
    /* relaxed: a search of a pool (directory/stateless.h) has found that a turn is suspended, and
     * none was resumed since then */
    TEFFI_SUSPENDED = 2
};

/* Three cache lines: read first by each request; changed by each turn; the rest. */
typedef struct teffi_activation {
    teffi_group group;
    _Atomic uint64_t hash; /* relaxed; of the identity, to find the activation without a lock */
    const teff_grain_type *type;

    teffi_grains *grains;          /* constant */
    LIST_HEAD(, teffi_turn) turns; /* G: turns, which lie on their stacks; life's turn too */
    uint32_t running_of[3];        /* G: turns of requests, by class */
    uint32_t running;              /* G: turns of requests, of all classes */
    /* relaxed: requests pushed and not started; at queue_max pushes are refused. Below 0 if a late
     * push was counted before this memory was reused for another grain, and uncounted after it. */
    _Atomic uint32_t queued;
    /* relaxed: low bits of the coarse clock at the last request; later than now after a turn's call
     * of teff_delay_deactivation() */
    _Atomic uint32_t used_ms;
    /* relaxed: name of the method (a life turn: of the type) whose turn runs or ran last in this
     * memory; a constant string, for dumps; NULL: none */
    const char *_Atomic doing;
    _Atomic uint32_t slot; /* relaxed: written before the slot is known to any other thread */
    uint32_t generation;   /* B */
    uint16_t key_len;      /* B */
    teffi_phase phase;     /* G */
    uint8_t reason;        /* G: teff_reason, why it deactivates; 0: it stays */
    uint8_t busy;          /* G: TEFFI_BUSY_*; 0: requests may start */
    bool registered;       /* shard's lock: the directory holds this activation */
    /* teff_reason that another thread asked for, until act has ended or does not end; 0: none */
    _Atomic uint8_t end_reason;
    _Atomic uint8_t marks; /* TEFFI_NUDGED, TEFFI_SUSPENDED */

    teffi_item nudge;              /* TEFFI_ITEM_NUDGE */
    teffi_more *more;              /* G; NULL: not allocated */
    teffi_stored *stored;          /* G; NULL: no state */
    uint16_t failed;               /* G: teff_err of the failed activation; its text is in more */
    _Atomic uint8_t watched;       /* TEFFI_WATCHED, TEFFI_WAITED (waits.h); 0: not watched */
    bool was_valid;                /* G: it could start requests: VALID, and to stay */
    _Atomic uint32_t queued_bytes; /* relaxed: bytes of the large requests counted in queued */
    union {
        /* B: key bytes and a zero byte; a pointer to them if they do not fit */
        uint8_t key[TEFFI_KEY_INLINE];
        teffi_slab_link free; /* while FREE: used by the slab */
    };
} teffi_activation;

/* One run of a method, or a life turn, on a fiber. Lies on the fiber's stack. "Life turn": the turn
 * of on_activate or on_deactivate, with the steps around it, or of teffi_lock_resolve. */
typedef struct teffi_turn {
    teff_ctx ctx; /* ctx.owner points back here */
    teffi_activation *act;
    teffi_msg *request;           /* NULL: a life turn; or it became the response, or a retry */
    struct teffi_in_place *place; /* takes the response; NULL: the response is a message */
    bool on_stack;                /* request lies on the stack, beside the turn */
    /* if on_stack: request->call is set. Atomic: teffi_turn_set_call(), caller_has_left() */
    _Atomic bool has_call;
    /* Its filters have refused the call before its method. Set before the method of a request with
     * an idempotency key or in a transaction; for others not valid. */
    bool not_run;
    uint32_t due_ms;             /* the caller's deadline, as ctx.due_ms at the start */
    const teff_method *method;   /* NULL: a life turn */
    LIST_ENTRY(teffi_turn) link; /* in teffi_activation.turns */
} teffi_turn;

/* teffi_activation_of_ctx - the activation whose turn runs on ctx; NULL if ctx belongs to a thread
 * or a task. */
static inline teffi_activation *teffi_activation_of_ctx(const teff_ctx *ctx)
{
    const teffi_turn *turn = ctx->owner;
    return turn ? turn->act : NULL;
}

/* teffi_activation_init - make a FREE activation in zeroed memory, for the slab's image. */
void teffi_activation_init(teffi_activation *act, teffi_grains *grains);

/* teffi_activation_give_identity - give a FREE activation an identity; its group accepts items
 * from now on. The caller must hold the shard's lock.
 * errs: TEFF_E_NOMEM; TEFF_E_INVALID: not a key of the type. */
TEFF_MUST_USE teff_err teffi_activation_give_identity(teffi_activation *act,
                                                      const teff_grain_type *type,
                                                      const teffi_ident *ident);

/* teffi_activation_clear - make act FREE again: drop its identity and act->more. Called after
 * teffi_state_free(), when the group has ended or the executor has stopped.
 * in:   act has no lock and no pending requests. */
void teffi_activation_clear(teffi_activation *act);

/* teffi_activation_push - queue a request. Any thread.
 * in:   msg, moves on TEFF_OK only. type, NULL: the type is not hosted here.
 * out:  *deep: the queue's length if it has just passed the warning limit; else 0.
 * errs: TEFF_E_OVERLOADED; TEFF_E_CLOSED: the activation has ended. */
TEFF_MUST_USE teff_err teffi_activation_push(teffi_activation *act, const teff_grain_type *type,
                                             teffi_msg *msg, uint32_t *deep);

/* teffi_activation_uncount_queued - stop counting a queued request, because it starts or ends.
 * runs: on any thread. */
void teffi_activation_uncount_queued(teffi_activation *act, const teffi_msg *msg);

/* teffi_reason_is_for_unused - does an activation end for this reason only if it is not in use?
 * Then clear_nudge_and_adopt_end_reason() checks this on its group. */
static inline bool teffi_reason_is_for_unused(uint8_t reason)
{
    return reason == TEFF_REASON_IDLE || reason == TEFF_REASON_LIMIT ||
           reason == TEFF_REASON_MEMORY;
}

/* teffi_activation_ask_to_end - ask act to deactivate; ignored if it was asked before and has not
 * refused. Exception: a reason for unused activations gives way to every other reason.
 * runs: as teffi_activation_nudge. */
void teffi_activation_ask_to_end(teffi_activation *act, teff_reason reason);

/* teffi_activation_nudge - push the nudge item, unless it is queued: the group's handler then
 * decides what to do next.
 * runs: under the shard's lock, or on act's group: both keep act from ending meanwhile. A nudge
 *       after the end would be lost and leave `nudged` set. */
void teffi_activation_nudge(teffi_activation *act);

/* teffi_activation_ensure_rare_fields - act->more, allocated if NULL. On its group.
 * out:  NULL: out of memory. */
teffi_more *teffi_activation_ensure_rare_fields(teffi_activation *act);

/* teffi_activation_free_rare_fields - free act->more, which has no lock, no pending requests, no
 * timers and no observers.
 * runs: on act's group. */
void teffi_activation_free_rare_fields(teffi_activation *act);

/* teffi_activation_pid - act's process id in the cluster. On its group, or under the shard's
 * lock. */
teffi_pid teffi_activation_pid(const teffi_activation *act);

/* ---- the last use. relaxed: if the collector reads an older time, it may ask act to end too
 * early; clear_nudge_and_adopt_end_reason() then compares the times again, on act's group ---- */

/* If act->used_ms is later than now, then by at most so much: 12 days and the time that the coarse
 * clock may be late. A time that seems later by more is in the past. */
enum { TEFFI_DELAY_MAX_MS = 1 << 30 };

/* teffi_activation_age_ms - the time since act's last use. in: now_ms, the low bits of the coarse
 * clock. out: below 0: act counts as used until this time has passed. */
static inline int64_t teffi_activation_age_ms(const teffi_activation *act, uint32_t now_ms)
{
    uint32_t used = atomic_load_explicit(&act->used_ms, memory_order_relaxed);
    uint32_t ahead = used - now_ms;
    return ahead && ahead <= TEFFI_DELAY_MAX_MS ? -(int64_t)ahead : (uint32_t)(now_ms - used);
}

/* teffi_activation_update_last_use - act is used now; a delay of its end stays.
 * runs: on act's group, or by the thread that has claimed the group. */
static inline void teffi_activation_update_last_use(teffi_activation *act)
{
    uint32_t now = (uint32_t)atomic_load_explicit(&act->grains->coarse_ms, memory_order_relaxed);
    uint32_t used = atomic_load_explicit(&act->used_ms, memory_order_relaxed);
    if (used - now > TEFFI_DELAY_MAX_MS) /* used is earlier than now */
        atomic_store_explicit(&act->used_ms, now, memory_order_relaxed);
}

/* teffi_activation_delay_end - act counts as used until ms have passed, at most 12 days; 0 or less:
 * as used now. An earlier delay does not count any more.
 * runs: as teffi_activation_update_last_use, or before another thread knows act. */
void teffi_activation_delay_end(teffi_activation *act, int64_t ms);

/* teffi_activation_key_bytes - get the key, which a zero byte follows. out: borrowed from act. (A
 * key of TEFFI_KEY_INLINE bytes or more is stored on the heap; act->key then holds the pointer to
 * it.) */
static inline const uint8_t *teffi_activation_key_bytes(const teffi_activation *act)
{
    const uint8_t *on_heap;
    if (act->key_len < TEFFI_KEY_INLINE)
        return act->key;
    memcpy(&on_heap, act->key, sizeof on_heap);
    return on_heap;
}

/* teffi_activation_ident - act's identity. It points to act's key bytes.
 * runs: on act's group, or under the shard's lock. */
static inline teffi_ident teffi_activation_ident(const teffi_activation *act)
{
    return (teffi_ident){act->type->info->id, act->key_len, teffi_activation_key_bytes(act),
                         atomic_load_explicit(&act->hash, memory_order_relaxed)};
}

/* teffi_activation_get_key - set *key to act's key, in the form that grain code gets. key->text
 * points into act's key bytes. runs: on act's group, or under the shard's lock. */
static inline void teffi_activation_get_key(const teffi_activation *act, teff_key *key)
{
    teffi_key_decode_unchecked(key, act->type->info->key_kind, teffi_activation_key_bytes(act));
}

/* teffi_activation_state - the grain's state, a protobuf message; NULL if it is not loaded, or if
 * the grain's type has no state. */
static inline ProtobufCMessage *teffi_activation_state(const teffi_activation *act)
{
    return act->stored ? act->stored->message : NULL;
}

/* teffi_lock_of - act's lock; NULL if there is none. runs: on act's group. */
static inline struct teffi_lock *teffi_lock_of(const teffi_activation *act)
{
    return act->more ? act->more->lock : NULL;
}

/* These four functions are called on act's group, or by the thread that has claimed the group:
 * teffi_activation_is_valid_for - is act VALID, and is ident its identity?
 * teffi_activation_admits - may a request of the class start now, beside the running turns?
 * teffi_activation_has_pending - is a request of the class in act->more->pending?
 * teffi_activation_any_pending_may_start - may any request in act->more->pending start now?
 *       Reads no request, only counters and flags. Also true if a lock was taken while requests
 *       were pending (act->more->judge_all): then the caller must look at each of them, because
 *       the lock may refuse some. */
static inline bool teffi_activation_is_valid_for(const teffi_activation *act,
                                                 const teffi_ident *ident)
{
    return act->phase == TEFFI_VALID && act->type->info->id == ident->type &&
           act->key_len == ident->key_len &&
           teffi_key_bytes_equal(teffi_activation_key_bytes(act), ident->key, ident->key_len);
}

static inline bool teffi_activation_admits(const teffi_activation *act, teffi_class class)
{
    return act->phase == TEFFI_VALID && !act->reason && !act->busy &&
           teffi_class_may_start(act->running_of, class);
}

static inline bool teffi_activation_has_pending(const teffi_activation *act, teffi_class class)
{
    return act->more && act->more->pending_of[class] > 0;
}

bool teffi_activation_any_pending_may_start(const teffi_activation *act);

/* ---- prefix the texts of the runtime's own errors: "words.Word.Add at teff: ". Error texts of
 * methods get no prefix, so a forwarded text has only one. On the context's thread or turn ---- */

/* teffi_error_add_call_prefix - prefix ctx's error text with method and key. out: err. */
teff_err teffi_error_add_call_prefix(teff_ctx *ctx, const teff_method *method, const teff_key *key,
                                     teff_err err);

/* teffi_error_add_call_prefix_from_bytes - the same, for an encoded key. Reads only its first 80
 * bytes: more are not shown. */
teff_err teffi_error_add_call_prefix_from_bytes(teff_ctx *ctx, const teff_method *method,
                                                teff_key_kind kind, const uint8_t *bytes,
                                                uint32_t len, teff_err err);

/* teffi_error_add_turn_prefix - the same, with the method and key of the turn that runs on ctx; for
 * a life turn, the grain type's name instead of the method. */
teff_err teffi_error_add_turn_prefix(teff_ctx *ctx, teff_err err);
