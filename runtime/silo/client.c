/* client.c - a program that calls grains without hosting any: one gateway at a time.
 * Way:     user's thread -> grains/reference -> [client] gateway -> silo
 * Threads: a task looks for a gateway when there is none, or when the gateway goes away; calls wait
 *          for it until their deadline. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cluster/membership.h"
#include "node/task.h"
#include "silo/address.h"
#include "silo/client.h"
#include "silo/dial.h"

enum { WORKERS = 1, PAUSE_FIRST_MS = 20, PAUSE_MAX_MS = 1000 };

/* relaxed, here and below: nothing else is read through it */
static teffi_node_id gateway_of(teffi_node *node)
{
    return teffi_node_of_word(atomic_load_explicit(&node->gateway, memory_order_relaxed));
}

/* false: it has said that it goes away, maybe just now. */
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

/* Any gateway but the one that goes away. */
static teff_err find_gateway(teff_ctx *ctx, teff_client *client)
{
    teff_err err = TEFF_E_UNREACHABLE;
    teffi_hello peer;
    uint32_t first = (uint32_t)client->platform.random(client->platform.arg);
    for (uint32_t i = 0; i < client->n_gateways; i++) {
        err = teffi_dial(ctx, client->gateways[(first + i) % client->n_gateways], &peer);
        if (!err && set_gateway(client, peer.node))
            return TEFF_OK;
    }
    return err ? err : TEFF_E_UNREACHABLE;
}

/* ---- losing one ---- */

static void look_again(teff_ctx *ctx, void *arg)
{
    teff_client *client = arg;
    uint32_t pause = PAUSE_FIRST_MS;
    while (!client->closing && find_gateway(ctx, client)) {
        set_gateway(client, (teffi_node_id){0}); /* calls wait, until there is one again */
        teffi_ctx_sleep(ctx, pause);
        pause = pause * 2 < PAUSE_MAX_MS ? pause * 2 : PAUSE_MAX_MS;
    }
    client->looking = false;
}

static void look_for_gateway(teff_client *client)
{
    if (client->closing || atomic_exchange(&client->looking, true))
        return;
    if (teffi_task_start(&client->node, look_again, client, "client: find a gateway"))
        client->looking = false;
}

static void on_down(teffi_node *node, const teffi_hello *peer, bool clean)
{
    teff_client *client = teffi_container(node, teff_client, node);
    (void)clean;
    if (!teffi_node_is(gateway_of(node), peer->node))
        return;
    set_gateway(client, (teffi_node_id){0});
    look_for_gateway(client);
}

typedef struct parting {
    teff_client *client;
    teffi_node_id from;
} parting;

/* A gateway that goes away waits for its clients: they go when it has answered all they asked. */
static void part(teff_ctx *ctx, void *arg)
{
    enum { POLL_MS = 2 };
    parting p = *(parting *)arg;
    free(arg);
    while (!p.client->closing &&
           (teffi_node_is(gateway_of(ctx->node), p.from) || teffi_calls_sent_to(ctx->node, p.from)))
        teffi_ctx_sleep(ctx, POLL_MS);
    ctx->node->net->ops->peer_remove(ctx->node->net, p.from, true);
}

static void start_parting(teff_client *client, teffi_node_id from)
{
    parting *p = malloc(sizeof *p);
    if (!p)
        return;
    *p = (parting){client, from};
    if (teffi_task_start(&client->node, part, p, "client: leave a gateway"))
        free(p);
}

static void on_go_away(teffi_node *node, teffi_msg *msg)
{
    teff_client *client = teffi_container(node, teff_client, node);
    if (msg->method_id == TEFFI_METHOD_GO_AWAY && !client->closing) {
        pthread_mutex_lock(&node->lock);
        client->avoid = msg->src;
        bool current = teffi_node_is(gateway_of(node), msg->src);
        pthread_mutex_unlock(&node->lock);
        if (current)
            look_for_gateway(client);
        start_parting(client, msg->src);
    }
    teffi_node_answer(node, msg, TEFF_OK, NULL);
}

/* ---- connecting ---- */

