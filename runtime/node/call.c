/* call.c - the table of pending calls.
 * Way:     ctx -> [call] -> msg ... response {slot, generation} -> [call] -> ctx
 * Threads: a lock per shard; taking a call out of the table gives the right to end it. */
#include "node/call.h"

#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "node/ctx.h"
#include "node/node.h"

const char teffi_call_late_text[] = "no answer before the deadline; the call may have run";

void teffi_calls_init(teffi_calls *calls)
{
    memset(calls, 0, sizeof *calls);
    for (int i = 0; i < TEFFI_CALL_SHARDS; i++)
        pthread_mutex_init(&calls->shards[i].lock, NULL);
}

void teffi_calls_fini(teffi_calls *calls)
{
    for (int i = 0; i < TEFFI_CALL_SHARDS; i++) {
        teffi_call_shard *shard = &calls->shards[i];
        for (uint32_t c = 0; c < shard->n_chunks; c++) {
            for (uint32_t n = 0; n < TEFFI_CALL_CHUNK; n++) /* of turns that were dropped */
                teffi_msg_free(shard->chunks[c][n].reply);
            free(shard->chunks[c]);
        }
        pthread_mutex_destroy(&shard->lock);
    }
}

static teffi_call_shard *shard_of(teffi_node *node, uint32_t slot)
{
    return &node->calls.shards[slot % TEFFI_CALL_SHARDS];
}

/* Under the shard's lock; NULL when no such entry was ever made. */
static teffi_call *entry(teffi_call_shard *shard, uint32_t slot)
{
    uint32_t index = slot / TEFFI_CALL_SHARDS;
    uint32_t chunk = index / TEFFI_CALL_CHUNK;
    return chunk < shard->n_chunks ? &shard->chunks[chunk][index % TEFFI_CALL_CHUNK] : NULL;
}

static bool add_chunk(teffi_node *node, teffi_call_shard *shard)
{
    if (shard->n_chunks == TEFFI_CALL_CHUNKS)
        return false;
    teffi_call *chunk = calloc(TEFFI_CALL_CHUNK, sizeof *chunk);
    if (!chunk)
        return false;
    uint32_t shard_no = (uint32_t)(shard - node->calls.shards);
    for (uint32_t i = TEFFI_CALL_CHUNK; i-- > 0;) {
        chunk[i].node = node;
        chunk[i].slot = (shard->n_chunks * TEFFI_CALL_CHUNK + i) * TEFFI_CALL_SHARDS + shard_no;
        chunk[i].next_free = shard->free;
        shard->free = &chunk[i];
    }
    shard->chunks[shard->n_chunks++] = chunk;
    return true;
}

/* Under the shard's lock: from now on only the taker ends the call. */
static void take(teffi_call_shard *shard, teffi_call *call)
{
    call->pending = false;
    shard->n_pending--;
}

/* By the taker, without the lock. */
static void end(teffi_call *call, teff_err err, const char *text, teffi_msg *reply)
{
    call->err = err;
    call->text = text;
    call->reply = reply;
    teffi_wait_signal(&call->wait);
}

static void cancel_timer(teffi_call *call)
{
    call->node->exec->ops->timer_cancel(call->node->exec, &call->timer);
}

/* The entry may have been ended, or used again, since the timer was due: then it is not for us. */
static void timed_out(teffi_timer *timer)
{
    teffi_call *call = teffi_container(timer, teffi_call, timer);
    teffi_call_shard *shard = shard_of(call->node, call->slot);
    pthread_mutex_lock(&shard->lock);
    bool mine = call->pending && teffi_now(call->node->platform) >= call->deadline_ns;
    if (mine)
        take(shard, call);
    pthread_mutex_unlock(&shard->lock);
    if (mine)
        end(call, TEFF_E_TIMEOUT, teffi_call_late_text, NULL);
}

/* A reply's body is unpacked on the stack of the worker or thread that hands it over. */
static void arrived(teffi_wait *wait)
{
    teffi_call *call = teffi_container(wait, teffi_call, wait);
    if (wait->orphan) {
        teffi_call_release(call);
        return;
    }
    if (call->err || !call->out_desc)
        return;
    call->err = teffi_msg_unpack(call->reply, call->out_desc);
    if (call->err)
        call->text = "the answer does not decode";
}

teffi_call *teffi_call_new(teffi_node *node, teff_ctx *ctx, uint64_t deadline_ns)
{
    /* relaxed: only spreads calls over shards */
    uint32_t n = atomic_fetch_add_explicit(&node->calls.next_shard, 1, memory_order_relaxed);
    teffi_call_shard *shard = &node->calls.shards[n % TEFFI_CALL_SHARDS];
    pthread_mutex_lock(&shard->lock);
    if (!shard->free && !add_chunk(node, shard)) {
        pthread_mutex_unlock(&shard->lock);
        return NULL;
    }
    teffi_call *call = shard->free;
    shard->free = call->next_free;
    teffi_wait_init(&call->wait, ctx, arrived);
    if (++call->generation == 0)
        call->generation = 1;
    call->pending = true;
    call->sent = false;
    call->system = false;
    call->deadline_ns = deadline_ns;
    call->err = TEFF_OK;
    call->text = NULL;
    call->reply = NULL;
    call->out_desc = NULL;
    shard->n_pending++;
    /* Under the lock: who takes the call out, a closing node too, must find its timer set. */
    call->timer.fire = timed_out;
    node->exec->ops->timer_set(node->exec, &call->timer, deadline_ns);
    pthread_mutex_unlock(&shard->lock);
    call->next = ctx->calls;
    ctx->calls = call;
    return call;
}

