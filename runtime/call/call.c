/* call.c - one pending call: begun, taken by one thread, ended by that thread, released. */
#include "call/call.h"

#include "base/bug.h"
#include "base/hash.h"
#include "call/origin.h"

const char teffi_call_late_text[] = "no response before the deadline; the call may have run";

/* ---- the word ---- */

static bool word_is_pending(uint64_t word)
{
    return word & TEFFI_CALL_PENDING;
}

/* in: to: the node that a call's request was sent to. out: a hash of this node, for the
 * TEFFI_CALL_SENT bits of the call's word. Never 0, which stands for "not sent". */
static uint32_t hash_node_to_sent_bits(teffi_node_id to)
{
    uint64_t mixed = teffi_mix64((uint64_t)to.silo << 32 | to.incarnation);
    uint32_t bits = (uint32_t)mixed & TEFFI_CALL_SENT;
    return bits ? bits : TEFFI_CALL_SENT;
}

/* Takes the call if its word is still *word: clears PENDING and the other bits below the
 * generation. From then on only this thread may end the call. May fail spuriously.
 * in:   *word, pending. out: false: nothing was changed, and *word is the word that was found. */
static bool take_call_if_word_is(teffi_call *call, uint64_t *word)
{
    uint64_t taken = *word >> TEFFI_CALL_GENERATION << TEFFI_CALL_GENERATION;
    /* acquire: pairs with the store of a pending word; the taker reads what the caller wrote before
     * that store. seq_cst: teffi_cancel_call loads sent_to afterwards, see teffi_call.sent_to */
    return atomic_compare_exchange_weak_explicit(&call->word, word, taken, memory_order_seq_cst,
                                                 memory_order_acquire);
}

/* Takes the call if it is pending and has this generation. out: its word before it was taken; 0: it
 * was not taken. */
uint64_t teffi_call_take_if_pending(teffi_call *call, uint32_t generation)
{
    uint64_t word = teffi_call_word(call);
    while (teffi_word_is_of_pending_call(word, generation)) {
        uint64_t pending = word;
        if (take_call_if_word_is(call, &word))
            return pending;
    }
    return 0;
}

/* ---- entries ---- */

static teffi_call *call_at(teffi_home *home, uint32_t slot)
{
    return teffi_slab_at(&home->calls.slab, slot);
}

/* The slab's begin(): initializes a free entry. in: generation: that of the entry's last use; 0:
 * never used. The next use gets the generation after it. A thread that knows the slot from an
 * earlier use may load the word meanwhile: it reads 0 or the new word, and neither is pending. */
static void init_free_entry(void *entry, uint32_t slot, uint32_t generation, void *owner)
{
    teffi_call *call = entry;
    call->home = owner;
    call->slot = slot;
    /* relaxed: no other thread writes the word of an entry that is not pending */
    atomic_store_explicit(&call->word, (uint64_t)generation << TEFFI_CALL_GENERATION,
                          memory_order_relaxed);
}

/* The slab's last_use(): an entry's slot and the generation of its last use. in: entry, not
 * pending. */
static teffi_slab_use last_use_of(const void *entry)
{
    const teffi_call *call = entry;
    /* relaxed: no other thread writes the word of an entry that is not pending */
    uint64_t word = atomic_load_explicit(&call->word, memory_order_relaxed);
    return (teffi_slab_use){call->slot, teffi_word_generation(word)};
}

const teffi_slab_type teffi_call_type = {.bytes = sizeof(teffi_call),
                                         .link = offsetof(teffi_call, link),
                                         .entries_max = TEFFI_CALLS_MAX,
                                         .begin = init_free_entry,
                                         .last_use = last_use_of};

void teffi_call_free_response(void *entry)
{
    teffi_call *call = entry;
    teffi_msg_free(call->response); /* NULL, except in a call that was never released */
}

/* ---- matches ---- */

teffi_call_match teffi_call_make_sent_to_match(teffi_node_id to)
{
    return (teffi_call_match){.mask = TEFFI_CALL_PENDING | TEFFI_CALL_SENT,
                              .bits = TEFFI_CALL_PENDING | hash_node_to_sent_bits(to),
                              .late_at_ns = UINT64_MAX};
}

/* Does the call match? in: word, the call's word, just read. The deadline and the origin node (in a
 * relay's `out`) are loaded after the word, and may belong to the entry's next use. In that case
 * the word has changed, too, so take_call_if_word_is fails. */
static bool call_with_word_matches(const teffi_call *call, uint64_t word,
                                   const teffi_call_match *match)
{
    if (((uint32_t)word & match->mask) != match->bits)
        return false;
    if (match->origin_node &&
        atomic_load_explicit(&call->out, memory_order_relaxed) != match->origin_node)
        return false;
    return match->late_at_ns == UINT64_MAX ||
           atomic_load_explicit(&call->deadline_ns, memory_order_relaxed) <= match->late_at_ns;
}

