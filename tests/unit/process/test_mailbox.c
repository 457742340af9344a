/* test_mailbox.c - the queue of a process: many senders, limits in count and bytes, routing by PID,
 * statistics and listing. */
#include "processes.h"
#include "memory/slab.h"

enum { SENDERS = 4, EACH = 5000, LATER = 1 };

typedef struct mailbox { /* a process that takes messages and checks each sender's order */
    latch got, first;
    uint64_t next[SENDERS];
    unsigned largest; /* step */
    latch held;
} mailbox;

static latch ends;

static teff_err take(void *self, const teff_event *events, size_t n, teff_step *out)
{
    mailbox *m = self;
    if (n > m->largest)
        m->largest = (unsigned)n;
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == TEFF_EVENT_CANCEL)
            return teff_step_done(out);
        unsigned sender = (unsigned)(events[i].tag >> 32);
        assert_int_equal(events[i].tag & 0xffffffff, m->next[sender]++);
        latch_hit(&m->got);
    }
    return teff_step_idle(out);
}

static const teff_process_ops taker = {.name = "taker", .step = take};

typedef struct sender {
    teffi_thread thread;
    teff_process_system *system;
    teff_pid to;
    unsigned id;
} sender;

static void send_many(void *arg)
{
    sender *s = arg;
    for (uint64_t i = 0; i < EACH; i++) {
        teff_err err;
        while ((err = send_tag(s->system, s->to, (uint64_t)s->id << 32 | i)) == TEFF_E_OVERLOADED)
            teffi_thread_yield();
        assert_int_equal(err, TEFF_OK);
    }
}

/* Each process has a queue of many senders and one consumer. */
static void test_many_senders_one_consumer_each_in_order(void **state)
{
    teff_process_system *system = system_of((teff_process_options){.workers = 2});
    mailbox m = {0};
    teff_pid pid = spawn(system, &taker, &m);
    sender senders[SENDERS];
    for (unsigned i = 0; i < SENDERS; i++) {
        senders[i] = (sender){.system = system, .to = pid, .id = i};
        assert_int_equal(teffi_thread_start(&senders[i].thread, "sender", send_many, &senders[i]),
                         TEFF_OK);
    }
    for (unsigned i = 0; i < SENDERS; i++)
        teffi_thread_join(&senders[i].thread);
    latch_wait(&m.got, SENDERS * EACH);
    assert_true(m.largest <= 64);
    teff_process_system_free(system);
}

/* A process that holds its worker until told: what is sent meanwhile waits in its mailbox. */
static teff_err hold(void *self, const teff_event *events, size_t n, teff_step *out)
{
    mailbox *m = self;
    if (n > m->largest)
        m->largest = (unsigned)n;
    if (n == 0) {
        latch_hit(&m->first);
        latch_wait(&m->held, 1);
    }
    for (size_t i = 0; i < n; i++)
        latch_hit(&m->got);
    return n && events[0].kind == TEFF_EVENT_CANCEL ? teff_step_done(out) : teff_step_idle(out);
}

static const teff_process_ops holder = {.name = "holder", .step = hold};

/* A limit in count. What was refused was not taken; what was handled makes room. */
static void test_a_full_mailbox_refuses(void **state)
{
    teff_process_system *system =
        system_of((teff_process_options){.workers = 1, .mailbox_max = 100});
    mailbox m = {0};
    teff_pid pid = spawn(system, &holder, &m);
    latch_wait(&m.first, 1);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(send_tag(system, pid, i), TEFF_OK);
    assert_int_equal(send_tag(system, pid, 100), TEFF_E_OVERLOADED);
    teff_process_info info;
    assert_int_equal(teff_process_list(system, &info, 1), 1);
    assert_int_equal(info.waiting, 100);
    latch_hit(&m.held);
    latch_wait(&m.got, 100);
    until_state(system, pid, TEFF_PROCESS_IDLE);
    assert_int_equal(send_tag(system, pid, 101), TEFF_OK);
    latch_wait(&m.got, 101);
    teff_process_stats stats;
    teff_process_stats_get(system, &stats);
    assert_int_equal(stats.refused, 1);
    teff_process_system_free(system);
}

