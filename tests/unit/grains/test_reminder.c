/* test_reminder.c - what grains do with reminders: register, replace, read, list, unregister. */
#include "sleepers.h"

static int setup_one(void **state)
{
    return open_silos(1);
}

static int setup_three(void **state)
{
    return open_silos(3);
}

static int64_t count_of(const char *key)
{
    int64_t n = -1;
    lab_ok(l->ctx[0], run_at(0, key, count, 0, &n));
    return n;
}

static void test_one_tick(void **state)
{
    run_ok("0", once, 0);
    lab_until(world.kept == 1);
    assert_string_equal(world.tick[0].name, "once");
    assert_true(world.tick[0].last);
    assert_int_equal(world.tick[0].missed, 0);
    lab_until(count_of("0") == 0);
    assert_int_equal(world.kept, 1);
}

/* Ticks are at whole periods from the first one, however late each is; the others are missed. */
static void test_ticks_do_not_drift(void **state)
{
    run_ok("0", each, 20);
    lab_until(world.kept >= 8);
    uint64_t missed = 0;
    for (int i = 1; i < 8; i++) {
        missed += world.tick[i].missed;
        assert_int_equal(world.tick[i].due_ms, world.tick[0].due_ms + ((uint64_t)i + missed) * 20);
        assert_false(world.tick[i].last);
    }
    run_ok("0", end_each, 0);
    int before = world.kept;
    assert_int_equal(count_of("0"), 0);
    pass_ms(60);
    assert_int_equal(world.kept, before);
    lab_fails(l->ctx[0], run_at(0, "0", end_each, 0, NULL), TEFF_E_NOT_FOUND);
}

static teff_err holds(teff_ctx *ctx, int64_t n, int64_t *out)
{
    teff_err err = each(ctx, n, out);
    world.held++;
    while (!world.gate)
        teff_sleep(ctx, 1);
    return err ? err : teff_reminder_unregister(ctx, "each");
}

/* A tick waits for the grain while its reminder is unregistered: it does not run. */
static void test_no_tick_begins_after_unregister(void **state)
{
    teff_call call;
    reminder_number *number;
    teff_ctx *ctx = l->ctx[0];
    lab_ok(ctx, reminder_sleeper_ask_async(
                    ctx, "0", reminder_beat(.script = (uintptr_t)holds, .n = 1), NULL, &call));
    lab_until(world.held == 1);
    pass_ms(30);
    world.gate = true;
    lab_ok(ctx, reminder_sleeper_ask_await(ctx, call, &number));
    assert_int_equal(count_of("0"), 0);
    pass_ms(30);
    assert_int_equal(world.kept, 0);
}

static teff_err replaces(teff_ctx *ctx, int64_t n, int64_t *out)
{
    teff_err err = each(ctx, 3600000, out);
    return err ? err : each(ctx, 10, out);
}

static void test_the_newer_reminder_counts(void **state)
{
    run_ok("0", each, 10);
    lab_until(world.kept >= 2);
    run_ok("0", replaces, 0);
    int before = world.kept;
    lab_until(world.kept >= before + 3);
    assert_int_equal(count_of("0"), 1);
    run_ok("0", each, 3600000); /* its first tick comes at once, the second one in an hour */
    lab_until(count_of("0") == 1);
}

static teff_err ends_by_itself(teff_ctx *ctx, int64_t n, int64_t *out)
{
    return teff_reminder_register(ctx, "ttl",
                                  &(teff_reminder_options){.size = sizeof(teff_reminder_options),
                                                           .period_ms = 20,
                                                           .ttl_ms = 90});
}

static void test_a_reminder_ends_by_itself(void **state)
{
    run_ok("0", ends_by_itself, 0);
    lab_until(world.kept > 0 && world.tick[world.kept - 1].last);
    lab_until(count_of("0") == 0);
    int n = world.kept;
    assert_int_equal(world.tick[n - 1].due_ms - world.tick[0].due_ms, 80);
}

