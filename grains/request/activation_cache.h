/* activation_cache.h - which activation here did a call in place last find for a grain? A hint.
 * Way:     direct -> [activation_cache] -> an activation, claimed and compared
 * Threads: any, without a lock: an entry is one word. Activations are type-stable memory: a stale
 *          entry points to one that has ended or has another identity now.
 *
 *     63          48 47                     0
 *     | top 16 bits |  activation's address  |   at the index of the low 17 bits of mark
 *     | of mark     |                        |   (teffi_activation_cache_hash) */
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include "activation/activation.h"

/* 1 MiB, of which a silo touches only what its grains use. With 2^14 slots, calls to 100,000 grains
 * at random took 3 to 13 % longer. */
enum {
    TEFFI_ACTIVATION_CACHE_BITS = 17,
    TEFFI_ACTIVATION_CACHE_SLOTS = 1 << TEFFI_ACTIVATION_CACHE_BITS,
    TEFFI_ADDRESS_BITS = 48
};

typedef struct teffi_activation_cache {
    _Atomic uint64_t slots[TEFFI_ACTIVATION_CACHE_SLOTS]; /* zeroed memory is an empty cache */
} teffi_activation_cache;

/* teffi_activation_cache_hash - a hash of the identity for this cache. For keys of 8 bytes it is
 * cheaper than teffi_key_hash, and consecutive numbers rarely collide. */
static inline uint64_t teffi_activation_cache_hash(const teffi_ident *ident)
{
    uint64_t number;
    if (ident->key_len != sizeof number)
        return teffi_hash64(ident->key, ident->key_len, ident->type);
    memcpy(&number, ident->key, sizeof number);
    number = (number ^ (uint64_t)ident->type << 32) * 0x94d049bb133111ebu;
    /* The top bits, which are mixed best, become the index. The multiplier is one of splitmix64's.
     * Measured with 2^16 keys that are 2^k apart, for k up to 25: at most 25 % of the keys share
     * their slot with another key. With the multiplier of the golden ratio and k = 16, 88 % of the
     * keys do. */
    return number << TEFFI_ACTIVATION_CACHE_BITS | number >> (64 - TEFFI_ACTIVATION_CACHE_BITS);
}

/* teffi_activation_cache_get - the activation stored under mark, the teffi_activation_cache_hash of
 * a grain; NULL: none. The activation may have ended or may be of another grain now: the caller
 * must claim it, then compare its identity. */
static inline teffi_activation *teffi_activation_cache_get(const teffi_activation_cache *cache,
                                                           uint64_t mark)
{
    /* acquire: pairs with teffi_activation_cache_put(), for the activation's memory */
    uint64_t word = atomic_load_explicit(&cache->slots[mark % TEFFI_ACTIVATION_CACHE_SLOTS],
                                         memory_order_acquire);
    if ((word ^ mark) >> TEFFI_ADDRESS_BITS)
        return NULL;
    return (teffi_activation *)(uintptr_t)(word << (64 - TEFFI_ADDRESS_BITS) >>
                                           (64 - TEFFI_ADDRESS_BITS));
}

/* teffi_activation_cache_put - store act under mark, the teffi_activation_cache_hash of its grain,
 * in place of any earlier entry. Does nothing if act's address has more than 48 bits. */
static inline void teffi_activation_cache_put(teffi_activation_cache *cache, uint64_t mark,
                                              teffi_activation *act)
{
    uint64_t address = (uintptr_t)act;
    if (address >> TEFFI_ADDRESS_BITS)
        return;
    uint64_t tag = mark >> TEFFI_ADDRESS_BITS << TEFFI_ADDRESS_BITS;
    /* release: pairs with teffi_activation_cache_get() */
    atomic_store_explicit(&cache->slots[mark % TEFFI_ACTIVATION_CACHE_SLOTS], tag | address,
                          memory_order_release);
}
