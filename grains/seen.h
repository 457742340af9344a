/* seen.h - which activation of this silo held a grain when it was last called? A guess.
 * Way:     direct -> [seen] -> an activation, claimed and looked at
 * Threads: any, without a lock: one word an entry. Activations are type-stable memory, so a guess
 *          that is wrong by now leads to one that says "not me".
 *
 *     63        48 47                    0
 *     |  16 bits  |  activation's address |   in the place that 14 other bits of the hash tell
 *     |  of hash  |                       | */
#ifndef TEFFI_GRAINS_SEEN_H
#define TEFFI_GRAINS_SEEN_H

#include <stdatomic.h>
#include <stdint.h>
#include "activation.h"

enum { TEFFI_SEEN_SLOTS = 1 << 14, TEFFI_SEEN_ADDRESS_BITS = 48 };

typedef struct teffi_seen {
    _Atomic uint64_t *slots; /* NULL when memory was out: nothing is remembered */
} teffi_seen;

void teffi_seen_init(teffi_seen *seen);
void teffi_seen_fini(teffi_seen *seen);

static inline uint64_t teffi_seen_tag(uint64_t hash)
{
    return hash >> TEFFI_SEEN_ADDRESS_BITS << TEFFI_SEEN_ADDRESS_BITS;
}

/* teffi_seen_get - out: NULL: no guess. */
static inline teffi_activation *teffi_seen_get(const teffi_seen *seen, uint64_t hash)
{
    if (!seen->slots)
        return NULL;
    /* acquire: pairs with teffi_seen_put, whose thread saw the activation's memory made */
    uint64_t word =
        atomic_load_explicit(&seen->slots[hash % TEFFI_SEEN_SLOTS], memory_order_acquire);
    if ((word ^ hash) >> TEFFI_SEEN_ADDRESS_BITS)
        return NULL;
    return (teffi_activation *)(uintptr_t)(word ^ teffi_seen_tag(hash));
}

void teffi_seen_put(teffi_seen *seen, uint64_t hash, teffi_activation *act);

#endif
