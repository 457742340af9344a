/* test_life.c - how activations begin and end: idle, asked for, stopping, beside calls. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "lab.h"

static lab *l;

static int setup(void **state)
{
    l = lab_open(1);
    return 0;
}

static int teardown(void **state)
{
    lab_close(l);
    return 0;
}

static void an_idle_grain_ends_and_comes_back(void **state)
{
    lab_number *out;
    for (int i = 1; i <= 5; i++) {
        lab_ok(l->ctx[0], lab_sleepy_add(l->ctx[0], "a", lab_number(.n = 1), &out));
        assert_int_equal(out->n, i);
        lab_until(l->record.deactivated == i);
        assert_int_equal(l->record.last_reason, TEFF_REASON_IDLE);
    }
    assert_int_equal(l->record.activated, 5);
}

static void a_busy_grain_is_not_idle(void **state)
{
    teff_call held;
    lab_number *out;
    lab_ok(l->ctx[0], lab_sleepy_hold_async(l->ctx[0], "a", lab_step(), NULL, &held));
    lab_until(l->record.held == 1);
    lab_ok(l->ctx[0], lab_sleepy_add(l->ctx[0], "b", lab_number(.n = 1), &out));
    lab_until(l->record.deactivated == 1); /* the other one */
    lab_ok(l->ctx[0], lab_sleepy_add(l->ctx[0], "c", lab_number(.n = 1), &out));
    lab_until(l->record.deactivated == 2);
    assert_int_equal(l->record.held, 1);
    l->record.gate = true;
    lab_ok(l->ctx[0], lab_sleepy_hold_await(l->ctx[0], held, &out));
    lab_until(l->record.deactivated == 3);
}

/* Calls that meet an ending activation reach the next one: none is lost, none finds old state. */
typedef struct caller {
    pthread_t thread;
    teff_ctx *ctx;
    int no, quits;
    teff_err err;
} caller;

static void *add_and_quit(void *arg)
{
    caller *c = arg;
    lab_number *out;
    for (int i = 0; i < 150 && !c->err; i++) {
        c->err = lab_account_add(c->ctx, "busy", lab_number(.n = 1), &out);
        if (!c->err && i % 5 == c->no)
            c->err = lab_account_quit(c->ctx, "busy");
    }
    return NULL;
}

