/* codegen.h - protoc-gen-teff as a function: a request in, a response out.
 * Way:     main (or a test, or a fuzzer) -> [codegen] -> model, options, check -> emit
 * Threads: one run uses one pool on one thread; no file under codegen/ has locks.
 * Parameters, comma-separated, as in protoc --teff_out=lock=words.teff.lock,emit_lock:DIR:
 *   lock=FILE   FILE lists published methods ("words.Word.Add 0x1234abcd") and versions of grain
 *               types ("words.Word version 2"), one a line; it is an error if the one file to
 *               generate lacks one of them, or has another id or a lower version
 *   emit_lock   write this list as x.teff.lock, for committing */
#pragma once

#include "model/pool.h"

/* Functions that the calling process provides; each may be NULL. */
typedef struct teffi_codegen_env {
    /* Read a file. out: its text in the pool, which the caller may change; NULL: not readable. If
     * this function is NULL, no file is readable. */
    char *(*read_file)(teffi_pool *pool, const char *path);
    /* Run protobuf-c's generator on a request, borrowed. out: NULL: *response is set, in the pool;
     * otherwise an error text, static or in the pool. If this function is NULL, the response lacks
     * the files of that generator. */
    const char *(*generate_message_code)(teffi_pool *pool, teffi_bytes request,
                                         teffi_bytes *response);
} teffi_codegen_env;

/* teffi_codegen_run - respond to a CodeGeneratorRequest.
 * in:   pool, initialised; request, borrowed for the call, any bytes.
 * out:  NULL: *response is set, in the pool. It has either files or an error, which is the failure
 *       of protobuf-c's generator, or a line for each of the first problems: "where: what", where
 *       is "file:line", or "parameter" for a parameter.
 *       Otherwise a static error text: the request is malformed and gets no response. */
const char *teffi_codegen_run(teffi_pool *pool, const teffi_codegen_env *env, teffi_bytes request,
                              teffi_bytes *response);
