/* test_evict.c - processes by priority: a full run queue refuses the least urgent, and their
 * senders are told. */
#include "process/send.h"
#include "process/turn.h"
#include "processes.h"

enum { SINKS = 32, URGENT = 3, WAITING_MAX = 4 };

static const teff_sched_options priority = {
    .size = sizeof priority, .policy = TEFF_SCHED_PRIORITY, .waiting_max = WAITING_MAX};
static const teff_process_options limited = {
    .size = sizeof limited, .workers = 1, .sched = &priority};

/* ---- sinks: count their messages ---- */

typedef struct sink {
    teff_pid pid;
    _Atomic unsigned got, closed;
} sink;

static sink sinks[SINKS];

static teff_err sink_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    sink *s = self;
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == TEFF_EVENT_CANCEL)
            return teff_step_done(out);
        atomic_fetch_add(&s->got, events[i].kind == TEFF_EVENT_MESSAGE);
    }
    return teff_step_idle(out);
}

static const teff_process_ops low_ops = {.name = "low", .step = sink_step, .priority = -5};
static const teff_process_ops urgent_ops = {.name = "urgent", .step = sink_step, .priority = 5};

/* ---- a sender: a message to each sink in one turn, so that all become READY at once ---- */

static struct {
    _Atomic unsigned sent, returned, urgent, wrong;
    _Atomic unsigned rounds;
} told;

static void check(bool ok)
{
    if (!ok)
        atomic_fetch_add(&told.wrong, 1);
}

static void send_all(teff_process *me)
{
    for (unsigned i = 0; i < SINKS; i++) {
        teff_event message = {.tag = i, .data = "abc", .len = 3, .from = teff_process_pid(me)};
        check(teff_process_send(teff_process_system_of(me), sinks[i].pid, &message) == TEFF_OK);
        atomic_fetch_add(&told.sent, 1);
    }
}

static void came_back(const teff_event *event)
{
    check(event->err == TEFF_E_OVERLOADED && event->tag < SINKS);
    check(event->len == 3 && memcmp(event->data, "abc", 3) == 0);
    check(teff_pid_equals(event->from, sinks[event->tag].pid));
    atomic_fetch_add(&told.urgent, event->tag < URGENT);
    atomic_fetch_add(&told.returned, 1);
}

static teff_err sender_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == TEFF_EVENT_CANCEL)
            return teff_step_done(out);
        if (events[i].kind == TEFF_EVENT_RETURNED)
            came_back(&events[i]);
        else
            send_all(teff_step_process(out));
    }
    return teff_step_idle(out);
}

/* The most urgent, so that it is never evicted itself. */
static const teff_process_ops sender_ops = {.name = "sender", .step = sender_step, .priority = 127};

static unsigned got_by_all(void)
{
    unsigned got = 0;
    for (unsigned i = 0; i < SINKS; i++)
        got += atomic_load(&sinks[i].got);
    return got;
}

static void pause_a_little(void)
{
    teffi_thread_yield();
}

/* Again, until some came back: on a busy machine another thread may run what waits meanwhile. */
static void test_messages_come_back(void **state)
{
    teff_process_system *system = system_of(limited);
    teff_process_stats stats;
    memset(&told, 0, sizeof told);
    memset(sinks, 0, sizeof sinks);
    for (unsigned i = 0; i < SINKS; i++) {
        /* one after the other, so that none is refused to start */
        sinks[i].pid = spawn(system, i < URGENT ? &urgent_ops : &low_ops, &sinks[i]);
        until_state(system, sinks[i].pid, TEFF_PROCESS_IDLE);
    }
    teff_pid sender = spawn(system, &sender_ops, NULL);
    for (unsigned round = 1; round <= 1000; round++) {
        teff_event go = {.tag = round};
        assert_int_equal(teff_process_send(system, sender, &go), TEFF_OK);
        while (atomic_load(&told.sent) < round * SINKS)
            pause_a_little();
        while (got_by_all() + atomic_load(&told.returned) < round * SINKS)
            pause_a_little();
        assert_int_equal(got_by_all() + atomic_load(&told.returned), round * SINKS);
        if (atomic_load(&told.returned) >= 100)
            break;
    }
    teff_process_stats_get(system, &stats);
    assert_true(atomic_load(&told.returned) >= 100);
    assert_int_equal(stats.evicted, atomic_load(&told.returned));
    assert_int_equal(atomic_load(&told.urgent), 0);
    assert_int_equal(atomic_load(&told.wrong), 0);
    assert_int_equal(stats.dropped, 0);
    teff_process_system_free(system);
}

