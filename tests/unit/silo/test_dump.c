/* test_dump.c - the status of a scheduler in lines, taken while everything runs. */
#include "../sched/hand_clock.h"
#include <stdlib.h>
#include <teff/fork.h>
#include "activation/activation.h"
#include "lab.h"

static lines taken;

static unsigned has(const char *one, const char *two)
{
    return lines_with(&taken, one, two);
}

/* ---- processes ---- */

static teff_process_system *system_;
static _Atomic unsigned spinning, ended;
static _Atomic bool gate;

static teff_err spin_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    if (n && events[0].kind == TEFF_EVENT_CANCEL)
        return teff_step_done(out);
    atomic_fetch_add(&spinning, 1);
    while (!atomic_load(&gate))
        teffi_thread_yield();
    return teff_step_idle(out);
}

static teff_err wait_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    if (n && events[0].kind == TEFF_EVENT_CANCEL)
        return teff_step_done(out);
    if (teff_process_set_timer(teff_step_process(out), 3600000, 1))
        return TEFF_E_NOMEM;
    return teff_step_block(out);
}

static const teff_process_ops spinner = {.name = "spinner", .step = spin_step};
static const teff_process_ops waiter = {.name = "waiter", .step = wait_step};

static void dump_processes(void)
{
    lines_clear(&taken);
    teff_process_system_dump(system_, lines_take, &taken);
}

static bool dump_shows(const char *one, const char *two)
{
    dump_processes();
    return has(one, two) > 0;
}

static void a_dump_shows_what_processes_do(void **state)
{
    teff_process_options opt = {.size = sizeof opt, .workers = 2};
    teff_pid pids[2];
    gate = false;
    spinning = 0;
    assert_int_equal(teff_process_system_new(&opt, &system_), TEFF_OK);
    assert_int_equal(teff_process_spawn(system_, &spinner, NULL, NULL, NULL, 0, NULL), TEFF_OK);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(teff_process_spawn(system_, &waiter, NULL, NULL, NULL, 0, &pids[i]),
                         TEFF_OK);
    until(atomic_load(&spinning) == 1);
    until(dump_shows("2 blocked", "0 messages wait")); /* from now on messages stay queued */
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(teff_process_send(system_, pids[1], &(teff_event){.tag = i}), TEFF_OK);
    assert_int_equal(teff_process_send(system_, pids[0], &(teff_event){.tag = 1}), TEFF_OK);
    until(dump_shows("processes: 3 alive: 0 idle, 2 blocked, 0 ready, 1 running; 6 messages", ""));
    assert_int_equal(has("scheduler: 2 processors", "0 groups in the global queue"), 1);
    assert_int_equal(has("worker ", "a turn of process spinner"), 1);
    assert_int_equal(has("processor 0:", "timers"), 1);
    assert_int_equal(has("processor 1:", "timers"), 1);
    assert_int_equal(has("process waiter", "BLOCKED, 5 messages wait"), 1);
    assert_int_equal(has("process waiter", "BLOCKED, 1 messages wait"), 1);
    assert_int_equal(has("process spinner", "RUNNING, 0 messages wait"), 1);
    until(dump_shows("processor 0: 0 groups in its deque, none in its LIFO slot, 2 timers", "") ||
          dump_shows("processor 1: 0 groups in its deque, none in its LIFO slot, 2 timers", "") ||
          (dump_shows("processor 0:", " 1 timers") && dump_shows("processor 1:", " 1 timers")));
    until(dump_shows("a turn of process spinner (", "ms or a little more"));
    atomic_store(&gate, true);
    until(dump_shows("processes: 3 alive: 1 idle, 2 blocked", ""));
    until(dump_shows("2 parked", "spare") && !has("a turn of", ""));
    teff_process_system_free(system_);
}

static teff_err count_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    if (n && events[0].kind == TEFF_EVENT_CANCEL)
        return teff_step_done(out);
    return n ? teff_step_done(out) : teff_step_idle(out);
}

static void on_end(void *arg, teff_pid pid, teff_err err)
{
    atomic_fetch_add(&ended, 1);
}

static void *dump_again_and_again(void *arg)
{
    lines *l = arg;
    for (unsigned i = 0; i < 300; i++) {
        lines_clear(l);
        teff_process_system_dump(system_, lines_take, l);
    }
    return NULL;
}

/* Processes come and go, slots are used again, while two threads dump. */
static void dumps_do_not_disturb(void **state)
{
    enum { LIVES = 6000 };
    static const teff_process_ops ops = {.name = "fly", .step = count_step};
    static lines more;
    teff_process_options opt = {.size = sizeof opt, .workers = 3, .ended = on_end};
    pthread_t threads[2];
    teff_pid pid;
    pthread_mutex_init(&more.lock, NULL);
    ended = 0;
    assert_int_equal(teff_process_system_new(&opt, &system_), TEFF_OK);
    assert_int_equal(pthread_create(&threads[0], NULL, dump_again_and_again, &taken), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, dump_again_and_again, &more), 0);
    for (unsigned i = 0; i < LIVES; i++) {
        assert_int_equal(teff_process_spawn(system_, &ops, NULL, NULL, NULL, 0, &pid), TEFF_OK);
        assert_int_equal(teff_process_send(system_, pid, &(teff_event){.tag = i}), TEFF_OK);
    }
    until(atomic_load(&ended) == LIVES);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    until(dump_shows("processes: 0 alive", "6000 spawned, 6000 ended")); /* a moment after on_end */
    teff_process_system_free(system_);
}

