/* test_secrets.c - links with shared secrets: who is refused, what both sides read of it, and what
 * somebody who has heard a handshake cannot do with it. */
#include "net_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "link/link.h"
#include "raw_peer.h"

enum { NONE, SILOS, CLIENTS, OTHER, FILES };

static const char *const words[FILES] = {"", "canary of the silos", "canary of the clients",
                                         "canary of somebody else"};
static char folder[] = P_tmpdir "/teff-secrets-XXXXXX";
static char paths[FILES][64];

static void write_secret(int which)
{
    snprintf(paths[which], sizeof paths[which], "%s/%d", folder, which);
    FILE *file = fopen(paths[which], "w");
    assert_non_null(file);
    fprintf(file, "%s\n", words[which]);
    fclose(file);
    assert_int_equal(chmod(paths[which], 0600), 0);
}

static int make_secrets(void **state)
{
    if (!mkdtemp(folder))
        return -1;
    for (int i = SILOS; i < FILES; i++)
        write_secret(i);
    return 0;
}

static int remove_secrets(void **state)
{
    for (int i = SILOS; i < FILES; i++)
        remove(paths[i]);
    return remove(folder);
}

static const char *path_of(int which)
{
    return which ? paths[which] : NULL;
}

static test_node *start_node(uint32_t role, int secret, int client_secret)
{
    return test_node_start((test_options){
        .role = role, .secret = path_of(secret), .client_secret = path_of(client_secret)});
}

static test_dialled dial(test_node *from, const char *address)
{
    test_dialled d = {0};
    from->net->ops->dial(from->net, address, test_note_dialled, &d);
    test_wait(from, d.done);
    return d;
}

static void has_no_canary(test_node *node, const char *text)
{
    assert_null(strstr(text, "canary"));
    assert_false(test_logged(node, "canary", ""));
}

/* ---- who connects ---- */

typedef struct row {
    int silo, for_clients; /* the acceptor's secrets */
    uint32_t role;         /* of the dialler */
    int dialler;           /* its secret */
    const char *why;       /* both sides read why they do not connect; NULL: they do */
} row;

static const char differ[] = "the secrets of the two sides differ";
static const char none_dialler[] = "a secret is expected (secret_file), the dialler has none";
static const char none_here[] = "the silo that it dialled has none";

static const row rows[] = {
    {NONE, NONE, TEFFI_ROLE_SILO, NONE, NULL},
    {SILOS, NONE, TEFFI_ROLE_SILO, SILOS, NULL},
    {SILOS, NONE, TEFFI_ROLE_CLIENT, SILOS, NULL},
    {SILOS, CLIENTS, TEFFI_ROLE_SILO, SILOS, NULL},
    {SILOS, CLIENTS, TEFFI_ROLE_CLIENT, CLIENTS, NULL},
    {SILOS, NONE, TEFFI_ROLE_SILO, OTHER, differ},
    {SILOS, NONE, TEFFI_ROLE_CLIENT, OTHER, differ},
    {SILOS, CLIENTS, TEFFI_ROLE_SILO, CLIENTS, differ}, /* a client is no silo */
    {SILOS, CLIENTS, TEFFI_ROLE_CLIENT, SILOS, differ},
    {SILOS, CLIENTS, TEFFI_ROLE_CLIENT, OTHER, differ},
    {SILOS, NONE, TEFFI_ROLE_SILO, NONE, none_dialler},
    {SILOS, NONE, TEFFI_ROLE_CLIENT, NONE, none_dialler},
    {SILOS, CLIENTS, TEFFI_ROLE_CLIENT, NONE, none_dialler},
    {NONE, NONE, TEFFI_ROLE_SILO, SILOS, none_here},
    {NONE, NONE, TEFFI_ROLE_CLIENT, SILOS, none_here},
};

static void connect_nodes(const row *r)
{
    test_node *silo = start_node(TEFFI_ROLE_SILO, r->silo, r->for_clients);
    test_node *dialler = start_node(r->role, r->dialler, NONE);
    test_dialled d = dial(dialler, silo->address);
    assert_int_equal(d.err, r->why ? TEFF_E_REFUSED : TEFF_OK);
    if (!r->why) {
        test_wait(silo, silo->ups == 1);
        test_send(dialler, silo, 1, 10);
        test_wait(silo, silo->messages == 1);
    } else {
        assert_non_null(strstr(d.text, r->why));
        test_wait(silo, test_logged(silo, "refuse", r->why));
        test_wait(silo, test_counters(silo->net).refused_secret == 1);
        test_wait(silo, silo->gone == silo->asked);
        assert_int_equal(silo->ups + dialler->ups, 0);
    }
    has_no_canary(silo, d.text);
    has_no_canary(dialler, d.text);
    test_node_stop(dialler);
    test_node_stop(silo);
}

