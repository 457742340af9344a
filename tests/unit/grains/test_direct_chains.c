/* test_direct_chains.c - calls inside one another and beside others: chains, cycles, order, targets
 * that end or move, admission, fairness, the end of the silo. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <teff/fork.h>
#include "acts.h"
#include "directory/location_cache.h"
#include "call/wait.h"

/* ---- fork inside ---- */

static void part(void *arg)
{
    _Atomic int *n = arg;
    (*n)++;
    acts_sleep_ms(1);
}

static teff_err forks(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    _Atomic int n = 0;
    teff_join join = {{0}};
    for (int i = 0; i < 6; i++)
        teff_fork(&join, (in->n + i) % 2 ? TEFF_STEAL_CHILD : TEFF_STEAL_CONTINUATION, part, &n);
    teff_join_wait(&join);
    out->n = n;
    return key ? TEFF_OK : TEFF_E_FAILED;
}

static teff_err asks_forking(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    for (int64_t i = 0; i < in->n; i++) {
        teff_err err = direct_actor_obey(turn, FIRST, ACT(forks, .n = i), &got);
        if (err)
            return err;
        out->n += got->n;
    }
    return TEFF_OK;
}

static void test_a_callee_forks(void **state)
{
    direct_number *out;
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_forking, .n = 20), &out));
    assert_int_equal(out->n, 120);
}

/* ---- chains ---- */

static teff_err goes_down(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *deeper;
    if (in->n == 0) {
        if (in->text[0])
            teffi_ctx_sleep(turn, 1);
        return TEFF_OK;
    }
    teff_err err =
        direct_actor_obey(turn, key + 1, ACT(goes_down, .n = in->n - 1, .text = in->text), &deeper);
    if (!err)
        out->n = deeper->n + 1;
    return err;
}

static void test_chains_are_deeper_than_stacks_are_nested(void **state)
{
    direct_number *out;
    for (int i = 0; i < 20; i++) {
        char *text = i % 2 ? (char *)"sleep" : (char *)"";
        lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(goes_down, .n = 70, .text = text), &out));
        assert_int_equal(out->n, 70);
    }
}

/* A -> B -> A. */
static teff_err asks_back(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    teff_ctx_set_timeout(turn, in->text[0] ? 50 : 0);
    teff_err err = in->text[0] ? direct_actor_obey(turn, key - FIRST, RUN(responds), &got)
                               : direct_loose_obey(turn, key - FIRST, RUN(responds), &got);
    out->n = err ? (int64_t)err : 1000 + got->n;
    return TEFF_OK;
}

static void test_a_cycle_waits_or_enters_as_admission_says(void **state)
{
    direct_number *out;
    for (int i = 0; i < 3; i++) {
        lab_ok(ctx, direct_loose_obey(ctx, 2, ACT(asks_one, .n = (intptr_t)asks_back), &out));
        assert_int_equal(out->n, 1001);
        lab_ok(ctx,
               direct_actor_obey(
                   ctx, 3, ACT(asks_one, .n = (intptr_t)asks_back, .text = (char *)"tight"), &out));
        assert_int_equal(out->n, TEFF_E_TIMEOUT);
    }
}

/* ---- order ---- */

static teff_err in_order(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    int64_t before = atomic_exchange(&world.seen[key % 64], in->n);
    world.disorder += before >= in->n;
    if (in->n % 5 == 0)
        teffi_ctx_sleep(turn, 1);
    if (out)
        out->n = in->n;
    return TEFF_OK;
}

static teff_err tells_and_asks(teff_ctx *turn, int64_t key, const direct_act *in,
                               direct_number *out)
{
    direct_number *got;
    for (int64_t i = 1; i <= in->n; i++) {
        teff_call call;
        teff_err err;
        if (i % 3 == 0)
            err = direct_actor_obey(turn, key + FIRST, ACT(in_order, .n = i), &got);
        else if (i % 7 == 0)
            err = direct_actor_obey_async(turn, key + FIRST, ACT(in_order, .n = i), NULL, &call);
        else
            err = direct_actor_tell(turn, key + FIRST, ACT(in_order, .n = i));
        if (err)
            return err;
    }
    return TEFF_OK;
}

/* From the first message on, while the grain is still being located and activated. */
static void test_nothing_is_overtaken(void **state)
{
    direct_number *out;
    for (int k = 0; k < 20; k++)
        lab_ok(ctx, direct_actor_obey(ctx, k, ACT(tells_and_asks, .n = 60), &out));
    assert_int_equal(world.disorder, 0);
}

