/* strip.h - what protobuf-c's generator gets to see of a request.
 * Way:     codegen -> [strip] -> protoc-gen-c -> codegen
 * Threads: one user at a time. */
#ifndef TEFFI_CODEGEN_STRIP_H
#define TEFFI_CODEGEN_STRIP_H

#include "codegen.h"
#include "model.h"

/* teffi_strip - the request without teff: no options' file and no import of it, no grains, no
 * parameter. Strings of the files to generate become const char *.
 * in:   request is changed; model was made from it and is used up.
 * out:  the bytes, in the pool. */
teffi_bytes teffi_strip(const teffi_model *model, Protoc__Request *request);

#endif
