/* client.c - a program that calls grains without hosting any, through one gateway at a time.
 * Way:     user's thread -> request/reference -> [client] gateway -> silo
 * Threads: a task looks for a gateway if there is none or if the gateway is leaving; meanwhile
 *          calls wait, until their deadline. */
#include <stdio.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/options.h"
#include "cluster/membership.h"
#include "call/calls.h"
#include "call/ctx.h"
#include "call/task.h"
#include "node/node.h"
#include "silo/address.h"
#include "silo/client.h"
#include "silo/silo.h"

enum { WORKERS = 1, PAUSE_FIRST_MS = 20, PAUSE_MAX_MS = 1000, UNSENT_MAX = 10000 };

/* relaxed, here and below: no other data depends on it */
static teffi_node_id get_gateway(teffi_node *node)
{
    return teffi_node_of_word(atomic_load_explicit(&node->gateway, memory_order_relaxed));
}

/* in: gateway, zero: none. out: false: not set, as this gateway has said that it is leaving. */
static bool set_gateway(teff_client *client, teffi_node_id gateway)
{
    pthread_mutex_lock(&client->node.lock);
    bool stays = teffi_node_none(gateway) || !teffi_node_is(gateway, client->avoid);
    if (stays)
        atomic_store_explicit(&client->node.gateway, teffi_node_word(gateway),
                              memory_order_relaxed);
    pthread_mutex_unlock(&client->node.lock);
    return stays;
}

/* Dials the gateways, from a random one on, until one responds that has not said that it is
 * leaving. */
teff_err teffi_client_join(teff_ctx *ctx, teff_client *client)
{
    teff_err err = TEFF_E_UNREACHABLE;
    teffi_hello peer;
    uint32_t first = (uint32_t)client->platform.random(client->platform.arg);
    for (uint32_t i = 0; i < client->n_gateways; i++) {
        teff_mark mark = teff_ctx_mark(ctx);
        err = teffi_dial(ctx, client->gateways[(first + i) % client->n_gateways], &peer);
        teff_ctx_forget(ctx, mark);
        if (!err && set_gateway(client, peer.node))
            return TEFF_OK;
    }
    return err ? err
               : teff_fail(ctx, TEFF_E_UNREACHABLE, "only the gateway that leaves can be reached");
}

/* ---- losing a gateway ---- */

/* Tries all gateways, with growing pauses, until one has accepted the client. */
static void look_for_gateway_task(teff_ctx *ctx, void *arg)
{
    teff_client *client = arg;
    uint32_t pause = PAUSE_FIRST_MS;
    while (!client->closing && teffi_client_join(ctx, client)) {
        set_gateway(client, (teffi_node_id){0}); /* calls wait until one is set */
        teffi_ctx_sleep(ctx, pause);
        pause = pause * 2 < PAUSE_MAX_MS ? pause * 2 : PAUSE_MAX_MS;
    }
    client->looking = false;
}

/* Starts the task, unless it runs. */
static void look_for_gateway(teff_client *client)
{
    if (client->closing || atomic_exchange(&client->looking, true))
        return;
    if (teffi_task_start(&client->node.home, look_for_gateway_task, client,
                         "client: find a gateway", false))
        client->looking = false;
}

static void on_gateway_down(teffi_node *node, const teffi_hello *peer, bool clean)
{
    teff_client *client = teffi_container(node, teff_client, node);
    (void)clean;
    /* Removed, as look_for_gateway() dials again, and another incarnation may be at the address. */
    node->home.net->ops->peer_remove(node->home.net, peer->node, false);
    if (!teffi_node_is(get_gateway(node), peer->node))
        return;
    set_gateway(client, (teffi_node_id){0});
    look_for_gateway(client);
}

/* Reserves a place for the task that leaves gateway `from`. out: NULL: that task runs already, or
 * TEFF_SEEDS_MAX tasks run. */
static teffi_node_id *begin_parting(teff_client *client, teffi_node_id from)
{
    teffi_node_id *empty = NULL;
    bool parts = false;
    pthread_mutex_lock(&client->node.lock);
    for (int i = 0; i < TEFF_SEEDS_MAX; i++) {
        parts |= teffi_node_is(client->parting[i], from);
        if (teffi_node_none(client->parting[i]))
            empty = &client->parting[i];
    }
    if (!parts && empty)
        *empty = from;
    pthread_mutex_unlock(&client->node.lock);
    return parts ? NULL : empty;
}

static void end_parting(teff_client *client, teffi_node_id *place)
{
    pthread_mutex_lock(&client->node.lock);
    *place = (teffi_node_id){0};
    pthread_mutex_unlock(&client->node.lock);
}

