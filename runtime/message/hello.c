/* hello.c - the handshake's frames, and the checks that do not depend on earlier connections. */
#include "message/hello.h"

#include <stdio.h>
#include <string.h>
#include "message/codec.h"
#include "wire.pb-c.h"

static const uint32_t magic = 0x66666574; /* "teff" in memory */

/* out: a field with these n bytes; an empty field, which is not sent, if all of them are 0. */
static ProtobufCBinaryData make_field_unless_zero(uint8_t *bytes, size_t n)
{
    static const uint8_t zeros[TEFFI_PROOF_BYTES];
    return memcmp(bytes, zeros, n) == 0 ? (ProtobufCBinaryData){0, NULL}
                                        : (ProtobufCBinaryData){n, bytes};
}

size_t teffi_hello_pack(const teffi_greeting *g, uint8_t *out)
{
    teffi_greeting copy = *g; /* protobuf-c's pointers are not const */
    Teff__Wire__Hello m = TEFF__WIRE__HELLO__INIT;
    m.magic = magic;
    m.version_min = copy.hello.version_min;
    m.version_max = copy.hello.version_max;
    m.cluster = copy.hello.cluster;
    m.role = copy.hello.role;
    m.silo = copy.hello.node.silo;
    m.incarnation = copy.hello.node.incarnation;
    m.address = copy.hello.address;
    m.nonce = (ProtobufCBinaryData){TEFFI_NONCE_BYTES, copy.nonce};
    m.echo =
        make_field_unless_zero(copy.echo, TEFFI_NONCE_BYTES); /* a dialler's hello has no echo */
    m.sequence = copy.sequence;
    m.secret = copy.secret;
    m.proof = make_field_unless_zero(copy.proof, TEFFI_PROOF_BYTES);
    m.certificate = (ProtobufCBinaryData){copy.certificate.len, copy.certificate.bytes};
    m.signature = (ProtobufCBinaryData){copy.signature.len, copy.signature.bytes};
    return teff__wire__hello__pack(&m, out);
}

/* Copies a text to `to`, which has max + 1 bytes. out: false: the text is longer than max bytes,
 * and nothing is copied. */
static bool copy_text(char *to, size_t max, const char *text)
{
    size_t n = strlen(text);
    if (n > max)
        return false;
    memcpy(to, text, n + 1);
    return true;
}

/* Copies a field of n bytes. out: false: the field's length is not n, and nothing is copied. */
static bool copy_field(uint8_t *to, size_t n, const ProtobufCBinaryData *bytes)
{
    if (bytes->len != n)
        return false;
    memcpy(to, bytes->data, n);
    return true;
}

/* As copy_field(), but also returns true if the field is absent, and leaves `to` unchanged in that
 * case. The caller has zeroed `to`. */
static bool copy_optional_field(uint8_t *to, size_t n, const ProtobufCBinaryData *bytes)
{
    return bytes->len == 0 || copy_field(to, n, bytes);
}

/* Copies a field of at most max bytes. out: *len; false: it is longer, and nothing is copied. */
static bool copy_field_up_to(uint8_t *to, size_t max, uint16_t *len,
                             const ProtobufCBinaryData *bytes)
{
    if (bytes->len > max)
        return false;
    if (bytes->len)
        memcpy(to, bytes->data, bytes->len);
    *len = (uint16_t)bytes->len;
    return true;
}

static bool copy_signature(teffi_signature *to, const ProtobufCBinaryData *bytes)
{
    return copy_field_up_to(to->bytes, sizeof to->bytes, &to->len, bytes);
}

/* Copies an unpacked hello to a greeting. out: false: the magic is wrong, a text is too long, or a
 * field has a wrong length. */
static bool copy_hello(const void *from, void *to)
{
    const Teff__Wire__Hello *m = from;
    teffi_greeting *g = to;
    memset(g, 0, sizeof *g);
    g->hello.node = (teffi_node_id){m->silo, m->incarnation};
    g->hello.role = m->role;
    g->hello.version_min = m->version_min;
    g->hello.version_max = m->version_max;
    g->sequence = m->sequence;
    g->secret = m->secret;
    return m->magic == magic && copy_text(g->hello.cluster, TEFFI_CLUSTER_MAX, m->cluster) &&
           copy_text(g->hello.address, TEFFI_ADDRESS_MAX, m->address) &&
           copy_field(g->nonce, sizeof g->nonce, &m->nonce) &&
           copy_optional_field(g->echo, sizeof g->echo, &m->echo) &&
           copy_optional_field(g->proof, sizeof g->proof, &m->proof) &&
           copy_field_up_to(g->certificate.bytes, sizeof g->certificate.bytes, &g->certificate.len,
                            &m->certificate) &&
           copy_signature(&g->signature, &m->signature);
}

/* Unpacks a payload. in: copy, which copies the unpacked message to out, and returns false if the
 * message is malformed. */
static teff_err unpack_payload(const ProtobufCMessageDescriptor *desc, const uint8_t *data,
                               size_t len, bool (*copy)(const void *from, void *to), void *out)
{
    _Alignas(16) uint8_t block[2048];
    teff_arena arena;
    ProtobufCMessage *m;
    teffi_arena_init(&arena, block, sizeof block, 16 * 1024);
    teff_err err = teffi_unpack(desc, data, len, &arena, &m);
    if (!err && !copy(m, out))
        err = TEFF_E_MALFORMED;
    teffi_arena_fini(&arena);
    return err;
}

