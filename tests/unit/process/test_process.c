/* test_process.c - defects that a scheduler of processes may have: a late completion that
 * reaches the next user of a slot, a completion lost when the process becomes idle, a step
 * without events or with all of them, a process that is found half made, a loop that starves the
 * others. */
#include "processes.h"

enum { LATER = 1, ROUNDS = 1000 };

static struct {
    latch ended, asked, stepped, wrong;
    teff_completion completion;
    unsigned largest, steps, empty_steps;
    teff_process_system *system;
} t;

static void later(void *arg, const teff_command *command)
{
    t.completion = command->completion;
    latch_hit(&t.asked);
}

static int setup(void **state)
{
    memset(&t, 0, sizeof t);
    t.system = system_of((teff_process_options){
        .workers = 2, .processes_max = 8, .ended = count_end, .arg = &t.ended});
    assert_int_equal(teff_process_set_handler(t.system, LATER, later, NULL), TEFF_OK);
    *state = t.system;
    return 0;
}

static int teardown(void **state)
{
    teff_process_system_free(*state);
    return 0;
}

/* ---- late reply ---- */

/* The first life ends with a yield under way; the second uses its slot and the same tag. */
static teff_err step_leaves(void *self, const teff_event *events, size_t n, teff_step *out)
{
    if (n)
        return teff_step_done(out);
    return teff_step_command(out, LATER, 1, NULL, 0);
}

static teff_err step_victim(void *self, const teff_event *events, size_t n, teff_step *out)
{
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == TEFF_EVENT_COMPLETE && strcmp(events[i].data, "late") == 0)
            latch_hit(&t.wrong);
        if (events[i].kind == TEFF_EVENT_MESSAGE && events[i].tag == 1)
            latch_hit(&t.wrong); /* sent to the life before */
        if (events[i].kind == TEFF_EVENT_MESSAGE && events[i].tag == 2)
            return teff_step_done(out);
    }
    return n ? teff_step_idle(out) : teff_step_command(out, LATER, 1, NULL, 0);
}

typedef struct late {
    teffi_thread thread;
    teff_process_system *system;
    teff_pid pid;
    teff_completion completion;
} late;

static void complete_late(void *arg)
{
    late *l = arg;
    assert_int_equal(teff_command_complete(l->completion, TEFF_OK, "late", 5), TEFF_E_CLOSED);
    (void)send_tag(l->system, l->pid, 1);
}

static void test_a_late_reply_never_reaches_a_reused_process(void **state)
{
    static const teff_process_ops leaves = {.name = "leaves", .step = step_leaves};
    static const teff_process_ops victim = {.name = "victim", .step = step_victim};
    for (unsigned i = 0; i < ROUNDS; i++) {
        late l = {.system = *state, .pid = spawn(*state, &leaves, NULL)};
        latch_wait(&t.asked, 2 * i + 1);
        l.completion = t.completion;
        assert_int_equal(teff_process_cancel(*state, l.pid), TEFF_OK);
        latch_wait(&t.ended, 2 * i + 1);
        teff_pid pid = spawn(*state, &victim, NULL);
        if (i % 8 == 0) { /* the late one races with the new life */
            assert_int_equal(teffi_thread_start(&l.thread, "late", complete_late, &l), TEFF_OK);
            teffi_thread_join(&l.thread);
        } else {
            complete_late(&l);
        }
        latch_wait(&t.asked, 2 * i + 2);
        assert_int_equal(teff_command_complete(t.completion, TEFF_OK, "mine", 5), TEFF_OK);
        assert_int_equal(send_tag(*state, pid, 2), TEFF_OK);
        latch_wait(&t.ended, 2 * i + 2);
    }
    assert_int_equal(atomic_load(&t.wrong.count), 0);
    teff_process_stats stats;
    teff_process_stats_get(*state, &stats);
    assert_true(stats.dropped >= ROUNDS); /* told apart, and counted */
}

/* Senders that hold PIDs of processes which come and go in the same few slots: each message is for
 * the life it names or for nobody. */
