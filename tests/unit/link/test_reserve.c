/* test_reserve.c - many clients begin large frames on a silo's port, and do not end them. */
#include "net_test.h"

#include <stdlib.h>
#include <string.h>
#include "raw_peer.h"
#include "link/link.h"

enum {
    BEAT_MS = 100,
    BODY = 60000,
    PART = 30000,
    RESERVED_MAX = 4 * 100000, /* of frames; a frame of BODY and its rounding is below 100000 */
    ADMITTED = 4,
    GREEDY = 5 * ADMITTED,
};

typedef struct port {
    test_node *silo;
    teffi_budget *budget;
    raw_peer *raw[GREEDY + 1]; /* the last one is honest */
    uint8_t *frame;
    size_t size;
} port;

static raw_peer *join(port *p, uint32_t id, uint32_t role)
{
    teffi_greeting g = raw_greeting(id, 1, 1);
    unsigned ups = p->silo->ups;
    raw_peer *raw = raw_connect(p->silo->address);
    g.hello.role = role;
    if (role == TEFFI_ROLE_CLIENT) {
        g.hello.node.silo |= TEFFI_CLIENT_BIT;
        g.hello.address[0] = '\0';
    }
    assert_true(raw_join(raw, &g));
    test_wait(p->silo, p->silo->ups == ups + 1);
    return raw;
}

static void make_frame(port *p)
{
    size_t body;
    teffi_msg *msg = test_message(TEFFI_MSG_ONEWAY, 0, BODY);
    assert_int_equal(teffi_frame_compute_size_bound(msg, 2 * BODY, &p->size, &body), TEFF_OK);
    p->frame = malloc(p->size);
    assert_non_null(p->frame);
    p->size = teffi_frame_encode(msg, body, 0, p->frame);
    teffi_msg_free(msg);
}

static int set_up(void **state)
{
    port *p = calloc(1, sizeof *p);
    test_clock_hold();
    p->budget = aligned_alloc(_Alignof(teffi_budget), sizeof *p->budget);
    teffi_budget_init(p->budget, (size_t)RESERVED_MAX * LINK_RESERVE_SHARE);
    p->silo = test_node_start((test_options){.heartbeat_ms = BEAT_MS, .budget = p->budget});
    make_frame(p);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    port *p = *state;
    for (unsigned i = 0; i <= GREEDY; i++)
        if (p->raw[i])
            raw_close(p->raw[i]);
    test_node_stop(p->silo);
    test_clock_release();
    free(p->budget);
    free(p->frame);
    free(p);
    return 0;
}

/* What the silo has of memory for clients' frames. */
static conn_reserve reserve_of(port *p)
{
    teffi_link *link = (teffi_link *)p->silo->net;
    pthread_mutex_lock(&link->conns.reserve.lock);
    conn_reserve r = link->conns.reserve;
    pthread_mutex_unlock(&link->conns.reserve.lock);
    return r;
}

/* out: the most that the buffers of all connections together may have by now. */
static uint64_t read_at_most(void)
{
    uint64_t hellos = (GREEDY + 1) * (uint64_t)1024,
             first = GREEDY * (LINK_LARGE + LINK_READ_BUFFER_MIN);
    return hellos + first + ADMITTED * (uint64_t)PART;
}

/* Each has begun a frame; as many as there is room for are read on. */
static void begin_frames(port *p)
{
    for (unsigned i = 0; i < GREEDY; i++) {
        p->raw[i] = join(p, 1000 + i, TEFFI_ROLE_CLIENT);
        assert_true(raw_send(p->raw[i], p->frame, PART));
        if (i < ADMITTED)
            test_wait(p->silo, reserve_of(p).frames_bytes >= (i + 1) * (size_t)BODY);
        else
            test_wait(p->silo, test_counters(p->silo->net).frames_waited == i + 1 - ADMITTED);
    }
}

static void unfinished_frames_are_limited_together(void **state)
{
    port *p = *state;
    begin_frames(p);
    conn_reserve r = reserve_of(p);
    assert_in_range(r.frames_bytes, ADMITTED * BODY, RESERVED_MAX);
    assert_in_range(r.spare_bytes, 0, RESERVED_MAX);
    assert_in_range(test_counters(p->silo->net).bytes_in, 1, read_at_most());
    /* who sends small ones, and silos, are read as ever */
    p->raw[GREEDY] = join(p, 2000, TEFFI_ROLE_SILO);
    assert_true(raw_send(p->raw[GREEDY], p->frame, p->size));
    test_wait(p->silo, p->silo->messages == 1);
    assert_int_equal(p->silo->downs, 0);
}

