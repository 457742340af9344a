/* test_authorize.c - the program's function is asked before each call of a client: whichever way
 * the call takes, what it refuses activates nothing. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "../link/certificates.h"
#include "../link/raw_peer.h"
#include "lab.h"

/* What the function was told last, and what it says. */
typedef struct guard {
    pthread_mutex_t lock;
    bool allow;
    const char *allowed_type; /* NULL: all */
    unsigned asked;
    teff_client_call last; /* without pointers to keys */
    char key[128];
    char certificate[65]; /* in hexadecimal; "": none */
} guard;

static guard g = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note_key(const teff_client_call *call)
{
    const teff_key *key = call->key;
    unsigned first = key ? key->uuid.bytes[0] : 0;
    if (key)
        snprintf(g.key, sizeof g.key, "%d: %s %" PRId64 " %u", (int)key->kind,
                 key->text ? key->text : "-", key->number, first);
    else
        snprintf(g.key, sizeof g.key, "%.*s", (int)call->key_len, (const char *)call->key_bytes);
}

static void note_certificate(const teff_client_call *call)
{
    g.certificate[0] = '\0';
    for (int i = 0; call->certificate && i < 32; i++)
        snprintf(g.certificate + 2 * (size_t)i, 3, "%02x", call->certificate[i]);
}

static int guard_calls(void *arg, const teff_client_call *call)
{
    assert_ptr_equal(arg, &g);
    pthread_mutex_lock(&g.lock);
    g.asked++;
    g.last = *call;
    note_key(call);
    note_certificate(call);
    bool typed = !g.allowed_type || (call->type && !strcmp(call->type, g.allowed_type));
    int allow = g.allow && typed;
    pthread_mutex_unlock(&g.lock);
    return allow;
}

/* Two silos, of which the first is the client's gateway and has the function; Rare is on the
 * second. */
typedef struct scene {
    lab_record record;
    teff_silo *silos[2];
    teff_client *client;
    teff_ctx *ctx; /* the client's */
} scene;

static void start(teff_silo *silo)
{
    char text[TEFF_TEXT_MAX] = "";
    if (teff_silo_start(silo, text))
        fail_msg("%s", text);
}

static int set_up(void **state)
{
    static scene s;
    char text[TEFF_TEXT_MAX] = "";
    memset(&s, 0, sizeof s);
    g = (guard){.lock = PTHREAD_MUTEX_INITIALIZER};
    teff_silo_options opt = {.size = sizeof opt,
                             .silent = 1,
                             .gateway = "127.0.0.1:0",
                             .authorize = guard_calls,
                             .authorize_arg = &g};
    s.silos[0] = lab_silo(&s.record, &opt);
    start(s.silos[0]);
    opt = (teff_silo_options){
        .size = sizeof opt, .silent = 1, .seeds = {teff_silo_address(s.silos[0])}};
    s.silos[1] = lab_silo(&s.record, &opt);
    lab_host_rare(s.silos[1], &s.record);
    start(s.silos[1]);
    lab_until(teff_silo_members(s.silos[0]) == 2);
    teff_client_options client = {.size = sizeof client,
                                  .gateways = {teff_silo_gateway(s.silos[0])}};
    if (teff_client_connect(&client, &s.client, text))
        fail_msg("%s", text);
    s.ctx = teff_client_new_ctx(s.client);
    *state = &s;
    return 0;
}

static int tear_down(void **state)
{
    scene *s = *state;
    teff_ctx_free(s->ctx);
    teff_client_free(s->client);
    teff_silo_free(s->silos[1]);
    teff_silo_free(s->silos[0]);
    return 0;
}

/* ---- the ways of a call ---- */

static teff_err call_near(scene *s, const char *key)
{
    lab_text *out;
    return lab_near_where(s->ctx, key, &out);
}

static teff_err call_hashed(scene *s, const char *key)
{
    lab_text *out;
    return lab_hashed_where(s->ctx, key, &out);
}

static teff_err call_later(scene *s, const char *key)
{
    lab_text *out;
    teff_call call;
    teff_err err = lab_hashed_where_async(s->ctx, key, NULL, &call);
    return err ? err : lab_hashed_where_await(s->ctx, call, &out);
}

static teff_err call_with_state(scene *s, const char *key)
{
    lab_number *out;
    return lab_account_add(s->ctx, key, lab_number(.n = 1), &out);
}

static teff_err call_number(scene *s, const char *key)
{
    lab_number *out;
    return lab_free_ask(s->ctx, -5, lab_step(.seq = 1), &out);
}

