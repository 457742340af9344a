/* handler.c - handle each item of an activation's group, then start what may start next.
 * Way:     group/group -> [handler] -> admission -> turn, life; undeliverable requests -> route
 * States:  see activation.h */
#include "hosting/life.h"

#include <stdio.h>
#include "activation/lock.h"
#include "activation/observers.h"
#include "activation/state.h"
#include "activation/turn.h"
#include "activation/waits.h"
#include "base/bug.h"
#include "call/wait.h"
#include "directory/placement.h"
#include "directory/shard.h"
#include "node/deliver.h"
#include "request/deadlock.h"
#include "request/route.h"
#include "group/closure.h"
#include "hosting/stuck.h"
#include "hosting/ticks.h"

/* After one item, at most this many of the requests set aside start or end, so that a backlog does
 * not block the worker. */
enum { STARTS_MAX = 64 };

/* ---- requests ---- */

/* Ends a queued request with an error. Owns msg. */
static void refuse_queued_request(teffi_activation *act, teffi_msg *msg, teff_err err,
                                  const char *text)
{
    teffi_activation_uncount_queued(act, msg);
    teffi_node_respond_with_err(act->grains->node, msg, err, text);
}

/* out: true: msg's caller has cancelled it, and msg was freed. */
static bool drop_if_cancelled(teffi_activation *act, teffi_msg *msg)
{
    if (!teffi_node_remove_cancel(act->grains->node, msg))
        return false;
    teffi_activation_uncount_queued(act, msg);
    teffi_msg_free(msg);
    return true;
}

/* Ends msg if its deadline has passed or its caller has cancelled it; never ends a one-way
 * message. out: true: msg was ended. */
static bool end_if_late_or_cancelled(teffi_activation *act, teffi_msg *msg)
{
    const teffi_node *node = act->grains->node;
    if (msg->item.kind != TEFFI_MSG_REQUEST)
        return false;
    if (!teffi_is_late(node->home.exec, msg->deadline_ns))
        return teffi_cancel_is_any_kept(&node->home) && drop_if_cancelled(act, msg);
    refuse_queued_request(act, msg, TEFF_E_TIMEOUT, "expired while it waited for the grain");
    return true;
}

/* Ends msg if the coarse clock shows that this silo's lease is over. out: true: msg was ended. */
static bool refuse_if_lease_is_over(teffi_activation *act, teffi_msg *msg)
{
    if (teffi_lease_holds_coarse(&act->grains->node->home.lease, act->group.exec))
        return false;
    refuse_queued_request(act, msg, TEFF_E_UNAVAILABLE, teffi_lease_over_text);
    return true;
}

/* Called when a request was set aside: adds act to the activations that deadlock detection visits.
 * This is not needed while a turn activates or deactivates act and the type has neither on_activate
 * nor on_deactivate, because that turn waits only for the store and the directory. */
__attribute__((noinline)) static void watch_waits_if_needed(teffi_activation *act)
{
    const teff_type_info *info = act->type->info;
    if (!(act->busy & TEFFI_BUSY_LIFE) || act->phase == TEFFI_VALID ||
        teffi_type_has_hook(act->type, info->on_activate_at) ||
        teffi_type_has_hook(act->type, info->on_deactivate_at))
        teffi_waits_watch(act);
}

/* Puts msg into act->more->pending. It stays there until start_requests_and_ticks() starts or ends
 * it, or end_activation() routes it again or ends it. If there is no memory for act->more, ends msg
 * instead. */
static void set_request_aside(teffi_activation *act, teffi_msg *msg, teffi_class class)
{
    teffi_more *more = teffi_activation_ensure_rare_fields(act);
    if (!more) {
        refuse_queued_request(act, msg, TEFF_E_NOMEM, "out of memory to queue the request");
        return;
    }
    teffi_queue_push(&more->pending, &msg->link);
    more->pending_of[class]++;
    teffi_lock_update_pending_of_owner(act, msg, true);
    if (!teffi_waits_both_flags_are_set(act))
        watch_waits_if_needed(act);
}

/* Starts the turn of a request that may start now. */
static inline __attribute__((always_inline)) void
start_request(teffi_activation *act, teffi_msg *msg, const teff_method *method)
{
    teffi_activation_uncount_queued(act, msg);
    teffi_activation_update_last_use(act);
    teffi_exec_warn_if_item_late(&act->group, &msg->item);
    teffi_turn_start(act, msg, method);
}