typedef struct swarm {
    teffi_thread thread;
    teff_process_system *system;
    _Atomic uint64_t pids[8]; /* slot << 32 | generation */
    _Atomic bool stop, wrong;
} swarm;

static teff_err step_mayfly(void *self, const teff_event *events, size_t n, teff_step *out)
{
    swarm *s = self;
    teff_pid me = teff_process_pid(teff_step_process(out));
    for (size_t i = 0; i < n; i++)
        if (events[i].kind == TEFF_EVENT_MESSAGE &&
            events[i].tag != ((uint64_t)me.slot << 32 | me.generation))
            atomic_store(&s->wrong, true);
    return n ? teff_step_done(out) : teff_step_idle(out);
}

static void send_to_all(void *arg)
{
    swarm *s = arg;
    while (!atomic_load(&s->stop))
        for (unsigned i = 0; i < 8; i++) {
            uint64_t name = atomic_load(&s->pids[i]);
            teff_pid pid = {.slot = (uint32_t)(name >> 32), .generation = (uint32_t)name};
            if (name)
                (void)send_tag(s->system, pid, name);
        }
}

static void test_messages_never_reach_another_life(void **state)
{
    static const teff_process_ops ops = {.name = "mayfly", .step = step_mayfly};
    static swarm s;
    memset(&s, 0, sizeof s);
    s.system = *state;
    assert_int_equal(teffi_thread_start(&s.thread, "sender", send_to_all, &s), TEFF_OK);
    for (unsigned i = 0; i < 1500;) {
        teff_pid pid;
        if (teff_process_spawn(*state, &ops, &s, NULL, NULL, 0, &pid)) {
            teffi_thread_yield();
            continue;
        }
        atomic_store(&s.pids[pid.slot % 8], (uint64_t)pid.slot << 32 | pid.generation);
        i++;
    }
    atomic_store(&s.stop, true);
    teffi_thread_join(&s.thread);
    assert_false(atomic_load(&s.wrong));
}

/* ---- stranded completion ---- */

static teff_err step_goes_idle(void *self, const teff_event *events, size_t n, teff_step *out)
{
    if (n)
        return events[0].kind == TEFF_EVENT_COMPLETE ? teff_step_done(out) : TEFF_E_FAILED;
    assert_int_equal(teff_step_command(out, LATER, 1, NULL, 0), TEFF_OK);
    return teff_step_idle(out); /* with the yield under way */
}

static void test_a_completion_wakes_a_process_that_went_idle(void **state)
{
    static const teff_process_ops ops = {.name = "idle", .step = step_goes_idle};
    for (unsigned i = 0; i < 500; i++) {
        teff_pid pid = spawn(*state, &ops, NULL);
        latch_wait(&t.asked, i + 1);
        if (i % 2)
            until_state(*state, pid, TEFF_PROCESS_IDLE);
        assert_int_equal(teff_command_complete(t.completion, TEFF_OK, NULL, 0), TEFF_OK);
        latch_wait(&t.ended, i + 1);
    }
}

/* ---- spurious steps, event budget ---- */

static teff_err step_counts(void *self, const teff_event *events, size_t n, teff_step *out)
{
    latch *gate = self;
    t.steps++;
    t.empty_steps += n == 0;
    if (n > t.largest)
        t.largest = (unsigned)n;
    if (n == 0) {
        latch_hit(&t.asked);
        latch_wait(gate, 1);
    }
    for (size_t i = 0; i < n; i++)
        if (events[i].tag == 999)
            return teff_step_done(out);
    return teff_step_idle(out);
}

/* 1,000 messages are there when the second step begins: each step gets its share, none is empty. */
static void test_a_step_gets_no_more_than_its_share(void **state)
{
    static const teff_process_ops share10 = {.name = "ten", .step = step_counts, .step_max = 10};
    static const teff_process_ops share64 = {.name = "all", .step = step_counts};
    const teff_process_ops *ops[] = {&share10, &share64};
    const unsigned most[] = {10, 64};
    for (unsigned i = 0; i < 2; i++) {
        latch gate = {0};
        t.steps = t.empty_steps = t.largest = 0;
        teff_pid pid = spawn(*state, ops[i], &gate);
        latch_wait(&t.asked, i + 1);
        for (unsigned k = 0; k < 1000; k++)
            assert_int_equal(send_tag(*state, pid, k), TEFF_OK);
        latch_hit(&gate);
        latch_wait(&t.ended, i + 1);
        assert_int_equal(t.largest, most[i]);
        assert_int_equal(t.steps, 1 + (1000 + most[i] - 1) / most[i]);
        assert_int_equal(t.empty_steps, 1);
    }
}

