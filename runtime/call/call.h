/* call.h - one pending call: which context waits for which response, and until when.
 * Way:     ctx_calls -> [call] -> msg to the target ... response {slot, generation} -> call -> wait
 *          relay.h: entries for calls of other nodes
 * States:  free -new-> PENDING -response, deadline, lost link, cancel, fail, abandon-> taken
 *          -release-> free
 * Threads: one atomic word holds state and generation. The thread whose compare-and-swap clears
 *          PENDING "takes" the call and alone ends it. A response of an older use is dropped.
 * Model:   tests/model/call.pml */
#pragma once

#include <teff/generated.h>
#include "call/home.h"
#include "call/wait.h"

/* teffi_call.word: the generation in the upper 32 bits; below it PENDING, RELAY, CANCEL, and a hash
 * of the node that the request was sent to (0: not sent yet). They share a word so that a late
 * teffi_call_set_sent_to cannot change the entry's next use. On a hash collision (2 in 10^9 for two
 * silos) the loss of one silo also ends the calls to the other, as "may have run".
 *
 * A relay (relay.h) is the pending call of a request that this node forwards for another node. No
 * context waits for it here: its outcome is sent on to that node. With CANCEL it is a kept cancel,
 * which has no outcome. */
#define TEFFI_CALL_PENDING 1u
#define TEFFI_CALL_RELAY 2u
#define TEFFI_CALL_CANCEL 4u
#define TEFFI_CALL_SENT 0xfffffff8u

/* The method and key of a call that is not awaited at once: its error text names them. */
enum {
    TEFFI_CALL_KEY_MAX = 39,
    TEFFI_CALL_HAS_ASKED = 1,
    TEFFI_CALL_TARGETS_NO_GRAIN = 2,
    TEFFI_CALL_OUT_FLAGS = 3
};

typedef struct teffi_asked {
    const teff_method *method;
    const teff_type_info *type;
    uint8_t key_len;
    uint8_t key[TEFFI_CALL_KEY_MAX]; /* the key's first bytes */
} teffi_asked;

enum { TEFFI_CALLS_MAX = 1 << 24 };

struct teffi_call {   /* two cache lines; most calls do not touch the third, asked */
    teffi_wait wait;  /* signalled once, when the call has ended */
    teffi_home *home; /* immutable, like slot */
    uint32_t slot;
    uint32_t generation; /* written by the caller's thread only */
    /* atomic. Stored pending with seq_cst after the fields that the taker reads (wait), and before
     * teffi_deadline_watch; pairs with the exchange in take_call_if_word_is */
    _Atomic uint64_t word;
    /* atomic, relaxed: the sweep may read the deadline of the entry's next use; then its exchange
     * of word, which it read before, fails. UINT64_MAX: none */
    _Atomic uint64_t deadline_ns;
    /* written by the taker before it signals wait, read by the caller after that */
    union {
        const char *text;       /* if err: static, in response's arena, or NULL */
        ProtobufCMessage *body; /* no err, no response: the body of a call that was never PENDING */
    };
    teffi_msg *response; /* the response; NULL on a local error */
    teff_err err;
    uint32_t number; /* the caller's thread only: the call's number in its context; wraps around */
    union {
        LIST_ENTRY(teffi_call) in_ctx; /* the caller's thread only: its context's list */
        teffi_slab_link link;          /* while free: the slab's list */
        teffi_origin origin;           /* of a relay: set before the entry is listed */
    };
    /* The descriptor of the expected body (0: none), or'ed with TEFFI_CALL_HAS_ASKED, or with
     * TEFFI_CALL_TARGETS_NO_GRAIN: the request goes to a process or a system target. Of a relay:
     * the node that the request came from. Relaxed: the sweep may read the next use's value. */
    _Atomic uint64_t out;
    union {
        /* valid if out has TEFFI_CALL_HAS_ASKED. Without it, a request to a process stores other
         * data in asked.key (node/pid.c) */
        teffi_asked asked;
        /* of a relay or kept cancel: set before it is listed */
        struct {
            LIST_ENTRY(teffi_call) in_bucket; /* guarded by the lock of its bucket */
            _Atomic uint32_t *share;          /* the count of its origin node in relays_of */
            uint32_t bucket;
            bool is_cancel; /* a kept cancel */
        };
    };
    /* The node that the request was sent to, or is about to be sent to; 0: none yet. Only of relays
     * and of calls with TEFFI_CALL_HAS_ASKED. seq_cst: teffi_call_sign_and_check_cancel stores it,
     * then loads word; teffi_cancel_call takes word, then loads sent_to. A store of a late
     * teffi_call_sign_and_check_cancel may hit the entry's next use; then a cancel goes to a node
     * that does not know the call. */
    _Atomic uint64_t sent_to;
};

