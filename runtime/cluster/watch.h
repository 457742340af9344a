/* watch.h - for how long the heartbeats of other silos have stood still.
 * Way:     heartbeat's look, reach -> [watch] -> rows
 * Threads: the owner of beat.watched: the running look or, before this silo has joined, the context
 *          that joins. */
#pragma once

#include "cluster/membership.h"

/* teffi_watch_look - read a silo's heartbeat, and measure for how long it has stood still. Uses
 * only this silo's own clock, so that a wrong clock elsewhere has no effect. An interval between
 * two looks counts for half of a lease at most, since during a longer one this process itself may
 * have stood still.
 * out:  *alive; *still_ns, since the first look at the heartbeat's last value.
 * errs: the store's. */
TEFF_MUST_USE teff_err teffi_watch_look(teff_ctx *ctx, const teffi_member *silo, teffi_alive *alive,
                                        uint64_t *still_ns);

/* teffi_watch_find_entry - the silo's entry. A silo without one gets an unused entry or, if there
 * is none, that of the silo that was looked at longest ago. */
teffi_watched_silo *teffi_watch_find_entry(teffi_membership *membership, teffi_node_id silo);

/* teffi_watch_is_probably_dead - has the heartbeat of a watched silo stood still for so long that
 * the silo is probably dead, though it may not be declared dead yet? */
bool teffi_watch_is_probably_dead(const teffi_membership *membership, const teffi_member *silo);