/* Is msg for another grain than act's? This happens if act's memory was reused for another grain
 * after the sender had found act, or if two grains have the same hash. */
static bool request_is_misdirected(const teffi_activation *act, const teffi_msg *msg)
{
    return act->type->info->id != msg->type_id || act->key_len != msg->key_len ||
           !teffi_key_bytes_equal(teffi_activation_key_bytes(act), msg->key, msg->key_len);
}

/* Routes a misdirected request again. If it has this activation's hash, two grains have the same
 * hash: from now on the shard finds activations by identity. */
static void redirect_request(teffi_activation *act, teffi_msg *msg)
{
    uint64_t hash = teffi_ident_of_request(&act->grains->secret, msg).hash;
    if (atomic_load_explicit(&act->hash, memory_order_relaxed) == hash)
        teffi_shard_set_hash_collision(act->grains, hash);
    teffi_activation_uncount_queued(act, msg);
    teffi_route_again(act->grains, msg);
}

/* Does msg's caller have a newer version of the grain type than this silo? If so, msg needs another
 * silo. */
static bool request_needs_newer_version(const teffi_activation *act, const teffi_msg *msg)
{
    return teffi_flags_type_version(msg->flags) > act->type->info->version;
}

/* Ends or routes again a request that the ended activation did not start:
 * 1. If callers that have a newer version of the type have sent requests to act, makes msg ask for
 *    the newest of these versions. This keeps msg from activating the grain on a silo that has an
 *    older version.
 * 2. If act has failed, ends msg with the error in act->failed, unless msg asks for a newer version
 *    than this silo has.
 * 3. If msg was not ended, routes it to the silo of the winner (the activation that holds the
 *    grain). If no winner is known, or msg was routed too often, calls teffi_route_again(). If act
 *    was VALID before, it may have served other requests: then earlier forwards do not count. */
static void fail_or_reroute_request(teffi_activation *act, teffi_msg *msg)
{
    teffi_grains *grains = act->grains;
    teffi_node_id winner = act->more ? act->more->winner.node : (teffi_node_id){0};
    teffi_activation_uncount_queued(act, msg);
    if (act->more)
        msg->flags = teffi_flags_raise_type_version(msg->flags, act->more->version);
    if (act->was_valid)
        msg->hops = 0;
    bool failed = act->failed && !request_needs_newer_version(act, msg);
    if (failed && act->more && act->more->failed_named)
        teffi_node_respond_with_named_err(grains->node, msg, (teff_err)act->failed,
                                          act->more->failed_text);
    else if (failed)
        teffi_node_respond_with_err(grains->node, msg, (teff_err)act->failed,
                                    act->more ? act->more->failed_text : NULL);
    else if (!teffi_node_is_none(winner) && msg->hops < TEFFI_HOPS_MAX)
        teffi_route_to_current_holder(grains, msg, winner);
    else
        teffi_route_again(grains, msg);
}

/* If msg was made in a transaction and must not wait for act's lock, ends msg with an error. in:
 * msg does not join that transaction. out: true: msg was ended. */
static bool refuse_if_request_must_not_wait(teffi_activation *act, teffi_msg *msg)
{
    teff_err err = teffi_lock_judge_wait(act, msg);
    if (err)
        refuse_queued_request(act, msg, err,
                              err == TEFF_E_INVALID
                                  ? "the caller's transaction has locked the grain, and the method "
                                    "is not transactional"
                                  : "an older transaction has locked the grain, so a call in the "
                                    "caller's transaction may not wait; it did not run");
    return err != TEFF_OK;
}

/* Called if msg's caller has a newer version of the type than this silo. If no silo has that
 * version, or if msg is late or cancelled, only ends msg. Otherwise makes act deactivate, and sets
 * msg aside; when act has ended, msg goes to a silo with that version. Exception: if msg must not
 * wait for act's lock, msg is not set aside. It is ended with TEFF_E_ABORTED, so that msg's
 * transaction begins again. */