bool teffi_call_matches(const teffi_call *call, const teffi_call_match *match)
{
    return call_with_word_matches(call, teffi_call_word(call), match);
}

uint64_t teffi_call_due_ns(const teffi_call *call)
{
    if (!word_is_pending(teffi_call_word(call)))
        return UINT64_MAX;
    return atomic_load_explicit(&call->deadline_ns, memory_order_relaxed);
}

/* ---- ending a call, after it was taken ---- */

/* Frees a relay or a kept cancel: releases its entry. Subtracts 1 from the origin node's count of
 * relays and kept cancels (*call->share), and from the home's count of relays or of cancels. */
void teffi_call_free_relay(teffi_call *call)
{
    teffi_calls *calls = &call->home->calls;
    _Atomic uint32_t *count = call->is_cancel ? &calls->cancels : &calls->relays;
    atomic_fetch_sub_explicit(call->share, 1, memory_order_relaxed);
    teffi_call_release(call);
    /* release: pairs with teffi_calls_relay_count */
    atomic_fetch_sub_explicit(count, 1, memory_order_release);
}

void teffi_call_remove_and_free_relay(teffi_call *call)
{
    teffi_origins_remove_entry(call);
    teffi_call_free_relay(call);
}

/* Adds an ended relay to *relays, so that the caller sends its outcome to the origin. Nothing is
 * sent for a kept cancel, or for a relay that this node itself ended with TEFF_E_TIMEOUT (the
 * origin has the same deadline, has cancelled the call, or is gone): these are freed here. */
static void list_or_free_ended_relay(teffi_call *call, teffi_call **relays)
{
    if (call->is_cancel || (call->err == TEFF_E_TIMEOUT && !call->response)) {
        teffi_call_remove_and_free_relay(call);
        return;
    }
    teffi_bug_if(!relays); /* callers that pass NULL end relays with TEFF_E_TIMEOUT only */
    call->wait.item.next = *relays ? &(*relays)->wait.item : NULL;
    *relays = call;
}

/* A relay has neither group nor context. The group is tested first, so that wait.ctx of a turn's
 * call is not read: the turn may clear it at the same time (drop_call). */
static bool is_relay(const teffi_call *call)
{
    return !call->wait.group && !call->wait.ctx;
}

/* Ends a call that this thread has taken: sets its outcome, then signals its context. A relay has
 * no context and goes to list_or_free_ended_relay. in: response: owned, or NULL; relays: passed
 * to list_or_free_ended_relay. */
static void end_call(teffi_call *call, teff_err err, const char *text, teffi_msg *response,
                     teffi_call **relays)
{
    call->err = err;
    call->text = text;
    call->response = response;
    if (is_relay(call))
        list_or_free_ended_relay(call, relays);
    else
        teffi_wait_notify_waiter(&call->wait);
}

/* out: NULL, or the relay that was ended by this response; the caller of this function must send
 * the outcome of that relay. */
teffi_call *teffi_call_end_by_response(teffi_home *home, teffi_msg *response)
{
    teffi_call *call = call_at(home, response->call.slot);
    teffi_call *relay = NULL;
    if (call && teffi_call_take_if_pending(call, response->call.generation))
        end_call(call, (teff_err)response->err, response->text, response, &relay);
    else
        teffi_msg_free(response);
    return relay;
}

bool teffi_call_fail(teffi_call *call, teff_err err, const char *text)
{
    if (!teffi_call_take_if_pending(call, call->generation))
        return false;
    end_call(call, err, text, NULL, NULL);
    return true;
}

bool teffi_call_is_pending(teffi_home *home, uint32_t slot, uint32_t generation)
{
    teffi_call *call = call_at(home, slot);
    return call && teffi_word_is_of_pending_call(teffi_call_word(call), generation);
}

void teffi_call_end_taken_call(teffi_call *call, teff_err err, const char *text)
{
    end_call(call, err, text, NULL, NULL);
}

bool teffi_call_end_if_matching(teffi_call *call, const teffi_call_match *match, teff_err err,
                                const char *text, teffi_call **relays)
{
    uint64_t word = teffi_call_word(call);
    while (call_with_word_matches(call, word, match)) {
        if (!take_call_if_word_is(call, &word))
            continue;
        end_call(call, err, text, NULL, relays);
        return true;
    }
    return false;
}

/* ---- responses ---- */

/* out: the call's cookie, a keyed hash that other nodes cannot guess. A response from another node
 * is valid only if it carries the cookie of the request. */
uint64_t teffi_call_cookie(const teffi_home *home, uint32_t slot, uint32_t generation)
{
    return teffi_siphash_word(&home->calls.key, (uint64_t)slot << 32 | generation);
}

/* Does the response belong to a pending call (are slot, generation and cookie those of the call),
 * and was the call's request sent to `from`? */
