/* codegen.h - protoc-gen-teff without its process: a request in, a response out.
 * Way:     main (or a test, or a fuzzer) -> [codegen] -> model, check -> emit_*
 * Parameters, comma-separated, as in protoc --teff_out=lock=words.teff.lock,emit_lock:DIR:
 *   lock=FILE   FILE lists the methods once published ("words.Word.Add 0x1234abcd" a line); it is
 *               an error when the one file to generate lacks one of them or gives it another id
 *   emit_lock   write that list beside the code, as x.teff.lock, to be committed */
#ifndef TEFFI_CODEGEN_H
#define TEFFI_CODEGEN_H

#include "text.h"

#include <stdbool.h>

typedef struct teffi_bytes {
    const uint8_t *data;
    size_t n;
} teffi_bytes;

/* What codegen does not do itself. */
typedef struct teffi_codegen_env {
    /* The text of a file, in the pool; NULL when it cannot be read. */
    const char *(*read)(teffi_pool *pool, const char *path);
    /* Let protobuf-c's generator answer a request; NULL, or what went wrong. A NULL slot leaves
     * its files out of the response. */
    const char *(*messages)(teffi_pool *pool, teffi_bytes request, teffi_bytes *response);
} teffi_codegen_env;

/* teffi_codegen - answer a CodeGeneratorRequest.
 * in:   request, borrowed, any bytes.
 * out:  NULL and *response, in the pool: files, or an error with "file:line: what, what was
 *       expected" lines and no file. Otherwise a text: the request is none, there is no response.
 */
const char *teffi_codegen(teffi_pool *pool, const teffi_codegen_env *env, teffi_bytes request,
                          teffi_bytes *response);

/* teffi_scan - may protobuf-c unpack these bytes? It recurses without a limit of its own.
 * in:   desc, the message that the bytes are.
 * out:  false when they are cut off or nest deeper than 100. */
bool teffi_scan(const ProtobufCMessageDescriptor *desc, teffi_bytes bytes);

#endif
