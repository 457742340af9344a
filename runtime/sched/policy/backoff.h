/* backoff.h - does stealing pay? A thief that only slows its victim down waits before it steals
 * again.
 * Way:     find (stole) -> [backoff] ... find (nothing left) -> [backoff] -> idle (sleep) -> search
 * Threads: the owner of the thief's processor. */
#pragma once

#include <stdint.h>

struct teffi_processor;

/* When a group moves to another core, its cache lines follow, some 100 ns each. If an item takes
 * 20 ns, a thief can halve the throughput of all workers. So a thief counts the items that it and
 * its victim handle, from its first steal until it has no work and 50 us have passed. Then it
 * sleeps for 100 us and counts the items that the victim handles alone. While both together are not
 * faster by an eighth, the sleeps double, up to 3.2 ms; else the thief does not sleep until that
 * rate is 10 ms old, and then measures it again. Items that take more than 500 ns are always worth
 * stealing. */
typedef struct teffi_backoff {
    uint64_t since_ns;     /* time of the steal that the measurement began with; 0: none */
    uint64_t items_before; /* handled by thief and victim until then */
    struct teffi_processor *victim;
    uint64_t alone_rate;  /* items per 2^20 ns that a victim handled alone */
    uint64_t alone_at_ns; /* when alone_rate was measured; 0: never */
    uint64_t sleep_ns;    /* the last sleep; 0: stealing paid, or was not judged yet */
} teffi_backoff;

/* teffi_backoff_begin_measurement - at a steal: begin to measure how many items thief and victim
 * handle. Called only if since_ns is 0, so no measurement is under way.
 * in:   items, handled by both so far. */
void teffi_backoff_begin_measurement(teffi_backoff *b, struct teffi_processor *victim,
                                     uint64_t items, uint64_t now);

/* teffi_backoff_decide_sleep_ns - when the thief has no work, decide for how long it sleeps before
 * it steals again. This ends the measurement, if it took at least 50 us. Called only if since_ns is
 * not 0.
 * in:   items, handled by both so far.
 * out:  the sleep in ns; 0: stealing paid, or the measurement goes on. */
uint64_t teffi_backoff_decide_sleep_ns(teffi_backoff *b, uint64_t items, uint64_t now);

/* teffi_backoff_record_alone_rate - after a sleep: record at which rate the victim handled items
 * alone, unless the sleep was shorter than 50 us.
 * in:   items, handled by the victim between from and now. */
void teffi_backoff_record_alone_rate(teffi_backoff *b, uint64_t items, uint64_t from, uint64_t now);