/* The tick is tried again a second later, with those that it has missed. */
static void test_a_tick_that_fails_is_tried_again(void **state)
{
    world.fails = 1;
    run_ok("0", each, 50);
    lab_until(world.kept == 2);
    assert_true(world.tick[1].missed >= 19);
    assert_int_equal(world.tick[1].due_ms, world.tick[0].due_ms + world.tick[1].missed * 50);
}

/* Whatever error on_reminder returns: it is no word about the reminder's row. */
static void test_each_error_of_on_reminder_is_tried_again(void **state)
{
    static const teff_err errs[] = {TEFF_E_NOT_FOUND, TEFF_E_CONFLICT,  TEFF_E_CANCELLED,
                                    TEFF_E_CLOSED,    TEFF_E_MALFORMED, TEFF_E_UNKNOWN};
    for (size_t i = 0; i < sizeof errs / sizeof errs[0]; i++) {
        world.kept = 0;
        world.fails_as = (int)errs[i];
        world.fails = 1;
        run_ok("0", each, 50);
        lab_until(world.kept == 2);
        assert_true(world.tick[1].missed >= 19);
        run_ok("0", end_each, 0);
    }
}

/* It stays while no silo hosts the type. */
static void test_a_type_that_no_silo_hosts(void **state)
{
    char key[12];
    for (int i = 0; i < SLEEPERS; i++) {
        snprintf(key, sizeof key, "%d", i);
        run_ok(key, each, 20);
    }
    world.no_type = true;
    (void)lab_add(l);
    for (int i = 0; i < 3; i++)
        assert_int_equal(lab_remove(l, i), TEFF_OK);
    pass_ms(1500);
    int before[SLEEPERS];
    for (int i = 0; i < SLEEPERS; i++)
        before[i] = world.ticks[i];
    world.no_type = false;
    (void)lab_add(l);
    for (int i = 0; i < SLEEPERS; i++)
        lab_until(world.ticks[i] > before[i]);
}

/* The caller's time-out ends, and the next try waits for the grain: it finds that the row says that
 * the tick was delivered. */
static void test_a_tick_that_outlasts_its_time_out_runs_once(void **state)
{
    l->silos[0]->node.grains->reminders->tick_timeout_ms = 100;
    world.slow_ms = 1500;
    run_ok("0", once, 0);
    lab_until(world.ticks[0] == 1);
    lab_until(count_of("0") == 0);
    pass_ms(2500);
    assert_int_equal(world.ticks[0], 1);
}

static teff_err registers_two(teff_ctx *ctx, int64_t n, int64_t *out)
{
    teff_err err = teff_reminder_register(ctx, "1", NULL);
    return err ? err : teff_reminder_register(ctx, "2", NULL);
}

/* The type lets turns overlap, but the next try of a tick does not begin while the tick's turn
 * lasts, though its caller waits no more. Ticks of two reminders do overlap. */
