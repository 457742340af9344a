/* test_process_calls.c - processes call grains: suspended, not their thread; however the call and
 * the process end. */
#include <stdio.h>
#include "../process/processes.h"
#include "lab.h"

enum { MANY = 200, WAITS_MS = 20 };

typedef struct caller { /* a process that runs one function with a context */
    void (*fn)(teff_process *me, teff_ctx *ctx);
    int n;
} caller;

static struct {
    lab *lab;
    teff_process_system *system; /* of silo 0 */
    latch ended, reached;
    _Atomic unsigned well;
    _Atomic teff_err err;
} t;

static teff_err run_caller(void *self, teff_process *me)
{
    const caller *c = self;
    c->fn(me, teff_process_ctx(me));
    return TEFF_OK;
}

static const teff_process_ops callers = {
    .name = "caller", .flags = TEFF_PROCESS_FIBER, .run = run_caller};

static void begin(int silos, uint32_t workers)
{
    memset(&t, 0, sizeof t);
    t.lab = lab_open(silos);
    teff_process_options opt = {.size = sizeof opt, .ended = count_end, .arg = &t.ended};
    assert_int_equal(teff_silo_scale(t.lab->silos[0], workers), TEFF_OK);
    assert_int_equal(teff_silo_processes(t.lab->silos[0], &opt, &t.system), TEFF_OK);
}

static int end(void **state)
{
    lab_close(t.lab);
    return 0;
}

static void run_one(void (*fn)(teff_process *me, teff_ctx *ctx))
{
    static caller c;
    c = (caller){.fn = fn};
    (void)spawn(t.system, &callers, &c);
}

static bool write_to(teff_ctx *ctx, const char *key, int64_t seq)
{
    lab_number *out;
    return !lab_turns_write(ctx, key, lab_step(.seq = seq), &out) && out->n == seq;
}

/* ---- many processes, one grain, one worker ---- */

static void ask_once(teff_process *me, teff_ctx *ctx)
{
    lab_number *out;
    t.well += !lab_turns_read(ctx, "one", lab_step(.suspend = true), &out);
}

static uint32_t count_threads(void)
{
    teff_sched_metrics all;
    (void)teff_process_sched_metrics(t.system, &all, NULL, 0);
    return all.threads;
}

static void many_need_no_thread_each(void (*fn)(teff_process *me, teff_ctx *ctx))
{
    begin(1, 1);
    caller c = {.fn = fn};
    uint32_t before = count_threads();
    for (int i = 0; i < MANY; i++)
        (void)spawn(t.system, &callers, &c);
    latch_wait(&t.ended, MANY);
    assert_int_equal(t.well, MANY);
    assert_true(count_threads() <= before + 2); /* a worker may be held up by this machine */
}

static void many_wait_without_a_thread_each(void **state)
{
    many_need_no_thread_each(ask_once);
}

static void sleep_long(teff_process *me, teff_ctx *ctx)
{
    uint64_t begin_ns = teffi_now(t.lab->silos[0]->node.platform);
    teff_sleep(ctx, 5);
    t.well += teffi_now(t.lab->silos[0]->node.platform) - begin_ns >= 5000000;
}

static void many_sleep_without_a_thread_each(void **state)
{
    many_need_no_thread_each(sleep_long);
}

/* ---- one process: idle and busy grains, here and elsewhere ---- */

static void call_everywhere(teff_process *me, teff_ctx *ctx)
{
    char key[32];
    bool ok = ctx == teff_process_ctx(me);
    for (int i = 1; ok && i <= MANY; i++) {
        snprintf(key, sizeof key, "k%d", i % 16);
        ok = write_to(ctx, key, i);
        if (i % 10 == 0)
            teff_ctx_reset(ctx);
    }
    t.well = ok;
}

static void calls_reach_grains_of_both_silos(void **state)
{
    begin(2, 2);
    run_one(call_everywhere);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.well, 1);
    assert_int_equal(t.lab->record.started, MANY);
}

/* Responses of several calls may arrive before the process is resumed. */
static void await_several(teff_process *me, teff_ctx *ctx)
{
    teff_call calls[MANY];
    char key[32];
    size_t index;
    for (int i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "k%d", i);
        if (lab_turns_write_async(ctx, key, lab_step(.seq = i + 1), NULL, &calls[i]))
            return;
    }
    for (int left = MANY; left > MANY / 2; left--) {
        lab_number *out;
        if (teff_await_any(ctx, calls, MANY, &index) ||
            lab_turns_write_await(ctx, calls[index], &out) || out->n != (int64_t)index + 1)
            return;
        calls[index] = (teff_call){NULL};
        t.well++;
    }
    for (int i = 0; i < MANY; i++) {
        lab_number *out;
        if (calls[i].impl && !lab_turns_write_await(ctx, calls[i], &out) && out->n == i + 1)
            t.well++;
    }
}

static void any_and_all_of_several_calls(void **state)
{
    begin(2, 2);
    run_one(await_several);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.well, MANY);
}

/* ---- what arrives meanwhile ---- */

static void call_then_receive(teff_process *me, teff_ctx *ctx)
{
    lab_number *out;
    teff_event event;
    latch_hit(&t.reached);
    if (lab_turns_write(ctx, "held", lab_step(.hold = true), &out))
        return;
    for (uint64_t i = 1; i <= MANY; i++)
        t.well += !teff_process_receive(me, &event) && event.tag == i;
    t.well += !teff_process_receive(me, &event) && event.kind == TEFF_EVENT_CANCEL;
}

