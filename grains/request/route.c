/* route.c - choose the next step of each request for a grain; a table of look-ups under way, with
 * the requests that wait for each.
 * Threads: look-ups under the shard's lock; once a look-up's task has started, only that task
 *          removes the entry. */
#include "request/route.h"

#include <stdlib.h>
#include "activation/type.h"
#include "call/call.h"
#include "call/task.h"
#include "cluster/membership.h"
#include "directory/client.h"
#include "directory/location_cache.h"
#include "directory/partition.h"
#include "directory/placement.h"
#include "directory/stateless.h"
#include "node/deliver.h"

static void locate_grain_again(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg);

/* ---- to an activation here, or to another silo ---- */

/* Ends msg with err, the error of a push to a queue or of the transport. in: full: the text for
 * TEFF_E_OVERLOADED if the silo's message budget is not the reason. */
static void end_request_with_error(teffi_grains *grains, teffi_msg *msg, teff_err err,
                                   const char *full)
{
    static const char *const large = "the request is larger than a frame may be";
    if (teffi_budget_is_exceeded(grains->node->budget))
        full = "the silo's messages take more memory than message_bytes_max allows";
    const char *text = err == TEFF_E_OVERLOADED ? full : err == TEFF_E_TOO_LARGE ? large : NULL;
    teffi_node_respond_with_err(grains->node, msg, err, text);
}

/* out: the text for TEFF_E_OVERLOADED of a push to the grain's activation here. Not inlined, so
 * that its callers are. */
__attribute__((noinline)) static const char *explain_refused_push(teffi_grains *grains,
                                                                  const teffi_ident *ident)
{
    uint64_t n = atomic_load_explicit(&grains->shards->activations, memory_order_relaxed);
    return teffi_shards_are_full(grains, n) && !teffi_shard_has_activation(grains, ident, NULL)
               ? "more grains are active on this silo than activations_max allows, and too few of "
                 "them have ended yet; the call did not run"
               : "the grain's queue is full";
}

/* Copies into msg the memory that it borrows from its caller, because msg may be used longer than
 * that memory is valid. out: false: the copy failed, and msg was ended with TEFF_E_NOMEM. */
static bool copy_borrowed_or_end_request(teffi_grains *grains, teffi_msg *msg)
{
    if (teffi_msg_copy_borrowed(msg))
        return true;
    teffi_node_respond_with_err(grains->node, msg, TEFF_E_NOMEM, "out of memory for a request");
    return false;
}

/* After how many attempts a message without a deadline is given up. Attempts after the first ten or
 * so are up to a second apart: then no silo has taken the message for about half a minute. */
enum { TRIES_MAX = 50 };

/* Is it too late to deliver msg? A one-way message of a silo has no deadline, so its tries are
 * limited: otherwise, a silo that has left the cluster and cannot connect to any other silo would
 * try to forward the message for ever. */
static bool request_is_expired(const teffi_grains *grains, const teffi_msg *msg)
{
    return msg->deadline_ns ? teffi_now(grains->node->platform) >= msg->deadline_ns
                            : msg->tries >= TRIES_MAX;
}

/* Pushes msg to the grain's activation here, or ends msg with an error. in: create: make an
 * activation if there is none. out: false: there is no activation here, and none was made; the
 * caller still owns msg. */
static bool push_to_local_activation(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                                     bool create)
{
    teff_err err = teffi_shard_push_request(grains, ident, msg, create);
    if (err && err != TEFF_E_NOT_FOUND)
        end_request_with_error(grains, msg, err, explain_refused_push(grains, ident));
    return err != TEFF_E_NOT_FOUND;
}

/* Undoes send_to_silo(), drops the cached location, and locates the grain again. Called only if it
 * is certain that msg did not reach silo `to`. */
static void undo_send_and_locate_again(teffi_grains *grains, const teffi_ident *ident,
                                       teffi_msg *msg, teffi_node_id to)
{
    msg->hops--;
    msg->flags &= (uint16_t)~TEFFI_MSG_PLACED;
    teffi_location_drop(grains->location_cache, ident->hash, to);
    if (copy_borrowed_or_end_request(grains, msg))
        locate_grain_again(grains, ident, msg);
}

