/* identity.c - reads, shows and checks certificates; signs and verifies.
 * Threads: `lock` covers each use of keys and authorities, because mbed TLS changes cached numbers
 *          in them, also when it only verifies. */
#include "link/identity.h"

#include <mbedtls/md.h>
#include <mbedtls/oid.h>
#include <mbedtls/pk.h>
#include <mbedtls/x509_crt.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"

struct link_identity {
    pthread_mutex_t lock;
    const teffi_platform *platform;
    mbedtls_pk_context key;
    mbedtls_x509_crt own, authority, client_authority;
    bool has_client_authority;
    teffi_certificate shown; /* own, as peers see it */
    uint8_t hash[TEFFI_KEY_BYTES];
};

struct link_public_key {
    mbedtls_x509_crt chain; /* the first certificate has the key */
};

/* ---- keys ---- */

/* The random numbers of mbed TLS, which it uses against timing attacks. */
static int fill_with_random_bytes(void *arg, unsigned char *to, size_t n)
{
    const teffi_platform *p = arg;
    while (n) {
        uint64_t word = p->random(p->arg);
        size_t part = n < sizeof word ? n : sizeof word;
        memcpy(to, &word, part);
        to += part;
        n -= part;
    }
    return 0;
}

/* The digest that is signed. out: false: no memory. */
static bool hash_digests(teffi_prover prover, const uint8_t *dialler, const uint8_t *acceptor,
                         uint8_t hash[TEFFI_PROOF_BYTES])
{
    static const char labels[][24] = {[TEFFI_PROVER_DIALLER] = "teff 1 dialler signs",
                                      [TEFFI_PROVER_ACCEPTOR] = "teff 1 acceptor signs"};
    uint8_t input[sizeof labels[0] + 2 * TEFFI_PROOF_BYTES];
    memcpy(input, labels[prover], sizeof labels[0]);
    memcpy(input + sizeof labels[0], dialler, TEFFI_PROOF_BYTES);
    memcpy(input + sizeof labels[0] + TEFFI_PROOF_BYTES, acceptor, TEFFI_PROOF_BYTES);
    return mbedtls_md(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), input, sizeof input, hash) == 0;
}

/* out: hash of the public key, in its DER form; false: no memory, or a key of an unknown kind. */
static bool hash_public_key(mbedtls_pk_context *key, uint8_t hash[TEFFI_KEY_BYTES])
{
    uint8_t der[2048]; /* mbed TLS writes to the end of the buffer */
    int n = mbedtls_pk_write_pubkey_der(key, der, sizeof der);
    return n > 0 && mbedtls_md(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), der + sizeof der - n,
                               (size_t)n, hash) == 0;
}

bool teffi_identity_sign(link_identity *identity, teffi_prover prover,
                         const uint8_t dialler[TEFFI_PROOF_BYTES],
                         const uint8_t acceptor[TEFFI_PROOF_BYTES], teffi_signature *signature)
{
    uint8_t hash[TEFFI_PROOF_BYTES], bytes[MBEDTLS_PK_SIGNATURE_MAX_SIZE];
    size_t len = 0;
    signature->len = 0;
    if (!hash_digests(prover, dialler, acceptor, hash))
        return false;
    pthread_mutex_lock(&identity->lock);
    int err = mbedtls_pk_sign(&identity->key, MBEDTLS_MD_SHA256, hash, sizeof hash, bytes, &len,
                              fill_with_random_bytes, (void *)(uintptr_t)identity->platform);
    pthread_mutex_unlock(&identity->lock);
    if (err || len > sizeof signature->bytes)
        return false;
    memcpy(signature->bytes, bytes, len);
    signature->len = (uint16_t)len;
    return true;
}

bool teffi_identity_verify(link_identity *identity, link_public_key *key, teffi_prover prover,
                           const uint8_t dialler[TEFFI_PROOF_BYTES],
                           const uint8_t acceptor[TEFFI_PROOF_BYTES],
                           const teffi_signature *signature)
{
    uint8_t hash[TEFFI_PROOF_BYTES];
    if (!signature->len || !hash_digests(prover, dialler, acceptor, hash))
        return false;
    pthread_mutex_lock(&identity->lock);
    int err = mbedtls_pk_verify(&key->chain.pk, MBEDTLS_MD_SHA256, hash, sizeof hash,
                                signature->bytes, signature->len);
    pthread_mutex_unlock(&identity->lock);
    return err == 0;
}

/* ---- the certificates of peers ---- */

void teffi_identity_free_key(link_public_key *key)
{
    if (!key)
        return;
    mbedtls_x509_crt_free(&key->chain);
    free(key);
}

/* Parses a chain: certificates one after another, in DER. out: false: malformed, or no memory. */
static bool parse_chain(const teffi_certificate *shown, mbedtls_x509_crt *chain)
{
    size_t at = 0;
    while (at < shown->len) {
        if (mbedtls_x509_crt_parse_der(chain, shown->bytes + at, shown->len - at) != 0)
            return false;
        const mbedtls_x509_crt *last = chain;
        while (last->next)
            last = last->next;
        at += last->raw.len;
    }
    return at > 0;
}

/* out: true also if the certificate does not say what it may be used for. */
static bool may_be_server(const mbedtls_x509_crt *certificate)
{
    return mbedtls_x509_crt_check_extended_key_usage(certificate, MBEDTLS_OID_SERVER_AUTH,
                                                     MBEDTLS_OID_SIZE(MBEDTLS_OID_SERVER_AUTH)) ==
           0;
}

