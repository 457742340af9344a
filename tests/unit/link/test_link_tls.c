/* test_link_tls.c - links over TLS, with certificates made here by openssl. */
#include "net_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <teff/silo.h>
#include "certificates.h"
#include "link/link.h"

static bool have_openssl;

static const char *path(const char *name)
{
    return certificates_path(name);
}

static int make_all(void **state)
{
    if (!certificates_begin())
        return -1;
    have_openssl =
        certificates_make_ca("ca") && certificates_make("ca", "silo", NULL, 2, "") &&
        certificates_make("ca", "silo-2", NULL, 2, "") && certificates_make_ca("other-ca") &&
        certificates_make("other-ca", "other", NULL, 2, "") &&
        certificates_make("ca", "expired", NULL, -1, "") && certificates_make_ca("client-ca") &&
        certificates_make("client-ca", "client", NULL, 2, "") &&
        certificates_run("echo extendedKeyUsage=clientAuth > dials.ext") &&
        certificates_run("echo extendedKeyUsage=serverAuth,clientAuth > both.ext") &&
        certificates_make("ca", "dials", NULL, 2, "-extfile dials.ext") &&
        certificates_make("ca", "both", NULL, 2, "-extfile both.ext");
    return 0;
}

static int remove_all(void **state)
{
    return certificates_end();
}

static test_node *tls_node(const char *cert, const char *ca)
{
    return test_node_start((test_options){.cert = path(cert), .ca = path(ca)});
}

/* One that will be refused, and may only find that out by waiting. */
static test_node *bad_node(const char *cert, const char *ca)
{
    return test_node_start((test_options){
        .cert = cert ? path(cert) : NULL, .ca = ca ? path(ca) : NULL, .hello_timeout_ms = 3000});
}

static void tls_carries_messages(void **state)
{
    if (!have_openssl)
        skip();
    test_node *a = tls_node("silo.pem", "ca.pem"), *b = tls_node("silo.pem", "ca.pem");
    test_exchange(a, b, 20000);
    assert_int_equal(a->net->ops->shutdown(a->net, TEST_SHUTDOWN_MS), TEFF_OK);
    test_wait(b, b->downs == 1);
    assert_int_equal(b->downs_clean, 1);
    test_node_stop(a);
    test_node_stop(b);
}

static void tls_needs_its_files(void **state)
{
    test_node plain = {.id = {1, 1}};
    teffi_net_options opt = {.tls = {path("none.pem"), path("none.pem"), NULL}};
    static const teffi_net_events none;
    char text[TEFF_TEXT_MAX] = "";
    opt.events = &none;
    teffi_platform_init_real(&plain.platform, TEFF_LOG_ERROR);
    assert_int_equal(teffi_net_link_new(&plain.platform, &opt, &plain.net, text), TEFF_E_INVALID);
    assert_non_null(strstr(text, "none.pem"));
    opt.tls.authority = NULL;
    assert_int_equal(teffi_net_link_new(&plain.platform, &opt, &plain.net, text), TEFF_E_INVALID);
    opt.tls = (teffi_tls_files){.client_authority = path("none.pem")};
    assert_int_equal(teffi_net_link_new(&plain.platform, &opt, &plain.net, text), TEFF_E_INVALID);
    if (!have_openssl)
        return;
    opt.tls = (teffi_tls_files){path("silo.pem"), path("ca.pem"), path("no-clients.pem")};
    assert_int_equal(teffi_net_link_new(&plain.platform, &opt, &plain.net, text), TEFF_E_INVALID);
    assert_non_null(strstr(text, "no-clients.pem"));
}