/* ---- silos ---- */

static void dump_silo(teff_silo *silo)
{
    lines_clear(&taken);
    teff_silo_dump(silo, lines_take, &taken);
}

/* A dump takes its parts one after another: what must hold in several is waited for together. */
static bool silo_shows(teff_silo *silo, const char *one, const char *two)
{
    dump_silo(silo);
    return has(one, two) > 0;
}

static void a_dump_shows_what_a_silo_does(void **state)
{
    lab *l = lab_open(1);
    teff_silo *silo = l->silos[0];
    teff_ctx *ctx = l->ctx[0];
    teff_call calls[4];
    lab_number *out;
    for (int i = 0; i < 4; i++)
        lab_ok(ctx, lab_turns_write_async(ctx, "busy", lab_step(.hold = true), NULL, &calls[i]));
    until(l->record.held == 1);
    until(silo_shows(silo, "grain lab.Turns busy", "3 requests wait; last turn: lab.Turns.Write") &&
          has("grains: 1 activations", "3 requests wait") == 1);
    assert_int_equal(has("silo 127.0.0.1:", "of cluster dev: 1 members, 0 clients"), 1);
    assert_int_equal(has("scheduler: 2 processors", "null group IDLE"), 1);
    assert_int_equal(has("system target directory:", ""), 1);
    assert_int_equal(has("system target store:", ""), 1);
    until(silo_shows(silo, "silo ", " 4 calls pending"));
    lab_ok(ctx, lab_turns_peek(ctx, "busy", lab_step(.seq = 1), &out)); /* then the first goes on */
    until(silo_shows(silo, "grain lab.Turns busy", "last turn: lab.Turns.Write"));
    l->record.gate = true;
    lab_ok(ctx, teff_await_all(ctx, calls, 4));
    until(silo_shows(silo, "grains: 1 activations: 1 idle, 0 ready, 0 running; 0 requests", ""));
    lab_close(l);
}

/* More grains have requests that wait than are listed. */
static void a_dump_lists_the_longest_queues(void **state)
{
    enum { GRAINS = 20, LISTED = 16 };
    lab *l = lab_open(1);
    teff_call calls[GRAINS * (GRAINS + 1) / 2];
    char text[40];
    size_t n = 0;
    for (unsigned i = 0; i < GRAINS; i++)
        for (unsigned j = 0; j <= i; j++) { /* one is held, i wait */
            snprintf(text, sizeof text, "g%u", i);
            lab_ok(l->ctx[0], lab_turns_write_async(l->ctx[0], text, lab_step(.hold = true), NULL,
                                                    &calls[n++]));
        }
    until(l->record.held == GRAINS);
    until(silo_shows(l->silos[0], "grains: 20 activations", "190 requests wait"));
    unsigned listed = 0;
    for (unsigned i = 0; i < taken.n; i++)
        if (strstr(taken.text[i], "grain lab.Turns")) {
            listed++;
            snprintf(text, sizeof text, "grain lab.Turns g%u (", GRAINS - listed);
            assert_non_null(strstr(taken.text[i], text));
        }
    assert_int_equal(listed, LISTED);
    l->record.gate = true;
    lab_ok(l->ctx[0], teff_await_all(l->ctx[0], calls, n));
    lab_close(l);
}

/* ---- what runs in a silo beside grains ---- */

static void spin_in_task(teff_component *w, void *task, void *const *data)
{
    while (!atomic_load(&gate))
        teffi_thread_yield();
}

static void spin_in_part(void *arg)
{
    spin_in_task(NULL, NULL, NULL);
}

static teff_err fork_and_wait(void *self, teff_process *me)
{
    teff_join join = {0};
    teff_fork(&join, TEFF_STEAL_CONTINUATION, spin_in_part, NULL);
    teff_join_wait(&join);
    return TEFF_OK;
}

static const teff_process_ops forker = {
    .name = "forker", .flags = TEFF_PROCESS_FIBER, .run = fork_and_wait};
static const teff_task_type paint_task = {.name = "paint", .run = spin_in_task};
static const teff_task_type *const paint[] = {&paint_task};
static const teff_component_type painter = {.name = "painter", .tasks = paint, .n_tasks = 1},
                                 singer = {.name = "singer",
                                           .flags = TEFF_COMPONENT_FIBER,
                                           .tasks = paint,
                                           .n_tasks = 1};