_Static_assert(offsetof(teffi_call, asked) == 128 && sizeof(teffi_call) == 192,
               "three cache lines; a block of 64 calls is whole pages");

/* teffi_call_expect_body - set the type of the body that the call's response will have.
 * in:   desc: the type; NULL: the response has no body. asked: TEFFI_CALL_HAS_ASKED if the caller
 *       has filled in call->asked; TEFFI_CALL_TARGETS_NO_GRAIN if the request goes to a process or
 *       a system target; otherwise 0.
 * runs: on the caller's thread, before the request is sent. */
static inline void teffi_call_expect_body(teffi_call *call, const ProtobufCMessageDescriptor *desc,
                                          unsigned asked)
{
    atomic_store_explicit(&call->out, (uintptr_t)desc | asked, memory_order_relaxed);
}

/* teffi_call_get_method_and_key - the call's method and key; NULL if they were not recorded. */
static inline const teffi_asked *teffi_call_get_method_and_key(const teffi_call *call)
{
    uint64_t out = atomic_load_explicit(&call->out, memory_order_relaxed);
    return out & TEFFI_CALL_HAS_ASKED ? &call->asked : NULL;
}

/* teffi_call_targets_no_grain - does the call's request go to a process or a system target? */
static inline bool teffi_call_targets_no_grain(const teffi_call *call)
{
    return atomic_load_explicit(&call->out, memory_order_relaxed) & TEFFI_CALL_TARGETS_NO_GRAIN;
}

/* teffi_call_text_lacks_method - did the call fail with a text that the runtime wrote and that does
 * not name the method? */
static inline bool teffi_call_text_lacks_method(const teffi_call *call)
{
    return call->err && (!call->response || call->response->flags & TEFFI_MSG_UNNAMED);
}

/* The error text of a call that ended at its deadline. */
extern const char teffi_call_late_text[];

/* teffi_call_new - begin a pending call of ctx; ctx_calls.c adds it to the context's list.
 * in:   deadline_ns, monotonic, UINT64_MAX = none: the call ends then or up to 4 ms later.
 * out:  NULL: out of memory, or TEFFI_CALLS_MAX calls are in use. */
teffi_call *teffi_call_new(teffi_home *home, struct teff_ctx *ctx, uint64_t deadline_ns);

/* teffi_call_set_sent_to - record the node that the request was sent to: of the responses of other
 * nodes, only one from there ends the call; teffi_calls_end_sent_to ends it when the link there
 * breaks.
 * runs: in the net's sent event, so that it comes before that link's down event.
 * in:   generation: an entry of another generation is left unchanged. */
void teffi_call_set_sent_to(teffi_home *home, uint32_t slot, uint32_t generation, teffi_node_id to);

/* teffi_call_sign_request - set the cookie of a request, which its response must carry. For a
 * request to a grain, call teffi_call_sign_and_check_cancel instead. */
void teffi_call_sign_request(teffi_home *home, teffi_msg *request);

/* teffi_call_cookie - the cookie of the call {slot, generation}. */
uint64_t teffi_call_cookie(const teffi_home *home, uint32_t slot, uint32_t generation);

/* teffi_call_due_ns - the call's deadline; UINT64_MAX: none, or the call is not pending. */
uint64_t teffi_call_due_ns(const teffi_call *call);

/* teffi_call_is_valid_response - is this, sent by the node `from`, the valid response of a pending
 * call?
 * in:   response, borrowed; its slot, generation, sender and cookie are compared. */
bool teffi_call_is_valid_response(teffi_home *home, const teffi_msg *response, teffi_node_id from);

/* teffi_call_end_by_response - end a call with its response, which comes from this node or has
 * passed teffi_call_is_valid_response. Owns response; frees it if the call has ended already.
 * out:  the relay that the response belongs to, as teffi_call_end_if_matching's *relays; NULL: no
 * relay. */
TEFF_MUST_USE teffi_call *teffi_call_end_by_response(teffi_home *home, teffi_msg *response);

/* teffi_call_fail - end a call that is no relay with err. text is static or NULL.
 * out:  false: the call had ended already.
 * runs: on the caller's thread, as it reads the call's generation. */
bool teffi_call_fail(teffi_call *call, teff_err err, const char *text);

/* teffi_call_is_pending - is the call {slot, generation} pending? A hint: it may end meanwhile. */
bool teffi_call_is_pending(teffi_home *home, uint32_t slot, uint32_t generation);

