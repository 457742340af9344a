/* call.c - pending calls: made, taken by one, ended by whoever took them, given back.
 * Way:     ctx -> [call] -> msg ... response {slot, generation} -> [call] -> ctx
 * Threads: taking a call, by one exchange of its word, gives the right to end it. */
#include "node/call.h"

#include "base/bug.h"
#include "base/hash.h"
#include "node/ctx.h"
#include "node/node.h"

enum { GENERATION_SHIFT = 32 };

const char teffi_call_late_text[] = "no answer before the deadline; the call may have run";

void teffi_calls_init(teffi_calls *calls, teffi_node *node)
{
    teffi_call_table_init(&calls->table, node);
    teffi_call_late_init(&calls->late, &calls->table.space);
}

void teffi_calls_fini(teffi_calls *calls)
{
    teffi_call_late_fini(&calls->late);
    teffi_call_table_fini(&calls->table);
}

void teffi_calls_stop(teffi_calls *calls)
{
    teffi_call_trim_stop(&calls->table);
}

/* ---- the word ---- */

static uint32_t generation_of(uint64_t word)
{
    return (uint32_t)(word >> GENERATION_SHIFT);
}

static bool is_pending(uint64_t word)
{
    return word & TEFFI_CALL_PENDING;
}

static bool is_use(uint64_t word, uint32_t generation)
{
    return is_pending(word) && generation_of(word) == generation;
}

/* Who it was sent to, as bits of a word, never 0. */
static uint32_t sent_bits(teffi_node_id to)
{
    uint64_t mixed = teffi_mix64((uint64_t)to.silo << 32 | to.incarnation);
    uint32_t bits = (uint32_t)mixed & TEFFI_CALL_SENT;
    return bits ? bits : TEFFI_CALL_SENT;
}

static uint64_t look(const teffi_call *call)
{
    /* seq_cst: a sweep, see call_late.h; the others need acquire, as they read the call after */
    return atomic_load_explicit(&call->word, memory_order_seq_cst);
}

/* From now on only the taker ends the call.
 * in:   *word, as it was seen, pending. out: false: *word is another, maybe pending still. */
static bool take(teffi_call *call, uint64_t *word)
{
    uint64_t taken = *word >> GENERATION_SHIFT << GENERATION_SHIFT;
    /* acquire: pairs with new: the ender reads what that wrote */
    return atomic_compare_exchange_weak_explicit(&call->word, word, taken, memory_order_acquire,
                                                 memory_order_acquire);
}

static bool take_use(teffi_call *call, uint32_t generation)
{
    uint64_t word = look(call);
    while (is_use(word, generation))
        if (take(call, &word))
            return true;
    return false;
}

/* ---- ends ---- */

/* By the taker. */
static void end(teffi_call *call, teff_err err, const char *text, teffi_msg *reply)
{
    call->err = err;
    call->text = text;
    call->reply = reply;
    teffi_wait_signal(&call->wait);
}

uint64_t teffi_call_due_ns(const teffi_call *call)
{
    if (!is_pending(look(call)))
        return UINT64_MAX;
    return atomic_load_explicit(&call->deadline_ns, memory_order_relaxed);
}

/* A deadline that belongs to the next use already is no harm: this use is over then, and the
 * exchange fails. */
bool teffi_call_end_late(teffi_call *call, uint64_t now_ns)
{
    uint64_t word = look(call);
    while (is_pending(word) &&
           atomic_load_explicit(&call->deadline_ns, memory_order_relaxed) <= now_ns) {
        if (take(call, &word)) {
            end(call, TEFF_E_TIMEOUT, teffi_call_late_text, NULL);
            return true;
        }
    }
    return false;
}

void teffi_call_answer(teffi_node *node, teffi_msg *response)
{
    teffi_call *call = teffi_call_at(&node->calls.table.space, response->call_slot);
    if (call && take_use(call, response->call_generation))
        end(call, (teff_err)response->err, response->text, response);
    else
        teffi_msg_free(response);
}

bool teffi_call_fail(teffi_call *call, teff_err err, const char *text)
{
    if (!take_use(call, call->generation))
        return false;
    end(call, err, text, NULL);
    return true;
}

/* ---- all that were sent somewhere ---- */

typedef struct which {
    uint32_t mask, bits; /* of the word */
} which;

static which sent(teffi_node_id to)
{
    return (which){TEFFI_CALL_PENDING | TEFFI_CALL_SENT, TEFFI_CALL_PENDING | sent_bits(to)};
}

static const which any = {TEFFI_CALL_PENDING, TEFFI_CALL_PENDING};

static bool matches(uint64_t word, which w)
{
    return ((uint32_t)word & w.mask) == w.bits;
}

