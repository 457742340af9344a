/* lifecycle.c - the steps by which a silo joins, leaves and closes.
 * Way:     silo (threads), tests/sim (tasks) -> [lifecycle] -> net, store, membership, layer
 * Order:   open: executor, transport, address. join: store, identity, grains, membership.
 *          leave: LEAVING (nothing new comes), clients elsewhere, grains end, calls end, left.
 *          close: goodbye on the link, tasks end, transport, executor, store. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "cluster.pb-c.h"
#include "cluster/membership.h"
#include "node/task.h"
#include "process/process.h"
#include "silo/address.h"
#include "silo/dial.h"
#include "silo/layer.h"
#include "silo/lend.h"
#include "silo/silo.h"

enum { POLL_MS = 2, IDENTIFY_TRIES = 3 };

static teff_silo *silo_of(teffi_node *node)
{
    return teffi_container(node, teff_silo, node);
}

/* ---- peers that come and go ---- */

static bool in_view(teffi_node *node, teffi_node_id peer)
{
    const teffi_view *view = teffi_view_get(node);
    bool in = view && teffi_view_find(view, peer);
    teffi_view_unref(view);
    return in;
}

static void send_go_away(teffi_node *node, teffi_node_id client)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_ONEWAY);
    if (!msg)
        return;
    msg->src = node->id;
    msg->to = (teffi_pid){.node = client, .slot = TEFFI_SLOT_MEMBERSHIP};
    msg->method_id = TEFFI_METHOD_GO_AWAY;
    if (node->net->ops->send(node->net, client, msg))
        teffi_msg_free(msg);
}

/* Clients are remembered: a leaving silo sends them elsewhere. */
static void client_up(teff_silo *silo, const teffi_hello *peer)
{
    pthread_mutex_lock(&silo->lock);
    if (silo->n_clients == silo->clients_max && silo->clients_max < TEFFI_CLIENTS_MAX) {
        size_t max = silo->clients_max ? silo->clients_max * 2 : 16;
        teffi_node_id *clients = realloc(silo->clients, max * sizeof *clients);
        if (clients) {
            silo->clients = clients;
            silo->clients_max = max;
        }
    }
    if (silo->n_clients < silo->clients_max)
        silo->clients[silo->n_clients++] = peer->node;
    if (silo->node.leaving) /* its hello was just before */
        send_go_away(&silo->node, peer->node);
    pthread_mutex_unlock(&silo->lock);
}

static void client_down(teff_silo *silo, const teffi_hello *peer)
{
    pthread_mutex_lock(&silo->lock);
    for (size_t i = 0; i < silo->n_clients; i++)
        if (teffi_node_is(silo->clients[i], peer->node))
            silo->clients[i--] = silo->clients[--silo->n_clients];
    pthread_mutex_unlock(&silo->lock);
}

/* A silo that joins through us asks for rows before any view names it: the answers need a
 * way back. */
static void peer_up(teffi_node *node, const teffi_hello *peer)
{
    if (peer->role == TEFFI_ROLE_CLIENT)
        client_up(silo_of(node), peer);
    else if (!in_view(node, peer->node))
        (void)!node->net->ops->peer_add(node->net, peer->node, peer->address);
}

static void peer_down(teffi_node *node, const teffi_hello *peer, bool clean)
{
    (void)clean;
    if (peer->role == TEFFI_ROLE_CLIENT)
        client_down(silo_of(node), peer);
    else if (!in_view(node, peer->node))
        node->net->ops->peer_remove(node->net, peer->node, false);
}

static void send_clients_away(teff_silo *silo)
{
    pthread_mutex_lock(&silo->lock);
    silo->node.leaving = true;
    for (size_t i = 0; i < silo->n_clients; i++)
        send_go_away(&silo->node, silo->clients[i]);
    pthread_mutex_unlock(&silo->lock);
}

/* ---- open ---- */

static teff_err open_net(teff_silo *silo, char *text)
{
    teffi_node *node = &silo->node;
    teffi_net_options opt = {.self = {.role = TEFFI_ROLE_SILO},
                             .events = &teffi_node_net_events,
                             .arg = node,
                             .exec = node->exec,
                             .tls_cert = silo->opt.tls_cert,
                             .tls_ca = silo->opt.tls_ca};
    snprintf(opt.self.cluster, sizeof opt.self.cluster, "%s", node->cluster);
    teff_err err = silo->platform.net_new(&silo->platform, &opt, &node->net, text);
    if (!err)
        err = node->net->ops->listen(node->net, silo->opt.listen, silo->bound, text);
    return err;
}

