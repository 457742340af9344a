/* test_state.c - states that are read, written and cleared, saves that fail, and reminders. */
#include "conform.h"

/* ---- states ---- */

static teff_err adds_n(turn *t)
{
    t->keeper->state->n += t->in->n;
    t->out->n = t->keeper->state->n;
    return actors_keeper_save(t->keeper);
}

static teff_err adds_n_unsaved(turn *t)
{
    t->keeper->state->n += t->in->n;
    t->out->n = t->keeper->state->n;
    return TEFF_OK;
}

static teff_err reads(turn *t)
{
    t->out->n = t->keeper->state->n;
    return TEFF_OK;
}

static teff_err clears(turn *t)
{
    return actors_keeper_clear(t->keeper);
}

static void end_activation(conform *c, const char *key)
{
    int before = world.deactivated;
    (void)RUN(c, keeper, key, quits);
    UNTIL(c, world.deactivated == before + 1);
}

static void a_state_is_written_and_read(conform *c)
{
    assert_int_equal(RUN(c, keeper, "a", reads), 0);
    assert_int_equal(RUN(c, keeper, "a", adds_n, .n = 3), 3);
    end_activation(c, "a");
    assert_int_equal(RUN(c, keeper, "a", reads), 3);
    assert_int_equal(RUN(c, keeper, "b", reads), 0);
    assert_int_equal(world.activated, 3);
}

static void what_was_not_saved_is_lost(conform *c)
{
    (void)RUN(c, keeper, "a", adds_n, .n = 1);
    assert_int_equal(RUN(c, keeper, "a", adds_n_unsaved, .n = 1), 2);
    end_activation(c, "a");
    assert_int_equal(RUN(c, keeper, "a", reads), 1);
}

static void a_state_is_cleared(conform *c)
{
    (void)RUN(c, keeper, "a", adds_n, .n = 3);
    (void)RUN(c, keeper, "a", clears);
    assert_int_equal(RUN(c, keeper, "a", reads), 0);
    end_activation(c, "a");
    assert_int_equal(RUN(c, keeper, "a", reads), 0);
    assert_int_equal(RUN(c, keeper, "a", adds_n, .n = 1), 1);
}

static void concurrent_writes_of_many_grains(conform *c)
{
    enum { CALLS = 60, KEYS = 6 };
    teff_call calls[CALLS];
    char key[16];
    for (int i = 0; i < CALLS; i++) {
        snprintf(key, sizeof key, "k%d", i % KEYS);
        calls[i] = BEGIN(c, keeper, key, adds_n, .n = 1);
    }
    conform_await_all(c, calls, CALLS);
    for (int k = 0; k < KEYS; k++) {
        snprintf(key, sizeof key, "k%d", k);
        end_activation(c, key);
        assert_int_equal(RUN(c, keeper, key, reads), CALLS / KEYS);
    }
}

static void set_faults(conform *c, teff_testing_faults faults)
{
    faults.size = sizeof faults;
    assert_int_equal(teff_testing_set_faults(c->cluster, &faults), TEFF_OK);
}

/* Nothing was written; the next save writes it, too. */
static void a_failed_save_ends_nothing(conform *c)
{
    actors_result *out;
    (void)RUN(c, keeper, "a", adds_n, .n = 1);
    (void)RUN(c, keeper, "b", adds_n, .n = 1);
    set_faults(c, (teff_testing_faults){.store_failed = 1000});
    conform_fails(c, TEFF_E_IO, actors_keeper_run(c->ctx, "a", STEP(adds_n, .n = 1), &out));
    assert_int_equal(RUN(c, keeper, "a", reads), 2);
    teff_testing_heal(c->cluster);
    assert_int_equal(RUN(c, keeper, "a", adds_n, .n = 1), 3);
    assert_int_equal(RUN(c, keeper, "b", adds_n, .n = 1), 2);
    assert_int_equal(world.activated, 2);
    end_activation(c, "a");
    assert_int_equal(RUN(c, keeper, "a", reads), 3);
}

