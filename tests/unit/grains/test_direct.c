/* test_direct.c - calls that run inside their caller's turn: everything that could tell them from
 * calls through the queue. What the grains do is in the functions that the tests hand them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <teff/fork.h>
#include <time.h>
#include "direct.teff.h"
#include "grains.h"
#include "lab.h"

typedef teff_err script(teff_ctx *ctx, int64_t key, const direct_act *in, direct_number *out);

enum { FIRST = 100 }; /* keys of callees; callers have smaller ones */

static struct {
    _Atomic bool gate;
    _Atomic int held, begun, ended;
    _Atomic int64_t rounds, seen[64];
    _Atomic int disorder, inside, collisions;
} world;

static lab *l;
static teff_ctx *ctx;

#define RUN(fn) direct_act(.script = (uintptr_t)(fn))
#define ACT(fn, ...) direct_act(.script = (uintptr_t)(fn), __VA_ARGS__)

/* ---- the grains ---- */

static teff_err obeys(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    world.begun++;
    teff_err err = ((script *)(uintptr_t)in->script)(turn, key, in, out);
    world.ended++;
    return err;
}

static teff_err obey_actor(direct_actor *self, const direct_act *in, direct_number *out)
{
    return obeys(self->ctx, self->key, in, out);
}

static teff_err actor_tell(direct_actor *self, const direct_act *in)
{
    return obeys(self->ctx, self->key, in, NULL);
}

static const direct_actor_methods actor = {
    .obey = obey_actor, .read = obey_actor, .quick = obey_actor, .tell = actor_tell};

static teff_err loose_obey(direct_loose *self, const direct_act *in, direct_number *out)
{
    return obeys(self->ctx, self->key, in, out);
}

static const direct_loose_methods loose = {.obey = loose_obey};

static void open_with(const teff_silo_options *opt)
{
    char text[TEFF_TEXT_MAX] = "";
    memset(&world, 0, sizeof world);
    l = calloc(1, sizeof *l);
    assert_non_null(l);
    if (teff_silo_new(opt, &l->silos[0], text))
        fail_msg("teff_silo_new: %s", text);
    assert_int_equal(teff_silo_host(l->silos[0], direct_actor_type(&actor, NULL)), TEFF_OK);
    assert_int_equal(teff_silo_host(l->silos[0], direct_loose_type(&loose, NULL)), TEFF_OK);
    if (teff_silo_start(l->silos[0], text))
        fail_msg("teff_silo_start: %s", text);
    ctx = l->ctx[0] = teff_silo_ctx(l->silos[0]);
    l->n = 1;
}

static int setup(void **state)
{
    (void)state;
    open_with(&(teff_silo_options){.silent = 1, .store = "memory", .workers = 2});
    return 0;
}

static int setup_one_worker(void **state)
{
    (void)state;
    open_with(&(teff_silo_options){.silent = 1, .store = "memory", .workers = 1});
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world.gate = true;
    lab_close(l);
    return 0;
}

static void sleep_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* Groups taken off queues so far. */
static uint64_t picks(void)
{
    teff_sched_worker workers[64];
    uint64_t sum = 0;
    size_t n = teff_silo_sched(l->silos[0], NULL, workers, 64);
    for (size_t i = 0; i < n; i++)
        sum += workers[i].local + workers[i].global + workers[i].stolen;
    return sum;
}

static void wait_for_gate(teff_ctx *turn)
{
    world.held++;
    while (!world.gate)
        teffi_ctx_sleep(turn, 1);
    world.held--;
}

/* ---- callees ---- */

static teff_err answers(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    (void)turn;
    out->n = in->n + 1;
    out->text = in->text;
    return key ? TEFF_OK : TEFF_E_FAILED;
}

static teff_err fails(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    (void)out;
    return teff_fail(turn, TEFF_E_USER + 3, "%s says grain %d", in->text, (int)key);
}

static teff_err sleeps(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    teffi_ctx_sleep(turn, 1);
    return answers(turn, key, in, out);
}

