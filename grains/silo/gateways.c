/* gateways.c - dials gateways, again when their connection breaks, and leaves those that have sent
 * GO_AWAY. */
#include "silo/gateways.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "call/calls.h"
#include "call/ctx.h"
#include "call/task.h"
#include "cluster/membership.h"
#include "silo/address.h"
#include "silo/client.h"

/* RESTART_MS: pause until a task is started again that could not start for want of memory. */
enum { PAUSE_FIRST_MS = 20, PAUSE_MAX_MS = 1000, RESTART_MS = 100 };

/* ---- places; under node.lock ---- */

static unsigned get_place_index(const gateway_place *place)
{
    return (unsigned)(place - place->client->places);
}

static teffi_node_id get_gateway(const gateway_place *place)
{
    return teffi_gateways_get(&place->client->node.gateways, get_place_index(place));
}

static void set_gateway(gateway_place *place, teffi_node_id id)
{
    teffi_gateways_set(&place->client->node.gateways, get_place_index(place), id);
}

/* Empties each place that holds the gateway `id`. out: false: no place held it. */
static bool remove_gateway(teff_client *client, teffi_node_id id)
{
    bool found = false;
    for (uint32_t i = 0; i < client->n_places; i++)
        if (teffi_node_equals(get_gateway(&client->places[i]), id)) {
            set_gateway(&client->places[i], (teffi_node_id){0});
            found = true;
        }
    return found;
}

/* Has the gateway `id` sent GO_AWAY? */
static bool gateway_is_leaving(const teff_client *client, teffi_node_id id)
{
    bool found = false;
    for (int i = 0; i < TEFF_SEEDS_MAX; i++)
        found |= teffi_node_equals(client->leaving[i], id);
    return found;
}

/* ---- connecting ---- */

/* Puts the gateway `id`, which was dialled just now, into `place`, unless the gateway is leaving or
 * its connection may have broken already. out: true: the gateway is in the place. */
static bool set_gateway_if_usable(gateway_place *place, teffi_node_id id)
{
    teff_client *client = place->client;
    pthread_mutex_lock(&client->node.lock);
    bool stays = !place->missed && !gateway_is_leaving(client, id);
    if (stays)
        set_gateway(place, id);
    pthread_mutex_unlock(&client->node.lock);
    return stays;
}

/* Dials the place's address once, and puts the gateway into the place. errs: text in ctx. */
static teff_err dial_gateway_once(teff_ctx *ctx, gateway_place *place)
{
    teff_mark mark = teff_ctx_mark(ctx);
    teffi_hello peer;
    pthread_mutex_lock(&place->client->node.lock);
    place->missed = false;
    pthread_mutex_unlock(&place->client->node.lock);
    teff_err err = teffi_dial(ctx, place->address, &peer);
    teff_ctx_rewind(ctx, mark);
    if (err || set_gateway_if_usable(place, peer.node))
        return err;
    return teff_fail(ctx, TEFF_E_UNREACHABLE,
                     "%s: this gateway is leaving, or its connection broke", place->address);
}

/* Sets place->connecting to false if the place has a gateway or the client closes.
 * out: true: it was set to false, so dial_gateway_until_connected() must end. */
static bool end_connecting_if_done(gateway_place *place)
{
    pthread_mutex_lock(&place->client->node.lock);
    place->connecting = !place->client->closing && teffi_node_is_none(get_gateway(place));
    bool ends = !place->connecting;
    pthread_mutex_unlock(&place->client->node.lock);
    return ends;
}

/* Dials until the place has a gateway or the client closes. The pause before each dial doubles, up
 * to PAUSE_MAX_MS; a random part, up to a half, is subtracted, so that the clients of a lost silo
 * do not all dial at the same time. */