/* Only the activation whose save is in doubt ends: its state may differ from the store's. */
static void a_save_in_doubt_ends_that_activation_only(conform *c)
{
    actors_result *out;
    (void)RUN(c, keeper, "a", adds_n, .n = 1);
    (void)RUN(c, keeper, "b", adds_n, .n = 1);
    set_faults(c, (teff_testing_faults){.store_unknown = 1000});
    conform_fails(c, TEFF_E_UNKNOWN, actors_keeper_run(c->ctx, "a", STEP(adds_n, .n = 1), &out));
    teff_testing_heal(c->cluster);
    UNTIL(c, world.deactivated == 1);
    int64_t n = RUN(c, keeper, "a", reads);
    assert_in_range(n, 1, 2);
    assert_int_equal(RUN(c, keeper, "a", adds_n, .n = 1), n + 1);
    assert_int_equal(RUN(c, keeper, "b", adds_n, .n = 1), 2);
    assert_int_equal(world.activated, 3);
}

/* on_activate cannot run without the state; the next call tries again. */
static void a_failed_read_fails_the_call(conform *c)
{
    actors_result *out;
    (void)RUN(c, keeper, "a", adds_n, .n = 1);
    end_activation(c, "a");
    set_faults(c, (teff_testing_faults){.store_failed = 1000});
    conform_fails(c, TEFF_E_IO, actors_keeper_run(c->ctx, "a", STEP(reads), &out));
    assert_int_equal(world.activated, 1);
    teff_testing_heal(c->cluster);
    assert_int_equal(RUN(c, keeper, "a", reads), 1);
}

static void a_state_outlives_its_silo(conform *c)
{
    char key[16];
    unsigned home = 0;
    for (int i = 0; home == 0; i++) {
        snprintf(key, sizeof key, "k%d", i);
        (void)RUN(c, keeper, key, adds_n, .n = 1);
        home = (unsigned)RUN(c, keeper, key, where);
    }
    conform_stop(c, home);
    assert_int_equal(RUN(c, keeper, key, adds_n, .n = 1), 2);
    conform_start(c, home);
    assert_int_equal(RUN(c, keeper, key, adds_n, .n = 1), 3);
}

/* ---- reminders ---- */

static teff_err reminds_each_n_ms(turn *t)
{
    const teff_reminder_options options = {
        .size = sizeof options, .due_ms = (uint64_t)t->in->n, .period_ms = (uint64_t)t->in->n};
    return teff_reminder_register(t->ctx, "bell", &options);
}

static teff_err forgets(turn *t)
{
    return teff_reminder_unregister(t->ctx, "bell");
}

static teff_err lists(turn *t)
{
    size_t n;
    teff_reminder *list;
    teff_err err = teff_reminder_list(t->ctx, &list, &n);
    t->out->n = (int64_t)n;
    return err;
}

static void a_reminder_ticks_until_it_is_removed(conform *c)
{
    actors_result *out;
    (void)RUN(c, keeper, "a", reminds_each_n_ms, .n = 50);
    assert_int_equal(RUN(c, keeper, "a", lists), 1);
    UNTIL(c, world.ticks >= 4);
    (void)RUN(c, keeper, "a", forgets);
    int before = world.ticks;
    assert_int_equal(RUN(c, keeper, "a", lists), 0);
    teff_sleep(c->ctx, 300);
    assert_int_equal(world.ticks, before);
    conform_fails(c, TEFF_E_NOT_FOUND, actors_keeper_run(c->ctx, "a", STEP(forgets), &out));
}

static void registered_again_there_is_one(conform *c)
{
    (void)RUN(c, keeper, "a", reminds_each_n_ms, .n = 3600 * 1000);
    (void)RUN(c, keeper, "a", reminds_each_n_ms, .n = 50);
    assert_int_equal(RUN(c, keeper, "a", lists), 1);
    UNTIL(c, world.ticks >= 2);
    (void)RUN(c, keeper, "a", forgets);
}

/* The tick activates the grain again. */
static void a_reminder_outlives_the_activation(conform *c)
{
    (void)RUN(c, keeper, "a", reminds_each_n_ms, .n = 200);
    end_activation(c, "a");
    int before = world.ticks;
    UNTIL(c, world.ticks >= before + 2);
    assert_true(world.activated >= 2);
    (void)RUN(c, keeper, "a", forgets);
}

enum { GRAINS = 6 };

static _Atomic int ticks_of[GRAINS]; /* of the grains "k0", "k1" and so on */

