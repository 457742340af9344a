/* ident.c - keys to canonical bytes and back.
 * Way:     teff_key -> [ident] -> msg, catalog, directory */
#include "ident.h"

#include "base/utf8.h"

static uint32_t fixed_len(teff_key_kind kind)
{
    switch (kind) {
    case TEFF_KEY_INT64:
    case TEFF_KEY_INT64_STRING:
        return 8;
    case TEFF_KEY_UUID:
    case TEFF_KEY_UUID_STRING:
        return 16;
    case TEFF_KEY_STRING:
        break;
    }
    return 0;
}

static bool has_text(teff_key_kind kind)
{
    return kind != TEFF_KEY_INT64 && kind != TEFF_KEY_UUID;
}

static void put_le64(uint8_t *out, uint64_t v)
{
    memcpy(out, &v, sizeof v); /* little-endian machines only, as meson.build says */
}

static uint64_t get_le64(const uint8_t *in)
{
    uint64_t v;
    memcpy(&v, in, sizeof v);
    return v;
}

/* The text's length; 0 with *why when it cannot be part of a key. */
static size_t text_len(const char *text, const char **why)
{
    size_t n = text ? strnlen(text, TEFF_KEY_MAX + 1) : 0;
    *why = NULL;
    if (n == 0)
        *why = "a key's text is empty; expected 1 to 1024 bytes";
    else if (n > TEFF_KEY_MAX)
        *why = "a key's text is too long; expected 1 to 1024 bytes";
    else if (!teffi_utf8_valid((const uint8_t *)text, n))
        *why = "a key's text is not UTF-8";
    return *why ? 0 : n;
}

uint32_t teffi_key_encode_any(teff_key_kind kind, const teff_key *key, uint8_t *out,
                              const char **why)
{
    uint32_t fixed = fixed_len(kind);
    size_t text = 0;
    *why = "the key is of another kind than the type's";
    if (key->kind != kind)
        return 0;
    if (has_text(kind) && (text = text_len(key->text, why)) == 0)
        return 0;
    if (fixed == 8)
        put_le64(out, (uint64_t)key->number);
    else if (fixed == 16)
        memcpy(out, key->uuid.bytes, 16);
    if (text)
        memcpy(out + fixed, key->text, text);
    return fixed + (uint32_t)text;
}

teff_key teffi_key_view_any(teff_key_kind kind, const uint8_t *bytes)
{
    uint32_t fixed = fixed_len(kind);
    teff_key key = {.kind = kind};
    if (fixed == 8)
        key.number = (int64_t)get_le64(bytes);
    else if (fixed == 16)
        memcpy(key.uuid.bytes, bytes, 16);
    if (has_text(kind))
        key.text = (const char *)bytes + fixed;
    return key;
}

bool teffi_key_decode(teff_key_kind kind, const uint8_t *bytes, uint32_t len, teff_key *key)
{
    uint32_t fixed = fixed_len(kind);
    *key = (teff_key){.kind = kind};
    if (len < fixed || len > fixed + TEFF_KEY_MAX || has_text(kind) != (len > fixed))
        return false;
    teffi_key_view(key, kind, bytes);
    return !has_text(kind) ||
           (teffi_utf8_valid(bytes + fixed, len - fixed) && !memchr(bytes + fixed, 0, len - fixed));
}
