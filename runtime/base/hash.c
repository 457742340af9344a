/* hash.c - as FNV-1a, but eight bytes at a time, each step and the result mixed as in splitmix64;
 * little-endian. */
#include "base/hash.h"

#include "base/load.h"

uint64_t teffi_hash64(const void *data, size_t n, uint64_t seed)
{
    const uint8_t *p = data;
    uint64_t h = teffi_hash_begin(n, seed);
    for (; n >= 8; p += 8, n -= 8)
        h = teffi_hash_add_word(h, teffi_load64(p));
    if (n)
        h = teffi_hash_add_word(h, teffi_load_little_endian(p, n));
    return teffi_mix64(h);
}
