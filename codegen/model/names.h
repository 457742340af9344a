/* names.h - how names of a .proto file are written in C, and which ones are reserved there.
 * Way:     model -> [names] -> check, emit */
#pragma once

#include "model/pool.h"

/* The characters of names. */
#define TEFFI_WORD_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

/* teffi_snake - "words.v1.HTTPReply" -> "words_v1_http_reply". */
char *teffi_snake(teffi_pool *pool, const char *full);

/* teffi_slot - a grain's name of a method: "GetIt" -> "get_it". A name that C reserves, or that
 * each grain has already, gets an underscore: "Delete" -> "delete_". */
char *teffi_slot(teffi_pool *pool, const char *name);

/* teffi_pbc_type - protobuf-c's name of a type: "words.HTTPReply" -> "Words__HTTPReply". */
char *teffi_pbc_type(teffi_pool *pool, const char *full);

/* teffi_pbc_lower, teffi_pbc_upper - the beginning of protobuf-c's functions and macros:
 * "words.HTTPReply" -> "words__httpreply", "WORDS__HTTPREPLY". */
char *teffi_pbc_lower(teffi_pool *pool, const char *full);
char *teffi_pbc_upper(teffi_pool *pool, const char *full);

/* teffi_pbc_field - protobuf-c's name of a field: "camelCase" -> "camelcase", "default" ->
 * "default_". */
char *teffi_pbc_field(teffi_pool *pool, const char *name);

/* teffi_is_identifier - may a .proto file use this as a name? */
bool teffi_is_identifier(const char *name);

/* teffi_is_keyword - is a name a keyword of C or C++, or a macro of a standard header or of a
 * compiler, so that nothing in C can bear it? */
bool teffi_is_keyword(const char *name);

/* teffi_is_pbc_type - is a name that of a type that the structs of protobuf-c use? */
bool teffi_is_pbc_type(const char *name);

/* teffi_is_taken - is a name reserved at file scope: one of the C library, of the runtime, or
 * one that generated functions use inside? */
bool teffi_is_taken(const char *name);