/* Sends msg to another silo, which holds or may hold the grain. Owns msg: if it cannot be sent, it
 * is routed again or ends with an error; if its caller has cancelled it, it is freed. */
static void send_to_silo(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                         teffi_node_id to)
{
    teffi_node *node = grains->node;
    if (msg->hops++ >= TEFFI_HOPS_MAX) {
        teffi_node_respond_with_err(node, msg, TEFF_E_UNAVAILABLE,
                                    "the request was forwarded too often");
        return;
    }
    teff_err err = teffi_node_become_sender(node, msg);
    if (err == TEFF_E_CANCELLED) {
        teffi_msg_free(msg); /* its call has ended: no response is needed */
        return;
    }
    if (err) {
        teffi_node_respond_with_err(
            node, msg, err,
            "the silo that must forward the request cannot: too many forwarded requests of the "
            "caller's node have no response yet, or memory is out");
        return;
    }
    msg->to = (teffi_pid){.node = to};
    if (msg->item.kind == TEFFI_MSG_REQUEST &&
        !teffi_call_sign_and_check_cancel(&node->home, msg, to)) {
        teffi_msg_free(msg); /* cancelled meanwhile: no response is needed */
        return;
    }
    err = node->home.net->ops->send(node->home.net, to, msg);
    if (err == TEFF_E_CLOSED || err == TEFF_E_UNREACHABLE)
        undo_send_and_locate_again(grains, ident, msg, to);
    else if (err)
        end_request_with_error(grains, msg, err,
                               "too many bytes wait to be sent to the grain's silo: the limit is "
                               "connection_bytes_max");
}

/* Passes msg to silo `to`, which may be this silo. in: create: if `to` is this silo and has no
 * activation of the grain, make one. */
static void route_to_silo(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                          teffi_node_id to, bool create)
{
    if (!teffi_node_equals(to, grains->node->id)) {
        /* Cached, so that later requests go there too instead of being placed again. */
        teffi_location_put(grains->location_cache, ident->hash, to);
        send_to_silo(grains, ident, msg, to);
    } else if (!push_to_local_activation(grains, ident, msg, create)) {
        locate_grain_again(grains, ident, msg);
    }
}

/* Passes msg to silo *placed, which activates the grain. If *placed is zero, first chooses a silo
 * for the grain and stores it in *placed. If no silo can be chosen, ends msg with an error. */
static void place_grain_and_send(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                                 teffi_node_id *placed)
{
    if (teffi_node_is_none(*placed))
        *placed = teffi_placement_choose_silo(grains, ident, msg->flags);
    if (teffi_node_is_none(*placed)) {
        teffi_placement_respond_error(grains, msg,
                                      teffi_find_newest_type_version(grains, ident->type));
        return;
    }
    msg->flags |= TEFFI_MSG_PLACED;
    route_to_silo(grains, ident, msg, *placed, true);
}

/* ---- stateless workers ---- */

/* Is the type of msg a stateless worker that this silo hosts, in the caller's version or a newer
 * one? in: type, NULL: it is not hosted. */
static bool hosts_stateless_worker(const teff_grain_type *type, const teffi_msg *msg)
{
    return type && teffi_type_is_stateless(type) &&
           type->info->version >= teffi_flags_type_version(msg->flags);
}

/* Sends msg to another silo that hosts its stateless worker. If this silo is the only host in the
 * view, it has begun to leave, and msg waits for a change of the view: then there is another host,
 * or none, since no silo counts as a host from when its row says that it leaves. If there is no
 * host, ends msg with an error. */
static void send_to_other_host(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg)
{
    teffi_node_id to = teffi_placement_choose_silo(grains, ident, msg->flags);
    if (!teffi_node_is_none(to)) {
        send_to_silo(grains, ident, msg, to);
        return;
    }
    int64_t newest = teffi_find_newest_type_version(grains, ident->type);
    if (newest < (int64_t)teffi_flags_type_version(msg->flags))
        teffi_placement_respond_error(grains, msg, newest);
    else
        locate_grain_again(grains, ident, msg);
}

