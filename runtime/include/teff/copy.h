/* copy.h - the steps of the deep copy of a message; part of the contract of generated code.
 * Way:     x.teff.c -> [copy] -> runtime/memory
 * Threads: the arena's user. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>
#include <string.h>
#include <teff/arena.h>

TEFF_BEGIN_C

/* Each function but teff_copy_check_utf8 replaces the pointer or list in place with a copy in the
 * arena.
 * teff_copy_check_utf8 - record in the arena if n bytes of text are not UTF-8: a message with such
 * a text is not sent.
 * in:   arena; text, n bytes; copy, a shallow copy whose pointers still point to the source.
 * out:  0: out of memory; else not 0.
 * runs: wherever the arena's owner runs. */
TEFF_API void teff_copy_check_utf8(teff_arena *arena, const char *text, size_t n);
TEFF_API int teff_copy_text(teff_arena *arena, const char **text);
TEFF_API int teff_copy_texts(teff_arena *arena, size_t n, const char ***texts);
TEFF_API int teff_copy_bytes(teff_arena *arena, ProtobufCBinaryData *bytes);
TEFF_API int teff_copy_bytes_list(teff_arena *arena, size_t n, ProtobufCBinaryData **list);
TEFF_API int teff_copy_unknown(teff_arena *arena, ProtobufCMessage *copy);

/* out: the size of text including its zero byte. Also calls teff_copy_check_utf8, unless the text
 * is empty, or ASCII of 4 to 8 bytes. */
static inline size_t teff_copy_text_size(teff_arena *arena, const char *text)
{
    size_t n = text != NULL ? strlen(text) : 0;
    uint32_t head, tail;

    if (n >= sizeof head && n <= 2 * sizeof head) {
        memcpy(&head, text, sizeof head);
        memcpy(&tail, text + n - sizeof tail, sizeof tail);
        if (((head | tail) & 0x80808080U) == 0) {
            return n + 1;
        }
    }
    if (n > 0) {
        teff_copy_check_utf8(arena, text, n);
    }
    return n + 1;
}

/* Copies n bytes, a text with its zero byte, to *at, and advances *at by n. out: the copy. */
static inline const char *teff_copy_text_to(char **at, const char *text, size_t n)
{
    char *to = *at;
    uint32_t head, tail;

    *at += n;
    if (n < sizeof head || n > 2 * sizeof head) {
        return (const char *)memcpy(to, text, n);
    }
    memcpy(&head, text, sizeof head);
    memcpy(&tail, text + n - sizeof tail, sizeof tail);
    memcpy(to, &head, sizeof head);
    memcpy(to + n - sizeof tail, &tail, sizeof tail);
    return to;
}

TEFF_END_C