static void test_a_full_mailbox_counts_bytes(void **state)
{
    static char data[1000];
    teff_process_system *system =
        system_of((teff_process_options){.workers = 1, .mailbox_bytes = 5000});
    mailbox m = {0};
    teff_pid pid = spawn(system, &holder, &m);
    latch_wait(&m.first, 1);
    teff_event message = {.data = data, .len = sizeof data};
    unsigned taken = 0;
    while (teff_process_send(system, pid, &message) == TEFF_OK)
        taken++;
    assert_int_equal(taken, 4);
    teff_event huge = {.data = data, .len = 6000};
    assert_int_equal(teff_process_send(system, pid, &huge), TEFF_E_OVERLOADED);
    latch_hit(&m.held);
    latch_wait(&m.got, 4);
    teff_process_system_free(system);
}

/* What is blocked on a yield takes messages off the queue's word, but not out of the limit. */
static void later(void *arg, const teff_command *command)
{
}

static teff_err block(void *self, const teff_event *events, size_t n, teff_step *out)
{
    if (n && events[0].kind == TEFF_EVENT_CANCEL)
        return teff_step_done(out);
    return n ? teff_step_block(out) : teff_step_command(out, LATER, 0, NULL, 0);
}

static void test_a_blocked_process_has_a_limit_too(void **state)
{
    static const teff_process_ops ops = {.name = "block", .step = block};
    teff_process_system *system =
        system_of((teff_process_options){.workers = 1, .mailbox_max = 10});
    assert_int_equal(teff_process_set_handler(system, LATER, later, NULL), TEFF_OK);
    teff_pid pid = spawn(system, &ops, NULL);
    until_state(system, pid, TEFF_PROCESS_BLOCKED);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(send_tag(system, pid, i), TEFF_OK);
        until_state(system, pid, TEFF_PROCESS_BLOCKED);
    }
    assert_int_equal(send_tag(system, pid, 10), TEFF_E_OVERLOADED);
    teff_process_system_free(system);
}

/* ---- PIDs ---- */

static void test_unknown_closed_and_foreign_pids_are_told_apart(void **state)
{
    memset(&ends, 0, sizeof ends);
    teff_process_system *system =
        system_of((teff_process_options){.workers = 1, .ended = count_end, .arg = &ends});
    mailbox m = {0};
    teff_pid pid = spawn(system, &taker, &m);
    assert_true(pid.slot & 0x80000000u); /* never a system target's or an activation's slot */
    teff_pid other = pid;
    other.slot += 1;
    assert_int_equal(send_tag(system, other, 0), TEFF_E_NOT_FOUND);
    other.slot = 5;
    assert_int_equal(send_tag(system, other, 0), TEFF_E_NOT_FOUND);
    other = pid;
    other.generation += 2;
    assert_int_equal(send_tag(system, other, 0), TEFF_E_NOT_FOUND);
    other.generation += 1;
    assert_int_equal(send_tag(system, other, 0), TEFF_E_NOT_FOUND);
    other = pid;
    other.silo = 9;
    assert_int_equal(send_tag(system, other, 0), TEFF_E_UNAVAILABLE);
    assert_int_equal(teff_process_cancel(system, pid), TEFF_OK);
    latch_wait(&ends, 1);
    assert_int_equal(send_tag(system, pid, 0), TEFF_E_CLOSED);
    assert_int_equal(teff_process_cancel(system, pid), TEFF_E_CLOSED);
    teff_pid next = spawn(system, &taker, &m);
    assert_int_equal(send_tag(system, pid, 0), TEFF_E_CLOSED);
    assert_int_equal(send_tag(system, next, 0), TEFF_OK);
    latch_wait(&m.got, 1);
    teff_process_system_free(system);
}

