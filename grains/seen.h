/* seen.h - which activation of this silo held a grain when it was last called? A guess.
 * Way:     direct -> [seen] -> an activation, claimed and looked at
 * Threads: any, without a lock: one word an entry. Activations are type-stable memory, so a guess
 *          that is wrong by now leads to one that says "not me".
 *
 *     63        48 47                    0
 *     |  16 bits  |  activation's address |   in the place that the low 14 bits of the ident's
 *     |  of mark  |                       |   mark tell */
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

static inline uint64_t teffi_seen_tag(uint64_t mark)
{
    return mark >> TEFFI_SEEN_ADDRESS_BITS << TEFFI_SEEN_ADDRESS_BITS;
}

/* teffi_seen_mark - of a number, as most keys are, it is sooner known than its hash, and numbers in
 * a row share few places. */
static inline uint64_t teffi_seen_mark(const teffi_ident *ident)
{
    uint64_t number;
    if (ident->key_len != sizeof number)
        return teffi_hash64(ident->key, ident->key_len, ident->type);
    memcpy(&number, ident->key, sizeof number);
    number = (number ^ (uint64_t)ident->type << 32) * 0x9e3779b97f4a7c15u;
    return number << 14 | number >> 50; /* its best bits tell the place */
}

/* teffi_seen_get - out: NULL: no guess. */
static inline teffi_activation *teffi_seen_get(const teffi_seen *seen, uint64_t mark)
{
    if (!seen->slots)
        return NULL;
    /* acquire: pairs with teffi_seen_put, whose thread saw the activation's memory made */
    uint64_t word =
        atomic_load_explicit(&seen->slots[mark % TEFFI_SEEN_SLOTS], memory_order_acquire);
    if ((word ^ mark) >> TEFFI_SEEN_ADDRESS_BITS)
        return NULL;
    return (teffi_activation *)(uintptr_t)(word ^ teffi_seen_tag(mark));
}

void teffi_seen_put(teffi_seen *seen, uint64_t mark, teffi_activation *act);

#endif
