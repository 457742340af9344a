/* test_processes.c - processes on silos: PIDs reach from silo to silo, in order, to the end. */
#include "../process/processes.h"
#include "lab.h"
#include "silo/silo.h"

enum { MESSAGES = 2000 };

static struct {
    lab_record record;
    char store[512];
    teff_silo *silos[2];
    teff_process_system *systems[2];
    latch got, ended;
    uint64_t last, disorder, bytes;
    teff_pid from;
    unsigned cancels, refused;
    latch answers;
} t;

static teff_silo *silo_start(void)
{
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .store = t.store, .workers = 2};
    char text[TEFF_TEXT_MAX] = "";
    teff_silo *silo = lab_silo(&t.record, &opt);
    if (teff_silo_start(silo, text))
        fail_msg("start: %s", text);
    return silo;
}

static int setup(void **state)
{
    memset(&t, 0, sizeof t);
    lab_fresh_store(t.store);
    for (int i = 0; i < 2; i++) {
        t.silos[i] = silo_start();
        teff_process_options opt = {.size = sizeof opt, .ended = count_end, .arg = &t.ended};
        assert_int_equal(teff_silo_processes(t.silos[i], &opt, &t.systems[i]), TEFF_OK);
    }
    uint64_t spent = 0;
    while (teff_silo_members(t.silos[0]) < 2)
        assert_true(lab_pause(&spent));
    return 0;
}

static int teardown(void **state)
{
    for (int i = 0; i < 2; i++)
        teff_silo_free(t.silos[i]);
    lab_drop_store(t.store);
    return 0;
}

/* Counts, and answers each message to whoever sent it. */
static teff_err count(void *self, const teff_event *events, size_t n, teff_step *out)
{
    teff_process *me = teff_step_process(out);
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == TEFF_EVENT_CANCEL) {
            t.cancels++;
            return teff_step_done(out);
        }
        t.disorder += events[i].tag != t.last + 1;
        t.last = events[i].tag;
        t.bytes += events[i].len;
        t.from = events[i].from;
        if (events[i].from.slot)
            t.refused += TEFF_OK != teff_process_send(teff_process_system_of(me), events[i].from,
                                                      &(teff_event){.tag = events[i].tag});
        latch_hit(&t.got);
    }
    return TEFF_OK;
}

static const teff_process_ops counter = {.name = "counter", .step = count};

static teff_err take_answers(void *self, const teff_event *events, size_t n, teff_step *out)
{
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == TEFF_EVENT_CANCEL)
            return teff_step_done(out);
        latch_hit(&t.answers);
    }
    return TEFF_OK;
}

static const teff_process_ops asker = {.name = "asker", .step = take_answers};

static void messages_reach_the_other_silo_in_order(void **state)
{
    static const char text[100] = "something to carry";
    teff_pid there = spawn(t.systems[1], &counter, NULL);
    teff_pid here = spawn(t.systems[0], &asker, NULL);
    assert_true(there.silo != here.silo || there.incarnation != here.incarnation);
    for (uint64_t i = 1; i <= MESSAGES; i++) {
        teff_event event = {.tag = i, .from = here, .data = text, .len = i % sizeof text};
        assert_int_equal(teff_process_send(t.systems[0], there, &event), TEFF_OK);
    }
    latch_wait(&t.got, MESSAGES);
    latch_wait(&t.answers, MESSAGES); /* the from that arrived leads back */
    assert_int_equal(t.disorder + t.refused, 0);
    assert_true(teff_pid_equals(t.from, here));
    uint64_t bytes = 0;
    for (uint64_t i = 1; i <= MESSAGES; i++)
        bytes += i % sizeof text;
    assert_int_equal(t.bytes, bytes);
}

