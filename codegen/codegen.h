/* codegen.h - protoc-gen-teff as a function: a request in, a response out.
 * Way:     main (or a test, or a fuzzer) -> [codegen] -> model, options, check -> emit
 * Threads: one run uses one pool on one thread; that holds for all files of these folders.
 * Parameters, comma-separated, as in protoc --teff_out=lock=words.teff.lock,emit_lock:DIR:
 *   lock=FILE   FILE lists published methods, one "words.Word.Add 0x1234abcd" per line; it is an
 *               error if the file to generate lacks one of them or gives it another id
 *   emit_lock   write that list as x.teff.lock, for committing */
#pragma once

#include "model/pool.h"

/* Functions of the process that codegen runs in. */
typedef struct teffi_codegen_env {
    /* out: the text of a file, in the pool, may be changed; NULL: it cannot be read. */
    char *(*read)(teffi_pool *pool, const char *path);
    /* Run protobuf-c's generator on a request. out: NULL, or what went wrong. Without this function
     * the response lacks that generator's files. */
    const char *(*messages)(teffi_pool *pool, teffi_bytes request, teffi_bytes *response);
} teffi_codegen_env;

/* teffi_codegen - respond to a CodeGeneratorRequest.
 * in:   request, borrowed, any bytes.
 * out:  NULL and *response, in the pool: files, or an error with "file:line: what, what was
 *       expected" lines and no file. Otherwise a text: the request is malformed and gets no
 *       response. */
const char *teffi_codegen(teffi_pool *pool, const teffi_codegen_env *env, teffi_bytes request,
                          teffi_bytes *response);
