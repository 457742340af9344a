/* test_hello.c - the handshake's frames, and who may talk to whom. */
#include "test.h"
#include <stdio.h>
#include <string.h>
#include "message/frame.h"
#include "message/hello.h"

static teffi_hello silo(void)
{
    return (teffi_hello){.node = {7, 1},
                         .role = TEFFI_ROLE_SILO,
                         .version_min = 2,
                         .version_max = 4,
                         .cluster = "prod",
                         .address = "host:1"};
}

static void a_greeting_comes_back(void **state)
{
    uint8_t bytes[TEFFI_HELLO_MAX];
    teffi_greeting g = {.hello = silo(), .sequence = UINT64_MAX}, back;
    memset(&back, 0xff, sizeof back);
    memset(g.nonce, 0xab, sizeof g.nonce);
    memset(g.hello.cluster, 'c', TEFFI_CLUSTER_MAX);
    memset(g.hello.address, 'a', TEFFI_ADDRESS_MAX);
    size_t n = teffi_hello_pack(&g, bytes);
    assert_true(n + TEFFI_FRAME_HEAD <= TEFFI_HELLO_MAX);
    assert_int_equal(teffi_hello_unpack(bytes, n, &back), TEFF_OK);
    assert_memory_equal(&g, &back, sizeof g);
    for (size_t cut = 0; cut < n; cut++)
        if (teffi_hello_unpack(bytes, cut, &back) == TEFF_OK)
            assert_int_equal(back.sequence, 0); /* only whole fields may be missing */
    bytes[1] ^= 1;                              /* the magic */
    assert_int_equal(teffi_hello_unpack(bytes, n, &back), TEFF_E_MALFORMED);
}

/* Of a dialler, which has heard no nonce yet: nothing is sent. */
static void an_echo_comes_back_too(void **state)
{
    uint8_t bytes[TEFFI_HELLO_MAX];
    teffi_greeting g = {.hello = silo()}, back;
    size_t without = teffi_hello_pack(&g, bytes);
    g.echo[TEFFI_NONCE_BYTES - 1] = 1;
    size_t n = teffi_hello_pack(&g, bytes);
    assert_int_equal(n, without + 2 + TEFFI_NONCE_BYTES);
    memset(&back, 0xff, sizeof back);
    assert_int_equal(teffi_hello_unpack(bytes, n, &back), TEFF_OK);
    assert_memory_equal(&g, &back, sizeof g);
}

static void the_secrets_fields_come_back(void **state)
{
    uint8_t bytes[TEFFI_HELLO_MAX];
    teffi_greeting g = {.hello = silo(), .secret = true}, back;
    size_t without = teffi_hello_pack(&g, bytes);
    g.proof[TEFFI_PROOF_BYTES - 1] = 1;
    size_t n = teffi_hello_pack(&g, bytes);
    assert_int_equal(n, without + 2 + TEFFI_PROOF_BYTES);
    memset(&back, 0xff, sizeof back);
    assert_int_equal(teffi_hello_unpack(bytes, n, &back), TEFF_OK);
    assert_memory_equal(&g, &back, sizeof g);
}

static void certificates_and_signatures_come_back(void **state)
{
    static teffi_greeting g, back;
    uint8_t bytes[TEFFI_HELLO_MAX];
    g.hello = silo();
    memset(g.hello.cluster, 'c', TEFFI_CLUSTER_MAX);
    memset(g.hello.address, 'a', TEFFI_ADDRESS_MAX);
    memset(g.nonce, 1, sizeof g.nonce);
    memset(g.echo, 2, sizeof g.echo);
    memset(g.proof, 3, sizeof g.proof);
    g.sequence = UINT64_MAX;
    g.hello.version_min = g.hello.version_max = UINT32_MAX;
    g.hello.node.incarnation = UINT32_MAX;
    g.secret = true;
    g.certificate.len = TEFFI_CERTIFICATE_MAX;
    memset(g.certificate.bytes, 4, TEFFI_CERTIFICATE_MAX);
    g.signature.len = TEFFI_SIGNATURE_MAX;
    memset(g.signature.bytes, 5, TEFFI_SIGNATURE_MAX);
    size_t n = teffi_hello_pack(&g, bytes);
    assert_true(n <= TEFFI_HELLO_MAX - TEFFI_FRAME_HEAD); /* the longest one there is */
    assert_int_equal(teffi_hello_unpack(bytes, n, &back), TEFF_OK);
    assert_memory_equal(&g, &back, sizeof g);
    teffi_ack ack = {.echo = {1}, .proof = {2}, .signature = g.signature}, ack_back;
    n = teffi_ack_pack(&ack, bytes);
    assert_true(n <= TEFFI_ACK_MAX);
    assert_int_equal(teffi_ack_unpack(bytes, n, &ack_back), TEFF_OK);
    assert_memory_equal(&ack, &ack_back, sizeof ack);
}

