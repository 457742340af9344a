/* test_client_reader.c - a client's waiting threads read for themselves: a waiting thread reports
 * what it read; a busy thread holds no responses back; no thread sleeps beside a deferred read;
 * connections and links end while threads wait. */
#include "net_test.h"

#include <string.h>
#include "link/steps.h"

enum { LONG = 4 * LINK_READ_SHORT, ROUNDS = 300, IN_FLIGHT = 64, THREADS = 2 };

/* A thread that waits; its responses bear its number above their own. */
typedef struct waiter {
    teffi_poll_parker parker;
    _Atomic uint32_t awaited; /* responses */
    test_node *client, *silo;
    pthread_t id;
    uint64_t rng;
    uint32_t number;
    bool told_here; /* the last response */
} waiter;

static waiter waiters[THREADS];

/* What went wrong on threads that no assertion may leave; nothing_wrong() says so. */
static _Atomic unsigned refused, unsent, beside, awake, reading;

static void nothing_wrong(void)
{
    assert_int_equal(refused, 0);
    assert_int_equal(unsent, 0);
    assert_int_equal(beside, 0);
    assert_int_equal(awake, 0);
    assert_int_equal(reading, 0);
}

static uint32_t slot_of(const waiter *w, uint32_t n)
{
    return w->number << 24 | (n + 1);
}

static void tell(test_node *node, const teffi_msg *msg)
{
    waiter *w = &waiters[msg->call.slot >> 24];
    w->told_here = pthread_equal(pthread_self(), w->id);
    if (msg->item.kind == TEFFI_MSG_RESPONSE && --w->awaited == 0)
        teffi_parker_wake_with_token(&w->parker.parker, TEFFI_TOKEN);
}

static void tell_end(test_node *node)
{
    teffi_parker_wake_with_token(&waiters[0].parker.parker, TEFFI_TOKEN);
}

static void await(waiter *w)
{
    teffi_net *net = w->client->net;
    uint32_t tokens = 0;
    while (!(tokens & TEFFI_TOKEN)) {
        if (!net->ops->wait(net, &w->parker, &tokens)) {
            refused++;
            return;
        }
        tokens |= teffi_parker_wait_for_tokens(&w->parker.parker, 0);
    }
    reading += teffi_client_reader_is_this_thread(); /* only while it waits */
}

static void ask(waiter *w, uint32_t n, size_t bytes)
{
    w->awaited++;
    test_send(w->client, w->silo, slot_of(w, n), bytes);
}

/* A client that is connected to a silo that responds to all. in: heartbeat_ms, 0: the default. */
static void connect_beating(test_node **client, test_node **silo, uint32_t heartbeat_ms)
{
    test_node *c =
        test_node_start((test_options){.role = TEFFI_ROLE_CLIENT, .heartbeat_ms = heartbeat_ms});
    test_node *s = test_node_start((test_options){.heartbeat_ms = heartbeat_ms});
    s->echo = true;
    test_know(c, s);
    test_send(c, s, 1, 1);
    test_wait(c, c->messages == 1);
    pthread_mutex_lock(&c->lock); /* the connection may break already */
    memset(waiters, 0, sizeof waiters);
    for (uint32_t i = 0; i < THREADS; i++)
        waiters[i] = (waiter){.client = c, .silo = s, .number = i, .rng = i + 1};
    waiters[0].id = pthread_self();
    c->look = tell;
    c->lost = tell_end;
    pthread_mutex_unlock(&c->lock);
    *client = c;
    *silo = s;
}

static void connect(test_node **client, test_node **silo)
{
    connect_beating(client, silo, 0);
}

static void disconnect(test_node *a, test_node *b)
{
    nothing_wrong();
    test_node_stop(a);
    test_node_stop(b);
}

static void set_hold(test_node *node, bool hold)
{
    pthread_mutex_lock(&node->lock);
    node->hold = hold;
    pthread_cond_broadcast(&node->changed);
    pthread_mutex_unlock(&node->lock);
}