/* A peer without a certificate of this authority is refused before its hello. */
static void a_wrong_certificate_is_refused(void **state)
{
    if (!have_openssl)
        skip();
    test_node *silo = tls_node("silo.pem", "ca.pem"), *good = tls_node("silo.pem", "ca.pem");
    test_exchange(good, silo, 100);
    test_node *other = bad_node("other.pem", "other-ca.pem");
    test_node *half = bad_node("other.pem", "ca.pem"); /* trusts the silo, is not trusted */
    test_node *plain = bad_node(NULL, NULL);
    test_node *bad[] = {other, half, plain};
    unsigned asked = silo->asked;
    for (size_t i = 0; i < 3; i++) {
        test_know(bad[i], silo);
        test_send(bad[i], silo, 1, 10); /* taken, and then given back */
        test_wait(bad[i], bad[i]->unsent >= 1);
        assert_int_equal(bad[i]->ups, 0);
        test_node_stop(bad[i]);
    }
    assert_int_equal(silo->asked, asked);
    assert_int_equal(silo->ups, 2);
    for (uint32_t i = 101; i <= 200; i++)
        test_send(good, silo, i, 40);
    test_wait(good, good->messages == 200);
    assert_int_equal(good->downs, 0);
    test_node_stop(good);
    test_node_stop(silo);
}

/* Two authorities and two addresses: whose certificate is enough where, whatever the hello says. */
static const struct door_row {
    const char *cert;
    uint32_t role;
    bool at_gateway, accepted;
} door_rows[] = {
    {"silo.pem", TEFFI_ROLE_SILO, false, true},      {"silo.pem", TEFFI_ROLE_CLIENT, true, false},
    {"client.pem", TEFFI_ROLE_CLIENT, true, true},   {"client.pem", TEFFI_ROLE_SILO, false, false},
    {"client.pem", TEFFI_ROLE_CLIENT, false, false}, {"client.pem", TEFFI_ROLE_SILO, true, false},
    {"other.pem", TEFFI_ROLE_CLIENT, true, false},   {"other.pem", TEFFI_ROLE_SILO, false, false},
};

static void note_dialled(void *arg, teff_err err, const teffi_hello *peer, const char *text)
{
    atomic_store((_Atomic int *)arg, err == TEFF_OK ? 1 : -1);
}

static void connect_at_door(const struct door_row *row)
{
    _Atomic int result = 0;
    test_node *silo = test_node_start((test_options){.cert = path("silo.pem"),
                                                     .ca = path("ca.pem"),
                                                     .client_ca = path("client-ca.pem"),
                                                     .gateway = "127.0.0.1:0",
                                                     .hello_timeout_ms = 3000});
    test_node *peer = test_node_start((test_options){.cert = path(row->cert),
                                                     .ca = path("ca.pem"),
                                                     .role = row->role,
                                                     .hello_timeout_ms = 3000});
    peer->net->ops->dial(peer->net, row->at_gateway ? silo->gateway : silo->address, note_dialled,
                         &result);
    test_wait(peer, result);
    if ((result == 1) != row->accepted)
        fail_msg("%s as %u at the %s", row->cert, row->role, row->at_gateway ? "gateway" : "silo");
    if (row->accepted)
        test_wait(silo, silo->ups == 1);
    assert_int_equal(silo->asked, row->accepted);
    test_node_stop(peer);
    test_node_stop(silo);
}

static void a_certificate_opens_one_door(void **state)
{
    if (!have_openssl)
        skip();
    for (size_t i = 0; i < sizeof door_rows / sizeof door_rows[0]; i++)
        connect_at_door(&door_rows[i]);
}

/* A client trusts the silos' authority only: another client cannot pass for a gateway. */
static void a_client_is_no_gateway(void **state)
{
    if (!have_openssl)
        skip();
    _Atomic int result = 0;
    test_node *posing = bad_node("client.pem", "client-ca.pem");
    test_node *client = test_node_start((test_options){.cert = path("client.pem"),
                                                       .ca = path("ca.pem"),
                                                       .role = TEFFI_ROLE_CLIENT,
                                                       .hello_timeout_ms = 3000});
    client->net->ops->dial(client->net, posing->address, note_dialled, &result);
    test_wait(client, result);
    assert_int_equal(result, -1);
    assert_int_equal(posing->asked, 0);
    test_node_stop(client);
    test_node_stop(posing);
}