/* Takes the entry of this very use, or NULL. */
static teffi_call *take_slot(teffi_node *node, uint32_t slot, uint32_t generation)
{
    teffi_call_shard *shard = shard_of(node, slot);
    pthread_mutex_lock(&shard->lock);
    teffi_call *call = entry(shard, slot);
    if (call && (!call->pending || call->generation != generation))
        call = NULL;
    if (call)
        take(shard, call);
    pthread_mutex_unlock(&shard->lock);
    return call;
}

void teffi_call_sent_to(teffi_node *node, uint32_t slot, uint32_t generation, teffi_node_id to)
{
    teffi_call_shard *shard = shard_of(node, slot);
    pthread_mutex_lock(&shard->lock);
    teffi_call *call = entry(shard, slot);
    if (call && call->pending && call->generation == generation) {
        call->sent_to = to;
        call->sent = true;
    }
    pthread_mutex_unlock(&shard->lock);
}

void teffi_call_answer(teffi_node *node, teffi_msg *response)
{
    teffi_call *call = take_slot(node, response->call_slot, response->call_generation);
    if (!call) {
        teffi_msg_free(response);
        return;
    }
    cancel_timer(call);
    end(call, (teff_err)response->err, response->text, response);
}

bool teffi_call_fail(teffi_call *call, teff_err err, const char *text)
{
    if (!take_slot(call->node, call->slot, call->generation))
        return false;
    cancel_timer(call);
    end(call, err, text, NULL);
    return true;
}

typedef struct which {
    const teffi_node_id *peer; /* sent to it; NULL: all */
    bool system;               /* only those to system targets */
} which;

static bool matches(const teffi_call *call, which w)
{
    if (!call->pending || (w.system && !call->system))
        return false;
    return !w.peer || (call->sent && teffi_node_is(call->sent_to, *w.peer));
}

/* Under the shard's lock: one that matches, NULL when none is left. */
static teffi_call *find_any(teffi_call_shard *shard, which w)
{
    for (uint32_t i = 0; shard->n_pending && i < shard->n_chunks * TEFFI_CALL_CHUNK; i++) {
        teffi_call *call = &shard->chunks[i / TEFFI_CALL_CHUNK][i % TEFFI_CALL_CHUNK];
        if (matches(call, w))
            return call;
    }
    return NULL;
}

bool teffi_calls_sent_to(teffi_node *node, teffi_node_id to)
{
    bool found = false;
    for (int i = 0; i < TEFFI_CALL_SHARDS && !found; i++) {
        teffi_call_shard *shard = &node->calls.shards[i];
        pthread_mutex_lock(&shard->lock);
        found = find_any(shard, (which){&to, false}) != NULL;
        pthread_mutex_unlock(&shard->lock);
    }
    return found;
}

static void end_all(teffi_node *node, which w, teff_err err, const char *text)
{
    for (int i = 0; i < TEFFI_CALL_SHARDS; i++) {
        teffi_call_shard *shard = &node->calls.shards[i];
        teffi_call *call;
        do {
            pthread_mutex_lock(&shard->lock);
            call = find_any(shard, w);
            if (call)
                take(shard, call);
            pthread_mutex_unlock(&shard->lock);
            if (call) {
                cancel_timer(call);
                end(call, err, text, NULL);
            }
        } while (call);
    }
}

void teffi_call_lost(teffi_node *node, teffi_node_id peer, bool clean)
{
    end_all(node, (which){&peer, clean}, TEFF_E_UNREACHABLE,
            "the link broke; the call may have run");
}

void teffi_calls_cancel(teffi_node *node)
{
    end_all(node, (which){0}, TEFF_E_CANCELLED,
            "the silo or client was closed; the call may have run");
}

void teffi_call_release(teffi_call *call)
{
    teffi_call_shard *shard = shard_of(call->node, call->slot);
    teffi_msg_free(call->reply);
    call->reply = NULL;
    pthread_mutex_lock(&shard->lock);
    teffi_bug_if(call->pending);
    call->next_free = shard->free;
    shard->free = call;
    pthread_mutex_unlock(&shard->lock);
}

bool teffi_call_abandon(teffi_call *call)
{
    if (call->wait.done)
        return true;
    if (!take_slot(call->node, call->slot, call->generation))
        return false;
    cancel_timer(call);
    return true;
}

uint64_t teffi_calls_pending(teffi_calls *calls)
{
    uint64_t n = 0;
    for (int i = 0; i < TEFFI_CALL_SHARDS; i++) {
        pthread_mutex_lock(&calls->shards[i].lock);
        n += calls->shards[i].n_pending;
        pthread_mutex_unlock(&calls->shards[i].lock);
    }
    return n;
}