/* Routes msg if it is for a stateless worker: to an activation here, or to a silo that hosts the
 * type. Exception: if the type is no stateless worker on this silo, msg is routed as one for a
 * grain with placement RANDOM. Not inlined, so that its caller is short for other grains.
 * out:  false: nothing was done. in: msg: borrows no memory. */
__attribute__((noinline)) static bool
route_to_stateless_worker(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg)
{
    const teff_grain_type *type = teffi_type_find(grains, ident->type);
    if (type && !teffi_type_is_stateless(type)) {
        msg->flags = teffi_flags_place_at_random(msg->flags);
        return false;
    }
    teff_err err = hosts_stateless_worker(type, msg)
                       ? teffi_stateless_push_request(grains, ident, msg)
                       : TEFF_E_NOT_FOUND;
    if (err == TEFF_E_NOT_FOUND)
        send_to_other_host(grains, ident, msg);
    else if (err)
        end_request_with_error(grains, msg, err, explain_refused_push(grains, ident));
    return true;
}

/* As route_to_stateless_worker(), for any msg. */
static inline bool route_if_stateless(teffi_grains *grains, const teffi_ident *ident,
                                      teffi_msg *msg)
{
    return teffi_flags_placement_strategy(msg->flags) == TEFF_PLACE_STATELESS &&
           route_to_stateless_worker(grains, ident, msg);
}

/* ---- look-ups ---- */

typedef struct lookup { /* the look-up of one grain */
    teffi_tnode node;   /* in teffi_shard.lookups */
    teffi_grains *grains;
    teffi_ident ident;   /* its key is in bytes */
    teffi_queue waiting; /* requests (teffi_msg.link) */
    /* latest deadline of the requests; written under the lock; relaxed: it only rises */
    _Atomic uint64_t until_ns;
    /* highest msg->tries of requests located again since the last look-up; over 0: pause first */
    uint8_t tries;
    uint8_t bytes[];
} lookup;

static void free_lookup(lookup *entry)
{
    teffi_qnode *n;
    while ((n = teffi_queue_pop(&entry->waiting)))
        teffi_msg_free(teffi_container(n, teffi_msg, link));
    free(entry);
}

void teffi_lookups_fini(teffi_grains *grains)
{
    for (int i = 0; i < TEFFI_PARTITIONS; i++) {
        teffi_table *table = &grains->shards->at[i].lookups;
        size_t at = 0;
        teffi_tnode *next = NULL, *node;
        while ((node = teffi_table_next_node(table, &at, &next)))
            free_lookup(teffi_container(node, lookup, node));
        teffi_table_fini(table);
    }
}

/* Changes the look-up counter of hash. in: more: 1, or (uint32_t)-1 to subtract 1. The shard's lock
 * is held. */
static void change_lookup_count(teffi_grains *grains, uint64_t hash, uint32_t more)
{
    /* release: pairs with teffi_lookup_may_exist() */
    atomic_fetch_add_explicit(teffi_lookup_counter(grains, hash), more, memory_order_release);
}

/* The shard's lock is held. */
static lookup *find_lookup(teffi_shard *shard, const teffi_ident *ident)
{
    teffi_tnode *node = teffi_table_find_first(&shard->lookups, ident->hash);
    for (; node; node = teffi_table_find_next(node)) {
        lookup *entry = teffi_container(node, lookup, node);
        if (teffi_ident_equals(&entry->ident, ident))
            return entry;
    }
    return NULL;
}

bool teffi_lookup_exists(teffi_grains *grains, const teffi_ident *ident)
{
    teffi_shard *shard = teffi_shard_of(grains, ident->hash);
    pthread_mutex_lock(&shard->lock);
    bool waits = find_lookup(shard, ident) != NULL;
    pthread_mutex_unlock(&shard->lock);
    return waits;
}

bool teffi_lookups_are_pending(const teffi_grains *grains)
{
    for (uint64_t i = 0; i < TEFFI_LOOKING; i++)
        if (teffi_lookup_may_exist(grains, i << 8)) /* a hash of the i-th counter */
            return true;
    return false;
}