static void test_a_tick_does_not_overlap_with_its_next_try(void **state)
{
    reminder_number *number;
    l->silos[0]->node.grains->reminders->tick_timeout_ms = 100;
    world.slow_ms = 1500;
    lab_ok(l->ctx[0],
           reminder_restless_ask(l->ctx[0], "r", reminder_beat(.script = (uintptr_t)registers_two),
                                 &number));
    lab_until(world.ticks[1] == 1 && world.ticks[2] == 1);
    assert_int_equal(world.most, 2);
    lab_ok(l->ctx[0], reminder_restless_ask(l->ctx[0], "r",
                                            reminder_beat(.script = (uintptr_t)count), &number));
    pass_ms(2500);
    assert_int_equal(world.ticks[1] + world.ticks[2], 2);
    assert_int_equal(world.overlaps, 0);
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void test_a_tick_that_waits_does_not_hold_up_others(void **state)
{
    uint64_t began = now_ms();
    world.waits = true;
    run_ok("0", once, 0);
    lab_until(world.held == 1);
    run_ok("1", once, 0);
    lab_until(world.ticks[1] == 1);
    assert_true(now_ms() - began < 20000); /* the other tick's time-out is 30 s */
    assert_int_equal(world.ticks[0], 0);
}

static teff_err gets(teff_ctx *ctx, int64_t n, int64_t *out)
{
    teff_reminder r, *list;
    size_t found;
    teff_err err =
        teff_reminder_register(ctx, "get",
                               &(teff_reminder_options){.size = sizeof(teff_reminder_options),
                                                        .due_ms = 100000,
                                                        .period_ms = 200000,
                                                        .ttl_ms = 500000});
    if (!err)
        err = teff_reminder_get(ctx, "get", &r);
    if (err || strcmp(r.name, "get") != 0 || r.period_ms != 200000 ||
        r.until_ms != r.next_ms + 400000)
        return err ? err : TEFF_E_FAILED;
    if (teff_reminder_get(ctx, "other", &r) != TEFF_E_NOT_FOUND || r.name)
        return TEFF_E_FAILED;
    for (int i = 0; !err && i < 600; i++) { /* several pages */
        char name[16];
        snprintf(name, sizeof name, "n%03d", i);
        err = teff_reminder_register(
            ctx, name,
            &(teff_reminder_options){.size = sizeof(teff_reminder_options), .due_ms = 1000000});
    }
    if (!err)
        err = teff_reminder_list(ctx, &list, &found);
    if (err || found != 601 || strcmp(list[0].name, "get") != 0 ||
        strcmp(list[600].name, "n599") != 0)
        return err ? err : TEFF_E_FAILED;
    return TEFF_OK;
}

static void test_get_and_list(void **state)
{
    run_ok("1", gets, 0);
    assert_int_equal(count_of("1"), 601);
    assert_int_equal(count_of("11"), 0); /* another grain, whose key begins the same */
}

static teff_err misuses(teff_ctx *ctx, int64_t n, int64_t *out)
{
    static const struct {
        const char *name;
        teff_reminder_options opt;
    } rows[] = {
        {NULL, {.size = sizeof(teff_reminder_options)}},
        {"", {.size = sizeof(teff_reminder_options)}},
        {"\xff", {.size = sizeof(teff_reminder_options)}},
        {"no size", {.due_ms = 1}},
        {"period", {.size = sizeof(teff_reminder_options), .period_ms = UINT64_MAX}},
        {"due", {.size = sizeof(teff_reminder_options), .due_ms = UINT64_MAX}},
        {"ttl", {.size = sizeof(teff_reminder_options), .ttl_ms = UINT64_MAX}},
        {"overflow in ns",
         {.size = sizeof(teff_reminder_options), .due_ms = UINT64_MAX / 1000000 + 1}},
        {"2^45", {.size = sizeof(teff_reminder_options), .due_ms = UINT64_C(1) << 45}},
        {"short", {.size = sizeof(teff_reminder_options), .due_ms = 2, .ttl_ms = 1}},
    };
    char longer[TEFF_REMINDER_NAME_MAX + 2];
    memset(longer, 'a', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (teff_reminder_register(ctx, rows[i].name, &rows[i].opt) != TEFF_E_INVALID)
            return teff_fail(ctx, TEFF_E_FAILED, "row %zu", i);
    if (teff_reminder_register(ctx, longer, NULL) != TEFF_E_INVALID ||
        teff_reminder_unregister(ctx, longer) != TEFF_E_INVALID)
        return TEFF_E_FAILED;
    longer[TEFF_REMINDER_NAME_MAX] = '\0';
    return teff_reminder_register(ctx, longer, NULL);
}

static teff_err too_often(teff_ctx *ctx, int64_t n, int64_t *out)
{
    return each(ctx, 59999, out);
}

static void test_misuse(void **state)
{
    teff_ctx *ctx = l->ctx[0];
    teff_reminder r, *list;
    size_t n;
    reminder_number *number;
    run_ok("0", misuses, 0);
    lab_until(world.kept == 1);
    assert_int_equal(strlen(world.tick[0].name), TEFF_REMINDER_NAME_MAX);
    lab_fails(ctx, teff_reminder_register(ctx, "a", NULL), TEFF_E_INVALID); /* no turn */
    lab_fails(ctx, teff_reminder_unregister(ctx, "a"), TEFF_E_INVALID);
    lab_fails(ctx, teff_reminder_get(ctx, "a", &r), TEFF_E_INVALID);
    lab_fails(ctx, teff_reminder_list(ctx, &list, &n), TEFF_E_INVALID);
    lab_fails(ctx, reminder_deaf_ask(ctx, "0", reminder_beat(.script = (uintptr_t)once), &number),
              TEFF_E_INVALID);
    l->silos[0]->node.grains->reminder_period_min_ms = TEFF_REMINDER_PERIOD_MIN_MS;
    lab_fails(ctx, run_at(0, "0", too_often, 0, NULL), TEFF_E_INVALID);
}

static void test_reminders_of_three_silos(void **state)
{
    char key[12];
    for (int i = 0; i < SLEEPERS; i++) {
        snprintf(key, sizeof key, "%d", i);
        lab_ok(l->ctx[i % 3], run_at(i % 3, key, each, 20, NULL));
    }
    for (int i = 0; i < SLEEPERS; i++)
        lab_until(world.ticks[i] >= 3);
    assert_int_equal(lab_remove(l, 1), TEFF_OK);
    for (int i = 0; i < SLEEPERS; i++) {
        int before = world.ticks[i];
        lab_until(world.ticks[i] >= before + 3);
    }
}

/* Ticks that were due while no silo ran are made up for by one. */
static void test_ticks_missed_by_a_cluster_that_was_down(void **state)
{
    run_ok("0", each, 50);
    lab_until(world.kept >= 2);
    for (int i = 2; i >= 0; i--)
        assert_int_equal(lab_remove(l, i), TEFF_OK);
    int before = world.kept;
    uint64_t due_ms = world.tick[before - 1].due_ms;
    pass_ms(300);
    assert_int_equal(world.kept, before);
    (void)lab_add(l);
    lab_until(world.kept > before);
    assert_true(world.tick[before].missed >= 4);
    assert_int_equal(world.tick[before].due_ms, due_ms + (world.tick[before].missed + 1) * 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_tick, setup_one, teardown),
        cmocka_unit_test_setup_teardown(test_ticks_do_not_drift, setup_one, teardown),
        cmocka_unit_test_setup_teardown(test_no_tick_begins_after_unregister, setup_one, teardown),
        cmocka_unit_test_setup_teardown(test_the_newer_reminder_counts, setup_one, teardown),
        cmocka_unit_test_setup_teardown(test_a_reminder_ends_by_itself, setup_one, teardown),
        cmocka_unit_test_setup_teardown(test_a_tick_that_fails_is_tried_again, setup_one, teardown),
        cmocka_unit_test_setup_teardown(test_each_error_of_on_reminder_is_tried_again, setup_one,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_type_that_no_silo_hosts, setup_three, teardown),
        cmocka_unit_test_setup_teardown(test_a_tick_that_outlasts_its_time_out_runs_once, setup_one,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_tick_does_not_overlap_with_its_next_try, setup_one,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_tick_that_waits_does_not_hold_up_others, setup_one,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_get_and_list, setup_one, teardown),
        cmocka_unit_test_setup_teardown(test_misuse, setup_one, teardown),
        cmocka_unit_test_setup_teardown(test_reminders_of_three_silos, setup_three, teardown),
        cmocka_unit_test_setup_teardown(test_ticks_missed_by_a_cluster_that_was_down, setup_three,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