static void calls_beside_deactivation_reach_the_next_activation(void **state)
{
    caller callers[4] = {0};
    lab_number *out;
    for (int i = 0; i < 4; i++) {
        callers[i].ctx = teff_silo_new_ctx(l->silos[0]);
        callers[i].no = i;
        assert_int_equal(pthread_create(&callers[i].thread, NULL, add_and_quit, &callers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(callers[i].thread, NULL);
        lab_ok(callers[i].ctx, callers[i].err);
        teff_ctx_free(callers[i].ctx);
    }
    lab_ok(l->ctx[0], lab_account_add(l->ctx[0], "busy", lab_number(.n = 0), &out));
    assert_int_equal(out->n, 600);
    assert_true(l->record.activated > 1);
}

static void a_stopping_silo_ends_all(void **state)
{
    char key[20];
    lab_number *out;
    for (int i = 0; i < 300; i++) {
        snprintf(key, sizeof key, "stop-%d", i);
        lab_ok(l->ctx[0], lab_account_add(l->ctx[0], key, lab_number(.n = 1), &out));
    }
    assert_int_equal(l->record.activated, 300);
    assert_int_equal(lab_remove(l, 0), TEFF_OK);
    assert_int_equal(l->record.deactivated, 300);
    assert_int_equal(l->record.last_reason, TEFF_REASON_STOPPING);
}

/* A turn that never ends in time: the rest is dropped, nothing leaks or hangs. */
static void a_silo_that_cannot_end_in_time_drops_the_rest(void **state)
{
    lab *own = lab_open(1);
    const char *keys[] = {"self"};
    teff_call call;
    lab_number *out;
    for (int i = 0; i < 5; i++) {
        lab_ok(own->ctx[0], lab_relay_go_async(own->ctx[0], "self",
                                               lab_path(.n_keys = 1, .keys = keys), NULL, &call));
        lab_ok(own->ctx[0],
               lab_turns_write_async(own->ctx[0], "held", lab_step(.hold = true), NULL, &call));
    }
    lab_until(own->record.held == 1);
    assert_int_equal(teff_silo_stop(own->silos[0], 50), TEFF_E_TIMEOUT);
    teff_err err = lab_turns_write_await(own->ctx[0], call, &out);
    assert_true(err == TEFF_E_CANCELLED || err == TEFF_E_UNAVAILABLE ||
                err == TEFF_E_UNREACHABLE); /* the lease has ended */
    lab_fails(own->ctx[0], lab_turns_write(own->ctx[0], "x", lab_step(), &out), TEFF_E_CLOSED);
    lab_close(own);
}

/* Groups taken off queues so far. */
static uint64_t picks(void)
{
    teff_sched_worker workers[64];
    uint64_t sum = 0;
    size_t n = teff_silo_sched_metrics(l->silos[0], NULL, workers, 64);
    for (size_t i = 0; i < n; i++)
        sum += workers[i].local + workers[i].global + workers[i].stolen;
    return sum;
}

/* They stay asleep while the collector finds others idle, in a round every 12 ms. */
static void grains_in_use_are_not_woken_to_be_checked(void **state)
{
    enum { GRAINS = 500 };
    char key[20];
    lab_number *out;
    for (int i = 0; i < GRAINS; i++) {
        snprintf(key, sizeof key, "used-%d", i);
        lab_ok(l->ctx[0], lab_account_add(l->ctx[0], key, lab_number(.n = 1), &out));
    }
    int before = l->record.deactivated;
    uint64_t picked = picks();
    for (int i = 1; i <= 3; i++) {
        lab_ok(l->ctx[0], lab_sleepy_add(l->ctx[0], "s", lab_number(.n = 1), &out));
        lab_until(l->record.deactivated == before + i);
    }
    assert_true(picks() - picked < GRAINS);
}

/* More than the collector asks in one go. */
static void all_of_many_idle_grains_end(void **state)
{
    enum { N = 3000 };
    teff_call calls[N];
    char key[20];
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof key, "idle-%d", i);
        lab_ok(l->ctx[0],
               lab_sleepy_add_async(l->ctx[0], key, lab_number(.n = 1), NULL, &calls[i]));
    }
    lab_ok(l->ctx[0], teff_await_all(l->ctx[0], calls, N));
    lab_until(l->record.deactivated >= N && l->record.deactivated == l->record.activated);
    assert_int_equal(l->record.last_reason, TEFF_REASON_IDLE);
}

/* Many more grains than are alive at once: memory of ended ones is used again, for other keys. */
static void ended_activations_are_used_again(void **state)
{
    char key[TEFF_KEY_MAX + 1];
    lab_number *out;
    for (int i = 0; i < 1000; i++) {
        memset(key, 'k', sizeof key);
        snprintf(key, sizeof key, "again-%d", i);
        if (i % 3 == 0) { /* long keys live elsewhere */
            key[strlen(key)] = '-';
            key[100 + i % 900] = '\0';
        }
        lab_ok(l->ctx[0], lab_account_add(l->ctx[0], key, lab_number(.n = i), &out));
        assert_int_equal(out->n, i);
        lab_ok(l->ctx[0], lab_account_quit(l->ctx[0], key));
        if (i % 50 == 0)
            teff_ctx_reset(l->ctx[0]);
    }
    lab_until(l->record.deactivated == 1000);
}

/* A thread is no grain. */
static void a_thread_has_nothing_to_deactivate(void **state)
{
    lab_number *out;
    lab_ok(l->ctx[0], lab_account_add(l->ctx[0], "a", lab_number(.n = 1), &out));
    teff_deactivate(l->ctx[0]);
    lab_ok(l->ctx[0], lab_account_add(l->ctx[0], "a", lab_number(.n = 1), &out));
    assert_int_equal(l->record.activated, 1);
    assert_int_equal(l->record.deactivated, 0);
}

int main(void)
{
#define LIFE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        LIFE(an_idle_grain_ends_and_comes_back),
        LIFE(a_busy_grain_is_not_idle),
        LIFE(calls_beside_deactivation_reach_the_next_activation),
        LIFE(a_stopping_silo_ends_all),
        LIFE(a_silo_that_cannot_end_in_time_drops_the_rest),
        LIFE(grains_in_use_are_not_woken_to_be_checked),
        LIFE(all_of_many_idle_grains_end),
        LIFE(ended_activations_are_used_again),
        LIFE(a_thread_has_nothing_to_deactivate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
