/* test_turns.c - which turns of one activation may overlap, and in which order they run. */
#include <pthread.h>
#include <stdio.h>
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

enum { CALLERS = 4, CALLS = 300 };

typedef struct caller {
    pthread_t thread;
    teff_ctx *ctx;
    uint32_t no;
    teff_err err;
} caller;

/* In flight together, so that the queue holds several of each caller. */
static void *write_many(void *arg)
{
    caller *c = arg;
    teff_call calls[CALLS];
    for (int i = 0; i < CALLS && !c->err; i++)
        c->err = lab_turns_write_async(
            c->ctx, "one", lab_step(.caller = c->no, .seq = i + 1, .suspend = i % 16 == 0), NULL,
            &calls[i]);
    if (!c->err)
        c->err = teff_await_all(c->ctx, calls, CALLS);
    return NULL;
}

static void exclusive_turns_never_overlap_and_keep_their_order(void **state)
{
    caller callers[CALLERS] = {0};
    for (uint32_t i = 0; i < CALLERS; i++) {
        callers[i].ctx = teff_silo_new_ctx(l->silos[0]);
        callers[i].no = i;
        assert_int_equal(pthread_create(&callers[i].thread, NULL, write_many, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        lab_ok(callers[i].ctx, callers[i].err);
        teff_ctx_free(callers[i].ctx);
    }
    assert_int_equal(l->record.started, CALLERS * CALLS);
    assert_int_equal(l->record.most_writers, 1);
    assert_int_equal(l->record.collisions, 0);
    assert_int_equal(l->record.disorder, 0);
}

static void readers_run_beside_each_other(void **state)
{
    teff_ctx *ctx = l->ctx[0];
    teff_call calls[8];
    for (int i = 0; i < 8; i++)
        lab_ok(ctx, lab_turns_read_async(ctx, "one", lab_step(.hold = true), NULL, &calls[i]));
    lab_until(l->record.reading == 8);
    l->record.gate = true;
    lab_ok(ctx, teff_await_all(ctx, calls, 8));
    assert_int_equal(l->record.most_readers, 8);
    assert_int_equal(l->record.collisions, 0);
}

/* One reader ends while another goes on: the writer that waits must go on waiting. */
static void a_writer_waits_for_the_last_reader(void **state)
{
    teff_ctx *ctx = l->ctx[0];
    teff_call held, write;
    lab_number *out;
    lab_ok(ctx, lab_turns_read_async(ctx, "one", lab_step(.hold = true), NULL, &held));
    lab_until(l->record.held == 1);
    lab_ok(ctx, lab_turns_write_async(ctx, "one", lab_step(.caller = 1, .seq = 1), NULL, &write));
    for (int i = 0; i < 20; i++)
        lab_ok(ctx, lab_turns_read(ctx, "one", lab_step(.caller = 2), &out));
    lab_ok(ctx, lab_turns_peek(ctx, "one", lab_step(.caller = 2), &out));
    assert_int_equal(l->record.writing, 0);
    assert_int_equal(l->record.reading, 1);
    l->record.gate = true;
    lab_ok(ctx, lab_turns_write_await(ctx, write, &out));
    lab_ok(ctx, lab_turns_read_await(ctx, held, &out));
    assert_int_equal(l->record.collisions, 0);
}

static void readers_wait_for_a_writer(void **state)
{
    teff_ctx *ctx = l->ctx[0];
    teff_call calls[5];
    lab_number *out;
    lab_ok(ctx, lab_turns_write_async(ctx, "one", lab_step(.hold = true), NULL, &calls[0]));
    lab_until(l->record.held == 1);
    for (int i = 1; i < 5; i++)
        lab_ok(ctx, lab_turns_read_async(ctx, "one", lab_step(.caller = 1), NULL, &calls[i]));
    lab_ok(ctx, lab_turns_peek(ctx, "one", lab_step(.caller = 2), &out));
    assert_int_equal(l->record.most_readers, 0);
    l->record.gate = true;
    lab_ok(ctx, teff_await_all(ctx, calls, 5));
    assert_int_equal(l->record.collisions, 0);
}

/* Readers and writers at random from several threads, all of which suspend. */
static void *mix(void *arg)
{
    caller *c = arg;
    teff_call calls[CALLS];
    for (int i = 0; i < CALLS && !c->err; i++) {
        lab_step *step = lab_step(.suspend = i % 5 == 0);
        c->err = (i + (int)c->no) % 3 ? lab_turns_read_async(c->ctx, "one", step, NULL, &calls[i])
                                      : lab_turns_write_async(c->ctx, "one", step, NULL, &calls[i]);
    }
    if (!c->err)
        c->err = teff_await_all(c->ctx, calls, CALLS);
    return NULL;
}

static void readers_and_writers_never_meet(void **state)
{
    caller callers[CALLERS] = {0};
    for (uint32_t i = 0; i < CALLERS; i++) {
        callers[i].ctx = teff_silo_new_ctx(l->silos[0]);
        callers[i].no = i;
        assert_int_equal(pthread_create(&callers[i].thread, NULL, mix, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        lab_ok(callers[i].ctx, callers[i].err);
        teff_ctx_free(callers[i].ctx);
    }
    assert_int_equal(l->record.started, CALLERS * CALLS);
    assert_int_equal(l->record.collisions, 0);
    assert_true(l->record.most_readers > 1);
}

/* More writers than start at a time stand between two readers when a writer ends. */
static void a_reader_starts_past_many_writers(void **state)
{
    enum { WRITERS = 200 };
    teff_ctx *ctx = l->ctx[0];
    teff_call writes[WRITERS + 1], reads[2];
    lab_ok(ctx, lab_turns_write_async(ctx, "one", lab_step(.hold = true), NULL, &writes[0]));
    lab_until(l->record.held == 1);
    lab_ok(ctx, lab_turns_read_async(ctx, "one", lab_step(.hold = true), NULL, &reads[0]));
    for (int i = 1; i <= WRITERS; i++)
        lab_ok(ctx, lab_turns_write_async(ctx, "one", lab_step(), NULL, &writes[i]));
    lab_ok(ctx, lab_turns_read_async(ctx, "one", lab_step(.hold = true), NULL, &reads[1]));
    l->record.writer_gate = true;
    lab_until(l->record.reading == 2);
    assert_int_equal(l->record.started, 3);
    l->record.gate = true;
    lab_ok(ctx, teff_await_all(ctx, reads, 2));
    lab_ok(ctx, teff_await_all(ctx, writes, WRITERS + 1));
    assert_int_equal(l->record.collisions, 0);
}

static void always_interleave_enters_at_once(void **state)
{
    teff_ctx *ctx = l->ctx[0];
    teff_call held;
    lab_number *out;
    lab_ok(ctx, lab_turns_write_async(ctx, "one", lab_step(.hold = true), NULL, &held));
    lab_until(l->record.held == 1);
    lab_ok(ctx, lab_turns_peek(ctx, "one", lab_step(.caller = 1), &out));
    assert_int_equal(out->n, 1);
    l->record.gate = true;
    lab_ok(ctx, lab_turns_write_await(ctx, held, &out));
}

static void a_reentrant_grain_interleaves_and_calls_itself(void **state)
{
    teff_ctx *ctx = l->ctx[0];
    teff_call calls[6];
    lab_number *out;
    for (int i = 0; i < 6; i++)
        lab_ok(ctx, lab_free_ask_async(ctx, 9, lab_step(.hold = true), NULL, &calls[i]));
    lab_until(l->record.held == 6);
    lab_ok(ctx, lab_free_down(ctx, 9, lab_number(.n = 20), &out));
    assert_int_equal(out->n, 20);
    l->record.gate = true;
    lab_ok(ctx, teff_await_all(ctx, calls, 6));
    assert_int_equal(l->record.most_peekers, 6);
}

static void other_grains_do_not_wait(void **state)
{
    teff_ctx *ctx = l->ctx[0];
    teff_call held;
    lab_number *out;
    lab_ok(ctx, lab_turns_write_async(ctx, "one", lab_step(.hold = true), NULL, &held));
    lab_until(l->record.held == 1);
    lab_ok(ctx, lab_turns_write(ctx, "two", lab_step(.caller = 1), &out));
    l->record.gate = true;
    lab_ok(ctx, lab_turns_write_await(ctx, held, &out));
}

/* One-way messages and calls of one caller share one order. */
static void one_way_keeps_its_place_in_the_order(void **state)
{
    teff_ctx *ctx = l->ctx[0];
    lab_number *out;
    for (int i = 1; i <= 200; i++) {
        if (i % 10)
            lab_ok(ctx, lab_turns_note(ctx, "one", lab_step(.seq = i, .suspend = i % 7 == 0)));
        else
            lab_ok(ctx, lab_turns_write(ctx, "one", lab_step(.seq = i), &out));
    }
    assert_int_equal(l->record.notes, 180);
    assert_int_equal(l->record.disorder, 0);
    assert_int_equal(l->record.collisions, 0);
}

/* From the very first message on: some wait for the grain to be located while later ones arrive. */
static void first_messages_are_not_overtaken(void **state)
{
    char key[20];
    lab_number *out;
    for (int k = 0; k < 60; k++) {
        teff_ctx *ctx = l->ctx[k % l->n];
        snprintf(key, sizeof key, "order-%d", k);
        l->record.last_seq[0] = 0;
        for (int i = 1; i < 20; i++)
            lab_ok(ctx, lab_turns_note(ctx, key, lab_step(.seq = i)));
        lab_ok(ctx, lab_turns_write(ctx, key, lab_step(.seq = 20), &out));
        assert_int_equal(l->record.disorder, 0);
    }
}

static int setup_two(void **state)
{
    l = lab_open(2);
    return 0;
}

static uint64_t requeues(void)
{
    teff_sched_worker workers[64];
    uint64_t sum = 0;
    size_t n = teff_silo_sched_metrics(l->silos[0], NULL, workers, 64);
    for (size_t i = 0; i < n; i++)
        sum += workers[i].requeues;
    return sum;
}

/* More computing turns than workers: each yields at its calls when its slice is over, so that
 * others are answered, while its own grain, even a reentrant one, lets nothing else in. */
static void turns_yield_at_their_calls(void **state)
{
    enum { SPINNERS = 6, CALLS_NOW = 20 };
    teff_ctx *ctx = l->ctx[0];
    teff_call calls[SPINNERS], late;
    for (int i = 0; i < SPINNERS; i++)
        lab_ok(ctx, lab_free_ask_async(ctx, i, lab_step(.spin = true), NULL, &calls[i]));
    lab_until(l->record.held == SPINNERS);
    int started = l->record.started;
    lab_ok(ctx, lab_free_ask_async(ctx, 0, lab_step(), NULL, &late));
    lab_number *out;
    for (int i = 0; i < CALLS_NOW; i++)
        lab_ok(ctx, lab_turns_write(ctx, "another", lab_step(), &out));
    lab_until(requeues() >= 10);
    assert_int_equal(l->record.held, SPINNERS);
    assert_int_equal(l->record.started, started + CALLS_NOW);
    l->record.gate = true;
    lab_ok(ctx, teff_await_all(ctx, calls, SPINNERS));
    lab_ok(ctx, teff_await_all(ctx, &late, 1));
}

int main(void)
{
#define TURNS(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TURNS(exclusive_turns_never_overlap_and_keep_their_order),
        TURNS(readers_run_beside_each_other),
        TURNS(a_writer_waits_for_the_last_reader),
        TURNS(readers_wait_for_a_writer),
        TURNS(readers_and_writers_never_meet),
        TURNS(a_reader_starts_past_many_writers),
        TURNS(always_interleave_enters_at_once),
        TURNS(a_reentrant_grain_interleaves_and_calls_itself),
        TURNS(other_grains_do_not_wait),
        TURNS(one_way_keeps_its_place_in_the_order),
        TURNS(turns_yield_at_their_calls),
        TURNS(first_messages_are_not_overtaken),
        cmocka_unit_test_setup_teardown(first_messages_are_not_overtaken, setup_two, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
