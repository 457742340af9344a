/* test_heartbeat.c - how long the ticker sleeps, and when it dials again: by the manual clock, and
 * by the times that it asks to sleep for. */
#include "net_test.h"

#include "link/link.h"
#include "raw_peer.h"

enum { MS = 1000000, LOOK_MAX_MS = 250, BACKOFF_MAX_MS = 5000, DEAD_BATCH = 16 };

static _Atomic uint64_t slept_ns; /* of the newest sleep */
static _Atomic unsigned sleeps;
static _Atomic unsigned soon; /* sleeps of LINK_SOON_NS */
static _Atomic uint64_t jitter_ns;
static _Atomic int returns_left = -1; /* of sleeps, which then last; negative: any number */
static _Atomic bool is_held;          /* the ticker sleeps, and no return is left */

bool __real_teffi_polling_sleep_or_poll(struct teffi_conns *conns, uint64_t timeout_ns);
bool __wrap_teffi_polling_sleep_or_poll(struct teffi_conns *conns, uint64_t timeout_ns);

bool __wrap_teffi_polling_sleep_or_poll(struct teffi_conns *conns, uint64_t timeout_ns)
{
    slept_ns = timeout_ns;
    sleeps++;
    soon += timeout_ns == LINK_SOON_NS;
    bool came = __real_teffi_polling_sleep_or_poll(conns, timeout_ns < MS ? timeout_ns : MS);
    while (returns_left == 0) {
        is_held = true;
        came |= __real_teffi_polling_sleep_or_poll(conns, MS);
    }
    is_held = false;
    if (returns_left > 0)
        returns_left--;
    return came;
}

static uint64_t chosen_random(void *arg)
{
    return jitter_ns;
}

static teffi_link *link_of(test_node *node)
{
    return (teffi_link *)node->net;
}

static test_node *start(uint32_t heartbeat_ms)
{
    test_clock_hold();
    test_node *node = test_node_start((test_options){.heartbeat_ms = heartbeat_ms});
    node->platform.random = chosen_random;
    return node;
}

static void stop(test_node *node)
{
    test_clock_release();
    test_node_stop(node);
}

static void four_scans_a_heartbeat_within_limits(void **state)
{
    static const uint32_t rows[][2] = {{8, 5}, {100, 25}, {400, 100}, {1000, 250}, {60000, 250}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        test_node *node = start(rows[i][0]);
        test_wait(node, slept_ns == (uint64_t)rows[i][1] * MS);
        stop(node);
    }
}

/* As deferred writes and reads do. */
static void a_request_for_soon_counts_once(void **state)
{
    test_node *node = start(60000);
    test_wait(node, slept_ns == LOOK_MAX_MS * (uint64_t)MS);
    unsigned before = soon;
    teffi_conns_ask_to_run_delayed_work(&link_of(node)->conns);
    test_wait(node, soon > before);
    test_wait(node, slept_ns == LOOK_MAX_MS * (uint64_t)MS);
    stop(node);
}

static unsigned count_dead(test_node *node)
{
    teffi_conns *conns = &link_of(node)->conns;
    pthread_mutex_lock(&conns->lock);
    unsigned n = conns->n_dead;
    pthread_mutex_unlock(&conns->lock);
    return n;
}

/* The first sleep that returns was longer; the second is the one before the delayed work. No scan
 * runs, because the clock stands. */
static void many_dead_connections_are_freed_between_scans(void **state)
{
    test_node *node = start(60000);
    _Atomic bool *asked_soon = &link_of(node)->conns.ticker.asked_soon;
    returns_left = 0;
    test_wait(node, is_held);
    for (unsigned i = 1; i <= DEAD_BATCH; i++) {
        assert_false(*asked_soon);
        raw_close(raw_connect(node->address));
        test_wait(node, count_dead(node) == i);
    }
    test_wait(node, *asked_soon);
    unsigned before = sleeps;
    returns_left = 2;
    test_wait(node, sleeps == before + 2);
    assert_int_equal(count_dead(node), 0);
    returns_left = -1;
    stop(node);
}

static teff_err shutdown_err;

static void *shut_down(void *node)
{
    teffi_net *net = ((test_node *)node)->net;
    shutdown_err = net->ops->shutdown(net, 1000);
    return NULL;
}

