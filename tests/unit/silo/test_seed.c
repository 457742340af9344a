/* test_seed.c - silos that use the store of their seed: the seed is started again at its address,
 * with and without its rows; it leaves after them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lab.h"
#include "row_op.h"
#include "cluster/membership.h"
#include "node/ask.h"
#include "store/store.h"

enum { LONG_MS = 30000, SHORT_MS = 1000 }; /* leases */

static lab_record record;
static _Atomic int awaited; /* how many silos use a seed's store, as the log has it; -1: nothing */
static _Atomic int changes; /* of this number */

static void read_line(void *arg, teff_log_level level, const char *line)
{
    const char *found = strstr(line, "uses its store: ");
    if (found) {
        awaited = atoi(found + strlen("uses its store: "));
        changes++;
    }
    if (level <= TEFF_LOG_ERROR)
        fprintf(stderr, "%s\n", line);
}

static int setup(void **state)
{
    awaited = -1;
    changes = 0;
    return 0;
}

/* in: one of seed and store is NULL. */
static teff_silo *new_silo(const char *seed, const char *store, uint32_t lease_ms)
{
    teffi_platform platform;
    teff_silo_options opt = {
        .size = sizeof opt, .workers = 2, .seeds = {seed}, .store = store, .lease_ms = lease_ms};
    teff_silo *silo;
    teffi_silo_init_platform(&platform, TEFF_LOG_INFO);
    platform.log.write = read_line;
    assert_int_equal(teffi_silo_new_on_platform(&platform, &opt, &silo, NULL), TEFF_OK);
    lab_host_all(silo, &record);
    return silo;
}

static void start(teff_silo *silo)
{
    char text[TEFF_TEXT_MAX] = "";
    if (teff_silo_start(silo, text))
        fail_msg("start: %s", text);
}

static teff_silo *start_new(const char *seed, const char *store, uint32_t lease_ms)
{
    teff_silo *silo = new_silo(seed, store, lease_ms);
    start(silo);
    return silo;
}

/* As if its process were killed and started again. */
static void start_again(teff_silo *silo)
{
    assert_int_equal(teffi_silo_close(silo, 0), TEFF_OK);
    start(silo);
}

static uint64_t now_ms(teff_silo *silo)
{
    return teffi_now(&silo->platform) / 1000000;
}

/* ---- the seed is started again ---- */

enum { KEYS = 30 };

static void add_to_all(teff_ctx *ctx, int64_t expected)
{
    for (int i = 0; i < KEYS; i++) {
        char key[40];
        lab_number *out;
        snprintf(key, sizeof key, "seed-%d", i);
        lab_ok(ctx, lab_account_add(ctx, key, lab_number(.n = 1), &out));
        assert_int_equal(out->n, expected);
    }
}

/* Its grains stay active, are saved, and those of the seed come back. */
static void a_silo_follows_a_seed_with_a_file(void **state)
{
    char store[512];
    lab_fresh_store(store);
    teff_silo *seed = start_new(NULL, store, LONG_MS);
    teff_silo *other = start_new(teff_silo_address(seed), NULL, LONG_MS);
    teff_ctx *ctx = teff_silo_new_ctx(other);
    teffi_node_id before = seed->node.id, own = other->node.id;
    lab_until(teff_silo_members(seed) == 2);
    add_to_all(ctx, 1);
    start_again(seed);
    assert_false(teffi_node_equals(seed->node.id, before));
    lab_until(other->node.seed == teffi_node_to_word(seed->node.id));
    lab_until(teffi_view_current_has_member(&other->node, seed->node.id));
    assert_true(teffi_node_equals(other->node.id, own));
    add_to_all(ctx, 2);
    lab_ok(ctx, lab_beat(ctx));
    assert_false(teffi_lease_is_over(&other->node.home.lease));
    assert_int_equal(teff_silo_members(seed), 2);
    teff_ctx_free(ctx);
    teff_silo_free(other);
    teff_silo_free(seed);
    lab_drop_store(store);
}

