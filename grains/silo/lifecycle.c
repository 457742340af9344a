/* lifecycle.c - the steps by which a silo opens, joins, leaves and closes.
 * Order:   open: executor, transport, address.
 *          join: store, identity, grains, accept, membership. A silo with a seed accepts first, for
 *          the responses of the seed's store; until its node is open, it refuses requests, and
 *          connections of all but the seed.
 *          leave: LEAVING in the table, clients move, grains end, calls end, LEFT.
 *          close: goodbye on the link, tasks end, store, transport, executor. */
#include <stdio.h>
#include <stdlib.h>
#include "activation/observers.h"
#include "activation/transaction.h"
#include "base/error.h"
#include "base/options.h"
#include "call/calls.h"
#include "call/ctx.h"
#include "cluster.pb-c.h"
#include "cluster/membership.h"
#include "cluster/join.h"
#include "call/task.h"
#include "call/wait.h"
#include "hosting/install.h"
#include "node/node.h"
#include "os/thread.h"
#include "process/process.h"
#include "request/route.h"
#include "silo/address.h"
#include "silo/silo.h"

enum { POLL_MS = 2 };

static teff_silo *get_silo(teffi_node *node)
{
    return teffi_container(node, teff_silo, node);
}

/* ---- connections up and down ---- */

/* Sends GO_AWAY to a client. The caller holds silo->lock. The client gets no message if memory is
 * out or the net refuses the message. */
static void send_go_away(teffi_node *node, teffi_node_id client)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_ONEWAY);
    if (!msg)
        return;
    msg->src = node->id;
    msg->to = (teffi_pid){.node = client, .slot = TEFFI_SLOT_MEMBERSHIP};
    msg->method_id = TEFFI_METHOD_GO_AWAY;
    if (node->home.net->ops->send(node->home.net, client, msg))
        teffi_msg_free(msg);
}

/* silo->lock held. Makes room for one more client in the list. out: false: no memory. */
static bool reserve_client_entry(teff_silo *silo)
{
    if (silo->n_clients < silo->clients_max)
        return true;
    size_t max = silo->clients_max ? silo->clients_max * 2 : 16;
    teffi_node_id *clients = realloc(silo->clients, max * sizeof *clients);
    if (!clients)
        return false;
    silo->clients = clients;
    silo->clients_max = max;
    return true;
}

/* Adds the client to the list of clients to which a leaving silo sends GO_AWAY. If there is no
 * memory for that, disconnects the client, which then connects again, to this silo or another. If
 * the silo is leaving already, sends GO_AWAY to the client at once. */
static void add_or_disconnect_client(teff_silo *silo, const teffi_hello *peer)
{
    teffi_net *net = silo->node.home.net;
    pthread_mutex_lock(&silo->lock);
    bool room = reserve_client_entry(silo);
    if (room)
        silo->clients[silo->n_clients++] = peer->node;
    if (room && silo->node.leaving) /* it connected after set_leaving_and_send_go_away() */
        send_go_away(&silo->node, peer->node);
    pthread_mutex_unlock(&silo->lock);
    if (!room)
        net->ops->peer_remove(net, peer->node, false);
}

static void remove_client(teff_silo *silo, const teffi_hello *peer)
{
    pthread_mutex_lock(&silo->lock);
    for (size_t i = 0; i < silo->n_clients; i++)
        if (teffi_node_equals(silo->clients[i], peer->node))
            silo->clients[i--] = silo->clients[--silo->n_clients];
    pthread_mutex_unlock(&silo->lock);
}

/* Tells the membership that another silo, `peer`, has connected. If the view declares the peer dead
 * (the view may have changed after the peer's hello was accepted), disconnects it. If the view does
 * not list the peer, adds it to the net, so that the peer's requests get responses. Two kinds of
 * such peers send requests: a silo that joins through this silo reads the membership table before a
 * view lists it; a silo that left before this silo joined may still forward requests. */
