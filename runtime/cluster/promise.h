/* promise.h - leases that go on while the store is away: silos promise each other not to consent to
 * their deaths (outage_ms).
 * Way:     heartbeat -> [promise] ===> tell -> [promise] -> the lease
 * Threads: any, unless said otherwise. */
#pragma once

#include "cluster/membership.h"

struct Teff__Cluster__Consent;

/* teffi_promise_prepare_next_beat - set the number, view and time of the heartbeat that is about
 *       to be sent. out: *beat.
 * teffi_promise_record_confirmed_beat - record that the store has confirmed this heartbeat.
 *       One heartbeat is written at a time. */
void teffi_promise_prepare_next_beat(teffi_membership *membership, teffi_own_beat *beat);
void teffi_promise_record_confirmed_beat(teffi_membership *membership, const teffi_own_beat *beat);

/* teffi_promise_schedule_round - set the timer of the next round, which asks the other members for
 * promises. The round is due when half of the lease is left, but a tenth of the lease from now at
 * the earliest. No timer is set if lease.outage_ms is 0, or if the lease is over. */
void teffi_promise_schedule_round(teffi_membership *membership);

/* teffi_promise_give - promise a silo, whose last confirmed heartbeat is `beat`, not to consent to
 * its death for the length of its lease. out: NULL: promised; otherwise why not. */
const char *teffi_promise_give(teffi_membership *membership, teffi_node_id silo, uint64_t beat);

/* teffi_membership_consent_to_deaths - consent to the death of silent silos, as far as no promise
 * forbids it.
 * out: a bit for each that it consents to. */
uint32_t teffi_membership_consent_to_deaths(teffi_membership *membership,
                                            const struct Teff__Cluster__Consent *ask);

/* teffi_promise_ask_consents - ask the members to consent to the deaths of the silent silos. Counts
 * the consents. Clears needs_consent of a silent silo if enough members of its own view consent.
 * in: view, the present one; n, at most TEFFI_SILENT_MAX. */
void teffi_promise_ask_consents(teff_ctx *ctx, const teffi_view *view, teffi_silent *silent,
                                size_t n);
