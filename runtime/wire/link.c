/* link.c - the transport over nng's streams: its options, its counters, its beginning and end.
 * Way:     process/node -> net ops -> [link] -> link_send, link_dial, link_accept, ...
 * Threads: nng keeps 14 of its own on two cores (tasks, resolver, timers, poll), shared by all
 *          links of the process; each link adds one, its ticker.
 * Source:  DESIGN sections 3 and 9; DEPS section 2: streams only, no SP protocol */
#include "wire/link.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(teffi_net_counters) == LINK_FACTS * sizeof(uint64_t),
               "link_fact names the counters in their order");

enum { FRAME_MAX_DEFAULT = 1024 * 1024 + 4096, QUEUE_MAX_DEFAULT = 64 * 1024 * 1024 };

void teffi_link_count(teffi_link *link, link_fact fact, uint64_t n)
{
    atomic_fetch_add_explicit(&link->facts[fact], n, memory_order_relaxed);
}

void teffi_link_note(teffi_link *link, link_fact fact, const char *fmt, ...)
{
    char line[TEFF_TEXT_MAX];
    va_list args;
    teffi_link_count(link, fact, 1);
    uint64_t second = teffi_link_now(link) / 1000000000u + 1;
    uint64_t last = atomic_load_explicit(&link->logged_s[fact], memory_order_relaxed);
    if (last == second ||
        !atomic_compare_exchange_strong_explicit(&link->logged_s[fact], &last, second,
                                                 memory_order_relaxed, memory_order_relaxed))
        return;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    teffi_logf(&link->platform->log, TEFFI_WARN, "link: %s", line);
}

static void link_counters(teffi_net *net, teffi_net_counters *out)
{
    teffi_link *link = (teffi_link *)net;
    uint64_t values[LINK_FACTS];
    for (unsigned i = 0; i < LINK_FACTS; i++)
        values[i] = atomic_load_explicit(&link->facts[i], memory_order_relaxed);
    memcpy(out, values, sizeof *out);
}

static void link_identify(teffi_net *net, teffi_node_id self, const char *address)
{
    teffi_link *link = (teffi_link *)net;
    pthread_mutex_lock(&link->lock);
    link->self.node = self;
    /* relaxed: connections that use it come after identify */
    atomic_store_explicit(&link->self_node, teffi_node_word(self), memory_order_relaxed);
    snprintf(link->self.address, sizeof link->self.address, "%s", address);
    pthread_mutex_unlock(&link->lock);
}

static teff_err link_peer_add(teffi_net *net, teffi_node_id id, const char *address)
{
    teffi_link *link = (teffi_link *)net;
    char url[TEFFI_ADDRESS_MAX + 32];
    if (!id.silo || (id.silo & TEFFI_CLIENT_BIT) ||
        !teffi_link_address_url(link, address, url, sizeof url))
        return TEFF_E_INVALID;
    pthread_mutex_lock(&link->lock);
    link_node *node = link->leaving ? NULL : teffi_link_node_make(link, id);
    teff_err err = node ? TEFF_OK : link->leaving ? TEFF_E_CLOSED : TEFF_E_NOMEM;
    if (node)
        teffi_link_node_know(node, address);
    pthread_mutex_unlock(&link->lock);
    return err;
}

/* Both sides show a certificate that the cluster's own authority signed; names in it are not
 * looked at, because silos move between addresses. */
static teff_err tls_config(const teffi_net_options *opt, nng_tls_mode mode, nng_tls_config **out,
                           char *text)
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
    if (rv) {
        snprintf(text, TEFF_TEXT_MAX, "%.300s: %s", what, nng_strerror(rv));
        return TEFF_E_INVALID;
    }
    *out = config;
    return TEFF_OK;
}

static teff_err set_tls(teffi_link *link, const teffi_net_options *opt, char *text)
{
    if (!opt->tls_cert && !opt->tls_ca)
        return TEFF_OK;
    if (!opt->tls_cert || !opt->tls_ca) {
        snprintf(text, TEFF_TEXT_MAX, "tls takes both a certificate and an authority");
        return TEFF_E_INVALID;
    }
    teff_err err = tls_config(opt, NNG_TLS_MODE_CLIENT, &link->tls_dial, text);
    return err ? err : tls_config(opt, NNG_TLS_MODE_SERVER, &link->tls_accept, text);
}

static void free_memory(teffi_link *link)
{
    nng_aio_free(link->accept_aio);
    if (link->listener)
        nng_stream_listener_free(link->listener);
    if (link->tls_dial)
        nng_tls_config_free(link->tls_dial);
    if (link->tls_accept)
        nng_tls_config_free(link->tls_accept);
    pthread_cond_destroy(&link->changed);
    pthread_mutex_destroy(&link->lock);
    free(link);
}

