/* test_work_items.c - each kind of work item of a silo runs in its own group: requests, a system
 * target's requests and responses, tasks, closures. Warnings name methods and grains. */
#include "../sched/hand_clock.h"
#include "lab.h"
#include "call/task.h"
#include "activation/turn.h"
#include "call/wait.h"
#include "node/ask.h"
#include "node/deliver.h"

enum { TARGET_SLOT = 9 }; /* a slot of the system that nobody serves */

static teff_silo *silo;
static teffi_node *node;
static teff_ctx *outside;
static lines logged;

static _Atomic unsigned wrong, seen, asked;
static _Atomic bool gate;

/* This runs in that group. */
static void expect(const teffi_group *group)
{
    if (node->home.exec->ops->current(node->home.exec) != group)
        atomic_fetch_add(&wrong, 1);
    atomic_fetch_add(&seen, 1);
}

/* ---- a system target ---- */

static void on_target(teffi_node *n, teffi_msg *msg)
{
    expect(&n->targets[TARGET_SLOT].group);
    atomic_fetch_add(&asked, 1);
    teffi_node_respond_with_err(n, msg, TEFF_OK, NULL);
}

static teff_err ask_target(teff_ctx *ctx)
{
    Lab__Number body = LAB__NUMBER__INIT;
    return teffi_ctx_run_rpc(ctx, node->id, TARGET_SLOT, 1, &body.base, 60000, NULL, NULL);
}

/* ---- grains ---- */

static teffi_group *group_of(const teff_ctx *ctx)
{
    return &teffi_activation_of_ctx(ctx)->group;
}

static void posted_by_a_turn(void *arg)
{
    expect(arg);
}

/* An invoke: asks a system target, whose response comes back here; posts a closure. */
static teff_err turns_write(lab_turns *self, const lab_step *in, lab_number *out)
{
    expect(group_of(self->ctx));
    teff_err err = ask_target(self->ctx);
    expect(group_of(self->ctx));
    out->n = in->seq;
    return err ? err : teff_post(self->ctx, posted_by_a_turn, group_of(self->ctx));
}

/* Holds its worker until the test opens the gate, or the silo has warned. */
static teff_err turns_note(lab_turns *self, const lab_step *in)
{
    time_t since = 0;
    while (!atomic_load(&gate) && pause_a_little(&since))
        ;
    return TEFF_OK;
}

static const lab_turns_methods turns = {.write = turns_write, .note = turns_note};

static int setup(void **state)
{
    static teffi_platform platform;
    teff_sched_options sched = {.size = sizeof sched, .turn_warn_ms = 20, .queue_warn = 5};
    teff_silo_options opt = {.size = sizeof opt, .workers = 3, .sched = &sched};
    char text[TEFF_TEXT_MAX];
    pthread_mutex_init(&logged.lock, NULL);
    lines_clear(&logged);
    teffi_silo_init_platform(&platform, TEFF_LOG_WARN);
    platform.log = (teffi_log){.write = lines_log, .arg = &logged, .level = TEFF_LOG_WARN};
    wrong = seen = asked = 0;
    gate = false;
    assert_int_equal(teffi_silo_new_on_platform(&platform, &opt, &silo, text), TEFF_OK);
    assert_int_equal(teff_silo_host(silo, lab_turns_type(&turns, NULL)), TEFF_OK);
    assert_int_equal(teff_silo_start(silo, text), TEFF_OK);
    node = &silo->node;
    teffi_node_set_target(node, TARGET_SLOT, on_target);
    outside = teff_silo_new_ctx(silo);
    return 0;
}

static int teardown(void **state)
{
    gate = true;
    teff_ctx_free(outside);
    assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
    teff_silo_free(silo);
    return 0;
}

static void an_invoke_runs_on_its_activation(void **state)
{
    lab_number *out;
    expect(NULL);
    for (int i = 1; i <= 100; i++) {
        lab_ok(outside, lab_turns_write(outside, i % 2 ? "one" : "two", lab_step(.seq = i), &out));
        assert_int_equal(out->n, i);
    }
    until(atomic_load(&seen) == 1 + 100 * 4); /* before, target, after, closure */
    assert_int_equal(atomic_load(&asked), 100);
    assert_int_equal(atomic_load(&wrong), 0);
}

static void a_request_to_a_system_target_runs_on_it(void **state)
{
    for (unsigned i = 1; i <= 100; i++) {
        lab_ok(outside, ask_target(outside));
        assert_int_equal(atomic_load(&asked), i);
    }
    assert_int_equal(atomic_load(&wrong), 0);
}

static void on_closure(void *arg)
{
    expect(&node->targets[TARGET_SLOT].group);
}

