/* fuzz_identity.c - what a peer shows and signs in the handshake, changed at any byte: a
 * certificate is accepted only if its key is one that the authority has signed; a signature and a
 * proof only if they were made for these two hellos, and for this side.
 *
 * The first byte of an input selects a certificate and a side. The rest is a list of edits of the
 * peer's hello and of its ack, or (RAW) the certificate itself, in DER.
 * Way:     [fuzz_identity] -> message/hello -> identity, message/proof -> mbed TLS */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "input.h"
#include "link/identity.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { SHOWN = 7, CLIENTS = 8, ACCEPTOR = 16, RAW = 32 }; /* bits of the first byte */
enum { KINDS = 8, ROOM = 2 * TEFFI_HELLO_MAX };

typedef struct known_owner { /* of a certificate in CERTIFICATES */
    const char *file, *authority;
    bool valid[2]; /* for silos, for clients */
    link_identity *identity;
    teffi_signature signatures[2]; /* of the hellos below, by prover */
} known_owner;

static known_owner owners[KINDS] = {
    {.file = "peer.pem", .authority = "ca.pem", .valid = {true, false}},
    {.file = "silo.pem", .authority = "ca.pem", .valid = {true, false}},
    {.file = "chain.pem", .authority = "ca.pem", .valid = {true, false}},
    {.file = "middle.pem", .authority = "ca.pem", .valid = {true, false}},
    {.file = "rsa.pem", .authority = "ca.pem", .valid = {true, false}},
    {.file = "client.pem", .authority = "client-ca.pem", .valid = {false, true}},
    {.file = "expired.pem", .authority = "ca.pem"},
    {.file = "other.pem", .authority = "other-ca.pem"},
};

static const teffi_secret secret = {16, "a shared secret!"};
static link_identity *self;      /* it checks what the peer shows */
static teffi_greeting own, peer; /* the two hellos; peer's before the edits */
static uint8_t own_digest[TEFFI_PROOF_BYTES], peer_digest[TEFFI_PROOF_BYTES];
static uint8_t proofs[2][TEFFI_PROOF_BYTES]; /* by prover */

/* ---- what is made once ---- */

static uint64_t draw_same_bits(void *arg)
{
    (void)arg;
    return 0x9e3779b97f4a7c15u;
}

static const teffi_platform platform = {.random = draw_same_bits};

static link_identity *read_owner_identity(const char *file, const char *authority,
                                          const char *clients)
{
    char paths[3][256], text[TEFF_TEXT_MAX];
    link_identity *made;
    snprintf(paths[0], sizeof paths[0], "%s/%s", CERTIFICATES, file);
    snprintf(paths[1], sizeof paths[1], "%s/%s", CERTIFICATES, authority);
    snprintf(paths[2], sizeof paths[2], "%s/%s", CERTIFICATES, clients);
    teffi_tls_files files = {paths[0], paths[1], paths[2]};
    if (teffi_identity_new(&platform, &files, &made, text)) {
        fprintf(stderr, "%s\n", text);
        abort();
    }
    return made;
}

/* Whose hello is the dialler's? The prover's is always the peer's. */
static const uint8_t *dialler_of(teffi_prover prover, const uint8_t *digest)
{
    return prover == TEFFI_PROVER_DIALLER ? digest : own_digest;
}

static const uint8_t *acceptor_of(teffi_prover prover, const uint8_t *digest)
{
    return prover == TEFFI_PROVER_DIALLER ? own_digest : digest;
}

static void make_hellos(void)
{
    own.hello = (teffi_hello){.node = {7, 1}, .role = TEFFI_ROLE_SILO};
    peer.hello = (teffi_hello){.node = {9, 3}, .role = TEFFI_ROLE_SILO};
    peer.hello.version_min = peer.hello.version_max = TEFFI_PROTOCOL_MAX;
    strcpy(peer.hello.cluster, "test");
    strcpy(peer.hello.address, "peer:1");
    peer.sequence = 5;
    peer.secret = true;
    memset(own.nonce, 1, sizeof own.nonce);
    memset(peer.nonce, 2, sizeof peer.nonce);
    teffi_bug_if(!teffi_proof_digest_hello(&own, own_digest));
    teffi_bug_if(!teffi_proof_digest_hello(&peer, peer_digest));
}

