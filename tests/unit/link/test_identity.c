/* test_identity.c - what proves that a node owns the key of its certificate, and what does not. */
#include "link/identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "certificates.h"
#include "test.h"

static bool have_openssl;
static teffi_platform platform;

static int make_all(void **state)
{
    if (!certificates_begin())
        return -1;
    teffi_platform_init_real(&platform, TEFF_LOG_ERROR);
    have_openssl =
        certificates_make_ca("ca") && certificates_make_ca("other-ca") &&
        certificates_make("ca", "one", NULL, 2, "") &&
        certificates_make("ca", "two", NULL, 2, "") &&
        certificates_make("ca", "rsa", "rsa:4096", 2, "") &&
        certificates_make("other-ca", "other", NULL, 2, "") &&
        certificates_make("ca", "expired", NULL, -1, "") &&
        certificates_run("echo basicConstraints=CA:TRUE > ca.ext") &&
        certificates_make("ca", "middle", NULL, 2, "-extfile ca.ext") &&
        certificates_make("middle", "leaf", NULL, 2, "") &&
        certificates_run("cat leaf.crt middle.crt leaf.key > chain.pem") &&
        certificates_run("cat one.crt two.key > mixed.pem") &&
        certificates_run("cat one.crt > keyless.pem") &&
        certificates_run("(cat one.crt; for i in 1 2 3 4 5 6 7 8 9 10; do cat two.crt; done; "
                         "cat one.key) > long.pem");
    return 0;
}

static int remove_all(void **state)
{
    return certificates_end();
}

static link_identity *identity_of(const char *certificate)
{
    char text[TEFF_TEXT_MAX] = "";
    link_identity *made;
    teffi_tls_files files = {certificates_path(certificate), certificates_path("ca.pem"), NULL};
    if (teffi_identity_new(&platform, &files, &made, text))
        fail_msg("%s", text);
    return made;
}

static const uint8_t hellos[2][TEFFI_PROOF_BYTES] = {{1}, {2}};

/* Does `self` take what `shows` shows, signed by `signs`? */
static bool convinces(link_identity *self, link_identity *shows, link_identity *signs)
{
    static teffi_greeting g;
    uint8_t hash[TEFFI_KEY_BYTES];
    teffi_signature signature;
    link_public_key *key;
    teffi_identity_add_certificate(shows, &g);
    assert_null(teffi_identity_check_certificate(self, &g.certificate, false, true, &key, hash));
    assert_memory_equal(hash, teffi_identity_hash(shows), sizeof hash);
    assert_true(teffi_identity_sign(signs, TEFFI_PROVER_DIALLER, hellos[0], hellos[1], &signature));
    bool good =
        teffi_identity_verify(self, key, TEFFI_PROVER_DIALLER, hellos[0], hellos[1], &signature);
    /* the other side's, and that of other hellos */
    assert_false(
        teffi_identity_verify(self, key, TEFFI_PROVER_ACCEPTOR, hellos[0], hellos[1], &signature));
    assert_false(
        teffi_identity_verify(self, key, TEFFI_PROVER_DIALLER, hellos[0], hellos[0], &signature));
    assert_false(
        teffi_identity_verify(self, key, TEFFI_PROVER_DIALLER, hellos[1], hellos[1], &signature));
    signature.len = 0;
    assert_false(
        teffi_identity_verify(self, key, TEFFI_PROVER_DIALLER, hellos[0], hellos[1], &signature));
    teffi_identity_free_key(key);
    return good;
}

static void the_owner_of_a_key_convinces(void **state)
{
    static const char *const names[] = {"one.pem", "two.pem", "rsa.pem", "chain.pem"};
    enum { N = sizeof names / sizeof *names };
    link_identity *all[N];
    if (!have_openssl)
        skip();
    for (int i = 0; i < N; i++)
        all[i] = identity_of(names[i]);
    for (int shows = 0; shows < N; shows++)
        for (int signs = 0; signs < N; signs++)
            if (convinces(all[0], all[shows], all[signs]) != (shows == signs))
                fail_msg("%s shown, %s signs", names[shows], names[signs]);
    for (int i = 0; i < N; i++)
        teffi_identity_free(all[i]);
}