static teff_err counts_own_ticks(turn *t)
{
    atomic_fetch_add(&ticks_of[t->key[1] - '0'], 1);
    return TEFF_OK;
}

static bool each_has_ticked(int times)
{
    bool all = true;
    for (int i = 0; i < GRAINS; i++)
        all &= atomic_load(&ticks_of[i]) >= times;
    return all;
}

static void forget_ticks(void)
{
    for (int i = 0; i < GRAINS; i++)
        atomic_store(&ticks_of[i], 0);
}

/* Each silo that can go has gone once: some owned the reminders. */
static void reminders_outlive_silos(conform *c)
{
    char key[16];
    world.on_reminder = counts_own_ticks;
    for (int i = 0; i < GRAINS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        (void)RUN(c, keeper, key, reminds_each_n_ms, .n = 100);
    }
    for (unsigned no = 1; no < c->silos; no++) {
        conform_stop(c, no);
        forget_ticks();
        UNTIL(c, each_has_ticked(3));
        conform_start(c, no);
    }
    for (int i = 0; i < GRAINS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(RUN(c, keeper, key, lists), 1);
        (void)RUN(c, keeper, key, forgets);
    }
}

/* A tick a minute, over the death of the silo that has the grain; it starts again. */
static void reminders_outlive_a_crash(conform *c)
{
    enum { MINUTE_MS = 60 * 1000 };
    (void)RUN(c, keeper, "a", reminds_each_n_ms, .n = MINUTE_MS);
    for (unsigned i = 0; i < c->silos; i++) {
        unsigned home = (unsigned)RUN(c, keeper, "a", where);
        int before = world.ticks;
        teff_testing_kill(c->cluster, home);
        teff_testing_advance(c->cluster, 5 * MINUTE_MS);
        assert_in_range(world.ticks - before, 4, 6);
        conform_start(c, home);
        teff_testing_advance(c->cluster, 5 * MINUTE_MS);
        assert_in_range(world.ticks - before, 9, 11);
    }
}

int main(void)
{
    enum {
        ON_VIRTUAL_TIME = SIMULATED | ONE_SILO | THREE_SILOS,
        THREE = SIMULATED | ON_THREADS | THREE_SILOS
    };
    static const conform_row rows[] = {
        {"PersistenceGrainTests.Grain_MemoryStore_WriteRead", a_state_is_written_and_read,
         EVERYWHERE},
        {"PersistenceGrainTests.Grain_MemoryStore_ReRead", what_was_not_saved_is_lost, EVERYWHERE},
        {"PersistenceGrainTests.Grain_MemoryStore_Delete", a_state_is_cleared, EVERYWHERE},
        {"PersistenceGrainTests.MemoryStore_Stress", concurrent_writes_of_many_grains, EVERYWHERE},
        {"PersistenceGrainTests.Persistence_Provider_Error_AfterWrite", a_failed_save_ends_nothing,
         ON_VIRTUAL_TIME},
        {"PersistenceGrainTests.Persistence_Provider_InconsistentStateException",
         a_save_in_doubt_ends_that_activation_only, ON_VIRTUAL_TIME},
        {"PersistenceGrainTests.Persistence_Provider_Error_BeforeRead",
         a_failed_read_fails_the_call, ON_VIRTUAL_TIME},
        {"PersistenceGrainTests.a silo leaves", a_state_outlives_its_silo, THREE},
        {"ReminderTests_TableGrain.Rem_Grain_Basic_StopByRef", a_reminder_ticks_until_it_is_removed,
         EVERYWHERE},
        {"ReminderTests_TableGrain.Rem_Grain_Basic_ListOps", registered_again_there_is_one,
         EVERYWHERE},
        {"ReminderTests_TableGrain.the activation ends", a_reminder_outlives_the_activation,
         EVERYWHERE},
        {"ReminderTests_TableGrain.Rem_Grain_1F1J_MultiGrain", reminders_outlive_silos, THREE},
        {"ReminderTests_TableGrain.Rem_Grain_2F_MultiGrain, crashes", reminders_outlive_a_crash,
         SIMULATED | THREE_SILOS},
    };
    return conform_run(rows, sizeof rows / sizeof rows[0]);
}
