/* test_polling.c - who polls: exactly one thread does while others wait, and the one that leaves
 * hands on. The poller is a stand-in that the test wakes. */
#include "net_test.h"

#include <stdlib.h>
#include <string.h>
#include "link/conn/connection.h"

/* A poller whose events are the test's. */
typedef struct fake {
    teffi_poller poller;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned woken;                 /* guarded by lock; a wake or an event is kept */
    teffi_parker *_Atomic response; /* run leaves its token */
    _Atomic unsigned inside, overlaps;
    void (*look)(void); /* inside a wait without time */
} fake;

typedef struct waiting {
    teffi_poll_parker parker;
    pthread_t id;
    _Atomic unsigned left;
} waiting;

static fake poller;
static teffi_conns conns;
static waiting first, second;

static void wait_for_wake(teffi_poller *p, uint64_t timeout_ns)
{
    poller.overlaps += poller.inside++ > 0;
    if (!timeout_ns && poller.look)
        poller.look();
    pthread_mutex_lock(&poller.lock);
    while (timeout_ns && !poller.woken)
        pthread_cond_wait(&poller.changed, &poller.lock);
    poller.woken = 0;
    pthread_mutex_unlock(&poller.lock);
    poller.inside--;
}

static bool run_response(teffi_poller *p)
{
    teffi_parker *to = atomic_exchange(&poller.response, NULL);
    if (to)
        teffi_parker_wake_with_token(to, TEFFI_TOKEN);
    return to;
}

static void wake_fake(teffi_poller *p)
{
    pthread_mutex_lock(&poller.lock);
    poller.woken++;
    pthread_cond_broadcast(&poller.changed);
    pthread_mutex_unlock(&poller.lock);
}

static int set_up(void **state)
{
    memset(&poller, 0, sizeof poller);
    memset(&conns, 0, sizeof conns);
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    pthread_mutex_init(&poller.lock, NULL);
    pthread_cond_init(&poller.changed, NULL);
    poller.poller = (teffi_poller){.wait = wait_for_wake, .run = run_response, .wake = wake_fake};
    conns.role = TEFFI_ROLE_CLIENT;
    teffi_conns_init(&conns);
    teffi_polling_init(&conns, &poller.poller);
    conns.polling.by_ticker = false;
    return 0;
}

static int tear_down(void **state)
{
    teffi_polling_fini(&conns);
    teffi_conns_fini(&conns);
    return poller.overlaps ? -1 : 0;
}

static void *wait_in_link(void *arg)
{
    waiting *me = arg;
    uint32_t tokens = teffi_polling_wait(&conns, &me->parker);
    me->left = tokens & TEFFI_TOKEN ? 1 : 2;
    return NULL;
}

static void begin_wait(waiting *w)
{
    if (pthread_create(&w->id, NULL, wait_in_link, w))
        abort();
}

static void end_wait(waiting *w)
{
    pthread_join(w->id, NULL);
    assert_int_equal(w->left, 1);
}

#define await(cond)                                                                                \
    do {                                                                                           \
        uint64_t limit_ = test_deadline();                                                         \
        while (!(cond)) {                                                                          \
            if (test_now() > limit_)                                                               \
                fail_msg("waited in vain for: %s", #cond);                                         \
            teffi_thread_yield();                                                                  \
        }                                                                                          \
    } while (0)

static bool is_asleep(const waiting *w)
{
    return w->parker.parker.word == TEFFI_PARKER_ASLEEP;
}

static bool is_polling(const waiting *w)
{
    return w->parker.parker.word == TEFFI_PARKER_POLLING && poller.inside == 1;
}

static void respond(waiting *to)
{
    atomic_store(&poller.response, &to->parker.parker);
    wake_fake(&poller.poller);
}

static void start_two(void)
{
    begin_wait(&first);
    await(is_polling(&first));
    begin_wait(&second);
    await(is_asleep(&second));
}

static bool ticker_is_asked(void)
{
    return conns.ticker.asked_soon;
}

/* ---- clients' threads ---- */

static void the_thread_that_leaves_hands_on(void **state)
{
    start_two();
    respond(&first);
    end_wait(&first);
    await(is_polling(&second));
    assert_false(ticker_is_asked());
    respond(&second);
    end_wait(&second);
    assert_true(ticker_is_asked());
    assert_int_equal(poller.poller.claims, 2);
    assert_int_equal(conns.polling.waits, 2);
}

static void a_token_of_another_thread_ends_the_poll(void **state)
{
    start_two();
    teffi_parker_wake_with_token(&first.parker.parker, TEFFI_TOKEN);
    end_wait(&first);
    await(is_polling(&second));
    teffi_parker_wake_with_token(&second.parker.parker, TEFFI_TOKEN);
    end_wait(&second);
}

static void a_response_to_a_sleeper_leaves_the_poller(void **state)
{
    start_two();
    respond(&second);
    end_wait(&second);
    await(is_polling(&first));
    assert_int_equal(poller.poller.claims, 1);
    respond(&first);
    end_wait(&first);
    assert_true(TAILQ_EMPTY(&conns.polling.waiters));
}

static void a_token_before_the_wait_ends_it(void **state)
{
    teffi_parker_wake_with_token(&first.parker.parker, TEFFI_TOKEN);
    wake_fake(&poller.poller); /* the poll without time takes it */
    assert_int_equal(teffi_polling_wait(&conns, &first.parker), TEFFI_TOKEN);
    assert_false(poller.poller.claimed);
}

enum { ROUNDS = 3000 };

static void *wait_often(void *arg)
{
    waiting *me = arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        (void)teffi_polling_wait(&conns, &me->parker);
        me->left++;
    }
    return NULL;
}