__attribute__((noinline)) static void start_move_to_newer_silo(teffi_activation *act,
                                                               teffi_msg *msg)
{
    uint32_t version = teffi_flags_type_version(msg->flags);
    int64_t newest = teffi_find_newest_type_version(act->grains, msg->type_id);
    if (end_if_late_or_cancelled(act, msg))
        return;
    if (newest < (int64_t)version) {
        teffi_activation_uncount_queued(act, msg);
        teffi_placement_respond_error(act->grains, msg,
                                      newest < 0 ? act->type->info->version : newest);
        return;
    }
    if (teffi_lock_judge_wait(act, msg))
        refuse_queued_request(act, msg, TEFF_E_ABORTED,
                              "the grain has to move to a silo that has the caller's version");
    else
        set_request_aside(act, msg, TEFFI_EXCLUSIVE);
    if (!act->more) /* no memory: msg has ended */
        return;
    act->more->version = version > act->more->version ? (uint8_t)version : act->more->version;
    act->reason = act->reason ? act->reason : TEFF_REASON_VERSION;
}

/* Ends a transaction's request that must not run; the error says why. in: transaction: the one that
 * msg carries; NULL if that does not decode. */
static void refuse_transactional_request(teffi_activation *act, teffi_msg *msg,
                                         const teffi_transaction *transaction)
{
    teff_err err = transaction ? teffi_lock_choose_refusal_err(act, transaction) : TEFF_E_MALFORMED;
    refuse_queued_request(act, msg, err,
                          err == TEFF_E_ABORTED
                              ? "an older transaction has the grain, or this one was "
                                "rolled back"
                          : transaction ? "another call of the transaction to the grain has failed"
                                        : "its transaction does not decode");
}

/* Starts a request of a transaction, sets it aside, or ends it. in: is_new: false if msg was set
 * aside before. out: false: msg must stay set aside, and the caller owns msg. */
static bool admit_transactional_request(teffi_activation *act, teffi_msg *msg,
                                        const teff_method *method, bool is_new)
{
    teffi_transaction transaction;
    teffi_verdict verdict = TEFFI_DIE;
    bool decodes = teffi_transaction_read_from_msg(msg, &transaction);
    if (decodes)
        verdict = teffi_lock_judge_request(act, &transaction, is_new);
    if (verdict == TEFFI_SET_ASIDE && !is_new)
        return false;
    if (verdict == TEFFI_SET_ASIDE)
        set_request_aside(act, msg, TEFFI_EXCLUSIVE);
    else if (verdict == TEFFI_START)
        start_request(act, msg, method);
    else
        refuse_transactional_request(act, msg, decodes ? &transaction : NULL);
    return true;
}

/* Applies msg, a COMMIT, ABORT, RELOAD or RESOLVE of a transaction, to act's lock. Frees msg. */
static void apply_transaction_end(teffi_activation *act, teffi_msg *msg)
{
    teffi_transaction end;
    if (teffi_transaction_read_from_msg(msg, &end))
        teffi_lock_apply_transaction_end(act, &end);
    teffi_activation_uncount_queued(act, msg);
    teffi_msg_free(msg);
}

/* May msg, whose method is transactional, join the transaction that it carries? No if msg's caller
 * does not know that the method is transactional: such a caller would not collect the response's
 * participants, so msg begins another transaction. out: true also if the transaction cannot be
 * decoded, because in that case admit_transactional_request() refuses msg. */
static bool request_may_join_transaction(const teffi_msg *msg)
{
    teffi_transaction transaction;
    return msg->transaction && !(teffi_transaction_read_from_msg(msg, &transaction) &&
                                 transaction.step == TEFFI_STEP_PLAIN);
}

/* Called if msg carries a transaction or its method is transactional. A request for a
 * transactional method has one of three outcomes: it starts (in msg's transaction, or in a new
 * one), it is set aside until it can start, or it is refused. A call of a method that is
 * not transactional is refused if it must not wait for the grain's lock. Not inlined, because such
 * requests are rare.
 * out: false: nothing was done; the caller must admit msg as a request without a transaction. */
__attribute__((noinline)) static bool admit_if_transactional(teffi_activation *act, teffi_msg *msg,
                                                             const teff_method *method)
{
    if (!(method->flags & TEFF_METHOD_TRANSACTIONAL))
        return refuse_if_request_must_not_wait(act, msg);
    bool joins = request_may_join_transaction(msg);
    if (msg->transaction && !joins && refuse_if_request_must_not_wait(act, msg))
        return true;
    if (!joins && !teffi_transaction_begin_at_request(act->grains, msg))
        refuse_queued_request(act, msg, TEFF_E_NOMEM, "out of memory for a transaction");
    else
        (void)admit_transactional_request(act, msg, method, true);
    return true;
}

