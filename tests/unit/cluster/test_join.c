/* test_join.c - silos that join with certificates: a silo's id belongs to the certificate with
 * which it has joined, for as long as it is in the view. */
#include "cluster/join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../link/certificates.h"
#include "../link/net_test.h"
#include "lab.h"
#include "link/link.h"

enum { KEYS = 20 };

static bool have_openssl;
static lab *l;

static int make_all(void **state)
{
    if (!certificates_begin())
        return -1;
    have_openssl = certificates_make_ca("ca") && certificates_make("ca", "one", NULL, 2, "") &&
                   certificates_make("ca", "two", NULL, 2, "") &&
                   certificates_make("ca", "new", NULL, 2, "");
    return 0;
}

static int remove_all(void **state)
{
    return certificates_end();
}

static void start_silo(int i, const char *certificate, const char *address)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_silo_options opt = {.size = sizeof opt,
                             .silent = 1,
                             .store = l->store,
                             .workers = 2,
                             .listen = address,
                             .tls_cert = certificates_path(certificate),
                             .tls_ca = certificates_path("ca.pem")};
    l->silos[i] = lab_silo(&l->record, &opt);
    if (teff_silo_start(l->silos[i], text))
        fail_msg("%s", text);
    l->ctx[i] = teff_silo_new_ctx(l->silos[i]);
}

static int setup(void **state)
{
    l = calloc(1, sizeof *l);
    assert_non_null(l);
    lab_fresh_store(l->store);
    if (!have_openssl)
        return 0;
    start_silo(0, "one.pem", "127.0.0.1:0");
    start_silo(1, "two.pem", "127.0.0.1:0");
    l->n = 2;
    return 0;
}

static int teardown(void **state)
{
    lab_close(l);
    return 0;
}

static teffi_node *node_of(int i)
{
    return &l->silos[i]->node;
}

static const uint8_t *key_of(int i)
{
    return node_of(i)->home.net->ops->key(node_of(i)->home.net);
}

/* Is each silo in each view, with its key? */
static bool views_have_keys(void)
{
    bool good = true;
    for (int i = 0; i < 2; i++) {
        const teffi_view *view = teffi_view_ref_current(node_of(i));
        for (int k = 0; k < 2; k++) {
            const teffi_member *member = teffi_view_find_member(view, node_of(k)->id);
            good = good && member && !memcmp(member->key, key_of(k), TEFFI_KEY_BYTES);
        }
        teffi_view_unref(view);
    }
    return good;
}

/* Does each link refuse another key of the other silo? */
static void links_expect_keys(void)
{
    for (int i = 0; i < 2; i++) {
        teffi_link *link = (teffi_link *)node_of(i)->home.net;
        pthread_mutex_lock(&link->conns.lock);
        const link_peer *peer = teffi_peer_find(link, node_of(1 - i)->id);
        bool right = peer && !memcmp(peer->key, key_of(1 - i), sizeof peer->key);
        pthread_mutex_unlock(&link->conns.lock);
        assert_true(right);
    }
}

static void call_from_both(void)
{
    lab_number *out;
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < KEYS; k++)
            lab_ok(l->ctx[i], lab_single_add(l->ctx[i], k, lab_number(.n = 1), &out));
}

static void silos_with_certificates_of_their_own_serve(void **state)
{
    if (!have_openssl)
        skip();
    lab_until(views_have_keys());
    assert_memory_not_equal(key_of(0), key_of(1), TEFFI_KEY_BYTES);
    links_expect_keys();
    call_from_both();
}

static teffi_hello hello_of(int i, const uint8_t *key)
{
    teffi_hello hello = {.node = node_of(i)->id, .role = TEFFI_ROLE_SILO};
    snprintf(hello.address, sizeof hello.address, "%s", node_of(i)->address);
    if (key)
        memcpy(hello.key, key, sizeof hello.key);
    return hello;
}

