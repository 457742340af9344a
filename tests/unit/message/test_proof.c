/* test_proof.c - proofs that one knows the secret: the same bytes on every silo, other bytes if
 * anything differs. The expected bytes were computed by Python's hmac and hashlib. */
#include "test.h"
#include <string.h>
#include "message/proof.h"

static const uint8_t by_dialler[TEFFI_PROOF_BYTES] = {
    0x5d, 0xc8, 0xc6, 0xfc, 0x69, 0x57, 0x9f, 0xd3, 0xf2, 0xd8, 0xeb, 0xa3, 0xdf, 0x48, 0x59, 0xe9,
    0x15, 0x9e, 0x73, 0x9e, 0xa4, 0x23, 0x5f, 0x93, 0xe7, 0x4e, 0x88, 0x27, 0xbc, 0xf5, 0xef, 0x33};
static const uint8_t by_acceptor[TEFFI_PROOF_BYTES] = {
    0x38, 0x53, 0x1b, 0x05, 0x59, 0x09, 0xc9, 0xdb, 0xde, 0x97, 0x39, 0xc5, 0x63, 0x01, 0xe1, 0xb4,
    0xac, 0xa7, 0xdb, 0x41, 0xaa, 0x34, 0x24, 0xf2, 0x06, 0xe9, 0x37, 0xfe, 0x96, 0x2a, 0x7e, 0x87};

typedef struct exchange {
    teffi_secret secret;
    teffi_prover prover;
    teffi_greeting dialler, acceptor;
} exchange;

static exchange usual_exchange(void)
{
    exchange e = {.secret = {16, "0123456789abcdef"}, .prover = TEFFI_PROVER_DIALLER};
    e.dialler.hello = (teffi_hello){.node = {7, 1},
                                    .role = TEFFI_ROLE_SILO,
                                    .version_min = 2,
                                    .version_max = 2,
                                    .cluster = "prod",
                                    .address = "host:1"};
    e.acceptor.hello = e.dialler.hello;
    e.acceptor.hello.node = (teffi_node_id){8, 3};
    strcpy(e.acceptor.hello.address, "host:2");
    e.dialler.sequence = 5;
    memset(e.dialler.nonce, 0x11, sizeof e.dialler.nonce);
    memset(e.acceptor.nonce, 0x22, sizeof e.acceptor.nonce);
    return e;
}

static void prove(const exchange *e, uint8_t proof[TEFFI_PROOF_BYTES])
{
    uint8_t dialler[TEFFI_PROOF_BYTES], acceptor[TEFFI_PROOF_BYTES];
    assert_true(teffi_proof_digest_hello(&e->dialler, dialler));
    assert_true(teffi_proof_digest_hello(&e->acceptor, acceptor));
    assert_true(teffi_proof_make(&e->secret, e->prover, dialler, acceptor, proof));
}

static void the_bytes_are_those_of_hmac_sha256(void **state)
{
    exchange e = usual_exchange();
    uint8_t proof[TEFFI_PROOF_BYTES];
    prove(&e, proof);
    assert_memory_equal(proof, by_dialler, sizeof proof);
    e.prover = TEFFI_PROVER_ACCEPTOR;
    prove(&e, proof);
    assert_memory_equal(proof, by_acceptor, sizeof proof);
}

/* What is sent beside the hello, and what it is answered by, is not part of it. */
static void echo_and_proof_do_not_count(void **state)
{
    exchange e = usual_exchange();
    uint8_t proof[TEFFI_PROOF_BYTES];
    memset(e.acceptor.echo, 1, sizeof e.acceptor.echo);
    memset(e.acceptor.proof, 1, sizeof e.acceptor.proof);
    e.acceptor.secret = true;
    prove(&e, proof);
    assert_memory_equal(proof, by_dialler, sizeof proof);
}

static void change_greeting(teffi_greeting *g, unsigned which)
{
    switch (which) {
    case 0:
        g->nonce[TEFFI_NONCE_BYTES - 1] ^= 0x80;
        break;
    case 1:
        g->hello.node.silo++;
        break;
    case 2:
        g->hello.node.incarnation++;
        break;
    case 3:
        g->hello.role = TEFFI_ROLE_CLIENT;
        break;
    case 4:
        g->hello.version_min--;
        break;
    case 5:
        g->hello.version_max++;
        break;
    case 6:
        g->sequence++;
        break;
    case 7:
        strcpy(g->hello.cluster, "prodh"); /* and one letter less in the address */
        memmove(g->hello.address, g->hello.address + 1, strlen(g->hello.address));
        break;
    default:
        g->hello.address[5] = '9';
    }
}

static void each_field_of_both_hellos_counts(void **state)
{
    enum { FIELDS = 9 };
    uint8_t proofs[2 * FIELDS + 1][TEFFI_PROOF_BYTES];
    exchange e = usual_exchange();
    prove(&e, proofs[2 * FIELDS]);
    for (unsigned i = 0; i < 2 * FIELDS; i++) {
        e = usual_exchange();
        change_greeting(i % 2 ? &e.acceptor : &e.dialler, i / 2);
        prove(&e, proofs[i]);
    }
    for (unsigned i = 0; i <= 2 * FIELDS; i++)
        for (unsigned k = 0; k < i; k++)
            if (teffi_proof_equal(proofs[i], proofs[k]))
                fail_msg("change %u and change %u have the same proof", i, k);
}

static void the_secret_counts_to_its_last_byte(void **state)
{
    uint8_t proof[TEFFI_PROOF_BYTES];
    exchange e = usual_exchange();
    e.secret.bytes[15] ^= 1;
    prove(&e, proof);
    assert_false(teffi_proof_equal(proof, by_dialler));
    e = usual_exchange();
    e.secret.len = TEFFI_SECRET_MAX;
    prove(&e, proof);
    e.secret.bytes[TEFFI_SECRET_MAX - 1] ^= 1;
    uint8_t other[TEFFI_PROOF_BYTES];
    prove(&e, other);
    assert_false(teffi_proof_equal(proof, other));
}

static void equal_looks_at_each_byte(void **state)
{
    assert_true(teffi_proof_equal(by_dialler, by_dialler));
    for (unsigned i = 0; i < TEFFI_PROOF_BYTES * 8; i++) {
        uint8_t other[TEFFI_PROOF_BYTES];
        memcpy(other, by_dialler, sizeof other);
        other[i / 8] ^= (uint8_t)(1u << i % 8);
        assert_false(teffi_proof_equal(by_dialler, other));
    }
}

/* The longest hello has room. */
static void the_longest_texts_are_digested(void **state)
{
    uint8_t digest[TEFFI_PROOF_BYTES], shorter[TEFFI_PROOF_BYTES];
    exchange e = usual_exchange();
    memset(e.dialler.hello.cluster, 'c', TEFFI_CLUSTER_MAX);
    memset(e.dialler.hello.address, 'a', TEFFI_ADDRESS_MAX);
    assert_true(teffi_proof_digest_hello(&e.dialler, digest));
    e.dialler.hello.address[TEFFI_ADDRESS_MAX - 1] = '\0';
    assert_true(teffi_proof_digest_hello(&e.dialler, shorter));
    assert_false(teffi_proof_equal(digest, shorter));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_are_those_of_hmac_sha256),
        cmocka_unit_test(echo_and_proof_do_not_count),
        cmocka_unit_test(each_field_of_both_hellos_counts),
        cmocka_unit_test(the_secret_counts_to_its_last_byte),
        cmocka_unit_test(equal_looks_at_each_byte),
        cmocka_unit_test(the_longest_texts_are_digested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