bool teffi_call_is_valid_response(teffi_home *home, const teffi_msg *response, teffi_node_id from)
{
    uint32_t slot = response->call.slot, generation = response->call.generation;
    teffi_call *call = call_at(home, slot);
    uint64_t word = call ? teffi_call_word(call) : 0;
    return teffi_word_is_of_pending_call(word, generation) &&
           ((uint32_t)word & TEFFI_CALL_SENT) == hash_node_to_sent_bits(from) &&
           response->call.cookie == teffi_call_cookie(home, slot, generation);
}

/* out: the type of the response's body; NULL: no body. */
static const ProtobufCMessageDescriptor *expected_desc_of(const teffi_call *call)
{
    uint64_t out = atomic_load_explicit(&call->out, memory_order_relaxed);
    return (const ProtobufCMessageDescriptor *)(uintptr_t)(out & ~(uint64_t)TEFFI_CALL_OUT_FLAGS);
}

/* wait.arrive of a call: releases an orphan (a call that its context dropped); otherwise unpacks
 * the response's body, on the stack of the worker or thread, since a fiber's stack is too small. */
static void release_orphan_or_unpack_body(teffi_wait *wait)
{
    teffi_call *call = teffi_container(wait, teffi_call, wait);
    if (wait->orphan) {
        teffi_call_release(call);
        return;
    }
    const ProtobufCMessageDescriptor *out = expected_desc_of(call);
    if (call->err || !out || call->response->body)
        return;
    call->err = teffi_msg_unpack(call->response, out);
    if (!call->err)
        return;
    call->text = "the response does not decode; the call ran";
    call->response->flags |= TEFFI_MSG_UNNAMED; /* text does not name the method */
}

/* ---- begin ---- */

teffi_call *teffi_call_alloc_entry(teffi_home *home, uint64_t deadline_ns)
{
    teffi_call *call = teffi_slab_take(&home->calls.slab);
    if (!call)
        return NULL;
    uint32_t next = last_use_of(call).generation + 1;
    call->generation = next ? next : 1; /* 0: an entry that was never used */
    atomic_store_explicit(&call->deadline_ns, deadline_ns, memory_order_relaxed);
    call->err = TEFF_OK;
    call->text = NULL;
    call->response = NULL;
    return call;
}

teffi_call *teffi_call_new(teffi_home *home, teff_ctx *ctx, uint64_t deadline_ns)
{
    teffi_call *call = teffi_call_alloc_entry(home, deadline_ns);
    if (!call)
        return NULL;
    teffi_wait_init(&call->wait, ctx, release_orphan_or_unpack_body);
    teffi_call_expect_body(call, NULL, 0);
    /* seq_cst: pairs with take_call_if_word_is, and with the sweep, see deadline.h */
    atomic_store_explicit(&call->word, teffi_call_make_pending_word(call->generation, 0),
                          memory_order_seq_cst);
    teffi_deadline_watch(&home->calls.deadlines, call->slot, deadline_ns);
    return call;
}

void teffi_call_set_sent_to(teffi_home *home, uint32_t slot, uint32_t generation, teffi_node_id to)
{
    teffi_call *call = call_at(home, slot);
    /* relaxed: the net's lock orders the compare-exchange below before teffi_calls_end_sent_to(),
     * and before the response is handled */
    uint64_t word = call ? atomic_load_explicit(&call->word, memory_order_relaxed) : 0;
    while (teffi_word_is_of_pending_call(word, generation)) {
        uint64_t marked = (word & ~(uint64_t)TEFFI_CALL_SENT) | hash_node_to_sent_bits(to);
        if (atomic_compare_exchange_weak_explicit(&call->word, &word, marked, memory_order_relaxed,
                                                  memory_order_relaxed))
            return;
    }
}

void teffi_call_sign_request(teffi_home *home, teffi_msg *request)
{
    request->call.cookie = teffi_call_cookie(home, request->call.slot, request->call.generation);
}

/* ---- the caller's side ---- */

void teffi_call_release(teffi_call *call)
{
    teffi_bug_if(word_is_pending(teffi_call_word(call)));
    teffi_msg_free(call->response);
    call->response = NULL;
    teffi_slab_put(&call->home->calls.slab, call);
}

/* Has the context handled the signal that the call has ended? The handling sets wait->done in a
 * turn; on a thread it sets wait->arrive to NULL (run_arrive_callbacks() in wait.c). */
static bool context_has_handled_end(const teffi_wait *wait)
{
    return wait->group ? wait->done : !wait->arrive;
}

/* Takes the call if it is pending. out: true: the caller must release the call; false: another
 * thread has taken the call, and its signal is on the way. */
bool teffi_call_abandon(teffi_call *call)
{
    return context_has_handled_end(&call->wait) ||
           teffi_call_take_if_pending(call, call->generation);
}
