/* emit.h - generates the C code of a checked file.
 * Way:     codegen -> [header, source] -> codegen's response
 *          header -> [messages]; source -> [copy]; all of them -> [values] -> text */
#pragma once

#include "model/model.h"

/* teffi_emit_header, teffi_emit_source - the whole text of x.teff.h, x.teff.c.
 * in:   out, empty; a file of a model without problems. */
void teffi_emit_header(teffi_text *out, const teffi_model *model, const teffi_file *file);
void teffi_emit_source(teffi_text *out, const teffi_model *model, const teffi_file *file);

/* The parts of these texts that have a source of their own.
 * teffi_emit_copies - x.teff.c: the deep copy of each message.
 * teffi_emit_messages - x.teff.h: types of messages, functions that copy them into a state,
 * builders for C++. */
void teffi_emit_copies(teffi_text *out, const teffi_model *model, const teffi_file *file);
void teffi_emit_messages(teffi_text *out, const teffi_model *model, const teffi_file *file);

/* The values of the templates' letters.
 * teffi_service_values - of a service: $S words_word, $N words.Word; of its key: $K parameters, $M
 * members, $V a teff_key, $A arguments from a teff_grain, $Q the kind; of its state: $T the member,
 * $t the argument. */
teffi_values teffi_service_values(teffi_pool *pool, const teffi_service *s);

/* teffi_method_values - also of one of its methods: $m the slot, $F the full name, $x its place in
 * the table; the request: $I the parameter, $i the argument of a call, $a of a slot; the response:
 * $O the parameter of a caller, $o of a slot, $r the argument of a slot, $R its type. Parameters
 * have a comma before them; without a message they are empty. */
void teffi_method_values(teffi_pool *pool, const teffi_method *m, teffi_values *v);

/* teffi_message_values - of a message: $M words_seen, $P and $d protobuf-c's names. */
teffi_values teffi_message_values(const teffi_message *m);

/* teffi_field_values - also of one of its fields: $f the member; where the field has them, $C the
 * message type, $E the type of an element in a list. */
void teffi_field_values(const teffi_model *model, const Protoc__Field *f, teffi_values *v);

/* teffi_choose_by_type - choose one of four templates by a field's type.
 * in:   number, also the one for enums. */
const char *teffi_choose_by_type(const Protoc__Field *f, const char *text, const char *bytes,
                          const char *message, const char *number);