/* Kill every connection; each then ends in its own callback. Chained, not looped: ending takes the
 * lock. */
static void kill_all(teffi_link *link)
{
    teffi_conn *all = NULL;
    pthread_mutex_lock(&link->lock);
    for (teffi_conn *c = link->conns; c; c = c->next) {
        teffi_link_conn_ref(c);
        c->tick_next = all; /* the ticker has stopped */
        all = c;
    }
    pthread_mutex_unlock(&link->lock);
    while (all) {
        teffi_conn *next = all->tick_next;
        teffi_link_conn_kill(all);
        teffi_link_conn_unref(all);
        all = next;
    }
}

static void forget_nodes(teffi_link *link)
{
    link_node *gone = NULL;
    pthread_mutex_lock(&link->lock);
    while (link->live)
        pthread_cond_wait(&link->changed, &link->lock);
    for (unsigned i = 0; i < LINK_BUCKETS; i++)
        while (link->buckets[i]) {
            link_node *node = link->buckets[i];
            link->buckets[i] = node->bucket_next;
            node->listed = false;
            node->bucket_next = gone;
            gone = node;
        }
    pthread_mutex_unlock(&link->lock);
    while (gone) {
        link_node *next = gone->bucket_next;
        teffi_link_node_unref(gone);
        gone = next;
    }
    pthread_mutex_lock(&link->lock);
    while (link->nodes) /* a drain may be at its last steps */
        pthread_cond_wait(&link->changed, &link->lock);
    pthread_mutex_unlock(&link->lock);
}

static void link_free(teffi_net *net)
{
    teffi_link *link = (teffi_link *)net;
    if (!net)
        return;
    pthread_mutex_lock(&link->lock);
    link->leaving = link->freeing = true;
    pthread_mutex_unlock(&link->lock);
    if (link->listener)
        nng_stream_listener_close(link->listener);
    nng_aio_stop(link->accept_aio);
    teffi_link_tick_stop(link);
    teffi_link_burst_end(link); /* nobody sends any more, but out of an event */
    (void)teffi_link_reader_late(link, true);
    teffi_link_recv_reclaim(link);
    kill_all(link);
    forget_nodes(link);
    teffi_link_conn_reap(link);
    teffi_link_conn_forget(link);
    free_memory(link);
}

static const teffi_net_ops link_ops = {
    .listen = teffi_link_listen,
    .identify = link_identify,
    .peer_add = link_peer_add,
    .peer_remove = teffi_link_peer_remove,
    .dial = teffi_link_dial,
    .send = teffi_link_send,
    .flush = teffi_link_flush,
    .read_begin = teffi_link_read_begin,
    .read_end = teffi_link_read_end,
    .counters = link_counters,
    .shutdown = teffi_link_shutdown,
    .free = link_free,
};

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
    return value ? value : otherwise;
}

static void set_options(teffi_link *link, const teffi_net_options *opt)
{
    link->self = opt->self;
    atomic_init(&link->self_node, teffi_node_word(opt->self.node));
    link->self.version_min = TEFFI_PROTOCOL_MIN;
    link->self.version_max = TEFFI_PROTOCOL_MAX;
    link->events = *opt->events;
    link->arg = opt->arg;
    link->exec = opt->exec;
    link->frame_max_bytes = or_default(opt->frame_max_bytes, FRAME_MAX_DEFAULT);
    link->queue_max_bytes = or_default(opt->queue_max_bytes, QUEUE_MAX_DEFAULT);
    link->heartbeat_ms = or_default(opt->heartbeat_ms, 1000);
    link->hello_timeout_ms = or_default(opt->hello_timeout_ms, 10000);
}

teff_err teffi_net_nng_new(const struct teffi_platform *platform, const teffi_net_options *opt,
                           teffi_net **net, char *text)
{
    teffi_link *link = calloc(1, sizeof *link);
    *net = NULL;
    if (!link) {
        snprintf(text, TEFF_TEXT_MAX, "link: out of memory");
        return TEFF_E_NOMEM;
    }
    link->net.ops = &link_ops;
    link->platform = platform;
    pthread_mutex_init(&link->lock, NULL);
    pthread_cond_init(&link->changed, NULL);
    set_options(link, opt);
    teffi_link_recv_init(link);
    teff_err err = set_tls(link, opt, text);
    if (!err && nng_aio_alloc(&link->accept_aio, teffi_link_accept_cb, link) != 0) {
        snprintf(text, TEFF_TEXT_MAX, "link: out of memory");
        err = TEFF_E_NOMEM;
    }
    if (!err && teffi_link_tick_start(link)) {
        snprintf(text, TEFF_TEXT_MAX, "link: a thread could not start");
        err = TEFF_E_IO;
    }
    if (err) {
        free_memory(link);
        return err;
    }
    *net = &link->net;
    return TEFF_OK;
}