static void a_dump_names_processes_components_and_parts(void **state)
{
    const teff_engine_options opt = {.size = sizeof opt, .schedulers = 2};
    lab *l = lab_open(1);
    teff_silo *silo = l->silos[0];
    teff_engine *engine;
    gate = false;
    assert_int_equal(teff_silo_processes(silo, NULL, &system_), TEFF_OK);
    assert_int_equal(teff_process_spawn(system_, &waiter, NULL, NULL, NULL, 0, NULL), TEFF_OK);
    assert_int_equal(teff_process_spawn(system_, &forker, NULL, NULL, NULL, 0, NULL), TEFF_OK);
    until(silo_shows(silo, "worker ", "a turn of a forked part, for"));
    until(silo_shows(silo, "process waiter (0.1): BLOCKED, 0 messages wait", "") &&
          has("processes: 2 alive: ", "1 blocked") == 1);
    assert_int_equal(has("engine:", ""), 0);
    assert_int_equal(teff_silo_make_engine(silo, &opt, &engine), TEFF_OK);
    assert_int_equal(teff_engine_add(engine, 1, &singer, NULL, NULL), TEFF_OK);
    until(silo_shows(silo, "component singer (1.1): IDLE, 0 messages wait", "") &&
          has("components and dispatcher: 2 alive: 2 idle", "") == 1 &&
          has("component dispatcher (0.1): IDLE", "") == 2);
    assert_int_equal(has("engine: 2 schedulers, 1 components, 0 broadcasts", ""), 1);
    assert_int_equal(teff_engine_add(engine, 0, &painter, NULL, NULL), TEFF_OK);
    assert_int_equal(teff_engine_broadcast(engine, &paint_task, NULL), TEFF_OK);
    until(silo_shows(silo, "worker ", "a turn of component painter (1.1), for"));
    until(silo_shows(silo, "worker ", "a turn of component singer (1.1), for"));
    assert_int_equal(has("engine: 2 schedulers, 2 components, 1 broadcasts", ""), 1);
    assert_int_equal(has("; policy single", "scheduler: "), 1);
    atomic_store(&gate, true);
    lab_close(l);
}

static void a_silo_that_does_not_run_says_so(void **state)
{
    teff_silo_options opt = {.size = sizeof opt, .silent = 1};
    teff_silo *silo;
    assert_int_equal(teff_silo_new(&opt, &silo, NULL), TEFF_OK);
    assert_true(silo_shows(silo, "silo: not serving", ""));
    assert_int_equal(teff_silo_start(silo, NULL), TEFF_OK);
    assert_true(silo_shows(silo, "silo 127.0.0.1:", ""));
    assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
    assert_true(silo_shows(silo, "silo: closed", ""));
    teff_silo_free(silo);
}

typedef struct caller {
    pthread_t thread;
    teff_ctx *ctx;
    unsigned no;
    teff_err err;
} caller;

static void *call_many(void *arg)
{
    caller *c = arg;
    lab_number *out;
    char key[40];
    for (unsigned i = 0; i < 400 && !c->err; i++) {
        snprintf(key, sizeof key, "k%u\x01-%u", c->no, i % 50);
        c->err = lab_account_add(c->ctx, key, lab_number(.n = 1), &out);
        if (!c->err && i % 10 == 9)
            c->err = lab_account_quit(c->ctx, key);
    }
    return NULL;
}

/* Activations come and go, their memory is another grain's later, while this thread dumps. */
static void dumps_of_a_silo_do_not_disturb(void **state)
{
    lab *l = lab_open(1);
    caller callers[3] = {0};
    for (unsigned i = 0; i < 3; i++) {
        callers[i].ctx = teff_silo_new_ctx(l->silos[0]);
        callers[i].no = i;
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call_many, &callers[i]), 0);
    }
    for (unsigned i = 0; i < 300; i++)
        dump_silo(l->silos[0]);
    for (unsigned i = 0; i < 3; i++) {
        pthread_join(callers[i].thread, NULL);
        lab_ok(callers[i].ctx, callers[i].err);
        teff_ctx_free(callers[i].ctx);
    }
    dump_silo(l->silos[0]);
    assert_int_equal(has("\x01", ""), 0); /* what users chose is made safe to print */
    lab_close(l);
}

/* ---- where lines go ---- */

static void lines_can_go_to_a_file(void **state)
{
    char *text = NULL;
    size_t len = 0;
    teff_process_options opt = {.size = sizeof opt, .workers = 1};
    assert_int_equal(teff_process_system_new(&opt, &system_), TEFF_OK);
    FILE *file = open_memstream(&text, &len);
    assert_non_null(file);
    teff_process_system_dump(system_, teff_line_print, file);
    fclose(file);
    assert_non_null(strstr(text, "scheduler: 1 processors"));
    assert_non_null(strstr(text, "\nprocessor 0: "));
    free(text);
    teff_process_system_free(system_);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dump_shows_what_processes_do),
        cmocka_unit_test(dumps_do_not_disturb),
        cmocka_unit_test(a_dump_shows_what_a_silo_does),
        cmocka_unit_test(a_dump_lists_the_longest_queues),
        cmocka_unit_test(a_dump_names_processes_components_and_parts),
        cmocka_unit_test(a_silo_that_does_not_run_says_so),
        cmocka_unit_test(dumps_of_a_silo_do_not_disturb),
        cmocka_unit_test(lines_can_go_to_a_file),
    };
    pthread_mutex_init(&taken.lock, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