const char *teffi_identity_check_certificate(link_identity *identity,
                                             const teffi_certificate *shown, bool clients,
                                             bool silo, link_public_key **key,
                                             uint8_t hash[TEFFI_KEY_BYTES])
{
    mbedtls_x509_crt *authority = clients && identity->has_client_authority
                                      ? &identity->client_authority
                                      : &identity->authority;
    link_public_key *made = calloc(1, sizeof *made);
    const char *why = NULL;
    uint32_t flags;
    *key = NULL;
    if (!made)
        return "out of memory";
    mbedtls_x509_crt_init(&made->chain);
    pthread_mutex_lock(&identity->lock);
    if (!parse_chain(shown, &made->chain) || !hash_public_key(&made->chain.pk, hash))
        why = "the certificate in the peer's hello is malformed";
    else if (mbedtls_x509_crt_verify(&made->chain, authority, NULL, NULL, &flags, NULL, NULL))
        why =
            "the certificate in the peer's hello is not signed by the authority, or not valid now";
    else if (silo && !may_be_server(&made->chain))
        why = "the peer says that it is a silo, but its certificate is for clients only: its "
              "extended key usage lacks serverAuth";
    pthread_mutex_unlock(&identity->lock);
    if (why)
        teffi_identity_free_key(made);
    else
        *key = made;
    return why;
}

/* ---- this node's certificate ---- */

const uint8_t *teffi_identity_hash(const link_identity *identity)
{
    return identity->hash;
}

void teffi_identity_add_certificate(const link_identity *identity, teffi_greeting *own)
{
    own->certificate = identity->shown;
}

void teffi_identity_free(link_identity *identity)
{
    if (!identity)
        return;
    mbedtls_pk_free(&identity->key);
    mbedtls_x509_crt_free(&identity->own);
    mbedtls_x509_crt_free(&identity->authority);
    mbedtls_x509_crt_free(&identity->client_authority);
    pthread_mutex_destroy(&identity->lock);
    free(identity);
}

static teff_err read_certificates(const char *file, mbedtls_x509_crt *to, char *text)
{
    return mbedtls_x509_crt_parse_file(to, file) == 0
               ? TEFF_OK
               : teffi_fail(text, TEFF_E_INVALID, "%.300s: a certificate in it is malformed", file);
}

static teff_err read_files(link_identity *identity, const teffi_tls_files *files, char *text)
{
    teff_err err = read_certificates(files->certificate, &identity->own, text);
    if (!err && mbedtls_pk_parse_keyfile(&identity->key, files->certificate, NULL) != 0)
        err = teffi_fail(text, TEFF_E_INVALID, "%.300s: the private key in it is malformed",
                         files->certificate);
    if (!err)
        err = read_certificates(files->authority, &identity->authority, text);
    if (!err && files->client_authority)
        err = read_certificates(files->client_authority, &identity->client_authority, text);
    identity->has_client_authority = files->client_authority != NULL;
    return err;
}

/* Copies the chain to identity->shown, and makes the hash of the key. errs: TEFF_E_INVALID. */
static teff_err prepare_certificate(link_identity *identity, const char *file, char *text)
{
    teffi_certificate *shown = &identity->shown;
    for (const mbedtls_x509_crt *c = &identity->own; c; c = c->next) {
        if (c->raw.len > sizeof shown->bytes - shown->len)
            return teffi_fail(text, TEFF_E_INVALID,
                              "%.300s: its certificates have more than %d bytes in DER", file,
                              TEFFI_CERTIFICATE_MAX);
        memcpy(shown->bytes + shown->len, c->raw.p, c->raw.len);
        shown->len = (uint16_t)(shown->len + c->raw.len);
    }
    return hash_public_key(&identity->own.pk, identity->hash)
               ? TEFF_OK
               : teffi_fail(text, TEFF_E_INVALID, "%.300s: its public key cannot be used", file);
}

/* Signs something, and verifies it with the certificate's key. errs: TEFF_E_INVALID. */
static teff_err check_key_fits(link_identity *identity, const char *file, char *text)
{
    static const uint8_t digest[TEFFI_PROOF_BYTES];
    teffi_signature signature;
    link_public_key key = {identity->own}; /* borrowed */
    bool signs = teffi_identity_sign(identity, TEFFI_PROVER_DIALLER, digest, digest, &signature);
    if (signs &&
        teffi_identity_verify(identity, &key, TEFFI_PROVER_DIALLER, digest, digest, &signature))
        return TEFF_OK;
    return teffi_fail(text, TEFF_E_INVALID, "%.300s: its private key %s", file,
                      signs ? "does not fit its first certificate"
                            : "cannot sign, or is longer than 4,096 bits");
}

teff_err teffi_identity_new(const teffi_platform *platform, const teffi_tls_files *files,
                            link_identity **identity, char *text)
{
    *identity = NULL;
    if (!files->certificate)
        return TEFF_OK;
    link_identity *made = calloc(1, sizeof *made);
    if (!made)
        return teffi_fail(text, TEFF_E_NOMEM, "link: out of memory");
    pthread_mutex_init(&made->lock, NULL);
    made->platform = platform;
    mbedtls_pk_init(&made->key);
    mbedtls_x509_crt_init(&made->own);
    mbedtls_x509_crt_init(&made->authority);
    mbedtls_x509_crt_init(&made->client_authority);
    teff_err err = read_files(made, files, text);
    if (!err)
        err = prepare_certificate(made, files->certificate, text);
    if (!err)
        err = check_key_fits(made, files->certificate, text);
    if (err)
        teffi_identity_free(made);
    else
        *identity = made;
    return err;
}
