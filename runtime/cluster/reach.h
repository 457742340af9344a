/* reach.h - which silos this silo cannot reach, and which silos must therefore leave the cluster.
 * Way:     heartbeat's look -> [reach] ===> tell -> [reach]; [reach] -> the heartbeat -> others
 * Threads: any, unless said otherwise. */
#pragma once

#include "cluster/membership.h"

/* Two silos may both reach the store, but not each other. Then neither falls silent, and a new
 * owner of a directory partition, which must ask every silo, waits without end. So one of the two
 * has to go:
 *   1. A silo whose connection broke is probed at each look, and so is each silo that the last
 *      probe did not reach. When a silo whose heartbeat changes was not reached for a while, all
 *      silos are probed.
 *   2. When a silo was not reached for a longer while, this silo's heartbeats list it.
 *   3. After one and a half leases (10 s at least), this silo reads the lists of all silos, and
 *      judges. Two silos are *cut* from each other if one of them lists the other. Of the silos
 *      that are cut from others, the one with the most cuts must go, then that with the most cuts
 *      among the rest, until no cut is left; of two with equally many, the younger one. So a silo
 *      that nobody reaches goes alone, and of two parts of a cluster the smaller one goes.
 *   4. If this silo must go, it ends its lease. If the other one must, this silo removes its fence
 *      row; the next heartbeat of that silo fails, so it loses its lease. In both cases its
 *      heartbeat then stands still, and it is declared dead as any other silent silo.
 * Silos that judge at different moments may read different lists. Then more silos may go than
 * needed, but no grain is active twice: a silo is declared dead only after its lease is over.
 *     A silo that joins probes all silos before, and does not join while it cannot reach one whose
 * heartbeat changes. Otherwise a silo that had to go would join again, and wait again. In a cluster
 * of more than TEFFI_CHECKED_MAX silos, only a silo that has lost its lease before does so: if many
 * silos start at the same moment, each of them would probe all others. */
enum { TEFFI_CHECKED_MAX = 32 };

/* teffi_reach_probe_if_needed - start the task that probes silos, if there are silos to probe and
 * the task is not running. runs: in the look. */
void teffi_reach_probe_if_needed(teffi_membership *membership);

/* teffi_reach_is_unreached - did the last probe of this silo fail?
 * teffi_reach_is_suspected - the same, or has a connection to it broken? Then it is watched. */
bool teffi_reach_is_unreached(teffi_membership *membership, teffi_node_id silo);
bool teffi_reach_is_suspected(teffi_membership *membership, teffi_node_id silo);

/* teffi_reach_list_unreached - list the silos that this silo has not reached for so long that its
 * heartbeats must list them. out: how many; *silos, in ctx's arena. */
size_t teffi_reach_list_unreached(teff_ctx *ctx, teffi_node_id **silos);

/* teffi_reach_judge - if a silo was not reached for too long, judge who must go, and act on that:
 * this may end this silo's lease. A silo that is probably dead does not count.
 * runs: in the look, if this silo's last heartbeat was written. */
void teffi_reach_judge(teff_ctx *ctx, const teffi_view *view);

/* teffi_reach_find_losers - which silos must go?
 * in:   n silos, cuts: n * n flags; cuts[i * n + j] is set if silo i lists silo j.
 * out:  loses[i]: silo i must go. counts: used meanwhile, room for n. */
void teffi_reach_find_losers(const teffi_node_id *silos, size_t n, const bool *cuts, size_t *counts,
                             bool *loses);

/* teffi_reach_check_before_join - probe the silos of the table until each has responded, or is
 * probably dead; for the time after which silos are judged, at most. How long their heartbeats have
 * stood still counts after the join, too.
 * errs: TEFF_E_UNREACHABLE: a silo that is alive was not reached; as teffi_rows_read(). */
TEFF_MUST_USE teff_err teffi_reach_check_before_join(teff_ctx *ctx);
