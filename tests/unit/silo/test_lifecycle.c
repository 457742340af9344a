/* test_lifecycle.c - a silo that starts: peers on its port reach nothing that is not there yet; and
 * one that leaves: it waits for the clients that it has let in. */
#include "../link/net_test.h"
#include "../link/raw_peer.h"

#include <poll.h>
#include "lab.h"
#include "store/store.h"

static struct {
    lab_record record;
    teff_silo *silo;
    raw_peer *early;
    bool heard;
    test_node *seed;
    teff_err err;
    char text[TEFF_TEXT_MAX];
} t;

/* A whole handshake at another listener: nng has come by what it knew of before. */
static void greet_another(void)
{
    test_node *other = test_node_start((test_options){0});
    teffi_greeting g = raw_greeting(902, 1, 1);
    raw_peer *raw = raw_connect(other->address);
    assert_true(raw_join(raw, &g));
    test_wait(other, other->ups == 1);
    raw_close(raw);
    test_node_stop(other);
}

/* In the middle of a start: the silo has its port, and no store. */
static teff_err open_store(const teffi_platform *platform, const char *address,
                           struct teffi_store **store, char *text)
{
    teffi_greeting g = raw_greeting(901, 1, 1);
    t.early = raw_connect(t.silo->bound);
    assert_true(raw_send_greeting(t.early, &g));
    struct pollfd p = {t.early->fd, POLLIN, 0};
    greet_another();
    t.heard = poll(&p, 1, 0) != 0 || test_counters(t.silo->node.home.net).accepted;
    return teffi_store_open(address, store, text);
}

static void who_connects_early_waits_for_all_parts(void **state)
{
    teff_silo_options opt = {.size = sizeof opt, .cluster = "test", .workers = 2};
    teffi_platform platform;
    teffi_greeting answer;
    uint8_t payload[64];
    memset(&t, 0, sizeof t);
    teffi_silo_init_platform(&platform, TEFF_LOG_WARN);
    platform.store_open = open_store;
    assert_int_equal(teffi_silo_new_on_platform(&platform, &opt, &t.silo, t.text), TEFF_OK);
    lab_host_all(t.silo, &t.record);
    assert_int_equal(teff_silo_start(t.silo, t.text), TEFF_OK);
    assert_false(t.heard);
    assert_true(raw_read_hello(t.early, &answer));
    assert_true(raw_send_frame(t.early, TEFFI_FRAME_ACK, payload, raw_ack(&answer, payload)));
    raw_close(t.early);
    teff_silo_free(t.silo);
}

static void *start(void *arg)
{
    t.err = teff_silo_start(t.silo, t.text);
    return NULL;
}

static teffi_greeting client_greeting(uint32_t id)
{
    teffi_greeting g = raw_greeting(id | TEFFI_CLIENT_BIT, 1, 1);
    g.hello.role = TEFFI_ROLE_CLIENT;
    g.hello.address[0] = '\0';
    return g;
}

static void is_refused(const char *address, teffi_greeting g, const char *why)
{
    raw_peer *raw = raw_connect(address);
    assert_false(raw_join(raw, &g));
    assert_true(raw_refused(raw, why));
    raw_close(raw);
}

/* Whoever says that it is the seed may connect, and its requests are refused. */
static void cannot_ask(const char *address)
{
    uint8_t frame[256];
    size_t size, body;
    teffi_greeting g = raw_greeting(t.seed->id.silo, t.seed->id.incarnation, 1);
    raw_peer *raw = raw_connect(address);
    assert_true(raw_join(raw, &g));
    for (uint32_t slot = TEFFI_SLOT_GRAIN; slot <= TEFFI_SLOT_STORE; slot++) {
        teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, 7, 5);
        unsigned before = t.seed->messages;
        msg->src = t.seed->id;
        msg->to.slot = slot;
        assert_int_equal(teffi_frame_compute_size_bound(msg, sizeof frame, &size, &body), TEFF_OK);
        size = teffi_frame_encode(msg, body, 0, frame);
        teffi_msg_free(msg);
        assert_true(raw_send(raw, frame, size));
        test_wait(t.seed, t.seed->messages == before + 1); /* the response goes to the true one */
        assert_int_equal(t.seed->last->item.kind, TEFFI_MSG_RESPONSE);
        assert_int_equal(t.seed->last->err, TEFF_E_UNAVAILABLE);
    }
    raw_close(raw);
}

