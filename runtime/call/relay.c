/* relay.c - relays; and cancels, which follow a request to another node, or wait for it here. */
#include "call/relay.h"

#include "call/origin.h"

static const teffi_node_id here = {0, 0};

/* ---- entries ---- */

/* out: the count of a node's relays and kept cancels; nodes with the same hash share it. Clients
 * choose their own ids: the hash is keyed, so that a client cannot choose an id that shares the
 * count of another node. */
_Atomic uint32_t *teffi_relay_entry_count_of_node(teffi_home *home, uint64_t origin_node)
{
    uint64_t hash = teffi_siphash_word(&home->calls.key, origin_node);
    return &home->calls.relays_of[hash % TEFFI_RELAY_SHARES];
}

/* May a node have one more entry? It may if it has fewer entries than are still free. in: share:
 * the number of the node's own entries; count: the number of all nodes' entries; max: the limit of
 * count. relaxed: threads that begin entries at the same time may exceed the limit by a few. */
static bool node_may_add_entry(const _Atomic uint32_t *share, const _Atomic uint32_t *count,
                               uint32_t max)
{
    uint32_t own = atomic_load_explicit(share, memory_order_relaxed);
    uint32_t all = atomic_load_explicit(count, memory_order_relaxed);
    return all < max && own < max - all;
}

/* Takes an unused entry from the slab, and counts it among all entries of its kind and among those
 * of its node. out: NULL: over the node's share, or no memory. */
static teffi_call *take_and_count_entry(teffi_home *home, uint64_t node, bool is_cancel,
                                        uint64_t deadline_ns)
{
    _Atomic uint32_t *share = teffi_relay_entry_count_of_node(home, node);
    _Atomic uint32_t *count = is_cancel ? &home->calls.cancels : &home->calls.relays;
    uint32_t max = is_cancel ? TEFFI_CANCELS_MAX : TEFFI_RELAYS_MAX;
    teffi_call *call =
        node_may_add_entry(share, count, max) ? teffi_call_alloc_entry(home, deadline_ns) : NULL;
    if (!call)
        return NULL;
    call->is_cancel = is_cancel;
    call->share = share;
    atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(share, 1, memory_order_relaxed);
    return call;
}

/* Takes an entry from the table of calls and fills it in. The caller adds it to the table of
 * origins. out: NULL: the node has its share of entries already, or there is no memory. */
static teffi_call *new_entry(teffi_home *home, uint64_t node, teffi_origin origin, bool is_cancel,
                             uint64_t deadline_ns)
{
    teffi_call *call = take_and_count_entry(home, node, is_cancel, deadline_ns);
    if (!call)
        return NULL;
    call->wait = (teffi_wait){0};
    call->origin = origin;
    atomic_store_explicit(&call->out, node, memory_order_relaxed);
    atomic_store_explicit(&call->sent_to, 0, memory_order_relaxed);
    return call;
}

/* Adds a new entry to the table of origins and watches its deadline. Owns call: frees it if it is
 * not added. out: false: not added; *found is the entry that prevents it. */
static bool add_entry_or_free(teffi_call *call, uint64_t deadline_ns, teffi_slab_use *found)
{
    teffi_home *home = call->home;
    uint32_t slot = call->slot; /* once added, the entry may end and be used again */
    uint32_t bits = call->is_cancel ? TEFFI_CALL_RELAY | TEFFI_CALL_CANCEL : TEFFI_CALL_RELAY;
    bool added = teffi_origins_add_pending_entry(
        call, teffi_call_make_pending_word(call->generation, bits), found);
    if (added)
        teffi_deadline_watch(&home->calls.deadlines, slot, deadline_ns);
    else
        teffi_call_free_relay(call);
    return added;
}

/* Ends a relay or kept cancel; no outcome is sent on. out: false: it had ended before. */
static bool end_entry(teffi_home *home, const teffi_slab_use *use)
{
    teffi_call *call = teffi_slab_at(&home->calls.slab, use->slot);
    if (!teffi_call_take_if_pending(call, use->generation))
        return false;
    teffi_call_end_taken_call(call, TEFF_E_TIMEOUT, NULL); /* this error is not sent on */
    return true;
}

