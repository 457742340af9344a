/* recover.c - recovers LOCKED partitions: asks all other silos for their activations, in rounds;
 * and responds to other silos that recover. */
#include "directory/server.h"

#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "call/task.h"
#include "cluster.pb-c.h"
#include "cluster/membership.h"
#include "directory/client.h"
#include "node/ask.h"
#include "node/deliver.h"

enum {
    RECOVER_TIMEOUT_MS = 10000,
    TRIES_BEFORE =
        2, /* added to the tries of teffi_membership_await_change(): first pause 4 to 8 ms */
    RESPONSE_BYTES = 256 * 1024,
    RESPONSE_ENTRIES = 4000
};

typedef struct recovery {
    const teffi_view *view;
    uint8_t set[TEFFI_PARTITION_SET_BYTES];
    bool outdated;   /* there is a newer view to recover for */
    unsigned losers; /* in this round: activations that lost their grain to another one */
    unsigned failed; /* consecutive failed rounds */
} recovery;

/* ---- asking ---- */

/* Merges the activations of silo `from`, as listed in `response`, into this silo's partitions. If
 * two activations hold the same grain, the one with the higher PID is the loser. Asks the loser's
 * silo to end the loser, and waits for the response of that silo. out: r->outdated: true if a newer
 * view has changed the phase of one of the partitions. If an error is returned, the partitions must
 * stay LOCKED. */
static teff_err merge_response(teff_ctx *ctx, recovery *r, teffi_node_id from,
                               const Teff__Cluster__Recovered *response)
{
    teffi_grains *grains = ctx->node->grains;
    teff_err err = TEFF_OK;
    teffi_pid loser;
    for (size_t i = 0; i < response->n_entries && !err; i++) {
        const Teff__Cluster__Recovered__Entry *e = response->entries[i];
        if (!e->key.len || !e->slot)
            return teff_fail(ctx, TEFF_E_MALFORMED, "an entry without a key or a slot");
        teffi_ident ident =
            teffi_ident_of(&grains->secret, e->type, e->key.data, (uint32_t)e->key.len);
        err = teffi_partition_merge_activation(
            grains, &ident, (teffi_pid){from, e->slot, e->generation}, r->view->version, &loser);
        r->outdated = err == TEFF_E_CLOSED;
        if (err == TEFF_E_EXISTS) {
            r->losers++;
            err = teffi_directory_deactivate_loser(ctx, &ident, loser, r->view->version,
                                                   RECOVER_TIMEOUT_MS);
        } else if (err)
            teff_fail(ctx, err, "an entry could not be merged: %s", teff_err_name(err));
    }
    return err;
}

/* Called if a silo has responded for a view other than r->view. Adopts that silo's view if it is
 * newer. in: view, the version of that silo's view. out: r->outdated: true if that view, or a newer
 * view, was adopted. Always returns an error, because the round cannot succeed. */
static teff_err adopt_newer_view(teff_ctx *ctx, recovery *r, uint64_t view)
{
    if (view <= r->view->version)
        return teff_fail(ctx, TEFF_E_MALFORMED, "a response for view %llu",
                         (unsigned long long)view);
    teff_err err = teffi_membership_refresh(ctx, view);
    r->outdated = !err;
    return err ? err : TEFF_E_UNAVAILABLE;
}

/* Asks silo `from` for the next part of its activations, and merges them. out: ask->cursor: where
 * the next part begins; 0 after the last part. */
static teff_err recover_part(teff_ctx *ctx, recovery *r, teffi_node_id from,
                             Teff__Cluster__Recover *ask)
{
    ProtobufCMessage *body;
    teff_err err =
        teffi_ctx_run_rpc(ctx, from, TEFFI_SLOT_DIRECTORY, TEFFI_METHOD_RECOVER, &ask->base,
                          RECOVER_TIMEOUT_MS, &teff__cluster__recovered__descriptor, &body);
    if (err)
        return err;
    const Teff__Cluster__Recovered *response = (const Teff__Cluster__Recovered *)body;
    if (response->view != ask->view)
        return adopt_newer_view(ctx, r, response->view);
    ask->cursor = response->cursor;
    return merge_response(ctx, r, from, response);
}

/* Asks silo `from` for all its activations, in parts. Frees each response before the next request,
 * because all responses together could exceed message_bytes_max. */