static void both_sides_must_know_the_secret(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        connect_nodes(&rows[i]);
}

/* Messages for it come back unsent; later dials are refused, too. */
static void what_was_for_a_refused_silo_comes_back(void **state)
{
    test_node *silo = start_node(TEFFI_ROLE_SILO, SILOS, NONE);
    test_node *dialler =
        test_node_start((test_options){.secret = path_of(OTHER), .heartbeat_ms = 20});
    test_know(dialler, silo);
    test_send(dialler, silo, 1, 10);
    test_wait(dialler, dialler->unsent == 1);
    test_wait(silo, test_counters(silo->net).refused_secret >= 3);
    assert_int_equal(silo->messages + silo->ups + dialler->ups, 0);
    test_node_stop(dialler);
    test_node_stop(silo);
}

/* ---- no memory for a proof ---- */

static _Atomic int proofs_left; /* calls that make a digest or a proof, until the one that fails */

bool __real_teffi_proof_digest_hello(const teffi_greeting *greeting, uint8_t *digest);
bool __wrap_teffi_proof_digest_hello(const teffi_greeting *greeting, uint8_t *digest);
bool __real_teffi_proof_make(const teffi_secret *secret, teffi_prover prover,
                             const uint8_t *dialler, const uint8_t *acceptor, uint8_t *proof);
bool __wrap_teffi_proof_make(const teffi_secret *secret, teffi_prover prover,
                             const uint8_t *dialler, const uint8_t *acceptor, uint8_t *proof);

bool __wrap_teffi_proof_digest_hello(const teffi_greeting *greeting, uint8_t *digest)
{
    return proofs_left-- != 1 && __real_teffi_proof_digest_hello(greeting, digest);
}

bool __wrap_teffi_proof_make(const teffi_secret *secret, teffi_prover prover,
                             const uint8_t *dialler, const uint8_t *acceptor, uint8_t *proof)
{
    return proofs_left-- != 1 && __real_teffi_proof_make(secret, prover, dialler, acceptor, proof);
}

/* Both have the same secret. The n-th digest or proof of their handshake cannot be made. */
static void without_memory_no_side_says_that_the_secrets_differ(void **state)
{
    enum { OF_HANDSHAKE = 8, FIRST_OF_ACCEPTOR = 2, LAST_OF_ACCEPTOR = 5 };
    for (int n = 1; n <= OF_HANDSHAKE + 1; n++) {
        test_node *silo = start_node(TEFFI_ROLE_SILO, SILOS, NONE);
        test_node *dialler = start_node(TEFFI_ROLE_SILO, SILOS, NONE);
        bool by_acceptor = n >= FIRST_OF_ACCEPTOR && n <= LAST_OF_ACCEPTOR;
        proofs_left = n;
        test_dialled d = dial(dialler, silo->address);
        if (n <= OF_HANDSHAKE) {
            assert_int_equal(d.err, TEFF_E_REFUSED);
            assert_string_equal(d.text, "out of memory");
            assert_int_equal(test_counters(silo->net).crowded, by_acceptor);
            assert_int_equal(test_counters(dialler->net).crowded, !by_acceptor);
        } else {
            assert_int_equal(d.err, TEFF_OK);
        }
        proofs_left = 0;
        test_node_stop(dialler);
        assert_int_equal(test_counters(silo->net).refused_secret, 0);
        test_node_stop(silo);
    }
}

/* ---- files ---- */

static void link_fails(const char *secret, const char *client_secret, const char *says)
{
    static const teffi_net_events none;
    char text[TEFF_TEXT_MAX] = "";
    teffi_platform platform;
    teffi_net *net;
    teffi_net_options opt = {
        .events = &none, .secret_file = secret, .client_secret_file = client_secret};
    teffi_platform_init_real(&platform, TEFF_LOG_ERROR);
    assert_int_equal(teffi_net_link_new(&platform, &opt, &net, text), TEFF_E_INVALID);
    assert_null(net);
    assert_null(strstr(text, "canary"));
    if (!strstr(text, says))
        fail_msg("'%s' does not say '%s'", text, says);
}

static void a_bad_file_makes_no_link(void **state)
{
    link_fails("/nowhere/silos", NULL, "/nowhere/silos");
    link_fails(paths[SILOS], "/nowhere/clients", "/nowhere/clients");
    link_fails(paths[SILOS], paths[SILOS], "the same secret");
    assert_int_equal(chmod(paths[OTHER], 0644), 0);
    link_fails(paths[OTHER], NULL, "chmod 600");
    assert_int_equal(chmod(paths[OTHER], 0600), 0);
}

/* ---- hostile peers ---- */

