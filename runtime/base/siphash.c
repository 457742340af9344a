/* siphash.c - SipHash-1-3: one round a block, three at the end; little-endian. */
#include "base/siphash.h"

#include "base/load.h"

uint64_t teffi_siphash(const teffi_sipkey *key, const void *data, size_t n)
{
    const uint8_t *p = data;
    size_t left = n;
    teffi_sipstate s = teffi_siphash_begin(key);
    for (; left >= 8; p += 8, left -= 8)
        teffi_siphash_add_block(&s, teffi_load64(p));
    /* The last block holds the remaining bytes; its top byte is the low byte of the length. */
    teffi_siphash_add_block(&s, (uint64_t)n << 56 | teffi_load_little_endian(p, left));
    return teffi_siphash_end(&s);
}