/* ---- activations come and go ---- */

static teff_err asks_ending(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    for (int64_t i = 0; i < in->n; i++) {
        script *fn = i % 3 ? ends : responds;
        teff_err err =
            direct_actor_obey(turn, FIRST + i % 40, ACT(fn, .n = i, .text = in->text), &got);
        if (err)
            return err;
        out->n += got->n == i + 1;
    }
    return TEFF_OK;
}

/* Their memory becomes that of other grains, which older guesses lead to. */
static void test_a_target_that_ends_is_found_anew(void **state)
{
    direct_number *out;
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_ending, .n = 1200, .text = (char *)"e"), &out));
    assert_int_equal(out->n, 1200);
    for (int i = 0; i < 41; i++)
        lab_ok(ctx, direct_actor_obey(ctx, i < 40 ? FIRST + i : 1, RUN(ends), &out));
    lab_until(acts_activations() == 0);
}

static teff_err says_where(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    out->n = key;
    out->text = teff_strdup(turn, turn->node->address);
    return TEFF_OK;
}

static teff_err asks_where(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    teff_err err = direct_actor_obey(turn, FIRST, ACT(says_where, .n = in->n), &got);
    out->text = err ? NULL : got->text;
    return err;
}

/* Where the grain was seen last is forgotten: who calls first has it next. */
static void forget_hints(int64_t key)
{
    const teff_key number = {.kind = TEFF_KEY_INT64, .number = key};
    uint8_t bytes[TEFFI_KEY_BYTES_MAX];
    const char *why;
    uint32_t len = teffi_key_encode(TEFF_KEY_INT64, &number, bytes, &why);
    for (int i = 0; i < 4; i++) {
        teffi_grains *grains = l->silos[i / 2]->node.grains;
        teffi_ident ident = teffi_ident_of(&grains->secret, direct_actor_info.id, bytes, len);
        teffi_location_drop(grains->location_cache, ident.hash, l->silos[i % 2]->node.id);
    }
}

static void test_a_target_that_moved_is_found_there(void **state)
{
    char store[512], text[TEFF_TEXT_MAX] = "";
    direct_number *out;
    lab_fresh_store(store);
    acts_open((teff_silo_options){.silent = 1, .store = store, .workers = 2});
    strcpy(l->store, store);
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .store = store, .workers = 2};
    assert_int_equal(teff_silo_new(&opt, &l->silos[1], text), TEFF_OK);
    assert_int_equal(teff_silo_host(l->silos[1], direct_actor_type(&acts_actor, NULL)), TEFF_OK);
    assert_int_equal(teff_silo_start(l->silos[1], text), TEFF_OK);
    l->ctx[1] = teff_silo_new_ctx(l->silos[1]);
    l->n = 2;
    lab_until(teff_silo_members(l->silos[0]) == 2);
    for (int i = 0; i < 6; i++) {
        teff_ctx *from = l->ctx[i % 2];
        const char *where = teff_silo_address(l->silos[i % 2]);
        forget_hints(FIRST);
        lab_ok(from, direct_actor_obey(from, FIRST, RUN(says_where), &out));
        assert_string_equal(out->text, where);
        for (int n = 0; n < 3; n++) {
            lab_ok(ctx, direct_actor_obey(ctx, 1, RUN(asks_where), &out));
            assert_string_equal(out->text, where);
        }
        lab_ok(from, direct_actor_obey(from, FIRST, RUN(ends), &out));
        lab_until(acts_activations() + l->silos[1]->node.grains->shards->activations == 1);
    }
}

/* ---- admission ---- */

static teff_err excludes(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    world.collisions += world.inside++ != 0;
    if (in->n % 4 == 0)
        teffi_ctx_sleep(turn, 1);
    world.inside--;
    out->n = key;
    return TEFF_OK;
}

static teff_err reads(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    int among = world.inside;
    if (in->n % 4 == 0)
        teffi_ctx_sleep(turn, 1);
    world.collisions += among != 0 || world.inside != 0;
    out->n = key;
    return TEFF_OK;
}

static teff_err mixes(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    for (int64_t i = 0; i < in->n; i++) {
        teff_err err = (i + key) % 3
                           ? direct_actor_read(turn, FIRST, ACT(reads, .n = i + key), &got)
                           : direct_actor_obey(turn, FIRST, ACT(excludes, .n = i + key), &got);
        if (err)
            return err;
        out->n++;
    }
    return TEFF_OK;
}

