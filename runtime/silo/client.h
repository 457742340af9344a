/* client.h - the inside of a client. The simulator makes clients on its own platform and runs the
 * steps in tasks.
 * Way:     teff_client_* (threads), tests/sim (tasks) -> [client] -> node, net */
#ifndef TEFFI_SILO_CLIENT_H
#define TEFFI_SILO_CLIENT_H

#include <teff/silo.h>
#include "node/ctx.h"

struct teff_client {
    teffi_node node;
    teffi_platform platform;
    char *gateways[TEFF_SEEDS_MAX];
    uint32_t n_gateways;
    teffi_node_id avoid;  /* node.lock: the last one that said that it goes away */
    _Atomic bool looking; /* a task looks for a gateway */
    _Atomic bool closing;
};

/* teffi_client_open - node and transport; nobody is asked yet. errs: text. */
TEFF_MUST_USE teff_err teffi_client_open(const teffi_platform *platform,
                                         const teff_client_options *opt, teff_client **client,
                                         char *text);

/* teffi_client_join - the first gateway that answers. errs: text in ctx. */
TEFF_MUST_USE teff_err teffi_client_join(teff_ctx *ctx, teff_client *client);

/* teffi_client_leave - looks for no gateway any more; its tasks have ended when this returns. */
void teffi_client_leave(teff_ctx *ctx, teff_client *client);

#endif