/* Chooses one of three steps, and sets entry->tries to 0:
 *  - No request waits: removes the look-up from the table.
 *  - The look-up has a valid outcome: moves all waiting requests to *waiting.
 *  - Otherwise: leaves the requests where they are. The caller must ask the directory.
 * The outcome is valid if `asked` is true and entry->tries was 0. If entry->tries was over 0, a
 * request joined that had failed to reach its grain before. So the outcome may be out of date.
 * in:  asked: the directory was asked. out: *tries: the previous entry->tries. false: the look-up
 *      was removed. */
static bool move_waiting_or_remove_lookup(lookup *entry, bool asked, teffi_queue *waiting,
                                          unsigned *tries)
{
    teffi_shard *shard = teffi_shard_of(entry->grains, entry->ident.hash);
    pthread_mutex_lock(&shard->lock);
    bool any = entry->waiting.count > 0;
    *tries = entry->tries;
    entry->tries = 0;
    if (!any) {
        teffi_table_del(&shard->lookups, &entry->node);
        change_lookup_count(entry->grains, entry->ident.hash, (uint32_t)-1);
    } else if (asked && *tries == 0) {
        teffi_queue_move(waiting, &entry->waiting);
    }
    pthread_mutex_unlock(&shard->lock);
    return any;
}

typedef struct outcome { /* of a look-up, for all its requests */
    teff_err err;
    /* TEFF_OK: the holder's. TEFF_E_NOT_FOUND: where the first request placed the grain, so that
     * all of them go there; zero until then */
    teffi_node_id silo;
} outcome;

/* Looks up the grain in the directory. If the directory names this silo but the grain has no
 * activation here, removes this stale entry from the directory, and the outcome is
 * TEFF_E_NOT_FOUND. (The activation has ended, but its unregistration was lost when the directory's
 * partition changed its owner.) */
static outcome ask_directory(teff_ctx *ctx, lookup *entry)
{
    teffi_grains *grains = entry->grains;
    teffi_pid holder = {0};
    if (grains->closed)
        return (outcome){
            .err = teff_fail(ctx, TEFF_E_UNAVAILABLE, "the silo is closing; the call did not run")};
    teff_err err = teffi_directory_lookup(ctx, &entry->ident, &entry->until_ns, &holder);
    if (!err && teffi_node_equals(holder.node, ctx->node->id) &&
        !teffi_shard_has_activation(grains, &entry->ident, NULL)) {
        err = teffi_directory_unregister(ctx, &entry->ident, holder);
        err = err ? err : TEFF_E_NOT_FOUND;
    }
    return (outcome){.err = err, .silo = err ? (teffi_node_id){0} : holder.node};
}

/* Forwards msg according to the outcome of the look-up, or ends msg with an error. */
static void forward_by_lookup_outcome(teff_ctx *ctx, lookup *entry, teffi_msg *msg, outcome *o)
{
    teffi_grains *grains = entry->grains;
    if (request_is_expired(grains, msg))
        teffi_node_respond_with_err(ctx->node, msg, TEFF_E_TIMEOUT,
                                    "expired before its grain was found; the call did not run");
    else if (o->err == TEFF_E_TIMEOUT) /* msg joined just after the look-up's last deadline check */
        locate_grain_again(grains, &entry->ident, msg);
    else if (o->err && o->err != TEFF_E_NOT_FOUND)
        teffi_node_respond_with_err(ctx->node, msg, o->err, teff_error(ctx));
    else if (route_if_stateless(grains, &entry->ident, msg))
        return;
    else if (o->err == TEFF_OK)
        route_to_silo(grains, &entry->ident, msg, o->silo, false);
    else
        place_grain_and_send(grains, &entry->ident, msg, &o->silo);
}

/* Forwards the waiting requests for stateless workers, which need no look-up. Exception: if the
 * type is no stateless worker on this silo, or the silo is closing, forwards none. out: does
 * another request wait? */
