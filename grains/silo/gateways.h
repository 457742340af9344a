/* gateways.h - keeps a client connected to each of its gateways.
 * Way:     client -> [gateways] -> dial; node/gateways has the places that are connected
 * Threads: places are changed under node.lock. A task for each place that needs a gateway dials its
 *          address; another one disconnects from a gateway that leaves. */
#pragma once

#include <teff/silo.h>
#include "node/node.h"

typedef struct gateway_place {
    struct teff_client *client;
    char *address;
    /* node.lock */
    bool connecting; /* its task runs */
    bool missed;     /* a connection has broken that no place had: perhaps the one just dialled */
} gateway_place;

/* teffi_gateways_init - copy the addresses, and receive the node's events on gateways.
 * errs: TEFF_E_NOMEM. teffi_gateways_fini - free them; no task may run. */
TEFF_MUST_USE teff_err teffi_gateways_init(struct teff_client *client,
                                           const char *const *addresses);
void teffi_gateways_fini(struct teff_client *client);

/* teffi_gateways_join - connect to the first gateway that responds, from a random one on, and start
 * tasks that connect to the others. errs: text in ctx. */
TEFF_MUST_USE teff_err teffi_gateways_join(teff_ctx *ctx, struct teff_client *client);