static void test_readers_and_writers_never_meet(void **state)
{
    enum { CALLERS = 6, CALLS = 150 };
    teff_call calls[CALLERS];
    direct_number *out;
    for (int i = 0; i < CALLERS; i++)
        lab_ok(ctx, direct_actor_obey_async(ctx, i + 1, ACT(mixes, .n = CALLS), NULL, &calls[i]));
    for (int i = 0; i < CALLERS; i++) {
        lab_ok(ctx, direct_actor_obey_await(ctx, calls[i], &out));
        assert_int_equal(out->n, CALLS);
    }
    assert_int_equal(world.collisions, 0);
}

/* ---- fairness ---- */

static teff_err asks_for_ever(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    while (!world.gate) {
        teff_err err = direct_actor_obey(turn, key + FIRST, RUN(responds), &got);
        if (err)
            return err;
        world.rounds++;
    }
    return TEFF_OK;
}

/* Comes round by telling itself: a pick each. */
static teff_err comes_round(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    world.ended--; /* it is not counted */
    world.begun--;
    world.held++;
    return world.gate ? TEFF_OK : direct_actor_tell(turn, key, ACT(comes_round, .n = in->n));
}

/* Calls of the one in a turn of the other. */
static int64_t calls_in_a_round(void)
{
    enum { ROUNDS = 100 };
    int64_t held = world.held, calls = world.rounds;
    lab_until(world.held >= held + ROUNDS && world.rounds >= calls + 256 * ROUNDS);
    calls = world.rounds - calls;
    held = world.held - held;
    return calls / held;
}

/* On one worker: a turn that calls for ever, and a grain that wants a turn again and again. Neither
 * waits for the other more than a share. Time stands, else another thread could go on with the
 * calls while this one stands still in the grain's turn. */
static void test_a_pair_for_ever_starves_nobody(void **state)
{
    teff_call call;
    direct_number *out;
    acts_stop_time();
    lab_ok(ctx, direct_actor_obey_async(ctx, 1, RUN(asks_for_ever), NULL, &call));
    lab_until(world.rounds > 1000);
    lab_ok(ctx, direct_actor_tell(ctx, 20, RUN(comes_round)));
    lab_until(world.held > 0);
    assert_in_range(calls_in_a_round(), 1, 4 * 256);
    acts_start_time();
    for (int i = 0; i < 200; i++) /* others, and a timer, are not kept for ever either */
        lab_ok(ctx, direct_actor_obey(ctx, 30 + i % 20, RUN(i % 20 ? responds : sleeps), &out));
    world.gate = true;
    lab_ok(ctx, direct_actor_obey_await(ctx, call, &out));
}

/* ---- the end ---- */

/* A silo that has to drop turns: the callee's, and its caller's. */
static void test_a_silo_stops_over_turns_that_wait(void **state)
{
    teff_call call;
    lab_ok(ctx, direct_actor_obey_async(ctx, 1, ACT(asks_one, .n = (intptr_t)waits), NULL, &call));
    lab_until(world.held == 1);
    teff_ctx_free(ctx);
    assert_int_not_equal(teff_silo_stop(l->silos[0], 1), TEFF_OK);
    teff_silo_free(l->silos[0]);
    free(l);
}

int main(void)
{
#define DIRECT(f) cmocka_unit_test_setup_teardown(f, acts_setup, acts_teardown)
#define ON_ONE_WORKER(f) cmocka_unit_test_setup_teardown(f, acts_setup_one_worker, acts_teardown)
    const struct CMUnitTest tests[] = {
        DIRECT(test_a_callee_forks),
        DIRECT(test_chains_are_deeper_than_stacks_are_nested),
        DIRECT(test_a_cycle_waits_or_enters_as_admission_says),
        DIRECT(test_nothing_is_overtaken),
        DIRECT(test_a_target_that_ends_is_found_anew),
        cmocka_unit_test_setup_teardown(test_a_target_that_moved_is_found_there, NULL,
                                        acts_teardown),
        DIRECT(test_readers_and_writers_never_meet),
        ON_ONE_WORKER(test_a_pair_for_ever_starves_nobody),
        cmocka_unit_test_setup(test_a_silo_stops_over_turns_that_wait, acts_setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
