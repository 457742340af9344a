/* zero.h - zero an object of up to 256 bytes by plain stores. For a single memset compilers use
 * a string instruction, whose start takes longer than the stores. */
#pragma once

#include <stddef.h>
#include <string.h>

/* teffi_zero - zero n bytes. in: n, at most 256, a compile-time constant. */
static inline __attribute__((always_inline)) void teffi_zero(void *memory, size_t n)
{
    char *p = memory;
    if (n >= 64)
        memset(p, 0, 64);
    if (n >= 128)
        memset(p + 64, 0, 64);
    if (n >= 192)
        memset(p + 128, 0, 64);
    if (n >= 256)
        memset(p + 192, 0, 64);
    memset(p + n / 64 * 64, 0, n % 64);
}