teff_err teffi_relay_new(teffi_home *home, teffi_node_id origin_node, teffi_origin origin,
                         uint64_t deadline_ns, teffi_slab_use *relay)
{
    teffi_slab_use cancel;
    teffi_call *call = new_entry(home, teffi_node_to_word(origin_node), origin, false, deadline_ns);
    if (!call)
        return TEFF_E_OVERLOADED;
    *relay = (teffi_slab_use){call->slot, call->generation};
    if (add_entry_or_free(call, deadline_ns, &cancel))
        return TEFF_OK;
    (void)end_entry(home, &cancel); /* the cancel is used up */
    return TEFF_E_CANCELLED;
}

/* ---- kept cancels ---- */

/* Applies a cancel of the call `origin` of node `from`. If this node has a relay of that call,
 * cancels the relay; otherwise keeps the cancel, unless one is kept already. A cancel that cannot
 * be kept (over the node's share, no memory) still cancels a relay. */
void teffi_cancel_apply(teffi_home *home, teffi_node_id from, teffi_origin origin,
                        uint64_t deadline_ns)
{
    uint64_t node = teffi_node_to_word(from);
    teffi_slab_use found;
    teffi_call *kept = new_entry(home, node, origin, true, deadline_ns);
    bool there = kept ? !add_entry_or_free(kept, deadline_ns, &found)
                      : teffi_origins_find_entry(home, node, origin, 0, &found);
    if (there)
        teffi_cancel_call(home, found.slot, found.generation);
}

bool teffi_cancel_is_kept(teffi_home *home, teffi_node_id from, teffi_origin origin)
{
    teffi_slab_use found;
    return teffi_origins_find_entry(home, teffi_node_to_word(from), origin,
                                    TEFFI_CALL_PENDING | TEFFI_CALL_CANCEL, &found);
}

bool teffi_remove_kept_cancel(teffi_home *home, teffi_node_id from, teffi_origin origin)
{
    teffi_slab_use found;
    return teffi_origins_find_entry(home, teffi_node_to_word(from), origin,
                                    TEFFI_CALL_PENDING | TEFFI_CALL_CANCEL, &found) &&
           end_entry(home, &found);
}

/* ---- cancels that follow a request ---- */

/* Must a cancel of this call be forwarded to the node that got its request? It must if the call is
 * a relay, or a grain call that its caller does not await at once. call->sent_to is set only for
 * these two kinds. in: word: the call's state word. */
static bool must_forward_cancel(const teffi_call *call, uint64_t word)
{
    return word & TEFFI_CALL_RELAY ||
           atomic_load_explicit(&call->out, memory_order_relaxed) & TEFFI_CALL_HAS_ASKED;
}

/* Signs the request, and checks whether its call was cancelled. If a later cancel must be forwarded
 * (must_forward_cancel), stores the node `to` in call->sent_to, and then loads the call's word
 * again (see teffi_call.sent_to).
 * out: false: the call was cancelled, so its request must not be sent. The cancel was kept here,
 *      and is now removed. true: the request is to be sent. The call is pending, or it has ended
 *      and no cancel of it is kept here. */
bool teffi_call_sign_and_check_cancel(teffi_home *home, teffi_msg *request, teffi_node_id to)
{
    /* for a call of this node the cookie is 0 */
    const teffi_origin own = {.slot = request->call.slot, .generation = request->call.generation};
    teffi_call *call = teffi_slab_at(&home->calls.slab, own.slot);
    uint64_t word = call ? teffi_call_word(call) : 0;
    teffi_call_sign_request(home, request);
    if (teffi_word_is_of_pending_call(word, own.generation)) {
        if (!must_forward_cancel(call, word))
            return true;
        atomic_store_explicit(&call->sent_to, teffi_node_to_word(to), memory_order_seq_cst);
        word = teffi_call_word(call);
    }
    return teffi_word_is_of_pending_call(word, own.generation) || !teffi_cancel_is_any_kept(home) ||
           !teffi_remove_kept_cancel(home, here, own);
}