/* What a peer that knows the secret sends as its ack. */
static size_t true_ack(int which, const teffi_greeting *hello, const teffi_greeting *answer,
                       uint8_t *payload)
{
    teffi_secret *secret;
    teffi_ack ack = {.signature.len = 0};
    uint8_t ours[TEFFI_PROOF_BYTES], theirs[TEFFI_PROOF_BYTES];
    assert_int_equal(teffi_secret_read(paths[which], TEFFI_SECRET_MIN, &secret, NULL), TEFF_OK);
    assert_true(teffi_proof_digest_hello(hello, ours) && teffi_proof_digest_hello(answer, theirs));
    assert_true(teffi_proof_make(secret, TEFFI_PROVER_DIALLER, ours, theirs, ack.proof));
    memcpy(ack.echo, answer->nonce, sizeof ack.echo);
    teffi_secret_free(secret);
    return teffi_ack_pack(&ack, payload);
}

static raw_peer *greet(const test_node *silo, const teffi_greeting *hello, teffi_greeting *answer)
{
    raw_peer *raw = raw_connect(silo->address);
    assert_true(raw_send_greeting(raw, hello) && raw_read_hello(raw, answer));
    return raw;
}

static teffi_greeting hello_of(uint32_t silo, uint64_t sequence)
{
    teffi_greeting g = raw_greeting(silo, 1, sequence);
    g.secret = true;
    return g;
}

static void is_refused(raw_peer *raw, const char *why)
{
    assert_int_equal(raw_read(raw), TEFFI_FRAME_REFUSE);
    assert_true(raw_refused(raw, why));
    assert_true(raw_ended(raw));
    raw_close(raw);
}

/* The ack of a handshake that was recorded, on a connection with the same hello. */
static void a_recorded_proof_is_refused(void **state)
{
    uint8_t payload[TEFFI_ACK_MAX];
    teffi_greeting hello = hello_of(900, 1), answer, answer_again;
    test_node *silo = start_node(TEFFI_ROLE_SILO, SILOS, NONE);
    raw_peer *raw = greet(silo, &hello, &answer);
    size_t n = true_ack(SILOS, &hello, &answer, payload);
    assert_true(raw_send_frame(raw, TEFFI_FRAME_ACK, payload, n));
    test_wait(silo, silo->ups == 1);
    raw_close(raw);
    test_wait(silo, silo->downs == 1);
    hello.sequence++;
    raw_peer *again = greet(silo, &hello, &answer_again);
    assert_memory_not_equal(answer.nonce, answer_again.nonce, sizeof answer.nonce);
    assert_memory_not_equal(answer.proof, answer_again.proof, sizeof answer.proof);
    teffi_ack ack;
    assert_int_equal(teffi_ack_unpack(payload, n, &ack), TEFF_OK);
    memcpy(ack.echo, answer_again.nonce, sizeof ack.echo); /* the echo is right, the proof old */
    assert_true(raw_send_frame(again, TEFFI_FRAME_ACK, payload, teffi_ack_pack(&ack, payload)));
    is_refused(again, differ);
    assert_int_equal(silo->ups, 1);
    test_node_stop(silo);
}

/* A proof of somebody else; the silo's own one, sent back to it; none. */
static void proofs_that_are_none_are_refused(void **state)
{
    enum { GUESSED, REFLECTED, ABSENT, KINDS };
    test_node *silo = start_node(TEFFI_ROLE_SILO, SILOS, NONE);
    for (int kind = 0; kind < KINDS; kind++) {
        uint8_t payload[TEFFI_ACK_MAX];
        teffi_ack ack;
        teffi_greeting hello = hello_of(910 + (uint32_t)kind, 1), answer;
        raw_peer *raw = greet(silo, &hello, &answer);
        size_t n = true_ack(OTHER, &hello, &answer, payload);
        assert_int_equal(teffi_ack_unpack(payload, n, &ack), TEFF_OK);
        if (kind == REFLECTED)
            memcpy(ack.proof, answer.proof, sizeof ack.proof);
        else if (kind == ABSENT)
            memset(ack.proof, 0, sizeof ack.proof);
        assert_true(raw_send_frame(raw, TEFFI_FRAME_ACK, payload, teffi_ack_pack(&ack, payload)));
        is_refused(raw, differ);
        test_wait(silo, test_counters(silo->net).refused_secret == (unsigned)kind + 1);
    }
    test_wait(silo, silo->gone == KINDS);
    assert_int_equal(silo->ups, 0);
    test_node_stop(silo);
}

/* A hello that says that it has a secret, so that a silo without one takes it for another: refused
 * as well. And one that says it has none. */
