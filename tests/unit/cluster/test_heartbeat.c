/* test_heartbeat.c - a silo whose heartbeat stands still is declared dead, that one and no other.
 * The clock of the silo that watches is the test's. */
#include <stdio.h>
#include <string.h>
#include "call/ctx.h"
#include "call/task.h"
#include "cluster/join.h"
#include "lab.h"
#include "node/ask.h"

enum { WATCHER = 0, SILOS = 3, STEP_MS = 4000, STEPS_MAX = 20 };

static lab *l;
static uint64_t (*real_ns)(void *arg);
static _Atomic uint64_t ahead_ns; /* of the real clock */
static bool has_watcher;

static uint64_t shifted_ns(void *arg)
{
    return real_ns(arg) + ahead_ns;
}

static void shift_clock_of_first(teff_silo *silo)
{
    if (has_watcher)
        return;
    has_watcher = true;
    real_ns = silo->platform.mono_ns;
    silo->platform.mono_ns = shifted_ns;
}

static int setup(void **state)
{
    ahead_ns = 0;
    has_watcher = false;
    l = lab_open_more(SILOS, shift_clock_of_first);
    return 0;
}

static int teardown(void **state)
{
    lab_close(l);
    return 0;
}

static teffi_node_id id_of(int silo)
{
    return l->silos[silo]->node.id;
}

static uint64_t figure_of(int silo)
{
    uint64_t figure;
    lab_ok(l->ctx[silo], lab_read_alive(l->ctx[silo], id_of(silo), &figure));
    return figure;
}

static bool is_ousted(int silo)
{
    return teffi_lease_is_over(&l->silos[silo]->node.home.lease);
}

/* Nothing runs, nothing is saved. */
static void is_fenced(int silo)
{
    lab_number *out;
    teff_ctx *ctx = l->ctx[silo];
    lab_fails(ctx, lab_account_add(ctx, "fenced", lab_number(.n = 1), &out), TEFF_E_UNAVAILABLE);
    assert_non_null(strstr(teff_error(ctx), "lease"));
}

/* The watcher's next heartbeat, later by its clock; meanwhile `live` has beaten. */
static void let_beat(int live, uint32_t step_ms)
{
    uint64_t before = figure_of(WATCHER);
    lab_ok(l->ctx[live], lab_beat(l->ctx[live]));
    ahead_ns += step_ms * 1000000ull;
    lab_until(figure_of(WATCHER) != before);
    teff_ctx_reset(l->ctx[WATCHER]);
    teff_ctx_reset(l->ctx[live]);
}

/* Not the first in the table. */
static int silence_one(void)
{
    int silent = id_of(1).silo > id_of(2).silo ? 1 : 2;
    teffi_membership_stop_timers(l->silos[silent]->node.membership);
    return silent;
}

static void the_silo_that_is_silent_is_declared_dead(void **state)
{
    int silent = silence_one(), live = SILOS - silent;
    for (int i = 0; i < STEPS_MAX && teff_silo_members(l->silos[WATCHER]) == SILOS; i++)
        let_beat(live, STEP_MS);
    assert_int_equal(teff_silo_members(l->silos[WATCHER]), SILOS - 1);
    lab_ok(l->ctx[silent], teffi_membership_refresh(l->ctx[silent], 0));
    assert_true(is_ousted(silent));
    lab_until(teff_silo_members(l->silos[live]) == SILOS - 1);
    assert_false(is_ousted(live));
    assert_false(is_ousted(WATCHER));
}

static void remove_heartbeat(int silo)
{
    teff_ctx *ctx = l->ctx[WATCHER];
    char key[20];
    int n = snprintf(key, sizeof key, "dev%cm%08x", 0, id_of(silo).silo);
    teffi_row row = {
        .table = TEFFI_TABLE_ALIVE, .key = {key, (size_t)n}, .any = true, .remove = true};
    teffi_store_op write = {
        .kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1, .arena = &ctx->arena};
    lab_ok(ctx, teffi_ctx_run_store_op(ctx, &write));
}

/* A live one would write it again. */
static void a_silo_without_a_heartbeat_is_declared_dead(void **state)
{
    uint64_t figure;
    int silent = silence_one(), live = SILOS - silent;
    lab_until(teffi_tasks_count_running(&l->silos[silent]->node.home) ==
              0); /* its last heartbeat */
    remove_heartbeat(silent);
    assert_int_equal(lab_read_alive(l->ctx[WATCHER], id_of(silent), &figure), TEFF_OK);
    assert_int_equal(figure, 0);
    for (int i = 0; i < STEPS_MAX && teff_silo_members(l->silos[WATCHER]) == SILOS; i++)
        let_beat(live, STEP_MS);
    assert_int_equal(teff_silo_members(l->silos[WATCHER]), SILOS - 1);
    lab_until(teff_silo_members(l->silos[live]) == SILOS - 1);
}

/* The others may have stood still as well, and its own lease has run out: it ends by itself. */
static void a_silo_that_stood_still_declares_nobody_dead(void **state)
{
    enum { LONG_MS = 60000, SHORT_MS = 2000 };
    int live = SILOS - silence_one();
    let_beat(live, SHORT_MS);
    ahead_ns += LONG_MS * 1000000ull;
    lab_until(is_ousted(WATCHER));
    assert_int_equal(teff_silo_members(l->silos[WATCHER]), SILOS);
    assert_false(is_ousted(live));
    is_fenced(WATCHER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_silo_that_is_silent_is_declared_dead, setup, teardown),
        cmocka_unit_test_setup_teardown(a_silo_without_a_heartbeat_is_declared_dead, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_silo_that_stood_still_declares_nobody_dead, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