/* ---- answers ---- */

enum { LATER = 1 };

static struct {
    teff_completion completions[SINKS];
    _Atomic unsigned asked, answered;
} asks;

static void keep_completion(void *arg, const teff_command *command)
{
    asks.completions[command->tag] = command->completion;
    atomic_fetch_add(&asks.asked, 1);
}

static teff_err ask_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    sink *s = self;
    if (!n)
        return teff_step_command(out, LATER, (uint64_t)(s - sinks), NULL, 0);
    if (events[0].kind == TEFF_EVENT_COMPLETE)
        atomic_fetch_add(&asks.answered, 1);
    return teff_step_done(out);
}

static teff_err answer_all_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    for (unsigned i = 0; i < SINKS; i++)
        check(teff_command_complete(asks.completions[i], TEFF_OK, NULL, 0) == TEFF_OK);
    return teff_step_done(out);
}

static const teff_process_ops ask_ops = {.name = "asks", .step = ask_step, .priority = -5};
static const teff_process_ops answer_ops = {
    .name = "answers", .step = answer_all_step, .priority = 127};

static void ask_and_answer(teff_process_system *system)
{
    atomic_store(&asks.asked, 0);
    atomic_store(&asks.answered, 0);
    for (unsigned i = 0; i < SINKS; i++) {
        teff_pid pid = spawn(system, &ask_ops, &sinks[i]);
        while (atomic_load(&asks.asked) <= i)
            pause_a_little();
        until_state(system, pid, TEFF_PROCESS_BLOCKED);
    }
    (void)spawn(system, &answer_ops, NULL);
    while (atomic_load(&asks.answered) < SINKS)
        pause_a_little();
}

/* All are answered in one turn: most are evicted with their answer, which they get all the same. */
static void test_answers_do_not_come_back(void **state)
{
    teff_process_system *system = system_of(limited);
    teff_sched_metrics all = {0};
    memset(&told, 0, sizeof told);
    assert_int_equal(teff_process_set_handler(system, LATER, keep_completion, NULL), TEFF_OK);
    for (unsigned round = 0; round < 1000 && !all.evicted; round++) {
        ask_and_answer(system);
        (void)teff_process_sched_metrics(system, &all, NULL, 0);
    }
    assert_true(all.evicted > 0);
    assert_int_equal(atomic_load(&told.wrong), 0);
    teff_process_system_free(system);
}

/* ---- processes that are refused to start ---- */

enum { CROWD = 64 };

static struct {
    _Atomic unsigned init, closed, ended_well, ended_over, ended;
} crowd;

static teff_err crowd_init(void *self, teff_process *me, const char *method, const void *input,
                           size_t len)
{
    atomic_fetch_add(&crowd.init, 1);
    return TEFF_OK;
}

static teff_err crowd_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    return teff_step_done(out);
}

static void crowd_close(void *self)
{
    atomic_fetch_add(&crowd.closed, 1);
}

static const teff_process_ops crowd_ops = {
    .name = "crowd", .init = crowd_init, .step = crowd_step, .close = crowd_close};

static teff_err spawner_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    teff_process_system *system = teff_process_system_of(teff_step_process(out));
    for (unsigned i = 0; i < CROWD; i++)
        check(teff_process_spawn(system, &crowd_ops, NULL, NULL, NULL, 0, NULL) == TEFF_OK);
    return teff_step_done(out);
}

