/* hash.h - the fixed hash that places grains on the ring. Part of the wire protocol: a change needs
 * a new protocol version, because silos must agree about owners. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* teffi_hash64 - a hash of n bytes and a seed; each of its bits depends on all of them. */
uint64_t teffi_hash64(const void *data, size_t n, uint64_t seed);

/* teffi_mix64 - a bijection that maps similar numbers to dissimilar ones (the finaliser of
 * splitmix64). */
static inline uint64_t teffi_mix64(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* teffi_random_next - a pseudo-random number (xorshift64). in: *state must not be 0; it is
 * advanced. */
static inline uint64_t teffi_random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* teffi_hash_add_word - one step of teffi_hash64(): mixes eight bytes into h. */
static inline uint64_t teffi_hash_add_word(uint64_t h, uint64_t eight)
{
    return teffi_mix64(h ^ eight) * 0x100000001b3u;
}

/* teffi_hash_begin - the state of teffi_hash64() before its first step. */
static inline uint64_t teffi_hash_begin(size_t n, uint64_t seed)
{
    return 0xcbf29ce484222325u ^ teffi_mix64(seed + n);
}

/* teffi_hash64_word - teffi_hash64 of eight bytes, inlined, because most keys have eight. */
static inline uint64_t teffi_hash64_word(uint64_t word, uint64_t seed)
{
    return teffi_mix64(teffi_hash_add_word(teffi_hash_begin(sizeof word, seed), word));
}
