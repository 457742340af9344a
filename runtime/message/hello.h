/* hello.h - the three frames of the handshake, and the check of a peer's hello.
 * Way:     link/handshake -> [hello] -> teff/wire.proto
 * Threads: pure functions.
 *
 *   dialler  Hello(nonce A, sequence)  ------------------------------->  acceptor checks
 *            checks                    <--- Hello(nonce B, echo A, proof) | Refuse(code, text)
 *            Ack(echo B, proof) | Refuse ----------------------------->  up
 *
 * With a shared secret (message/proof.h) both have a proof; a wrong one ends the connection. With
 * TLS both hellos have a certificate, and the second and third frame a signature
 * (link/identity.h). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <teff/error.h>
#include "message/msg.h"

enum { TEFFI_ADDRESS_MAX = 256, TEFFI_CLUSTER_MAX = 64 };
enum { TEFFI_ROLE_SILO = 1, TEFFI_ROLE_CLIENT = 2 };
/* Version 2 has cookies in the head of frames, and no gateway. A node that speaks version 3 accepts
 * TEFFI_FRAME_VIEW. */
enum { TEFFI_PROTOCOL_MIN = 2, TEFFI_PROTOCOL_VIEW = 3, TEFFI_PROTOCOL_MAX = 3 };

enum { TEFFI_KEY_BYTES = 32 };

/* What a node states about itself in its hello. */
typedef struct teffi_hello {
    teffi_node_id node;
    uint32_t role;
    uint32_t version_min, version_max;
    char cluster[TEFFI_CLUSTER_MAX + 1];
    char address[TEFFI_ADDRESS_MAX + 1]; /* the advertised one, "" for clients */
    /* SHA-256 of the public key of the certificate in the hello; zeros: the link has no TLS, or the
     * peer shows no certificate. Not a field of the frame. Until the connection is up, the peer has
     * not proved that it owns the key. */
    uint8_t key[TEFFI_KEY_BYTES];
} teffi_hello;

enum { TEFFI_NONCE_BYTES = 16, TEFFI_PROOF_BYTES = 32 };
enum { TEFFI_HELLO_MAX = 4096 }; /* of a whole handshake frame */
enum { TEFFI_CERTIFICATE_MAX = 3072, TEFFI_SIGNATURE_MAX = 512 };

typedef struct teffi_certificate { /* one or more in DER, the peer's own first; len 0: none */
    uint16_t len;
    uint8_t bytes[TEFFI_CERTIFICATE_MAX];
} teffi_certificate;

typedef struct teffi_signature { /* len 0: none */
    uint16_t len;
    uint8_t bytes[TEFFI_SIGNATURE_MAX];
} teffi_signature;

typedef struct teffi_greeting {
    teffi_hello hello;
    /* the dialler numbers its connections; the acceptor's is 0 */
    uint64_t sequence;
    uint8_t nonce[TEFFI_NONCE_BYTES];
    uint8_t echo[TEFFI_NONCE_BYTES];  /* zeros: none */
    bool secret;                      /* this side has one */
    uint8_t proof[TEFFI_PROOF_BYTES]; /* zeros: none */
    teffi_certificate certificate;
    teffi_signature signature;
} teffi_greeting;

typedef struct teffi_ack {
    uint8_t echo[TEFFI_NONCE_BYTES];  /* the acceptor's nonce */
    uint8_t proof[TEFFI_PROOF_BYTES]; /* zeros: none */
    teffi_signature signature;
} teffi_ack;

/* teffi_key_is_none - is it all zeros: no certificate? */
bool teffi_key_is_none(const uint8_t key[TEFFI_KEY_BYTES]);

/* teffi_key_fits - may a peer that should have the one key have shown the other (teffi_hello.key)?
 * in: expected; zeros: any. */
bool teffi_key_fits(const uint8_t expected[TEFFI_KEY_BYTES], const uint8_t shown[TEFFI_KEY_BYTES]);

/* Why a hello is refused; each has its counter. */
typedef enum teffi_mismatch {
    TEFFI_MATCHES = 0,
    TEFFI_MISMATCH_CLUSTER,
    TEFFI_MISMATCH_VERSION,
    TEFFI_MISMATCH_IDENTITY, /* role, id, client bit of the id */
} teffi_mismatch;

/* teffi_hello_pack - write the payload, at most TEFFI_HELLO_MAX - TEFFI_FRAME_HEAD bytes, to out.
 * out:  its length. */
size_t teffi_hello_pack(const teffi_greeting *greeting, uint8_t *out);

/* teffi_hello_unpack - unpack the payload. errs: TEFF_E_MALFORMED (also: wrong magic or lengths),
 * TEFF_E_TOO_LARGE, TEFF_E_NOMEM (over 16 KiB unpacked). */
TEFF_MUST_USE teff_err teffi_hello_unpack(const uint8_t *data, size_t len,
                                          teffi_greeting *greeting);

/* teffi_refusal_pack - pack the reason for a refusal, cut to TEFF_TEXT_MAX - 1 bytes, with code
 * TEFF_E_REFUSED.
 * out:  the payload's length.
 * teffi_refusal_unpack - unpack the reason. The code may be any teff_err but TEFF_OK; it is
 * dropped.
 * out:  text, of TEFF_TEXT_MAX bytes. errs: as teffi_hello_unpack(). */
size_t teffi_refusal_pack(const char *text, uint8_t *out);
TEFF_MUST_USE teff_err teffi_refusal_unpack(const uint8_t *data, size_t len, char *text);

/* teffi_ack_pack, teffi_ack_unpack - as for a hello. The payload has up to TEFFI_ACK_MAX bytes. */
enum { TEFFI_ACK_MAX = 64 + TEFFI_SIGNATURE_MAX };
size_t teffi_ack_pack(const teffi_ack *ack, uint8_t *out);
TEFF_MUST_USE teff_err teffi_ack_unpack(const uint8_t *data, size_t len, teffi_ack *ack);

/* teffi_hello_check - may these two nodes connect?
 * out:  TEFFI_MATCHES: yes. Otherwise why not, and text (TEFF_TEXT_MAX bytes). */
TEFF_MUST_USE teffi_mismatch teffi_hello_check(const teffi_hello *self, const teffi_hello *peer,
                                               char *text);