typedef struct refusal {
    const char *cert, *ca;           /* the dialler's */
    const char *silo_cert, *silo_ca; /* the silo's */
    const char *at_silo, *at_dialler;
} refusal;

static const refusal refusals[] = {
    {"other.pem", "ca.pem", "silo.pem", "ca.pem", "certificate", "TLS"},
    {"expired.pem", "ca.pem", "silo.pem", "ca.pem", "certificate", "TLS"},
    {"silo.pem", "other-ca.pem", "silo.pem", "ca.pem", NULL, "certificate"},
    {"silo.pem", "ca.pem", "expired.pem", "ca.pem", NULL, "certificate"},
    {NULL, NULL, "silo.pem", "ca.pem", "TLS", "TLS"},
    {"silo.pem", "ca.pem", NULL, NULL, "the peer speaks TLS", "TLS"},
};

/* What both sides' operators read of a handshake that failed: who, and what to look at. */
static void refuse_tls(const refusal *r)
{
    test_node *silo = bad_node(r->silo_cert, r->silo_ca), *dialler = bad_node(r->cert, r->ca);
    test_know(dialler, silo);
    test_send(dialler, silo, 1, 10);
    test_wait(dialler, dialler->unsent >= 1);
    test_wait(dialler, test_logged(dialler, silo->address, r->at_dialler));
    if (r->at_silo)
        test_wait(silo, test_logged(silo, "link: 127.0.0.1:", r->at_silo));
    assert_int_equal(silo->ups + dialler->ups, 0);
    test_node_stop(dialler);
    test_node_stop(silo);
}

static void a_failed_tls_handshake_is_logged(void **state)
{
    if (!have_openssl)
        skip();
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        refuse_tls(&refusals[i]);
}

/* ---- whose certificate ---- */

static const link_identity *liar, *victim; /* the one shows the other's certificate; NULL: none */

void __wrap_teffi_identity_add_certificate(const link_identity *identity, teffi_greeting *own);
void __real_teffi_identity_add_certificate(const link_identity *identity, teffi_greeting *own);

void __wrap_teffi_identity_add_certificate(const link_identity *identity, teffi_greeting *own)
{
    const link_identity *shown = liar && identity == liar ? victim : identity;
    if (shown)
        __real_teffi_identity_add_certificate(shown, own);
}

static const link_identity *identity_of(test_node *node)
{
    return ((teffi_link *)node->net)->identity;
}

static void both_sides_learn_the_key(void **state)
{
    if (!have_openssl)
        skip();
    test_node *a = tls_node("silo.pem", "ca.pem"), *b = tls_node("silo-2.pem", "ca.pem");
    test_exchange(a, b, 100);
    teffi_hello at_a = test_last_peer(a), at_b = test_last_peer(b);
    assert_memory_equal(at_b.key, a->net->ops->key(a->net), TEFFI_KEY_BYTES);
    assert_memory_equal(at_a.key, b->net->ops->key(b->net), TEFFI_KEY_BYTES);
    assert_memory_not_equal(at_a.key, at_b.key, TEFFI_KEY_BYTES);
    test_node_stop(a);
    test_node_stop(b);
}

/* Whoever only knows a certificate, which is no secret, is neither a dialler nor an acceptor. */
static void the_certificate_of_another_one_is_refused(void **state)
{
    if (!have_openssl)
        skip();
    for (int dials = 0; dials < 2; dials++) {
        test_node *silo = bad_node("silo.pem", "ca.pem"), *other = bad_node("silo-2.pem", "ca.pem");
        test_node *dialler = dials ? other : silo, *acceptor = dials ? silo : other;
        victim = identity_of(silo);
        liar = identity_of(other);
        test_know(dialler, acceptor);
        test_send(dialler, acceptor, 1, 10);
        test_wait(silo, test_logged(silo, "has not proved that it owns the key", "refused"));
        assert_int_equal(silo->ups, 0);
        test_wait(dialler, dialler->unsent + dialler->downs >= 1);
        test_node_stop(other);
        test_node_stop(silo);
        liar = NULL;
    }
}

