/* net.c - creates and frees a link: its options, its transport, and the table of its ops.
 * Threads: a link starts its ticker; its transport may have threads of its own. */
#include "link/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/options.h"
#include "config.h"
#include "link/steps.h"

enum { FRAME_MAX_DEFAULT = 1024 * 1024 + 4096, QUEUE_MAX_DEFAULT = 64 * 1024 * 1024 };

static void set_own_identity(teffi_net *net, teffi_node_id self, const char *address)
{
    teffi_link *link = (teffi_link *)net;
    pthread_mutex_lock(&link->conns.lock);
    link->self.node = self;
    snprintf(link->self.address, sizeof link->self.address, "%s", address);
    pthread_mutex_unlock(&link->conns.lock);
}

static teff_err add_peer(teffi_net *net, teffi_node_id id, const char *address)
{
    teffi_link *link = (teffi_link *)net;
    if (!id.silo || (id.silo & TEFFI_CLIENT_BIT) || !teffi_address_is_valid(address))
        return TEFF_E_INVALID;
    pthread_mutex_lock(&link->conns.lock);
    link_peer *peer = link->leaving ? NULL : teffi_peer_find_or_add(link, id);
    teff_err err = peer ? TEFF_OK : link->leaving ? TEFF_E_CLOSED : TEFF_E_NOMEM;
    if (peer)
        teffi_peer_set_known(peer, address);
    pthread_mutex_unlock(&link->conns.lock);
    return err;
}

static const uint8_t *get_own_key(teffi_net *net)
{
    const teffi_link *link = (teffi_link *)net;
    return link->identity ? teffi_identity_hash(link->identity) : NULL;
}

/* conns.lock held. conn may be NULL. */
static void kill_if_key_differs(const link_peer *peer, teffi_conn *conn)
{
    if (conn && conn->state == CONN_UP && !teffi_key_fits(peer->key, conn->handshake.remote.key))
        teffi_conn_kill(conn);
}

static void expect_key(teffi_net *net, teffi_node_id id, const uint8_t *key)
{
    teffi_link *link = (teffi_link *)net;
    pthread_mutex_lock(&link->conns.lock);
    link_peer *peer = teffi_peer_find(link, id);
    if (peer) {
        memcpy(peer->key, key, sizeof peer->key);
        kill_if_key_differs(peer, peer->in);
        kill_if_key_differs(peer, peer->out);
    }
    pthread_mutex_unlock(&link->conns.lock);
}

/* relaxed: see append_view_if_new() in sender.c */
static void carry_view(teffi_net *net, uint64_t version)
{
    atomic_store_explicit(&((teffi_link *)net)->conns.view, version, memory_order_relaxed);
}

static void free_link_memory(teffi_link *link)
{
    if (link->conns.transport)
        link->conns.transport->ops->free(link->conns.transport);
    teffi_secrets_fini(&link->secrets);
    teffi_identity_free(link->identity);
    teffi_polling_fini(&link->conns);
    teffi_conns_fini(&link->conns);
    free(link);
}

/* Kills all connections. A killed connection ends in a callback of its stream or dial, unless it
 * waits for memory: in that case teffi_driver_resume_waiting_conns() ends it. */
static void kill_all_conns(teffi_conns *conns)
{
    pthread_mutex_lock(&conns->lock);
    for (teffi_conn *c = LIST_FIRST(&conns->all); c; c = LIST_NEXT(c, link))
        teffi_conn_kill(c);
    pthread_mutex_unlock(&conns->lock);
}

/* Waits until no connection has a reference, then frees all connections. If the transport has a
 * poller, this thread polls, because no other thread does any more. */
static void wait_and_free_conns(teffi_link *link)
{
    teffi_conns *conns = &link->conns;
    pthread_mutex_lock(&conns->lock);
    while (conns->live && !conns->polling.poller)
        pthread_cond_wait(&conns->changed, &conns->lock);
    while (conns->live) {
        pthread_mutex_unlock(&conns->lock);
        (void)teffi_poller_poll_once(conns->polling.poller);
        pthread_mutex_lock(&conns->lock);
    }
    pthread_mutex_unlock(&conns->lock);
    teffi_driver_free_dead_conns(link);
}

/* Frees the link. A killed connection ends in the callback of its operation in flight. Two kinds of
 * connections have no such operation: those whose read is deferred, and those that wait for memory.
 * For the first kind, the read is begun before kill_all_conns(). The second kind is ended after it
 * by teffi_driver_resume_waiting_conns(). */
