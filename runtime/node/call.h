/* call.h - pending calls: who waits for which answer, and until when.
 * Way:     ctx -> [call] -> msg to the target ... response {slot, generation} -> [call] -> ctx
 * Threads: the table is locked per shard; whoever takes a call out of it (answer, timeout, lost
 *          link, abandon) alone ends it. Entries are never freed while the node lives, so that a
 *          late timer finds memory; a generation per use keeps late answers away.
 * Source:  PEERS section 3, defect 2: completions carry {slot, generation} from dispatch */
#ifndef TEFFI_NODE_CALL_H
#define TEFFI_NODE_CALL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <teff/grain.h>
#include "node/wait.h"
#include "process/msg.h"
#include "sched/exec.h"

typedef struct teffi_node teffi_node;
typedef struct teffi_call teffi_call;

enum { TEFFI_CALL_SHARDS = 16, TEFFI_CALL_CHUNK = 256, TEFFI_CALL_CHUNKS = 4096 };

struct teffi_call {
    teffi_wait wait; /* signalled once, when the call has ended */
    teffi_node *node;
    uint32_t slot, generation;
    /* guarded by the shard's lock */
    bool pending; /* in the table: nobody has ended it */
    bool sent;    /* sent_to is set */
    bool system;  /* to a system target: nobody else can answer it */
    teffi_node_id sent_to;
    uint64_t deadline_ns;
    teffi_call *next_free;
    /* the ender writes, then signals; the waiter reads after */
    teff_err err;
    const char *text;       /* static, or in reply's arena; NULL */
    teffi_msg *reply;       /* NULL on a local error */
    ProtobufCMessage *body; /* the answer of a call that was never pending, with reply NULL */
    /* the caller's */
    teffi_call *next;                           /* of its context */
    const ProtobufCMessageDescriptor *out_desc; /* what a reply holds; NULL: nothing */
    teffi_timer timer;
};

typedef struct teffi_call_shard {
    pthread_mutex_t lock;
    teffi_call *free;
    teffi_call *chunks[TEFFI_CALL_CHUNKS];
    uint32_t n_chunks;
    uint64_t n_pending;
} teffi_call_shard;

typedef struct teffi_calls {
    teffi_call_shard shards[TEFFI_CALL_SHARDS];
    _Atomic uint32_t next_shard;
} teffi_calls;

void teffi_calls_init(teffi_calls *calls);
void teffi_calls_fini(teffi_calls *calls);

/* A deadline that has passed, in words. */
extern const char teffi_call_late_text[];

/* teffi_call_new - a pending call of ctx with a deadline (mono ns), timer set.
 * out:  NULL when memory or the table (16 M calls) is out. */
teffi_call *teffi_call_new(teffi_node *node, struct teff_ctx *ctx, uint64_t deadline_ns);

/* teffi_call_sent_to - remember the node: when the link to it breaks the call ends. */
void teffi_call_sent_to(teffi_node *node, uint32_t slot, uint32_t generation, teffi_node_id to);

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

/* teffi_calls_pending - calls in the table now. */
uint64_t teffi_calls_pending(teffi_calls *calls);

#endif
