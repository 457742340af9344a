/* address.c - check addresses, cluster ids and common options; dial and wait for the hello. */
#include "silo/address.h"

#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "call/wait.h"
#include "node/node.h"
#include "silo/silo.h"
#include "stream/stream.h"

static bool address_starts_with(const char *address, const char *with)
{
    return strncmp(address, with, strlen(with)) == 0;
}

bool teffi_address_is_loopback(const char *address)
{
    size_t ip_len = strspn(address, "0123456789.");
    return teffi_address_path(address) ||
           (address_starts_with(address, "127.") && address[ip_len] == ':') ||
           address_starts_with(address, "[::1]:") || address_starts_with(address, "localhost:");
}

bool teffi_address_is_wildcard(const char *address)
{
    return address_starts_with(address, "0.0.0.0:") || address_starts_with(address, "[::]:");
}

bool teffi_cluster_id_is_valid(const char *cluster)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = strspn(cluster, letters);
    return n >= 1 && n <= TEFFI_CLUSTER_MAX && !cluster[n];
}

teff_err teffi_option_refuse(char *text, const char *option, const char *value,
                             const char *expected)
{
    return teffi_fail(text, TEFF_E_INVALID, "%s: '%.100s'; expected %s", option, value, expected);
}

teff_err teffi_option_check_address(char *text, const char *option, const char *address, bool tls)
{
    if (!teffi_address_is_valid(address))
        return teffi_option_refuse(text, option, address, TEFFI_ADDRESS_EXPECTED);
    if (tls && teffi_address_path(address))
        return teffi_option_refuse(text, option, address, "no unix:/path, with TLS");
    return TEFF_OK;
}

teff_err teffi_options_check(const char *cluster, const char *name, const char *const *addresses,
                             teff_transport transport, const char *tls_cert, const char *tls_ca,
                             uint64_t connection_bytes_max, char *text)
{
    if (!teffi_cluster_id_is_valid(cluster))
        return teffi_option_refuse(text, "cluster", cluster, "1 to 64 of A-Z a-z 0-9 . _ -");
    teff_err err = TEFF_OK;
    for (int i = 0; !err && i < TEFF_SEEDS_MAX && addresses[i]; i++)
        err = teffi_option_check_address(text, name, addresses[i], tls_cert);
    if (err)
        return err;
    if (!tls_cert != !tls_ca)
        return teffi_option_refuse(text, "tls_cert, tls_ca", tls_cert ? tls_cert : tls_ca,
                                   "both or neither");
    if (transport > TEFF_TRANSPORT_REACTOR)
        return teffi_option_refuse(text, "transport", "not one", "one of teff_transport");
    if (transport == TEFF_TRANSPORT_REACTOR && tls_cert)
        return teffi_option_refuse(text, "transport", "reactor", "nng, with TLS");
    if (connection_bytes_max > TEFFI_QUEUE_BYTES_MAX)
        return teffi_option_refuse(text, "connection_bytes_max", "too large", "at most 2047 MiB");
    return TEFF_OK;
}

/* ---- dialling ---- */

typedef struct dialling {
    teffi_wait wait;
    teff_err err;
    teffi_hello peer;
    char text[TEFF_TEXT_MAX];
} dialling;

/* The net calls this when a dial has ended. Stores the result, and wakes teffi_dial()'s caller. in:
 * peer: NULL on an error. */
static void on_dial_end(void *arg, teff_err err, const teffi_hello *peer, const char *text)
{
    dialling *d = arg;
    d->err = err;
    if (peer)
        d->peer = *peer;
    snprintf(d->text, sizeof d->text, "%s", text ? text : "");
    teffi_wait_notify_waiter(&d->wait);
}

teff_err teffi_dial(teff_ctx *ctx, const char *address, teffi_hello *peer)
{
    teffi_net *net = ctx->node->home.net;
    dialling *d = teff_alloc(ctx, sizeof *d);
    teffi_wait *wait = &d->wait;
    teffi_wait_init(wait, ctx, NULL);
    net->ops->dial(net, address, on_dial_end, d);
    teffi_await(ctx, &wait, 1);
    if (d->err)
        return teff_fail(ctx, d->err, "%s: %s", address, d->text);
    *peer = d->peer;
    return TEFF_OK;
}