teff_err teffi_silo_open(teff_silo *silo, char *text)
{
    char scratch[TEFF_TEXT_MAX];
    text = text ? text : scratch;
    teff_err err = teffi_node_init(&silo->node, &silo->platform, TEFFI_ROLE_SILO, silo->opt.cluster,
                                   silo->opt.workers, &silo->opt.sched);
    if (err) {
        snprintf(text, TEFF_TEXT_MAX, "the worker threads could not be started");
        return err;
    }
    silo->node.net_up = peer_up;
    silo->node.net_down = peer_down;
    err = open_net(silo, text);
    if (!err)
        err = teffi_grains_layer.make(&silo->node, silo->types, silo->n_types, text);
    return err;
}

/* ---- join ---- */

static teff_err make_membership(teff_ctx *ctx, teff_silo *silo)
{
    uint32_t *ids = teff_alloc(ctx, (silo->n_types + 1) * sizeof *ids);
    for (size_t i = 0; i < silo->n_types; i++)
        ids[i] = teffi_grains_layer.info(silo->types[i])->id;
    if (!teffi_membership_new(&silo->node, ids, silo->n_types))
        return teffi_ctx_fail(ctx, TEFF_E_NOMEM, "out of memory");
    return TEFF_OK;
}

static const char *own_address(const teff_silo *silo)
{
    return silo->opt.advertise ? silo->opt.advertise : silo->bound;
}

static teff_err own_store(teff_ctx *ctx, teff_silo *silo)
{
    char text[TEFF_TEXT_MAX] = "";
    const char *address = silo->opt.store ? silo->opt.store : "memory";
    teff_err err = silo->platform.store_open(&silo->platform, address, &silo->store, text);
    silo->node.store = silo->store;
    if (err)
        return teffi_ctx_fail(ctx, err, "store %s: %s", address, text);
    return teffi_membership_identify(ctx, own_address(silo));
}

static teff_err dial_seeds(teff_ctx *ctx, teff_silo *silo, teffi_hello *seed)
{
    teff_err err = TEFF_E_UNREACHABLE;
    for (int i = 0; i < TEFF_SEEDS_MAX && silo->opt.seeds[i] && err; i++)
        err = teffi_dial(ctx, silo->opt.seeds[i], seed);
    return err;
}

static void drop_store(teff_silo *silo)
{
    teffi_store_close(silo->store);
    silo->store = silo->node.store = NULL;
}

/* The seed's table tells our incarnation, but the hello to the seed carries it already: begin with
 * the one that the clock gives, and dial again in the rare case that the table knows a
 * later one. */
static teff_err seeds_store(teff_ctx *ctx, teff_silo *silo)
{
    teffi_node *node = &silo->node;
    teffi_hello seed;
    teffi_membership_guess(ctx, own_address(silo));
    for (int i = 0; i < IDENTIFY_TRIES; i++) {
        teffi_node_id before = node->id;
        node->net->ops->identify(node->net, node->id, node->address);
        teff_err err = dial_seeds(ctx, silo, &seed);
        if (err)
            return err;
        silo->store = node->store = teffi_borrow_new(node, seed.node);
        if (!silo->store)
            return teffi_ctx_fail(ctx, TEFF_E_NOMEM, "out of memory");
        err = teffi_membership_identify(ctx, own_address(silo));
        if (err || teffi_node_is(before, node->id))
            return err;
        drop_store(silo);
        node->net->ops->peer_remove(node->net, seed.node, false); /* nothing is on its way */
    }
    return teffi_ctx_fail(ctx, TEFF_E_REFUSED, "another silo keeps joining as %s", node->address);
}

teff_err teffi_silo_join(teff_ctx *ctx, teff_silo *silo)
{
    teffi_node *node = &silo->node;
    teff_err err = make_membership(ctx, silo);
    if (!err)
        err = silo->opt.seeds[0] ? seeds_store(ctx, silo) : own_store(ctx, silo);
    if (err)
        return err;
    teffi_lend(node);
    node->net->ops->identify(node->net, node->id, node->address);
    teffi_grains_layer.start(node);
    err = teffi_membership_join(ctx);
    if (err)
        return err;
    pthread_mutex_lock(&silo->lock);
    silo->phase = TEFFI_SILO_SERVING;
    pthread_mutex_unlock(&silo->lock);
    teffi_logf(&silo->platform.log, TEFFI_INFO, "silo %s serves cluster %s, %zu grain types",
               node->address, node->cluster, silo->n_types);
    return TEFF_OK;
}

