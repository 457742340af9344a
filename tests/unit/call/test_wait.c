/* test_wait.c - a thread waits for what other threads end: it wakes when all is done, and may free
 * what it waited with at once. */
#include "test.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "call/ctx.h"
#include "call/wait.h"
#include "os/thread.h"

enum { SIGNALLERS = 3, ROUNDS = 1000, LAZY = 200 };

static teffi_home home;

static int setup(void **state)
{
    static const teffi_exec_ops ops = {0};
    static teffi_exec exec = {.ops = &ops};
    memset(&home, 0, sizeof home);
    home.exec = &exec;
    return 0;
}

/* ---- the parker ---- */

static void test_the_token_is_taken_once(void **state)
{
    teffi_parker parker = {0};
    assert_false(teffi_parker_wait(&parker, 0));
    assert_false(teffi_parker_wait(&parker, 1000));
    teffi_parker_wake(&parker);
    teffi_parker_wake(&parker);
    assert_true(teffi_parker_wait(&parker, UINT64_MAX));
    assert_false(teffi_parker_wait(&parker, 0));
}

static void test_tokens_lie_side_by_side(void **state)
{
    teffi_parker parker = {0};
    teffi_parker_wake_with_token(&parker, TEFFI_TOKEN_GIVEN);
    assert_true(teffi_parker_has_token(&parker, TEFFI_TOKEN_GIVEN));
    assert_false(teffi_parker_has_token(&parker, TEFFI_TOKEN));
    teffi_parker_wake_with_token(&parker, TEFFI_TOKEN);
    teffi_parker_wake_with_token(&parker, TEFFI_TOKEN);
    assert_int_equal(teffi_parker_wait_for_tokens(&parker, UINT64_MAX),
                     TEFFI_TOKEN | TEFFI_TOKEN_GIVEN);
    assert_int_equal(teffi_parker_wait_for_tokens(&parker, 0), 0);
    assert_int_equal(teffi_parker_wait_for_tokens(&parker, 1000), 0);
}

/* ---- signals from threads ---- */

typedef struct job {
    teffi_wait wait;
    uint64_t ended; /* written before the signal, read behind the wait */
} job;

typedef struct signaller {
    teffi_thread thread;
    job *_Atomic todo;
    _Atomic bool stop;
    uint64_t rng;
} signaller;

static uint64_t draw(uint64_t *rng, uint64_t below)
{
    *rng ^= *rng << 13;
    *rng ^= *rng >> 7;
    *rng ^= *rng << 17;
    return *rng % below;
}

static void dawdle(uint64_t *rng)
{
    for (uint64_t i = draw(rng, LAZY); i > 0; i--)
        teffi_cpu_relax();
    if (draw(rng, 4) == 0)
        teffi_thread_yield();
}

static void signal_on(void *arg)
{
    signaller *s = arg;
    while (!s->stop) {
        job *j = atomic_exchange(&s->todo, NULL);
        if (!j) {
            teffi_thread_yield();
            continue;
        }
        dawdle(&s->rng);
        j->ended = 1;
        teffi_wait_notify_waiter(&j->wait);
    }
}

/* What it waited with is freed as soon as it may be: whoever touches it later is seen by the
 * sanitizers, and here by what is in the next round's memory. */
static void one_round(signaller *s, uint64_t *rng)
{
    teff_ctx *ctx = teffi_ctx_new(&home);
    job *jobs = calloc(SIGNALLERS, sizeof *jobs);
    teffi_wait *waits[SIGNALLERS];
    assert_non_null(ctx);
    assert_non_null(jobs);
    for (int i = 0; i < SIGNALLERS; i++) {
        waits[i] = &jobs[i].wait;
        teffi_wait_init(waits[i], ctx, NULL);
    }
    for (int i = 0; i < SIGNALLERS; i++)
        s[i].todo = &jobs[i];
    dawdle(rng);
    teffi_await(ctx, waits, SIGNALLERS);
    for (int i = 0; i < SIGNALLERS; i++) {
        assert_true(teffi_wait_is_done(waits[i]));
        assert_int_equal(jobs[i].ended, 1);
    }
    /* no token is left for the next wait */
    assert_false(teffi_parker_wait(&ctx->parker.parker, 0));
    free(jobs);
    teff_ctx_free(ctx);
}