/* Or in the poller. */
static bool is_asleep(const waiter *w)
{
    uint32_t word = atomic_load(&w->parker.parker.word);
    return word == TEFFI_PARKER_ASLEEP || word == TEFFI_PARKER_POLLING;
}

static void until_asleep(void)
{
    uint64_t limit = test_deadline();
    while (!is_asleep(&waiters[0])) {
        if (test_now() >= limit) {
            awake++;
            return;
        }
        teffi_thread_yield();
    }
}

static void *let_silo_respond(void *silo)
{
    until_asleep();
    set_hold(silo, false);
    return NULL;
}

static void *stop(void *silo)
{
    until_asleep();
    test_node_stop(silo);
    return NULL;
}

/* The next read is this thread's, then: deferred. */
static void read_much(uint32_t n)
{
    ask(&waiters[0], n, LONG);
    await(&waiters[0]);
}

/* out: was the response told on this thread? */
static bool ask_and_wait_asleep(test_node *silo, uint32_t n)
{
    pthread_t helper;
    set_hold(silo, true);
    ask(&waiters[0], n, 4);
    assert_int_equal(pthread_create(&helper, NULL, let_silo_respond, silo), 0);
    await(&waiters[0]);
    pthread_join(helper, NULL);
    nothing_wrong();
    return waiters[0].told_here;
}

/* Beside the responses nothing comes: a thread that has read a heartbeat may get no more until it
 * waits again. At first the transport's thread may still report what came while connecting, and a
 * thread that reports goes on with what comes meanwhile. With the reactor the ticker polls while
 * nobody waits, so it may be the one that is polling when the thread begins to wait. */
static void a_waiting_thread_reports_its_responses(void **state)
{
    enum { TRIES = 50 };
    test_node *client, *silo;
    uint64_t limit = test_deadline();
    uint32_t n = 0, by_others = 0;
    connect_beating(&client, &silo, 60000);
    while (!ask_and_wait_asleep(silo, n++))
        assert_true(test_now() < limit);
    for (uint32_t i = 0; i < TRIES; i++)
        by_others += !ask_and_wait_asleep(silo, n++);
    assert_in_range(by_others, 0, test_transport() == TEFFI_TRANSPORT_NNG ? 0 : TRIES / 2);
    disconnect(client, silo);
}

static void a_silo_has_no_readers(void **state)
{
    uint32_t tokens;
    test_node *silo = test_node_start((test_options){0});
    assert_false(silo->net->ops->wait(silo->net, &waiters[0].parker, &tokens));
    test_node_stop(silo);
}

/* No thread waits in the link. */
static void a_busy_thread_holds_no_responses_back(void **state)
{
    test_node *client, *silo;
    connect(&client, &silo);
    for (uint32_t i = 0; i < 50; i++) {
        read_much(i);
        unsigned before = client->messages;
        ask(&waiters[0], 1000 + i, i % 2 ? LONG : 4);
        test_wait(client, client->messages == before + 1);
        assert_int_equal(teffi_parker_wait_for_tokens(&waiters[0].parker.parker, 0), TEFFI_TOKEN);
    }
    disconnect(client, silo);
}

/* As teffi_driver_wait() after the sleep. */
static void end_wait(teffi_link *link, client_reader *reader, uint32_t tokens)
{
    teffi_conn *given = teffi_client_reader_withdraw_or_take_conn(&link->conns, reader, &tokens);
    if (given)
        teffi_driver_handle_frames_and_read(given);
    teffi_client_reader_end(&link->conns);
}

