/* hash.h - the fixed hash that places grains on the ring. Part of the wire protocol: a change of
 * it is a change of protocol version, or silos of two versions would disagree about owners. */
#ifndef TEFFI_BASE_HASH_H
#define TEFFI_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* teffi_hash64 - well mixed 64 bits of n bytes and a seed. */
uint64_t teffi_hash64(const void *data, size_t n, uint64_t seed);

/* teffi_mix64 - a bijection that spreads near numbers (the finaliser of splitmix64). */
static inline uint64_t teffi_mix64(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#endif