/* A field that comes twice: the later one counts. */
static teff_err with_field(unsigned field, size_t len)
{
    uint8_t bytes[TEFFI_HELLO_MAX];
    teffi_greeting g = {.hello = silo()}, back;
    size_t n = teffi_hello_pack(&g, bytes);
    bytes[n++] = (uint8_t)(field << 3 | 2);
    bytes[n++] = (uint8_t)(len | 0x80);
    bytes[n++] = (uint8_t)(len >> 7);
    memset(bytes + n, 'x', len);
    return teffi_hello_unpack(bytes, n + len, &back);
}

static void texts_and_nonces_of_other_lengths_are_malformed(void **state)
{
    enum {
        CLUSTER = 4,
        ADDRESS = 8,
        NONCE = 9,
        ECHO = 10,
        PROOF = 13,
        CERTIFICATE = 14,
        SIGNATURE = 15
    };
    assert_int_equal(with_field(CLUSTER, TEFFI_CLUSTER_MAX), TEFF_OK);
    assert_int_equal(with_field(CLUSTER, TEFFI_CLUSTER_MAX + 1), TEFF_E_MALFORMED);
    assert_int_equal(with_field(ADDRESS, TEFFI_ADDRESS_MAX), TEFF_OK);
    assert_int_equal(with_field(ADDRESS, TEFFI_ADDRESS_MAX + 1), TEFF_E_MALFORMED);
    for (unsigned field = NONCE; field <= ECHO; field++) {
        assert_int_equal(with_field(field, TEFFI_NONCE_BYTES), TEFF_OK);
        assert_int_equal(with_field(field, TEFFI_NONCE_BYTES - 1), TEFF_E_MALFORMED);
        assert_int_equal(with_field(field, TEFFI_NONCE_BYTES + 1), TEFF_E_MALFORMED);
    }
    assert_int_equal(with_field(PROOF, TEFFI_PROOF_BYTES), TEFF_OK);
    assert_int_equal(with_field(PROOF, TEFFI_PROOF_BYTES - 1), TEFF_E_MALFORMED);
    assert_int_equal(with_field(PROOF, TEFFI_PROOF_BYTES + 1), TEFF_E_MALFORMED);
    assert_int_equal(with_field(CERTIFICATE, TEFFI_CERTIFICATE_MAX), TEFF_OK);
    assert_int_equal(with_field(CERTIFICATE, TEFFI_CERTIFICATE_MAX + 1), TEFF_E_MALFORMED);
    assert_int_equal(with_field(SIGNATURE, TEFFI_SIGNATURE_MAX), TEFF_OK);
    assert_int_equal(with_field(SIGNATURE, TEFFI_SIGNATURE_MAX + 1), TEFF_E_MALFORMED);
}

/* Of a refusal with a text of len bytes, 128 or more. */
static teff_err refusal_verdict(size_t len)
{
    uint8_t bytes[2 * TEFF_TEXT_MAX] = {1 << 3, TEFF_E_REFUSED, 2 << 3 | 2};
    char text[TEFF_TEXT_MAX];
    bytes[3] = (uint8_t)(len | 0x80);
    bytes[4] = (uint8_t)(len >> 7);
    memset(bytes + 5, 'x', len);
    return teffi_refusal_unpack(bytes, 5 + len, text);
}

static void refusals_and_acks_come_back(void **state)
{
    static const uint8_t no_code[] = {1 << 3, 0}, max_code[] = {1 << 3, 0xff, 0xff, 3},
                         large_code[] = {1 << 3, 0x80, 0x80, 4}; /* TEFF_E_MAX + 1 */
    uint8_t bytes[TEFFI_HELLO_MAX];
    teffi_ack ack = {.echo = {1, 2, 3}}, back;
    char text[TEFF_TEXT_MAX], longer[2 * TEFF_TEXT_MAX];
    memset(text, 'z', sizeof text);
    size_t n = teffi_refusal_pack("because", bytes);
    assert_int_equal(bytes[0], 1 << 3); /* field 1, a varint: the code */
    assert_int_equal(bytes[1], TEFF_E_REFUSED);
    assert_int_equal(teffi_refusal_unpack(bytes, n, text), TEFF_OK);
    assert_string_equal(text, "because");
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    n = teffi_refusal_pack(longer, bytes);
    assert_int_equal(teffi_refusal_unpack(bytes, n, text), TEFF_OK);
    assert_int_equal(strlen(text), TEFF_TEXT_MAX - 1);
    assert_int_equal(teffi_refusal_unpack(bytes, 0, text), TEFF_E_MALFORMED);
    assert_int_equal(teffi_refusal_unpack(no_code, sizeof no_code, text), TEFF_E_MALFORMED);
    assert_int_equal(teffi_refusal_unpack(max_code, sizeof max_code, text), TEFF_OK);
    assert_int_equal(teffi_refusal_unpack(large_code, sizeof large_code, text), TEFF_E_MALFORMED);
    assert_int_equal(refusal_verdict(TEFF_TEXT_MAX - 1), TEFF_OK);
    assert_int_equal(refusal_verdict(TEFF_TEXT_MAX), TEFF_E_MALFORMED);
    for (uint8_t proof = 0; proof < 2; proof++) {
        memset(&back, 0xff, sizeof back);
        ack.proof[TEFFI_PROOF_BYTES - 1] = proof;
        n = teffi_ack_pack(&ack, bytes);
        assert_true(n <= TEFFI_ACK_MAX);
        assert_int_equal(teffi_ack_unpack(bytes, n, &back), TEFF_OK);
        assert_memory_equal(&ack, &back, sizeof ack);
        assert_int_equal(teffi_ack_unpack(bytes, n - 1, &back), TEFF_E_MALFORMED);
        assert_int_equal(teffi_ack_unpack(bytes, 0, &back), TEFF_E_MALFORMED);
    }
}