static void events_stay_queued_during_a_call(void **state)
{
    begin(1, 2);
    caller c = {.fn = call_then_receive};
    teff_pid pid = spawn(t.system, &callers, &c);
    lab_until(t.lab->record.held == 1);
    until_state(t.system, pid, TEFF_PROCESS_BLOCKED);
    for (uint64_t i = 1; i <= MANY; i++)
        assert_int_equal(send_tag(t.system, pid, i), TEFF_OK);
    until_state(t.system, pid, TEFF_PROCESS_BLOCKED);
    assert_int_equal(atomic_load(&t.ended.count), 0);
    t.lab->record.gate = true;
    lab_until(t.well == MANY);
    assert_int_equal(teff_process_cancel(t.system, pid), TEFF_OK);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.well, MANY + 1);
}

static void hit_reached(void *arg)
{
    latch_hit(arg);
}

static void post_and_call(teff_process *me, teff_ctx *ctx)
{
    t.well = !teff_post(ctx, hit_reached, &t.reached) && write_to(ctx, "k", 1) &&
             atomic_load(&t.reached.count) == 1;
}

static void closures_run_in_the_process(void **state)
{
    begin(1, 2);
    run_one(post_and_call);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.well, 1);
}

/* ---- bad ends ---- */

static void call_until_late(teff_process *me, teff_ctx *ctx)
{
    lab_number *out;
    teff_ctx_set_timeout(ctx, WAITS_MS);
    t.err = lab_turns_write(ctx, "held", lab_step(.hold = true), &out);
    t.well = strstr(teff_error(ctx), "lab.Turns.Write") != NULL;
}

static void a_call_ends_at_its_deadline(void **state)
{
    begin(1, 2);
    run_one(call_until_late);
    latch_wait(&t.ended, 1);
    t.lab->record.gate = true;
    assert_int_equal(t.err, TEFF_E_TIMEOUT);
    assert_int_equal(t.well, 1);
}

static void call_twice(teff_process *me, teff_ctx *ctx)
{
    lab_number *out;
    latch_hit(&t.reached);
    t.err = lab_turns_write(ctx, "held", lab_step(.hold = true), &out);
    t.well = TEFF_E_CANCELLED == lab_turns_write(ctx, "held", lab_step(.hold = true), &out);
}

static void a_stop_by_force_ends_its_calls(void **state)
{
    teff_stop_report report;
    begin(1, 2);
    run_one(call_twice);
    lab_until(t.lab->record.held == 1);
    assert_int_equal(teff_process_system_stop(t.system, 1, &report), TEFF_E_TIMEOUT);
    assert_int_equal(report.forced, 1);
    assert_int_equal(report.stuck, 0);
    assert_int_equal(t.err, TEFF_E_CANCELLED);
    assert_int_equal(t.well, 1);
    t.lab->record.gate = true;
}

static void leave_calls(teff_process *me, teff_ctx *ctx)
{
    teff_call call;
    for (int i = 0; i < 8; i++)
        t.well += !lab_turns_read_async(ctx, "one", lab_step(.seq = 0), NULL, &call);
}

/* The responses find the slot empty, or another process in it. */
static void calls_may_outlive_their_process(void **state)
{
    begin(2, 2);
    caller c = {.fn = leave_calls};
    for (int i = 0; i < MANY; i++)
        (void)spawn(t.system, &callers, &c);
    latch_wait(&t.ended, MANY);
    assert_int_equal(t.well, 8 * MANY);
    lab_until(t.lab->record.started == 8 * MANY);
}

/* ---- who has no context ---- */

static teff_err look_for_ctx(void *self, const teff_event *events, size_t n, teff_step *out)
{
    t.well += teff_process_ctx(teff_step_process(out)) == NULL;
    return teff_step_done(out);
}

static void without_fiber_or_silo_there_is_none(void **state)
{
    static const teff_process_ops plain = {.name = "plain", .step = look_for_ctx};
    static const teff_process_ops fiber = {
        .name = "fiber", .flags = TEFF_PROCESS_FIBER, .step = look_for_ctx};
    begin(1, 2);
    (void)spawn(t.system, &plain, NULL);
    latch_wait(&t.ended, 1);
    teff_process_system *own =
        system_of((teff_process_options){.ended = count_end, .arg = &t.ended});
    (void)spawn(own, &fiber, NULL);
    latch_wait(&t.ended, 2);
    teff_process_system_free(own);
    assert_int_equal(t.well, 2);
}

#define ROW(f) cmocka_unit_test_teardown(f, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(many_wait_without_a_thread_each),     ROW(calls_reach_grains_of_both_silos),
        ROW(many_sleep_without_a_thread_each),    ROW(calls_reach_grains_of_both_silos),
        ROW(any_and_all_of_several_calls),        ROW(events_stay_queued_during_a_call),
        ROW(closures_run_in_the_process),         ROW(a_call_ends_at_its_deadline),
        ROW(a_stop_by_force_ends_its_calls),      ROW(calls_may_outlive_their_process),
        ROW(without_fiber_or_silo_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
