/* ident.h - a grain's identity inside the runtime: type id and canonical key bytes.
 * Way:     teff_key -> [ident] -> msg, shard
 * Key bytes: string: the text; int64: 8 bytes, little-endian; uuid: 16 bytes; compound: the 8 or 16
 * bytes, then the text. Two keys of one type are equal if and only if their bytes are equal. */
#pragma once

#include <stdbool.h>
#include <string.h>
#include <teff/generated.h>
#include "base/hash.h"
#include "base/siphash.h"
#include "message/msg.h"

typedef struct teffi_ident {
    uint32_t type;
    uint32_t key_len;
    const uint8_t *key;
    uint64_t hash; /* teffi_key_hash; its top 8 bits are the partition */
} teffi_ident;

enum { TEFFI_KEY_BYTES_MAX = 16 + TEFF_KEY_MAX };

/* teffi_key_cluster_hash - a key's hash that is the same on all silos, for partitions and for
 * placement by hash. Most keys have 8 bytes: for them there is an inline path. */
static inline uint64_t teffi_key_cluster_hash(uint32_t type, const uint8_t *key, uint32_t len)
{
    uint64_t number;
    if (len != sizeof number)
        return teffi_hash64(key, len, type);
    memcpy(&number, key, sizeof number);
    return teffi_hash64_word(number, type);
}

/* teffi_key_hash - a key's hash for tables of this silo: the top 8 bits of teffi_key_cluster_hash,
 * then 56 bits of a hash that depends on the silo's secret, so that a client cannot choose keys
 * that collide. */
static inline uint64_t teffi_key_hash(const teffi_sipkey *secret, uint32_t type, const uint8_t *key,
                                      uint32_t len)
{
    uint64_t number, keyed, of_type = type * 0x9e3779b97f4a7c15u; /* multiplicative hash of type */
    if (len == sizeof number) {
        memcpy(&number, key, sizeof number);
        keyed = teffi_siphash_word(secret, number);
    } else
        keyed = teffi_siphash(secret, key, len);
    return teffi_key_cluster_hash(type, key, len) >> 56 << 56 | (keyed ^ of_type) >> 8;
}

/* teffi_ident_of - the identity of a grain. It points to key: key must outlive the identity. */
static inline teffi_ident teffi_ident_of(const teffi_sipkey *secret, uint32_t type,
                                         const uint8_t *key, uint32_t len)
{
    return (teffi_ident){type, len, key, teffi_key_hash(secret, type, key, len)};
}

/* teffi_ident_of_request - the identity of the grain to which a request is addressed. It points to
 * msg's key. Stores the key's hash in msg, so that the hash is computed only once. */
static inline teffi_ident teffi_ident_of_request(const teffi_sipkey *secret, teffi_msg *msg)
{
    if (!msg->hash)
        msg->hash = teffi_key_hash(secret, msg->type_id, msg->key, msg->key_len);
    return (teffi_ident){msg->type_id, msg->key_len, msg->key, msg->hash};
}

/* teffi_key_bytes_equal - are two keys of the same length equal? */
static inline bool teffi_key_bytes_equal(const uint8_t *a, const uint8_t *b, uint32_t len)
{
    uint64_t x, y;
    if (len != sizeof x)
        return memcmp(a, b, len) == 0;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x == y;
}

static inline bool teffi_ident_equals(const teffi_ident *a, const teffi_ident *b)
{
    return a->hash == b->hash && a->type == b->type && a->key_len == b->key_len &&
           teffi_key_bytes_equal(a->key, b->key, a->key_len);
}

/* teffi_key_kind_has_text - do keys of this kind use teff_key.text? */
static inline bool teffi_key_kind_has_text(teff_key_kind kind)
{
    return kind != TEFF_KEY_INT64 && kind != TEFF_KEY_UUID;
}

/* teffi_key_encode - write the canonical bytes of a key to out (TEFFI_KEY_BYTES_MAX bytes).
 * out:  the length; 0 if the key is not of kind, or its text is empty, too long or not UTF-8: then
 *       *why is the error text. teffi_key_encode_any_kind - the same, not inline. */
uint32_t teffi_key_encode_any_kind(teff_key_kind kind, const teff_key *key, uint8_t *out,
                                   const char **why);

static inline uint32_t teffi_key_encode(teff_key_kind kind, const teff_key *key, uint8_t *out,
                                        const char **why)
{
    if (kind != TEFF_KEY_INT64 || key->kind != kind)
        return teffi_key_encode_any_kind(kind, key, out, why);
    memcpy(out, &key->number, sizeof key->number); /* meson.build rejects big-endian CPUs */
    return sizeof key->number;
}

enum { TEFFI_KEY_TEXT_MAX = 104 };

/* teffi_key_format - format a key for logs and error texts: the number or UUID, "/", at most 60
 * bytes of the text. */
void teffi_key_format(const teff_key *key, char text[TEFFI_KEY_TEXT_MAX]);

/* teffi_key_decode - check bytes and make *key, whose text points into bytes.
 * in:   bytes, followed by a zero byte. out: false: bytes are not a key of that kind. */
bool teffi_key_decode(teff_key_kind kind, const uint8_t *bytes, uint32_t len, teff_key *key);

/* teffi_key_decode_unchecked - as teffi_key_decode, for bytes that were checked before. Writes
 * member by member: a copy of the whole struct would stall in store forwarding.
 * teffi_key_decode_unchecked_any_kind - the same, not inline; returns the key. */
teff_key teffi_key_decode_unchecked_any_kind(teff_key_kind kind, const uint8_t *bytes);

static inline void teffi_key_decode_unchecked(teff_key *key, teff_key_kind kind,
                                              const uint8_t *bytes)
{
    if (kind != TEFF_KEY_INT64) {
        *key = teffi_key_decode_unchecked_any_kind(kind, bytes);
        return;
    }
    key->kind = kind;
    key->text = NULL;
    memcpy(&key->number, bytes, sizeof key->number);
    memset(&key->uuid, 0, sizeof key->uuid);
}
