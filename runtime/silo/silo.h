/* silo.h - the inside of a silo: its options, parts and steps. The simulator makes silos on its own
 * platform and runs the same steps in tasks instead of threads.
 * Way:     teff_silo_* (threads), tests/sim (tasks) -> [silo] -> node, store, membership, layer */
#ifndef TEFFI_SILO_SILO_H
#define TEFFI_SILO_SILO_H

#include <teff/silo.h>
#include "node/ctx.h"

enum { TEFFI_TYPES_MAX = 1024, TEFFI_CLIENTS_MAX = 100000 };

typedef enum teffi_silo_phase {
    TEFFI_SILO_NEW = 0,
    TEFFI_SILO_STARTED, /* start has begun: parts may be there */
    TEFFI_SILO_SERVING, /* joined */
    TEFFI_SILO_STOPPED
} teffi_silo_phase;

struct teff_silo {
    teffi_node node;
    teffi_platform platform;
    teff_silo_options opt; /* strings are own copies, in arena */
    teff_arena arena;
    teff_grain_type *types[TEFFI_TYPES_MAX];
    size_t n_types;
    teffi_store *store;             /* own or borrowed; node.store until it is closed */
    teff_process_system *processes; /* written under lock; NULL: none were asked for */
    char bound[TEFFI_ADDRESS_MAX + 1];
    pthread_mutex_t lock; /* of phase and clients */
    teffi_silo_phase phase;
    teffi_node_id *clients; /* connected ones */
    size_t n_clients, clients_max;
};

/* teffi_silo_new_on - as teff_silo_new, on a platform, copied. */
TEFF_MUST_USE teff_err teffi_silo_new_on(const teffi_platform *platform,
                                         const teff_silo_options *opt, teff_silo **silo,
                                         char *text);

/* teffi_silo_open - node, transport and address; nothing is asked of others yet. errs: text. */
TEFF_MUST_USE teff_err teffi_silo_open(teff_silo *silo, char *text);

/* teffi_silo_join - store, identity, membership, grains; serving when it returns TEFF_OK. */
TEFF_MUST_USE teff_err teffi_silo_join(teff_ctx *ctx, teff_silo *silo);

/* teffi_silo_leave - grains and clients move, the cluster knows; the link still stands.
 * errs: TEFF_E_TIMEOUT: something was dropped; the rest of the steps were taken all the same. */
TEFF_MUST_USE teff_err teffi_silo_leave(teff_ctx *ctx, teff_silo *silo, uint64_t deadline_ns);

/* teffi_silo_stop_processes - the first step of stopping, by a thread. errs: TEFF_E_TIMEOUT: some
 * had to be forced; the log names the first. */
teff_err teffi_silo_stop_processes(teff_silo *silo, uint32_t timeout_ms);

/* teffi_silo_close - say goodbye, end every part, free the node. Not from a worker. */
teff_err teffi_silo_close(teff_silo *silo, uint32_t timeout_ms);

#endif