static teffi_msg *new_cancel_msg(teffi_node_id to, const teffi_origin *origin, uint64_t deadline_ns)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_ONEWAY);
    if (!msg)
        return NULL;
    msg->to = (teffi_pid){.node = to, .slot = TEFFI_SLOT_CANCEL};
    msg->deadline_ns = deadline_ns == UINT64_MAX ? 0 : deadline_ns;
    msg->raw = teff_arena_copy(&msg->arena, origin, sizeof *origin);
    msg->raw_len = sizeof *origin;
    if (msg->raw)
        return msg;
    teffi_msg_free(msg);
    return NULL;
}

/* Sends a cancel of the call `origin`; if the send fails, the cancel is lost. Enters the node,
 * since the thread that calls teff_cancel_fire need not be inside it. */
static void send_cancel(teffi_home *home, teffi_node_id to, const teffi_origin *origin,
                        uint64_t deadline_ns)
{
    if (!teffi_home_enter(home))
        return;
    teffi_msg *msg = new_cancel_msg(to, origin, deadline_ns);
    if (msg && home->net->ops->send(home->net, to, msg))
        teffi_msg_free(msg);
    teffi_home_exit(home);
}

/* in: call: it has been taken; word: its state word before it was taken. out: the node that the
 * call's request was sent to, or is about to be sent to. none: there is no such node, or sent_to
 * was overwritten by a late teffi_call_sign_and_check_cancel of an earlier use of this entry (the
 * hash in word is not that of sent_to). */
static teffi_node_id get_request_destination(const teffi_call *call, uint64_t word)
{
    const teffi_node_id none = {0};
    teffi_node_id to =
        teffi_node_from_word(atomic_load_explicit(&call->sent_to, memory_order_seq_cst));
    uint32_t sent = (uint32_t)word & TEFFI_CALL_SENT;
    return !sent || sent == (teffi_call_make_sent_to_match(to).bits & TEFFI_CALL_SENT) ? to : none;
}

/* Ends a call that was taken because of a cancel. in: word: the call's state word before it was
 * taken; forwards: send the cancel to the node that the request was sent to, if there is one. */
static void end_cancelled_call(teffi_home *home, teffi_call *call, uint64_t word, bool forwards,
                               uint64_t deadline_ns)
{
    const teffi_origin own = {call->slot, call->generation,
                              teffi_call_cookie(home, call->slot, call->generation)};
    teffi_node_id to = forwards ? get_request_destination(call, word) : (teffi_node_id){0};
    if (!teffi_node_is_none(to))
        send_cancel(home, to, &own, deadline_ns);
    if (word & TEFFI_CALL_RELAY)
        teffi_call_end_taken_call(call, TEFF_E_TIMEOUT, NULL); /* its origin has ended the call */
    else
        teffi_call_end_taken_call(call, TEFF_E_CANCELLED,
                                  "cancelled by its caller; the call may have run");
}

/* Ends a pending call or relay. If a cancel of this call must be forwarded, but its request was not
 * sent yet, this node first keeps the cancel and afterwards ends the call. So
 * teffi_call_sign_and_check_cancel, which runs just before a send, finds either a pending call or
 * the cancel, and a cancelled request is not sent. in: slot: if its entry is a kept cancel, nothing
 * is done. */
void teffi_cancel_call(teffi_home *home, uint32_t slot, uint32_t generation)
{
    const teffi_origin own = {.slot = slot, .generation = generation}; /* of this node: cookie 0 */
    teffi_call *call = teffi_slab_at(&home->calls.slab, slot);
    uint64_t word = call ? teffi_call_word(call) : 0;
    if (!teffi_word_is_of_pending_call(word, generation) || word & TEFFI_CALL_CANCEL)
        return;
    uint64_t deadline_ns = atomic_load_explicit(&call->deadline_ns, memory_order_relaxed);
    bool forwards = must_forward_cancel(call, word);
    bool keeps = forwards && !(word & TEFFI_CALL_SENT);
    if (keeps)
        teffi_cancel_apply(home, here, own, deadline_ns);
    word = teffi_call_take_if_pending(call, generation);
    if (word)
        end_cancelled_call(home, call, word, forwards, deadline_ns);
    else if (keeps) /* the call had ended meanwhile, so nothing is to be cancelled */
        (void)teffi_remove_kept_cancel(home, here, own);
}
