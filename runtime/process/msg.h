/* msg.h - one message: a request, a one-way or a response, with the memory that its body lives in.
 * Way:     grains/reference -> [msg] -> a group's queue, or wire/frame -> the link -> another silo
 * Threads: owned by one holder at a time; handing it on (push, send) hands on everything in it. */
#ifndef TEFFI_PROCESS_MSG_H
#define TEFFI_PROCESS_MSG_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <teff/error.h>
#include "base/arena.h"
#include "base/queue.h"
#include "base/zero.h"
#include "sched/group.h"

/* A silo or client, one start of it. Zero = none. silo is hashed from the advertised address
 * (clients draw theirs at random with the top bit set); incarnation rises with every start. */
typedef struct teffi_node_id {
    uint32_t silo;
    uint32_t incarnation;
} teffi_node_id;

#define TEFFI_CLIENT_BIT 0x80000000u

static inline bool teffi_node_is(teffi_node_id a, teffi_node_id b)
{
    return a.silo == b.silo && a.incarnation == b.incarnation;
}

static inline bool teffi_node_none(teffi_node_id a)
{
    return a.silo == 0 && a.incarnation == 0;
}

/* In one word, as atomics take it; none is 0. */
static inline uint64_t teffi_node_word(teffi_node_id a)
{
    return (uint64_t)a.silo << 32 | a.incarnation;
}

static inline teffi_node_id teffi_node_of_word(uint64_t word)
{
    return (teffi_node_id){(uint32_t)(word >> 32), (uint32_t)word};
}

/* A process anywhere in the cluster. slot 0 = "whoever holds the grain". */
typedef struct teffi_pid {
    teffi_node_id node;
    uint32_t slot;
    uint32_t generation;
} teffi_pid;

/* Slots of processes have the top bit set, so that they are never a system target's or an
 * activation's. */
#define TEFFI_PROCESS_BIT 0x80000000u

/* Slots below this are system targets, the same on every silo; generation 0. */
enum {
    TEFFI_SLOT_GRAIN = 0,
    TEFFI_SLOT_DIRECTORY = 1,
    TEFFI_SLOT_MEMBERSHIP = 2,
    TEFFI_SLOT_STORE = 3,
    TEFFI_SLOT_SYSTEM_END = 16
};

enum { TEFFI_MSG_REQUEST = 1, TEFFI_MSG_ONEWAY = 2, TEFFI_MSG_RESPONSE = 3 }; /* item.kind */

/* flags */
enum {
    TEFFI_MSG_PLACED =
        1, /* placement chose the receiving silo: activate the grain if it is nowhere */
};

enum { TEFFI_HOPS_MAX = 8, TEFFI_MSG_INLINE = 512 };

typedef struct teffi_msg {
    teffi_item item;  /* kind: one of TEFFI_MSG_* */
    teffi_qnode link; /* a holder's plain list */
    uint16_t flags;
    uint8_t hops;      /* forwards so far; over TEFFI_HOPS_MAX it is answered UNAVAILABLE */
    bool borrows;      /* body and key lie elsewhere, until send returns */
    bool awaited;      /* request: its sender does nothing but wait for the answer */
    uint16_t err;      /* response: a teff_err */
    teffi_node_id src; /* whose call it is; response: who answers */
    teffi_node_id via; /* the gateway of a client's call, else none */
    teffi_pid to;      /* request, one-way: the target; response: to.node is the caller */
    uint32_t call_slot, call_generation; /* the caller's pending call; 0,0 for one-way */
    uint32_t type_id;                    /* of the grain; 0 for system targets */
    uint32_t method_id;
    uint64_t deadline_ns; /* mono of this machine, 0 = none; relative milliseconds on the wire */
    uint64_t hash;        /* of type and key, as grains/ident.h has it; 0: not known */
    const uint8_t *key;   /* canonical key bytes, in arena or borrowed from inside raw */
    uint32_t key_len;
    /* The body is one of: none; packed bytes in arena; a message in arena (then pack before the
     * wire). */
    const uint8_t *raw;
    size_t raw_len;
    ProtobufCMessage *body;
    const char *text; /* response with err: its text, in arena; may be NULL */
    teff_arena arena;
} teffi_msg;

/* What a body may take in memory: a packed megabyte can become sixty (RELIABILITY section 2). */
#define TEFFI_BODY_BUDGET_BYTES ((size_t)64 * 1024 * 1024)

/* teffi_msg_init - zeroed, of a kind, in the caller's memory, for teffi_arena_drop and not for
 * teffi_msg_free. in: block, for its arena, of TEFFI_MSG_INLINE bytes, borrowed. */
static inline void teffi_msg_init(teffi_msg *msg, uint32_t kind, void *block)
{
    teffi_zero(msg, sizeof *msg);
    msg->item.kind = kind;
    teffi_arena_init(&msg->arena, block, TEFFI_MSG_INLINE, TEFFI_BODY_BUDGET_BYTES);
}

/* teffi_msg_new - zeroed, of a kind, with an arena that begins inside the same block.
 * out:  NULL when memory is out. */
teffi_msg *teffi_msg_new(uint32_t kind);

/* teffi_msg_free - with all it holds. in: may be NULL. */
void teffi_msg_free(teffi_msg *msg);

/* teffi_msg_own - packs a body that it borrows, and copies the key, into its own arena.
 * out:  false: memory is out, or the body is over its budget; nothing was done. */
bool teffi_msg_own(teffi_msg *msg);

/* teffi_msg_packed_len - bytes of the body on the wire. */
size_t teffi_msg_packed_len(const teffi_msg *msg);

/* teffi_msg_pack - write the body to out. in: len, what teffi_msg_packed_len said. */
void teffi_msg_pack(const teffi_msg *msg, size_t len, uint8_t *out);

/* A large part of a packed body that is the same bytes in memory. */
typedef struct teffi_hole {
    const uint8_t *bytes;
    size_t len;
    unsigned field; /* of the body's descriptor */
} teffi_hole;

/* teffi_msg_hole - is there one of at least min bytes? out: false: no. */
bool teffi_msg_hole(const teffi_msg *msg, size_t min, teffi_hole *hole);

/* teffi_msg_pack_around - write the body without the hole's bytes to out, of len less those.
 * in:   len, what teffi_msg_packed_len said.
 * out:  how many bytes come before the hole. */
size_t teffi_msg_pack_around(const teffi_msg *msg, size_t len, const teffi_hole *hole,
                             uint8_t *out);

/* teffi_msg_unpack - make body from raw, of type desc, in the message's arena; nothing to do when
 * body is there. Pre-scans (wire/codec.h) first.
 * runs: on a thread's or worker's own stack, never a fiber's.
 * errs: TEFF_E_MALFORMED, TEFF_E_TOO_LARGE (depth, fields), TEFF_E_NOMEM. */
TEFF_MUST_USE teff_err teffi_msg_unpack(teffi_msg *msg, const ProtobufCMessageDescriptor *desc);

#endif
