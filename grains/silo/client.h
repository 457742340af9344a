/* client.h - the parts of a client and the steps of its life. The simulator makes clients on its
 * own platform and runs the same steps in tasks.
 * Way:     teff_client_* (threads), tests/sim (tasks) -> [client] -> node, net */
#pragma once

#include <teff/silo.h>
#include "activation/filter.h"
#include "call/ctx.h"
#include "node/deliver.h"
#include "silo/gateways.h"
#include "silo/observer.h"

struct teff_client {
    teffi_node node;
    teffi_platform platform;
    teffi_filters outgoing;
    gateway_place places[TEFF_SEEDS_MAX];
    uint32_t n_places;
    /* guarded by node.lock */
    uint32_t n_leaving;                    /* gateways that have sent GO_AWAY, since the start */
    teffi_node_id leaving[TEFF_SEEDS_MAX]; /* the last of them, at n % TEFF_SEEDS_MAX */
    teffi_node_id parting[TEFF_SEEDS_MAX]; /* gateways with a leave_gateway() task */
    teffi_client_observers observers;
    teffi_queue unsent; /* requests that reached no gateway */
    bool resending;     /* a resend_all() task runs, or will be started */
    /* tasks that connect to gateways are started under connect_lock */
    pthread_mutex_t connect_lock;
    bool restarts; /* guarded by connect_lock: restart_timer is set */
    teffi_timer restart_timer;
    /* atomic */
    _Atomic bool closing;
};

/* teffi_client_new_unconnected - make a client with its node and net; connects to no gateway.
 * errs: with text, which has TEFF_TEXT_MAX bytes. */
TEFF_MUST_USE teff_err teffi_client_new_unconnected(const teffi_platform *platform,
                                                    const teff_client_options *opt,
                                                    teff_client **client, char *text);
