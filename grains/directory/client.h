/* client.h - register, look up and unregister a grain at its partition's owner, here or elsewhere.
 * Way:     life, route, recover -> [client] -> partition here, or the owner's server
 * Threads: in a turn or task; suspends it. */
#pragma once

#include "activation/activation.h"
#include "cluster.pb-c.h"

/* teffi_directory_register - register act as the grain's activation.
 * out:  TEFF_OK: *holder is act, and later owners of the partition will know it;
 *       TEFF_E_EXISTS: *holder is another activation.
 * errs: TEFF_E_UNAVAILABLE, TEFF_E_OVERLOADED: act is not `registered`, but the partition's owner
 *       may have an entry for it. */
TEFF_MUST_USE teff_err teffi_directory_register(teff_ctx *ctx, teffi_activation *act,
                                                teffi_pid *holder);

/* teffi_directory_lookup - which activation holds the grain?
 * in:   until_ns, the deadline (monotonic clock), which other threads may raise meanwhile; NULL:
 *       none.
 * out:  *holder; TEFF_E_NOT_FOUND: none.
 * errs: TEFF_E_UNAVAILABLE, TEFF_E_OVERLOADED; TEFF_E_TIMEOUT: the deadline has passed. */
TEFF_MUST_USE teff_err teffi_directory_lookup(teff_ctx *ctx, const teffi_ident *ident,
                                              const _Atomic uint64_t *until_ns, teffi_pid *holder);

/* teffi_directory_unregister - remove the registration of pid. Does nothing if pid does not hold
 * the grain. errs: TEFF_E_UNAVAILABLE. */
TEFF_MUST_USE teff_err teffi_directory_unregister(teff_ctx *ctx, const teffi_ident *ident,
                                                  teffi_pid pid);

/* teffi_directory_deactivate_loser - ask pid's silo to end the activation pid, which lost the
 * grain, and wait for the response; pid may end later than that (END_WAIT_MS in server.c).
 * in:   version, of the view in which it lost. errs: of a request to that silo. */
TEFF_MUST_USE teff_err teffi_directory_deactivate_loser(teff_ctx *ctx, const teffi_ident *ident,
                                                        teffi_pid pid, uint64_t version,
                                                        uint32_t timeout_ms);

/* teffi_directory_send_moved_message - tell silo `to` that the grain is not here, so that it drops
 * its cached location. One-way. Does nothing if `to` is a client or this silo, or if there is no
 * memory. runs: on any thread. */
void teffi_directory_send_moved_message(teffi_grains *grains, const teffi_ident *ident,
                                        teffi_node_id to);

/* ---- a PID as a message of cluster.proto, and back; for server.c too ---- */

typedef struct teffi_packed_pid {
    Teff__Cluster__Pid pid; /* points to node */
    Teff__Cluster__Node node;
} teffi_packed_pid;

/* teffi_pid_pack - convert pid to the message packed->pid. That message points to packed->node, so
 * do not copy or move *packed. */
static inline void teffi_pid_pack(teffi_packed_pid *packed, teffi_pid pid)
{
    teff__cluster__node__init(&packed->node);
    teff__cluster__pid__init(&packed->pid);
    packed->node.silo = pid.node.silo;
    packed->node.incarnation = pid.node.incarnation;
    packed->pid.node = &packed->node;
    packed->pid.slot = pid.slot;
    packed->pid.generation = pid.generation;
}

/* teffi_pid_unpack - convert the message `from` to a PID. out: zero if `from` is NULL or has no
 * node. */
static inline teffi_pid teffi_pid_unpack(const Teff__Cluster__Pid *from)
{
    teffi_pid pid = {0};
    if (!from || !from->node)
        return pid;
    pid.node = (teffi_node_id){from->node->silo, from->node->incarnation};
    pid.slot = from->slot;
    pid.generation = from->generation;
    return pid;
}

/* teffi_pid_is_packed_grain - is `from` a PID that an activation can have? It has a node and a
 * slot: elsewhere the slot 0 means that there is no activation. in: from may be NULL. */
static inline bool teffi_pid_is_packed_grain(const Teff__Cluster__Pid *from)
{
    return from && from->node && from->node->silo && from->slot;
}
