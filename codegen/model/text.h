/* text.h - a growing string, for generated code and error messages.
 * Way:     emit, model -> [text] -> codegen's response */
#pragma once

#include "model/pool.h"

typedef struct teffi_text {
    teffi_pool *pool;
    char *data; /* len bytes and a zero byte; NULL before the first append */
    size_t len;
    size_t size; /* allocated bytes */
} teffi_text;

/* The values of a template's letters: values['S'] replaces $S. */
typedef struct teffi_values {
    const char *values[128];
} teffi_values;

/* teffi_text_printf - append formatted text. teffi_text_add - append n bytes. */
void teffi_text_printf(teffi_text *text, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void teffi_text_add(teffi_text *text, const char *s, size_t n);

/* teffi_text_expand_template - append a template, with "$" and a letter replaced by the letter's
 * value.
 * in: v, with a value for each letter that the template uses. */
void teffi_text_expand_template(teffi_text *text, const char *template, const teffi_values *v);

/* teffi_text_wrap - break each code line of more than 100 columns after a comma, if it has one. A
 * continuation is indented by 8 columns. Lines that begin as comments or macros do are not changed.
 * in:   text, ending with a newline; in its long lines a space follows each comma. */
void teffi_text_wrap(teffi_text *text);

/* teffi_text_add_comment - append a sanitized comment as an indented C comment, without empty
 * lines at its start and end. Appends nothing if comment is NULL or has empty lines only. */
void teffi_text_add_comment(teffi_text *text, const char *indent, const char *comment);

/* teffi_text_sanitize_comment - change what would end or nest a C comment, or cause a compiler
 * warning: separate such pairs of characters, replace such bytes by '?', and remove spaces and
 * backslashes at the ends of lines.
 * out:  a text in the pool with the same number of lines; NULL for NULL. */
char *teffi_text_sanitize_comment(teffi_pool *pool, const char *comment);