static const teff_process_ops spawner_ops = {
    .name = "spawner", .step = spawner_step, .priority = 1};

static void note_end(void *arg, teff_pid pid, teff_err err)
{
    atomic_fetch_add(err == TEFF_OK ? &crowd.ended_well : &crowd.ended_over,
                     err == TEFF_OK || err == TEFF_E_OVERLOADED);
    atomic_fetch_add(&crowd.ended, 1);
}

/* Each was closed and reported once, as done or as refused; who was refused had no init. */
static void test_processes_are_refused_to_start(void **state)
{
    teff_process_options opt = limited;
    unsigned rounds = 0;
    memset(&told, 0, sizeof told);
    memset(&crowd, 0, sizeof crowd);
    opt.ended = note_end;
    teff_process_system *system = system_of(opt);
    while (atomic_load(&crowd.ended_over) < 100 && rounds < 1000) {
        rounds++;
        (void)spawn(system, &spawner_ops, NULL);
        while (atomic_load(&crowd.ended) < rounds * (CROWD + 1))
            pause_a_little();
    }
    teff_process_stats stats;
    teff_process_stats_get(system, &stats);
    assert_true(atomic_load(&crowd.ended_over) >= 100);
    assert_int_equal(atomic_load(&crowd.ended_well) + atomic_load(&crowd.ended_over),
                     rounds * (CROWD + 1));
    assert_int_equal(atomic_load(&crowd.closed), rounds * CROWD);
    assert_int_equal(atomic_load(&crowd.init) + atomic_load(&crowd.ended_over), rounds * CROWD);
    assert_int_equal(stats.evicted, atomic_load(&crowd.ended_over));
    assert_int_equal(atomic_load(&told.wrong), 0);
    teff_process_system_free(system);
}

/* ---- a step that will be retried ---- */

enum {
    ONE_RUN = 256,                      /* items */
    RETRIED = ONE_RUN / TEFFI_STEP_MAX, /* the last step of a run */
    EVICTED = ONE_RUN - RETRIED         /* messages, if it upgrades in that step */
};

static struct {
    uint64_t tags[2]; /* given to the step that is retried, and to its second try */
    latch tried, ended;
} retry;

/* The step before the end of a run: the again item is in the group, which is then evicted. */
static teff_err retry_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    unsigned *steps = self;
    unsigned tries = atomic_load(&retry.tried.count);
    if (n && events[0].kind == TEFF_EVENT_CANCEL)
        return teff_step_done(out);
    if (!n || ++*steps < RETRIED || tries == 2)
        return teff_step_idle(out);
    retry.tags[tries] = events[0].tag;
    teff_step_process(out)->group.evicted = tries == 0;
    latch_hit(&retry.tried);
    return tries ? teff_step_idle(out) : teffi_step_set_retry(out);
}

static teff_err flood_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    const teff_pid *to = self;
    for (unsigned i = 0; i < ONE_RUN; i++)
        check(send_tag(teff_process_system_of(teff_step_process(out)), *to, i) == TEFF_OK);
    return teff_step_done(out);
}

static const teff_process_ops retry_ops = {.name = "retry", .step_max = 1, .step = retry_step};
static const teff_process_ops flood_ops = {.name = "flood", .step = flood_step};

/* The second try gets the same message, though the process was evicted in between. */
static void test_a_retried_message_is_kept(void **state)
{
    unsigned steps = 0;
    memset(&told, 0, sizeof told);
    memset(&retry, 0, sizeof retry);
    teff_process_options opt = limited;
    opt.ended = count_end;
    opt.arg = &retry.ended;
    teff_process_system *system = system_of(opt);
    teff_pid pid = spawn(system, &retry_ops, &steps);
    until_state(system, pid, TEFF_PROCESS_IDLE);
    (void)spawn(system, &flood_ops, &pid);
    latch_wait(&retry.tried, 1);
    until_state(system, pid, TEFF_PROCESS_BLOCKED);
    assert_int_equal(teffi_process_signal(system, pid, TEFFI_SIGNAL_POKE), TEFF_OK);
    latch_wait(&retry.tried, 2);
    assert_int_equal(retry.tags[0], RETRIED - 1);
    assert_int_equal(retry.tags[1], RETRIED - 1);
    assert_int_equal(atomic_load(&told.wrong), 0);
    teff_process_system_free(system);
}

