/* text.h - a growing string, for generated code and error messages.
 * Way:     emit, model -> [text] -> codegen's response */
#pragma once

#include "model/pool.h"

typedef struct teffi_text {
    teffi_pool *pool;
    char *data; /* with a zero byte after len bytes; NULL while empty */
    size_t len;
    size_t size;
} teffi_text;

/* The values of a template's letters: values['S'] replaces $S. */
typedef struct teffi_values {
    const char *values[128];
} teffi_values;

/* teffi_text_printf - append formatted text. teffi_text_add - append n bytes. */
void teffi_text_printf(teffi_text *text, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void teffi_text_add(teffi_text *text, const char *s, size_t n);

/* teffi_text_expand - append a template; each $ and letter is replaced by the letter's value, which
 * must be set. */
void teffi_text_expand(teffi_text *text, const char *template, const teffi_values *v);

/* teffi_text_wrap - break lines of code that are longer than 100 columns after a comma; comments
 * and macros stay. in: text, ending with a newline. */
void teffi_text_wrap(teffi_text *text);

/* teffi_text_comment - append a defused comment as an indented C comment; nothing for NULL or
 * blank. */
void teffi_text_comment(teffi_text *text, const char *indent, const char *comment);

/* teffi_text_defuse - change what would end or nest a C comment, or make a compiler warn.
 * out:  a text in the pool with the same lines; NULL for NULL. */
char *teffi_text_defuse(teffi_pool *pool, const char *comment);