static teff_err recover_from_silo(teff_ctx *ctx, recovery *r, teffi_node_id from)
{
    Teff__Cluster__Recover ask = TEFF__CLUSTER__RECOVER__INIT;
    teff_err err;
    ask.view = r->view->version;
    ask.partitions.data = (uint8_t *)(uintptr_t)r->set;
    ask.partitions.len = sizeof r->set;
    do {
        teff_mark here = teff_ctx_mark(ctx);
        err = recover_part(ctx, r, from, &ask);
        teff_ctx_rewind(ctx, here);
    } while (!err && ask.cursor);
    return err;
}

/* Asks all other silos of r->view for their activations. This silo's own activations need no
 * request: they are in its index. A silo that does not respond is probed from now on: if it cannot
 * be reached, one of the two silos must leave the cluster. */
static teff_err recover_from_other_silos(teff_ctx *ctx, recovery *r)
{
    teff_err err = TEFF_OK;
    for (size_t i = 0; i < r->view->n_members && !err; i++) {
        teffi_node_id member = r->view->members[i].node;
        if (!teffi_node_equals(member, ctx->node->id))
            err = recover_from_silo(ctx, r, member);
        if (err == TEFF_E_TIMEOUT)
            teffi_membership_record_connection_state(ctx->node->membership, member, false);
    }
    return err;
}

/* Refreshes the view. out: true if the view is now newer than r->view. In that case the next round
 * asks the silos of the newer view, and no longer asks silos that have left the cluster. */
static bool refresh_to_newer_view(teff_ctx *ctx, const recovery *r)
{
    return teffi_membership_refresh(ctx, 0) == TEFF_OK &&
           teffi_membership_version(ctx->node) > r->view->version;
}

/* Asks all other silos once for their activations. If all have responded, makes the partitions of
 * r->set SERVING. Otherwise, unless there is a newer view, waits until the membership changes or a
 * pause has passed. The pause grows with each failed round. */
static void run_recovery_round(teff_ctx *ctx, recovery *r)
{
    teffi_grains *grains = ctx->node->grains;
    /* loaded before the round: if a change comes during the round, the wait below ends at once */
    uint64_t seen = grains->node->membership->follow.changes.count;
    r->outdated = false;
    teff_err err = recover_from_other_silos(ctx, r);
    if (r->losers)
        teffi_logf(&grains->node->platform->log, TEFF_LOG_WARN,
                   "directory: %u grains were held twice; one activation of each was ended",
                   r->losers);
    r->losers = 0;
    if (!err)
        teffi_partitions_start_serving(grains, r->set, r->view->version);
    char why[TEFF_TEXT_MAX];
    snprintf(why, sizeof why, "%s", teff_error(ctx)); /* the refresh may replace ctx's text */
    if (!err || r->outdated || refresh_to_newer_view(ctx, r)) {
        r->failed = 0;
        return;
    }
    if (r->failed == 0)
        teffi_logf(&grains->node->platform->log, TEFF_LOG_WARN,
                   "directory: recovery for view %llu is tried again: %s",
                   (unsigned long long)r->view->version, why);
    teffi_membership_await_change(ctx, seen, r->failed + TRIES_BEFORE);
    r->failed++;
    (void)!teffi_membership_refresh(ctx, 0);
}

/* Finds the partitions that this silo must recover: the LOCKED ones. If set is not NULL, lists them
 * in set and frees their entries. out: true: there are some. false: there are none, or this silo
 * must not recover them because it is closing or its lease is over. */
static bool prepare_partitions_to_recover(teffi_grains *grains, uint8_t *set)
{
    return !grains->closed && !teffi_lease_is_over(&grains->node->home.lease) &&
           teffi_partitions_begin_recovery_round(grains, set);
}

/* Clears `recovering`, at the end of the task or when the timer fires. Starts the task again if
 * partitions are LOCKED. */
static void end_or_restart_recovery(teffi_grains *grains)
{
    grains->shards->recovering = false;
    /* A view that was adopted after the last round may have locked more partitions. At that time
     * teffi_recover_start() did nothing for them, because `recovering` was set. */
    if (prepare_partitions_to_recover(grains, NULL))
        teffi_recover_start(grains);
}

/* The recovery task: runs rounds until there are no partitions to recover. */
static void run_recovery_rounds(teff_ctx *ctx, void *arg)
{
    teffi_grains *grains = arg;
    recovery r = {0};
    bool wanted;
    do {
        r.view = teffi_view_ref_current(grains->node);
        wanted = prepare_partitions_to_recover(grains, r.set);
        teff_mark here = teff_ctx_mark(ctx);
        if (wanted)
            run_recovery_round(ctx, &r);
        teff_ctx_rewind(ctx, here); /* there may be any number of rounds */
        teffi_view_unref(r.view);
    } while (wanted);
    end_or_restart_recovery(grains);
}