static teff_err waits(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    wait_for_gate(turn);
    return answers(turn, key, in, out);
}

static teff_err ends(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    teff_deactivate(turn);
    return answers(turn, key, in, out);
}

/* ---- what is handed back ---- */

static teff_err asks_many(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got[8];
    char text[20];
    (void)key;
    for (int64_t i = 0; i < in->n; i++) {
        snprintf(text, sizeof text, "t%d", (int)i);
        teff_err err =
            direct_actor_obey(turn, FIRST + i % 3, ACT(answers, .n = i, .text = text), &got[i % 8]);
        if (err)
            return err;
        out->n += got[i % 8]->n == i + 1 && !strcmp(got[i % 8]->text, text);
    }
    return got[0]->text[0] == 't' ? TEFF_OK : TEFF_E_FAILED; /* an older answer is still there */
}

/* Two calls in three find an idle, active grain: they need no queue. */
static void test_answers_come_without_a_queue(void **state)
{
    enum { CALLS = 900 };
    direct_number *out;
    (void)state;
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_many, .n = 3), &out));
    for (int tries = 0;; tries++) { /* a thread that stood still may send some through the queue */
        uint64_t before = picks();
        int begun = world.begun;
        lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_many, .n = CALLS), &out));
        assert_int_equal(out->n, CALLS);
        assert_int_equal(world.begun - begun, CALLS + 1);
        if (picks() - before < CALLS / 9)
            break;
        assert_true(tries < 1000);
    }
}

static teff_err asks_failing(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    (void)key;
    teff_err err = direct_actor_obey(turn, FIRST, RUN(answers), &got);
    if (err)
        return err;
    err = direct_actor_obey(turn, FIRST, ACT(fails, .text = in->text), &got);
    out->n = err;
    out->text = teff_strdup(turn, teff_error(turn));
    return TEFF_OK;
}

static void test_errors_have_code_and_text(void **state)
{
    direct_number *out;
    (void)state;
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_failing, .text = (char *)"no"), &out));
    assert_int_equal(out->n, TEFF_E_USER + 3);
    assert_string_equal(out->text, "no says grain 100");
}

static teff_err asks_sleeping(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    (void)key;
    for (int64_t i = 0; i < in->n; i++) {
        script *fn = i % 2 ? sleeps : answers;
        teff_err err =
            direct_actor_obey(turn, FIRST + i % 3, ACT(fn, .n = i, .text = in->text), &got);
        if (err)
            return err;
        out->n += got->n == i + 1 && !strcmp(got->text, in->text);
    }
    return TEFF_OK;
}

static void test_a_callee_may_wait(void **state)
{
    direct_number *out;
    (void)state;
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_sleeping, .n = 30, .text = (char *)"x"), &out));
    assert_int_equal(out->n, 30);
}

/* ---- time ---- */

static teff_err asks_quick(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    (void)key;
    teff_err err = direct_actor_obey(turn, FIRST, RUN(answers), &got);
    if (err)
        return err;
    out->n = direct_actor_quick(turn, FIRST, RUN((uintptr_t)in->n), &got);
    return TEFF_OK;
}

static void test_a_callee_outlives_its_caller(void **state)
{
    direct_number *out;
    (void)state;
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_quick, .n = (intptr_t)waits), &out));
    assert_int_equal(out->n, TEFF_E_TIMEOUT);
    assert_int_equal(world.held, 1);
    int ended = world.ended;
    world.gate = true;
    lab_until(world.ended == ended + 1);
    lab_ok(ctx, direct_actor_obey(ctx, FIRST, RUN(answers), &out));
}

static teff_err stands(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    sleep_ms(60);
    return answers(turn, key, in, out);
}

static void test_a_late_answer_is_a_timeout(void **state)
{
    direct_number *out;
    (void)state;
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_quick, .n = (intptr_t)stands), &out));
    assert_int_equal(out->n, TEFF_E_TIMEOUT);
}

static teff_err blocks(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    teff_blocking_begin();
    sleep_ms(12);
    teff_blocking_end();
    return answers(turn, key, in, out);
}

