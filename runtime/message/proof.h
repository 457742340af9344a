/* proof.h - how each side of a handshake proves that it knows the shared secret, but does not show
 * it.
 * Way:     link/handshake -> [proof] -> libmbedcrypto
 * Threads: pure functions.
 *
 * A proof is an HMAC-SHA256 with the secret as key, over: who proves; the digest of the dialler's
 * hello; the digest of the acceptor's. A digest covers all that a hello says of its node, the nonce
 * and the sequence. So a proof is not valid on another connection (because of the nonces), nor for
 * the other side (who proves), nor with another id, role, cluster or address. */
#pragma once

#include <stdbool.h>
#include "message/hello.h"
#include "os/secret_file.h"

typedef enum teffi_prover { TEFFI_PROVER_DIALLER, TEFFI_PROVER_ACCEPTOR } teffi_prover;

/* teffi_proof_digest_hello - the digest of a hello; echo and proof are not part of it.
 * out:  false: no memory. */
TEFF_MUST_USE bool teffi_proof_digest_hello(const teffi_greeting *greeting,
                                            uint8_t digest[TEFFI_PROOF_BYTES]);

/* teffi_proof_make - in: the digests of both hellos. out: proof; false: no memory. */
TEFF_MUST_USE bool teffi_proof_make(const teffi_secret *secret, teffi_prover prover,
                                    const uint8_t dialler[TEFFI_PROOF_BYTES],
                                    const uint8_t acceptor[TEFFI_PROOF_BYTES],
                                    uint8_t proof[TEFFI_PROOF_BYTES]);

/* teffi_proof_equal - compare two proofs, in a time that does not depend on their bytes. */
TEFF_MUST_USE bool teffi_proof_equal(const uint8_t a[TEFFI_PROOF_BYTES],
                                     const uint8_t b[TEFFI_PROOF_BYTES]);