/* Awaits any of the jobs that are left until none is. */
static void one_round_of_any(signaller *s, uint64_t *rng)
{
    teff_ctx *ctx = teffi_ctx_new(&home);
    job *jobs = calloc(SIGNALLERS, sizeof *jobs);
    teffi_wait *left[SIGNALLERS];
    assert_non_null(ctx);
    assert_non_null(jobs);
    for (int i = 0; i < SIGNALLERS; i++) {
        left[i] = &jobs[i].wait;
        teffi_wait_init(left[i], ctx, NULL);
    }
    for (int i = 0; i < SIGNALLERS; i++)
        s[i].todo = &jobs[i];
    for (size_t n = SIGNALLERS, still; n > 0; n = still) {
        dawdle(rng);
        teffi_await_any(ctx, left, n);
        still = 0;
        for (size_t i = 0; i < n; i++)
            if (!teffi_wait_is_done(left[i]))
                left[still++] = left[i];
            else
                assert_int_equal(teffi_container(left[i], job, wait)->ended, 1);
        assert_true(still < n);
        assert_false(teffi_parker_wait(&ctx->parker.parker, 0));
    }
    free(jobs);
    teff_ctx_free(ctx);
}

/* The same wait is listed twice, beside another. */
static void one_round_of_any_of_the_same(signaller *s, uint64_t *rng)
{
    teff_ctx *ctx = teffi_ctx_new(&home);
    job *jobs = calloc(2, sizeof *jobs);
    assert_non_null(ctx);
    assert_non_null(jobs);
    teffi_wait *waits[] = {&jobs[0].wait, &jobs[0].wait, &jobs[1].wait, &jobs[0].wait};
    for (int i = 0; i < 2; i++)
        teffi_wait_init(&jobs[i].wait, ctx, NULL);
    for (int i = 0; i < 2; i++)
        s[i].todo = &jobs[i];
    dawdle(rng);
    teffi_await_any(ctx, waits, 4);
    assert_true(teffi_wait_is_done(waits[0]) || teffi_wait_is_done(waits[2]));
    if (!teffi_wait_is_done(waits[0]))
        teffi_await_any(ctx, waits, 2);
    teffi_await(ctx, waits, 4);
    for (int i = 0; i < 2; i++)
        assert_int_equal(jobs[i].ended, 1);
    assert_false(teffi_parker_wait(&ctx->parker.parker, 0));
    free(jobs);
    teff_ctx_free(ctx);
}

static void signal_rounds(void (*round)(signaller *s, uint64_t *rng))
{
    static signaller s[SIGNALLERS];
    uint64_t rng = 88172645463325252u;
    for (int i = 0; i < SIGNALLERS; i++) {
        s[i].stop = false;
        s[i].rng = draw(&rng, UINT64_MAX) | 1;
        assert_int_equal(teffi_thread_start(&s[i].thread, "signaller", signal_on, &s[i]), TEFF_OK);
    }
    for (int i = 0; i < ROUNDS; i++)
        round(s, &rng);
    for (int i = 0; i < SIGNALLERS; i++) {
        s[i].stop = true;
        teffi_thread_join(&s[i].thread);
    }
}

static void test_the_last_signal_wakes(void **state)
{
    signal_rounds(one_round);
}

static void test_the_first_signal_wakes_who_waits_for_any(void **state)
{
    signal_rounds(one_round_of_any);
}

static void test_a_wait_may_be_listed_twice(void **state)
{
    signal_rounds(one_round_of_any_of_the_same);
}

/* Leaves its token each time that the sleeper has taken the last. */
typedef struct leaver {
    teffi_thread thread;
    teffi_parker *parker;
    uint32_t token;
    uint64_t rng;
    _Atomic uint32_t taken;
} leaver;