static void free_link(teffi_net *net)
{
    teffi_link *link = (teffi_link *)net;
    if (!net)
        return;
    pthread_mutex_lock(&link->conns.lock);
    link->leaving = link->freeing = true;
    pthread_mutex_unlock(&link->conns.lock);
    link->conns.transport->ops->stop_listeners(link->conns.transport);
    teffi_link_heartbeat_stop(link);
    /* Frames that are coalesced from here on are written by drain_events_and_write_coalesced(). */
    teffi_sender_write_coalesced(&link->conns);
    (void)teffi_client_reader_run_overdue_reads(&link->conns, true);
    kill_all_conns(&link->conns);
    teffi_driver_resume_waiting_conns(link);
    wait_and_free_conns(link);
    teffi_peers_fini(link);
    free_link_memory(link);
}

static const teffi_net_ops link_ops = {
    .listen = teffi_accept_listen,
    .accept = teffi_accept_begin,
    .identify = set_own_identity,
    .key = get_own_key,
    .peer_add = add_peer,
    .expect_key = expect_key,
    .carry_view = carry_view,
    .peer_remove = teffi_goodbye_remove_peer,
    .peer_dead = teffi_goodbye_remove_dead_peer,
    .peer_left = teffi_goodbye_mark_peer_left,
    .dial = teffi_dial_address,
    .send = teffi_next_hop_send,
    .wait = teffi_driver_wait,
    .shutdown = teffi_goodbye_shutdown,
    .free = free_link,
};

static void set_options(teffi_link *link, const teffi_net_options *opt)
{
    link->self = opt->self;
    link->self.version_min = TEFFI_PROTOCOL_MIN;
    link->self.version_max = TEFFI_PROTOCOL_MAX;
    link->events = *opt->events;
    link->conns.sent = opt->events->sent;
    link->conns.sent_arg = opt->arg;
    link->arg = opt->arg;
    link->conns.role = opt->self.role;
    link->conns.exec = opt->exec;
    link->conns.budget = opt->budget;
    link->conns.until_ns = opt->until_ns;
    link->conns.frame_max_bytes = teffi_or_default(opt->frame_max_bytes, FRAME_MAX_DEFAULT);
    link->conns.queue_max_bytes = teffi_or_default(opt->queue_max_bytes, QUEUE_MAX_DEFAULT);
    link->heartbeat_ms = teffi_or_default(opt->heartbeat_ms, 1000);
    link->hello_timeout_ms = teffi_or_default(opt->hello_timeout_ms, 10000);
    link->clients_max = teffi_or_default(opt->clients_max, 10000);
}

static void init_doors(teffi_link *link)
{
    for (int i = 0; i < TEFFI_DOORS; i++)
        link->doors[i] = (link_door){.link = link, .door = (teffi_door)i};
}

/* TEFFI_TRANSPORT_DEFAULT means nng if TLS is used, otherwise the build option's choice. */
static teff_err make_transport(teffi_link *link, const teffi_net_options *opt, char *text)
{
    teffi_transport **transport = &link->conns.transport;
    const teffi_tls_files *tls_files = &opt->tls;
    bool tls = tls_files->certificate || tls_files->authority || tls_files->client_authority;
    bool by_default = opt->transport == TEFFI_TRANSPORT_DEFAULT;
    bool reactor =
        by_default ? TEFFI_DEFAULT_REACTOR && !tls : opt->transport == TEFFI_TRANSPORT_REACTOR;
    teff_err err = reactor ? teffi_socket_transport_new(link->conns.platform, transport, text)
                           : teffi_nng_transport_new(&opt->tls, transport, text);
    if (err)
        return err;
    (*transport)->accepted = teffi_accept_handle_result;
    for (int i = 0; i < TEFFI_DOORS; i++)
        (*transport)->door_arg[i] = &link->doors[i];
    return TEFF_OK;
}

teff_err teffi_net_link_new(const struct teffi_platform *platform, const teffi_net_options *opt,
                            teffi_net **net, char *text)
{
    teffi_link *link = calloc(1, sizeof *link);
    *net = NULL;
    if (!link)
        return teffi_fail(text, TEFF_E_NOMEM, "link: out of memory");
    link->net.ops = &link_ops;
    link->conns.platform = platform;
    teffi_conns_init(&link->conns);
    set_options(link, opt);
    init_doors(link);
    teffi_driver_init(link);
    link->secret.k0 = platform->random(platform->arg);
    link->secret.k1 = platform->random(platform->arg);
    teff_err err =
        teffi_secrets_init(&link->secrets, opt->secret_file, opt->client_secret_file, text);
    if (!err)
        err = make_transport(link, opt, text);
    if (!err && link->conns.transport->tls)
        err = teffi_identity_new(platform, &opt->tls, &link->identity, text);
    teffi_polling_init(&link->conns, err ? NULL : link->conns.transport->poller);
    if (!err && teffi_link_heartbeat_start(link))
        err = teffi_fail(text, TEFF_E_IO, "link: a thread could not start");
    if (err) {
        free_link_memory(link);
        return err;
    }
    teffi_polling_start(&link->conns); /* last: a later failure would free what the workers poll */
    *net = &link->net;
    return TEFF_OK;
}
