/* test_stuck_silos.c - hooks that do not return, on two silos: the calls that they wait for end,
 * the activation is unregistered wherever the directory has it, and calls reach the next one. */
#include <string.h>
#include "call/ctx.h"
#include "hosting/stuck.h"
#include "lab.h"
#include "stay.teff.h"

enum { GRAINS = 16 }; /* some are in the directory of the other silo */

static struct {
    _Atomic bool gate, activate_hangs, deactivate_hangs;
    _Atomic int held, activated, deactivated;
    _Atomic int aged; /* hooks to which the time of the load counts */
} world;

static char store[512];
static teff_silo *silos[2];
static teff_ctx *ctx[2];

/* ---- the grains ---- */

static teff_err add(stay_guest *self, const stay_number *in, stay_number *out)
{
    out->n = self->state->n += in->n;
    return stay_guest_save(self);
}

/* Waits for a visitor that waits for the gate, as if it had done so for long. */
static teff_err hang(stay_guest *self)
{
    stay_number *out;
    teff_sleep(self->ctx, 1);
    self->ctx->suspended_ms -= TEFF_HOOK_MAX_MS;
    teff_ctx_set_timeout(self->ctx, 3600000);
    return stay_visitor_ask(self->ctx, self->key, stay_number(), &out);
}

static teff_err begin(stay_guest *self)
{
    world.activated++;
    world.aged += self->ctx->suspended_ms != 0;
    return world.activate_hangs ? hang(self) : TEFF_OK;
}

static teff_err end(stay_guest *self, teff_reason why)
{
    world.deactivated++;
    return world.deactivate_hangs ? hang(self) : TEFF_OK;
}

static teff_err hold(stay_guest *self)
{
    teff_deactivate(self->ctx);
    return TEFF_OK;
}

static teff_err ask(stay_visitor *self, const stay_number *in, stay_number *out)
{
    world.held++;
    while (!world.gate)
        teff_sleep(self->ctx, 1);
    world.held--;
    return TEFF_OK;
}

static const stay_guest_methods guest = {
    .add = add, .hold = hold, .on_activate = begin, .on_deactivate = end};
static const stay_visitor_methods visitor = {.ask = ask};

/* ---- the silos ---- */

static void drop_line(void *arg, teff_log_level level, const char *line)
{
}

static int open_two(void **state)
{
    static const teff_log_handler none = {drop_line, NULL};
    const teff_silo_options opt = {.size = sizeof opt, .silent = 1, .store = store};
    teff_log_to(&none);
    memset(&world, 0, sizeof world);
    lab_fresh_store(store);
    for (int i = 0; i < 2; i++) {
        char text[TEFF_TEXT_MAX] = "";
        assert_int_equal(teff_silo_new(&opt, &silos[i], text), TEFF_OK);
        assert_int_equal(teff_silo_host(silos[i], stay_guest_type(&guest, NULL)), TEFF_OK);
        assert_int_equal(teff_silo_host(silos[i], stay_visitor_type(&visitor, NULL)), TEFF_OK);
        if (teff_silo_start(silos[i], text))
            fail_msg("teff_silo_start: %s", text);
        ctx[i] = teff_silo_new_ctx(silos[i]);
    }
    lab_until(teff_silo_members(silos[0]) == 2);
    return 0;
}

static int close_two(void **state)
{
    world.gate = true;
    for (int i = 0; i < 2; i++) {
        teff_ctx_free(ctx[i]);
        teff_silo_free(silos[i]);
        silos[i] = NULL;
    }
    lab_drop_store(store);
    teff_log_to(NULL);
    return 0;
}

/* Calls all grains at once, from both silos, with n to add. */
static void call_all(teff_call *calls, int64_t n)
{
    for (int64_t key = 0; key < GRAINS; key++)
        lab_ok(ctx[key % 2],
               stay_guest_add_async(ctx[key % 2], key, stay_number(.n = n), NULL, &calls[key]));
}

static void on_activate_that_hangs_is_ended(void **state)
{
    teff_call calls[GRAINS];
    stay_number *out;
    world.activate_hangs = true;
    call_all(calls, 1);
    for (int key = 0; key < GRAINS; key++) {
        lab_fails(ctx[key % 2], stay_guest_add_await(ctx[key % 2], calls[key], &out),
                  TEFF_E_UNAVAILABLE);
        assert_non_null(strstr(teff_error(ctx[key % 2]), "on_activate has not returned for 60 s"));
    }
    assert_int_equal(world.deactivated, 0);
    assert_int_equal(world.aged, 0);
    world.activate_hangs = false;
    for (int key = 0; key < GRAINS; key++) {
        lab_ok(ctx[0], stay_guest_add(ctx[0], key, stay_number(.n = 1), &out));
        assert_int_equal(out->n, 1); /* the first call did not run */
    }
    assert_int_equal(world.activated, 2 * GRAINS);
}

static void on_deactivate_that_hangs_is_ended(void **state)
{
    teff_call calls[GRAINS];
    stay_number *out;
    call_all(calls, 1);
    for (int key = 0; key < GRAINS; key++)
        lab_ok(ctx[key % 2], stay_guest_add_await(ctx[key % 2], calls[key], &out));
    world.deactivate_hangs = true;
    for (int key = 0; key < GRAINS; key++)
        lab_ok(ctx[0], stay_guest_hold(ctx[0], key));
    lab_until(world.held == GRAINS);
    assert_int_equal(world.activated, GRAINS); /* nobody waits for them */
    world.deactivate_hangs = false;
    call_all(calls, 1);
    for (int key = 0; key < GRAINS; key++) {
        lab_ok(ctx[key % 2], stay_guest_add_await(ctx[key % 2], calls[key], &out));
        assert_int_equal(out->n, 2);
    }
    assert_int_equal(world.activated, 2 * GRAINS);
}

int main(void)
{
#define TWO(f) cmocka_unit_test_setup_teardown(f, open_two, close_two)
    const struct CMUnitTest tests[] = {
        TWO(on_activate_that_hangs_is_ended),
        TWO(on_deactivate_that_hangs_is_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