static void on_silo_connection_up(teffi_node *node, const teffi_hello *peer)
{
    const teffi_net_ops *net = node->home.net->ops;
    teffi_standing standing = node->membership
                                  ? teffi_outsiders_add_connection(node->membership, peer->node)
                                  : TEFFI_STANDING_STRANGER;
    if (standing == TEFFI_STANDING_DEAD)
        net->peer_dead(node->home.net, peer->node);
    else if (standing != TEFFI_STANDING_MEMBER)
        (void)!net->peer_add(node->home.net, peer->node, peer->address);
    teffi_membership_record_connection_state(node->membership, peer->node, true);
    teffi_membership_signal_change(node->membership);
}

/* The node's callback net_up, for a client or another silo that has connected. */
static void on_connection_up(teffi_node *node, const teffi_hello *peer)
{
    teff_silo *silo = get_silo(node);
    if (peer->role == TEFFI_ROLE_CLIENT) {
        add_or_disconnect_client(silo, peer);
        return;
    }
    atomic_fetch_add(&silo->links, 1);
    on_silo_connection_up(node, peer);
}

/* The node's callback net_down. Only a connection that broke (`clean` is false) is reported to the
 * membership as a sign that the member may be dead. */
static void on_connection_down(teffi_node *node, const teffi_hello *peer, bool clean)
{
    teff_silo *silo = get_silo(node);
    if (peer->role == TEFFI_ROLE_CLIENT) {
        remove_client(silo, peer);
        return;
    }
    if (!clean && node->grains)
        teffi_observers_record_break(node->grains, peer->node);
    if (node->membership)
        teffi_outsiders_remove_connection(node->membership, peer->node);
    if (!teffi_view_current_has_member(node, peer->node))
        node->home.net->ops->peer_remove(node->home.net, peer->node, false);
    else if (!clean)
        teffi_membership_record_connection_state(node->membership, peer->node, false);
    atomic_fetch_sub(&silo->links, 1);
}

/* The node's callback `lost`: remembers that the lease was lost, and calls the program's callback,
 * opt.lost, if it is set. */
static void on_lease_lost(teffi_node *node, const char *why)
{
    teff_silo *silo = get_silo(node);
    silo->lost_lease = true;
    if (silo->opt.lost)
        silo->opt.lost(silo->opt.lost_arg, why);
}

/* Sends GO_AWAY to all clients. Sets `leaving` under the lock under which
 * add_or_disconnect_client() reads it, so that a client which connects at the same time gets the
 * message, too. */
static void set_leaving_and_send_go_away(teff_silo *silo)
{
    pthread_mutex_lock(&silo->lock);
    silo->node.leaving = true;
    for (size_t i = 0; i < silo->n_clients; i++)
        send_go_away(&silo->node, silo->clients[i]);
    pthread_mutex_unlock(&silo->lock);
}

/* ---- open ---- */

_Static_assert((int)TEFF_TRANSPORT_REACTOR == (int)TEFFI_TRANSPORT_REACTOR, "the same numbers");

teff_err teffi_node_net_new(teffi_node *node, const teffi_net_options *given, char *text)
{
    teffi_net_options opt = *given;
    opt.self = (teffi_hello){.role = node->role, .node = node->id};
    opt.events = &teffi_node_net_events;
    opt.arg = node;
    opt.exec = node->home.exec;
    opt.budget = node->budget;
    opt.until_ns = &node->home.lease.until_ns;
    snprintf(opt.self.cluster, sizeof opt.self.cluster, "%s", node->cluster);
    return node->platform->net_new(node->platform, &opt, &node->home.net, text);
}

/* Makes the silo's net, and listens on the silo's addresses. */
static teff_err open_silo_net(teff_silo *silo, char *text)
{
    const teff_silo_options *opt = &silo->opt;
    const teffi_net_options net_opt = {
        .queue_max_bytes = opt->connection_bytes_max,
        .transport = (teffi_transport_kind)opt->transport,
        .tls = {opt->tls_cert, opt->tls_ca, opt->tls_client_ca},
        .secret_file = opt->secret_file,
        .client_secret_file = opt->client_secret_file,
    };
    teffi_net **net = &silo->node.home.net;
    teff_err err = teffi_node_net_new(&silo->node, &net_opt, text);
    if (!err)
        err = (*net)->ops->listen(*net, TEFFI_DOOR_SILOS, opt->listen, silo->bound, text);
    if (!err && opt->gateway)
        err = (*net)->ops->listen(*net, TEFFI_DOOR_GATEWAY, opt->gateway, silo->gateway, text);
    return err;
}