static test_node *client_node(const char *cert, uint32_t silo)
{
    return test_node_start((test_options){.cert = path(cert),
                                          .ca = path("ca.pem"),
                                          .role = TEFFI_ROLE_CLIENT,
                                          .silo = silo,
                                          .hello_timeout_ms = 3000});
}

/* One authority and one address for silos and clients: the certificate says who may be a silo. */
static const struct role_row {
    const char *cert;
    uint32_t role;
    bool hides;         /* it shows no certificate in its hello */
    const char *reason; /* NULL: it is accepted */
} role_rows[] = {
    {"dials.pem", TEFFI_ROLE_CLIENT, false, NULL},
    {"dials.pem", TEFFI_ROLE_SILO, false, "for clients only"},
    {"dials.pem", TEFFI_ROLE_SILO, true, "shows no certificate"},
    {"both.pem", TEFFI_ROLE_CLIENT, false, NULL},
    {"both.pem", TEFFI_ROLE_SILO, false, NULL},
    {"both.pem", TEFFI_ROLE_SILO, true, "shows no certificate"},
    {"silo.pem", TEFFI_ROLE_SILO, false, NULL},
};

static void connect_in_role(const struct role_row *row)
{
    _Atomic int result = 0;
    test_node *silo = tls_node("both.pem", "ca.pem");
    test_node *peer = test_node_start((test_options){.cert = path(row->cert),
                                                     .ca = path("ca.pem"),
                                                     .role = row->role,
                                                     .hello_timeout_ms = 3000});
    liar = row->hides ? identity_of(peer) : NULL;
    victim = NULL;
    peer->net->ops->dial(peer->net, silo->address, note_dialled, &result);
    test_wait(peer, result);
    if ((result == 1) != !row->reason)
        fail_msg("%s as %u, hidden %d", row->cert, row->role, row->hides);
    if (row->reason)
        test_wait(silo, test_logged(silo, row->reason, "refused"));
    else
        test_wait(silo, silo->ups == 1);
    assert_int_equal(silo->asked, !row->reason);
    test_node_stop(peer);
    test_node_stop(silo);
    liar = NULL;
}

static void a_certificate_for_clients_is_no_silo(void **state)
{
    if (!have_openssl)
        skip();
    for (size_t i = 0; i < sizeof role_rows / sizeof role_rows[0]; i++)
        connect_in_role(&role_rows[i]);
}

/* Nor can it be dialled as a silo: TLS itself looks at what the certificate is for. */
static void a_certificate_for_clients_cannot_be_dialled(void **state)
{
    if (!have_openssl)
        skip();
    _Atomic int result = 0;
    test_node *posing = bad_node("dials.pem", "ca.pem"), *silo = bad_node("both.pem", "ca.pem");
    silo->net->ops->dial(silo->net, posing->address, note_dialled, &result);
    test_wait(silo, result);
    assert_int_equal(result, -1);
    assert_int_equal(posing->asked, 0);
    test_node_stop(silo);
    test_node_stop(posing);
}

/* An acceptor need not show its certificate in its hello: TLS knows that it may be a server. */
static void an_acceptor_may_hide_its_certificate(void **state)
{
    if (!have_openssl)
        skip();
    _Atomic int result = 0;
    test_node *hides = tls_node("both.pem", "ca.pem"), *silo = tls_node("silo.pem", "ca.pem");
    liar = identity_of(hides);
    victim = NULL;
    silo->net->ops->dial(silo->net, hides->address, note_dialled, &result);
    test_wait(silo, result);
    assert_int_equal(result, 1);
    test_node_stop(silo);
    test_node_stop(hides);
    liar = NULL;
}