/* The peer hears the goodbye and does not respond. */
static void a_shutdown_is_looked_at_often_and_ends_in_time(void **state)
{
    test_node *node = start(60000);
    raw_peer *raw = raw_connect(node->address);
    teffi_greeting greeting = raw_greeting(7, 1, 1);
    pthread_t thread;
    assert_true(raw_join(raw, &greeting));
    test_wait(node, node->ups == 1);
    assert_int_equal(pthread_create(&thread, NULL, shut_down, node), 0);
    assert_int_equal(raw_read(raw), TEFFI_FRAME_BYE);
    test_wait(node, slept_ns == 5 * MS);
    test_clock_move(1001);
    pthread_join(thread, NULL);
    assert_int_equal(shutdown_err, TEFF_E_TIMEOUT);
    raw_close(raw);
    stop(node);
}

/* ---- redials ---- */

/* No program listens there, and no test gets this port as its own. */
static const char nobody[] = "127.0.0.1:1";

/* The first silo id from `from` on whose peer is in the table's first bucket. */
static uint32_t silo_of_first_bucket(test_node *node, uint32_t from)
{
    const teffi_link *link = link_of(node);
    for (teffi_node_id id = {from, 1};; id.silo++)
        if (teffi_siphash_word(&link->secret, teffi_node_to_word(id)) % LINK_BUCKETS == 0)
            return id.silo;
}

/* out: ms until the redial of a silo; 0: none is planned. */
static uint64_t redial_ms(test_node *node, uint32_t silo)
{
    teffi_link *link = link_of(node);
    pthread_mutex_lock(&link->conns.lock);
    uint64_t at_ns = teffi_peer_find(link, (teffi_node_id){silo, 1})->redial_ns;
    pthread_mutex_unlock(&link->conns.lock);
    uint64_t now_ns = node->platform.mono_ns(NULL);
    return at_ns > now_ns ? (at_ns - now_ns) / MS : 0;
}

/* Dials a silo that is not there. */
static void fail_to_dial(test_node *node, uint32_t silo)
{
    teffi_node_id id = {silo, 1};
    unsigned before = node->unsent;
    assert_int_equal(node->net->ops->peer_add(node->net, id, nobody), TEFF_OK);
    teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, 1, 1);
    assert_int_equal(node->net->ops->send(node->net, id, msg), TEFF_OK);
    test_wait(node, node->unsent == before + 1);
}

/* Planned, or under way. */
static bool will_dial(test_node *node, uint32_t silo)
{
    teffi_link *link = link_of(node);
    pthread_mutex_lock(&link->conns.lock);
    const link_peer *peer = teffi_peer_find(link, (teffi_node_id){silo, 1});
    bool is = peer->redial_ns || peer->out;
    pthread_mutex_unlock(&link->conns.lock);
    return is;
}

static void a_removed_peer_is_not_dialled_when_it_is_known_again(void **state)
{
    enum { SILO = 7 };
    const teffi_node_id id = {SILO, 1};
    for (unsigned clean = 0; clean < 2; clean++) {
        test_node *node = start(60000);
        jitter_ns = 0;
        fail_to_dial(node, SILO);
        assert_true(will_dial(node, SILO));
        node->net->ops->peer_remove(node->net, id, clean);
        assert_int_equal(node->net->ops->peer_add(node->net, id, nobody), TEFF_OK);
        assert_false(will_dial(node, SILO));
        stop(node);
    }
}

/* It connected by itself before; it hears the answer on that connection. */
static void a_peer_that_said_goodbye_is_not_dialled_again(void **state)
{
    enum { SILO = 7 };
    test_node *node = start(60000);
    teffi_greeting greeting = raw_greeting(SILO, 1, 1);
    jitter_ns = 0;
    fail_to_dial(node, SILO);
    raw_peer *raw = raw_connect(node->address);
    assert_true(raw_join(raw, &greeting));
    test_wait(node, node->ups == 1);
    assert_true(will_dial(node, SILO));
    assert_true(raw_send_frame(raw, TEFFI_FRAME_BYE, NULL, 0));
    assert_int_equal(raw_read(raw), TEFFI_FRAME_BYE_ACK);
    assert_false(will_dial(node, SILO));
    raw_close(raw);
    stop(node);
}

static void the_ticker_sleeps_until_the_next_redial(void **state)
{
    enum { PEERS = 5, STEP_MS = 2, FIRST_MS = 10 };
    test_node *node = start(60000);
    uint32_t first = silo_of_first_bucket(node, 1000);
    for (unsigned i = PEERS; i-- > 0;) {
        jitter_ns = i * STEP_MS * MS;
        fail_to_dial(node, first + i);
    }
    jitter_ns = 0;
    test_wait(node, slept_ns == FIRST_MS * MS);
    test_clock_move(FIRST_MS);
    for (unsigned i = 0; i < PEERS - 1; i++) {
        test_wait(node, test_counters(node->net).dial_failures == PEERS + i + 1);
        test_wait(node, redial_ms(node, first + i) == 2 * FIRST_MS);
        test_wait(node, slept_ns == STEP_MS * MS);
        test_clock_move(STEP_MS);
    }
    stop(node);
}