/* The task that disconnects from a leaving gateway, when another gateway is set and the calls
 * through the old one have ended: the old one waits for that. A thread may have read the old
 * gateway just before: from peer_left on, its request is refused and sent to the new one. */
static void leave_gateway(teff_ctx *ctx, void *arg)
{
    enum { POLL_MS = 2 };
    teff_client *client = teffi_container(ctx->node, teff_client, node);
    teffi_node_id from = *(teffi_node_id *)arg; /* only this task changes it now */
    teffi_net *net = ctx->node->home.net;
    while (!client->closing && teffi_node_is(get_gateway(ctx->node), from))
        teffi_ctx_sleep(ctx, POLL_MS);
    net->ops->peer_left(net, from);
    while (!client->closing && teffi_calls_sent_to(&ctx->node->home, from))
        teffi_ctx_sleep(ctx, POLL_MS);
    net->ops->peer_remove(net, from, true);
    end_parting(client, arg);
}

static void start_parting(teff_client *client, teffi_node_id from)
{
    teffi_node_id *place = begin_parting(client, from);
    if (place && teffi_task_start(&client->node.home, leave_gateway, place,
                                  "client: leave a gateway", false))
        end_parting(client, place);
}

/* Handles the message of a gateway that leaves: looks for another gateway, and starts the task that
 * disconnects from this one. */
static void on_go_away(teffi_node *node, teffi_msg *msg)
{
    teff_client *client = teffi_container(node, teff_client, node);
    if (msg->method_id == TEFFI_METHOD_GO_AWAY && !client->closing) {
        pthread_mutex_lock(&node->lock);
        client->avoid = msg->src;
        bool current = teffi_node_is(get_gateway(node), msg->src);
        pthread_mutex_unlock(&node->lock);
        if (current)
            look_for_gateway(client);
        start_parting(client, msg->src);
    }
    teffi_node_respond(node, msg, TEFF_OK, NULL);
}

/* ---- requests that were not sent ---- */

/* out: the first unsent request; NULL: none left, and `resending` is false: the task ends. */
static teffi_msg *take_unsent(teff_client *client)
{
    pthread_mutex_lock(&client->node.lock);
    teffi_qnode *at = teffi_queue_pop(&client->unsent);
    client->resending = at != NULL;
    pthread_mutex_unlock(&client->node.lock);
    return at ? teffi_container(at, teffi_msg, link) : NULL;
}

/* Ends all unsent requests with an error, because the task that sends them again did not start. */
static void drop_unsent(teff_client *client)
{
    for (teffi_msg *msg; (msg = take_unsent(client));)
        teffi_node_respond(&client->node, msg, TEFF_E_UNAVAILABLE,
                           "out of memory to send it again");
}

/* Sends msg to the current gateway; tries until msg's deadline, then ends msg with an error. */
static void resend_request(teff_ctx *ctx, teff_client *client, teffi_msg *msg)
{
    teff_err err = TEFF_E_UNREACHABLE;
    while (!client->closing && teffi_now(&client->platform) < msg->deadline_ns &&
           ((err = teffi_node_to_gateway(&client->node, msg)) == TEFF_E_UNREACHABLE ||
            err == TEFF_E_CLOSED))
        teffi_ctx_sleep(ctx, PAUSE_FIRST_MS);
    if (err)
        teffi_node_respond(&client->node, msg, TEFF_E_UNAVAILABLE,
                           "no gateway can be reached; the call did not run");
}

static void resend_all(teff_ctx *ctx, void *arg)
{
    teff_client *client = arg;
    for (teffi_msg *msg; (msg = take_unsent(client));)
        resend_request(ctx, client, msg);
}

/* The net's event: msg reached no gateway. Queues it for the task that sends it again. */
static void on_gateway_unsent(teffi_node *node, teffi_node_id to, teffi_msg *msg)
{
    teff_client *client = teffi_container(node, teff_client, node);
    (void)to;
    teffi_msg_charge(msg, node->budget);
    pthread_mutex_lock(&node->lock);
    bool room = !client->closing && client->unsent.count < UNSENT_MAX &&
                !teffi_budget_is_over(node->budget);
    bool start = room && !client->resending;
    if (room)
        teffi_queue_push(&client->unsent, &msg->link);
    client->resending |= room;
    pthread_mutex_unlock(&node->lock);
    if (!room)
        teffi_node_respond(node, msg, TEFF_E_UNAVAILABLE, "the client has lost its gateway");
    else if (start &&
             teffi_task_start(&node->home, resend_all, client, "client: send again", false))
        drop_unsent(client);
}

/* ---- connecting ---- */

