/* test_call_table.c - entries of pending calls: each its own slot, found by it, and used again by
 * whichever thread needs one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "node/call.h"
#include "node/node.h"
#include "platform/thread.h"

static teffi_node node;
static teffi_call_table table;

static uint64_t mono_ns(void *arg)
{
    (void)arg;
    return 1;
}

/* It never fires: test_call_trim.c. */
static void timer_set(teffi_exec *exec, teffi_timer *timer, uint64_t due_ns)
{
    (void)exec;
    (void)timer;
    (void)due_ns;
}

static int setup(void **state)
{
    static const teffi_exec_ops ops = {.timer_set = timer_set};
    static teffi_platform platform = {.mono_ns = mono_ns};
    static teffi_exec exec = {.ops = &ops, .platform = &platform};
    (void)state;
    node.exec = &exec;
    teffi_call_table_init(&table, &node);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    teffi_call_table_fini(&table);
    return 0;
}

static uint32_t used(void)
{
    return teffi_call_blocks(&table.space) * TEFFI_CALL_BLOCK;
}

static void slots_are_found(void **state)
{
    enum { N = 300000 }; /* nine segments */
    bool *seen = calloc(N + TEFFI_CALL_BLOCK, sizeof *seen);
    (void)state;
    assert_null(teffi_call_at(&table.space, 0));
    for (int i = 0; i < N; i++) {
        teffi_call *call = teffi_call_get(&table);
        assert_non_null(call);
        assert_true(call->slot < N + TEFFI_CALL_BLOCK && !seen[call->slot]);
        assert_ptr_equal(teffi_call_at(&table.space, call->slot), call);
        assert_int_equal((uintptr_t)call % 64, 0);
        seen[call->slot] = true;
    }
    for (uint32_t b = 0; b < teffi_call_blocks(&table.space); b++)
        assert_int_equal(teffi_call_block_at(&table.space, b).calls->slot, b * TEFFI_CALL_BLOCK);
    assert_true(used() < N + TEFFI_CALL_BLOCK);
    assert_null(teffi_call_at(&table.space, used()));
    assert_null(teffi_call_at(&table.space, UINT32_MAX));
    free(seen);
}

static void what_was_given_back_last_comes_first(void **state)
{
    teffi_call *calls[1000];
    (void)state;
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 1000; i++)
            calls[i] = teffi_call_get(&table);
        for (int i = 0; i < 1000; i++)
            teffi_call_put(&table, calls[i]);
        assert_ptr_equal(teffi_call_get(&table), calls[999]);
        teffi_call_put(&table, calls[999]);
    }
    assert_int_equal(used(), 1024);
}

/* ---- threads ---- */

enum { CALLERS = TEFFI_LANES + 8, EACH = 100, ROUNDS = 5 };

typedef struct user {
    pthread_t thread;
    uint64_t sum;
} user;

static pthread_barrier_t all;
static uint8_t holders[(CALLERS + 2) * (EACH + 2 * TEFFI_CALL_BLOCK)]; /* a plain mark by slot */

static void *use(void *arg)
{
    user *u = arg;
    teffi_call *calls[EACH];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < EACH; i++) {
            calls[i] = teffi_call_get(&table);
            u->sum += calls[i] && !holders[calls[i]->slot]++;
        }
        (void)pthread_barrier_wait(&all);
        for (int i = 0; i < EACH; i++) {
            holders[calls[i]->slot]--;
            teffi_call_put(&table, calls[i]);
        }
        (void)pthread_barrier_wait(&all);
    }
    return NULL;
}

/* Some of them have no lane. What they mark without a lock is each one's own. */
static void more_threads_than_lanes(void **state)
{
    static user users[CALLERS];
    (void)state;
    assert_int_equal(pthread_barrier_init(&all, NULL, CALLERS), 0);
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&users[i].thread, NULL, use, &users[i]), 0);
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(users[i].thread, NULL);
        assert_int_equal(users[i].sum, EACH * ROUNDS);
    }
    assert_true(used() <= CALLERS * 2 * TEFFI_CALL_BLOCK + TEFFI_CALL_BLOCK);
    (void)pthread_barrier_destroy(&all);
}

/* One thread takes, another gives back: batches go round. */
enum { ROUND_TRIPS = 200000, WINDOW = 256 };

static teffi_call *_Atomic window[WINDOW];

static void *give_back(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUND_TRIPS; i++) {
        teffi_call *call;
        while (!(call = atomic_exchange(&window[i % WINDOW], NULL)))
            teffi_thread_yield();
        teffi_call_put(&table, call);
    }
    return NULL;
}

static void one_takes_and_another_gives_back(void **state)
{
    pthread_t other;
    (void)state;
    assert_int_equal(pthread_create(&other, NULL, give_back, NULL), 0);
    for (int i = 0; i < ROUND_TRIPS; i++) {
        teffi_call *call = teffi_call_get(&table), *none = NULL;
        while (!atomic_compare_exchange_weak(&window[i % WINDOW], &none, call)) {
            none = NULL;
            teffi_thread_yield();
        }
    }
    pthread_join(other, NULL);
    assert_true(used() <= WINDOW + 6 * TEFFI_CALL_BLOCK);
}

int main(void)
{
#define TABLE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TABLE(slots_are_found),
        TABLE(what_was_given_back_last_comes_first),
        TABLE(more_threads_than_lanes),
        TABLE(one_takes_and_another_gives_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