static void a_silos_id_belongs_to_its_certificate(void **state)
{
    char text[TEFF_TEXT_MAX] = "";
    if (!have_openssl)
        skip();
    lab_until(views_have_keys());
    teffi_hello right = hello_of(1, key_of(1)), wrong = hello_of(1, key_of(0));
    teffi_hello none = hello_of(1, NULL), later = wrong, other = wrong;
    later.node.incarnation++;
    other.node.silo ^= 1; /* of no member */
    assert_int_equal(teffi_membership_check_key(node_of(0), &right, text), TEFF_OK);
    assert_int_equal(teffi_membership_check_key(node_of(0), &other, text), TEFF_OK);
    const teffi_hello *const bad[] = {&wrong, &none, &later};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(teffi_membership_check_key(node_of(0), bad[i], text), TEFF_E_REFUSED);
        assert_non_null(strstr(text, "has not shown the certificate"));
        assert_non_null(strstr(text, node_of(1)->address));
        assert_int_equal(teffi_membership_check_peer(node_of(0), bad[i], text), TEFF_E_REFUSED);
        assert_int_equal(teffi_node_net_events.dialled(node_of(0), bad[i], text), TEFF_E_REFUSED);
    }
}

/* A member without a certificate, as an older build has joined, may be anybody, as before. */
static void a_member_without_a_certificate_may_show_any(void **state)
{
    char text[TEFF_TEXT_MAX] = "";
    l = calloc(1, sizeof *l);
    assert_non_null(l);
    lab_fresh_store(l->store);
    l->silos[0] = lab_silo(
        &l->record,
        &(teff_silo_options){.size = sizeof(teff_silo_options), .silent = 1, .store = l->store});
    assert_int_equal(teff_silo_start(l->silos[0], text), TEFF_OK);
    l->ctx[0] = teff_silo_new_ctx(l->silos[0]);
    l->n = 1;
    teffi_hello any = hello_of(0, (const uint8_t[TEFFI_KEY_BYTES]){5});
    assert_int_equal(teffi_membership_check_key(node_of(0), &any, text), TEFF_OK);
}

/* Dials silo 0 as a later or the same start of silo 1. out: why it refuses; "": it does not. */
static test_dialled dial_as_silo_1(const char *certificate, uint32_t later)
{
    test_dialled d = {0};
    test_node *thief =
        test_node_start((test_options){.cert = certificates_path(certificate),
                                       .ca = certificates_path("ca.pem"),
                                       .cluster = "dev",
                                       .silo = node_of(1)->id.silo,
                                       .incarnation = node_of(1)->id.incarnation + later});
    atomic_fetch_add(&((teffi_link *)thief->net)->sequence, 1000);
    thief->net->ops->identify(thief->net, thief->id, node_of(1)->address);
    thief->net->ops->dial(thief->net, l->silos[0]->bound, test_note_dialled, &d);
    test_wait(thief, d.done);
    test_node_stop(thief);
    return d;
}

/* Somebody has stolen the key of silo 0, and says to be silo 1, at its address. */
static void a_stolen_key_makes_no_other_silo(void **state)
{
    if (!have_openssl)
        skip();
    lab_until(views_have_keys());
    call_from_both();
    for (uint32_t later = 0; later < 2; later++) {
        test_dialled d = dial_as_silo_1("one.pem", later);
        assert_int_equal(d.err, TEFF_E_REFUSED);
        assert_non_null(strstr(d.text, "certificate"));
    }
    call_from_both();                                            /* silo 1 has lost nothing */
    assert_int_equal(dial_as_silo_1("two.pem", 1).err, TEFF_OK); /* only the key was wrong */
}

/* It has left the view before it comes back, so its id is free. */
static void a_restart_may_have_a_new_certificate(void **state)
{
    char address[300];
    if (!have_openssl)
        skip();
    snprintf(address, sizeof address, "%s", teff_silo_address(l->silos[1]));
    assert_int_equal(lab_remove(l, 1), TEFF_OK);
    start_silo(1, "new.pem", address);
    lab_until(views_have_keys());
    call_from_both();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(silos_with_certificates_of_their_own_serve, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_silos_id_belongs_to_its_certificate, setup, teardown),
        cmocka_unit_test_teardown(a_member_without_a_certificate_may_show_any, teardown),
        cmocka_unit_test_setup_teardown(a_stolen_key_makes_no_other_silo, setup, teardown),
        cmocka_unit_test_setup_teardown(a_restart_may_have_a_new_certificate, setup, teardown),
    };
    return cmocka_run_group_tests(tests, make_all, remove_all);
}
