/* names.h - how names of a .proto file are written in C, and which names are reserved.
 * Way:     model -> [names] -> check, emit */
#pragma once

#include "model/pool.h"

/* The characters that a name may have. */
#define TEFFI_WORD_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

/* teffi_to_snake_case - "words.v1.HTTPReply" -> "words_v1_http_reply". */
char *teffi_to_snake_case(teffi_pool *pool, const char *full);

/* teffi_method_slot_name - the name of a method's slot, a member of the grain's struct of methods:
 * "GetIt" -> "get_it". A name that C reserves, or that each grain has already, gets an underscore:
 * "Delete" -> "delete_". */
char *teffi_method_slot_name(teffi_pool *pool, const char *name);

/* teffi_pbc_type_name - protobuf-c's name of a type: "words.HTTPReply" -> "Words__HTTPReply". */
char *teffi_pbc_type_name(teffi_pool *pool, const char *full);

/* teffi_pbc_lowercase_name, teffi_pbc_uppercase_name - the prefix of the names of a type's
 * functions and macros in protobuf-c: "words.HTTPReply" -> "words__httpreply" and
 * "WORDS__HTTPREPLY". */
char *teffi_pbc_lowercase_name(teffi_pool *pool, const char *full);
char *teffi_pbc_uppercase_name(teffi_pool *pool, const char *full);

/* teffi_pbc_field_name - protobuf-c's name of a field: "camelCase" -> "camelcase", "default" ->
 * "default_". */
char *teffi_pbc_field_name(teffi_pool *pool, const char *name);

/* teffi_is_identifier - may a .proto file use this as a name? */
bool teffi_is_identifier(const char *name);

/* teffi_is_keyword_or_macro - does names.c list the name as a keyword of C or C++, or as a macro of
 * a standard header or of a compiler? No generated identifier may have such a name. */
bool teffi_is_keyword_or_macro(const char *name);

/* teffi_is_pbc_member_type - is it the name of a type that protobuf-c's structs use for their
 * members? */
bool teffi_is_pbc_member_type(const char *name);

/* teffi_is_reserved_at_file_scope - does names.c list the name, or its prefix, as reserved at file
 * scope: by the C library, by teff, by protobuf-c, or for parameters and variables of generated
 * functions? */
bool teffi_is_reserved_at_file_scope(const char *name);
