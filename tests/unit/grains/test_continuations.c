/* test_continuations.c - what a turn starts (calls, timers, stored state, closures) goes on in the
 * group of its activation, also while workers steal groups from each other.
 * Source:  Orleans src/Orleans.Runtime/Scheduler/ActivationTaskScheduler.cs */
#include "../sched/hand_clock.h"
#include "lab.h"
#include "activation/turn.h"
#include "call/wait.h"

enum { CALLERS = 4, ROUNDS = 60, FAN = 6, GRAINS = 12 };

static teff_silo *silo;
static teffi_node *node;
static _Atomic unsigned wrong, steps, posted;

/* Every continuation of a turn is here: its context is its activation's group, and nothing else of
 * the activation runs meanwhile. */
static void at_home(const teff_ctx *ctx)
{
    const teffi_activation *act = teffi_activation_of_ctx(ctx);
    if (node->home.exec->ops->current(node->home.exec) != &act->group ||
        ctx->group != &act->group ||
        teffi_group_state_of((teffi_group *)(uintptr_t)&act->group) != TEFFI_GROUP_RUNNING)
        atomic_fetch_add(&wrong, 1);
    atomic_fetch_add(&steps, 1);
}

static void run_closure(void *arg)
{
    at_home(arg);
}

static void on_post(void *arg)
{
    if (node->home.exec->ops->current(node->home.exec) != arg)
        atomic_fetch_add(&wrong, 1);
    atomic_fetch_add(&posted, 1);
}

static teff_err fan_out(teff_ctx *ctx)
{
    teff_call calls[FAN];
    char key[20];
    for (int i = 0; i < FAN; i++) {
        snprintf(key, sizeof key, "leaf-%d", i);
        teff_err err = lab_account_add_async(ctx, key, lab_number(.n = 1), NULL, &calls[i]);
        if (err)
            return err;
    }
    at_home(ctx);
    teff_err err = teff_await_all(ctx, calls, FAN);
    at_home(ctx);
    return err;
}

static teff_err turns_write(lab_turns *self, const lab_step *in, lab_number *out)
{
    teff_ctx *ctx = self->ctx;
    at_home(ctx);
    teffi_ctx_sleep(ctx, (uint32_t)in->seq % 2); /* a timer */
    at_home(ctx);
    teff_err err = fan_out(ctx);
    teffi_ctx_run_off_fiber(ctx, run_closure, ctx);
    at_home(ctx);
    if (!err)
        err = teff_post(ctx, on_post, ctx->group);
    out->n = in->seq;
    return err;
}

static teff_err account_add(lab_account *self, const lab_number *in, lab_number *out)
{
    at_home(self->ctx);
    self->state->count += in->n;
    out->n = self->state->count;
    teff_err err = lab_account_save(self);
    at_home(self->ctx);
    return err;
}

static teff_err account_begin(lab_account *self)
{
    at_home(self->ctx);
    return TEFF_OK;
}

static const lab_turns_methods turns = {.write = turns_write};
static const lab_account_methods account = {.add = account_add, .on_activate = account_begin};

static int setup(void **state)
{
    teff_silo_options opt = {.size = sizeof opt, .workers = 4, .silent = 1};
    char text[TEFF_TEXT_MAX];
    assert_int_equal(teff_silo_new(&opt, &silo, text), TEFF_OK);
    assert_int_equal(teff_silo_host(silo, lab_turns_type(&turns, NULL)), TEFF_OK);
    assert_int_equal(teff_silo_host(silo, lab_account_type(&account, NULL)), TEFF_OK);
    assert_int_equal(teff_silo_start(silo, text), TEFF_OK);
    node = &silo->node;
    return 0;
}

static int teardown(void **state)
{
    assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
    teff_silo_free(silo);
    return 0;
}

typedef struct caller {
    pthread_t thread;
    teff_ctx *ctx;
    teff_err err;
} caller;

static void *call_many(void *arg)
{
    caller *c = arg;
    teff_call calls[GRAINS];
    char key[20];
    for (int r = 0; r < ROUNDS && !c->err; r++) {
        for (int g = 0; g < GRAINS && !c->err; g++) {
            snprintf(key, sizeof key, "root-%d", g);
            c->err = lab_turns_write_async(c->ctx, key, lab_step(.seq = r + g), NULL, &calls[g]);
        }
        if (!c->err)
            c->err = teff_await_all(c->ctx, calls, GRAINS);
    }
    return NULL;
}

static void every_continuation_of_a_turn_is_at_home(void **state)
{
    caller callers[CALLERS] = {0};
    for (unsigned i = 0; i < CALLERS; i++) {
        callers[i].ctx = teff_silo_new_ctx(silo);
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call_many, &callers[i]), 0);
    }
    for (unsigned i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        lab_ok(callers[i].ctx, callers[i].err);
        teff_ctx_free(callers[i].ctx);
    }
    const unsigned turns_run = CALLERS * ROUNDS * GRAINS;
    until(atomic_load(&posted) == turns_run);
    assert_in_range(atomic_load(&steps), turns_run * (6 + FAN * 2), turns_run * (6 + FAN * 3));
    assert_int_equal(atomic_load(&wrong), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_continuation_of_a_turn_is_at_home, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
