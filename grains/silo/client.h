/* client.h - the parts of a client and the steps of its life, for the simulator too, which makes
 * clients on its own platform and runs the steps in tasks.
 * Way:     teff_client_* (threads), tests/sim (tasks) -> [client] -> node, net */
#pragma once

#include <teff/silo.h>
#include "call/ctx.h"
#include "node/deliver.h"

struct teff_client {
    teffi_node node;
    teffi_platform platform;
    char *gateways[TEFF_SEEDS_MAX];
    uint32_t n_gateways;
    teffi_node_id avoid;                   /* node.lock: the last gateway that said it is leaving */
    teffi_node_id parting[TEFF_SEEDS_MAX]; /* node.lock: gateways with a leave_gateway() task */
    teffi_queue unsent;                    /* node.lock: requests that reached no gateway */
    bool resending;                        /* node.lock: the task that sends them again runs */
    _Atomic bool looking;                  /* the task that looks for a gateway runs */
    _Atomic bool closing;
};

/* teffi_client_open - make node and transport; connects to no gateway. errs: with text. */
TEFF_MUST_USE teff_err teffi_client_open(const teffi_platform *platform,
                                         const teff_client_options *opt, teff_client **client,
                                         char *text);

/* teffi_client_join - connect to the first gateway that responds. errs: text in ctx. */
TEFF_MUST_USE teff_err teffi_client_join(teff_ctx *ctx, teff_client *client);