static void dial_gateway_until_connected(teff_ctx *ctx, void *arg)
{
    gateway_place *place = arg;
    const teffi_platform *platform = &place->client->platform;
    for (uint32_t pause = PAUSE_FIRST_MS; !end_connecting_if_done(place);) {
        uint32_t less = (uint32_t)(platform->random(platform->arg) % (pause / 2 + 1));
        teffi_ctx_sleep(ctx, pause - less);
        if (!place->client->closing)
            (void)dial_gateway_once(ctx, place);
        pause = pause * 2 < PAUSE_MAX_MS ? pause * 2 : PAUSE_MAX_MS;
    }
}

/* Starts a dial_gateway_until_connected() for the place, if it is empty and has no such task.
 * out: false: no memory. */
static bool start_connecting_place(gateway_place *place)
{
    teff_client *client = place->client;
    pthread_mutex_lock(&client->node.lock);
    bool start = !client->closing && !place->connecting && teffi_node_is_none(get_gateway(place));
    place->connecting |= start;
    pthread_mutex_unlock(&client->node.lock);
    if (!start || !teffi_task_start(&client->node.home, dial_gateway_until_connected, place,
                                    "client: connect to a gateway", false))
        return true;
    pthread_mutex_lock(&client->node.lock);
    place->connecting = false;
    pthread_mutex_unlock(&client->node.lock);
    return false;
}

/* connect_lock held. Starts to connect all empty places. If there is no memory to connect a place,
 * restart_timer calls this function again later: otherwise the place would stay empty until the
 * connection to another gateway breaks. */
static void start_connecting_locked(teff_client *client)
{
    bool failed = false;
    for (uint32_t i = 0; i < client->n_places; i++)
        failed |= !start_connecting_place(&client->places[i]);
    if (!failed || client->restarts || client->closing)
        return;
    client->restarts = true;
    client->node.home.exec->ops->timer_set(client->node.home.exec, &client->restart_timer,
                                           teffi_now(&client->platform) + RESTART_MS * 1000000ull);
}

static void start_connecting(teff_client *client)
{
    pthread_mutex_lock(&client->connect_lock);
    start_connecting_locked(client);
    pthread_mutex_unlock(&client->connect_lock);
}

static void on_restart_timer(teffi_timer *timer)
{
    teff_client *client = teffi_container(timer, teff_client, restart_timer);
    pthread_mutex_lock(&client->connect_lock);
    client->restarts = false;
    start_connecting_locked(client);
    pthread_mutex_unlock(&client->connect_lock);
}

teff_err teffi_gateways_connect(teff_ctx *ctx, teff_client *client)
{
    teff_err err = TEFF_E_UNREACHABLE;
    uint32_t first = (uint32_t)client->platform.random(client->platform.arg);
    for (uint32_t i = 0; i < client->n_places && err; i++)
        err = dial_gateway_once(ctx, &client->places[(first + i) % client->n_places]);
    if (!err)
        start_connecting(client);
    return err;
}

/* ---- a gateway breaks or leaves ---- */

/* The node's net_down callback: empties the gateway's place, and starts to connect again. */
static void on_gateway_down(teffi_node *node, const teffi_hello *peer, bool clean)
{
    teff_client *client = teffi_container(node, teff_client, node);
    (void)clean;
    /* Remove this incarnation of the gateway from the peers. Its address may now belong to another
     * incarnation, which becomes a peer at the next dial. */
    node->home.net->ops->peer_remove(node->home.net, peer->node, false);
    pthread_mutex_lock(&node->lock);
    bool known = remove_gateway(client, peer->node);
    /* If no place has the gateway, a dial to it may be under way: set_gateway_if_usable() must
     * reject it. */
    for (uint32_t i = 0; i < client->n_places; i++)
        client->places[i].missed |= !known;
    pthread_mutex_unlock(&node->lock);
    teffi_client_observers_lose_gateway(client, peer->node);
    if (known)
        start_connecting(client);
}

/* Reserves an entry of client->parting for the leave_gateway() task of the gateway `from`.
 * out: NULL: the gateway has such a task already, or all entries are in use. */