/* Long before its lease ends: its fence is not in the new table. */
static void a_silo_joins_again_if_its_seed_has_lost_the_rows(void **state)
{
    teff_silo *seed = start_new(NULL, NULL, LONG_MS);
    teff_silo *other = start_new(teff_silo_address(seed), NULL, LONG_MS);
    teffi_node_id before = other->node.id;
    lab_until(teff_silo_members(seed) == 2);
    start_again(seed);
    uint64_t begun_ms = now_ms(other);
    lab_until(teffi_lease_is_over(&other->node.home.lease));
    assert_true(now_ms(other) - begun_ms < LONG_MS / 2);
    assert_int_equal(teff_silo_stop(other, 0), TEFF_E_TIMEOUT);
    start(other);
    assert_false(teffi_node_equals(other->node.id, before));
    teff_ctx *ctx = teff_silo_new_ctx(other);
    add_to_all(ctx, 1);
    assert_int_equal(teff_silo_members(other), 2);
    teff_ctx_free(ctx);
    teff_silo_free(other);
    teff_silo_free(seed);
}

/* ---- operations while the seed is away ---- */

typedef struct away_op {
    pthread_t thread;
    row_op row_op;
} away_op;

static void begin_op(away_op *o, teff_silo *silo, teffi_store_kind kind)
{
    o->row_op = row_op_new(teff_silo_new_ctx(silo), kind);
    assert_int_equal(pthread_create(&o->thread, NULL, row_op_run, &o->row_op), 0);
}

static void end_op(away_op *o, teff_err expected)
{
    pthread_join(o->thread, NULL);
    assert_int_equal(o->row_op.op.err, expected);
    teff_ctx_free(o->row_op.ctx);
}

/* It was not sent, so it is sent to the seed that was started again; a write once. */
static void what_was_not_sent_waits_for_the_seed(void **state)
{
    char store[512];
    away_op write, read;
    lab_fresh_store(store);
    teff_silo *seed = start_new(NULL, store, LONG_MS);
    teff_silo *other = start_new(teff_silo_address(seed), NULL, LONG_MS);
    assert_int_equal(teffi_silo_close(seed, 0), TEFF_OK);
    lab_until(atomic_load(&other->links) == 0);
    begin_op(&write, other, TEFFI_STORE_WRITE);
    lab_until(other->seed.dialling);
    assert_false(write.row_op.done);
    start(seed);
    end_op(&write, TEFF_OK);
    begin_op(&read, other, TEFFI_STORE_READ);
    end_op(&read, TEFF_OK);
    assert_int_equal(read.row_op.row.value.len, 1);
    teff_silo_free(other);
    teff_silo_free(seed);
    lab_drop_store(store);
}

/* The seed does not return: the operation ends, and so does the silo, when its lease is over. */
static void what_was_not_sent_fails_without_a_seed(void **state)
{
    away_op write;
    teff_silo *seed = start_new(NULL, NULL, SHORT_MS);
    teff_silo *other = start_new(teff_silo_address(seed), NULL, SHORT_MS);
    assert_int_equal(teffi_silo_close(seed, 0), TEFF_OK);
    lab_until(atomic_load(&other->links) == 0);
    begin_op(&write, other, TEFFI_STORE_WRITE);
    end_op(&write, TEFF_E_IO);
    lab_until(teffi_lease_is_over(&other->node.home.lease));
    lab_until(!other->seed.dialling);
    teff_silo_free(other);
    teff_silo_free(seed);
}

/* ---- the seed leaves last ---- */

typedef struct stopping {
    pthread_t thread;
    teff_silo *silo;
    uint32_t timeout_ms;
    teff_err err;
    _Atomic bool done;
} stopping;

static void *stop_silo(void *arg)
{
    stopping *s = arg;
    s->err = teff_silo_stop(s->silo, s->timeout_ms);
    s->done = true;
    return NULL;
}

static void begin_stop(stopping *s, teff_silo *silo, uint32_t timeout_ms)
{
    *s = (stopping){.silo = silo, .timeout_ms = timeout_ms};
    assert_int_equal(pthread_create(&s->thread, NULL, stop_silo, s), 0);
}

