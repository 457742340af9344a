/* msg.h - one message: a request, a one-way or a response, with the memory of its body.
 * Way:     grains/reference -> [msg] -> a group's queue, or message/frame -> link -> another silo
 * Threads: one owner at a time; push and send pass on the message with everything in it. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <teff/error.h>
#include "memory/arena.h"
#include "base/budget.h"
#include "base/queue.h"
#include "base/zero.h"
#include "group/group.h"

/* One start of a silo or client. Zero = none. silo is a hash of the advertised address, or for a
 * client a random number with the top bit set. A silo's incarnation rises with every start; a
 * client's is random. */
typedef struct teffi_node_id {
    uint32_t silo;
    uint32_t incarnation;
} teffi_node_id;

#define TEFFI_CLIENT_BIT 0x80000000u

static inline bool teffi_node_equals(teffi_node_id a, teffi_node_id b)
{
    return a.silo == b.silo && a.incarnation == b.incarnation;
}

static inline bool teffi_node_is_none(teffi_node_id a)
{
    return a.silo == 0 && a.incarnation == 0;
}

/* Packs the id into one word, which fits an atomic. out: 0 if a is no node. */
static inline uint64_t teffi_node_to_word(teffi_node_id a)
{
    return (uint64_t)a.silo << 32 | a.incarnation;
}

static inline teffi_node_id teffi_node_from_word(uint64_t word)
{
    return (teffi_node_id){(uint32_t)(word >> 32), (uint32_t)word};
}

/* A process, system target or activation of a node. slot 0 = the activation of the message's grain,
 * wherever it is. */
typedef struct teffi_pid {
    teffi_node_id node;
    uint32_t slot;
    uint32_t generation;
} teffi_pid;

static inline bool teffi_pid_equals(teffi_pid a, teffi_pid b)
{
    return teffi_node_equals(a.node, b.node) && a.slot == b.slot && a.generation == b.generation;
}

/* Is a lower than b? This is a total order, the same on all silos. */
static inline bool teffi_pid_is_lower(teffi_pid a, teffi_pid b)
{
    if (!teffi_node_equals(a.node, b.node))
        return teffi_node_to_word(a.node) < teffi_node_to_word(b.node);
    return a.slot != b.slot ? a.slot < b.slot : a.generation < b.generation;
}

/* Slots of processes have the top bit set, so they differ from slots of system targets and
 * activations. */
#define TEFFI_PROCESS_BIT 0x80000000u

/* Slots 1 to TEFFI_SLOT_SYSTEM_END - 1 are system targets, the same on every silo; generation 0. */
enum {
    TEFFI_SLOT_GRAIN = 0,
    TEFFI_SLOT_DIRECTORY = 1,
    TEFFI_SLOT_MEMBERSHIP = 2,
    TEFFI_SLOT_STORE = 3,
    TEFFI_SLOT_CANCEL = 4,   /* one-ways, from clients too: a call was cancelled (call/relay.h) */
    TEFFI_SLOT_DEADLOCK = 5, /* one-ways of silos: probes (grains/request/deadlock.h) */
    TEFFI_SLOT_OBSERVER = 6, /* of observers, also at clients and from clients (message/notice.h) */
    TEFFI_SLOT_REMINDER = 7, /* requests of silos: a reminder was changed (grains/reminder) */
    TEFFI_SLOT_SYSTEM_END = 16
};

enum { TEFFI_MSG_REQUEST = 1, TEFFI_MSG_ONEWAY = 2, TEFFI_MSG_RESPONSE = 3 }; /* item.kind */

/* flags */
enum {
    /* placement chose the receiving silo: it activates the grain if there is no activation */
    TEFFI_MSG_PLACED = 1,
    /* between silos, to or from TEFFI_SLOT_STORE, or a response with the participants of a
     * transaction: its frame may be longer (message/frame.h) */
    TEFFI_MSG_ROW = 2,
    /* response: the text is from the runtime and does not name the call; the caller's side adds the
     * name (teffi_call_text_lacks_method) */
    TEFFI_MSG_UNNAMED = 4,
};

/* The call that a request belongs to, at the node that sent the request; zero: none. */
typedef struct teffi_origin {
    uint32_t slot, generation;
    uint64_t cookie; /* set when the request leaves the process: call/call.h */
} teffi_origin;

enum { TEFFI_HOPS_MAX = 8, TEFFI_MSG_INLINE = 512, TEFFI_ONCE_BYTES = 16 };