/* All that wait can finish, in their order. */
static void frames_are_read_when_others_are_whole(void **state)
{
    port *p = *state;
    begin_frames(p);
    for (unsigned i = 0; i < GREEDY; i++) {
        assert_true(raw_send(p->raw[i], p->frame + PART, p->size - PART));
        test_wait(p->silo, p->silo->messages == i + 1);
        assert_int_equal(test_last_peer(p->silo).node.silo, (1000 + i) | TEFFI_CLIENT_BIT);
    }
    test_wait(p->silo, reserve_of(p).frames_bytes == 0);
    assert_int_equal(p->silo->downs, 0);
}

/* Those that do not go on are closed in time, those that only wait are not. */
static void an_honest_client_gets_through(void **state)
{
    port *p = *state;
    begin_frames(p);
    raw_peer *honest = p->raw[GREEDY] = join(p, 2000, TEFFI_ROLE_CLIENT);
    assert_true(raw_send(honest, p->frame, p->size));
    test_wait(p->silo, test_counters(p->silo->net).frames_waited == GREEDY - ADMITTED + 1);
    uint64_t limit = test_deadline();
    pthread_mutex_lock(&p->silo->lock);
    /* by then one of the last group has gone, so that the honest one is next */
    while (p->silo->downs < GREEDY - ADMITTED + 1 && test_pause(p->silo, limit))
        test_clock_move(BEAT_MS / 2);
    pthread_mutex_unlock(&p->silo->lock);
    test_wait(p->silo, p->silo->messages == 1);       /* nobody else sends a whole one */
    assert_true(raw_send(honest, p->frame, p->size)); /* and again */
    test_wait(p->silo, p->silo->messages == 2);
    assert_in_range(p->silo->downs, GREEDY - ADMITTED + 1, GREEDY);
}

/* A waiting client that has left is noticed when a heartbeat is sent to it. */
static void a_client_that_leaves_while_waiting_is_disconnected(void **state)
{
    port *p = *state;
    begin_frames(p);
    for (unsigned i = ADMITTED; i < GREEDY; i++) {
        raw_close(p->raw[i]);
        p->raw[i] = NULL;
    }
    uint64_t limit = test_deadline();
    pthread_mutex_lock(&p->silo->lock);
    while (p->silo->downs < GREEDY && test_pause(p->silo, limit))
        test_clock_move(BEAT_MS / 2);
    pthread_mutex_unlock(&p->silo->lock);
    assert_int_equal(p->silo->downs, GREEDY);
    test_wait(p->silo, reserve_of(p).frames_bytes == 0 && reserve_of(p).spare_bytes == 0);
}

/* out: *held, of their buffers, when no reader is at one of them. */
static bool all_are_read(port *p, size_t *held)
{
    teffi_link *link = (teffi_link *)p->silo->net;
    bool all = true;
    *held = 0;
    pthread_mutex_lock(&link->conns.lock);
    for (teffi_conn *c = LIST_FIRST(&link->conns.all); c && all; c = LIST_NEXT(c, link)) {
        all = c->liveness.receiving_since_ns != 0;
        *held += all ? c->receiver.buffer.cap : 0;
    }
    pthread_mutex_unlock(&link->conns.lock);
    return all;
}

/* Large ones that came leave buffers of their size for the next ones: these are limited, too. */
static void buffers_of_idle_clients_are_limited(void **state)
{
    port *p = *state;
    for (unsigned i = 0; i < GREEDY; i++) {
        p->raw[i] = join(p, 1000 + i, TEFFI_ROLE_CLIENT);
        for (unsigned n = 1; n <= 2; n++) {
            assert_true(raw_send(p->raw[i], p->frame, p->size));
            test_wait(p->silo, p->silo->messages == 2 * i + n);
        }
    }
    size_t held = 0;
    test_wait(p->silo, all_are_read(p, &held));
    assert_in_range(held, 1, RESERVED_MAX + GREEDY * (LINK_LARGE + LINK_READ_BUFFER_MIN));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(unfinished_frames_are_limited_together, set_up, tear_down),
        cmocka_unit_test_setup_teardown(frames_are_read_when_others_are_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_honest_client_gets_through, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_client_that_leaves_while_waiting_is_disconnected, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(buffers_of_idle_clients_are_limited, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
