/* backoff.c - does stealing pay? The measurements, and how long to sleep if it does not. */
#include "sched/policy/backoff.h"

#include <stdbool.h>

#ifndef TEFFI_BACKOFF_ALWAYS /* tests/explore: its clock advances only while all threads sleep */
#define PERIOD_NS 50000u
#define WORTH_IT_NS 500u /* time per item above which stealing always pays */
#else
#define PERIOD_NS 0u
#define WORTH_IT_NS 1000000000u
#endif
#define FRESH_NS 10000000u /* an alone_rate that is older is not used */
#define SLEEP_MIN_NS 100000u
#define SLEEP_MAX_NS 3200000u

/* out: items per 2^20 ns. */
static uint64_t rate_of(uint64_t items, uint64_t ns)
{
    return (items << 20) / (ns | 1);
}

void teffi_backoff_begin_measurement(teffi_backoff *b, struct teffi_processor *victim,
                                     uint64_t items, uint64_t now)
{
    b->since_ns = now;
    b->victim = victim;
    b->items_before = items;
}

uint64_t teffi_backoff_decide_sleep_ns(teffi_backoff *b, uint64_t items, uint64_t now)
{
    uint64_t ns = now - b->since_ns, n = items - b->items_before;
    if (ns < PERIOD_NS)
        return 0;
    bool is_known = b->alone_at_ns && now - b->alone_at_ns < FRESH_NS;
    b->since_ns = 0;
    /* Stealing pays if items are long, or thief and victim together are an eighth faster than the
     * victim alone. */
    if (n * WORTH_IT_NS < ns || (is_known && rate_of(n, ns) * 8 > b->alone_rate * 9))
        b->sleep_ns = 0;
    else if (!b->sleep_ns || !is_known) /* alone_rate is measured during the sleep */
        b->sleep_ns = SLEEP_MIN_NS;
    else if (b->sleep_ns < SLEEP_MAX_NS)
        b->sleep_ns *= 2;
    return b->sleep_ns;
}

void teffi_backoff_record_alone_rate(teffi_backoff *b, uint64_t items, uint64_t from, uint64_t now)
{
    if (now - from < PERIOD_NS)
        return; /* woken too early for a measurement */
    b->alone_rate = rate_of(items, now - from);
    b->alone_at_ns = now;
}