static teff_err asks_blocking(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    (void)key;
    for (int64_t i = 0; i < in->n; i++) {
        teff_err err = direct_actor_obey(turn, FIRST, ACT(blocks, .n = i), &got);
        if (err)
            return err;
        out->n += got->n == i + 1;
    }
    return TEFF_OK;
}

static uint32_t skips(const char *method)
{
    teffi_grains *grains = l->silos[0]->node.grains;
    for (size_t t = 0; t < grains->n_types; t++)
        for (size_t m = 0; m < grains->types[t]->info->n_methods; m++)
            if (strcmp(grains->types[t]->info->methods[m].name, method) == 0)
                return grains->types[t]->slow[m] & UINT16_MAX;
    return 0;
}

/* Others have the worker meanwhile, the answers are right, and soon it is called through the queue,
 * where its caller can time out. */
static void test_a_method_that_blocks_goes_through_the_queue(void **state)
{
    direct_number *out;
    (void)state;
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_blocking, .n = 1), &out));
    for (int i = 0; i < 1000 && !skips("direct.Actor.Obey"); i++)
        lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_blocking, .n = 3), &out));
    assert_true(skips("direct.Actor.Obey") > 0);
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_many, .n = 2000), &out));
    assert_int_equal(out->n, 2000);
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_many, .n = 2000), &out));
    assert_int_equal(skips("direct.Actor.Obey"), 0); /* forgiven */
}

/* Gives way inside its caller's turn, which gives way with it. */
static teff_err spins(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    world.held++;
    while (!world.gate)
        if (teff_await_all(turn, NULL, 0))
            return TEFF_E_FAILED;
    world.held--;
    return answers(turn, key, in, out);
}

static teff_err computes(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    volatile uint64_t sum = 0;
    world.held++;
    while (!world.gate) {
        teff_preemptible region = teff_preemptible_begin();
        for (unsigned i = 0; i < 1000000; i++)
            sum += i;
        teff_preemptible_end(region);
        (void)sum;
    }
    world.held--;
    return answers(turn, key, in, out);
}

static teff_err asks_one(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    teff_err err =
        direct_actor_obey(turn, key + FIRST, ACT((uintptr_t)in->n, .text = in->text), &got);
    out->n = err ? 0 : got->n;
    return err;
}

static void other_grains_run_beside(script *fn)
{
    enum { CALLERS = 4 };
    teff_call calls[CALLERS];
    direct_number *out;
    for (int i = 0; i < CALLERS; i++) /* active, all of them */
        lab_ok(ctx, direct_actor_obey(ctx, i + 1, ACT(asks_one, .n = (intptr_t)answers), &out));
    for (int i = 0; i < CALLERS; i++)
        lab_ok(ctx,
               direct_actor_obey_start(ctx, i + 1, ACT(asks_one, .n = (intptr_t)fn), &calls[i]));
    lab_until(world.held == CALLERS);
    for (int i = 0; i < 20; i++)
        lab_ok(ctx, direct_actor_obey(ctx, 50, RUN(answers), &out));
    world.gate = true;
    for (int i = 0; i < CALLERS; i++) {
        lab_ok(ctx, direct_actor_obey_reply(ctx, calls[i], &out));
        assert_int_equal(out->n, 1);
    }
}

static void test_a_callee_gives_way_at_its_calls(void **state)
{
    (void)state;
    other_grains_run_beside(spins);
}

static void test_a_callee_is_preempted_in_a_region(void **state)
{
    (void)state;
    other_grains_run_beside(computes);
}

/* ---- fork inside ---- */

static void part(void *arg)
{
    _Atomic int *n = arg;
    (*n)++;
    sleep_ms(1);
}

static teff_err forks(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    _Atomic int n = 0;
    teff_join join = {{0}};
    (void)turn;
    for (int i = 0; i < 6; i++)
        teff_fork(&join, (in->n + i) % 2 ? TEFF_STEAL_CHILD : TEFF_STEAL_CONTINUATION, part, &n);
    teff_join_wait(&join);
    out->n = n;
    return key ? TEFF_OK : TEFF_E_FAILED;
}