static void sign_hellos(teffi_prover prover)
{
    const uint8_t *dialler = dialler_of(prover, peer_digest);
    const uint8_t *acceptor = acceptor_of(prover, peer_digest);
    teffi_bug_if(!teffi_proof_make(&secret, prover, dialler, acceptor, proofs[prover]));
    for (known_owner *o = owners; o < owners + KINDS; o++)
        teffi_bug_if(
            !teffi_identity_sign(o->identity, prover, dialler, acceptor, &o->signatures[prover]));
}

static void make_all_once(void)
{
    if (self)
        return;
    make_hellos();
    for (known_owner *o = owners; o < owners + KINDS; o++)
        o->identity = read_owner_identity(o->file, o->authority, o->authority);
    sign_hellos(TEFFI_PROVER_DIALLER);
    sign_hellos(TEFFI_PROVER_ACCEPTOR);
    self = read_owner_identity("silo.pem", "ca.pem", "client-ca.pem");
}

/* ---- the edits ---- */

typedef struct edited_payload {
    uint8_t bytes[ROOM];
    size_t len;
    bool edited;
} edited_payload;

static void insert_byte(edited_payload *p, size_t at, uint8_t byte)
{
    if (p->len == ROOM)
        return;
    memmove(p->bytes + at + 1, p->bytes + at, p->len - at);
    p->bytes[at] = byte;
    p->len++;
}

static void remove_bytes(edited_payload *p, size_t at, size_t n)
{
    n = n < p->len - at ? n : p->len - at;
    memmove(p->bytes + at, p->bytes + at + n, p->len - at - n);
    p->len -= n;
}

/* An edit: what to do, two bytes of where, one of with what. */
static void apply_edit(fuzz_input *e, edited_payload *hello, edited_payload *ack)
{
    unsigned what = input_take_byte(e), where = input_take_word(e), with = input_take_byte(e);
    edited_payload *p = what & 4 ? ack : hello;
    size_t at = where % (p->len + 1);
    p->edited = true;
    if ((what & 3) == 0 && at < p->len)
        p->bytes[at] ^= (uint8_t)with;
    else if ((what & 3) == 1)
        insert_byte(p, at, (uint8_t)with);
    else if ((what & 3) == 2)
        remove_bytes(p, at, 1 + with);
    else if (at < p->len)
        p->bytes[at] = (uint8_t)with;
}

/* ---- the checks ---- */

/* out: whose key the hash is; NULL: an unknown one. */
static const known_owner *find_owner_of_key(const uint8_t *hash)
{
    for (const known_owner *o = owners; o < owners + KINDS; o++)
        if (memcmp(teffi_identity_hash(o->identity), hash, TEFFI_KEY_BYTES) == 0)
            return o;
    return NULL;
}

static bool hellos_say_same(const teffi_greeting *a, const teffi_greeting *b)
{
    return memcmp(&a->hello, &b->hello, sizeof a->hello) == 0 && a->sequence == b->sequence &&
           memcmp(a->nonce, b->nonce, sizeof a->nonce) == 0;
}

/* in: owner, whose signatures the peer has. */
static void check_signature(const known_owner *owner, const known_owner *shown,
                            link_public_key *key, teffi_prover prover, const uint8_t *digest,
                            const teffi_signature *signature)
{
    bool good = teffi_identity_verify(self, key, prover, dialler_of(prover, digest),
                                      acceptor_of(prover, digest), signature);
    bool same = owner == shown && memcmp(digest, peer_digest, sizeof peer_digest) == 0;
    bool unchanged = owner->signatures[prover].len == signature->len &&
                     !memcmp(owner->signatures[prover].bytes, signature->bytes, signature->len);
    teffi_bug_if(good && !same);
    teffi_bug_if(!good && same && unchanged);
}