static bool forward_stateless_requests(teff_ctx *ctx, lookup *entry)
{
    teffi_grains *grains = entry->grains;
    const teff_grain_type *type = teffi_type_find(grains, entry->ident.type);
    teffi_shard *shard = teffi_shard_of(grains, entry->ident.hash);
    teffi_queue forwarded = {0}, others = {0};
    outcome not_asked = {.err = TEFF_E_NOT_FOUND};
    teffi_qnode *n;
    if (grains->closed || (type && !teffi_type_is_stateless(type)))
        return true;
    pthread_mutex_lock(&shard->lock);
    while ((n = teffi_queue_pop(&entry->waiting))) {
        uint16_t flags = teffi_container(n, teffi_msg, link)->flags;
        bool stateless = teffi_flags_placement_strategy(flags) == TEFF_PLACE_STATELESS;
        teffi_queue_push(stateless ? &forwarded : &others, n);
    }
    teffi_queue_move(&entry->waiting, &others);
    bool any = entry->waiting.count > 0;
    pthread_mutex_unlock(&shard->lock);
    while ((n = teffi_queue_pop(&forwarded)))
        forward_by_lookup_outcome(ctx, entry, teffi_container(n, teffi_msg, link), &not_asked);
    return any;
}

/* The task of a look-up: asks the directory, and forwards the waiting requests, including those
 * that join later, until no request waits. If a joining request has already failed to reach its
 * grain (tries is not 0), the task first waits until the cluster changes or the back-off has
 * passed, and then asks the directory again. Requests for stateless workers only wait: the
 * directory does not know their silos, and its partition may be of a silo that has crashed. */
static void run_lookup_task(teff_ctx *ctx, void *arg)
{
    lookup *entry = arg;
    teffi_membership *membership = ctx->node->membership;
    uint64_t seen = membership->follow.changes.count;
    teffi_queue waiting = {0};
    teffi_qnode *n;
    outcome o = {.err = TEFF_OK};
    unsigned tries;
    for (bool asked = false; move_waiting_or_remove_lookup(entry, asked, &waiting, &tries);) {
        while ((n = teffi_queue_pop(&waiting)))
            forward_by_lookup_outcome(ctx, entry, teffi_container(n, teffi_msg, link), &o);
        if (asked && !tries)
            continue; /* next: the requests that have joined meanwhile */
        if (tries)
            teffi_membership_await_change(ctx, seen, tries + 1);
        seen = membership->follow.changes.count;
        asked = forward_stateless_requests(ctx, entry);
        if (asked)
            o = ask_directory(ctx, entry);
    }
    free(entry);
}

static lookup *new_lookup(teffi_grains *grains, const teffi_ident *ident)
{
    lookup *entry = calloc(1, sizeof *entry + ident->key_len);
    if (!entry)
        return NULL;
    entry->grains = grains;
    entry->ident = *ident;
    entry->ident.key = entry->bytes;
    memcpy(entry->bytes, ident->key, ident->key_len);
    return entry;
}

/* Adds msg to the requests that wait for the look-up. The shard's lock is held.
 * errs: TEFF_E_OVERLOADED: the caller still owns msg. */
static teff_err add_waiting_request(lookup *entry, teffi_msg *msg)
{
    uint64_t until_ns = msg->deadline_ns ? msg->deadline_ns : UINT64_MAX;
    teffi_msg_charge(msg, entry->grains->node->budget);
    if (entry->waiting.count >= TEFFI_QUEUE_DEFAULT ||
        teffi_budget_is_exceeded(entry->grains->node->budget))
        return TEFF_E_OVERLOADED;
    teffi_queue_push(&entry->waiting, &msg->link);
    if (entry->tries < msg->tries)
        entry->tries = msg->tries;
    if (until_ns > atomic_load_explicit(&entry->until_ns, memory_order_relaxed))
        atomic_store_explicit(&entry->until_ns, until_ns, memory_order_relaxed);
    return TEFF_OK;
}

/* Begins a look-up with msg as its first request. The shard's lock is held. errs: the caller still
 * owns msg. */