/* ---- a process that has upgraded, before its new init ---- */

static struct {
    _Atomic unsigned init, ended_over;
    latch got, ended;
} upgrade;

static teff_err upgraded_init(void *self, teff_process *me, const char *method, const void *input,
                              size_t len)
{
    atomic_fetch_add(&upgrade.init, 1);
    return TEFF_OK;
}

static teff_err upgraded_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    if (n && events[0].kind == TEFF_EVENT_CANCEL)
        return teff_step_done(out);
    if (n)
        latch_hit(&upgrade.got);
    return teff_step_idle(out);
}

static const teff_process_ops upgraded_ops = {
    .name = "upgraded", .init = upgraded_init, .step = upgraded_step, .flags = TEFF_PROCESS_FIBER};

/* Upgrades in the step before the end of a run: the again item, which will call init, is in the
 * group, which is then evicted. */
static teff_err upgrading_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    unsigned *steps = self;
    if (n && events[0].kind == TEFF_EVENT_CANCEL)
        return teff_step_done(out);
    if (!n || ++*steps < RETRIED)
        return teff_step_idle(out);
    teff_step_process(out)->group.evicted = true;
    return teff_step_upgrade(out, &upgraded_ops, NULL, NULL, NULL, 0);
}

static const teff_process_ops upgrading_ops = {
    .name = "upgrading", .step_max = 1, .step = upgrading_step, .flags = TEFF_PROCESS_FIBER};

static void count_upgraded_end(void *arg, teff_pid pid, teff_err err)
{
    atomic_fetch_add(&upgrade.ended_over, err == TEFF_E_OVERLOADED);
    latch_hit(&upgrade.ended);
}

/* out: how many messages were evicted: in a run that was not cut short, all after the upgrade. */
static uint64_t upgrade_in_an_evicted_run(void)
{
    unsigned steps = 0;
    teff_process_options opt = limited;
    teff_process_stats stats;
    memset(&told, 0, sizeof told);
    memset(&upgrade, 0, sizeof upgrade);
    opt.ended = count_upgraded_end;
    teff_process_system *system = system_of(opt);
    teff_pid pid = spawn(system, &upgrading_ops, &steps);
    until_state(system, pid, TEFF_PROCESS_IDLE);
    (void)spawn(system, &flood_ops, &pid);
    latch_wait(&upgrade.ended, 1); /* of the flood */
    while (atomic_load(&upgrade.init) == 0 && atomic_load(&upgrade.ended.count) < 2)
        pause_a_little();
    assert_int_equal(atomic_load(&upgrade.init), 1);
    until_state(system, pid, TEFF_PROCESS_IDLE);
    assert_int_equal(send_tag(system, pid, 1), TEFF_OK);
    latch_wait(&upgrade.got, 1);
    teff_process_stats_get(system, &stats);
    assert_int_equal(atomic_load(&upgrade.ended_over), 0);
    assert_int_equal(atomic_load(&told.wrong), 0);
    teff_process_system_free(system);
    return stats.evicted;
}

/* It has run before, so it is not ended as one that was refused to start. Again, if the monitor cut
 * the run short. */
static void test_an_upgraded_process_goes_on(void **state)
{
    unsigned tries = 1;
    while (upgrade_in_an_evicted_run() != EVICTED)
        assert_true(tries++ < 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_come_back),
        cmocka_unit_test(test_a_retried_message_is_kept),
        cmocka_unit_test(test_an_upgraded_process_goes_on),
        cmocka_unit_test(test_answers_do_not_come_back),
        cmocka_unit_test(test_processes_are_refused_to_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
