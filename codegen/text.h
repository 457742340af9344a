/* text.h - a text that grows: what is generated, and what is wrong with a file.
 * Way:     emit_*, model -> [text] -> codegen's response
 * Threads: one user at a time. */
#ifndef TEFFI_CODEGEN_TEXT_H
#define TEFFI_CODEGEN_TEXT_H

#include "pool.h"

typedef struct teffi_text {
    teffi_pool *pool;
    char *data; /* with a zero byte behind len; NULL while empty */
    size_t len;
    size_t size;
} teffi_text;

/* What the letters of a template stand for: values['S'] is put where the template says $S. */
typedef struct teffi_values {
    const char *values[128];
} teffi_values;

/* teffi_text_printf - add as printf does. */
void teffi_text_printf(teffi_text *text, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* teffi_text_expand - add a template.
 * in:   each $ and the letter behind it is replaced by the letter's value, which must be set. */
void teffi_text_expand(teffi_text *text, const char *template, const teffi_values *v);

/* teffi_text_wrap - break lines of code that are longer than 100 columns behind a comma; comments
 * and lines of the preprocessor stay. */
void teffi_text_wrap(teffi_text *text);

/* teffi_text_comment - add a comment of a .proto file as a C comment, indented; nothing for NULL
 * or blank. What would end, nest or disturb a C comment is defused. */
void teffi_text_comment(teffi_text *text, const char *indent, const char *comment);

/* teffi_text_defuse - a comment without what would end, nest or disturb a C comment.
 * out:  a text in the pool, line by line as it was. */
char *teffi_text_defuse(teffi_pool *pool, const char *comment);

#endif
