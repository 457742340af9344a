/* copy.c - functions for the deep copy of a message, called by generated code (x.teff.c). */
#include <teff/copy.h>
#include "memory/arena.h"
#include "base/utf8.h"

/* Sets arena->bad_text if the text is not UTF-8. */
void teff_copy_check_utf8(teff_arena *arena, const char *text, size_t n)
{
    if (!teffi_utf8_valid((const uint8_t *)text, n))
        arena->bad_text = true;
}

int teff_copy_text(teff_arena *arena, const char **text)
{
    const char *from = *text ? *text : "";
    *text = teff_arena_copy(arena, from, teff_copy_text_size(arena, from) - 1);
    return *text != NULL;
}

int teff_copy_texts(teff_arena *arena, size_t n, const char ***texts)
{
    *texts = n ? teff_arena_copy(arena, *texts, n * sizeof **texts) : NULL;
    for (size_t i = 0; *texts && i < n; i++)
        if (!teff_copy_text(arena, &(*texts)[i]))
            return 0;
    return !n || *texts;
}

int teff_copy_bytes(teff_arena *arena, ProtobufCBinaryData *bytes)
{
    if (!bytes->data || !bytes->len) {
        *bytes = (ProtobufCBinaryData){0, NULL};
        return 1;
    }
    bytes->data = teff_arena_copy(arena, bytes->data, bytes->len);
    return bytes->data != NULL;
}

int teff_copy_bytes_list(teff_arena *arena, size_t n, ProtobufCBinaryData **list)
{
    *list = n ? teff_arena_copy(arena, *list, n * sizeof **list) : NULL;
    for (size_t i = 0; *list && i < n; i++)
        if (!teff_copy_bytes(arena, &(*list)[i]))
            return 0;
    return !n || *list;
}

int teff_copy_unknown(teff_arena *arena, ProtobufCMessage *copy)
{
    size_t n = copy->n_unknown_fields;
    copy->unknown_fields =
        teff_arena_copy(arena, copy->unknown_fields, n * sizeof *copy->unknown_fields);
    for (size_t i = 0; copy->unknown_fields && i < n; i++) {
        ProtobufCMessageUnknownField *field = &copy->unknown_fields[i];
        field->data = teff_arena_copy(arena, field->data, field->len);
        if (!field->data)
            return 0;
    }
    return copy->unknown_fields != NULL;
}
