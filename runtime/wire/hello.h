/* hello.h - the three frames before the first message, and who is let in.
 * Way:     link_dial, link_accept -> [hello] -> teff/wire.proto
 * Threads: pure functions.
 * Source:  DESIGN section 7 (version ranges); RELIABILITY sections 4 and 6
 *
 *   dialler  Hello(nonce A, sequence)  ------------------------------->  acceptor checks
 *            checks                    <--- Hello(nonce B, echo A) | Refuse(code, text)
 *            Ack(echo B)               ------------------------------->  up */
#ifndef TEFFI_WIRE_HELLO_H
#define TEFFI_WIRE_HELLO_H

#include <stddef.h>
#include <stdint.h>
#include <teff/error.h>
#include <teff/silo.h>
#include "wire/net.h"

enum { TEFFI_NONCE_BYTES = 16, TEFFI_HELLO_MAX = 4096 }; /* of a whole handshake frame */

typedef struct teffi_greeting {
    teffi_hello hello;
    uint64_t sequence;
    uint8_t nonce[TEFFI_NONCE_BYTES];
    uint8_t echo[TEFFI_NONCE_BYTES];
} teffi_greeting;

/* Which of its counters a refusal belongs to. */
typedef enum teffi_misfit {
    TEFFI_FITS = 0,
    TEFFI_MISFIT_CLUSTER,
    TEFFI_MISFIT_VERSION,
    TEFFI_MISFIT_IDENTITY, /* role, id, bit of clients */
} teffi_misfit;

/* teffi_hello_pack - a payload of at most TEFFI_HELLO_MAX - TEFFI_FRAME_HEAD bytes to out.
 * out:  its length. */
size_t teffi_hello_pack(const teffi_greeting *greeting, uint8_t *out);

/* teffi_hello_unpack - errs: TEFF_E_MALFORMED (magic and lengths too), TEFF_E_TOO_LARGE. */
TEFF_MUST_USE teff_err teffi_hello_unpack(const uint8_t *data, size_t len,
                                          teffi_greeting *greeting);

/* teffi_refuse_pack, teffi_refuse_unpack - text is of TEFF_TEXT_MAX bytes. */
size_t teffi_refuse_pack(teff_err code, const char *text, uint8_t *out);
TEFF_MUST_USE teff_err teffi_refuse_unpack(const uint8_t *data, size_t len, teff_err *code,
                                           char *text);

/* teffi_ack_pack, teffi_ack_unpack - echo is the acceptor's nonce. */
size_t teffi_ack_pack(const uint8_t echo[TEFFI_NONCE_BYTES], uint8_t *out);
TEFF_MUST_USE teff_err teffi_ack_unpack(const uint8_t *data, size_t len,
                                        uint8_t echo[TEFFI_NONCE_BYTES]);

/* teffi_hello_check - may these two talk?
 * out:  *version, the newest that both speak; text (TEFF_TEXT_MAX bytes) when they may not. */
TEFF_MUST_USE teffi_misfit teffi_hello_check(const teffi_hello *self, const teffi_hello *peer,
                                             uint32_t *version, char *text);

#endif