static teff_err check(const teff_client_options *opt, char *text)
{
    if (!teffi_cluster_ok(opt->cluster ? opt->cluster : "dev")) {
        snprintf(text, TEFF_TEXT_MAX, "cluster: '%.100s'; expected 1 to 64 of A-Z a-z 0-9 . _ -",
                 opt->cluster);
        return TEFF_E_INVALID;
    }
    if (!opt->gateways[0]) {
        snprintf(text, TEFF_TEXT_MAX, "gateways: none; expected at least one host:port");
        return TEFF_E_INVALID;
    }
    for (int i = 0; i < TEFF_SEEDS_MAX && opt->gateways[i]; i++) {
        if (!teffi_address_ok(opt->gateways[i])) {
            snprintf(text, TEFF_TEXT_MAX, "gateway: '%.100s'; expected host:port or [v6]:port",
                     opt->gateways[i]);
            return TEFF_E_INVALID;
        }
    }
    return TEFF_OK;
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

static teff_err open_net(teff_client *client, const teff_client_options *opt, char *text)
{
    teffi_node *node = &client->node;
    const teffi_platform *platform = &client->platform;
    node->id.silo = (uint32_t)platform->random(platform->arg) | TEFFI_CLIENT_BIT;
    node->id.incarnation = 1 + (uint32_t)(platform->random(platform->arg) >> 33);
    node->net_down = on_down;
    teffi_node_target(node, TEFFI_SLOT_MEMBERSHIP, on_go_away);
    teffi_net_options net = {.self = {.role = TEFFI_ROLE_CLIENT, .node = node->id},
                             .events = &teffi_node_net_events,
                             .arg = node,
                             .exec = node->exec,
                             .tls_cert = opt->tls_cert,
                             .tls_ca = opt->tls_ca};
    memcpy(net.self.cluster, node->cluster, sizeof node->cluster);
    teff_err err = platform->net_new(platform, &net, &node->net, text);
    if (!err)
        node->net->ops->identify(node->net, node->id, "");
    return err;
}

teff_err teffi_client_open(const teffi_platform *platform, const teff_client_options *opt,
                           teff_client **out, char *text)
{
    *out = NULL;
    teff_err err = check(opt, text);
    teff_client *client = err ? NULL : calloc(1, sizeof *client);
    if (!client)
        return err ? err : TEFF_E_NOMEM;
    client->platform = *platform;
    err = copy_gateways(client, opt);
    if (!err)
        err = teffi_node_init(&client->node, &client->platform, TEFFI_ROLE_CLIENT,
                              opt->cluster ? opt->cluster : "dev", WORKERS, NULL);
    if (!err)
        err = open_net(client, opt, text);
    if (err)
        teff_client_free(client);
    else
        *out = client;
    return err;
}

teff_err teffi_client_join(teff_ctx *ctx, teff_client *client)
{
    return find_gateway(ctx, client);
}

teff_err teff_client_connect(const teff_client_options *opt, teff_client **out, char *text)
{
    teffi_platform platform;
    char scratch[TEFF_TEXT_MAX] = "";
    text = text ? text : scratch;
    teffi_platform_real(&platform, TEFFI_WARN);
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
    return teffi_ctx_new(&client->node);
}

/* ---- closing ---- */

void teffi_client_leave(teff_ctx *ctx, teff_client *client)
{
    client->closing = true;
    /* acquire, pairs with the release in node/task.c */
    while (atomic_load_explicit(&client->node.tasks, memory_order_acquire) > 0)
        teffi_ctx_sleep(ctx, 1);
}

void teff_client_free(teff_client *client)
{
    enum { GOODBYE_MS = 2000 };
    if (!client)
        return;
    if (client->node.exec) {
        teff_ctx *ctx = teff_client_ctx(client);
        if (client->node.net) {
            client->closing = true;
            (void)!client->node.net->ops->shutdown(client->node.net, GOODBYE_MS);
        }
        if (ctx)
            teffi_client_leave(ctx, client);
        teff_ctx_free(ctx);
        teffi_node_stop(&client->node);
        teffi_node_free_exec(&client->node);
    }
    teffi_node_fini(&client->node);
    for (uint32_t i = 0; i < client->n_gateways; i++)
        free(client->gateways[i]);
    free(client);
}