/* Which calls to end: (word & mask) == bits, and the two conditions below hold. */
typedef struct teffi_call_match {
    uint32_t mask, bits;
    uint64_t origin_node; /* the relay's origin; 0: any */
    uint64_t late_at_ns;  /* the deadline is at or before this; UINT64_MAX: any */
} teffi_call_match;

/* teffi_call_matches - does the call match? A hint: it may end, and be reused, meanwhile. */
bool teffi_call_matches(const teffi_call *call, const teffi_call_match *match);

/* teffi_call_make_sent_to_match - a match for the pending calls whose request was sent to a
 * node. */
teffi_call_match teffi_call_make_sent_to_match(teffi_node_id to);

/* teffi_call_end_if_matching - end a call with err if it matches. text is static or NULL.
 * out:  true: this function ended it. A relay whose outcome must be sent on is prepended to
 *       *relays, with err, text and response, for teffi_node_send_outcomes_and_free_relays. relays
 *       may be NULL if err is TEFF_E_TIMEOUT: the origin has its own deadline, so a timeout is not
 *       sent on. */
bool teffi_call_end_if_matching(teffi_call *call, const teffi_call_match *match, teff_err err,
                                const char *text, teffi_call **relays);

/* teffi_call_release - free the response and return the entry to the slab. Allowed after the signal
 * of the call's end was handled (wait.h: done, arrive), or after teffi_call_abandon returned true.
 * The caller has removed the call from its context's list. Relays:
 * teffi_call_remove_and_free_relay. */
void teffi_call_release(teffi_call *call);

/* teffi_call_abandon - the caller stops waiting for the call.
 * out:  true: the caller owns the entry and must release it; false: another thread has taken the
 *       call, and its signal is on the way to the context.
 * runs: on the caller's thread. */
bool teffi_call_abandon(teffi_call *call);

/* ---- for relay.c and origin.c ---- */

/* teffi_call_alloc_entry - take an entry from the slab for its next use; it is not pending yet.
 *       out: as teffi_call_new.
 * teffi_call_take_if_pending - take the call if it is pending and has this generation: clear
 *       PENDING. From then on only this thread may end the call, and must: it abandons the call, or
 *       calls teffi_call_end_taken_call. out: the word before the call was taken; 0: not taken.
 * teffi_call_end_taken_call - end a call that was taken. A relay's err must be TEFF_E_TIMEOUT: it
 *       ends without an outcome. */
teffi_call *teffi_call_alloc_entry(teffi_home *home, uint64_t deadline_ns);
uint64_t teffi_call_take_if_pending(teffi_call *call, uint32_t generation);
void teffi_call_end_taken_call(teffi_call *call, teff_err err, const char *text);

/* teffi_call_remove_and_free_relay - remove a relay or kept cancel that has ended from the table of
 *       origins, and free it. A relay is freed after its outcome was sent on, since
 *       teffi_calls_relay_count counts it until then.
 * teffi_call_free_relay - free a relay or kept cancel that is not in the table of origins: it was
 *       not added, or is removed. */
void teffi_call_remove_and_free_relay(teffi_call *call);
void teffi_call_free_relay(teffi_call *call);

enum { TEFFI_CALL_GENERATION = 32 }; /* where the word's generation begins */

static inline uint64_t teffi_call_word(const teffi_call *call)
{
    /* seq_cst: the sweep (see deadline.h) and teffi_call_sign_and_check_cancel need it; other
     * callers need acquire */
    return atomic_load_explicit(&call->word, memory_order_seq_cst);
}

static inline uint32_t teffi_word_generation(uint64_t word)
{
    return (uint32_t)(word >> TEFFI_CALL_GENERATION);
}

/* An entry is reused for other calls, each time with a new generation. Does word, the entry's state
 * word, say that the call with this generation is pending? */
static inline bool teffi_word_is_of_pending_call(uint64_t word, uint32_t generation)
{
    return (word & TEFFI_CALL_PENDING) && teffi_word_generation(word) == generation;
}

/* out: the word of a pending call. in: bits: 0; RELAY; or RELAY | CANCEL. */
static inline uint64_t teffi_call_make_pending_word(uint32_t generation, uint32_t bits)
{
    return (uint64_t)generation << TEFFI_CALL_GENERATION | bits | TEFFI_CALL_PENDING;
}

/* teffi_call_type - the slab's description of an entry.
 * teffi_call_free_response - free what an entry still holds when the slab is freed. */
extern const teffi_slab_type teffi_call_type;
void teffi_call_free_response(void *entry);