static void the_time_between_dials_doubles_to_a_limit(void **state)
{
    enum { SILO = 1000 };
    test_node *node = start(60000);
    uint64_t half_ms = 10;
    jitter_ns = 0;
    fail_to_dial(node, SILO);
    for (unsigned dials = 1; dials <= 11; dials++) {
        test_wait(node, redial_ms(node, SILO) == half_ms);
        assert_int_equal(test_counters(node->net).dials, dials);
        test_clock_move((uint32_t)half_ms);
        half_ms = 2 * half_ms < BACKOFF_MAX_MS / 2 ? 2 * half_ms : BACKOFF_MAX_MS / 2;
    }
    test_wait(node, redial_ms(node, SILO) == half_ms);
    jitter_ns = half_ms * MS - 1; /* up to twice as long */
    test_clock_move((uint32_t)half_ms);
    test_wait(node, redial_ms(node, SILO) == 2 * half_ms - 1);
    stop(node);
}

/* It would be dialled again, had it not said goodbye. */
static void a_peer_that_says_goodbye_is_not_dialled_again(void **state)
{
    enum { SILO = 70 };
    char address[32];
    jitter_ns = 0;
    for (int says_goodbye = 0; says_goodbye < 2; says_goodbye++) {
        test_node *node = start(60000);
        raw_peer *listener = raw_listen(address);
        teffi_greeting greeting = raw_greeting(SILO, 1, 0);
        teffi_net *net = node->net;
        assert_int_equal(net->ops->peer_add(net, greeting.hello.node, address), TEFF_OK);
        teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, 1, 1);
        assert_int_equal(net->ops->send(net, greeting.hello.node, msg), TEFF_OK);
        raw_peer *raw = raw_accept(listener, &greeting);
        assert_non_null(raw);
        assert_int_equal(raw_read(raw), TEFFI_MSG_REQUEST);
        if (says_goodbye) {
            assert_true(raw_send_frame(raw, TEFFI_FRAME_BYE, NULL, 0));
            assert_int_equal(raw_read(raw), TEFFI_FRAME_BYE_ACK);
        }
        raw_close(raw);
        test_wait(node, node->downs == 1);
        assert_int_equal(redial_ms(node, SILO), says_goodbye ? 0 : 10);
        raw_close(listener);
        stop(node);
    }
}

static void note_dialled(void *arg, teff_err err, const teffi_hello *remote, const char *text)
{
    *(_Atomic int *)arg = (int)err;
}

/* Somebody dialled its address meanwhile. */
static void a_connected_peer_is_not_dialled_again(void **state)
{
    enum { SILO = 71, REDIAL_MS = 10 };
    char address[32];
    _Atomic int dialled = -1;
    test_node *node = start(60000);
    raw_peer *listener = raw_listen(address);
    teffi_greeting greeting = raw_greeting(SILO, 1, 0);
    jitter_ns = 0;
    fail_to_dial(node, SILO);
    node->net->ops->dial(node->net, address, note_dialled, &dialled);
    raw_peer *raw = raw_accept(listener, &greeting);
    test_wait(node, node->ups == 1 && dialled >= 0);
    assert_int_equal(dialled, TEFF_OK);
    assert_int_equal(redial_ms(node, SILO), REDIAL_MS);
    test_clock_move(REDIAL_MS);
    unsigned before = sleeps;
    test_wait(node, sleeps > before + 2); /* a whole look is between them */
    assert_int_equal(test_counters(node->net).dials, 2);
    raw_close(raw);
    raw_close(listener);
    stop(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_scans_a_heartbeat_within_limits),
        cmocka_unit_test(a_request_for_soon_counts_once),
        cmocka_unit_test(many_dead_connections_are_freed_between_scans),
        cmocka_unit_test(a_shutdown_is_looked_at_often_and_ends_in_time),
        cmocka_unit_test(a_removed_peer_is_not_dialled_when_it_is_known_again),
        cmocka_unit_test(a_peer_that_said_goodbye_is_not_dialled_again),
        cmocka_unit_test(the_ticker_sleeps_until_the_next_redial),
        cmocka_unit_test(the_time_between_dials_doubles_to_a_limit),
        cmocka_unit_test(a_peer_that_says_goodbye_is_not_dialled_again),
        cmocka_unit_test(a_connected_peer_is_not_dialled_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