/* ---- leave ---- */

/* Clients go when they have their answers and another gateway. */
static bool quiet(teffi_node *node)
{
    teff_silo *silo = silo_of(node);
    pthread_mutex_lock(&silo->lock);
    bool alone = silo->n_clients == 0;
    pthread_mutex_unlock(&silo->lock);
    return alone && teffi_calls_pending(&node->calls) == 0 && !teffi_grains_layer.routing(node);
}

static teff_err wait_quiet(teff_ctx *ctx, uint64_t deadline_ns)
{
    while (!quiet(ctx->node)) {
        if (teffi_now(ctx->node->platform) >= deadline_ns)
            return teffi_ctx_fail(ctx, TEFF_E_TIMEOUT, "calls did not end in time");
        teffi_ctx_sleep(ctx, POLL_MS);
    }
    return TEFF_OK;
}

static teff_err first(teff_err a, teff_err b)
{
    return a ? a : b;
}

/* Nothing may be placed here before the table says that we leave: the store is asked until it takes
 * it. */
static teff_err tell_cluster(teff_ctx *ctx, teff_err (*step)(teff_ctx *ctx), uint64_t deadline_ns)
{
    enum { PAUSE_MS = 50 };
    teff_err err = step(ctx);
    while (err && teffi_now(ctx->node->platform) < deadline_ns) {
        if (teffi_membership_ousted(ctx->node->membership))
            return TEFF_OK; /* it knows, and speaks to us no more */
        teffi_ctx_sleep(ctx, PAUSE_MS);
        err = step(ctx);
    }
    return err;
}

teff_err teffi_silo_leave(teff_ctx *ctx, teff_silo *silo, uint64_t deadline_ns)
{
    teffi_node *node = &silo->node;
    teff_err err = tell_cluster(ctx, teffi_membership_leaving, deadline_ns);
    send_clients_away(silo);
    err = first(err, teffi_grains_layer.leave(ctx, deadline_ns));
    err = first(err, wait_quiet(ctx, deadline_ns));
    /* Not before: a silo that waits for slow calls still has to say that it lives. What the tick
     * has asked the store and the others ends here too. */
    teffi_membership_stop(node->membership);
    err = first(err, wait_quiet(ctx, deadline_ns));
    err = first(err, tell_cluster(ctx, teffi_membership_left, deadline_ns));
    /* What others sent before they adopted that view is here now, and goes on its way. */
    return first(err, wait_quiet(ctx, deadline_ns));
}

/* ---- close ---- */

/* Tasks await only what has a deadline; a silo that had to give up waits for those. */
static void wait_tasks(teff_silo *silo)
{
    teff_ctx *ctx = teffi_ctx_new(&silo->node);
    /* acquire, pairs with the release in node/task.c */
    while (ctx && atomic_load_explicit(&silo->node.tasks, memory_order_acquire) > 0)
        teffi_ctx_sleep(ctx, 1);
    teff_ctx_free(ctx);
}

teff_err teffi_silo_close(teff_silo *silo, uint32_t timeout_ms)
{
    teffi_node *node = &silo->node;
    teff_err err = TEFF_OK;
    pthread_mutex_lock(&silo->lock);
    silo->phase = TEFFI_SILO_STOPPED;
    pthread_mutex_unlock(&silo->lock);
    if (!node->exec)
        return TEFF_OK;
    if (node->membership)
        teffi_membership_stop(node->membership);
    if (node->grains)
        teffi_grains_layer.stop(node);
    if (node->net && timeout_ms)
        err = node->net->ops->shutdown(node->net, timeout_ms);
    wait_tasks(silo);
    if (silo->store) /* while those that wait for its last answers are still there */
        teffi_store_stop(silo->store);
    teffi_node_stop(node);
    teffi_grains_layer.free(node);
    teffi_membership_free(node->membership);
    node->membership = NULL;
    teffi_node_free_exec(node);
    teffi_process_system_drop(silo->processes);
    silo->processes = NULL;
    drop_store(silo);
    return err;
}

uint32_t teff_silo_members(const teff_silo *silo)
{
    teff_silo *s = (teff_silo *)(uintptr_t)silo;
    const teffi_view *view = s->phase == TEFFI_SILO_SERVING ? teffi_view_get(&s->node) : NULL;
    uint32_t n = view ? (uint32_t)view->n_active : 0;
    teffi_view_unref(view);
    return n;
}