/* visit - of each call that matches, until it has said true max times. out: how often it did. */
static uint64_t for_each(teffi_node *node, which w, bool (*visit)(teffi_call *call, which w),
                         uint64_t max)
{
    teffi_call_space *space = &node->calls.table.space;
    uint64_t n = 0;
    uint32_t blocks = teffi_call_blocks(space);
    for (uint32_t b = 0; (b = teffi_call_held(space, b)) < blocks && n < max; b++) {
        teffi_call *calls = teffi_call_block_at(space, b).calls;
        for (int i = 0; i < TEFFI_CALL_BLOCK && n < max; i++)
            if (matches(look(&calls[i]), w))
                n += visit(&calls[i], w);
    }
    return n;
}

static bool count(teffi_call *call, which w)
{
    (void)call;
    (void)w;
    return true;
}

uint64_t teffi_calls_pending(teffi_calls *calls)
{
    return for_each(calls->table.space.node, any, count, UINT64_MAX);
}

bool teffi_calls_sent_to(teffi_node *node, teffi_node_id to)
{
    return for_each(node, sent(to), count, 1) > 0;
}

static bool take_matching(teffi_call *call, which w)
{
    uint64_t word = look(call);
    while (matches(word, w))
        if (take(call, &word))
            return true;
    return false;
}

static bool lose(teffi_call *call, which w)
{
    if (!take_matching(call, w))
        return false;
    end(call, TEFF_E_UNREACHABLE, "the link broke; the call may have run", NULL);
    return true;
}

/* A call that was given to the link before it broke is marked: the link's lock is between. */
void teffi_call_lost(teffi_node *node, teffi_node_id peer, bool clean)
{
    which w = sent(peer);
    if (clean) {
        w.mask |= TEFFI_CALL_SYSTEM;
        w.bits |= TEFFI_CALL_SYSTEM;
    }
    (void)for_each(node, w, lose, UINT64_MAX);
}

static bool cancel(teffi_call *call, which w)
{
    if (!take_matching(call, w))
        return false;
    end(call, TEFF_E_CANCELLED, "the silo or client was closed; the call may have run", NULL);
    return true;
}

void teffi_calls_cancel(teffi_node *node)
{
    (void)for_each(node, any, cancel, UINT64_MAX);
}

/* ---- the caller's side ---- */

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

uint32_t teffi_call_last(const teffi_call *call)
{
    /* relaxed: the entry is ours */
    return generation_of(atomic_load_explicit(&call->word, memory_order_relaxed));
}

static uint32_t next_generation(const teffi_call *call)
{
    uint32_t next = teffi_call_last(call) + 1;
    return next ? next : 1;
}

teffi_call *teffi_call_new(teffi_node *node, teff_ctx *ctx, uint64_t deadline_ns)
{
    teffi_call *call = teffi_call_get(&node->calls.table);
    if (!call)
        return NULL;
    teffi_wait_init(&call->wait, ctx, arrived);
    call->generation = next_generation(call);
    atomic_store_explicit(&call->deadline_ns, deadline_ns, memory_order_relaxed);
    call->err = TEFF_OK;
    call->text = NULL;
    call->reply = NULL;
    call->out_desc = NULL;
    teffi_ctx_list(ctx, call);
    /* seq_cst: pairs with take, and with a sweep (call_late.h) */
    atomic_store_explicit(&call->word,
                          (uint64_t)call->generation << GENERATION_SHIFT | TEFFI_CALL_PENDING,
                          memory_order_seq_cst);
    teffi_call_late_watch(&node->calls.late, call->slot, deadline_ns);
    return call;
}

/* Relaxed: who ends what was sent there is ordered after by the link's lock; who sees it earlier
 * reads nothing that was written for it. */
static void mark(teffi_call *call, uint32_t generation, uint32_t bits)
{
    uint64_t word = atomic_load_explicit(&call->word, memory_order_relaxed);
    while (is_use(word, generation)) {
        uint64_t marked = (word & ~(uint64_t)TEFFI_CALL_SENT) | bits;
        if (atomic_compare_exchange_weak_explicit(&call->word, &word, marked, memory_order_relaxed,
                                                  memory_order_relaxed))
            return;
    }
}

void teffi_call_sent_to(teffi_node *node, uint32_t slot, uint32_t generation, teffi_node_id to)
{
    teffi_call *call = teffi_call_at(&node->calls.table.space, slot);
    if (call)
        mark(call, generation, sent_bits(to));
}

void teffi_call_asks(teffi_call *call, teffi_node_id to)
{
    mark(call, call->generation, sent_bits(to) | TEFFI_CALL_SYSTEM);
}

bool teffi_call_pending(const teffi_call *call)
{
    return is_use(look(call), call->generation);
}

void teffi_call_release(teffi_call *call)
{
    teffi_bug_if(is_pending(look(call)));
    teffi_msg_free(call->reply);
    call->reply = NULL;
    teffi_call_put(&call->node->calls.table, call);
}

/* The context has seen the end: a thread, when it has let it arrive. */
static bool was_seen(const teffi_wait *wait)
{
    return wait->group ? wait->done : !wait->arrive;
}

bool teffi_call_abandon(teffi_call *call)
{
    return was_seen(&call->wait) || take_use(call, call->generation);
}