static void check_proof(teffi_prover prover, const uint8_t *digest, const uint8_t *proof)
{
    uint8_t expected[TEFFI_PROOF_BYTES];
    teffi_bug_if(!teffi_proof_make(&secret, prover, dialler_of(prover, digest),
                                   acceptor_of(prover, digest), expected));
    bool same = memcmp(digest, peer_digest, sizeof peer_digest) == 0;
    bool unchanged = memcmp(proof, proofs[prover], TEFFI_PROOF_BYTES) == 0;
    teffi_bug_if(teffi_proof_equal(expected, proof) != (same && unchanged));
}

/* in: owner, whose signatures the peer has; intact: the certificate is owner's. */
static void check_peer(const known_owner *owner, unsigned options, const teffi_greeting *hello,
                       const teffi_ack *ack, bool intact)
{
    teffi_prover prover = options & ACCEPTOR ? TEFFI_PROVER_ACCEPTOR : TEFFI_PROVER_DIALLER;
    bool clients = options & CLIENTS, in_hello = prover == TEFFI_PROVER_ACCEPTOR;
    uint8_t digest[TEFFI_PROOF_BYTES], hash[TEFFI_KEY_BYTES];
    link_public_key *key;
    teffi_bug_if(!teffi_proof_digest_hello(hello, digest));
    teffi_bug_if((memcmp(digest, peer_digest, sizeof digest) == 0) !=
                 hellos_say_same(hello, &peer));
    check_proof(prover, digest, in_hello ? hello->proof : ack->proof);
    const char *why =
        teffi_identity_check_certificate(self, &hello->certificate, clients, !clients, &key, hash);
    teffi_bug_if((why != NULL) == (key != NULL));
    teffi_bug_if(why && intact && owner->valid[clients]);
    if (why)
        return;
    const known_owner *shown = find_owner_of_key(hash);
    teffi_bug_if(!shown || !shown->valid[clients]);
    check_signature(owner, shown, key, prover, digest,
                    in_hello ? &hello->signature : &ack->signature);
    teffi_identity_free_key(key);
}

/* Unpacks the edited payloads, each from a block of its own length. out: false: one is refused. */
static bool unpack_edited(const edited_payload *hello, const edited_payload *ack,
                          teffi_greeting *greeting, teffi_ack *response)
{
    uint8_t *first = malloc(hello->len + 1), *second = malloc(ack->len + 1);
    teffi_bug_if(!first || !second);
    uint8_t *packed = memcpy(first + 1, hello->bytes, hello->len);
    teff_err err = teffi_hello_unpack(packed, hello->len, greeting);
    teffi_bug_if(err && !hello->edited);
    if (!err) {
        packed = memcpy(second + 1, ack->bytes, ack->len);
        err = teffi_ack_unpack(packed, ack->len, response);
        teffi_bug_if(err && !ack->edited);
    }
    free(first);
    free(second);
    return !err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static edited_payload hello, ack;
    static teffi_greeting greeting;
    teffi_ack response = {.signature.len = 0};
    fuzz_input in = {data, data + n};
    make_all_once();
    unsigned options = input_take_byte(&in);
    const known_owner *owner = &owners[options & SHOWN];
    teffi_prover prover = options & ACCEPTOR ? TEFFI_PROVER_ACCEPTOR : TEFFI_PROVER_DIALLER;
    greeting = peer;
    teffi_identity_add_certificate(owner->identity, &greeting);
    if (options & RAW) {
        size_t len = TEFFI_CERTIFICATE_MAX;
        memcpy(greeting.certificate.bytes, input_take_bytes(&in, &len), len);
        greeting.certificate.len = (uint16_t)len;
        in.at = in.end;
    }
    greeting.signature = response.signature = owner->signatures[prover];
    memcpy(greeting.proof, proofs[prover], sizeof greeting.proof);
    memcpy(response.proof, proofs[prover], sizeof response.proof);
    hello.len = teffi_hello_pack(&greeting, hello.bytes);
    ack.len = teffi_ack_pack(&response, ack.bytes);
    hello.edited = ack.edited = false;
    while (in.at < in.end)
        apply_edit(&in, &hello, &ack);
    if (unpack_edited(&hello, &ack, &greeting, &response))
        check_peer(owner, options, &greeting, &response, !hello.edited && !(options & RAW));
    return 0;
}
