/* net.c - creates and frees a link, and implements the ops of teffi_net.
 * Threads: nng runs 14 threads on two cores (tasks, resolver, timers, poll), shared by all links of
 *          the process; each link adds its ticker. Only nng's streams are used. */
#include "link/link.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/error.h"
#include "link/steps.h"

enum { FRAME_MAX_DEFAULT = 1024 * 1024 + 4096, QUEUE_MAX_DEFAULT = 64 * 1024 * 1024 };

static void identify_link(teffi_net *net, teffi_node_id self, const char *address)
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
    char url[TEFFI_ADDRESS_MAX + 32];
    if (!id.silo || (id.silo & TEFFI_CLIENT_BIT) ||
        !teffi_link_address_url(address, link->conns.tls, url, sizeof url))
        return TEFF_E_INVALID;
    pthread_mutex_lock(&link->conns.lock);
    link_peer *peer = link->leaving ? NULL : teffi_peer_make(link, id);
    teff_err err = peer ? TEFF_OK : link->leaving ? TEFF_E_CLOSED : TEFF_E_NOMEM;
    if (peer)
        teffi_peer_know(peer, address);
    pthread_mutex_unlock(&link->conns.lock);
    return err;
}

/* Both sides present a certificate signed by the cluster's own authority. Names in it are not
 * checked, because silos move between addresses. */
static teff_err make_tls_config(const teffi_net_options *opt, nng_tls_mode mode,
                                nng_tls_config **out, char *text)
{
    nng_tls_config *config;
    const char *what = "tls";
    int rv = nng_tls_config_alloc(&config, mode);
    if (rv == 0) {
        what = opt->tls_cert;
        rv = nng_tls_config_cert_key_file(config, opt->tls_cert, NULL);
        if (rv == 0) {
            what = opt->tls_ca;
            rv = nng_tls_config_ca_file(config, opt->tls_ca);
        }
        if (rv == 0)
            rv = nng_tls_config_auth_mode(config, NNG_TLS_AUTH_MODE_REQUIRED);
        if (rv)
            nng_tls_config_free(config);
    }
    if (rv)
        return teffi_fail(text, TEFF_E_INVALID, "%.300s: %s", what, nng_strerror(rv));
    *out = config;
    return TEFF_OK;
}

static teff_err set_tls(teffi_link *link, const teffi_net_options *opt, char *text)
{
    if (!opt->tls_cert && !opt->tls_ca)
        return TEFF_OK;
    if (!opt->tls_cert || !opt->tls_ca)
        return teffi_fail(text, TEFF_E_INVALID, "tls takes both a certificate and an authority");
    teff_err err = make_tls_config(opt, NNG_TLS_MODE_CLIENT, &link->tls_dial, text);
    link->conns.tls = err == TEFF_OK;
    return err ? err : make_tls_config(opt, NNG_TLS_MODE_SERVER, &link->tls_accept, text);
}

static void free_link_memory(teffi_link *link)
{
    nng_aio_free(link->accept_aio);
    if (link->listener)
        nng_stream_listener_free(link->listener);
    if (link->tls_dial)
        nng_tls_config_free(link->tls_dial);
    if (link->tls_accept)
        nng_tls_config_free(link->tls_accept);
    teffi_conns_fini(&link->conns);
    free(link);
}

/* Each connection then ends in its own callback. */
static void kill_all(teffi_conns *conns)
{
    pthread_mutex_lock(&conns->lock);
    for (teffi_conn *c = LIST_FIRST(&conns->all); c; c = LIST_NEXT(c, link))
        teffi_conn_kill(c);
    pthread_mutex_unlock(&conns->lock);
}

static void free_conns(teffi_link *link)
{
    teffi_conns *conns = &link->conns;
    pthread_mutex_lock(&conns->lock);
    while (conns->live)
        pthread_cond_wait(&conns->changed, &conns->lock);
    pthread_mutex_unlock(&conns->lock);
    teffi_driver_reap(link);
}

static void free_link(teffi_net *net)
{
    teffi_link *link = (teffi_link *)net;
    if (!net)
        return;
    pthread_mutex_lock(&link->conns.lock);
    link->leaving = link->freeing = true;
    pthread_mutex_unlock(&link->conns.lock);
    if (link->listener)
        nng_stream_listener_close(link->listener);
    nng_aio_stop(link->accept_aio);
    teffi_link_heartbeat_stop(link);
    teffi_sender_write_coalesced(&link->conns); /* after this only events send */
    (void)teffi_client_reader_expire(&link->conns, true);
    kill_all(&link->conns);
    teffi_driver_sweep(link);
    free_conns(link);
    teffi_peers_forget(link);
    free_link_memory(link);
}

static const teffi_net_ops link_ops = {
    .listen = teffi_accept_listen,
    .accept = teffi_accept_begin,
    .identify = identify_link,
    .peer_add = add_peer,
    .peer_remove = teffi_goodbye_remove,
    .peer_left = teffi_goodbye_left,
    .dial = teffi_dial_address,
    .send = teffi_next_hop_send,
    .wait = teffi_driver_wait,
    .shutdown = teffi_goodbye_shutdown,
    .free = free_link,
};

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
    return value ? value : otherwise;
}

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
    link->conns.frame_max_bytes = or_default(opt->frame_max_bytes, FRAME_MAX_DEFAULT);
    link->conns.queue_max_bytes = or_default(opt->queue_max_bytes, QUEUE_MAX_DEFAULT);
    link->heartbeat_ms = or_default(opt->heartbeat_ms, 1000);
    link->hello_timeout_ms = or_default(opt->hello_timeout_ms, 10000);
    link->clients_max = or_default(opt->clients_max, 10000);
}

teff_err teffi_net_nng_new(const struct teffi_platform *platform, const teffi_net_options *opt,
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
    link->secret.k0 = platform->random(platform->arg);
    link->secret.k1 = platform->random(platform->arg);
    teff_err err = set_tls(link, opt, text);
    if (!err && nng_aio_alloc(&link->accept_aio, teffi_accept_cb, link) != 0)
        err = teffi_fail(text, TEFF_E_NOMEM, "link: out of memory");
    if (!err && teffi_link_heartbeat_start(link))
        err = teffi_fail(text, TEFF_E_IO, "link: a thread could not start");
    if (err) {
        free_link_memory(link);
        return err;
    }
    *net = &link->net;
    return TEFF_OK;
}
