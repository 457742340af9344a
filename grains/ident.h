/* ident.h - a grain's identity inside the runtime: type id and canonical key bytes.
 * Way:     teff_key -> [ident] -> msg, catalog, directory
 * Key bytes: string: the text; int64: 8 bytes, little-endian; uuid: 16; compound: those, then the
 * text. Two keys of one type are equal when their bytes are. */
#ifndef TEFFI_GRAINS_IDENT_H
#define TEFFI_GRAINS_IDENT_H

#include <stdbool.h>
#include <string.h>
#include <teff/grain.h>
#include "base/hash.h"
#include "process/msg.h"

typedef struct teffi_ident {
    uint32_t type;
    uint32_t key_len;
    const uint8_t *key;
    uint64_t hash; /* places it: catalog shard, directory partition, hash placement */
} teffi_ident;

enum { TEFFI_KEY_BYTES_MAX = 16 + TEFF_KEY_MAX };

/* Numbers, as most keys are, without a call; here and below. */
static inline uint64_t teffi_key_hash(uint32_t type, const uint8_t *key, uint32_t len)
{
    uint64_t number;
    if (len != sizeof number)
        return teffi_hash64(key, len, type);
    memcpy(&number, key, sizeof number);
    return teffi_hash64_word(number, type);
}

static inline teffi_ident teffi_ident_of(uint32_t type, const uint8_t *key, uint32_t len)
{
    return (teffi_ident){type, len, key, teffi_key_hash(type, key, len)};
}

/* Of a request; its hash is worked out once. */
static inline teffi_ident teffi_ident_msg(teffi_msg *msg)
{
    if (!msg->hash)
        msg->hash = teffi_key_hash(msg->type_id, msg->key, msg->key_len);
    return (teffi_ident){msg->type_id, msg->key_len, msg->key, msg->hash};
}

static inline bool teffi_key_same(const uint8_t *a, const uint8_t *b, uint32_t len)
{
    uint64_t x, y;
    if (len != sizeof x)
        return memcmp(a, b, len) == 0;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x == y;
}

static inline bool teffi_ident_is(const teffi_ident *a, const teffi_ident *b)
{
    return a->hash == b->hash && a->type == b->type && a->key_len == b->key_len &&
           teffi_key_same(a->key, b->key, a->key_len);
}

/* teffi_key_encode - canonical bytes of a key into out (TEFFI_KEY_BYTES_MAX).
 * out:  the length; 0 when the key is not of kind, empty, too long or not UTF-8: *why says it. */
uint32_t teffi_key_encode_any(teff_key_kind kind, const teff_key *key, uint8_t *out,
                              const char **why);

static inline uint32_t teffi_key_encode(teff_key_kind kind, const teff_key *key, uint8_t *out,
                                        const char **why)
{
    if (kind != TEFF_KEY_INT64 || key->kind != kind)
        return teffi_key_encode_any(kind, key, out, why);
    memcpy(out, &key->number, sizeof key->number); /* little-endian, as meson.build says */
    return sizeof key->number;
}

/* teffi_key_decode - a key that points into bytes, behind which a zero byte must stand.
 * out:  false: the bytes are no key of that kind. */
bool teffi_key_decode(teff_key_kind kind, const uint8_t *bytes, uint32_t len, teff_key *key);

/* teffi_key_view - the same for bytes that were decoded once. Member by member: a copy of a key
 * that was just made waits for its parts. */
teff_key teffi_key_view_any(teff_key_kind kind, const uint8_t *bytes);

static inline void teffi_key_view(teff_key *key, teff_key_kind kind, const uint8_t *bytes)
{
    if (kind != TEFF_KEY_INT64) {
        *key = teffi_key_view_any(kind, bytes);
        return;
    }
    key->kind = kind;
    key->text = NULL;
    memcpy(&key->number, bytes, sizeof key->number); /* little-endian, as put_le64 has it */
    memset(&key->uuid, 0, sizeof key->uuid);
}

#endif