/* Handles a message whose id is no method of the type. If it ends a transaction (such messages have
 * no method), applies it, otherwise refuses it. */
__attribute__((noinline)) static void apply_transaction_end_or_refuse(teffi_activation *act,
                                                                      teffi_msg *msg)
{
    if (teffi_msg_ends_transaction(msg))
        apply_transaction_end(act, msg);
    else
        refuse_queued_request(act, msg, TEFF_E_NOT_FOUND, "the grain type has no such method here");
}

/* Starts msg, sets it aside, or ends it. If msg ends a transaction, applies it. */
static void admit_request(teffi_activation *act, teffi_msg *msg)
{
    if (request_needs_newer_version(act, msg)) {
        start_move_to_newer_silo(act, msg);
        return;
    }
    const teff_method *method = teffi_method_find(act->type->info, msg->method_id);
    /* of the messages without a method_id, a request is a tick, and a one-way is none */
    if (!method || (!msg->method_id && msg->item.kind == TEFFI_MSG_ONEWAY)) {
        apply_transaction_end_or_refuse(act, msg);
        return;
    }
    if (end_if_late_or_cancelled(act, msg) || refuse_if_lease_is_over(act, msg))
        return;
    if ((msg->transaction || (method->flags & TEFF_METHOD_TRANSACTIONAL)) &&
        admit_if_transactional(act, msg, method))
        return;
    teffi_class class = teffi_class_of_method(act->type->info, method);
    /* A request does not overtake one of its own class. */
    if (teffi_activation_admits(act, class) && !teffi_activation_has_pending(act, class))
        start_request(act, msg, method);
    else
        set_request_aside(act, msg, class);
}

/* Admits msg. If msg is misdirected, routes it again. If act has ended, routes msg again or ends it
 * with act's error; if msg ends a transaction, only frees it. */
static void admit_or_redirect_request(teffi_activation *act, teffi_msg *msg)
{
    if (request_is_misdirected(act, msg)) {
        redirect_request(act, msg);
    } else if (act->phase != TEFFI_ENDED) {
        admit_request(act, msg);
    } else if (teffi_msg_ends_transaction(msg)) {
        apply_transaction_end(act, msg);
    } else {
        fail_or_reroute_request(act, msg);
    }
}

/* ---- requests set aside ---- */

/* May msg, a request set aside, start or end now? If not, it stays set aside. If msg's caller has a
 * newer version of the type than this silo, msg stays until act ends. in: method: msg's method;
 * NULL: this silo does not have it, which happens only if msg's caller has a newer version. */
static bool pending_request_may_start_or_end(teffi_activation *act, const teffi_msg *msg,
                                             const teff_method *method)
{
    teffi_transaction transaction;
    if (request_needs_newer_version(act, msg))
        return false;
    if (!msg->transaction || !(method->flags & TEFF_METHOD_TRANSACTIONAL))
        return teffi_activation_admits(act, teffi_class_of_method(act->type->info, method)) ||
               (msg->transaction && teffi_lock_judge_wait(act, msg));
    return !teffi_transaction_read_from_msg(msg, &transaction) ||
           teffi_lock_judge_request(act, &transaction, false) != TEFFI_SET_ASIDE;
}

/* Called before the requests set aside are tried, if the activation has timers: starts the due
 * ticks. Exception: after a tick has started, requests come first until one of them has started or
 * ended. So ticks and requests of the same class alternate, and neither of them waits for ever. */
__attribute__((noinline)) static void start_ticks_before_requests(teffi_activation *act)
{
    if (!act->more->timers->requests_first)
        teffi_ticks_start_due(act);
}

/* Called after the requests set aside were tried, if the activation has timers: starts the due
 * ticks. Then frees what is not needed any more: more->timers, and act->more. If act->more stays,
 * nudges act if a request or a tick may start. in: request_started: a request has started or
 * ended. */
__attribute__((noinline)) static void start_ticks_after_requests(teffi_activation *act,
                                                                 bool request_started)
{
    teffi_more *more = act->more; /* turns do not free it */
    if (request_started)
        more->timers->requests_first = false;
    teffi_ticks_start_due(act);
    if (!more->timers->n)
        teffi_timers_stop_all(act);
    if (!more->pending.count && !more->lock && !more->timers && !more->observers)
        teffi_activation_free_rare_fields(act);
    else if (teffi_activation_any_pending_may_start(act) || teffi_timers_any_tick_may_start(act))
        teffi_activation_nudge(act);
}

