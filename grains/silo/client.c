/* client.c - a program that calls grains without hosting any, through gateways.
 * Way:     user's thread -> request/reference -> [client] gateway -> silo
 * Threads: the user's; a task sends unsent requests again. While no gateway is connected, calls
 *          wait until their deadline. */
#include <stdio.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/options.h"
#include "call/calls.h"
#include "call/ctx.h"
#include "call/task.h"
#include "node/node.h"
#include "request/ask.h"
#include "silo/address.h"
#include "silo/client.h"
#include "silo/silo.h"

enum { WORKERS = 1, UNSENT_MAX = 10000, RESEND_MS = 20 };

/* ---- requests that were not sent ---- */

/* Removes the first unsent request from the queue. If the queue is empty, sets client->resending to
 * false under the same lock: then the next unsent request starts resend_all() again.
 * out: NULL: the queue is empty, and resend_all() must end. */
static teffi_msg *pop_unsent_or_end_resending(teff_client *client)
{
    pthread_mutex_lock(&client->node.lock);
    teffi_qnode *at = teffi_queue_pop(&client->unsent);
    client->resending = at != NULL;
    pthread_mutex_unlock(&client->node.lock);
    return at ? teffi_container(at, teffi_msg, link) : NULL;
}

/* Ends all unsent requests with an error, because the task that sends them again cannot start. */
static void fail_unsent_requests(teff_client *client)
{
    for (teffi_msg *msg; (msg = pop_unsent_or_end_resending(client));)
        teffi_node_respond_with_err(&client->node, msg, TEFF_E_UNAVAILABLE,
                                    "out of memory to send it again");
}

/* Sends msg to a gateway. While none can be reached, sleeps and tries again, until msg's deadline
 * or until the client closes. Ends msg with an error if it was not sent. */
static void resend_request(teff_ctx *ctx, teff_client *client, teffi_msg *msg)
{
    teff_err err = TEFF_E_UNREACHABLE;
    while (!client->closing && teffi_now(&client->platform) < msg->deadline_ns &&
           ((err = teffi_node_send_to_gateway(&client->node, msg)) == TEFF_E_UNREACHABLE ||
            err == TEFF_E_CLOSED))
        teffi_ctx_sleep(ctx, RESEND_MS);
    if (err == TEFF_E_UNREACHABLE || err == TEFF_E_CLOSED)
        err = TEFF_E_UNAVAILABLE;
    if (err)
        teffi_node_respond_with_err(&client->node, msg, err,
                                    teffi_unsent_request_error_text(&client->node, err));
}

/* The task that sends the unsent requests again, in order. */
static void resend_all(teff_ctx *ctx, void *arg)
{
    teff_client *client = arg;
    for (teffi_msg *msg; (msg = pop_unsent_or_end_resending(client));)
        resend_request(ctx, client, msg);
}

/* The node's upcall `unsent`, for a msg that could not be sent to its gateway. Queues msg for
 * resend_all(), which sends it again. Ends msg with an error if the queue or the memory for
 * messages is full, or if the client closes. If resend_all() cannot be started, ends all queued
 * requests with an error. */
static void queue_unsent_for_resend(teffi_node *node, teffi_node_id to, teffi_msg *msg)
{
    teff_client *client = teffi_container(node, teff_client, node);
    (void)to;
    teffi_msg_charge(msg, node->budget);
    pthread_mutex_lock(&node->lock);
    bool room = !client->closing && client->unsent.count < UNSENT_MAX &&
                !teffi_budget_is_exceeded(node->budget);
    bool start = room && !client->resending;
    if (room)
        teffi_queue_push(&client->unsent, &msg->link);
    client->resending |= room;
    pthread_mutex_unlock(&node->lock);
    if (!room)
        teffi_node_respond_with_err(node, msg, TEFF_E_UNAVAILABLE,
                                    "the client has lost its gateway");
    else if (start &&
             teffi_task_start(&node->home, resend_all, client, "client: send again", false))
        fail_unsent_requests(client);
}

/* ---- connecting ---- */