static void end_stop(stopping *s, teff_err expected)
{
    pthread_join(s->thread, NULL);
    assert_int_equal(s->err, expected);
    teff_silo_free(s->silo);
}

/* The log says so once for each number. */
static void a_seed_leaves_after_those_that_use_its_store(void **state)
{
    enum { OTHERS = 2 };
    teff_silo *seed = start_new(NULL, NULL, 0), *others[OTHERS];
    stopping last;
    for (int i = 0; i < OTHERS; i++)
        others[i] = start_new(teff_silo_address(seed), NULL, 0);
    begin_stop(&last, seed, 0);
    for (int i = OTHERS - 1; i >= 0; i--) {
        lab_until(awaited == i + 1);
        assert_int_equal(changes, OTHERS - i);
        assert_false(last.done);
        assert_int_equal(teff_silo_stop(others[i], 0), TEFF_OK);
        teff_silo_free(others[i]);
    }
    end_stop(&last, TEFF_OK);
    assert_int_equal(changes, OTHERS);
}

/* The seed of a silo that is a seed itself is the last one. */
static void all_stop_at_once(void **state)
{
    enum { SILOS = 3 };
    teff_silo *silos[SILOS] = {start_new(NULL, NULL, 0)};
    stopping stops[SILOS];
    uint64_t begun_ms = now_ms(silos[0]);
    for (int i = 1; i < SILOS; i++)
        silos[i] = start_new(teff_silo_address(silos[i - 1]), NULL, 0);
    for (int i = 0; i < SILOS; i++)
        begin_stop(&stops[i], silos[i], LONG_MS);
    for (int i = 0; i < SILOS; i++)
        lab_until(stops[i].done);
    assert_true(now_ms(silos[0]) - begun_ms < LONG_MS / 2);
    for (int i = 0; i < SILOS; i++)
        end_stop(&stops[i], TEFF_OK);
}

static void a_seed_leaves_without_them_after_its_timeout(void **state)
{
    enum { TIMEOUT_MS = 50 };
    teff_silo *seed = start_new(NULL, NULL, SHORT_MS);
    teff_silo *other = start_new(teff_silo_address(seed), NULL, SHORT_MS);
    assert_int_equal(teff_silo_stop(seed, TIMEOUT_MS), TEFF_E_TIMEOUT);
    assert_int_equal(awaited, 1);
    lab_until(teffi_lease_is_over(&other->node.home.lease));
    teff_silo_free(other);
    teff_silo_free(seed);
}

static void a_seed_does_not_wait_for_a_dead_silo(void **state)
{
    stopping last;
    teff_silo *seed = start_new(NULL, NULL, SHORT_MS);
    teff_silo *other = start_new(teff_silo_address(seed), NULL, SHORT_MS);
    lab_until(teff_silo_members(seed) == 2);
    assert_int_equal(teffi_silo_close(other, 0), TEFF_OK);
    uint64_t begun_ms = now_ms(seed);
    begin_stop(&last, seed, LONG_MS);
    lab_until(last.done);
    assert_true(now_ms(seed) - begun_ms < LONG_MS / 2);
    end_stop(&last, TEFF_OK);
    teff_silo_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_silo_follows_a_seed_with_a_file, setup),
        cmocka_unit_test_setup(a_silo_joins_again_if_its_seed_has_lost_the_rows, setup),
        cmocka_unit_test_setup(what_was_not_sent_waits_for_the_seed, setup),
        cmocka_unit_test_setup(what_was_not_sent_fails_without_a_seed, setup),
        cmocka_unit_test_setup(a_seed_leaves_after_those_that_use_its_store, setup),
        cmocka_unit_test_setup(all_stop_at_once, setup),
        cmocka_unit_test_setup(a_seed_leaves_without_them_after_its_timeout, setup),
        cmocka_unit_test_setup(a_seed_does_not_wait_for_a_dead_silo, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