/* Goes through the requests set aside, in order of arrival: starts or ends each request that need
 * not wait any more, and leaves the others in their order. Stops after STARTS_MAX requests have
 * started or ended; the next nudge continues. Starts due ticks before and after the requests. */
static void start_requests_and_ticks(teffi_activation *act)
{
    teffi_more *more = act->more; /* turns do not free it: they only add to pending */
    teffi_qnode *n, *kept = NULL; /* the last request before n that stays; NULL: none */
    /* Counts the requests that start or end. Those that stay do not count: each nudge tries them
     * again first, so STARTS_MAX of them would keep the later requests from being tried. */
    unsigned starts = 0;
    if (!more)
        return;
    if (more->timers)
        start_ticks_before_requests(act);
    bool judge_all = more->judge_all;
    more->judge_all = false; /* a turn that takes a lock sets it again */
    while ((n = teffi_queue_after(&more->pending, kept)) && starts < STARTS_MAX &&
           (judge_all || teffi_activation_any_pending_may_start(act)) &&
           !teffi_group_has_yielded_turn(&act->group)) {
        teffi_msg *msg = teffi_container(n, teffi_msg, link);
        const teff_method *method = teffi_method_find(act->type->info, msg->method_id);
        if (!pending_request_may_start_or_end(act, msg, method)) {
            kept = n;
            continue;
        }
        starts++;
        teffi_queue_remove_after(&more->pending, kept);
        more->pending_of[teffi_class_of_method(act->type->info, method)]--;
        teffi_lock_update_pending_of_owner(act, msg, false);
        if (end_if_late_or_cancelled(act, msg) || refuse_if_lease_is_over(act, msg))
            continue;
        if (msg->transaction && (method->flags & TEFF_METHOD_TRANSACTIONAL))
            (void)admit_transactional_request(act, msg, method, false);
        else if (!msg->transaction || !refuse_if_request_must_not_wait(act, msg))
            start_request(act, msg, method);
    }
    more->judge_all |= judge_all && n;
    if (more->timers)
        start_ticks_after_requests(act, starts > 0);
    else if (!more->pending.count && !more->lock && !more->observers)
        teffi_activation_free_rare_fields(act);
    else if (teffi_activation_any_pending_may_start(act))
        teffi_activation_nudge(act);
}

/* ---- the end of an activation ---- */

/* Removes act from the shard, so that later pushes find or make another activation. Calls
 * fail_or_reroute_request() for each request set aside; admit_or_redirect_request() calls it for
 * each queued one. */
static void end_activation(teffi_activation *act)
{
    teffi_qnode *n;
    act->phase = TEFFI_ENDED;
    teffi_timers_stop_all(act);
    teffi_observers_end_all(act);
    teffi_state_end_pause(act);
    teffi_shard_remove_activation(act);
    teffi_group_complete(&act->group);
    while (act->more && (n = teffi_queue_pop(&act->more->pending)))
        fail_or_reroute_request(act, teffi_container(n, teffi_msg, link));
}

/* The group's callback `ended`: frees the activation after the group has handled its last item. */
static void free_ended_activation(teffi_group *group)
{
    teffi_activation *act = teffi_container(group, teffi_activation, group);
    teffi_state_free(act);
    teffi_activation_clear(act);
    teffi_shard_reclaim_activation(act);
}

/* ---- after each item ---- */

/* Makes act VALID, or ends it if it has failed or another activation holds the grain. Called when
 * the turn that activates act has ended, or if no such turn was needed. */
static void finish_activating(teffi_activation *act)
{
    if (act->failed || (act->more && act->more->winner.slot))
        end_activation(act);
    else
        act->phase = TEFFI_VALID;
    act->was_valid = act->phase == TEFFI_VALID && !act->reason;
    /* While act was being activated, watch_waits_if_needed() may not have called
     * teffi_waits_watch(). Now one of the requests set aside starts. If there are others, they wait
     * for its turn, so deadlock detection must visit act. */
    if (act->phase == TEFFI_VALID && act->more && act->more->pending.count > 1)
        teffi_waits_watch(act);
}

/* Ends the lock that a transaction has on the activation, if the lock must end now. If only the
 * activation's row in the store shows whether the lock must end, starts a turn that reads the
 * row. */