teff_err teffi_silo_open(teff_silo *silo, char *text)
{
    teff_err err = teffi_node_init(&silo->node, &silo->platform, TEFFI_ROLE_SILO, silo->opt.cluster,
                                   silo->opt.workers, silo->opt.sched);
    if (err)
        return teffi_fail(text, err, "the worker threads could not be started");
    if (silo->opt.message_bytes_max)
        teffi_budget_init(silo->node.budget, silo->opt.message_bytes_max);
    if (silo->opt.grain_bytes_max)
        silo->node.grain_bytes_max = silo->opt.grain_bytes_max;
    silo->node.home.lease.length_ms = teffi_or_default(silo->opt.lease_ms, TEFFI_LEASE_MS);
    silo->node.home.lease.outage_ms = silo->opt.outage_ms;
    silo->node.lost = on_lease_lost;
    silo->node.outgoing = silo->outgoing.n ? &silo->outgoing : NULL;
    teffi_silo_set_authorize(silo);
    silo->node.net_up = on_connection_up;
    silo->node.net_down = on_connection_down;
    err = open_silo_net(silo, text);
    if (!err)
        err = teffi_grains_install(&silo->node, silo->types, silo->n_types, text);
    if (!err) {
        silo->node.grains->activations_max = silo->opt.activations_max;
        silo->node.grains->memory_percent = silo->opt.memory_percent;
        silo->node.grains->reminder_period_min_ms =
            teffi_or_default(silo->opt.reminder_period_min_ms, TEFF_REMINDER_PERIOD_MIN_MS);
    }
    return err;
}

/* ---- join ---- */

/* Makes the membership, with the ids of all grain types, and their versions if any type has one. */
static teff_err make_membership(teff_ctx *ctx, teff_silo *silo)
{
    size_t n = silo->n_types;
    uint32_t *ids = teff_alloc(ctx, (2 * n + 1) * sizeof *ids), any = 0;
    for (size_t i = 0; i < n; i++) {
        ids[i] = silo->types[i]->info->id;
        ids[n + i] = silo->types[i]->info->version;
        any |= ids[n + i];
    }
    if (!teffi_membership_new(&silo->node, ids, any ? ids + n : NULL, n))
        return teff_fail(ctx, TEFF_E_NOMEM, "out of memory");
    silo->node.membership->had_lost_lease = silo->lost_lease;
    silo->node.membership->stuck.limit_ns =
        teffi_or_default(silo->opt.stuck_ms, TEFFI_STUCK_MS) * UINT64_C(1000000);
    return TEFF_OK;
}

static const char *get_own_address(const teff_silo *silo)
{
    return silo->opt.advertise ? silo->opt.advertise : silo->bound;
}

/* Opens the silo's own store, and gets the silo's identity from it. */
static teff_err open_own_store_and_get_id(teff_ctx *ctx, teff_silo *silo)
{
    char text[TEFF_TEXT_MAX] = "";
    const char *address = silo->opt.store ? silo->opt.store : "memory";
    teff_err err = silo->platform.store_open(&silo->platform, address, &silo->store, text);
    silo->node.store = silo->store;
    if (err)
        return teff_fail(ctx, err, "%s", text);
    err = teffi_membership_choose_silo_id(ctx, get_own_address(silo));
    char shown[TEFFI_STORE_SHOWN_MAX];
    return err ? teff_fail(ctx, err, "%s: %s", teffi_store_mask_address(address, shown),
                           teff_error(ctx))
               : TEFF_OK;
}

static void close_silo_store(teff_silo *silo)
{
    teffi_store_close(silo->store);
    silo->store = silo->node.store = NULL;
}

/* Dials the seeds; this silo's hello contains node->id and the given address. The store of the seed
 * that accepts becomes this silo's store. out: *seed: the hello of that seed. */
