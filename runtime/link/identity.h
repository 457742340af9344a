/* identity.h - proves in the handshake that a node owns the private key of its certificate. TLS
 * proves the same, but nng does not say which certificate a peer has shown. So a hello contains the
 * certificate, and both sides sign the digests of the two hellos.
 * Way:     net (the files), handshake -> [identity] -> libmbedx509
 * Threads: any, after teffi_identity_new().
 *
 * A signature covers what a proof covers (message/proof.h), so it is not valid on another
 * connection, for another side, or for another node id. It is not bound to the TLS session: whoever
 * has the key of one silo and can redirect the packets of two others can pass their hellos on. */
#pragma once

#include <stdbool.h>
#include "message/proof.h"
#include "os/platform.h"
#include "stream/stream.h"

/* The certificate and private key of this node, and the authorities that sign those of peers. */
typedef struct link_identity link_identity;

/* The public key of a valid certificate that a peer has shown. */
typedef struct link_public_key link_public_key;

/* teffi_identity_new - read the files.
 * in:   platform, borrowed. files, borrowed during the call.
 * out:  *identity; NULL on an error, or if files has no certificate.
 * errs: with text: TEFF_E_INVALID (a file; a chain over TEFFI_CERTIFICATE_MAX bytes; a key that
 *       does not fit the certificate, or with signatures over TEFFI_SIGNATURE_MAX bytes),
 *       TEFF_E_NOMEM.
 * teffi_identity_free - in: may be NULL. */
TEFF_MUST_USE teff_err teffi_identity_new(const teffi_platform *platform,
                                          const teffi_tls_files *files, link_identity **identity,
                                          char *text);
void teffi_identity_free(link_identity *identity);

/* teffi_identity_hash - the SHA-256 of the public key of this node's certificate, as in
 * teffi_hello.key. */
const uint8_t *teffi_identity_hash(const link_identity *identity);

/* teffi_identity_add_certificate - add this node's certificate to its greeting. */
void teffi_identity_add_certificate(const link_identity *identity, teffi_greeting *own);

/* teffi_identity_check_certificate - check that an authority has signed a peer's certificate, that
 * it is valid now, and that it may be a silo's: if it has the extension "extended key usage", a
 * silo's must list serverAuth, because other nodes connect to silos.
 * in:   clients: the authority of clients' certificates, if there is one, has to have signed it.
 *       silo: the peer says that it is a silo.
 * out:  *key, which teffi_identity_free_key() frees, and hash, the SHA-256 of that key. Or the
 *       reason why not; then *key is NULL. */
TEFF_MUST_USE const char *teffi_identity_check_certificate(link_identity *identity,
                                                           const teffi_certificate *shown,
                                                           bool clients, bool silo,
                                                           link_public_key **key,
                                                           uint8_t hash[TEFFI_KEY_BYTES]);
void teffi_identity_free_key(link_public_key *key);

/* teffi_identity_sign - sign the digests of both hellos. out: false: no memory.
 * teffi_identity_verify - has the owner of key signed them? out: false also without memory. */
TEFF_MUST_USE bool teffi_identity_sign(link_identity *identity, teffi_prover prover,
                                       const uint8_t dialler[TEFFI_PROOF_BYTES],
                                       const uint8_t acceptor[TEFFI_PROOF_BYTES],
                                       teffi_signature *signature);
TEFF_MUST_USE bool teffi_identity_verify(link_identity *identity, link_public_key *key,
                                         teffi_prover prover,
                                         const uint8_t dialler[TEFFI_PROOF_BYTES],
                                         const uint8_t acceptor[TEFFI_PROOF_BYTES],
                                         const teffi_signature *signature);