static teffi_node_id *reserve_parting_entry(teff_client *client, teffi_node_id from)
{
    teffi_node_id *empty = NULL;
    bool parts = false;
    pthread_mutex_lock(&client->node.lock);
    for (int i = 0; i < TEFF_SEEDS_MAX; i++) {
        parts |= teffi_node_equals(client->parting[i], from);
        if (teffi_node_is_none(client->parting[i]))
            empty = &client->parting[i];
    }
    if (!parts && empty)
        *empty = from;
    pthread_mutex_unlock(&client->node.lock);
    return parts ? NULL : empty;
}

static void clear_parting_entry(teff_client *client, teffi_node_id *entry)
{
    pthread_mutex_lock(&client->node.lock);
    *entry = (teffi_node_id){0};
    pthread_mutex_unlock(&client->node.lock);
}

/* The task that leaves a gateway: disconnects when all calls through it have ended, or the client
 * closes. The gateway waits for the disconnection. A thread may have chosen the gateway for a
 * request just before the gateway's place was emptied: after peer_left() the net refuses such a
 * request, and the thread sends it to another gateway. */
static void leave_gateway(teff_ctx *ctx, void *arg)
{
    enum { POLL_MS = 2 };
    teff_client *client = teffi_container(ctx->node, teff_client, node);
    teffi_node_id from =
        *(teffi_node_id *)arg; /* until clear_parting_entry() nothing changes the entry */
    teffi_net *net = ctx->node->home.net;
    net->ops->peer_left(net, from);
    while (!client->closing && teffi_calls_any_sent_to(&ctx->node->home, from))
        teffi_ctx_sleep(ctx, POLL_MS);
    net->ops->peer_remove(net, from, true);
    clear_parting_entry(client, arg);
}

static void start_leaving_gateway(teff_client *client, teffi_node_id from)
{
    teffi_node_id *entry = reserve_parting_entry(client, from);
    if (entry && teffi_task_start(&client->node.home, leave_gateway, entry,
                                  "client: leave a gateway", false))
        clear_parting_entry(client, entry);
}

/* Handles GO_AWAY from a gateway that leaves. From now on calls use other gateways, or wait until
 * one is connected. */
static void on_go_away(teffi_node *node, teffi_msg *msg)
{
    teff_client *client = teffi_container(node, teff_client, node);
    if (msg->method_id == TEFFI_METHOD_GO_AWAY && !client->closing) {
        pthread_mutex_lock(&node->lock);
        if (!gateway_is_leaving(client, msg->src))
            client->leaving[client->n_leaving++ % TEFF_SEEDS_MAX] = msg->src;
        (void)remove_gateway(client, msg->src);
        pthread_mutex_unlock(&node->lock);
        start_connecting(client);
        start_leaving_gateway(client, msg->src);
    }
    teffi_node_respond_with_err(node, msg, TEFF_OK, NULL);
}

/* ---- life ---- */

teff_err teffi_gateways_init(teff_client *client, const char *const *addresses)
{
    _Static_assert(TEFF_SEEDS_MAX <= TEFFI_GATEWAYS_MAX, "a place for each address");
    client->node.net_down = on_gateway_down;
    client->restart_timer.fire = on_restart_timer;
    pthread_mutex_init(&client->connect_lock, NULL);
    teffi_node_set_target(&client->node, TEFFI_SLOT_MEMBERSHIP, on_go_away);
    for (uint32_t i = 0; i < TEFF_SEEDS_MAX && addresses[i]; i++) {
        gateway_place *place = &client->places[client->n_places++];
        place->client = client;
        place->address = strdup(addresses[i]);
        if (!place->address)
            return TEFF_E_NOMEM;
    }
    return TEFF_OK;
}

void teffi_gateways_cancel_restart(teff_client *client)
{
    teffi_exec *exec = client->node.home.exec;
    pthread_mutex_lock(&client->connect_lock);
    exec->ops->timer_cancel(exec, &client->restart_timer);
    pthread_mutex_unlock(&client->connect_lock);
}

void teffi_gateways_fini(teff_client *client)
{
    pthread_mutex_destroy(&client->connect_lock);
    for (uint32_t i = 0; i < client->n_places; i++)
        free(client->places[i].address);
}