/* A long message that the thread does not wait for. With the reactor no thread defers reads. */
static void no_thread_sleeps_beside_deferred_reads(void **state)
{
    test_node *client, *silo;
    if (test_transport() == TEFFI_TRANSPORT_REACTOR)
        skip();
    connect(&client, &silo);
    teffi_link *link = (teffi_link *)client->net;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        client_reader reader = {.parker = &waiters[0].parker.parker};
        read_much(i);
        uint64_t before = test_counters(silo->net).bytes_out;
        test_send(silo, client, slot_of(&waiters[0], 1000 + i), LONG);
        test_flush(silo);
        test_wait(silo, test_counters(silo->net).bytes_out > before + LONG);
        assert_true(teffi_client_reader_begin(&link->conns, &reader));
        assert_null(link->conns.readers.reads);
        end_wait(link, &reader, teffi_parker_wait_for_tokens(&waiters[0].parker.parker, 0));
    }
    disconnect(client, silo);
}

static void compute(waiter *w)
{
    w->rng = w->rng * 6364136223846793005u + 1442695040888963407u;
    for (uint64_t i = w->rng >> (w->rng >> 60 ? 52 : 44); i > 0; i--)
        teffi_cpu_relax();
}

static void *ask_and_await(void *arg)
{
    waiter *w = arg;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        atomic_store(&w->awaited, IN_FLIGHT + 1);
        for (uint32_t k = 0; k < IN_FLIGHT; k++)
            unsent += !test_sent(w->client, w->silo, slot_of(w, i * IN_FLIGHT + k), 20 + k);
        if (unsent) /* or it would wait for its response */
            break;
        if (--w->awaited)
            await(w);
        else
            beside += teffi_parker_wait_for_tokens(&w->parker.parker, 0) != 0;
        beside += w->awaited != 0;
        compute(w);
    }
    return NULL;
}

static void threads_together_get_all(void **state)
{
    test_node *client, *silo;
    pthread_t threads[THREADS];
    connect(&client, &silo);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_and_await, &waiters[i]), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    nothing_wrong();
    assert_int_equal(client->messages, 1 + THREADS * ROUNDS * IN_FLIGHT);
    assert_null(((teffi_link *)client->net)->conns.readers.known);
    assert_int_equal(((teffi_link *)client->net)->conns.readers.waiting, 0);
    disconnect(client, silo);
}

static void a_connection_breaks_while_a_thread_waits(void **state)
{
    for (uint32_t i = 0; i < 10; i++) {
        test_node *client, *silo;
        pthread_t helper;
        connect(&client, &silo);
        if (i % 2)
            read_much(i);
        assert_int_equal(pthread_create(&helper, NULL, stop, silo), 0);
        await(&waiters[0]);
        pthread_join(helper, NULL);
        nothing_wrong();
        assert_int_equal(client->downs, 1);
        test_node_stop(client);
    }
}

/* No thread waits; or a thread begins to wait after the connection has broken. */
static void a_connection_breaks_while_its_read_is_deferred(void **state)
{
    for (uint32_t i = 0; i < 10; i++) {
        test_node *client, *silo;
        connect(&client, &silo);
        read_much(i);
        test_node_stop(silo);
        if (i % 2)
            await(&waiters[0]);
        test_wait(client, client->downs == 1);
        test_node_stop(client);
    }
}

static void a_link_ends_with_deferred_reads(void **state)
{
    for (uint32_t i = 0; i < 20; i++) {
        test_node *client, *silo;
        connect(&client, &silo);
        read_much(i);
        if (i % 2)
            disconnect(client, silo);
        else
            disconnect(silo, client);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_waiting_thread_reports_its_responses),
        cmocka_unit_test(a_silo_has_no_readers),
        cmocka_unit_test(a_busy_thread_holds_no_responses_back),
        cmocka_unit_test(no_thread_sleeps_beside_deferred_reads),
        cmocka_unit_test(threads_together_get_all),
        cmocka_unit_test(a_connection_breaks_while_a_thread_waits),
        cmocka_unit_test(a_connection_breaks_while_its_read_is_deferred),
        cmocka_unit_test(a_link_ends_with_deferred_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
