/* load.h - numbers from bytes at any address; little-endian machines only, as meson.build says. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t teffi_load32(const void *from)
{
    uint32_t v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline uint64_t teffi_load64(const void *from)
{
    uint64_t v;
    memcpy(&v, from, sizeof v);
    return v;
}

/* teffi_load_little_endian - the little-endian number in n bytes. in: n, at most 8. */
static inline uint64_t teffi_load_little_endian(const uint8_t *from, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)from[i] << (8 * i);
    return v;
}