static void check_limit_on_processes(unsigned max)
{
    memset(&ends, 0, sizeof ends);
    teff_process_system *system = system_of((teff_process_options){
        .workers = 2, .processes_max = max, .ended = count_end, .arg = &ends});
    static mailbox m[300];
    memset(m, 0, sizeof m);
    teff_pid pids[300];
    for (unsigned i = 0; i < max; i++)
        pids[i] = spawn(system, &taker, &m[i]);
    teff_pid pid;
    assert_int_equal(teff_process_spawn(system, &taker, &m[0], NULL, NULL, 0, &pid),
                     TEFF_E_OVERLOADED);
    assert_int_equal(teff_process_cancel(system, pids[7]), TEFF_OK);
    latch_wait(&ends, 1);
    while (teff_process_spawn(system, &taker, &m[7], NULL, NULL, 0, &pid) == TEFF_E_OVERLOADED)
        teffi_thread_yield(); /* its slot is given back a moment after it has ended */
    assert_int_equal(send_tag(system, pid, 0), TEFF_OK);
    latch_wait(&m[7].got, 1);
    teff_process_system_free(system);
}

static void test_a_limit_on_processes(void **state)
{
    check_limit_on_processes(300);
    check_limit_on_processes(4 * TEFFI_SLAB_BLOCK);
}

static void test_a_spawn_without_step_and_run_is_invalid(void **state)
{
    static const teff_process_ops empty = {.name = "empty"};
    teff_process_system *system = system_of((teff_process_options){.workers = 1});
    assert_int_equal(teff_process_spawn(system, &empty, NULL, NULL, NULL, 0, NULL), TEFF_E_INVALID);
    teff_process_system_free(system);
}

/* ---- statistics and listing ---- */

static void test_statistics_of_workers_and_processes(void **state)
{
    teff_process_system *system = system_of((teff_process_options){.workers = 2, .measure = 1});
    static mailbox m[3];
    memset(m, 0, sizeof m);
    teff_pid pids[3];
    for (unsigned i = 0; i < 3; i++)
        pids[i] = spawn(system, &taker, &m[i]);
    for (unsigned i = 0; i < 500; i++)
        assert_int_equal(send_tag(system, pids[1], i), TEFF_OK);
    latch_wait(&m[1].got, 500);
    for (unsigned i = 0; i < 3; i++)
        until_state(system, pids[i], TEFF_PROCESS_IDLE);
    teff_process_info infos[8];
    assert_int_equal(teff_process_list(system, infos, 2), 2);
    assert_int_equal(teff_process_list(system, infos, 8), 3);
    assert_true(teff_pid_equals(infos[1].pid, pids[1]));
    assert_string_equal(infos[1].name, "taker");
    assert_int_equal(infos[1].events, 500);
    assert_in_range(infos[1].turns, 1 + 500 / 64, 501);
    assert_true(infos[1].run_ns > 0);
    assert_int_equal(infos[0].turns, 1);
    assert_int_equal(infos[0].waiting, 0);
    teff_process_stats stats;
    teff_process_stats_get(system, &stats);
    assert_int_equal(stats.alive, 3);
    assert_int_equal(stats.spawned, 3);
    assert_int_equal(stats.workers, 3);
    teff_process_count counts[3], sum = {0};
    assert_int_equal(teff_process_worker_counts(system, counts, 3), 3);
    for (unsigned i = 0; i < 3; i++) {
        sum.turns += counts[i].turns;
        sum.events += counts[i].events;
        sum.run_ns += counts[i].run_ns;
    }
    assert_int_equal(sum.events, 500);
    assert_int_equal(sum.turns, infos[0].turns + infos[1].turns + infos[2].turns);
    assert_int_equal(sum.run_ns, infos[0].run_ns + infos[1].run_ns + infos[2].run_ns);
    teff_process_system_free(system);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_senders_one_consumer_each_in_order),
        cmocka_unit_test(test_a_full_mailbox_refuses),
        cmocka_unit_test(test_a_full_mailbox_counts_bytes),
        cmocka_unit_test(test_a_blocked_process_has_a_limit_too),
        cmocka_unit_test(test_unknown_closed_and_foreign_pids_are_told_apart),
        cmocka_unit_test(test_a_limit_on_processes),
        cmocka_unit_test(test_a_spawn_without_step_and_run_is_invalid),
        cmocka_unit_test(test_statistics_of_workers_and_processes),
    };
    return cmocka_run_group_tests_name("process/mailbox", tests, NULL, NULL);
}
