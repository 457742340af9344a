/* ident.c - encode keys to canonical bytes, and decode them. */
#include "activation/ident.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/utf8.h"

/* out: the length of the number or UUID at the start of an encoded key of this kind; 0 if the whole
 * key is text. */
static uint32_t get_fixed_key_len(teff_key_kind kind)
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

/* out: the length of text. 0 if text cannot be part of a key; *why is the error text in this
 * case, else NULL. */
static size_t check_key_text(const char *text, const char **why)
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

uint32_t teffi_key_encode_any_kind(teff_key_kind kind, const teff_key *key, uint8_t *out,
                                   const char **why)
{
    uint32_t fixed = get_fixed_key_len(kind);
    size_t text = 0;
    *why = "the key is of another kind than the type's";
    if (key->kind != kind)
        return 0;
    if (teffi_key_kind_has_text(kind) && (text = check_key_text(key->text, why)) == 0)
        return 0;
    if (fixed == 8)
        memcpy(out, &key->number, 8); /* meson.build allows little-endian machines only */
    else if (fixed == 16)
        memcpy(out, key->uuid.bytes, 16);
    if (text)
        memcpy(out + fixed, key->text, text);
    return fixed + (uint32_t)text;
}

teff_key teffi_key_decode_unchecked_any_kind(teff_key_kind kind, const uint8_t *bytes)
{
    uint32_t fixed = get_fixed_key_len(kind);
    teff_key key = {.kind = kind};
    if (fixed == 8)
        memcpy(&key.number, bytes, 8);
    else if (fixed == 16)
        memcpy(key.uuid.bytes, bytes, 16);
    if (teffi_key_kind_has_text(kind))
        key.text = (const char *)bytes + fixed;
    return key;
}

bool teffi_key_decode(teff_key_kind kind, const uint8_t *bytes, uint32_t len, teff_key *key)
{
    uint32_t fixed = get_fixed_key_len(kind);
    *key = (teff_key){.kind = kind};
    if (len < fixed || len > fixed + TEFF_KEY_MAX || teffi_key_kind_has_text(kind) != (len > fixed))
        return false;
    teffi_key_decode_unchecked(key, kind, bytes);
    return !teffi_key_kind_has_text(kind) ||
           (teffi_utf8_valid(bytes + fixed, len - fixed) && !memchr(bytes + fixed, 0, len - fixed));
}

void teffi_key_format(const teff_key *key, char text[TEFFI_KEY_TEXT_MAX])
{
    char number[40] = "";
    const uint8_t *u = key->uuid.bytes;
    if (key->kind == TEFF_KEY_INT64 || key->kind == TEFF_KEY_INT64_STRING)
        snprintf(number, sizeof number, "%" PRId64, key->number);
    else if (key->kind != TEFF_KEY_STRING)
        for (int i = 0; i < 16; i++)
            snprintf(number + 2 * i, 3, "%02x", u[i]);
    snprintf(text, TEFFI_KEY_TEXT_MAX, "%s%s%.60s", number, number[0] && key->text ? "/" : "",
             key->text ? key->text : "");
}
