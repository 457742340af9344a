/* test_etcd_login.c - engine `etcd` with users and passwords, and over TLS. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "ask.h"
#include "etcd_server.h"
#include "scratch.h"
#include "setup.h"

enum { SKIPPED = 77, ANSWER_MAX = 4096, ADDRESS_MAX = 2048 };

static void expect_put(teffi_store *store, uint64_t *etag)
{
    teffi_row row = {.table = "words", .key = ask_str("a"), .value = ask_str("x"), .etag = *etag};
    teffi_store_op op = {.kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1};
    if (ask(store, &op) != TEFF_OK)
        fail_msg("put: %s", op.text);
    *etag = row.etag;
}

/* ---- users ---- */

static void post(const char *path, const char *json)
{
    char answer[ANSWER_MAX];
    if (etcd_server_post(0, path, json, answer, sizeof answer) != 200)
        fail_msg("%s %s: %s", path, json, answer);
}

static void log_in_as_root(void)
{
    char answer[ANSWER_MAX], token[128];
    etcd_server_set_token(NULL);
    assert_int_equal(etcd_server_post(0, "/v3/auth/authenticate",
                                      "{\"name\":\"root\",\"password\":\"r\"}", answer,
                                      sizeof answer),
                     200);
    const char *at = strstr(answer, "\"token\":\"");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "\"token\":\"%127[^\"]", token), 1);
    etcd_server_set_token(token);
}

/* User "words" may read and write the keys of the name "in", which begin with "in/". */
static void enable_users(void)
{
    post("/v3/auth/user/add", "{\"name\":\"root\",\"password\":\"r\"}");
    post("/v3/auth/role/add", "{\"name\":\"root\"}");
    post("/v3/auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}");
    post("/v3/auth/user/add", "{\"name\":\"words\",\"password\":\"one\"}");
    post("/v3/auth/role/add", "{\"name\":\"words\"}");
    post("/v3/auth/role/grant", "{\"name\":\"words\",\"perm\":{\"permType\":\"READWRITE\","
                                "\"key\":\"aW4v\",\"range_end\":\"aW4w\"}}");
    post("/v3/auth/user/grant", "{\"user\":\"words\",\"role\":\"words\"}");
    post("/v3/auth/enable", "{}");
    log_in_as_root();
}

static char password_path[SCRATCH_PATH_MAX];

static void write_password(const char *password)
{
    scratch_write(password_path, password, strlen(password));
    assert_int_equal(chmod(password_path, 0600), 0);
}

static void set_address(char *address, const char *name)
{
    snprintf(address, ADDRESS_MAX, "etcd://127.0.0.1:%u/%s?user=words&password-file=%s",
             etcd_server_port(0), name, password_path);
}

static void only_the_right_password_is_taken(void **state)
{
    char address[ADDRESS_MAX];
    set_address(address, "in");
    ask_expect_refused(address, TEFF_E_INVALID, "No such file");
    write_password("two\n");
    ask_expect_refused(address, TEFF_E_REFUSED, "invalid user ID or password");
    write_password("\xff\n");
    ask_expect_refused(address, TEFF_E_INVALID, "not UTF-8");
    write_password("one\n");
    uint64_t etag = 0;
    teffi_store *store = ask_open(address);
    expect_put(store, &etag);
    teffi_store_close(store);
}

static void without_a_login_nothing_is_read_or_written(void **state)
{
    char address[ADDRESS_MAX];
    snprintf(address, sizeof address, "etcd://127.0.0.1:%u/in", etcd_server_port(0));
    teffi_store *store = ask_open(address);
    uint64_t etag = 0;
    assert_int_equal(ask_put(store, "words", ask_str("b"), ask_str("x"), &etag), TEFF_E_IO);
    teffi_store_close(store);
}

static void a_user_writes_only_its_own_keys(void **state)
{
    char address[ADDRESS_MAX];
    set_address(address, "out");
    teffi_store *store = ask_open(address);
    uint64_t etag = 0;
    assert_int_equal(ask_put(store, "words", ask_str("a"), ask_str("x"), &etag), TEFF_E_IO);
    teffi_store_close(store);
}

/* A token is forgotten when the user's password changes, or when the server restarts: no operation
 * fails for that. */