static teff_err begin_lookup(teffi_grains *grains, teffi_shard *shard, const teffi_ident *ident,
                             teffi_msg *msg)
{
    lookup *entry = new_lookup(grains, ident);
    teff_err err = entry ? add_waiting_request(entry, msg) : TEFF_E_NOMEM;
    if (!err && !teffi_table_add(&shard->lookups, &entry->node, ident->hash))
        err = TEFF_E_NOMEM;
    else if (!err) {
        err =
            teffi_task_start(&grains->node->home, run_lookup_task, entry, "locate a grain", false);
        if (err)
            teffi_table_del(&shard->lookups, &entry->node);
    }
    if (err)
        free(entry);
    else
        change_lookup_count(grains, ident->hash, 1);
    return err;
}

/* Adds msg to the grain's look-up. If the grain has no look-up and `begin` is true, begins one. If
 * msg cannot be added, ends msg with an error. out: false: there was no look-up, and `begin` is
 * false; the caller still owns msg. */
static bool join_lookup(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg, bool begin)
{
    teffi_shard *shard = teffi_shard_of(grains, ident->hash);
    pthread_mutex_lock(&shard->lock);
    lookup *entry = find_lookup(shard, ident);
    teff_err err = entry   ? add_waiting_request(entry, msg)
                   : begin ? begin_lookup(grains, shard, ident, msg)
                           : TEFF_OK;
    pthread_mutex_unlock(&shard->lock);
    if (err)
        teffi_node_respond_with_err(
            grains->node, msg, err,
            err == TEFF_E_NOMEM ? "out of memory to locate the grain"
                                : "too many requests wait for this grain's place, or their bytes "
                                  "are over message_bytes_max");
    return entry || begin;
}

/* Looks up the grain of msg again, after a change of the cluster or after a pause that grows with
 * each try (teffi_membership_await_change), whichever is first. Ends msg with an error if msg
 * cannot join the look-up, or if this silo's lease is over: without a lease, the silo learns of no
 * change. */
static void locate_grain_again(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg)
{
    if (teffi_lease_is_over(&grains->node->home.lease)) {
        teffi_node_respond_with_err(grains->node, msg, TEFF_E_UNAVAILABLE, teffi_lease_over_text);
        return;
    }
    if (msg->tries < UINT8_MAX)
        msg->tries++;
    (void)join_lookup(grains, ident, msg, true);
}

/* ---- the next step ---- */

/* Pushes msg, which ends a transaction, to the grain's activation here. The transaction has locked
 * that activation. If the activation no longer exists, the lock does not exist either, and msg is
 * freed. */
static void push_transaction_end_or_free_msg(teffi_grains *grains, const teffi_ident *ident,
                                             teffi_msg *msg)
{
    if (!push_to_local_activation(grains, ident, msg, false))
        teffi_msg_free(msg);
}

void teffi_reroute_unsent_request(teffi_grains *grains, teffi_msg *msg, teffi_node_id to)
{
    teffi_ident ident = teffi_ident_of_request(&grains->secret, msg);
    if (teffi_msg_ends_transaction(msg))
        teffi_msg_free(msg); /* if the grain is still locked, the lock's watch ends the lock */
    else if (grains->closed)
        teffi_node_respond_with_err(grains->node, msg, TEFF_E_UNAVAILABLE,
                                    "the silo is closing; the call did not run");
    else
        undo_send_and_locate_again(grains, &ident, msg, to);
}

void teffi_route_to_current_holder(teffi_grains *grains, teffi_msg *msg, teffi_node_id winner)
{
    teffi_ident ident = teffi_ident_of_request(&grains->secret, msg);
    route_to_silo(grains, &ident, msg, winner, false);
}

/* If this silo serves the grain's partition of the directory, routes msg at once. Otherwise, begins
 * or joins a look-up. Also does so if the partition names this silo as the holder, because
 * ask_directory() then checks that the activation exists. in: msg: borrows no memory. */