__attribute__((noinline)) static void end_or_resolve_lock_if_due(teffi_activation *act)
{
    if (!teffi_lock_end_if_due(act))
        return;
    teffi_life_start_resolving_lock(act);
    if (!(act->busy & TEFFI_BUSY_LIFE)) /* the turn has ended already, or did not start */
        (void)teffi_lock_end_if_due(act);
}

/* Does what act->phase, act->reason and act->busy require: finishes activating act, ends a lock
 * that must end, compacts the state, starts due ticks and requests set aside, deactivates act, and
 * ends act. Each of these may change the three fields for the next one. Not inlined: after most
 * items there is nothing to do. */
__attribute__((noinline)) static void do_due_activation_work_slow_path(teffi_activation *act)
{
    if (act->busy & TEFFI_BUSY_LIFE)
        return;
    if (act->phase == TEFFI_ACTIVATING)
        finish_activating(act);
    if (act->busy & TEFFI_BUSY_LOCKED)
        end_or_resolve_lock_if_due(act);
    if (act->busy & TEFFI_BUSY_LIFE)
        return;
    if (act->phase == TEFFI_VALID)
        teffi_state_compact_if_due(act);
    /* If act must end but is locked, the requests of the lock's transaction must still start: the
     * lock ends only after them, and act is deactivated only after the lock has ended. */
    if (act->phase == TEFFI_VALID && (!act->reason || teffi_lock_of(act)))
        start_requests_and_ticks(act);
    if (act->phase == TEFFI_VALID && act->reason && act->running == 0 &&
        !(act->busy & TEFFI_BUSY_LOCKED)) {
        act->phase = TEFFI_DEACTIVATING;
        teffi_timers_stop_all(act);
        teffi_life_end(act);
    }
    if (act->phase == TEFFI_DEACTIVATING && !(act->busy & TEFFI_BUSY_LIFE))
        end_activation(act);
}

/* Called after each item: calls do_due_activation_work_slow_path() if there may be something to
 * do. */
static inline void do_due_activation_work(teffi_activation *act)
{
    if (act->phase != TEFFI_VALID || act->reason || act->more || act->stored)
        do_due_activation_work_slow_path(act);
}

/* out: true: act has a turn, a request or a transaction's lock, or is not VALID. */
static bool activation_is_in_use(const teffi_activation *act)
{
    return act->phase != TEFFI_VALID || act->running > 0 ||
           (act->more && (act->more->pending.count || act->more->lock)) ||
           (int32_t)atomic_load_explicit(&act->queued, memory_order_relaxed) > 0;
}

/* Was act not used for long enough to end for this reason, which is for unused activations? If it
 * is in use, sets its last use to now: otherwise a long turn would make it look unused, and it
 * would be asked again and again in place of others. Not inlined, because it is rare. */
__attribute__((noinline)) static bool was_unused_for_long_enough(teffi_activation *act,
                                                                 uint8_t reason)
{
    uint64_t now = atomic_load_explicit(&act->grains->coarse_ms, memory_order_relaxed);
    if (activation_is_in_use(act)) {
        if (reason == TEFF_REASON_IDLE)
            teffi_stuck_log_turn(act);
        teffi_activation_update_last_use(act);
        return false;
    }
    return teffi_activation_age_ms(act, (uint32_t)now) >=
           (reason == TEFF_REASON_IDLE ? teffi_idle_ms(act->type->info) : 0);
}

/* Clears the mark TEFFI_NUDGED. Then copies act->end_reason, which another thread may have stored,
 * to act->reason, unless act->reason is set already. act->end_reason stays set, so that act is not
 * asked again. Exception: if act is in use, or was used too lately for the reason, drops the
 * reason. */
static void clear_nudge_and_adopt_end_reason(teffi_activation *act)
{
    /* acq_rel: pairs with teffi_activation_nudge(): sees what was stored before the nudge. From
     * here on the nudge may be pushed again. */
    (void)atomic_fetch_and_explicit(&act->marks, (uint8_t)~TEFFI_NUDGED, memory_order_acq_rel);
    uint8_t why = atomic_load_explicit(&act->end_reason, memory_order_relaxed);
    if (!why || act->reason)
        return;
    if (!teffi_reason_is_for_unused(why) || was_unused_for_long_enough(act, why))
        act->reason = why;
    else /* fails if another thread has stored another reason: it has nudged, too */
        (void)atomic_compare_exchange_strong_explicit(&act->end_reason, &why, 0,
                                                      memory_order_relaxed, memory_order_relaxed);
}

