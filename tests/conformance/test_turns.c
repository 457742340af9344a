/* test_turns.c - which turns of a grain may overlap: one after the other, in order, reentrant,
 * read-only; cycles of calls, and calls whose time is over before they run. */
#include "conform.h"

enum { CALLS = 30 };

/* ---- one turn at a time, in order ---- */

static teff_err suspends_twice(turn *t)
{
    world_enter();
    if (atomic_load(&world.n) == t->in->n)
        atomic_fetch_add(&world.n, 1);
    teff_sleep(t->ctx, 0);
    teff_sleep(t->ctx, 1);
    world_leave();
    return TEFF_OK;
}

static void turns_do_not_overlap(conform *c)
{
    teff_call calls[CALLS];
    for (int i = 0; i < CALLS; i++)
        calls[i] = BEGIN(c, plain, "a", suspends_twice, .n = i);
    conform_await_all(c, calls, CALLS);
    assert_int_equal(world.begun, CALLS);
    assert_int_equal(world.most, 1);
    assert_int_equal(world.activated, 1);
}

/* One caller's calls, of a grain that is active, begin in the order in which they were made. */
static void calls_are_in_order(conform *c)
{
    teff_call calls[CALLS];
    (void)RUN(c, plain, "a", nothing);
    for (int i = 0; i < CALLS; i++)
        calls[i] = BEGIN(c, plain, "a", suspends_twice, .n = i);
    conform_await_all(c, calls, CALLS);
    assert_int_equal(world.n, CALLS);
}

static void grains_run_side_by_side(conform *c)
{
    teff_call calls[CALLS];
    char key[16];
    for (int i = 0; i < CALLS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        calls[i] = BEGIN(c, plain, key, holds);
    }
    UNTIL(c, world.inside == CALLS);
    world.gate = true;
    conform_await_all(c, calls, CALLS);
}

static void note_post(void *arg)
{
    if (atomic_load(&world.inside)) /* a turn has begun, and not ended */
        atomic_fetch_add(&world.n, 100);
    atomic_fetch_add(&world.n, 1);
    (void)arg;
}

static teff_err posts_three(turn *t)
{
    teff_err err = TEFF_OK;
    for (int i = 0; i < 3 && !err; i++)
        err = teff_post(t->ctx, note_post, NULL);
    return err;
}

static teff_err computes(turn *t)
{
    world_enter();
    for (volatile int i = 0; i < 10000; i++)
        ;
    world_leave();
    return TEFF_OK;
}

/* What a turn posts is work of its grain: it never runs beside a turn that computes. */
static void posts_stay_with_the_grain(conform *c)
{
    teff_call calls[CALLS];
    for (int i = 0; i < CALLS; i++)
        calls[i] = i % 3 ? BEGIN(c, plain, "a", computes) : BEGIN(c, plain, "a", posts_three);
    conform_await_all(c, calls, CALLS);
    UNTIL(c, world.n == CALLS / 3 * 3);
}

/* ---- reentrancy ---- */

/* Calls each key of `to` in turn, the rest of which is the next one's: "b,c,a". */
static teff_err goes_along(turn *t)
{
    char key[16] = "";
    actors_result *out;
    const char *rest = strchr(t->in->to, ',');
    size_t len = rest ? (size_t)(rest - t->in->to) : strlen(t->in->to);
    if (!len)
        return TEFF_OK;
    snprintf(key, sizeof key, "%.*s", (int)len, t->in->to);
    const actors_step *step = STEP(goes_along, .n = t->in->n, .to = rest ? rest + 1 : "");
    teff_err err = t->in->n ? actors_reentrant_run(t->ctx, key, step, &out)
                            : actors_plain_run(t->ctx, key, step, &out);
    return err ? teff_fail(t->ctx, err, "%s", teff_error(t->ctx)) : TEFF_OK;
}