static void on_recover_timer(teffi_timer *timer)
{
    teffi_shards *shards = teffi_container(timer, teffi_shards, recover_timer);
    end_or_restart_recovery(shards->grains);
}

/* Sets a timer that starts the recovery task. Without the timer, only a new view would start the
 * task, and a new view may never come. out: false: the silo is closing, no timer was set. */
static bool start_recovery_later(teffi_grains *grains)
{
    enum { PAUSE_MS = 100 };
    teffi_shards *shards = grains->shards;
    teffi_exec *exec = grains->node->home.exec;
    uint64_t due_ns = teffi_now(grains->node->platform) + PAUSE_MS * 1000000ull;
    pthread_mutex_lock(&shards->parked_lock);
    bool sets = !grains->closed;
    shards->recover_timer.fire = on_recover_timer;
    if (sets)
        exec->ops->timer_set(exec, &shards->recover_timer, due_ns);
    pthread_mutex_unlock(&shards->parked_lock);
    return sets;
}

void teffi_recover_start(teffi_grains *grains)
{
    if (atomic_exchange(&grains->shards->recovering, true))
        return;
    if (!teffi_task_start(&grains->node->home, run_recovery_rounds, grains, "directory: recover",
                          true))
        return;
    teffi_logf(&grains->node->platform->log, TEFF_LOG_ERROR, "directory: out of memory to recover");
    if (!start_recovery_later(grains))
        grains->shards->recovering = false;
}

void teffi_recover_cancel_timer(teffi_grains *grains)
{
    teffi_shards *shards = grains->shards;
    teffi_exec *exec = grains->node->home.exec;
    /* The caller has set `closed`. start_recovery_later() loads `closed` and sets the timer under
     * this lock, so it sets no timer after the cancel below. */
    pthread_mutex_lock(&shards->parked_lock);
    exec->ops->timer_cancel(exec, &shards->recover_timer);
    pthread_mutex_unlock(&shards->parked_lock);
}

/* ---- responding ---- */

typedef struct listing {
    teffi_msg *msg; /* its arena holds the entries */
    Teff__Cluster__Recovered__Entry **entries;
    size_t n, bytes;
    bool failed;
} listing;

/* Adds act to the response if act is registered. out: false, which ends the walk, if the response
 * is full, or if no memory is left (l->failed is set). */
static bool add_registered_to_response(void *arg, teffi_activation *act)
{
    listing *l = arg;
    if (!act->registered)
        return true;
    teffi_ident ident = teffi_activation_ident(act);
    Teff__Cluster__Recovered__Entry *e = teff_arena_alloc(&l->msg->arena, sizeof *e);
    uint8_t *key = teff_arena_copy(&l->msg->arena, ident.key, ident.key_len);
    if (!e || !key) {
        l->failed = true;
        return false;
    }
    teff__cluster__recovered__entry__init(e);
    e->type = ident.type;
    e->key = (ProtobufCBinaryData){ident.key_len, key};
    e->slot = act->slot;
    e->generation = act->generation;
    l->entries[l->n++] = e;
    l->bytes += ident.key_len + 24u; /* about 24 bytes for the other fields */
    return l->n < RESPONSE_ENTRIES && l->bytes < RESPONSE_BYTES;
}

void teffi_recover_respond(teffi_grains *grains, teffi_msg *msg)
{
    const Teff__Cluster__Recover *ask = (const Teff__Cluster__Recover *)msg->body;
    Teff__Cluster__Recovered response = TEFF__CLUSTER__RECOVERED__INIT;
    listing l = {.msg = msg};
    response.view = grains->shards->version;
    if (response.view != ask->view) { /* the sender compares the views, too: recover_part() */
        teffi_node_respond_with_body(grains->node, msg, &response.base);
        return;
    }
    l.entries = teff_arena_alloc(&msg->arena, RESPONSE_ENTRIES * sizeof *l.entries);
    if (ask->partitions.len != TEFFI_PARTITION_SET_BYTES) {
        teffi_node_respond_with_err(grains->node, msg, TEFF_E_INVALID,
                                    "directory: a set of 256 partitions expected");
        return;
    }
    l.failed = !l.entries;
    response.cursor = ask->cursor; /* the walk sets it to 0 at the end */
    if (l.entries)
        (void)teffi_shards_walk_activations(grains, ask->partitions.data, &response.cursor,
                                            add_registered_to_response, &l);
    response.entries = l.entries;
    response.n_entries = l.n;
    if (l.failed)
        teffi_node_respond_with_err(grains->node, msg, TEFF_E_NOMEM, "directory: out of memory");
    else
        teffi_node_respond_with_body(grains->node, msg, &response.base);
}
