/* test_async.c - calls under way: with options, awaited one of many, polled in an event loop,
 * cancelled; from turns, threads of a silo and clients, to the same silo and another one. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "acts.h"
#include "call/call.h"

enum { N = 3 };

static teff_cancel *cancel;
static teff_call_options given = {.size = sizeof given};

static int setup(void **state)
{
    cancel = teff_cancel_new();
    given = (teff_call_options){.size = sizeof given, .cancel = cancel};
    return cancel ? acts_setup(state) : -1;
}

static int teardown(void **state)
{
    int failed = acts_teardown(state);
    teff_cancel_free(cancel);
    return failed;
}

/* N calls of grains that wait for the gate, and one that responds, at the index last. */
static void begin_calls(teff_ctx *from, teff_call *calls, size_t last)
{
    for (size_t i = 0; i <= N; i++)
        lab_ok(from, direct_actor_obey_async(from, FIRST + (int64_t)i,
                                             i == last ? ACT(responds, .n = 7) : RUN(waits), NULL,
                                             &calls[i]));
}

static void open_gate(void)
{
    atomic_store(&world.gate, true);
}

static void check_any(teff_ctx *from, size_t last)
{
    teff_call calls[N + 1];
    direct_number *got;
    size_t index = 99;
    atomic_store(&world.gate, false);
    begin_calls(from, calls, last);
    lab_ok(from, teff_await_any(from, calls, N + 1, &index));
    assert_int_equal(index, last);
    lab_ok(from, direct_actor_obey_await(from, calls[index], &got));
    assert_int_equal(got->n, 8);
    calls[index] = (teff_call){0};
    open_gate();
    for (int left = N; left > 0; left--) {
        lab_ok(from, teff_await_any(from, calls, N + 1, &index));
        assert_true(teff_call_ended(from, calls[index]));
        lab_ok(from, direct_actor_obey_await(from, calls[index], &got));
        calls[index] = (teff_call){0};
    }
    lab_fails(from, teff_await_any(from, calls, N + 1, &index), TEFF_E_INVALID);
    lab_fails(from, teff_await_any(from, NULL, 0, &index), TEFF_E_INVALID);
}

static void any_of_a_threads_calls(void **state)
{
    (void)state;
    for (size_t last = 0; last <= N; last++)
        check_any(ctx, last);
}

static void await_first(teff_ctx *turn, size_t first)
{
    teff_call calls[2];
    direct_number *got;
    size_t index;
    atomic_store(&world.gate, false);
    for (size_t i = 0; i < 2; i++)
        lab_ok(turn, i == first
                         ? direct_actor_obey_async(turn, FIRST, RUN(sleeps), NULL, &calls[i])
                         : direct_actor_obey_async(turn, FIRST + 1, RUN(waits), NULL, &calls[i]));
    lab_ok(turn, teff_await_any(turn, calls, 2, &index));
    assert_int_equal(index, first);
    lab_ok(turn, direct_actor_obey_await(turn, calls[first], &got));
    assert_false(teff_call_ended(turn, calls[!first]));
    open_gate();
    calls[first] = (teff_call){0};
    lab_ok(turn, teff_await_any(turn, calls, 2, &index));
    assert_int_equal(index, !first);
    lab_ok(turn, direct_actor_obey_await(turn, calls[!first], &got));
}

static teff_err awaits_any(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    await_first(turn, 0);
    await_first(turn, 1);
    out->n = in->n;
    return TEFF_OK;
}

static void any_of_a_turns_calls(void **state)
{
    direct_number *got;
    (void)state;
    lab_ok(ctx, direct_actor_obey(ctx, 1, RUN(awaits_any), &got));
}

/* Signals come from other threads while the first of them wakes this one. */
static void any_of_many_calls_again_and_again(void **state)
{
    (void)state;
    for (int round = 0; round < 300; round++) {
        teff_call calls[8];
        size_t index;
        for (int i = 0; i < 8; i++)
            lab_ok(ctx,
                   direct_actor_obey_async(ctx, FIRST + i, ACT(responds, .n = i), NULL, &calls[i]));
        for (int left = 8; left > 0; left--) {
            direct_number *got;
            lab_ok(ctx, teff_await_any(ctx, calls, 8, &index));
            lab_ok(ctx, direct_actor_obey_await(ctx, calls[index], &got));
            assert_int_equal(got->n, index + 1);
            calls[index] = (teff_call){0};
        }
        teff_ctx_reset(ctx);
    }
}