static void a_cancel_reaches_the_other_silo(void **state)
{
    teff_pid there = spawn(t.systems[1], &counter, NULL);
    teff_pid same_slot = spawn(t.systems[0], &counter, NULL);
    assert_int_equal(same_slot.slot, there.slot);
    assert_int_equal(same_slot.generation, there.generation);
    assert_int_equal(teff_process_cancel(t.systems[0], there), TEFF_OK);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.cancels, 1);
    teff_process_stats stats;
    teff_process_stats_get(t.systems[0], &stats);
    assert_int_equal(stats.alive, 1); /* the namesake of this silo was left alone */
}

static void who_is_not_there_is_told_apart(void **state)
{
    teff_event event = {.tag = 1};
    teff_pid there = spawn(t.systems[1], &counter, NULL), other = there;
    other.silo += 12345;
    assert_int_equal(teff_process_send(t.systems[0], other, &event), TEFF_E_UNAVAILABLE);
    other = there;
    other.incarnation++;
    assert_int_equal(teff_process_send(t.systems[0], other, &event), TEFF_E_UNAVAILABLE);
    other = there;
    other.slot = 1; /* a system target is no process */
    assert_int_equal(teff_process_send(t.systems[0], other, &event), TEFF_E_NOT_FOUND);
    other = there;
    other.generation += 2; /* nobody is told; nobody else gets it either */
    assert_int_equal(teff_process_send(t.systems[0], other, &event), TEFF_OK);
    assert_int_equal(teff_process_send(t.systems[0], there, &event), TEFF_OK);
    latch_wait(&t.got, 1);
    assert_int_equal(atomic_load(&t.got.count), 1);
}

static void more_than_a_frame_is_refused(void **state)
{
    static char large[2 << 20];
    teff_pid there = spawn(t.systems[1], &counter, NULL);
    teff_event event = {.tag = 1, .data = large, .len = sizeof large};
    assert_int_equal(teff_process_send(t.systems[0], there, &event), TEFF_E_TOO_LARGE);
    event.len = 1000000;
    assert_int_equal(teff_process_send(t.systems[0], there, &event), TEFF_OK);
    latch_wait(&t.got, 1);
    assert_int_equal(t.bytes, 1000000);
}

static void one_system_a_silo_and_only_while_it_serves(void **state)
{
    teff_process_system *again;
    assert_int_equal(teff_silo_processes(t.silos[0], NULL, &again), TEFF_E_EXISTS);
    assert_null(again);
    (void)spawn(t.systems[0], &counter, NULL);
    assert_int_equal(teff_silo_stop(t.silos[0], 0), TEFF_OK);
    assert_int_equal(t.cancels, 1);
    assert_int_equal(teff_silo_processes(t.silos[0], NULL, &again), TEFF_E_CLOSED);
}

/* From the beginning of a stop until the next start. */
static void a_silo_that_stops_makes_no_system(void **state)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_process_system *system;
    teff_silo *silo = silo_start();
    assert_int_equal(teffi_silo_stop_engines_and_processes(silo, 1000), TEFF_OK);
    assert_int_equal(teff_silo_processes(silo, NULL, &system), TEFF_E_CLOSED);
    assert_null(system);
    assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
    assert_int_equal(teff_silo_start(silo, text), TEFF_OK);
    assert_int_equal(teff_silo_processes(silo, NULL, &system), TEFF_OK);
    teff_silo_free(silo);
}

static teff_err stay(void *self, const teff_event *events, size_t n, teff_step *out)
{
    return teff_step_idle(out);
}

static void a_process_that_stays_is_forced_and_told_of(void **state)
{
    static const teff_process_ops stays = {.name = "stays", .step = stay};
    (void)spawn(t.systems[1], &stays, NULL);
    assert_int_equal(teff_silo_stop(t.silos[1], 2000), TEFF_E_TIMEOUT);
}

#define ROW(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(messages_reach_the_other_silo_in_order),
        ROW(a_cancel_reaches_the_other_silo),
        ROW(who_is_not_there_is_told_apart),
        ROW(more_than_a_frame_is_refused),
        ROW(one_system_a_silo_and_only_while_it_serves),
        ROW(a_silo_that_stops_makes_no_system),
        ROW(a_process_that_stays_is_forced_and_told_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