teff_err teffi_hello_unpack(const uint8_t *data, size_t len, teffi_greeting *greeting)
{
    return unpack_payload(&teff__wire__hello__descriptor, data, len, copy_hello, greeting);
}

size_t teffi_refusal_pack(const char *text, uint8_t *out)
{
    char copy[TEFF_TEXT_MAX];
    snprintf(copy, sizeof copy, "%s", text);
    Teff__Wire__Refuse m = TEFF__WIRE__REFUSE__INIT;
    m.code = TEFF_E_REFUSED;
    m.text = copy;
    return teff__wire__refuse__pack(&m, out);
}

/* Copies the text of an unpacked refusal. out: false: its text is too long, or its code is not that
 * of an error. */
static bool copy_refusal_text(const void *from, void *to)
{
    const Teff__Wire__Refuse *m = from;
    return m->code && m->code <= TEFF_E_MAX && copy_text(to, TEFF_TEXT_MAX - 1, m->text);
}

teff_err teffi_refusal_unpack(const uint8_t *data, size_t len, char *text)
{
    return unpack_payload(&teff__wire__refuse__descriptor, data, len, copy_refusal_text, text);
}

size_t teffi_ack_pack(const teffi_ack *ack, uint8_t *out)
{
    teffi_ack copy = *ack;
    Teff__Wire__Ack m = TEFF__WIRE__ACK__INIT;
    m.echo = (ProtobufCBinaryData){sizeof copy.echo, copy.echo};
    m.proof = make_field_unless_zero(copy.proof, sizeof copy.proof);
    m.signature = (ProtobufCBinaryData){copy.signature.len, copy.signature.bytes};
    return teff__wire__ack__pack(&m, out);
}

/* Copies an unpacked ack. out: false: a length is wrong. */
static bool copy_ack(const void *from, void *to)
{
    const Teff__Wire__Ack *m = from;
    teffi_ack *ack = to;
    memset(ack, 0, sizeof *ack);
    return copy_field(ack->echo, sizeof ack->echo, &m->echo) &&
           copy_optional_field(ack->proof, sizeof ack->proof, &m->proof) &&
           copy_signature(&ack->signature, &m->signature);
}

teff_err teffi_ack_unpack(const uint8_t *data, size_t len, teffi_ack *ack)
{
    return unpack_payload(&teff__wire__ack__descriptor, data, len, copy_ack, ack);
}

bool teffi_key_is_none(const uint8_t key[TEFFI_KEY_BYTES])
{
    static const uint8_t none[TEFFI_KEY_BYTES];
    return memcmp(key, none, sizeof none) == 0;
}

bool teffi_key_fits(const uint8_t expected[TEFFI_KEY_BYTES], const uint8_t shown[TEFFI_KEY_BYTES])
{
    return teffi_key_is_none(expected) || memcmp(expected, shown, TEFFI_KEY_BYTES) == 0;
}

/* Do the peer's id and address fit its role? A silo has an address, and a nonzero id without the
 * client bit. A client has an id with the client bit. */
static bool identity_fits_role(const teffi_hello *peer)
{
    bool client_bit = peer->node.silo & TEFFI_CLIENT_BIT;
    if (peer->role == TEFFI_ROLE_SILO)
        return !client_bit && peer->node.silo && peer->address[0];
    return peer->role == TEFFI_ROLE_CLIENT && client_bit;
}

/* Copies the reason to text. out: always TEFFI_MISMATCH_IDENTITY. */
static teffi_mismatch report_identity_mismatch(char *text, const char *reason)
{
    snprintf(text, TEFF_TEXT_MAX, "%s", reason);
    return TEFFI_MISMATCH_IDENTITY;
}

teffi_mismatch teffi_hello_check(const teffi_hello *self, const teffi_hello *peer, char *text)
{
    if (strcmp(self->cluster, peer->cluster) != 0) {
        snprintf(text, TEFF_TEXT_MAX, "cluster '%s' expected, the peer is of '%s'", self->cluster,
                 peer->cluster);
        return TEFFI_MISMATCH_CLUSTER;
    }
    if (peer->version_min > peer->version_max || peer->version_min > self->version_max ||
        peer->version_max < self->version_min) {
        snprintf(text, TEFF_TEXT_MAX,
                 "protocol versions %u to %u expected, the peer speaks %u to %u", self->version_min,
                 self->version_max, peer->version_min, peer->version_max);
        return TEFFI_MISMATCH_VERSION;
    }
    if (!identity_fits_role(peer))
        return report_identity_mismatch(text, "the peer's id does not fit its role");
    if (self->role != TEFFI_ROLE_SILO && peer->role != TEFFI_ROLE_SILO)
        return report_identity_mismatch(text, "a client talks to silos only");
    if (teffi_node_equals(self->node, peer->node)) {
        snprintf(text, TEFF_TEXT_MAX, "%.180s has the id of this node, %.180s", peer->address,
                 self->address);
        return TEFFI_MISMATCH_IDENTITY;
    }
    return TEFFI_MATCHES;
}