static void the_flag_alone_opens_nothing(void **state)
{
    test_node *with = start_node(TEFFI_ROLE_SILO, SILOS, NONE);
    test_node *without = start_node(TEFFI_ROLE_SILO, NONE, NONE);
    teffi_greeting hello = hello_of(920, 1);
    raw_peer *raw = raw_connect(without->address);
    assert_true(raw_send_greeting(raw, &hello));
    is_refused(raw, none_here);
    hello.secret = false;
    raw = raw_connect(with->address);
    assert_true(raw_send_greeting(raw, &hello));
    is_refused(raw, none_dialler);
    test_node_stop(without);
    test_node_stop(with);
}

/* The dialler's own challenge and flags come back from who does not know the secret: somebody at a
 * silo's address, and a silo of an older version, which has no such fields. */
static void who_listens_must_prove_it_too(void **state)
{
    enum { GUESSED, OLDER, KINDS };
    static const char *const why[KINDS] = {differ, none_here};
    for (int kind = 0; kind < KINDS; kind++) {
        char address[32];
        teffi_greeting hello, own = raw_greeting(930, 1, 0);
        raw_peer *listener = raw_listen(address);
        test_node *dialler = start_node(TEFFI_ROLE_SILO, SILOS, NONE);
        test_dialled d = {0};
        dialler->net->ops->dial(dialler->net, address, test_note_dialled, &d);
        raw_peer *raw = raw_take(listener);
        assert_true(raw_read_hello(raw, &hello));
        assert_true(hello.secret);
        memcpy(own.echo, hello.nonce, sizeof own.echo);
        own.secret = kind == GUESSED;
        memset(own.proof, kind == GUESSED ? 0x5a : 0, sizeof own.proof);
        assert_true(raw_send_greeting(raw, &own));
        is_refused(raw, why[kind]);
        test_wait(dialler, d.done);
        assert_int_equal(d.err, TEFF_E_REFUSED);
        assert_non_null(strstr(d.text, why[kind]));
        assert_int_equal(dialler->ups, 0);
        raw_close(listener);
        test_node_stop(dialler);
    }
}

/* Somebody in between who sends a silo's hello on to another silo gets a proof for that hello, but
 * cannot change the hello: here its address. */
static void a_changed_hello_has_another_proof(void **state)
{
    char address[32];
    teffi_greeting hello, answer;
    raw_peer *listener = raw_listen(address);
    test_node *dialler = start_node(TEFFI_ROLE_SILO, SILOS, NONE);
    test_node *silo = start_node(TEFFI_ROLE_SILO, SILOS, NONE);
    test_dialled d = {0};
    dialler->net->ops->dial(dialler->net, address, test_note_dialled, &d);
    raw_peer *in = raw_take(listener);
    assert_true(raw_read_hello(in, &hello));
    raw_peer *out = greet(silo, &hello, &answer);
    strcpy(answer.hello.address, "evil:1");
    assert_true(raw_send_greeting(in, &answer));
    is_refused(in, differ);
    test_wait(dialler, d.done);
    assert_int_equal(dialler->ups + silo->ups, 0);
    raw_close(out);
    raw_close(listener);
    test_node_stop(dialler);
    test_node_stop(silo);
}

/* A silo that waits for an ack is told why there is none; the reason is one line of its log. */
static void a_diallers_reason_is_logged(void **state)
{
    uint8_t payload[TEFFI_HELLO_MAX];
    teffi_greeting hello = hello_of(940, 1), answer;
    test_node *silo = start_node(TEFFI_ROLE_SILO, SILOS, NONE);
    raw_peer *raw = greet(silo, &hello, &answer);
    size_t n = teffi_refusal_pack("no\nlink: forged", payload);
    assert_true(raw_send_frame(raw, TEFFI_FRAME_REFUSE, payload, n));
    assert_true(raw_ended(raw));
    test_wait(silo, test_logged(silo, "it refuses this silo: no?link: forged", ""));
    raw_close(raw);
    raw = raw_connect(silo->address); /* a refusal instead of a hello */
    assert_true(raw_send_frame(raw, TEFFI_FRAME_REFUSE, payload, n));
    assert_true(raw_ended(raw));
    test_wait(silo, test_counters(silo->net).garbage == 1);
    raw_close(raw);
    test_node_stop(silo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_must_know_the_secret),
        cmocka_unit_test(what_was_for_a_refused_silo_comes_back),
        cmocka_unit_test(without_memory_no_side_says_that_the_secrets_differ),
        cmocka_unit_test(a_bad_file_makes_no_link),
        cmocka_unit_test(a_recorded_proof_is_refused),
        cmocka_unit_test(proofs_that_are_none_are_refused),
        cmocka_unit_test(the_flag_alone_opens_nothing),
        cmocka_unit_test(who_listens_must_prove_it_too),
        cmocka_unit_test(a_changed_hello_has_another_proof),
        cmocka_unit_test(a_diallers_reason_is_logged),
    };
    return cmocka_run_group_tests(tests, make_secrets, remove_secrets);
}