/* ---- an event loop ---- */

static void drain(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    uint64_t count;
    assert_int_equal(poll(&poller, 1, 60000), 1);
    assert_int_equal(read(fd, &count, sizeof count), sizeof count);
}

static void check_event_loop(teff_ctx *from)
{
    int fd = teff_ctx_fd(from);
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    teff_call calls[N + 1];
    direct_number *got;
    assert_true(fd >= 0);
    assert_int_equal(teff_ctx_fd(from), fd);
    assert_int_equal(poll(&poller, 1, 0), 0);
    atomic_store(&world.gate, false);
    begin_calls(from, calls, 1);
    while (!teff_call_ended(from, calls[1]))
        drain(fd);
    lab_ok(from, direct_actor_obey_await(from, calls[1], &got));
    assert_int_equal(got->n, 8);
    assert_false(teff_call_ended(from, calls[0]));
    open_gate();
    for (size_t i = 0; i <= N; i++)
        while (!teff_call_ended(from, calls[i]))
            drain(fd);
    lab_ok(from, teff_await_all(from, calls, N + 1));
}

static void a_silos_thread_polls(void **state)
{
    (void)state;
    teff_ctx *own = teff_silo_new_ctx(l->silos[0]);
    check_event_loop(own);
    teff_ctx_free(own);
}

static void a_client_polls_and_awaits_any(void **state)
{
    (void)state;
    teff_client *client = lab_client(l, (int[]){0, -1});
    teff_ctx *own = teff_client_new_ctx(client);
    check_any(own, 2);
    check_event_loop(own);
    teff_ctx_free(own);
    teff_client_free(client);
}

static teff_err has_no_fd(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    (void)key;
    (void)in;
    out->n = teff_ctx_fd(turn);
    return TEFF_OK;
}

static void a_turn_has_no_descriptor(void **state)
{
    direct_number *got;
    (void)state;
    lab_ok(ctx, direct_actor_obey(ctx, 1, RUN(has_no_fd), &got));
    assert_int_equal(got->n, -1);
}

/* The context may be freed while calls end. */
static void a_context_is_freed_with_calls_under_way(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        teff_ctx *own = teff_silo_new_ctx(l->silos[0]);
        teff_call call;
        assert_true(teff_ctx_fd(own) >= 0);
        for (int i = 0; i < 4; i++)
            lab_ok(own, direct_actor_obey_async(own, FIRST + i, RUN(responds), NULL, &call));
        teff_ctx_free(own);
    }
    for (int i = 0; i < 4; i++) /* behind the abandoned ones */
        lab_ok(ctx, direct_actor_obey(ctx, FIRST + i, RUN(responds), NULL));
}

/* ---- options ---- */

static void a_call_has_a_timeout_of_its_own(void **state)
{
    const teff_call_options soon = {.size = sizeof soon, .timeout_ms = 20};
    teff_call call, other;
    direct_number *got;
    (void)state;
    atomic_store(&world.gate, false);
    lab_ok(ctx, direct_actor_obey_async(ctx, FIRST, RUN(waits), &soon, &call));
    lab_ok(ctx, direct_actor_obey_async(ctx, FIRST + 1, RUN(waits), NULL, &other));
    lab_fails(ctx, direct_actor_obey_await(ctx, call, &got), TEFF_E_TIMEOUT);
    assert_false(teff_call_ended(ctx, other));
    open_gate();
    lab_ok(ctx, direct_actor_obey_await(ctx, other, &got));
}

static void the_size_must_be_set(void **state)
{
    const teff_call_options wrong = {.timeout_ms = 20};
    teff_call call;
    (void)state;
    lab_fails(ctx, direct_actor_obey_async(ctx, FIRST, RUN(responds), &wrong, &call),
              TEFF_E_INVALID);
    assert_non_null(strstr(teff_error(ctx), "set it to sizeof(teff_call_options)"));
    assert_null(call.impl);
}

/* ---- cancelled ---- */

