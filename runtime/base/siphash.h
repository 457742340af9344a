/* siphash.h - a keyed hash: without the key nobody can choose colliding inputs. For tables whose
 * keys outsiders choose, and for tags that they must not guess. Its hashes are valid only inside
 * one process; silos compare hashes of base/hash.h.
 * Source:  Aumasson and Bernstein 2012, SipHash: a fast short-input PRF */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct teffi_sipkey {
    uint64_t k0, k1; /* secret; drawn from the platform's random numbers */
} teffi_sipkey;

typedef struct teffi_sipstate {
    uint64_t v0, v1, v2, v3;
} teffi_sipstate;

static inline uint64_t teffi_rotate_left(uint64_t x, unsigned n)
{
    return x << n | x >> (64 - n);
}

static inline void teffi_siphash_round(teffi_sipstate *s)
{
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = teffi_rotate_left(s->v1, 13) ^ s->v0;
    s->v3 = teffi_rotate_left(s->v3, 16) ^ s->v2;
    s->v0 = teffi_rotate_left(s->v0, 32);
    s->v2 += s->v1;
    s->v0 += s->v3;
    s->v1 = teffi_rotate_left(s->v1, 17) ^ s->v2;
    s->v3 = teffi_rotate_left(s->v3, 21) ^ s->v0;
    s->v2 = teffi_rotate_left(s->v2, 32);
}

static inline teffi_sipstate teffi_siphash_begin(const teffi_sipkey *key)
{
    return (teffi_sipstate){key->k0 ^ 0x736f6d6570736575u, key->k1 ^ 0x646f72616e646f6du,
                            key->k0 ^ 0x6c7967656e657261u, key->k1 ^ 0x7465646279746573u};
}

static inline void teffi_siphash_add_block(teffi_sipstate *s, uint64_t block)
{
    s->v3 ^= block;
    teffi_siphash_round(s);
    s->v0 ^= block;
}

static inline uint64_t teffi_siphash_end(teffi_sipstate *s)
{
    s->v2 ^= 0xff;
    teffi_siphash_round(s);
    teffi_siphash_round(s);
    teffi_siphash_round(s);
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

/* teffi_siphash - SipHash-1-3 of n bytes. */
uint64_t teffi_siphash(const teffi_sipkey *key, const void *data, size_t n);

/* teffi_siphash_word - teffi_siphash of the eight bytes of a word, as an inline function. */
static inline uint64_t teffi_siphash_word(const teffi_sipkey *key, uint64_t word)
{
    teffi_sipstate s = teffi_siphash_begin(key);
    teffi_siphash_add_block(&s, word);
    teffi_siphash_add_block(&s, (uint64_t)sizeof word << 56);
    return teffi_siphash_end(&s);
}