static void expect_cycle(conform *c, const char *first, const char *rest)
{
    actors_result *out;
    conform_fails(c, TEFF_E_DEADLOCK,
                  actors_plain_run(c->ctx, first, STEP(goes_along, .to = rest), &out));
    assert_non_null(strstr(teff_error(c->ctx), first));
    (void)RUN(c, plain, first, nothing); /* nothing is left of it */
}

static void non_reentrant_grain(conform *c)
{
    expect_cycle(c, "a", "a");
}

static void reentrant_grain(conform *c)
{
    (void)RUN(c, reentrant, "a", goes_along, .n = 1, .to = "a,a");
    assert_int_equal(world.activated, 1);
}

/* In Orleans, such calls wait until they time out. */
static void deadlock_1(conform *c)
{
    expect_cycle(c, "a", "b,a");
    expect_cycle(c, "c", "d,e,f,c");
}

static void deadlock_2(conform *c)
{
    (void)RUN(c, reentrant, "a", goes_along, .n = 1, .to = "b,a,b,c,a");
    assert_int_equal(world.activated, 3);
}

static void no_cycle_is_reported_if_there_is_none(conform *c)
{
    teff_call held = BEGIN(c, plain, "b", holds);
    UNTIL(c, world.inside == 1);
    teff_call waits = BEGIN(c, plain, "a", goes_along, .to = "b");
    teff_sleep(c->ctx, 400);
    assert_false(teff_call_ended(c->ctx, waits));
    world.gate = true;
    conform_await_all(c, (teff_call[]){held, waits}, 2);
}

static void always_interleave(conform *c)
{
    actors_result *out;
    teff_call held = BEGIN(c, plain, "a", holds);
    UNTIL(c, world.inside == 1);
    teff_call waits = BEGIN(c, plain, "a", nothing, .n = 2);
    conform_ok(c->ctx, actors_plain_peek(c->ctx, "a", STEP(nothing, .n = 7), &out));
    assert_int_equal(out->n, 7);
    assert_false(teff_call_ended(c->ctx, waits));
    world.gate = true;
    conform_await_all(c, (teff_call[]){held, waits}, 2);
}

/* ---- read-only ---- */

static teff_call begin_read(conform *c, script *fn)
{
    teff_call call;
    conform_ok(c->ctx, actors_plain_read_async(c->ctx, "a", STEP(fn), NULL, &call));
    return call;
}

static void read_only_turns_overlap(conform *c)
{
    enum { READERS = 8 };
    teff_call calls[READERS];
    for (int i = 0; i < READERS; i++)
        calls[i] = begin_read(c, holds);
    UNTIL(c, world.inside == READERS);
    world.gate = true;
    conform_await_all(c, calls, READERS);
}

static teff_err writes_alone(turn *t)
{
    if (atomic_load(&world.inside))
        return teff_fail(t->ctx, TEFF_E_USER(1), "a reader runs");
    world_enter();
    teff_sleep(t->ctx, 2);
    bool alone = atomic_load(&world.inside) == 1;
    world_leave();
    return alone ? TEFF_OK : teff_fail(t->ctx, TEFF_E_USER(2), "a reader has begun");
}

static teff_err reads_a_while(turn *t)
{
    world_enter();
    teff_sleep(t->ctx, 2);
    world_leave();
    return TEFF_OK;
}

static void writers_exclude_readers(conform *c)
{
    teff_call calls[CALLS];
    for (int i = 0; i < CALLS; i++)
        calls[i] = i % 5 == 4 ? BEGIN(c, plain, "a", writes_alone) : begin_read(c, reads_a_while);
    conform_await_all(c, calls, CALLS);
    assert_int_equal(world.begun, CALLS);
}