/* ---- seen half filled ---- */

typedef struct filled {
    _Atomic bool stop;
    teffi_thread thread;
    teff_process_system *system;
    uint32_t slot;
    _Atomic uint32_t generation;
} filled;

static teff_err init_checks(void *self, teff_process *me, const char *method, const void *input,
                            size_t len)
{
    if (self != &t || !me || strcmp(method, "entry") != 0 || len != 4 ||
        memcmp(input, "abc", 4) != 0)
        latch_hit(&t.wrong);
    return TEFF_OK;
}

static teff_err step_first_then_done(void *self, const teff_event *events, size_t n, teff_step *out)
{
    return teff_step_done(out);
}

/* Guesses the PID of the next life and sends before spawn has returned. */
static void guess(void *arg)
{
    filled *f = arg;
    while (!atomic_load(&f->stop)) {
        teff_pid pid = {.slot = f->slot, .generation = atomic_load(&f->generation)};
        (void)send_tag(f->system, pid, 0);
        (void)teff_process_cancel(f->system, pid);
    }
}

static void test_a_process_is_whole_when_it_can_be_found(void **state)
{
    static const teff_process_ops ops = {
        .name = "whole", .init = init_checks, .step = step_first_then_done};
    filled f = {.system = *state};
    teff_pid pid;
    assert_int_equal(teff_process_spawn(*state, &ops, &t, "entry", "abc", 4, &pid), TEFF_OK);
    latch_wait(&t.ended, 1);
    f.slot = pid.slot;
    atomic_store(&f.generation, pid.generation + 2);
    assert_int_equal(teffi_thread_start(&f.thread, "guess", guess, &f), TEFF_OK);
    for (unsigned i = 1; i < 5000; i++) {
        assert_int_equal(teff_process_spawn(*state, &ops, &t, "entry", "abc", 4, &pid), TEFF_OK);
        latch_wait(&t.ended, i + 1);
        if (pid.slot == f.slot)
            atomic_store(&f.generation, pid.generation + 2);
    }
    atomic_store(&f.stop, true);
    teffi_thread_join(&f.thread);
    assert_int_equal(atomic_load(&t.wrong.count), 0);
}

/* ---- starvation ---- */

static teff_err step_for_ever(void *self, const teff_event *events, size_t n, teff_step *out)
{
    if (n && events[0].kind == TEFF_EVENT_CANCEL)
        return teff_step_done(out);
    return teff_step_continue(out);
}

/* On ONE worker a process that always continues must not keep others off it. */
static void test_continue_starves_nobody(void **state)
{
    static const teff_process_ops loop = {.name = "loop", .step = step_for_ever};
    static const teff_process_ops ops = {.name = "other", .step = step_first_then_done};
    latch ends = {0};
    teff_process_system *system =
        system_of((teff_process_options){.workers = 1, .ended = count_end, .arg = &ends});
    for (unsigned i = 0; i < 3; i++)
        (void)spawn(system, &loop, NULL);
    for (unsigned i = 0; i < 200; i++) {
        (void)spawn(system, &ops, NULL);
        latch_wait(&ends, i + 1);
    }
    teff_process_system_free(system);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(test_a_late_reply_never_reaches_a_reused_process),
        T(test_messages_never_reach_another_life),
        T(test_a_completion_wakes_a_process_that_went_idle),
        T(test_a_step_gets_no_more_than_its_share),
        T(test_a_process_is_whole_when_it_can_be_found),
        T(test_continue_starves_nobody),
    };
    return cmocka_run_group_tests_name("process/process", tests, NULL, NULL);
}