static teff_err call_uuid(scene *s, const char *key)
{
    lab_text *out;
    return lab_ids_who(s->ctx, (teff_uuid){{7, 1}}, &out);
}

static teff_err call_pair(scene *s, const char *key)
{
    lab_text *out;
    return lab_pair_who(s->ctx, 9, key, &out);
}

static teff_err call_elsewhere(scene *s, const char *key)
{
    lab_text *out;
    return lab_rare_where(s->ctx, key, &out);
}

/* Calls grain "b", which is not a client's call. */
static teff_err call_a_caller(scene *s, const char *key)
{
    const char *keys[] = {"b"};
    lab_number *out;
    return lab_relay_go(s->ctx, key, lab_path(.n_keys = 1, .keys = keys), &out);
}

typedef struct way {
    teff_err (*call)(scene *s, const char *key);
    const char *type, *method, *key; /* as the function is told */
} way;

static const way ways[] = {
    {call_near, "lab.Near", "lab.Near.Where", "1: a 0 0"},
    {call_hashed, "lab.Hashed", "lab.Hashed.Where", "1: a 0 0"},
    {call_later, "lab.Hashed", "lab.Hashed.Where", "1: a 0 0"},
    {call_with_state, "lab.Account", "lab.Account.Add", "1: a 0 0"},
    {call_number, "lab.Free", "lab.Free.Ask", "2: - -5 0"},
    {call_uuid, "lab.Ids", "lab.Ids.Who", "3: - 0 7"},
    {call_pair, "lab.Pair", "lab.Pair.Who", "4: a 9 0"},
    {call_elsewhere, NULL, NULL, "a"},
    {call_a_caller, "lab.Relay", "lab.Relay.Go", "1: a 0 0"},
};

enum { WAYS = sizeof ways / sizeof ways[0] };

static void find_activations(void *arg, const char *line)
{
    const char *at = strstr(line, "grains: ");
    unsigned n;
    if (at && sscanf(at, "grains: %u activations", &n) == 1)
        *(unsigned *)arg += n;
}

/* On both silos; none of them is the runtime's own. */
static unsigned count_activations(const scene *s)
{
    unsigned n = 0;
    for (int i = 0; i < 2; i++)
        teff_silo_dump(s->silos[i], find_activations, &n);
    return n;
}

static void same_text(const char *a, const char *b)
{
    if (!a != !b || (a && strcmp(a, b) != 0))
        fail_msg("told '%s', expected '%s'", a ? a : "none", b ? b : "none");
}

static void each_way_is_guarded(void **state)
{
    scene *s = *state;
    for (unsigned i = 0; i < WAYS; i++) {
        unsigned before = g.asked;
        lab_fails(s->ctx, ways[i].call(s, "a"), TEFF_E_REFUSED);
        assert_non_null(strstr(teff_error(s->ctx), "does not allow this call"));
        assert_int_equal(g.asked, before + 1);
        same_text(g.last.type, ways[i].type);
        same_text(g.last.method, ways[i].method);
        same_text(g.key, ways[i].key);
    }
    assert_int_equal(count_activations(s), 0);
    g.allow = true;
    for (unsigned i = 0; i < WAYS; i++) {
        unsigned before = g.asked;
        lab_ok(s->ctx, ways[i].call(s, "a"));
        assert_int_equal(g.asked, before + 1);
    }
    assert_true(count_activations(s) > 0);
}

/* Refused ones do not run; a later call of the same client comes after them. */
static void one_ways_are_guarded(void **state)
{
    scene *s = *state;
    lab_number *out;
    lab_ok(s->ctx, lab_turns_note(s->ctx, "a", lab_step(.seq = 1)));
    lab_fails(s->ctx, lab_turns_write(s->ctx, "a", lab_step(.seq = 2), &out), TEFF_E_REFUSED);
    assert_int_equal(g.asked, 2);
    assert_int_equal(count_activations(s), 0);
    g.allow = true;
    lab_ok(s->ctx, lab_turns_note(s->ctx, "a", lab_step(.seq = 3)));
    lab_until(s->record.notes == 1);
    assert_true(g.last.one_way);
}

/* 40 keys: some of the grains are on this silo, some on the other. */
static void the_grains_place_makes_no_difference(void **state)
{
    scene *s = *state;
    for (int round = 0; round < 2; round++) {
        g.allow = round;
        for (int i = 0; i < 40; i++) {
            char key[16];
            snprintf(key, sizeof key, "key %d", i);
            teff_err err = call_hashed(s, key);
            assert_int_equal(err, round ? TEFF_OK : TEFF_E_REFUSED);
        }
        assert_int_equal(count_activations(s), round ? 40 : 0);
    }
    assert_int_equal(g.asked, 80);
}