static teff_err dial_seeds_and_set_store(teff_ctx *ctx, teff_silo *silo, const char *address,
                                         teffi_hello *seed)
{
    teffi_node *node = &silo->node;
    node->home.net->ops->identify(node->home.net, node->id, address);
    teff_err err = teffi_seed_dial(ctx, silo, seed);
    if (err)
        return err;
    silo->store = node->store = teffi_remote_store_new(node, &silo->seed);
    return silo->store ? TEFF_OK : teff_fail(ctx, TEFF_E_NOMEM, "out of memory");
}

static bool seed_is_connected_or_dialled(teff_silo *silo)
{
    return atomic_load(&silo->links) || silo->seed.dialling;
}

/* Closes the remote store, disconnects from the seed, and waits at most WAIT_MS until the seed's
 * connections are down, and no task dials the seed. Without the wait, their events could be
 * mistaken for events of the next connection. */
static void close_store_and_disconnect_from_seed(teff_ctx *ctx, teff_silo *silo)
{
    enum { WAIT_MS = 5000 };
    teffi_node *node = &silo->node;
    uint64_t until_ns = teffi_now(node->platform) + WAIT_MS * 1000000ull;
    close_silo_store(silo);
    teffi_node_id seed = teffi_node_from_word(node->seed);
    node->home.net->ops->peer_remove(node->home.net, seed, false); /* no call to it is pending */
    while (seed_is_connected_or_dialled(silo) && teffi_now(node->platform) < until_ns)
        teffi_ctx_sleep(ctx, 1);
}

/* Makes the seed's store this silo's store, and gets this silo's identity from the membership
 * table in that store. Connects to the seed twice: the hello must contain an identity, but the
 * table can be read only on a connection. So the first hello contains a random identity, and the
 * second hello contains the identity from the table. When a connection ends, the seed ends its
 * calls to the identity of that connection's hello. The random identity must not be the identity of
 * an earlier start, because the seed may still wait for calls to that identity. */
static teff_err open_seed_store_and_get_id(teff_ctx *ctx, teff_silo *silo)
{
    teffi_node *node = &silo->node;
    const teffi_platform *platform = node->platform;
    teffi_hello seed;
    node->id.silo = (uint32_t)platform->random(platform->arg) & ~TEFFI_CLIENT_BIT;
    node->id.silo += node->id.silo == 0;
    node->id.incarnation = 1;
    node->home.net->ops->identify(node->home.net, node->id, get_own_address(silo));
    node->home.net->ops->accept(node->home.net);
    teff_err err = dial_seeds_and_set_store(ctx, silo, get_own_address(silo), &seed);
    if (!err)
        err = teffi_membership_choose_silo_id(ctx, get_own_address(silo));
    if (err)
        return err;
    close_store_and_disconnect_from_seed(ctx, silo);
    return dial_seeds_and_set_store(ctx, silo, node->address, &seed);
}

/* Ends a join that has failed with err. If the membership table may list this silo already, this
 * silo leaves the cluster, because other silos may place grains here. out: err; ctx still has its
 * text. */
static teff_err abort_join(teff_ctx *ctx, teff_silo *silo, teff_err err)
{
    enum { ABORT_MS = 5000 };
    char text[TEFF_TEXT_MAX];
    uint64_t deadline_ns = teffi_now(&silo->platform) + ABORT_MS * 1000000ull;
    snprintf(text, sizeof text, "%s", teff_error(ctx));
    if (silo->node.membership->listed)
        (void)!teffi_silo_leave(ctx, silo, deadline_ns);
    return teff_fail(ctx, err, "%s", text);
}

/* Lets the node handle messages, because all its parts exist now. Also lets the net accept
 * connections, unless open_seed_store_and_get_id() has done so. Called before the silo joins the
 * membership: until then other silos do not know this silo. */
static void open_node_and_accept(teff_silo *silo)
{
    teffi_node *node = &silo->node;
    /* release: pairs with node_is_open() */
    atomic_store_explicit(&node->open, true, memory_order_release);
    if (!silo->opt.seeds[0])
        node->home.net->ops->accept(node->home.net);
}

