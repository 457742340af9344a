/* name.h - prefix the texts of the runtime's own errors with method and key:
 * "words.Word.Add at teff: ". Error texts of methods get no prefix, so a forwarded one has one.
 * Way:     request/ask (the caller's side), turn, life, state (the grain's) -> [name] -> ctx's text
 * Threads: the context's own. Called for errors only. */
#ifndef TEFFI_ACTIVATION_NAME_H
#define TEFFI_ACTIVATION_NAME_H

#include <teff/generated.h>

/* teffi_name_key - prefix ctx's error text with method and key. out: err. */
teff_err teffi_name_key(teff_ctx *ctx, const teff_method *method, const teff_key *key,
                        teff_err err);

/* teffi_name_bytes - the same, for a key in bytes; of a long key the first 80 bytes are enough. */
teff_err teffi_name_bytes(teff_ctx *ctx, const teff_method *method, teff_key_kind kind,
                          const uint8_t *bytes, uint32_t len, teff_err err);

/* teffi_name_turn - the same, with the method and key of the turn that runs on ctx; for a life
 * turn, the grain type's name instead of the method. */
teff_err teffi_name_turn(teff_ctx *ctx, teff_err err);

#endif
