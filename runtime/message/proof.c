/* proof.c - digests of hellos, and the HMAC over two of them. */
#include "message/proof.h"

#include <mbedtls/constant_time.h>
#include <mbedtls/md.h>
#include <string.h>

/* A buffer for the fields of a hello. Each has a fixed length, or its length before it, so that two
 * different hellos never give the same bytes. Numbers are little-endian, as this machine's
 * (meson.build). */
typedef struct field_writer {
    size_t len;
    uint8_t bytes[TEFFI_CLUSTER_MAX + TEFFI_ADDRESS_MAX + TEFFI_NONCE_BYTES + 64];
} field_writer;

static void add_bytes(field_writer *w, const void *from, size_t n)
{
    memcpy(w->bytes + w->len, from, n);
    w->len += n;
}

static void add_integer(field_writer *w, uint64_t number)
{
    add_bytes(w, &number, sizeof number);
}

static void add_text(field_writer *w, const char *text)
{
    uint16_t n = (uint16_t)strlen(text);
    add_bytes(w, &n, sizeof n);
    add_bytes(w, text, n);
}

bool teffi_proof_digest_hello(const teffi_greeting *g, uint8_t digest[TEFFI_PROOF_BYTES])
{
    field_writer w = {0};
    add_bytes(&w, g->nonce, sizeof g->nonce);
    add_integer(&w, (uint64_t)g->hello.node.silo << 32 | g->hello.node.incarnation);
    add_integer(&w, g->hello.role);
    add_integer(&w, (uint64_t)g->hello.version_min << 32 | g->hello.version_max);
    add_integer(&w, g->sequence);
    add_text(&w, g->hello.cluster);
    add_text(&w, g->hello.address);
    return mbedtls_md(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), w.bytes, w.len, digest) == 0;
}

bool teffi_proof_make(const teffi_secret *secret, teffi_prover prover,
                      const uint8_t dialler[TEFFI_PROOF_BYTES],
                      const uint8_t acceptor[TEFFI_PROOF_BYTES], uint8_t proof[TEFFI_PROOF_BYTES])
{
    static const char labels[][16] = {
        [TEFFI_PROVER_DIALLER] = "teff 1 dialler", [TEFFI_PROVER_ACCEPTOR] = "teff 1 acceptor"};
    uint8_t input[sizeof labels[0] + 2 * TEFFI_PROOF_BYTES];
    memcpy(input, labels[prover], sizeof labels[0]);
    memcpy(input + sizeof labels[0], dialler, TEFFI_PROOF_BYTES);
    memcpy(input + sizeof labels[0] + TEFFI_PROOF_BYTES, acceptor, TEFFI_PROOF_BYTES);
    return mbedtls_md_hmac(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), secret->bytes, secret->len,
                           input, sizeof input, proof) == 0;
}

bool teffi_proof_equal(const uint8_t a[TEFFI_PROOF_BYTES], const uint8_t b[TEFFI_PROOF_BYTES])
{
    return mbedtls_ct_memcmp(a, b, TEFFI_PROOF_BYTES) == 0;
}
