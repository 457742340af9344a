/* observer.h - the observers of a client: their references, the notifications that wait for their
 * callbacks.
 * Way:     gateway -> node/deliver -> [observer] -> task -> callback
 * Threads: messages arrive on any thread; a task of each observer runs its callbacks. */
#pragma once

#include <sys/queue.h>
#include <teff/observer.h>
#include "base/table.h"
#include "group/warn.h"
#include "node/node.h"

struct teff_client;

/* Part of teff_client; guarded by node.lock. */
typedef struct teffi_client_observers {
    LIST_HEAD(, teff_observer) all;
    uint32_t n;                /* in all */
    teffi_table by_number;     /* those that have a reference */
    uint32_t losses;           /* gateways lost so far */
    teffi_warn_limiter failed; /* of lines about callbacks; atomic */
} teffi_client_observers;

/* teffi_client_observers_init - set the node's upcall `notice`.
 * teffi_client_observers_fini - free the observers that the program did not free. No task runs. */
void teffi_client_observers_init(struct teff_client *client);
void teffi_client_observers_fini(struct teff_client *client);

/* teffi_client_observers_lose_gateway - the connection to this gateway broke: the references that
 * lead to it are not valid any more; tell their observers. runs: from the node's net_down. */
void teffi_client_observers_lose_gateway(struct teff_client *client, teffi_node_id gateway);