static void only_the_seed_connects_while_its_store_is_asked(void **state)
{
    pthread_t thread;
    memset(&t, 0, sizeof t);
    t.seed = test_node_start((test_options){.heartbeat_ms = 1000});
    teff_silo_options opt = {.size = sizeof opt,
                             .silent = 1,
                             .cluster = "test",
                             .workers = 2,
                             .seeds = {t.seed->address}};
    t.silo = lab_silo(&t.record, &opt);
    assert_int_equal(pthread_create(&thread, NULL, start, NULL), 0);
    test_wait(t.seed, t.seed->messages == 1); /* its first question, without a response */
    char address[TEFFI_ADDRESS_MAX + 1];
    memcpy(address, t.seed->last_peer.address, sizeof address);
    is_refused(address, raw_greeting(901, 1, 1), "starting");
    is_refused(address, client_greeting(77), "starting");
    cannot_ask(address);
    test_node_stop(t.seed);
    pthread_join(thread, NULL);
    assert_int_equal(t.err, TEFF_E_IO);
    teff_silo_free(t.silo);
}

/* A client's hello, answered: it may send behind its ack, which is under way. */
static raw_peer *greet(uint32_t id, teffi_greeting *answer)
{
    teffi_greeting g = client_greeting(id);
    raw_peer *raw = raw_connect(t.silo->bound);
    assert_true(raw_send_greeting(raw, &g));
    assert_true(raw_read_hello(raw, answer));
    return raw;
}

static void a_leaving_silo_waits_for_the_clients_it_has_let_in(void **state)
{
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .cluster = "test", .workers = 2};
    teffi_greeting answer, ignored;
    uint8_t payload[64];
    memset(&t, 0, sizeof t);
    t.silo = lab_silo(&t.record, &opt);
    assert_int_equal(teff_silo_start(t.silo, t.text), TEFF_OK);
    teff_ctx *ctx = teff_silo_new_ctx(t.silo);
    raw_peer *slow = greet(77, &answer), *gone = greet(78, &ignored);
    lab_fails(ctx, teffi_silo_leave(ctx, t.silo, 0), TEFF_E_TIMEOUT);
    assert_string_equal(teff_error(ctx), "calls did not end in time");
    is_refused(t.silo->bound, client_greeting(79), "leaving");
    assert_true(raw_send_frame(slow, TEFFI_FRAME_ACK, payload, raw_ack(&answer, payload)));
    assert_int_equal(raw_read(slow), TEFFI_MSG_ONEWAY); /* told to go elsewhere */
    raw_close(slow);
    raw_close(gone);
    teff_ctx_free(ctx);
    assert_int_equal(teff_silo_stop(t.silo, 0), TEFF_OK);
    teff_silo_free(t.silo);
}

/* ---- no memory to list a client ---- */

static _Thread_local bool refuses_memory;

void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);

void *__wrap_realloc(void *p, size_t n)
{
    return refuses_memory ? NULL : __real_realloc(p, n);
}

static void report_client(uint32_t id, bool up)
{
    teffi_greeting g = client_greeting(id);
    if (up)
        t.silo->node.net_up(&t.silo->node, &g.hello);
    else
        t.silo->node.net_down(&t.silo->node, &g.hello, false);
}

/* Otherwise it would not learn that the silo leaves. */
static void a_client_that_cannot_be_listed_is_disconnected(void **state)
{
    enum { CONNECTED = 77, OTHERS = 1000 };
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .cluster = "test", .workers = 2};
    teffi_greeting g = client_greeting(CONNECTED);
    uint32_t listed = 0;
    memset(&t, 0, sizeof t);
    t.silo = lab_silo(&t.record, &opt);
    assert_int_equal(teff_silo_start(t.silo, t.text), TEFF_OK);
    raw_peer *raw = raw_connect(t.silo->bound);
    assert_true(raw_join(raw, &g));
    lab_until(!atomic_load(&t.silo->node.greeting));
    while (t.silo->n_clients < t.silo->clients_max)
        report_client(OTHERS + listed++, true);
    refuses_memory = true;
    report_client(CONNECTED, true);
    refuses_memory = false;
    assert_true(raw_ended(raw));
    assert_int_equal(test_counters(t.silo->node.home.net).silent, 0);
    while (listed)
        report_client(OTHERS + --listed, false);
    raw_close(raw);
    assert_int_equal(teff_silo_stop(t.silo, 0), TEFF_OK);
    teff_silo_free(t.silo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_connects_early_waits_for_all_parts),
        cmocka_unit_test(only_the_seed_connects_while_its_store_is_asked),
        cmocka_unit_test(a_leaving_silo_waits_for_the_clients_it_has_let_in),
        cmocka_unit_test(a_client_that_cannot_be_listed_is_disconnected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