/* Each thread is given its tokens by whoever polls, or by the test's thread. */
static void threads_that_come_and_go_leave_a_poller(void **state)
{
    waiting *both[] = {&first, &second};
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&both[i]->id, NULL, wait_often, both[i]), 0);
    for (unsigned n = 0; n < 2 * ROUNDS; n++) {
        waiting *w = both[n % 2];
        if (n % 6 < 4)
            respond(w);
        else
            teffi_parker_wake_with_token(&w->parker.parker, TEFFI_TOKEN);
        await(w->left == n / 2 + 1);
    }
    pthread_join(first.id, NULL);
    pthread_join(second.id, NULL);
    assert_false(poller.poller.claimed);
}

/* ---- the ticker ---- */

static void *sleep_as_ticker(void *arg)
{
    *(bool *)arg = teffi_polling_sleep_or_poll(&conns, UINT64_MAX);
    return NULL;
}

static void the_ticker_gives_the_poller_back(void **state)
{
    pthread_t ticker;
    bool came = false;
    conns.polling.by_ticker = true;
    assert_int_equal(pthread_create(&ticker, NULL, sleep_as_ticker, &came), 0);
    await(poller.inside == 1);
    begin_wait(&first);
    begin_wait(&second);
    await(is_asleep(&first) && is_asleep(&second));
    respond(&first);
    pthread_join(ticker, NULL);
    assert_true(came);
    end_wait(&first);
    await(is_polling(&second));
    assert_false(conns.polling.by_ticker);
    respond(&second);
    end_wait(&second);
}

static void the_ticker_polls_when_no_thread_has_for_a_while(void **state)
{
    assert_true(teffi_poller_poll_once(&poller.poller));
    assert_true(
        teffi_polling_move_to_ticker_if_idle(&conns)); /* somebody polled: look again soon */
    assert_false(conns.polling.by_ticker);
    assert_false(teffi_polling_move_to_ticker_if_idle(&conns));
    assert_true(conns.polling.by_ticker);
    conns.polling.by_ticker = false;
    assert_true(teffi_poller_claim(&poller.poller));
    for (unsigned i = 0; i < 3; i++)
        assert_false(teffi_polling_move_to_ticker_if_idle(&conns)); /* somebody polls */
    assert_false(conns.polling.by_ticker);
    teffi_poller_release(&poller.poller);
}

static void begin_while_the_ticker_looks(void)
{
    poller.look = NULL;
    begin_wait(&first);
    uint64_t limit = test_deadline();
    while (!is_asleep(&first) && test_now() < limit)
        teffi_thread_yield();
}

/* It begins to wait while the ticker has the poller for a moment. */
static void a_look_of_the_ticker_leaves_no_sleeper_alone(void **state)
{
    poller.look = begin_while_the_ticker_looks;
    poller.poller.neglected(&poller.poller);
    assert_true(teffi_polling_sleep_or_poll(&conns, UINT64_MAX));
    await(is_polling(&first));
    respond(&first);
    end_wait(&first);
}

/* ---- a link ---- */

static void a_client_without_waiting_threads_gets_its_responses(void **state)
{
    setenv("TEFF_TEST_REACTOR", "1", 1);
    test_node *silo = test_node_start((test_options){0});
    test_node *client = test_node_start((test_options){.role = TEFFI_ROLE_CLIENT});
    silo->echo = true;
    test_know(client, silo);
    for (uint32_t i = 1; i <= 50; i++) {
        teffi_poll_parker parker = {0};
        uint32_t tokens;
        teffi_parker_wake_with_token(&parker.parker, TEFFI_TOKEN);
        assert_true(client->net->ops->wait(client->net, &parker, &tokens)); /* comes and goes */
        test_send(client, silo, i, i % 5 ? 20 : 100000);
        test_flush(client);
        test_wait(client, client->messages == i);
    }
    test_node_stop(client);
    test_node_stop(silo);
}

static teffi_poller *polled_by_workers;

static void note_poller(teffi_exec *exec, teffi_poller *of)
{
    polled_by_workers = of;
}

/* A client's worker is idle whenever a thread waits: it would poll, and wake that thread. */
static void workers_poll_on_silos_only(void **state)
{
    static const teffi_exec_ops ops = {.poll = note_poller};
    static const uint32_t roles[] = {TEFFI_ROLE_CLIENT, TEFFI_ROLE_SILO};
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        bool silo = roles[i] == TEFFI_ROLE_SILO;
        teffi_exec exec = {.ops = &ops};
        teffi_conns of = {.role = roles[i], .exec = &exec};
        polled_by_workers = NULL;
        teffi_polling_init(&of, &poller.poller);
        teffi_polling_start(&of);
        assert_ptr_equal(polled_by_workers, silo ? &poller.poller : NULL);
        assert_int_equal(of.polling.by_ticker, !silo);
        teffi_polling_fini(&of);
    }
}

#define POLLING(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        POLLING(the_thread_that_leaves_hands_on),
        POLLING(a_token_of_another_thread_ends_the_poll),
        POLLING(a_response_to_a_sleeper_leaves_the_poller),
        POLLING(a_token_before_the_wait_ends_it),
        POLLING(threads_that_come_and_go_leave_a_poller),
        POLLING(the_ticker_gives_the_poller_back),
        POLLING(the_ticker_polls_when_no_thread_has_for_a_while),
        POLLING(a_look_of_the_ticker_leaves_no_sleeper_alone),
        cmocka_unit_test(a_client_without_waiting_threads_gets_its_responses),
        cmocka_unit_test(workers_poll_on_silos_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