static teff_err asks_forking(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    (void)key;
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
    (void)state;
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
    (void)state;
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
    teff_ctx_timeout(turn, in->text[0] ? 50 : 0);
    teff_err err = in->text[0] ? direct_actor_obey(turn, key - FIRST, RUN(answers), &got)
                               : direct_loose_obey(turn, key - FIRST, RUN(answers), &got);
    out->n = err ? (int64_t)err : 1000 + got->n;
    return TEFF_OK;
}

static void test_a_cycle_waits_or_enters_as_admission_says(void **state)
{
    direct_number *out;
    (void)state;
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
    (void)out;
    for (int64_t i = 1; i <= in->n; i++) {
        teff_call call;
        teff_err err;
        if (i % 3 == 0)
            err = direct_actor_obey(turn, key + FIRST, ACT(in_order, .n = i), &got);
        else if (i % 7 == 0)
            err = direct_actor_obey_start(turn, key + FIRST, ACT(in_order, .n = i), &call);
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
    (void)state;
    for (int k = 0; k < 20; k++)
        lab_ok(ctx, direct_actor_obey(ctx, k, ACT(tells_and_asks, .n = 60), &out));
    assert_int_equal(world.disorder, 0);
}

/* ---- activations come and go ---- */

static teff_err asks_ending(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    (void)key;
    for (int64_t i = 0; i < in->n; i++) {
        script *fn = i % 3 ? ends : answers;
        teff_err err =
            direct_actor_obey(turn, FIRST + i % 40, ACT(fn, .n = i, .text = in->text), &got);
        if (err)
            return err;
        out->n += got->n == i + 1;
    }
    return TEFF_OK;
}

static uint64_t activations(void)
{
    return l->silos[0]->node.grains->catalog.count;
}

/* Their memory becomes that of other grains, which older guesses lead to. */
static void test_a_target_that_ends_is_found_anew(void **state)
{
    direct_number *out;
    (void)state;
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_ending, .n = 1200, .text = (char *)"e"), &out));
    assert_int_equal(out->n, 1200);
    for (int i = 0; i < 41; i++)
        lab_ok(ctx, direct_actor_obey(ctx, i < 40 ? FIRST + i : 1, RUN(ends), &out));
    lab_until(activations() == 0);
}

static teff_err says_where(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    (void)in;
    out->n = key;
    out->text = teff_strdup(turn, turn->node->address);
    return TEFF_OK;
}

static teff_err asks_where(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    (void)key;
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
    teffi_ident ident = teffi_ident_of(direct_actor_info.id, bytes, len);
    for (int i = 0; i < 4; i++)
        teffi_cache_drop(&l->silos[i / 2]->node.grains->locate, ident.hash,
                         l->silos[i % 2]->node.id);
}

static void test_a_target_that_moved_is_found_there(void **state)
{
    char store[512], text[TEFF_TEXT_MAX] = "";
    direct_number *out;
    (void)state;
    lab_fresh_store(store);
    open_with(&(teff_silo_options){.silent = 1, .store = store, .workers = 2});
    strcpy(l->store, store);
    teff_silo_options opt = {.silent = 1, .store = store, .workers = 2};
    assert_int_equal(teff_silo_new(&opt, &l->silos[1], text), TEFF_OK);
    assert_int_equal(teff_silo_host(l->silos[1], direct_actor_type(&actor, NULL)), TEFF_OK);
    assert_int_equal(teff_silo_start(l->silos[1], text), TEFF_OK);
    l->ctx[1] = teff_silo_ctx(l->silos[1]);
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
        lab_until(activations() + l->silos[1]->node.grains->catalog.count == 1);
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
    (void)state;
    for (int i = 0; i < CALLERS; i++)
        lab_ok(ctx, direct_actor_obey_start(ctx, i + 1, ACT(mixes, .n = CALLS), &calls[i]));
    for (int i = 0; i < CALLERS; i++) {
        lab_ok(ctx, direct_actor_obey_reply(ctx, calls[i], &out));
        assert_int_equal(out->n, CALLS);
    }
    assert_int_equal(world.collisions, 0);
}