static void *fire(void *arg)
{
    while (!atomic_load(&world.held))
        acts_sleep_ms(1);
    teff_cancel_fire(arg);
    return NULL;
}

static void check_cancelled(teff_ctx *from, int64_t key)
{
    pthread_t thread;
    teff_call call, free_call;
    direct_number *got;
    atomic_store(&world.gate, false);
    atomic_store(&world.held, 0);
    lab_ok(from, direct_actor_obey_async(from, key, RUN(waits), &given, &call));
    lab_ok(from, direct_actor_obey_async(from, key + 1, RUN(waits), NULL, &free_call));
    assert_int_equal(pthread_create(&thread, NULL, fire, cancel), 0);
    lab_fails(from, direct_actor_obey_await(from, call, &got), TEFF_E_CANCELLED);
    assert_non_null(strstr(teff_error(from), "cancelled by its caller"));
    pthread_join(thread, NULL);
    assert_false(teff_call_ended(from, free_call));
    lab_fails(from, direct_actor_obey_async(from, key, RUN(responds), &given, &call),
              TEFF_E_CANCELLED);
    assert_non_null(strstr(teff_error(from), "did not run"));
    open_gate();
    lab_ok(from, direct_actor_obey_await(from, free_call, &got));
}

static void a_threads_call_is_cancelled(void **state)
{
    (void)state;
    check_cancelled(ctx, FIRST);
    teff_cancel_fire(cancel);
}

static teff_err is_cancelled(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    (void)key;
    (void)in;
    check_cancelled(turn, FIRST);
    out->n = 1;
    return TEFF_OK;
}

static void a_turns_call_is_cancelled(void **state)
{
    direct_number *got;
    (void)state;
    lab_ok(ctx, direct_actor_obey(ctx, 1, RUN(is_cancelled), &got));
}

static void a_clients_call_is_cancelled(void **state)
{
    (void)state;
    teff_client *client = lab_client(l, (int[]){0, -1});
    teff_ctx *own = teff_client_new_ctx(client);
    check_cancelled(own, FIRST);
    teff_ctx_free(own);
    teff_client_free(client);
}

static void a_cancellation_lives_longer_than_its_calls(void **state)
{
    (void)state;
    for (int i = 0; i < 2000; i++) {
        teff_call call;
        direct_number *got;
        lab_ok(ctx, direct_actor_obey_async(ctx, FIRST, RUN(responds), &given, &call));
        lab_ok(ctx, direct_actor_obey_await(ctx, call, &got));
        teff_ctx_reset(ctx);
    }
    check_cancelled(ctx, FIRST + 10);
}

static void from_silo_to_silo(void **state)
{
    lab *two = lab_open(2);
    teff_call calls[8];
    lab_number *got;
    size_t index;
    char key[16];
    (void)state;
    for (int i = 0; i < 8; i++) {
        snprintf(key, sizeof key, "t%d", i);
        lab_ok(two->ctx[0],
               lab_turns_write_async(two->ctx[0], key, lab_step(.hold = true), &given, &calls[i]));
    }
    lab_until(atomic_load(&two->record.held) == 8);
    teff_cancel_fire(cancel);
    for (int left = 8; left > 0; left--) {
        lab_ok(two->ctx[0], teff_await_any(two->ctx[0], calls, 8, &index));
        lab_fails(two->ctx[0], lab_turns_write_await(two->ctx[0], calls[index], &got),
                  TEFF_E_CANCELLED);
        calls[index] = (teff_call){0};
    }
    atomic_store(&two->record.gate, true);
    lab_close(two);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(any_of_a_threads_calls),
        CASE(any_of_a_turns_calls),
        CASE(any_of_many_calls_again_and_again),
        CASE(a_silos_thread_polls),
        CASE(a_client_polls_and_awaits_any),
        CASE(a_turn_has_no_descriptor),
        CASE(a_context_is_freed_with_calls_under_way),
        CASE(a_call_has_a_timeout_of_its_own),
        CASE(the_size_must_be_set),
        CASE(a_threads_call_is_cancelled),
        CASE(a_turns_call_is_cancelled),
        CASE(a_clients_call_is_cancelled),
        CASE(a_cancellation_lives_longer_than_its_calls),
        CASE(from_silo_to_silo),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
