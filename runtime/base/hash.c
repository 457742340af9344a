/* hash.c - FNV-1a over eight bytes at a time, finished by splitmix64's mixer; little-endian. */
#include "base/hash.h"

#include <string.h>

static uint64_t load_le(const uint8_t *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

uint64_t teffi_hash64(const void *data, size_t n, uint64_t seed)
{
    const uint8_t *p = data;
    uint64_t h = teffi_hash_begin(n, seed);
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t eight;
        memcpy(&eight, p, sizeof eight); /* little-endian machines only, as meson.build says */
        h = teffi_hash_eight(h, eight);
    }
    if (n)
        h = teffi_hash_eight(h, load_le(p, n));
    return teffi_mix64(h);
}