static const char *check_shown(link_identity *self, const teffi_certificate *shown, bool clients)
{
    uint8_t hash[TEFFI_KEY_BYTES];
    link_public_key *key;
    const char *why = teffi_identity_check_certificate(self, shown, clients, !clients, &key, hash);
    assert_int_equal(why == NULL, key != NULL);
    teffi_identity_free_key(key);
    return why;
}

static void read_shown(const char *name, const char *ca, teffi_certificate *shown)
{
    static teffi_greeting g;
    teffi_tls_files files = {certificates_path(name), certificates_path(ca), NULL};
    link_identity *made;
    assert_int_equal(teffi_identity_new(&platform, &files, &made, NULL), TEFF_OK);
    teffi_identity_add_certificate(made, &g);
    teffi_identity_free(made);
    *shown = g.certificate;
}

static void says(const char *why, const char *what)
{
    if (!why || !strstr(why, what))
        fail_msg("'%s' does not say %s", why ? why : "nothing", what);
}

static void a_certificate_that_is_not_valid_is_refused(void **state)
{
    static teffi_certificate shown;
    if (!have_openssl)
        skip();
    link_identity *self = identity_of("one.pem");
    read_shown("other.pem", "other-ca.pem", &shown);
    says(check_shown(self, &shown, false), "not signed by the authority");
    read_shown("expired.pem", "ca.pem", &shown);
    says(check_shown(self, &shown, false), "not valid now");
    read_shown("two.pem", "ca.pem", &shown);
    assert_null(check_shown(self, &shown, false));
    shown.len--;
    says(check_shown(self, &shown, false), "malformed");
    shown.len++;
    shown.bytes[shown.len++] = 0; /* rubbish after it */
    says(check_shown(self, &shown, false), "malformed");
    read_shown("chain.pem", "ca.pem", &shown);
    assert_null(check_shown(self, &shown, false));
    read_shown("leaf.pem", "middle.pem", &shown); /* without who has signed it */
    says(check_shown(self, &shown, false), "not signed by the authority");
    shown.len = 0;
    says(check_shown(self, &shown, false), "malformed");
    teffi_identity_free(self);
}

/* At a gateway the authority of the clients counts, and only that one. */
static void a_gateway_has_an_authority_of_its_own(void **state)
{
    static teffi_certificate silo, client;
    if (!have_openssl)
        skip();
    teffi_tls_files files = {certificates_path("one.pem"), certificates_path("ca.pem"),
                             certificates_path("other-ca.pem")};
    link_identity *self;
    assert_int_equal(teffi_identity_new(&platform, &files, &self, NULL), TEFF_OK);
    read_shown("two.pem", "ca.pem", &silo);
    read_shown("other.pem", "other-ca.pem", &client);
    assert_null(check_shown(self, &silo, false));
    assert_null(check_shown(self, &client, true));
    assert_non_null(check_shown(self, &silo, true));
    assert_non_null(check_shown(self, &client, false));
    teffi_identity_free(self);
}

static void bad_files_are_named(void **state)
{
    static const struct {
        const char *certificate, *ca, *says;
    } rows[] = {
        {"none.pem", "ca.pem", "none.pem"},       {"one.pem", "none.pem", "none.pem"},
        {"keyless.pem", "ca.pem", "private key"}, {"mixed.pem", "ca.pem", "does not fit"},
        {"long.pem", "ca.pem", "3072 bytes"},
    };
    char text[TEFF_TEXT_MAX];
    link_identity *made;
    teffi_tls_files none = {NULL, NULL, NULL};
    assert_int_equal(teffi_identity_new(&platform, &none, &made, text), TEFF_OK);
    assert_null(made);
    if (!have_openssl)
        skip();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        teffi_tls_files files = {certificates_path(rows[i].certificate),
                                 certificates_path(rows[i].ca), NULL};
        assert_int_equal(teffi_identity_new(&platform, &files, &made, text), TEFF_E_INVALID);
        assert_null(made);
        says(text, rows[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_owner_of_a_key_convinces),
        cmocka_unit_test(a_certificate_that_is_not_valid_is_refused),
        cmocka_unit_test(a_gateway_has_an_authority_of_its_own),
        cmocka_unit_test(bad_files_are_named),
    };
    return cmocka_run_group_tests(tests, make_all, remove_all);
}
