/* call.h - pending calls: who waits for which answer, and until when.
 * Way:     ctx -> [call] -> msg to the target ... response {slot, generation} -> [call] -> ctx
 * States:  free -new-> PENDING -answer, late, lost, cancel, fail, abandon-> taken -release-> free
 * Threads: one word holds state and generation. Whoever takes the call, by the one exchange that
 *          makes it not PENDING, alone ends it; a generation per use keeps all others away.
 * Model:   tests/model/call.pml
 * Source:  PEERS section 3, defect 2: completions carry {slot, generation} from dispatch */
#ifndef TEFFI_NODE_CALL_H
#define TEFFI_NODE_CALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <teff/grain.h>
#include "node/call_late.h"
#include "node/call_table.h"
#include "node/wait.h"
#include "process/msg.h"
#include "sched/exec.h"

typedef struct teffi_node teffi_node;

/* A call's word: the generation above 32 bits, of which the lowest says that it is pending, the
 * next that a system target was asked (nobody else can answer), and the others to whom it was sent:
 * a hash of the node, 0 = to nobody yet. Node and generation are in one word, so that who
 * forwards a message late does not mark a call that is another by now. Two nodes share a hash with
 * a chance of 1 in 10^9: then, when one is lost, calls to the other end as "may have run" too. */
#define TEFFI_CALL_PENDING 1u
#define TEFFI_CALL_SYSTEM 2u
#define TEFFI_CALL_SENT 0xfffffffcu

struct teffi_call {   /* two cache lines */
    teffi_wait wait;  /* signalled once, when the call has ended */
    teffi_node *node; /* immutable, as slot */
    uint32_t slot;
    uint32_t generation; /* the caller's */
    /* atomic. new: seq_cst, after all that an ender reads (wait); taking: acquire */
    _Atomic uint64_t word;
    /* atomic, relaxed: a sweep may look at it while the entry is used again; its exchange then
     * fails. UINT64_MAX: none */
    _Atomic uint64_t deadline_ns;
    /* the ender writes, then signals; the waiter reads after */
    union {
        const char *text;       /* with err: static, or in reply's arena; NULL */
        ProtobufCMessage *body; /* without: the answer of a call that was never pending */
        teffi_call *next_batch; /* the table's */
    };
    teffi_msg *reply; /* NULL on a local error */
    teff_err err;
    /* the caller's */
    uint32_t number;   /* of its context's calls; they go round */
    teffi_call *next;  /* of its context's list, newest first; free: the table's */
    teffi_call **back; /* what points to it in that list */
    const ProtobufCMessageDescriptor *out_desc; /* what a reply holds; NULL: nothing */
};

_Static_assert(sizeof(teffi_call) == 128, "two cache lines, and a block is whole pages");

typedef struct teffi_calls {
    teffi_call_table table;
    teffi_call_late late;
} teffi_calls;

void teffi_calls_init(teffi_calls *calls, teffi_node *node);
void teffi_calls_fini(teffi_calls *calls);

/* teffi_calls_stop - the executor was stopped: no timer is set any more. */
void teffi_calls_stop(teffi_calls *calls);

/* A deadline that has passed, in words. */
extern const char teffi_call_late_text[];

/* teffi_call_new - a pending call of ctx.
 * in:   deadline_ns, mono, UINT64_MAX = none: it ends then or up to 4 ms later, never before.
 * out:  NULL when memory or the table (16.7 M calls) is out. */
teffi_call *teffi_call_new(teffi_node *node, struct teff_ctx *ctx, uint64_t deadline_ns);

/* teffi_call_sent_to - remember the node, before the message is given to the link: when that breaks
 * the call ends. By whoever has the message: a call that is another by now is left alone. */
void teffi_call_sent_to(teffi_node *node, uint32_t slot, uint32_t generation, teffi_node_id to);

/* teffi_call_asks - the same, for a call to a system target of that node. */
void teffi_call_asks(teffi_call *call, teffi_node_id to);

/* teffi_call_pending - has nobody ended it? For the caller, while it has not released it. */
bool teffi_call_pending(const teffi_call *call);

/* teffi_calls_sent_to - do pending calls wait for an answer by way of that node? */
bool teffi_calls_sent_to(teffi_node *node, teffi_node_id to);

/* teffi_call_answer - a response has come. Owns response; a late one is dropped. */
void teffi_call_answer(teffi_node *node, teffi_msg *response);

/* teffi_call_fail - end it locally. text is static or NULL. out: false: it had ended already. */
bool teffi_call_fail(teffi_call *call, teff_err err, const char *text);

/* teffi_call_lost - the link to a node broke: its calls end as TEFF_E_UNREACHABLE. After a clean
 * goodbye only those to its system targets do: calls of grains were answered or handed on. */
void teffi_call_lost(teffi_node *node, teffi_node_id peer, bool clean);

/* teffi_calls_cancel - every pending call ends as TEFF_E_CANCELLED: the node closes. */
void teffi_calls_cancel(teffi_node *node);

/* teffi_call_release - back to the pool, with its reply. Only when it has ended and was awaited, or
 * teffi_call_abandon said so. */
void teffi_call_release(teffi_call *call);

/* teffi_call_abandon - nobody will wait any more.
 * out:  true: nobody will end it either, release it; false: its end is on the way to
 *       ctx's group. */
bool teffi_call_abandon(teffi_call *call);

/* teffi_call_last - the generation of an entry's last use, by who has the entry. */
uint32_t teffi_call_last(const teffi_call *call);

/* teffi_calls_pending - calls in the table now, counted one by one: a figure. */
uint64_t teffi_calls_pending(teffi_calls *calls);

/* teffi_call_due_ns - its deadline, UINT64_MAX: none, or not pending.
 * teffi_call_end_late - end it if it is due now. out: it was. Both: for the sweep of call_late. */
uint64_t teffi_call_due_ns(const teffi_call *call);
bool teffi_call_end_late(teffi_call *call, uint64_t now_ns);

#endif