typedef struct teffi_msg {
    teffi_item item;  /* kind: one of TEFFI_MSG_* */
    teffi_qnode link; /* in a queue of its owner */
    uint16_t flags;
    uint8_t hops; /* forwards since it waited at a VALID activation; over TEFFI_HOPS_MAX it fails */
    /* what teffi_msg_copy_borrowed() copies is the caller's memory until send returns */
    bool borrows;
    bool awaited;      /* request: its sender only waits for the response */
    uint8_t tries;     /* failed attempts to deliver it to the grain's supposed place */
    uint16_t err;      /* response: a teff_err */
    teffi_node_id src; /* the node that sent it: the first one, or a relay's (call/relay.h) */
    teffi_pid to;      /* request, one-way: the target; response: to.node is the caller */
    teffi_origin call; /* the sender's pending call or relay; response: to.node's; one-way: none */
    uint32_t type_id;  /* of the grain; 0 for system targets */
    uint32_t method_id;
    uint64_t deadline_ns; /* mono of this machine, 0 = none; relative milliseconds on the wire */
    uint64_t hash;        /* of type and key (grains/activation/ident.h); 0: not computed */
    const uint8_t *key;   /* canonical key bytes, in arena, borrowed, or inside raw's frame */
    uint32_t key_len;
    uint32_t packed_len; /* of body, from its check; 0: not known */
    /* The body is one of: none; packed bytes (raw); a message (body), packed before the wire. */
    const uint8_t *raw;
    size_t raw_len;
    ProtobufCMessage *body;
    union {
        const char *text;    /* response with err: its text, in arena or static; may be NULL */
        const uint8_t *once; /* request: idempotency key of TEFFI_ONCE_BYTES, in arena or inside
                              * raw's frame; NULL: none */
    };
    /* The message's part in a transaction: grains/activation/lock.h. In arena, borrowed, or inside
     * raw's frame; NULL: none. Never from clients. */
    const uint8_t *transaction;
    uint32_t transaction_len;
    teffi_budget *budget; /* in which it is counted until it is freed; NULL: none */
    uint32_t charged;     /* bytes counted; 0: not counted yet */
    bool system; /* the cluster depends on it: it is not refused because of users' messages */
    teff_arena arena;
} teffi_msg;

/* Limit of a body's memory: one packed megabyte can unpack to sixty. */
#define TEFFI_BODY_BUDGET_BYTES ((size_t)64 * 1024 * 1024)

/* teffi_msg_init - make a zeroed message in the caller's memory; end it with
 * teffi_arena_free_memory(), not with teffi_msg_free(). in: block: TEFFI_MSG_INLINE bytes for msg's
 * arena, borrowed. */
static inline void teffi_msg_init(teffi_msg *msg, uint32_t kind, void *block)
{
    teffi_zero(msg, sizeof *msg);
    msg->item.kind = kind;
    teffi_arena_init(&msg->arena, block, TEFFI_MSG_INLINE, TEFFI_BODY_BUDGET_BYTES);
}

/* teffi_msg_new - make a zeroed message, whose arena begins in the same block. out: NULL: no
 * memory. */
teffi_msg *teffi_msg_new(uint32_t kind);

/* teffi_msg_free - free the message and its arena, and end its charge. in: may be NULL. */
void teffi_msg_free(teffi_msg *msg);

/* teffi_msg_is_for_grain - is msg a request or one-way to a grain? */
static inline bool teffi_msg_is_for_grain(const teffi_msg *msg)
{
    return msg->item.kind != TEFFI_MSG_RESPONSE && msg->to.slot == TEFFI_SLOT_GRAIN;
}

/* teffi_msg_ends_transaction - is msg the one-way that ends a transaction at a grain? Its step is
 * COMMIT, ABORT, RELOAD or RESOLVE (grains/activation/lock.h). No method has its method_id, 0; a
 * request with it is a tick (grains/reminder/remind.c). */
static inline bool teffi_msg_ends_transaction(const teffi_msg *msg)
{
    return !msg->method_id && msg->item.kind == TEFFI_MSG_ONEWAY && msg->transaction;
}

/* teffi_msg_charge - count the message's memory in budget until it is freed, including what it is
 * unpacked to later. Only the first call counts. in: budget, may be NULL. */
void teffi_msg_charge(teffi_msg *msg, teffi_budget *budget);

/* teffi_msg_copy_borrowed - if msg borrows, pack its body and copy key and a response's text and
 * transaction into its own arena. in: a request's once and transaction, a one-way's transaction: in
 * its arena.
 * out:  false: no memory, or the body is over its budget; msg is unchanged. */
bool teffi_msg_copy_borrowed(teffi_msg *msg);

/* teffi_msg_packed_len - bytes of the body on the wire. */
size_t teffi_msg_packed_len(const teffi_msg *msg);

/* teffi_msg_pack - write the body to out. in: len, from teffi_msg_packed_len(). */
void teffi_msg_pack(const teffi_msg *msg, size_t len, uint8_t *out);

/* A zero-copy segment: a part of the packed body that lies in memory as the same bytes. */
typedef struct teffi_segment {
    const uint8_t *bytes;
    size_t len;
    unsigned field; /* index in the body's descriptor */
} teffi_segment;

/* teffi_msg_find_segment - find a zero-copy segment of at least min bytes.
 * out:  false: there is none. */
bool teffi_msg_find_segment(const teffi_msg *msg, size_t min, teffi_segment *segment);

/* teffi_msg_pack_without_segment - write the body without the segment's bytes to out.
 * in:   len, from teffi_msg_packed_len(). out: how many bytes precede the segment. */
size_t teffi_msg_pack_without_segment(const teffi_msg *msg, size_t len,
                                      const teffi_segment *segment, uint8_t *out);

/* teffi_msg_unpack - decode raw to body, of type desc, in the message's arena; does nothing if body
 * is set. Updates the charge.
 * runs: on a thread's or worker's own stack, never a fiber's.
 * errs: TEFF_E_MALFORMED, TEFF_E_TOO_LARGE (depth, fields), TEFF_E_NOMEM. */
TEFF_MUST_USE teff_err teffi_msg_unpack(teffi_msg *msg, const ProtobufCMessageDescriptor *desc);

/* teffi_err_is_in_range - is err in TEFF_OK .. TEFF_E_MAX, which fits the 16 bits on the wire? */
static inline bool teffi_err_is_in_range(teff_err err)
{
    return (unsigned)err <= TEFF_E_MAX;
}