teff_err teffi_silo_join(teff_ctx *ctx, teff_silo *silo)
{
    teffi_node *node = &silo->node;
    teff_err err = make_membership(ctx, silo);
    if (!err)
        err = silo->opt.seeds[0] ? open_seed_store_and_get_id(ctx, silo)
                                 : open_own_store_and_get_id(ctx, silo);
    if (err)
        return err;
    teffi_remote_store_set_handler(node, &silo->borrowers);
    node->home.net->ops->identify(node->home.net, node->id, node->address);
    teffi_grains_start(node);
    open_node_and_accept(silo);
    err = teffi_membership_join(ctx);
    if (err)
        return abort_join(ctx, silo, err);
    silo->lost_lease = false;
    silo->phase = TEFFI_SILO_SERVING;
    teffi_logf(&silo->platform.log, TEFF_LOG_INFO, "silo %s serves cluster %s, %zu grain types",
               node->address, node->cluster, silo->n_types);
    return TEFF_OK;
}

/* ---- leave ---- */

/* out: true: this silo has no client, no client's handshake, and no undelivered message,
 * transaction task, look-up, relay or pending call. A handshake may become a client. An undelivered
 * message or a transaction task may start a look-up. A look-up may start a relay. Each is checked
 * before what it may become or start, so that none is missed between two checks. */
static bool silo_is_quiet(teffi_node *node)
{
    teff_silo *silo = get_silo(node);
    if (atomic_load(&node->greeting))
        return false;
    pthread_mutex_lock(&silo->lock);
    bool alone = silo->n_clients == 0;
    pthread_mutex_unlock(&silo->lock);
    return alone && !teffi_outsiders_have_undelivered(node->membership) &&
           !teffi_transaction_tasks_pending(node->grains) &&
           !teffi_lookups_are_pending(node->grains) && teffi_calls_relay_count(&node->home) == 0 &&
           teffi_calls_count_pending(&node->home) == 0;
}

/* errs: TEFF_E_TIMEOUT; TEFF_E_UNAVAILABLE: the lease is over. */
static teff_err wait_until_quiet(teff_ctx *ctx, uint64_t deadline_ns)
{
    while (!silo_is_quiet(ctx->node)) {
        if (teffi_lease_is_over(&ctx->home->lease))
            return teff_fail(ctx, TEFF_E_UNAVAILABLE, "%s", teffi_lease_over_text);
        if (teffi_now(ctx->node->platform) >= deadline_ns)
            return teff_fail(ctx, TEFF_E_TIMEOUT, "calls did not end in time");
        teffi_ctx_sleep(ctx, POLL_MS);
    }
    return TEFF_OK;
}

teff_err teffi_silo_await_borrowers(teff_ctx *ctx, teff_silo *silo, uint64_t deadline_ns)
{
    teffi_node *node = &silo->node;
    size_t before = 0, n;
    while ((n = teffi_borrowers_count(node)) > 0) {
        if (n != before)
            teffi_logf(&silo->platform.log, TEFF_LOG_INFO,
                       "silo %s leaves when no other silo uses its store: %zu of them do",
                       node->address, n);
        before = n;
        if (teffi_lease_is_over(&node->home.lease))
            return TEFF_OK;
        if (teffi_now(node->platform) >= deadline_ns)
            return teff_fail(ctx, TEFF_E_TIMEOUT, "%zu other silos still use its store", n);
        teffi_ctx_sleep(ctx, POLL_MS);
    }
    return TEFF_OK;
}

static teff_err pick_first_error(teff_err a, teff_err b)
{
    return a ? a : b;
}

/* Calls `step`, which changes this silo's status in the membership table, until the call succeeds
 * or the deadline has passed. Retries matter because other silos place grains here until the table
 * says that this silo is leaving. out: TEFF_OK also if the lease is over. */
static teff_err retry_step_until_deadline(teff_ctx *ctx, teff_err (*step)(teff_ctx *ctx),
                                          uint64_t deadline_ns)
{
    enum { PAUSE_MS = 50 };
    teff_err err = step(ctx);
    while (err && teffi_now(ctx->node->platform) < deadline_ns) {
        if (teffi_lease_is_over(&ctx->home->lease))
            return TEFF_OK; /* declared dead: the cluster places nothing here */
        teffi_ctx_sleep(ctx, PAUSE_MS);
        err = step(ctx);
    }
    return err;
}

