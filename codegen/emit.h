/* emit.h - the C that a checked file becomes.
 * Way:     codegen -> [emit_header, emit_source, emit_copy] -> codegen's response
 * Threads: one user at a time. */
#ifndef TEFFI_CODEGEN_EMIT_H
#define TEFFI_CODEGEN_EMIT_H

#include "model.h"

/* teffi_emit_header, teffi_emit_source - the whole text of x.teff.h, x.teff.c.
 * in:   out, empty; a file of a model without problems. */
void teffi_emit_header(teffi_text *out, const teffi_file *file);
void teffi_emit_source(teffi_text *out, const teffi_model *model, const teffi_file *file);

/* teffi_emit_copies - the deep copy of each message, and their helpers; part of x.teff.c. */
void teffi_emit_copies(teffi_text *out, const teffi_model *model, const teffi_file *file);

/* teffi_service_values - what the templates say of a service: $S words_word, $N words.Word,
 * $K the key's parameters, $A the key's arguments. */
teffi_values teffi_service_values(teffi_pool *pool, const teffi_service *s);

/* teffi_method_values - further, of a method: $m its slot, $F its full name, $I and $O the
 * parameters for request and answer, each with a comma before it or empty. */
void teffi_method_values(teffi_pool *pool, const teffi_method *m, teffi_values *v);

#endif