static void a_system_target_takes_closures(void **state)
{
    assert_int_equal(teffi_closure_push(&node->targets[TARGET_SLOT].group, on_closure, NULL),
                     TEFF_OK);
    until(atomic_load(&seen) == 1);
    assert_int_equal(atomic_load(&wrong), 0);
}

/* ---- tasks ---- */

typedef struct task_end {
    teffi_group *group;
    _Atomic bool over;
} task_end;

static void posted_by_a_task(void *arg)
{
    expect(arg);
}

static void task_main(teff_ctx *ctx, void *arg)
{
    task_end *t = arg;
    t->group = ctx->group;
    expect(ctx->group);
    if (ask_target(ctx) || teff_post(ctx, posted_by_a_task, ctx->group))
        atomic_fetch_add(&wrong, 1);
    expect(ctx->group);
    teffi_ctx_sleep(ctx, 1);
    expect(ctx->group);
    atomic_store(&t->over, true);
}

static void a_task_has_a_group_of_its_own(void **state)
{
    task_end t[20] = {0};
    for (unsigned i = 0; i < 20; i++)
        lab_ok(outside, teffi_task_start(&node->home, task_main, &t[i], "test", false));
    for (unsigned i = 0; i < 20; i++)
        until(atomic_load(&t[i].over));
    until(atomic_load(&seen) == 20 * 5);
    assert_int_equal(atomic_load(&wrong), 0);
    assert_ptr_not_equal(t[0].group, &node->home.exec->null_group);
}

/* ---- closures without a context ---- */

enum { POSTS = 2000 };

static uint32_t next_post; /* of the null group: its closures run one after another */

static void posted_from_outside(void *arg)
{
    expect(&node->home.exec->null_group);
    if ((uint32_t)(uintptr_t)arg != next_post++)
        atomic_fetch_add(&wrong, 1);
}

static void a_closure_without_a_context_runs_on_the_silos_own_group(void **state)
{
    next_post = 0;
    for (uintptr_t i = 0; i < POSTS; i++)
        lab_ok(outside, teff_post(outside, posted_from_outside, (void *)i));
    until(atomic_load(&seen) == POSTS);
    assert_int_equal(atomic_load(&wrong), 0);
}

static void runs_or_is_freed(void *arg)
{
    atomic_fetch_add((_Atomic unsigned *)arg, 1);
}

/* A closing silo leaves what is queued; a closed one takes nothing. Leaks are the sanitizer's. */
static void closures_end_with_their_silo(void **state)
{
    _Atomic unsigned ran = 0;
    for (unsigned i = 0; i < 1000; i++)
        lab_ok(outside, teff_post(outside, runs_or_is_freed, &ran));
    assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
    lab_fails(outside, teff_post(outside, runs_or_is_freed, &ran), TEFF_E_CLOSED);
    assert_in_range(atomic_load(&ran), 0, 1000);
}

/* ---- warnings name grains ---- */

enum { TRIES = 30, A_WHILE_S = 2 };

/* n slow messages, and a while for a line with both texts: there is one of a kind a second, and
 * another turn or queue of the silo may have that on a slow machine. out: how many such lines. */
static unsigned told_of_slow_ones(int n, const char *one, const char *two)
{
    lab_number *out;
    time_t end = time(NULL) + A_WHILE_S, since = 0;
    atomic_store(&gate, false);
    for (int i = 1; i <= n; i++)
        lab_ok(outside, lab_turns_note(outside, "slow", lab_step(.seq = i)));
    while (!lines_with(&logged, one, two) && time(NULL) <= end)
        (void)pause_a_little(&since);
    atomic_store(&gate, true);
    lab_ok(outside, lab_turns_write(outside, "slow", lab_step(), &out)); /* behind them */
    return lines_with(&logged, one, two);
}

static void a_long_turn_names_its_method(void **state)
{
    unsigned told = 0;
    for (int i = 0; i < TRIES && !told; i++)
        told = told_of_slow_ones(1, "a turn of lab.Turns.Note (grain in slot", "runs for");
    assert_true(told >= 1);
}

static void a_long_queue_names_its_grain(void **state)
{
    unsigned told = 0;
    for (int i = 0; i < TRIES && !told; i++)
        told = told_of_slow_ones(8, "work items wait at", "(grain in slot");
    assert_true(told >= 1);
}

int main(void)
{
#define ITEMS(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        ITEMS(an_invoke_runs_on_its_activation),
        ITEMS(a_request_to_a_system_target_runs_on_it),
        ITEMS(a_system_target_takes_closures),
        ITEMS(a_task_has_a_group_of_its_own),
        ITEMS(a_closure_without_a_context_runs_on_the_silos_own_group),
        ITEMS(closures_end_with_their_silo),
        ITEMS(a_long_turn_names_its_method),
        ITEMS(a_long_queue_names_its_grain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
