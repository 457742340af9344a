/* lease.h - until when a silo may act for its grains: start turns, send messages, write states.
 * Way:     cluster/heartbeat renews -> [lease] <- wait, link, hosting, state: may it act now?
 * States:  none (clients, silos that have not joined) -> held -> over, for good
 *          held -> held: renewed, or extended by promises (cluster/promise.c)
 *          held -> none: the silo has left
 * Threads: any. relaxed everywhere: the word stands alone, and a reader that misses a renewal stops
 *          too early at worst.
 * Source:  Gray and Cheriton, "Leases: an efficient fault-tolerant mechanism" (1989) */
#pragma once

#include "group/exec.h"

/* Other silos activate this silo's grains when its heartbeat has stood still for 1.5 times the
 * lease by their clocks, or 1.05 times if its connection broke (cluster/heartbeat.c). A silo whose
 * renewals fail stops by itself before that: after the lease, counted from before its last renewal
 * was sent, or later if promises extend the lease (cluster/promise.c). */
enum { TEFFI_LEASE_MS = 10000, TEFFI_LEASE_MIN_MS = 500, TEFFI_LEASE_MAX_MS = 600000 };

typedef struct teffi_lease {
    _Atomic uint64_t until_ns; /* platform clock; 0: none; 1: over */
    /* etag of this silo's row in table "fence", which its writes of states check; 0: none */
    _Atomic uint64_t fence;
    uint32_t length_ms; /* immutable after start */
    uint32_t outage_ms; /* the same: how much longer it may last by promises */
} teffi_lease;

extern const char teffi_lease_over_text[]; /* of errors */

static inline uint64_t teffi_lease_until_ns(const teffi_lease *lease)
{
    return atomic_load_explicit(&lease->until_ns, memory_order_relaxed);
}

static inline uint64_t teffi_lease_length_ns(const teffi_lease *lease)
{
    return lease->length_ms * UINT64_C(1000000);
}

/* teffi_lease_begin - set the lease of a silo that has joined. in: since_ns, the platform clock's
 * time just before the silo's row was sent to the store. */
static inline void teffi_lease_begin(teffi_lease *lease, uint64_t since_ns)
{
    atomic_store_explicit(&lease->until_ns, since_ns + teffi_lease_length_ns(lease),
                          memory_order_relaxed);
}

/* teffi_lease_extend - move the end of the lease to until_ns, if the lease held at since_ns and
 * would end before until_ns. out: true: the end was moved. */
static inline bool teffi_lease_extend(teffi_lease *lease, uint64_t since_ns, uint64_t until_ns)
{
    uint64_t before = teffi_lease_until_ns(lease);
    /* `before` is 0 if there is no lease, 1 if the lease is over, and at most since_ns if the lease
     * had run out at since_ns */
    while (before > 1 && before > since_ns && before < until_ns)
        if (atomic_compare_exchange_weak_explicit(&lease->until_ns, &before, until_ns,
                                                  memory_order_relaxed, memory_order_relaxed))
            return true;
    return false;
}

/* teffi_lease_renew - extend the lease after a heartbeat was written. A lease that is over, or had
 * run out when the heartbeat was sent, is not extended. in: since_ns, the platform clock's time
 * just before the heartbeat was sent. */
static inline void teffi_lease_renew(teffi_lease *lease, uint64_t since_ns)
{
    (void)teffi_lease_extend(lease, since_ns, since_ns + teffi_lease_length_ns(lease));
}

/* teffi_lease_end - end the lease for good. out: false: it had ended before. */
static inline bool teffi_lease_end(teffi_lease *lease)
{
    return atomic_exchange_explicit(&lease->until_ns, 1, memory_order_relaxed) != 1;
}

/* teffi_lease_release - set the lease to "none", unless it is over. Called when the silo has left
 * and holds no grains any more: such a silo only passes messages on, and needs no lease. */
static inline void teffi_lease_release(teffi_lease *lease)
{
    uint64_t before = teffi_lease_until_ns(lease);
    while (before != 1 &&
           !atomic_compare_exchange_weak_explicit(&lease->until_ns, &before, 0,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

/* teffi_lease_is_over - was the lease ended by teffi_lease_end? A lease that has run out is not
 * over until its timer fires and calls teffi_lease_end. */
static inline bool teffi_lease_is_over(const teffi_lease *lease)
{
    return teffi_lease_until_ns(lease) == 1;
}

/* teffi_lease_holds - may this node act now? A node without a lease (a client, or a silo that has
 * not joined or has left) may always act. in: now_ns, just read from the platform's clock. */
static inline bool teffi_lease_holds(const teffi_lease *lease, uint64_t now_ns)
{
    uint64_t until_ns = teffi_lease_until_ns(lease);
    return !until_ns || now_ns < until_ns;
}

/* teffi_lease_holds_coarse - as teffi_lease_holds, for frequent checks: reads the executor's coarse
 * clock, which is late by up to a tick. While that clock is stopped (0), the lease holds unless it
 * was ended. */
static inline bool teffi_lease_holds_coarse(const teffi_lease *lease, const teffi_exec *exec)
{
    uint64_t until_ns = teffi_lease_until_ns(lease);
    uint32_t now_ms = teffi_coarse_ms(exec);
    if (until_ns <= 1 || !now_ms)
        return until_ns != 1;
    return (int32_t)((uint32_t)(until_ns / 1000000) - now_ms) > 0;
}