typedef struct row {
    const char *what;
    teffi_node_id node;
    uint32_t role, version_min, version_max;
    const char *cluster, *address;
    teffi_mismatch why;
} row;

static const row rows[] = {
    {"a silo", {8, 1}, 1, 2, 4, "prod", "h:2", TEFFI_MATCHES},
    {"an older silo", {8, 1}, 1, 1, 3, "prod", "h:2", TEFFI_MATCHES},
    {"the oldest that fits", {8, 1}, 1, 1, 2, "prod", "h:2", TEFFI_MATCHES},
    {"a newer silo", {8, 1}, 1, 4, 9, "prod", "h:2", TEFFI_MATCHES},
    {"too old", {8, 1}, 1, 1, 1, "prod", "h:2", TEFFI_MISMATCH_VERSION},
    {"from the future", {8, 1}, 1, 5, 9, "prod", "h:2", TEFFI_MISMATCH_VERSION},
    {"a range that is none", {8, 1}, 1, 4, 2, "prod", "h:2", TEFFI_MISMATCH_VERSION},
    {"another cluster", {8, 1}, 1, 2, 4, "test", "h:2", TEFFI_MISMATCH_CLUSTER},
    {"no cluster", {8, 1}, 1, 2, 4, "", "h:2", TEFFI_MISMATCH_CLUSTER},
    {"a longer name", {8, 1}, 1, 2, 4, "prod2", "h:2", TEFFI_MISMATCH_CLUSTER},
    {"this very silo", {7, 1}, 1, 2, 4, "prod", "h:2", TEFFI_MISMATCH_IDENTITY},
    {"this silo's next start", {7, 2}, 1, 2, 4, "prod", "h:2", TEFFI_MATCHES},
    {"a silo with the bit of clients",
     {0x80000008, 1},
     1,
     2,
     4,
     "prod",
     "h:2",
     TEFFI_MISMATCH_IDENTITY},
    {"silo 0", {0, 1}, 1, 2, 4, "prod", "h:2", TEFFI_MISMATCH_IDENTITY},
    {"a silo without address", {8, 1}, 1, 2, 4, "prod", "", TEFFI_MISMATCH_IDENTITY},
    {"a client", {0x80000008, 1}, 2, 2, 4, "prod", "", TEFFI_MATCHES},
    {"a client without its bit", {8, 1}, 2, 2, 4, "prod", "", TEFFI_MISMATCH_IDENTITY},
    {"no role", {8, 1}, 0, 2, 4, "prod", "h:2", TEFFI_MISMATCH_IDENTITY},
    {"role 3", {8, 1}, 3, 2, 4, "prod", "h:2", TEFFI_MISMATCH_IDENTITY},
};

static void each_row_has_its_verdict(void **state)
{
    teffi_hello self = silo();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const row *r = &rows[i];
        teffi_hello peer = {.node = r->node,
                            .role = r->role,
                            .version_min = r->version_min,
                            .version_max = r->version_max};
        char text[TEFF_TEXT_MAX] = "";
        snprintf(peer.cluster, sizeof peer.cluster, "%s", r->cluster);
        snprintf(peer.address, sizeof peer.address, "%s", r->address);
        teffi_mismatch why = teffi_hello_check(&self, &peer, text);
        if (why != r->why || (why != TEFFI_MATCHES && text[0] == '\0'))
            fail_msg("%s: %d, '%s'", r->what, why, text);
    }
}

static void clients_do_not_talk_to_clients(void **state)
{
    teffi_hello self = silo(), peer = silo();
    char text[TEFF_TEXT_MAX];
    self.role = peer.role = TEFFI_ROLE_CLIENT;
    self.node.silo = 1 | TEFFI_CLIENT_BIT;
    peer.node.silo = 2 | TEFFI_CLIENT_BIT;
    assert_int_equal(teffi_hello_check(&self, &peer, text), TEFFI_MISMATCH_IDENTITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_greeting_comes_back),
        cmocka_unit_test(an_echo_comes_back_too),
        cmocka_unit_test(the_secrets_fields_come_back),
        cmocka_unit_test(certificates_and_signatures_come_back),
        cmocka_unit_test(texts_and_nonces_of_other_lengths_are_malformed),
        cmocka_unit_test(refusals_and_acks_come_back),
        cmocka_unit_test(each_row_has_its_verdict),
        cmocka_unit_test(clients_do_not_talk_to_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