static void one_type_may_be_allowed(void **state)
{
    scene *s = *state;
    g.allow = true;
    g.allowed_type = "lab.Hashed";
    lab_ok(s->ctx, call_hashed(s, "a"));
    lab_fails(s->ctx, call_near(s, "a"), TEFF_E_REFUSED);
    lab_fails(s->ctx, call_elsewhere(s, "a"), TEFF_E_REFUSED);
}

/* Silos' own calls, to grains here and there. */
static void silos_are_not_asked_for(void **state)
{
    scene *s = *state;
    for (int i = 0; i < 2; i++) {
        teff_ctx *ctx = teff_silo_new_ctx(s->silos[i]);
        for (int k = 0; k < 8; k++) {
            lab_text *out;
            lab_ok(ctx, lab_hashed_where(ctx, (const char[]){(char)('a' + k), '\0'}, &out));
        }
        teff_ctx_free(ctx);
    }
    assert_int_equal(g.asked, 0);
}

static void who_asks_is_told(void **state)
{
    scene *s = *state;
    char text[TEFF_TEXT_MAX];
    teff_client *other;
    lab_text *out;
    g.allow = true;
    lab_ok(s->ctx, call_hashed(s, "a"));
    uint64_t first = g.last.client;
    assert_true(g.last.size == sizeof(teff_client_call) && g.last.gateway);
    assert_false(g.last.tls || g.last.secret || g.last.one_way);
    assert_string_equal(g.certificate, "");
    teff_client_options opt = {.size = sizeof opt, .gateways = {teff_silo_gateway(s->silos[0])}};
    assert_int_equal(teff_client_connect(&opt, &other, text), TEFF_OK);
    teff_ctx *ctx = teff_client_new_ctx(other);
    lab_ok(ctx, lab_hashed_where(ctx, "a", &out));
    assert_true(g.last.client != first);
    teff_ctx_free(ctx);
    teff_client_free(other);
}

/* ---- certificates ---- */

/* out: the hash as SECURITY.md says to print it; in a static buffer. */
static const char *hash_of_certificate(const char *name)
{
    static char hash[65];
    char command[1200];
    snprintf(command, sizeof command,
             "openssl x509 -in %s -pubkey -noout | openssl pkey -pubin -outform DER | sha256sum",
             certificates_path(name));
    FILE *said = popen(command, "r");
    assert_non_null(said);
    assert_int_equal(fscanf(said, "%64s", hash), 1);
    assert_int_equal(pclose(said), 0);
    return hash;
}

static void call_with_certificate(const teff_silo *silo, const char *name)
{
    teff_client_options opt = {.size = sizeof opt,
                               .gateways = {teff_silo_gateway(silo)},
                               .tls_cert = certificates_path(name),
                               .tls_ca = certificates_path("silos.pem")};
    char text[TEFF_TEXT_MAX] = "";
    teff_client *client;
    lab_text *out;
    if (teff_client_connect(&opt, &client, text))
        fail_msg("%s", text);
    teff_ctx *ctx = teff_client_new_ctx(client);
    lab_ok(ctx, lab_hashed_where(ctx, "a", &out));
    teff_ctx_free(ctx);
    teff_client_free(client);
}

static void the_function_learns_whose_certificate_it_is(void **state)
{
    static lab_record record;
    if (!certificates_make_ca("silos") || !certificates_make("silos", "silo", NULL, 2, "") ||
        !certificates_make_ca("clients") || !certificates_make("clients", "one", NULL, 2, "") ||
        !certificates_make("clients", "two", NULL, 2, ""))
        skip();
    g = (guard){.lock = PTHREAD_MUTEX_INITIALIZER, .allow = true};
    teff_silo_options opt = {.size = sizeof opt,
                             .silent = 1,
                             .gateway = "127.0.0.1:0",
                             .tls_cert = certificates_path("silo.pem"),
                             .tls_ca = certificates_path("silos.pem"),
                             .tls_client_ca = certificates_path("clients.pem"),
                             .authorize = guard_calls,
                             .authorize_arg = &g};
    teff_silo *silo = lab_silo(&record, &opt);
    start(silo);
    const char *const names[] = {"one.pem", "two.pem", "one.pem"};
    for (int i = 0; i < 3; i++) {
        call_with_certificate(silo, names[i]);
        assert_true(g.last.tls);
        assert_string_equal(g.certificate, hash_of_certificate(names[i]));
    }
    teff_silo_free(silo);
}