/* ---- fairness ---- */

static teff_err asks_for_ever(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    (void)in;
    (void)out;
    while (!world.gate) {
        teff_err err = direct_actor_obey(turn, key + FIRST, RUN(answers), &got);
        if (err)
            return err;
        world.rounds++;
    }
    return TEFF_OK;
}

/* Comes round by telling itself: a pick each. */
static teff_err comes_round(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    (void)out;
    world.ended--; /* it is not counted */
    world.begun--;
    world.held++;
    return world.gate ? TEFF_OK : direct_actor_tell(turn, key, ACT(comes_round, .n = in->n));
}

/* On one worker: a turn that calls for ever, and a grain that wants a turn again and again. Neither
 * waits for the other more than a share; the clock of the machine has no part in it. */
static void test_a_pair_for_ever_starves_nobody(void **state)
{
    enum { ROUNDS = 100 };
    teff_call call;
    direct_number *out;
    (void)state;
    lab_ok(ctx, direct_actor_obey_start(ctx, 1, RUN(asks_for_ever), &call));
    lab_until(world.rounds > 1000);
    lab_ok(ctx, direct_actor_tell(ctx, 20, RUN(comes_round)));
    lab_until(world.held > 0);
    int64_t calls = world.rounds, held = world.held;
    lab_until(world.held >= held + ROUNDS && world.rounds >= calls + 256 * ROUNDS);
    calls = world.rounds - calls;
    held = world.held - held;
    assert_in_range(calls / held, 0, 4 * 256);
    for (int i = 0; i < 200; i++) /* others, and a timer, are not kept for ever either */
        lab_ok(ctx, direct_actor_obey(ctx, 30 + i % 20, RUN(i % 20 ? answers : sleeps), &out));
    world.gate = true;
    lab_ok(ctx, direct_actor_obey_reply(ctx, call, &out));
}

/* ---- the end ---- */

/* A silo that has to drop turns: the callee's, and its caller's. */
static void test_a_silo_stops_over_turns_that_wait(void **state)
{
    teff_call call;
    (void)state;
    lab_ok(ctx, direct_actor_obey_start(ctx, 1, ACT(asks_one, .n = (intptr_t)waits), &call));
    lab_until(world.held == 1);
    teff_ctx_free(ctx);
    assert_int_not_equal(teff_silo_stop(l->silos[0], 1), TEFF_OK);
    teff_silo_free(l->silos[0]);
    free(l);
}

int main(void)
{
#define DIRECT(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define ON_ONE_WORKER(f) cmocka_unit_test_setup_teardown(f, setup_one_worker, teardown)
    const struct CMUnitTest tests[] = {
        DIRECT(test_answers_come_without_a_queue),
        DIRECT(test_errors_have_code_and_text),
        DIRECT(test_a_callee_may_wait),
        DIRECT(test_a_callee_outlives_its_caller),
        DIRECT(test_a_late_answer_is_a_timeout),
        DIRECT(test_a_method_that_blocks_goes_through_the_queue),
        DIRECT(test_a_callee_gives_way_at_its_calls),
        ON_ONE_WORKER(test_a_callee_gives_way_at_its_calls),
        ON_ONE_WORKER(test_a_callee_is_preempted_in_a_region),
        DIRECT(test_a_callee_forks),
        DIRECT(test_chains_are_deeper_than_stacks_are_nested),
        DIRECT(test_a_cycle_waits_or_enters_as_admission_says),
        DIRECT(test_nothing_is_overtaken),
        DIRECT(test_a_target_that_ends_is_found_anew),
        cmocka_unit_test_setup_teardown(test_a_target_that_moved_is_found_there, NULL, teardown),
        DIRECT(test_readers_and_writers_never_meet),
        ON_ONE_WORKER(test_a_pair_for_ever_starves_nobody),
        cmocka_unit_test_setup(test_a_silo_stops_over_turns_that_wait, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