static teff_err copy_and_check_client_options(teff_client_options *opt,
                                              const teff_client_options *given, char *text)
{
    if (!teffi_options_check_and_copy(opt, sizeof *opt, given, "teff_client_options", text))
        return TEFF_E_INVALID;
    opt->cluster = opt->cluster ? opt->cluster : "dev";
    if (!opt->gateways[0])
        return teffi_option_refuse(text, "gateways", "none", "at least one host:port");
    return teffi_options_check(opt->cluster, "gateway", opt->gateways, opt->transport,
                               opt->tls_cert, opt->tls_ca, opt->connection_bytes_max, text);
}

/* Gives the client's node a random id, makes its net, and lets the node handle messages. */
static teff_err set_client_id_and_open_net(teff_client *client, const teff_client_options *opt,
                                           char *text)
{
    teffi_node *node = &client->node;
    const teffi_platform *platform = &client->platform;
    node->id.silo = (uint32_t)platform->random(platform->arg) | TEFFI_CLIENT_BIT;
    node->id.incarnation = 1 + (uint32_t)(platform->random(platform->arg) >> 33);
    node->upcalls.unsent = queue_unsent_for_resend;
    teffi_client_observers_init(client);
    const teffi_net_options net_opt = {
        .queue_max_bytes = opt->connection_bytes_max,
        .transport = (teffi_transport_kind)opt->transport,
        .tls = {.certificate = opt->tls_cert, .authority = opt->tls_ca},
        .secret_file = opt->secret_file,
    };
    teff_err err = teffi_node_net_new(node, &net_opt, text);
    if (!err)
        node->home.net->ops->identify(node->home.net, node->id, "");
    node->open = true;
    return err;
}

teff_err teffi_client_new_unconnected(const teffi_platform *platform,
                                      const teff_client_options *given, teff_client **out,
                                      char *text)
{
    teff_client_options taken, *opt = &taken;
    teffi_filters outgoing = {0};
    *out = NULL;
    text[0] = '\0';
    teff_err err = copy_and_check_client_options(opt, given, text);
    if (!err && !teffi_filters_add(&outgoing, opt->outgoing))
        err = teffi_fail(text, TEFF_E_INVALID, "outgoing: more than %d filters", TEFF_FILTERS_MAX);
    teff_client *client = err ? NULL : calloc(1, sizeof *client);
    if (!client) {
        if (!err)
            (void)teffi_fail(text, TEFF_E_NOMEM, "out of memory");
        return err ? err : TEFF_E_NOMEM;
    }
    client->platform = *platform;
    client->outgoing = outgoing;
    err = teffi_node_init(&client->node, &client->platform, TEFFI_ROLE_CLIENT, opt->cluster,
                          WORKERS, NULL);
    if (!err)
        err = teffi_gateways_init(client, opt->gateways);
    if (!err && outgoing.n)
        client->node.outgoing = &client->outgoing;
    if (!err && opt->message_bytes_max)
        teffi_budget_init(client->node.budget, opt->message_bytes_max);
    if (!err)
        err = set_client_id_and_open_net(client, opt, text);
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
    teffi_silo_init_platform(&platform, TEFF_LOG_WARN);
    teff_err err = teffi_client_new_unconnected(&platform, opt, out, text);
    if (err)
        return err;
    teff_ctx *ctx = teff_client_new_ctx(*out);
    err = ctx ? teffi_gateways_connect(ctx, *out) : TEFF_E_NOMEM;
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

teff_ctx *teff_client_new_ctx(teff_client *client)
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
        teffi_gateways_cancel_restart(client);
        if (client->node.home.net)
            (void)!client->node.home.net->ops->shutdown(client->node.home.net, GOODBYE_MS);
        teffi_node_wait_for_tasks(&client->node);
        teffi_node_stop(&client->node);
        teffi_node_free_exec_and_tasks(&client->node);
    }
    teffi_client_observers_fini(client);
    teffi_node_fini(&client->node);
    teffi_gateways_fini(client);
    free(client);
}