static void a_forgotten_token_is_asked_for_again(void **state)
{
    char address[ADDRESS_MAX];
    teff_arena arena;
    teffi_bytes found;
    uint64_t etag = 0;
    set_address(address, "in");
    teffi_store *store = ask_open(address);
    post("/v3/kv/deleterange", "{\"key\":\"aW4v\",\"range_end\":\"aW4w\"}");
    expect_put(store, &etag);
    post("/v3/auth/user/changepw", "{\"name\":\"words\",\"password\":\"three\"}");
    write_password("three");
    expect_put(store, &etag);
    etcd_server_kill(0);
    etcd_server_restart(0);
    log_in_as_root();
    post("/v3/auth/user/changepw", "{\"name\":\"words\",\"password\":\"one\"}");
    write_password("one");
    teffi_arena_init(&arena, NULL, 0, 0);
    assert_int_equal(ask_get(store, &arena, "words", ask_str("a"), &found, &etag), TEFF_OK);
    teffi_arena_fini(&arena);
    expect_put(store, &etag);
    teffi_store_close(store);
}

/* ---- TLS ---- */

static const char *path(const char *name)
{
    static char paths[4][SCRATCH_PATH_MAX];
    static unsigned next;
    char *p = paths[next++ % 4];
    scratch_path(p, name);
    return p;
}

/* An authority CA.pem, and a certificate of it with its key in CERT.pem, for 127.0.0.1. */
static bool make_certificates(const char *ca, const char *cert)
{
    char command[2 * ADDRESS_MAX];
    snprintf(command, sizeof command,
             "cd $(dirname %s) && exec 2>/dev/null && "
             "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
             "-keyout %s.key -out %s.pem -days 2 -subj /CN=%s && "
             "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
             "-keyout %s.key -out %s.csr -subj /CN=%s && "
             "echo subjectAltName=IP:127.0.0.1 > %s.ext && "
             "openssl x509 -req -in %s.csr -CA %s.pem -CAkey %s.key -CAcreateserial -days 2 "
             "-extfile %s.ext -out %s.crt && cat %s.crt %s.key > %s.pem",
             path("x"), ca, ca, ca, cert, cert, cert, cert, cert, ca, ca, cert, cert, cert, cert,
             cert);
    return system(command) == 0;
}

static void set_tls_address(char *address, const char *ca, const char *cert)
{
    size_t len =
        (size_t)snprintf(address, ADDRESS_MAX, "etcd://127.0.0.1:%u/in", etcd_server_port(0));
    if (ca)
        len += (size_t)snprintf(address + len, ADDRESS_MAX - len, "?ca-file=%s", path(ca));
    if (cert)
        snprintf(address + len, ADDRESS_MAX - len, "&cert-file=%s", path(cert));
}

static void both_sides_show_certificates(void **state)
{
    char address[ADDRESS_MAX];
    uint64_t etag = 0;
    set_tls_address(address, "ca.pem", "silo.pem");
    teffi_store *store = ask_open(address);
    expect_put(store, &etag);
    etcd_server_kill(0);
    etcd_server_restart(0);
    expect_put(store, &etag);
    teffi_store_close(store);
    set_tls_address(address, NULL, NULL);
    ask_expect_refused(address, TEFF_E_IO, "");
    set_tls_address(address, "ca.pem", NULL);
    ask_expect_refused(address, TEFF_E_IO, "");
    set_tls_address(address, "ca.pem", "other.pem");
    ask_expect_refused(address, TEFF_E_IO, "");
    set_tls_address(address, "other-ca.pem", "silo.pem");
    ask_expect_refused(address, TEFF_E_IO, "certificate");
    set_tls_address(address, "nowhere.pem", "silo.pem");
    ask_expect_refused(address, TEFF_E_IO, "nowhere.pem");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_right_password_is_taken),
        cmocka_unit_test(without_a_login_nothing_is_read_or_written),
        cmocka_unit_test(a_user_writes_only_its_own_keys),
        cmocka_unit_test(a_forgotten_token_is_asked_for_again),
    };
    const struct CMUnitTest tls_tests[] = {
        cmocka_unit_test(both_sides_show_certificates),
    };
    if (scratch_open() != 0)
        return 1;
    if (!etcd_server_start(1)) {
        print_message("skipped: there is no etcd (package etcd-server)\n");
        scratch_close();
        return SKIPPED;
    }
    scratch_path(password_path, "password");
    enable_users();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    etcd_server_stop();
    if (make_certificates("ca", "silo") && make_certificates("other-ca", "other")) {
        etcd_server_use_tls(path("silo.pem"), path("ca.pem"));
        assert_true(etcd_server_start(1));
        failed += cmocka_run_group_tests(tls_tests, NULL, NULL);
        etcd_server_stop();
    } else {
        print_message("TLS is not tested: there is no openssl\n");
    }
    scratch_close();
    return failed;
}