/* A client's id is no secret to the silos and grains that it talks to. */
static void another_certificate_does_not_take_a_connection_over(void **state)
{
    if (!have_openssl)
        skip();
    _Atomic int first = 0, second = 0;
    test_node *silo = tls_node("silo.pem", "ca.pem");
    test_node *client = client_node("silo.pem", 77), *thief = client_node("silo-2.pem", 77);
    client->net->ops->dial(client->net, silo->address, note_dialled, &first);
    test_wait(client, first == 1);
    test_wait(silo, silo->ups == 1);
    atomic_fetch_add(&((teffi_link *)thief->net)->sequence, 10);
    thief->net->ops->dial(thief->net, silo->address, note_dialled, &second);
    test_wait(thief, second);
    assert_int_equal(second, -1);
    test_wait(silo, test_logged(silo, "has shown another certificate", "refused"));
    assert_int_equal(silo->downs, 0);
    test_node_stop(thief);
    test_node_stop(client);
    test_node_stop(silo);
}

/* Who was connected before it was known with which certificate the silo joins. */
static void a_connection_with_an_unexpected_key_ends(void **state)
{
    static const uint8_t other[TEFFI_KEY_BYTES] = {1};
    if (!have_openssl)
        skip();
    test_node *a = tls_node("silo.pem", "ca.pem"), *b = tls_node("silo-2.pem", "ca.pem");
    test_exchange(a, b, 100);
    a->net->ops->expect_key(a->net, b->id, b->net->ops->key(b->net));
    test_send(a, b, 101, 10);
    test_wait(a, a->messages == 101);
    assert_int_equal(a->downs, 0);
    a->net->ops->expect_key(a->net, b->id, other);
    test_wait(a, a->downs == 2);
    unsigned ups = a->ups;
    test_wait(a, test_logged(a, "with which it has joined the cluster", b->address)); /* dialled */
    test_send(b, a, 1, 10);
    test_wait(b, b->unsent >= 1);
    test_wait(a, test_logged(a, "with which it has joined the cluster", "127.0.0.1:"));
    assert_int_equal(a->ups, ups);
    test_node_stop(a);
    test_node_stop(b);
}

static void the_owner_may_refuse_a_dialled_key(void **state)
{
    if (!have_openssl)
        skip();
    _Atomic int result = 0;
    test_node *a = tls_node("silo.pem", "ca.pem"), *b = tls_node("silo-2.pem", "ca.pem");
    a->refuse_dialled = "not this key";
    a->net->ops->dial(a->net, b->address, note_dialled, &result);
    test_wait(a, result);
    assert_int_equal(result, -1);
    test_wait(a, test_logged(a, "not this key", b->address));
    assert_int_equal(a->ups, 0);
    test_node_stop(a);
    test_node_stop(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tls_carries_messages),
        cmocka_unit_test(tls_needs_its_files),
        cmocka_unit_test(a_wrong_certificate_is_refused),
        cmocka_unit_test(a_certificate_opens_one_door),
        cmocka_unit_test(a_client_is_no_gateway),
        cmocka_unit_test(a_failed_tls_handshake_is_logged),
        cmocka_unit_test(both_sides_learn_the_key),
        cmocka_unit_test(the_certificate_of_another_one_is_refused),
        cmocka_unit_test(a_certificate_for_clients_is_no_silo),
        cmocka_unit_test(a_certificate_for_clients_cannot_be_dialled),
        cmocka_unit_test(an_acceptor_may_hide_its_certificate),
        cmocka_unit_test(another_certificate_does_not_take_a_connection_over),
        cmocka_unit_test(a_connection_with_an_unexpected_key_ends),
        cmocka_unit_test(the_owner_may_refuse_a_dialled_key),
    };
    return cmocka_run_group_tests(tests, make_all, remove_all);
}