/* Orleans issue 10807: readers that keep coming. The writer waits only for those before it. */
static void writers_do_not_starve(conform *c)
{
    enum { READERS = 4 };
    teff_call readers[READERS];
    for (int i = 0; i < READERS; i++)
        readers[i] = begin_read(c, reads_a_while);
    teff_call writer = BEGIN(c, plain, "a", writes_alone);
    for (int i = 0; !teff_call_ended(c->ctx, writer); i++) {
        actors_result *out;
        if (i > 100)
            fail_msg("the writer starves");
        conform_ok(c->ctx, actors_plain_read_await(c->ctx, readers[i % READERS], &out));
        readers[i % READERS] = begin_read(c, reads_a_while);
    }
    conform_await_all(c, &writer, 1);
    conform_await_all(c, readers, READERS);
}

/* ---- time-outs ---- */

static void call_that_should_have_been_dropped(conform *c)
{
    actors_result *out;
    teff_call held = BEGIN(c, plain, "a", holds);
    UNTIL(c, world.inside == 1);
    teff_ctx_set_timeout(c->ctx, 100);
    conform_fails(c, TEFF_E_TIMEOUT, actors_plain_run(c->ctx, "a", STEP(suspends_twice), &out));
    teff_ctx_set_timeout(c->ctx, 0);
    teff_sleep(c->ctx, 300); /* the silo's deadline is later by the time under way */
    world.gate = true;
    conform_await_all(c, &held, 1);
    (void)RUN(c, plain, "a", nothing);
    assert_int_equal(world.begun, 1);
}

/* The outcome of a call that runs is not known; the turn goes on. */
static void long_method(conform *c)
{
    actors_result *out;
    teff_ctx_set_timeout(c->ctx, 1000);
    teff_call call = BEGIN(c, plain, "a", holds);
    teff_ctx_set_timeout(c->ctx, 0);
    UNTIL(c, world.inside == 1);
    teff_err err = actors_plain_run_await(c->ctx, call, &out);
    assert_int_equal(err, TEFF_E_TIMEOUT);
    assert_true(teff_call_may_have_run(err));
    assert_int_equal(world.ended, 0);
    world.gate = true;
    UNTIL(c, world.ended == 1);
}

int main(void)
{
    static const conform_row rows[] = {
        {"OrleansTaskSchedulerAdvancedTests.Sched_AC_Turn_Execution_Order", turns_do_not_overlap,
         EVERYWHERE},
        {"OrleansTaskSchedulerBasicTests.Sched_SimpleFifoTest", calls_are_in_order, EVERYWHERE},
        {"OrleansTaskSchedulerAdvancedTests.grains run side by side", grains_run_side_by_side,
         EVERYWHERE},
        {"OrleansTaskSchedulerBasicTests.SubTaskExecutionSequencing", posts_stay_with_the_grain,
         EVERYWHERE},
        {"ReentrancyTests.NonReentrantGrain", non_reentrant_grain, EVERYWHERE},
        {"ReentrancyTests.ReentrantGrain", reentrant_grain, EVERYWHERE},
        {"ReentrancyTests.Deadlock_1", deadlock_1, EVERYWHERE},
        {"ReentrancyTests.Deadlock_2", deadlock_2, EVERYWHERE},
        {"ReentrancyTests.no cycle", no_cycle_is_reported_if_there_is_none, EVERYWHERE},
        {"ReentrancyTests.AlwaysInterleave", always_interleave, EVERYWHERE},
        {"ConcurrencyTests.ConcurrencyTest_ReadOnly", read_only_turns_overlap, EVERYWHERE},
        {"ConcurrencyTests.writers exclude readers", writers_exclude_readers, EVERYWHERE},
        {"ConcurrencyTests.issue 10807", writers_do_not_starve, EVERYWHERE},
        {"TimeoutTests.CallThatShouldHaveBeenDroppedNotExecutedTest",
         call_that_should_have_been_dropped, EVERYWHERE},
        {"TimeoutTests.Timeout_LongMethod", long_method, EVERYWHERE},
    };
    return conform_run(rows, sizeof rows / sizeof rows[0]);
}