teff_err teffi_silo_leave(teff_ctx *ctx, teff_silo *silo, uint64_t deadline_ns)
{
    teffi_node *node = &silo->node;
    teff_err err = retry_step_until_deadline(ctx, teffi_membership_begin_leaving, deadline_ns);
    set_leaving_and_send_go_away(silo);
    teff_err ended = teffi_grains_end_all_activations(ctx, deadline_ns);
    char text[TEFF_TEXT_MAX];
    snprintf(text, sizeof text, "%s", ended ? teff_error(ctx) : "");
    err = pick_first_error(err, ended);
    err = pick_first_error(err, wait_until_quiet(ctx, deadline_ns));
    /* The heartbeat must go on until slow calls have ended. The second wait_until_quiet() waits
     * for the requests that the last heartbeat has made. */
    teffi_membership_stop_timers(node->membership);
    err = pick_first_error(err, wait_until_quiet(ctx, deadline_ns));
    /* Activations are left, and other silos may activate their grains as soon as the table says
     * that this silo has left: no turn of this silo may answer any more. */
    if (ended)
        (void)teffi_lease_end(&node->home.lease);
    err =
        pick_first_error(err, retry_step_until_deadline(ctx, teffi_membership_leave, deadline_ns));
    if (ended) /* it forwards nothing any more */
        return teff_fail(ctx, err, "%s", text);
    /* The requests that other silos sent before they adopted the view without this silo have
     * arrived by now. Wait until these requests are forwarded. */
    return pick_first_error(err, wait_until_quiet(ctx, deadline_ns));
}

/* ---- close ---- */

/* Waits until no task runs, and no task of a transaction is being started. The wait ends, because
 * tasks wait only for operations with a deadline. */
void teffi_node_wait_for_tasks(teffi_node *node)
{
    teff_ctx *ctx = teffi_ctx_new(&node->home);
    /* Both counts are loaded with acquire or stronger. The loads pair with the release in
     * finish_task() and in mark_awaited_task_ended(). A task that is pending and ends is running
     * until after that, so the running tasks are counted last. */
    while ((node->grains && teffi_transaction_tasks_pending(node->grains)) ||
           teffi_tasks_count_running(&node->home) > 0)
        if (ctx)
            teffi_ctx_sleep(ctx, 1);
        else /* out of memory */
            teffi_thread_yield();
    teff_ctx_free(ctx);
}

teff_err teffi_silo_close(teff_silo *silo, uint32_t timeout_ms)
{
    teffi_node *node = &silo->node;
    teff_err err = TEFF_OK;
    silo->phase = TEFFI_SILO_STOPPED;
    silo->seed.closed = true;
    if (!node->home.exec)
        return TEFF_OK;
    if (node->membership)
        teffi_membership_stop_timers(node->membership);
    if (node->grains)
        teffi_grains_stop(node);
    if (node->home.net && timeout_ms)
        err = node->home.net->ops->shutdown(node->home.net, timeout_ms);
    teffi_stop_watch_begin(silo); /* what follows waits without a limit for turns and calls */
    teffi_node_wait_for_tasks(node);
    if (silo->store) /* its last results go to groups, which are freed below */
        silo->store->ops->close(silo->store);
    teffi_node_stop(node);
    teffi_stop_watch_end(silo); /* no turn runs any more, and the executor is freed below */
    teffi_grains_free(node);
    teffi_membership_free(node->membership);
    node->membership = NULL;
    teffi_node_free_exec_and_tasks(node);
    teffi_silo_free_engines_and_processes(silo);
    close_silo_store(silo);
    return err;
}

uint32_t teff_silo_members(const teff_silo *silo)
{
    teff_silo *s = (teff_silo *)(uintptr_t)silo;
    const teffi_view *view =
        s->phase == TEFFI_SILO_SERVING ? teffi_view_ref_current(&s->node) : NULL;
    uint32_t n = view ? (uint32_t)view->n_active : 0;
    teffi_view_unref(view);
    return n;
}