static teff_err take_client_options(teff_client_options *opt, const teff_client_options *given,
                                    char *text)
{
    if (!teffi_options_take(opt, sizeof *opt, given, "teff_client_options", text))
        return TEFF_E_INVALID;
    opt->cluster = opt->cluster ? opt->cluster : "dev";
    if (!opt->gateways[0])
        return teffi_option_refuse(text, "gateways", "none", "at least one host:port");
    return teffi_options_check(opt->cluster, "gateway", opt->gateways, opt->transport,
                               opt->tls_cert, opt->tls_ca, opt->connection_bytes_max, text);
}

static teff_err copy_gateways(teff_client *client, const teff_client_options *opt)
{
    while (client->n_gateways < TEFF_SEEDS_MAX && opt->gateways[client->n_gateways]) {
        char *copy = strdup(opt->gateways[client->n_gateways]);
        if (!copy)
            return TEFF_E_NOMEM;
        client->gateways[client->n_gateways++] = copy;
    }
    return TEFF_OK;
}

static teff_err open_client_net(teff_client *client, const teff_client_options *opt, char *text)
{
    teffi_node *node = &client->node;
    const teffi_platform *platform = &client->platform;
    node->id.silo = (uint32_t)platform->random(platform->arg) | TEFFI_CLIENT_BIT;
    node->id.incarnation = 1 + (uint32_t)(platform->random(platform->arg) >> 33);
    node->net_down = on_gateway_down;
    node->upcalls.unsent = on_gateway_unsent;
    teffi_node_set_target(node, TEFFI_SLOT_MEMBERSHIP, on_go_away);
    teff_err err = teffi_silo_net_new(node, opt->connection_bytes_max, opt->transport,
                                      opt->tls_cert, opt->tls_ca, text);
    if (!err)
        node->home.net->ops->identify(node->home.net, node->id, "");
    node->open = true;
    return err;
}

teff_err teffi_client_open(const teffi_platform *platform, const teff_client_options *given,
                           teff_client **out, char *text)
{
    teff_client_options taken, *opt = &taken;
    *out = NULL;
    text[0] = '\0';
    teff_err err = take_client_options(opt, given, text);
    teff_client *client = err ? NULL : calloc(1, sizeof *client);
    if (!client) {
        if (!err)
            (void)teffi_fail(text, TEFF_E_NOMEM, "out of memory");
        return err ? err : TEFF_E_NOMEM;
    }
    client->platform = *platform;
    err = copy_gateways(client, opt);
    if (!err)
        err = teffi_node_init(&client->node, &client->platform, TEFFI_ROLE_CLIENT, opt->cluster,
                              WORKERS, NULL);
    if (!err && opt->message_bytes_max)
        teffi_budget_init(client->node.budget, opt->message_bytes_max);
    if (!err)
        err = open_client_net(client, opt, text);
    if (!err)
        *out = client;
    else
        teff_client_free(client);
    if (err && !text[0])
        (void)teffi_fail(text, err, err == TEFF_E_NOMEM ? "out of memory" : "no thread for calls");
    return err;
}

teff_err teff_client_connect(const teff_client_options *opt, teff_client **out, char *text)
{
    teffi_platform platform;
    char scratch[TEFF_TEXT_MAX] = "";
    text = text ? text : scratch;
    teffi_silo_platform(&platform, TEFF_LOG_WARN);
    teff_err err = teffi_client_open(&platform, opt, out, text);
    if (err)
        return err;
    teff_ctx *ctx = teff_client_ctx(*out);
    err = ctx ? teffi_client_join(ctx, *out) : TEFF_E_NOMEM;
    if (err) {
        snprintf(text, TEFF_TEXT_MAX, "%s", ctx ? teff_error(ctx) : "out of memory");
        teff_ctx_free(ctx);
        teff_client_free(*out);
        *out = NULL;
        return err;
    }
    teff_ctx_free(ctx);
    return TEFF_OK;
}

teff_ctx *teff_client_ctx(teff_client *client)
{
    return teffi_ctx_new(&client->node.home);
}

/* ---- closing ---- */

void teff_client_free(teff_client *client)
{
    enum { GOODBYE_MS = 2000 };
    if (!client)
        return;
    if (client->node.home.exec) {
        client->closing = true;
        if (client->node.home.net)
            (void)!client->node.home.net->ops->shutdown(client->node.home.net, GOODBYE_MS);
        teffi_silo_wait_for_tasks(&client->node);
        teffi_node_stop(&client->node);
        teffi_node_free_exec(&client->node);
    }
    teffi_node_fini(&client->node);
    for (uint32_t i = 0; i < client->n_gateways; i++)
        free(client->gateways[i]);
    free(client);
}