/* Starts to activate act, at its first item of any kind. */
static void begin_activating(teffi_activation *act)
{
    act->phase = TEFFI_ACTIVATING;
    teffi_life_begin(act);
    if (!act->busy)
        finish_activating(act);
}

/* Handles an item of deadlock detection, or the bounce of a notification. Such items are rare, so
 * this function is not inlined: then handle_activation_item() selects among the other kinds of
 * items faster. */
__attribute__((noinline)) static void handle_rare_item(teffi_activation *act, teffi_item *item)
{
    if (item->kind == TEFFI_ITEM_VISIT) {
        teffi_stuck_check(act);
        teffi_deadlock_handle_visit(act, item);
    } else if (item->kind == TEFFI_ITEM_PROBE) {
        teffi_deadlock_handle_probe(act, teffi_container(item, teffi_msg, item));
    } else if (item->kind == TEFFI_ITEM_BOUNCE) {
        teffi_observers_handle_bounce(act, teffi_container(item, teffi_msg, item));
    } else {
        teffi_abort_for_bug(__FILE__, __LINE__, "an item of an unknown kind");
    }
}

/* The group's callback `handle`: handles one item, then does the activation's due work. If a turn
 * has yielded, resume_turn() does that work later. */
static void handle_activation_item(teffi_group *group, teffi_item *item)
{
    teffi_activation *act = teffi_container(group, teffi_activation, group);
    teff_ctx *ctx;
    if (act->phase == TEFFI_BORN)
        begin_activating(act);
    switch (item->kind) {
    case TEFFI_MSG_REQUEST:
    case TEFFI_MSG_ONEWAY:
        admit_or_redirect_request(act, teffi_container(item, teffi_msg, item));
        break;
    case TEFFI_ITEM_WAIT:
        if (atomic_load_explicit(&act->marks, memory_order_relaxed) & TEFFI_SUSPENDED)
            (void)atomic_fetch_and_explicit(&act->marks, (uint8_t)~TEFFI_SUSPENDED,
                                            memory_order_relaxed);
        teffi_turn_set_doing_on_resume(act, item);
        (void)teffi_wait_mark_done_and_resume(item, &ctx);
        break;
    case TEFFI_ITEM_CLOSURE:
        teffi_closure_run(item);
        break;
    case TEFFI_ITEM_NUDGE:
        clear_nudge_and_adopt_end_reason(act);
        break;
    default:
        handle_rare_item(act, item);
    }
    if (!teffi_group_has_yielded_turn(group))
        do_due_activation_work(act);
}

/* The group's callback `resume`: resumes the fiber of a turn that had yielded. */
static void resume_turn(teffi_group *group, teffi_fiber *fiber)
{
    (void)teffi_fiber_resume(fiber);
    if (!teffi_group_has_yielded_turn(group))
        do_due_activation_work(teffi_container(group, teffi_activation, group));
}

/* The group's callback `evict`: refuses a queued request, because the run queue is over its limit
 * and this grain has the lowest priority. A misdirected request is routed again. out: false: item
 * stays: it is no request, or it ends a transaction. */
static bool evict_request(teffi_group *group, teffi_item *item)
{
    teffi_activation *act = teffi_container(group, teffi_activation, group);
    if (item->kind != TEFFI_MSG_REQUEST && item->kind != TEFFI_MSG_ONEWAY)
        return false;
    teffi_msg *msg = teffi_container(item, teffi_msg, item);
    if (teffi_msg_ends_transaction(msg))
        return false;
    if (request_is_misdirected(act, msg))
        redirect_request(act, msg);
    else
        refuse_queued_request(act, msg, TEFF_E_OVERLOADED,
                              "evicted: more grains wait on this silo than may");
    return true;
}

static void describe_activation(teffi_group *group, char *text, size_t size)
{
    teffi_activation *act = teffi_container(group, teffi_activation, group);
    const char *doing = atomic_load_explicit(&act->doing, memory_order_relaxed);
    snprintf(text, size, "%s (grain in slot %u)", doing ? doing : "a new grain",
             atomic_load_explicit(&act->slot, memory_order_relaxed));
}

const teffi_group_ops teffi_activation_ops = {.handle = handle_activation_item,
                                              .ended = free_ended_activation,
                                              .resume = resume_turn,
                                              .evict = evict_request,
                                              .describe = describe_activation};
