/* names.h - how names of a .proto file are written in C, and which names are reserved.
 * Way:     model -> [names] -> check, emit */
#pragma once

#include "model/pool.h"

/* The characters that a name may have. */
#define TEFFI_WORD_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

/* teffi_snake - "words.v1.HTTPReply" -> "words_v1_http_reply". */
char *teffi_snake(teffi_pool *pool, const char *full);

/* teffi_slot_name - the name of a method's slot, a member of the grain's struct of methods: "GetIt"
 * -> "get_it". A name that C reserves, or that each grain has already, gets an underscore:
 * "Delete" -> "delete_". */
char *teffi_slot_name(teffi_pool *pool, const char *name);

/* teffi_pbc_type - protobuf-c's name of a type: "words.HTTPReply" -> "Words__HTTPReply". */
char *teffi_pbc_type(teffi_pool *pool, const char *full);

/* teffi_pbc_lower, teffi_pbc_upper - the prefix of a type's functions and macros by protobuf-c:
 * "words.HTTPReply" -> "words__httpreply", "WORDS__HTTPREPLY". */
char *teffi_pbc_lower(teffi_pool *pool, const char *full);
char *teffi_pbc_upper(teffi_pool *pool, const char *full);

/* teffi_pbc_field - protobuf-c's name of a field: "camelCase" -> "camelcase", "default" ->
 * "default_". */
char *teffi_pbc_field(teffi_pool *pool, const char *name);

/* teffi_is_identifier - may a .proto file use this as a name? */
bool teffi_is_identifier(const char *name);

/* teffi_is_keyword - does names.c list the name as a keyword of C or C++, or as a macro of a
 * standard header or of a compiler? No generated identifier may have such a name. */
bool teffi_is_keyword(const char *name);

/* teffi_is_pbc_type - is it the name of a type that protobuf-c's structs use for their members? */
bool teffi_is_pbc_type(const char *name);

/* teffi_is_taken - does names.c list the name, or its prefix, as reserved at file scope: by the C
 * library, by teff, by protobuf-c, or for parameters and variables of generated functions? */
bool teffi_is_taken(const char *name);
