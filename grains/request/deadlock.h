/* deadlock.h - find calls of grains that wait for each other in a cycle, and end one of them.
 * Way:     waits (a request waits for 50 ms) -> [deadlock]: a probe from grain to grain, along the
 *          calls that wait -> back to the grain where it began: TEFF_E_DEADLOCK
 * Threads: each step runs on the group of the activation that the probe has reached.
 * Model:   tests/model/deadlock.pml
 * Source:  Chandy, Misra and Haas, "Distributed deadlock detection" (1983): edge chasing, AND model
 *
 * A request that was set aside waits for every running turn that admission does not let it start
 * beside. A turn that awaits a call, or all of several calls, waits for each of them. A turn in
 * teff_await_any waits for no call in particular: it is not followed. Neither are threads, clients,
 * processes, timers, the store, and the lock of a transaction that no running turn holds.
 *
 * The first round. An activation with requests that were set aside sends a probe along each call
 * that its turns await. Where the call's request is, there the probe goes on: if the request runs,
 * along the calls that its turn awaits; if it was set aside, along the calls of the turns that keep
 * it out. Otherwise the probe ends. If it comes back to the activation where it began, to a request
 * that is kept out by the turn with which it began, it has seen a cycle.
 *
 * The second round follows exactly the same calls once more. A call has a generation, and a turn
 * does not stop to await a call before the call has ended. So what holds in both rounds has held in
 * between: at the moment between the rounds, all calls of the cycle waited for each other. A probe
 * that finds a call ended, at its deadline or because it was cancelled, ends, too: no call is
 * reported that could have gone on.
 *
 * The victim. The last request of the path, which was set aside at the activation where the probe
 * began, ends with TEFF_E_DEADLOCK: it has not run. So that only one request of a cycle ends, the
 * probe of an activation goes no further than to a request set aside at an activation with a lower
 * PID; that activation sends a probe of its own instead. Two cycles that share some calls are two
 * deadlocks: each loses a request.
 *
 * Limits. A path has at most TEFFI_PROBE_CALLS_MAX calls, and a probe with all its branches follows
 * at most TEFFI_PROBE_BUDGET calls. A silo handles at most TEFFI_PROBES_MAX probes of other silos
 * per visit time; it drops the others, which will be repeated. A call that was begun before it is
 * awaited is followed only if its grain's key is shorter than TEFFI_CALL_KEY_MAX bytes. A longer
 * cycle, and one that leads through a silo of an older version, ends at its deadlines. */
#pragma once

#include "directory/shard.h"

enum {
    TEFFI_PROBE_CALLS_MAX = 32,
    TEFFI_PROBE_BUDGET = 256,
    TEFFI_PROBES_MAX = 1024,
    TEFFI_PROBE_BYTES_MAX = 4096 /* packed */
};

/* teffi_deadlock_handle_visit - handle a TEFFI_ITEM_VISIT: send probes if they are due. Owns item.
 * teffi_deadlock_handle_probe - handle a TEFFI_ITEM_PROBE: send the probe on, or end the request
 *       whose cycle it has found. Owns msg. Both run on act's group, on a worker's own stack. */
void teffi_deadlock_handle_visit(teffi_activation *act, teffi_item *item);
void teffi_deadlock_handle_probe(teffi_activation *act, teffi_msg *msg);

/* teffi_deadlock_receive_probe - the handler of TEFFI_SLOT_DEADLOCK: pass a silo's probe to the
 * activation that has the request, or to the node to which this one has forwarded the request. */
void teffi_deadlock_receive_probe(teffi_node *node, teffi_msg *msg);