static void route_by_directory(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg)
{
    teffi_pid holder;
    teffi_node_id placed = {0};
    teff_err err = teffi_partition_push_or_choose_silo(grains, ident, msg, &placed);
    if (err == TEFF_OK) /* activated here, and msg was pushed */
        return;
    if (err == TEFF_E_UNAVAILABLE)
        err = teffi_partition_execute_directory_method(grains, TEFFI_METHOD_LOOKUP, ident,
                                                       (teffi_pid){0}, &holder, NULL);
    if (err == TEFF_E_NOT_FOUND)
        place_grain_and_send(grains, ident, msg, &placed);
    else if (err == TEFF_OK && !teffi_node_equals(holder.node, grains->node->id))
        route_to_silo(grains, ident, msg, holder.node, false);
    else if (err == TEFF_OK || err == TEFF_E_UNAVAILABLE) /* OK: this silo is the holder */
        (void)join_lookup(grains, ident, msg, true);
    else
        end_request_with_error(grains, msg, err, explain_refused_push(grains, ident));
}

/* Routes msg; its grain is not on this silo. If `location` is not zero, sends msg to that silo.
 * Otherwise, routes msg by the directory. in: location: zero, or a silo of the current view. A silo
 * that has left the view must get no requests, even if its connections are still open. */
static void route_to_location_or_by_directory(teffi_grains *grains, const teffi_ident *ident,
                                              teffi_msg *msg, teffi_node_id location)
{
    if (!teffi_node_is_none(location))
        send_to_silo(grains, ident, msg, location);
    else if (copy_borrowed_or_end_request(grains, msg))
        route_by_directory(grains, ident, msg);
}

void teffi_route(teffi_grains *grains, teffi_msg *msg)
{
    teffi_ident ident = teffi_ident_of_request(&grains->secret, msg);
    bool placed = msg->flags & TEFFI_MSG_PLACED;
    /* The deadline is not checked on the first two hops: a request is unlikely to expire so early,
     * and the activation checks the deadline again before the turn. */
    if (msg->hops > 1 && request_is_expired(grains, msg)) {
        teffi_node_respond_with_err(grains->node, msg, TEFF_E_TIMEOUT,
                                    "expired before it could run");
        return;
    }
    if (teffi_lease_is_over(&grains->node->home.lease)) {
        teffi_node_respond_with_err(grains->node, msg, TEFF_E_UNAVAILABLE, teffi_lease_over_text);
        return;
    }
    if (teffi_msg_ends_transaction(msg)) {
        push_transaction_end_or_free_msg(grains, &ident, msg);
        return;
    }
    if (route_if_stateless(grains, &ident, msg))
        return;
    /* Keep the order: msg goes behind earlier requests that wait for a look-up. */
    if (!placed && teffi_lookup_may_exist(grains, ident.hash) &&
        join_lookup(grains, &ident, msg, false))
        return;
    if (push_to_local_activation(grains, &ident, msg, placed))
        return;
    if (msg->hops && !placed)
        teffi_directory_send_moved_message(grains, &ident, msg->src);
    msg->flags &= (uint16_t)~TEFFI_MSG_PLACED;
    teffi_node_id location = {0};
    if (!msg->hops) /* two wrong cached locations would send a forwarded request in a circle */
        location = teffi_location_get(grains->location_cache, ident.hash);
    route_to_location_or_by_directory(grains, &ident, msg, location);
}

/* Does not search this silo for the grain's activation, because the caller has found none. If one
 * was made here since then, msg still reaches it, through silo `location` or the directory. */
void teffi_route_elsewhere(teffi_grains *grains, teffi_msg *msg, teffi_node_id location)
{
    teffi_ident ident = teffi_ident_of_request(&grains->secret, msg);
    route_to_location_or_by_directory(grains, &ident, msg, location);
}

void teffi_route_again(teffi_grains *grains, teffi_msg *msg)
{
    if (msg->hops++ >= TEFFI_HOPS_MAX) {
        teffi_node_respond_with_err(grains->node, msg, TEFF_E_UNAVAILABLE,
                                    "the grain keeps ending");
        return;
    }
    msg->flags &= (uint16_t)~TEFFI_MSG_PLACED;
    teffi_route(grains, msg);
}
