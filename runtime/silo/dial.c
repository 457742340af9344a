/* dial.c - net's dial as something a context can wait for.
 * Way:     silo (seeds), client (gateways) -> [dial] -> net */
#include "silo/dial.h"

#include <stdio.h>

typedef struct dialling {
    teffi_wait wait;
    teff_err err;
    teffi_hello peer;
    char text[TEFF_TEXT_MAX];
} dialling;

static void dialled(void *arg, teff_err err, const teffi_hello *peer, const char *text)
{
    dialling *d = arg;
    d->err = err;
    if (peer)
        d->peer = *peer;
    snprintf(d->text, sizeof d->text, "%s", text ? text : "");
    teffi_wait_signal(&d->wait);
}

teff_err teffi_dial(teff_ctx *ctx, const char *address, teffi_hello *peer)
{
    teffi_net *net = ctx->node->net;
    dialling *d = teff_alloc(ctx, sizeof *d);
    teffi_wait *wait = &d->wait;
    teffi_wait_init(wait, ctx, NULL);
    net->ops->dial(net, address, dialled, d);
    teffi_await(ctx, &wait, 1);
    if (d->err)
        return teffi_ctx_fail(ctx, d->err, "%s: %s", address, d->text);
    *peer = d->peer;
    return TEFF_OK;
}