static void leave_on(void *arg)
{
    leaver *l = arg;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        while (l->taken < i)
            teffi_thread_yield();
        dawdle(&l->rng);
        teffi_parker_wake_with_token(l->parker, l->token);
    }
}

/* A token that is lost is waited for in vain. */
static void test_a_sleeper_wakes_for_either_token(void **state)
{
    teffi_parker parker = {0};
    leaver l[] = {{.parker = &parker, .token = TEFFI_TOKEN, .rng = 1},
                  {.parker = &parker, .token = TEFFI_TOKEN_GIVEN, .rng = 2}};
    uint64_t rng = 3;
    for (int i = 0; i < 2; i++)
        assert_int_equal(teffi_thread_start(&l[i].thread, "leaver", leave_on, &l[i]), TEFF_OK);
    while (l[0].taken < ROUNDS || l[1].taken < ROUNDS) {
        uint32_t tokens = teffi_parker_wait_for_tokens(&parker, UINT64_MAX);
        assert_int_equal(tokens & ~(uint32_t)(TEFFI_TOKEN | TEFFI_TOKEN_GIVEN), 0);
        l[0].taken += (tokens & TEFFI_TOKEN) != 0;
        l[1].taken += (tokens & TEFFI_TOKEN_GIVEN) != 0;
        dawdle(&rng);
    }
    for (int i = 0; i < 2; i++)
        teffi_thread_join(&l[i].thread);
    assert_int_equal(teffi_parker_wait_for_tokens(&parker, 0), 0);
}

/* Some are done before, one is there twice. */
static void test_what_is_done_is_not_waited_for(void **state)
{
    teffi_wait a, b;
    teff_ctx *ctx = teffi_ctx_new(&home);
    teffi_wait *waits[] = {&a, &b, &a};
    teffi_wait_init(&a, ctx, NULL);
    teffi_wait_init(&b, ctx, NULL);
    teffi_wait_notify_waiter(&a);
    assert_true(teffi_wait_is_done(&a));
    assert_false(teffi_wait_is_done(&b));
    teffi_wait_notify_waiter(&b);
    teffi_await(ctx, waits, 3);
    teff_ctx_free(ctx);
}

/* ---- the node ---- */

typedef struct later {
    teffi_wait *wait;
    teff_ctx *ctx;
} later;

static uint32_t users_asleep;

/* Not before the thread sleeps for it. */
static void signal_a_sleeper(void *arg)
{
    later *l = arg;
    while (atomic_load(&l->ctx->parker.parker.word) != TEFFI_PARKER_ASLEEP)
        teffi_thread_yield();
    users_asleep = home.users;
    teffi_wait_notify_waiter(l->wait);
}

static void await_one(teff_ctx *ctx)
{
    teffi_wait wait, *waits[] = {&wait};
    later l = {&wait, ctx};
    teffi_thread thread;
    teffi_wait_init(&wait, ctx, NULL);
    assert_int_equal(teffi_thread_start(&thread, "signaller", signal_a_sleeper, &l), TEFF_OK);
    teffi_await(ctx, waits, 1);
    teffi_thread_join(&thread);
}

/* What its end frees is not looked at: a look would be a fault here. */
static void test_a_closed_node_is_not_looked_at(void **state)
{
    teff_ctx *ctx = teffi_ctx_new(&home);
    home.closed = true;
    home.exec = NULL;
    home.net = (teffi_net *)(void *)64;
    await_one(ctx);
    teff_ctx_free(ctx);
}

/* ---- a net that the thread reads from ---- */

/* What the net saw. */
static struct seen {
    bool refuses;
    teff_ctx *ctx;
    teffi_wait *answered; /* by what the thread reads there; or NULL */
    uint32_t waits, wrong, users_before, users_behind, tokens;
} net_saw;