/* ---- bytes ---- */

/* Bytes that are no key of the type: -1 is no text in UTF-8. They are refused unasked. */
static void a_key_of_another_kind_is_refused(void **state)
{
    scene *s = *state;
    teff_type_info info = lab_near_info;
    const teff_key number = {.kind = TEFF_KEY_INT64, .number = -1};
    info.key_kind = TEFF_KEY_INT64;
    g.allow = true;
    lab_fails(s->ctx, teff_ask(s->ctx, &info, &number, &info.methods[0], NULL, NULL),
              TEFF_E_REFUSED);
    assert_int_equal(g.asked, 0);
    assert_int_equal(count_activations(s), 0);
}

/* Bytes as a client of its own sends them. in: len of the key. */
static void send_key(raw_peer *raw, uint32_t len)
{
    static uint8_t frame[UINT16_MAX + 256], key[UINT16_MAX];
    size_t size, body;
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST);
    assert_non_null(msg);
    memset(key, 'k', sizeof key);
    msg->call.slot = 1;
    msg->type_id = lab_near_info.id;
    msg->method_id = lab_near_info.methods[0].id;
    msg->key = key;
    msg->key_len = len;
    assert_int_equal(teffi_frame_compute_size_bound(msg, sizeof frame, &size, &body), TEFF_OK);
    size = teffi_frame_encode(msg, body, 0, frame);
    assert_true(raw_send(raw, frame, size));
    teffi_msg_free(msg);
}

/* The longest key, one that is longer, the longest that the wire carries, and none. */
static void keys_of_wrong_lengths_are_refused(void **state)
{
    static const uint32_t lengths[] = {TEFF_KEY_MAX, TEFF_KEY_MAX + 1, TEFF_KEY_MAX + 17,
                                       UINT16_MAX, 0};
    scene *s = *state;
    teffi_greeting hello = raw_greeting(1 | TEFFI_CLIENT_BIT, 1, 1);
    raw_peer *raw = raw_connect(teff_silo_gateway(s->silos[0]));
    hello.hello.role = TEFFI_ROLE_CLIENT;
    hello.hello.address[0] = '\0';
    strcpy(hello.hello.cluster, "dev");
    g.allow = true;
    assert_true(raw_join(raw, &hello));
    for (unsigned i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        teffi_msg *response;
        send_key(raw, lengths[i]);
        assert_int_equal(raw_read(raw), TEFFI_MSG_RESPONSE);
        teffi_frame frame = {raw->frame[0], raw->frame, raw->frame_len};
        assert_int_equal(teffi_frame_decode(&frame, NULL, 0, &response), TEFF_OK);
        assert_int_equal(response->err, i ? TEFF_E_REFUSED : TEFF_OK);
        teffi_msg_free(response);
    }
    assert_int_equal(g.asked, 1);
    raw_close(raw);
}

/* A cancel is no call: it is delivered also when no call is allowed any more. */
static void a_cancel_is_not_asked_for(void **state)
{
    scene *s = *state;
    teff_cancel *cancel = teff_cancel_new();
    const teff_call_options options = {.size = sizeof options, .cancel = cancel};
    teff_call call;
    lab_number *out;
    g.allow = true;
    lab_ok(s->ctx, lab_turns_write_async(s->ctx, "a", lab_step(.hold = true), &options, &call));
    lab_until(s->record.held == 1);
    g.allow = false;
    teff_cancel_fire(cancel);
    lab_fails(s->ctx, lab_turns_write_await(s->ctx, call, &out), TEFF_E_CANCELLED);
    lab_fails(s->ctx, call_near(s, "b"), TEFF_E_REFUSED); /* behind the cancel */
    assert_int_equal(g.asked, 2);
    s->record.gate = true;
    lab_until(s->record.held == 0);
    teff_cancel_free(cancel);
}

#define ROW(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(each_way_is_guarded),
        ROW(one_ways_are_guarded),
        ROW(the_grains_place_makes_no_difference),
        ROW(one_type_may_be_allowed),
        ROW(silos_are_not_asked_for),
        ROW(who_asks_is_told),
        ROW(a_key_of_another_kind_is_refused),
        ROW(keys_of_wrong_lengths_are_refused),
        ROW(a_cancel_is_not_asked_for),
        cmocka_unit_test(the_function_learns_whose_certificate_it_is),
    };
    if (!certificates_begin())
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return certificates_end() || failed;
}
