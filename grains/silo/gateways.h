/* gateways.h - keeps a client connected to each of its gateways. Each address has a place, which is
 * empty while no gateway is connected.
 * Way:     client -> [gateways] -> dial; node/gateways lists the gateway of each place
 * Threads: places are changed under node.lock. A task for each empty place dials its address;
 *          another task disconnects from a gateway that leaves. */
#pragma once

#include <teff/silo.h>
#include "node/node.h"

typedef struct gateway_place {
    struct teff_client *client;
    char *address;
    /* guarded by node.lock */
    bool connecting; /* a dial_gateway_until_connected() runs for it, or will be started */
    bool missed;     /* since the dial began, a gateway without a place broke: perhaps this one */
} gateway_place;

/* teffi_gateways_init - copy the addresses, and register the handlers of the node's events about
 * gateways.
 * errs: TEFF_E_NOMEM.
 * teffi_gateways_cancel_restart - start no more tasks that connect. in: client->closing is set.
 * teffi_gateways_fini - free the addresses. No task may run. */
TEFF_MUST_USE teff_err teffi_gateways_init(struct teff_client *client,
                                           const char *const *addresses);
void teffi_gateways_cancel_restart(struct teff_client *client);
void teffi_gateways_fini(struct teff_client *client);

/* teffi_gateways_connect - dial the gateways in order, from a random one on, until one accepts;
 * then start tasks that connect to the others. errs: of the last one dialled; text in ctx. */
TEFF_MUST_USE teff_err teffi_gateways_connect(teff_ctx *ctx, struct teff_client *client);