static bool sleep_and_read(teffi_net *net, teffi_poll_parker *parker, uint32_t *tokens)
{
    net_saw.waits++;
    net_saw.users_before = home.users;
    net_saw.wrong += net != home.net || parker != &net_saw.ctx->parker;
    if (net_saw.refuses)
        return false;
    if (net_saw.answered)
        teffi_parker_wake_with_token(&parker->parker, TEFFI_TOKEN_GIVEN);
    *tokens = teffi_parker_wait_for_tokens(&parker->parker, UINT64_MAX);
    net_saw.users_behind = home.users;
    net_saw.tokens |= *tokens;
    if (net_saw.answered)
        teffi_wait_notify_waiter(net_saw.answered);
    return true;
}

static teff_ctx *reading_ctx(teffi_net *net)
{
    static const teffi_net_ops ops = {.wait = sleep_and_read};
    net->ops = &ops;
    teff_ctx *ctx = teffi_ctx_new(&home);
    net_saw = (struct seen){.ctx = ctx};
    home.net = net;
    return ctx;
}

static void saw(uint32_t users_behind)
{
    assert_int_equal(net_saw.waits, 1);
    assert_int_equal(net_saw.users_before, 1);
    assert_int_equal(net_saw.users_behind, users_behind);
    assert_int_equal(net_saw.wrong, 0);
    assert_int_equal(home.users, 0);
    assert_false(teffi_parker_wait(&net_saw.ctx->parker.parker, 0));
}

static void test_it_reads_inside_of_the_node(void **state)
{
    teffi_net net;
    teff_ctx *ctx = reading_ctx(&net);
    await_one(ctx);
    saw(1);
    assert_int_equal(users_asleep, 1);
    assert_int_equal(net_saw.tokens, TEFFI_TOKEN);
    teff_ctx_free(ctx);
}

static _Atomic bool over;

static void signal_if_it_sleeps(void *arg)
{
    later *l = arg;
    while (atomic_load(&l->ctx->parker.parker.word) != TEFFI_PARKER_ASLEEP && !over)
        teffi_thread_yield();
    teffi_wait_notify_waiter(l->wait);
}

/* It is given something to read, and reads its own response: it does not sleep once more. */
static void test_what_it_reads_ends_the_wait(void **state)
{
    teffi_wait wait, *waits[] = {&wait};
    teffi_thread thread;
    teffi_net net;
    teff_ctx *ctx = reading_ctx(&net);
    teffi_wait_init(&wait, ctx, NULL);
    net_saw.answered = &wait;
    later l = {&wait, ctx};
    over = false;
    assert_int_equal(teffi_thread_start(&thread, "signaller", signal_if_it_sleeps, &l), TEFF_OK);
    teffi_await(ctx, waits, 1);
    over = true;
    teffi_thread_join(&thread);
    assert_true(teffi_wait_is_done(&wait));
    saw(1);
    assert_int_equal(net_saw.tokens, TEFFI_TOKEN_GIVEN);
    teff_ctx_free(ctx);
}

/* It sleeps all the same; the node's end does not wait for it. */
static void test_a_net_that_it_does_not_read_from(void **state)
{
    teffi_net net;
    teff_ctx *ctx = reading_ctx(&net);
    net_saw.refuses = true;
    await_one(ctx);
    saw(0);
    assert_int_equal(users_asleep, 0);
    teff_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_the_token_is_taken_once, setup),
        cmocka_unit_test_setup(test_tokens_lie_side_by_side, setup),
        cmocka_unit_test_setup(test_a_sleeper_wakes_for_either_token, setup),
        cmocka_unit_test_setup(test_the_last_signal_wakes, setup),
        cmocka_unit_test_setup(test_the_first_signal_wakes_who_waits_for_any, setup),
        cmocka_unit_test_setup(test_a_wait_may_be_listed_twice, setup),
        cmocka_unit_test_setup(test_what_is_done_is_not_waited_for, setup),
        cmocka_unit_test_setup(test_a_closed_node_is_not_looked_at, setup),
        cmocka_unit_test_setup(test_it_reads_inside_of_the_node, setup),
        cmocka_unit_test_setup(test_what_it_reads_ends_the_wait, setup),
        cmocka_unit_test_setup(test_a_net_that_it_does_not_read_from, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
