/* spin.h - decides whether the thread that polls spins before it sleeps, that is, whether it looks
 * for events again and again for a moment. A thread that sleeps in epoll is woken only after its
 * core has been woken, which takes longer than all else that a call to another process does. So a
 * spin pays if an event usually comes soon, and if it brings single messages: many messages that
 * come while the thread sleeps are read together, which costs less for each.
 * Way:     reactor (wait) -> [spin]
 * Threads: the thread that polls.
 * Source:  tests/bench/RESULTS.md, "Spins and clients' threads" */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* TEFFI_SPIN_NS: how long a spin lasts at most. A wait that is longer than TEFFI_WAIT_SHORT_NS is
 * no hint that a spin would pay. */
enum { TEFFI_SPIN_NS = 50000, TEFFI_WAIT_SHORT_NS = 200000 };

enum { TEFFI_SPIN_BYTES_MAX = 16384 }; /* received since the last wait; after more, no spin */

/* Zeroed: no wait has been recorded. */
typedef struct teffi_spin {
    uint32_t credit;      /* above 0: spin; a spin that finds events adds to it, others take away */
    uint32_t short_waits; /* in a row, without a spin; after enough of them, a spin is tried */
} teffi_spin;

/* teffi_spin_choose_ns - in: bytes received since the last wait. out: how long to spin; 0: not. */
uint64_t teffi_spin_choose_ns(const teffi_spin *spin, size_t bytes);

/* teffi_spin_record_wait - in: spun, found: it began with a spin, which found events. waited_ns:
 * the length of the whole wait. */
void teffi_spin_record_wait(teffi_spin *spin, bool spun, bool found, uint64_t waited_ns);
