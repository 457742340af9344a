/* emit.h - generates the C code of a checked file.
 * Way:     codegen -> [header, source] -> codegen's response
 *          header -> [messages]; source -> [copy]; all of them -> [values] -> text */
#pragma once

#include "model/model.h"

/* teffi_emit_header, teffi_emit_source - write the whole text of x.teff.h, of x.teff.c.
 * in:   out, empty; file, to generate, of a model without problems, with by_id and at set. */
void teffi_emit_header(teffi_text *out, const teffi_model *model, const teffi_file *file);
void teffi_emit_source(teffi_text *out, const teffi_model *model, const teffi_file *file);

/* The parts of these texts that copy.c and messages.c generate.
 * teffi_emit_copy_functions - write the functions of x.teff.c that copy messages deeply.
 * teffi_emit_header_message_part - write the part of x.teff.h about messages: their types,
 * functions that copy them into a state, builders for C++. */
void teffi_emit_copy_functions(teffi_text *out, const teffi_model *model, const teffi_file *file);
void teffi_emit_header_message_part(teffi_text *out, const teffi_model *model,
                                    const teffi_file *file);

/* The next four functions return or add values for letters of templates, see
 * teffi_text_expand_template().
 * teffi_make_service_template_values - the letters of a grain in a file to generate:
 *   $S words_word  $N words.Word
 *   its key:       $K parameters  $M struct members  $V initializer of a teff_key
 *                  $A arguments from a teff_grain  $Q kind
 *   its state:     $T struct member  $t argument, after a comma; both are empty without a state */
teffi_values teffi_make_service_template_values(teffi_pool *pool, const teffi_service *s);

/* teffi_make_observer_template_values - the letters $S and $N of an observer. */
teffi_values teffi_make_observer_template_values(const teffi_service *s);

/* teffi_values_add_method - add the letters of one method of a grain or an observer:
 *   $m slot  $F full name  $x index in the table of methods
 *   request:   $I parameter  $i argument of a call  $a argument of a slot
 *   response:  $O parameter of a call  $o parameter of a slot  $r argument of a slot  $R type
 * $I, $a, $O, $o and $r begin with a comma. Without a message they and $R are empty, $i is NULL. */
void teffi_values_add_method(teffi_pool *pool, const teffi_method *m, teffi_values *v);

/* teffi_make_message_template_values - letters of a message: $M words_seen, $P Words__Seen, $d
 * words__seen. */
teffi_values teffi_make_message_template_values(const teffi_message *m);

/* teffi_values_add_field - add letters of one field of a message: $f member; if the field's type is
 * a message, $C the C type of that message; if it is an enum or a number, $E the C type of one
 * value. in: f, of a file to generate. */
void teffi_values_add_field(const teffi_model *model, const Protoc__Field *f, teffi_values *v);

/* teffi_choose_by_field_type - choose one of four strings by a field's type.
 * in:   number, also the one for enums. */
const char *teffi_choose_by_field_type(const Protoc__Field *f, const char *text, const char *bytes,
                                       const char *message, const char *number);
