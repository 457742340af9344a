/* test_promise.c - leases are extended while a majority cannot reach the store, for as long as the
 * option says; a silo whose lease may be extended is declared dead only by consent, or late. */
#include <stdlib.h>
#include <string.h>
#include "call/task.h"
#include "cluster.pb-c.h"
#include "cluster/join.h"
#include "cluster/promise.h"
#include "lab.h"
#include "node/ask.h"
#include "store/engine.h"

/* Each silo has its own clock, and a store that may be cut off. */
enum { SILOS = 3, LEASE_MS = TEFFI_LEASE_MS, OUTAGE_MS = 60000, STEP_MS = 500, LONG_MS = 100000 };

static lab *l;
static int made;
static uint64_t (*real_ns)(void *arg);
static teff_err (*real_open)(const teffi_platform *platform, const char *address,
                             teffi_store **store, char *text);
static _Atomic uint64_t ahead_ns[SILOS];
static _Atomic bool cut[SILOS];
static _Atomic int lost[SILOS];
/* lines of each silo */
static _Atomic int logged_dead[SILOS], logged_unconsented[SILOS], logged_unknown_view[SILOS];
static _Atomic bool beats_late; /* silo 2 beats when silo 0 next reads the table */
static uint32_t lease_ms;

static uint64_t ns_of_0(void *arg)
{
    return real_ns(arg) + ahead_ns[0];
}

static uint64_t ns_of_1(void *arg)
{
    return real_ns(arg) + ahead_ns[1];
}

static uint64_t ns_of_2(void *arg)
{
    return real_ns(arg) + ahead_ns[2];
}

static uint64_t (*const clocks[SILOS])(void *arg) = {ns_of_0, ns_of_1, ns_of_2};

/* ---- stores that may be cut off ---- */

typedef struct door {
    teffi_store base;
    teffi_store *inner;
    int which;
} door;

static void submit(teffi_store *store, teffi_store_op *op)
{
    door *d = (door *)store;
    if (d->which == 0 && op->kind == TEFFI_STORE_SCAN && atomic_exchange(&beats_late, false))
        lab_ok(l->ctx[2], lab_beat(l->ctx[2]));
    if (!cut[d->which]) {
        teffi_store_submit(d->inner, op);
        return;
    }
    teffi_store_op_set_error(op, TEFF_E_IO, "the store cannot be reached");
    op->done(op);
}

static void close_door(teffi_store *store)
{
    ((door *)store)->inner->ops->close(((door *)store)->inner);
}

static void free_door(teffi_store *store)
{
    ((door *)store)->inner->ops->free(((door *)store)->inner);
    free(store);
}

static teff_err open_door(const teffi_platform *platform, const char *address, teffi_store **store,
                          char *text)
{
    static const teffi_store_ops ops = {submit, close_door, free_door};
    door *d = calloc(1, sizeof *d);
    assert_non_null(d);
    d->base.ops = &ops;
    while (platform->mono_ns != clocks[d->which])
        d->which++;
    teff_err err = real_open(platform, address, &d->inner, text);
    *store = err ? NULL : &d->base;
    return err;
}

/* ---- silos ---- */

static void note_lost(void *arg, const char *why)
{
    assert_true(why[0] != '\0');
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static void count_line(void *arg, teff_log_level level, const char *line)
{
    int silo = (int)((_Atomic int *)arg - lost);
    if (strstr(line, "declared dead"))
        logged_dead[silo]++;
    if (strstr(line, " of the 2 needed silos consent"))
        logged_unconsented[silo]++;
    if (strstr(line, "its view 999, which says whose consent is needed, is not known"))
        logged_unknown_view[silo]++;
}

static void change_platform(teff_silo *silo)
{
    int which = made++;
    if (which == 0) {
        real_ns = silo->platform.mono_ns;
        real_open = silo->platform.store_open;
    }
    silo->platform.mono_ns = clocks[which];
    silo->platform.store_open = open_door;
    silo->platform.log = (teffi_log){count_line, &lost[which], TEFF_LOG_INFO};
    silo->opt.lease_ms = lease_ms;
    silo->opt.outage_ms = OUTAGE_MS;
    silo->opt.lost = note_lost;
    silo->opt.lost_arg = &lost[which];
}

static int open_silos(uint32_t ms)
{
    lease_ms = ms;
    made = 0;
    for (int i = 0; i < SILOS; i++) {
        cut[i] = false;
        ahead_ns[i] = 0;
        lost[i] = 0;
        logged_dead[i] = logged_unconsented[i] = logged_unknown_view[i] = 0;
    }
    l = lab_open_more(SILOS, change_platform);
    return 0;
}

static int setup(void **state)
{
    return open_silos(LEASE_MS);
}

static int setup_long(void **state)
{
    return open_silos(LONG_MS);
}

static int teardown(void **state)
{
    for (int i = 0; i < SILOS; i++)
        cut[i] = false;
    lab_close(l);
    return 0;
}

static teffi_membership *membership_of(int silo)
{
    return l->silos[silo]->node.membership;
}

static teffi_node_id id_of(int silo)
{
    return l->silos[silo]->node.id;
}

static teffi_lease *lease_of(int silo)
{
    return &l->silos[silo]->node.home.lease;
}

static int64_t left_ms(int silo)
{
    return (int64_t)(teffi_lease_until_ns(lease_of(silo)) - clocks[silo](NULL)) / 1000000;
}

static bool is_over(int silo)
{
    return teffi_lease_is_over(lease_of(silo));
}

/* Has the silo told the store that it has the same view as silo 0? */
static bool has_told_view(int silo)
{
    teffi_promises *p = &membership_of(silo)->promises;
    uint64_t view = teffi_membership_version(&l->silos[0]->node);
    pthread_mutex_lock(&p->lock);
    bool told = p->confirmed.number > 0 && p->confirmed.view == view && !p->view_changed;
    pthread_mutex_unlock(&p->lock);
    return told;
}

static bool is_extended(int silo)
{
    teffi_promises *p = &membership_of(silo)->promises;
    pthread_mutex_lock(&p->lock);
    bool extended = p->extended;
    pthread_mutex_unlock(&p->lock);
    return extended;
}

static void wait_for_same_view(void)
{
    for (int i = 0; i < SILOS; i++)
        lab_until(has_told_view(i));
}

/* Parked workers do not see that a test's clock moves: fires what is due in their place. */
static void poke(int silo)
{
    teffi_exec *exec = l->silos[silo]->node.home.exec;
    teffi_beat *beat = &membership_of(silo)->beat;
    teffi_timer *timers[] = {&beat->timer, &beat->look, &beat->promise, &beat->expiry};
    for (int i = 0; i < 4; i++) {
        if (!exec->ops->timer_cancel(exec, timers[i]))
            continue;
        if (timers[i]->due_ns <= clocks[silo](NULL))
            timers[i]->fire(timers[i]);
        else
            exec->ops->timer_set(exec, timers[i], timers[i]->due_ns);
    }
}

#define until_poked(silo, cond)                                                                    \
    do {                                                                                           \
        poke(silo);                                                                                \
        lab_until((cond) || (poke(silo), false));                                                  \
    } while (0)

/* Has the silo done what is due by its clock? */
static bool is_idle(int silo)
{
    teffi_beat *beat = &membership_of(silo)->beat;
    pthread_mutex_lock(&beat->lock);
    uint64_t now = clocks[silo](NULL);
    bool idle = !beat->looks && beat->look.due_ns > now && beat->timer.due_ns > now &&
                beat->promise.due_ns > now;
    pthread_mutex_unlock(&beat->lock);
    return idle;
}

/* ms pass on the clocks of the silos before `end`. */
static void pass(int end, uint32_t ms)
{
    for (int i = 0; i < end; i++)
        ahead_ns[i] += ms * UINT64_C(1000000);
    for (int i = 0; i < end; i++)
        until_poked(i, is_over(i) || is_idle(i));
}

static void step(void)
{
    pass(SILOS, STEP_MS);
}

static void cut_off(int first, int end)
{
    wait_for_same_view();
    for (int i = first; i < end; i++)
        cut[i] = true;
}

static void answers(int from, const char *key)
{
    lab_number *out;
    lab_ok(l->ctx[from], lab_turns_read(l->ctx[from], key, lab_step(.seq = 1), &out));
}

/* ---- leases ---- */

static void while_no_silo_reaches_the_store_all_serve(void **state)
{
    answers(0, "before");
    cut_off(0, SILOS);
    for (int t = 0; t < 3 * LEASE_MS; t += STEP_MS) {
        step();
        for (int i = 0; i < SILOS; i++)
            until_poked(i, left_ms(i) > LEASE_MS / 3);
    }
    for (int i = 0; i < SILOS; i++)
        answers(i, "before");
    for (int i = 0; i < SILOS; i++)
        cut[i] = false;
    for (int i = 0; i < SILOS; i++)
        until_poked(i, !is_extended(i));
    for (int t = 0; t < 2 * LEASE_MS; t += LEASE_MS / 5)
        pass(SILOS, LEASE_MS / 5);
    for (int i = 0; i < SILOS; i++) {
        assert_int_equal(lost[i], 0);
        answers(i, "after");
    }
}

static void but_not_longer_than_the_option_says(void **state)
{
    cut_off(0, SILOS);
    for (int t = 0; t < OUTAGE_MS; t += STEP_MS) {
        step();
        for (int i = 0; i < SILOS; i++)
            until_poked(i, left_ms(i) > LEASE_MS / 3);
    }
    for (int i = 0; i < SILOS; i++)
        assert_int_equal(lost[i], 0);
    for (int t = 0; t < 2 * LEASE_MS; t += STEP_MS)
        step();
    for (int i = 0; i < SILOS; i++)
        until_poked(i, lost[i] == 1);
}

static void one_silo_alone_that_is_cut_off_stops(void **state)
{
    cut_off(2, SILOS);
    for (int t = 0; t <= LEASE_MS; t += STEP_MS) {
        step();
        for (int i = 0; i < 2; i++)
            until_poked(i, left_ms(i) > LEASE_MS / 3);
    }
    until_poked(2, lost[2] == 1);
    for (int t = 0; t < 2 * LEASE_MS; t += LEASE_MS / 5)
        pass(2, LEASE_MS / 5);
    until_poked(0, teff_silo_members(l->silos[0]) == SILOS - 1);
    assert_int_equal(lost[0] + lost[1], 0);
}

/* The members of another view might not have been asked. */
static void after_a_change_of_the_view_no_lease_is_extended(void **state)
{
    cut_off(0, SILOS);
    pthread_mutex_lock(&membership_of(0)->promises.lock);
    membership_of(0)->promises.view_changed = true; /* as after one more heartbeat */
    pthread_mutex_unlock(&membership_of(0)->promises.lock);
    for (int t = 0; t <= LEASE_MS; t += STEP_MS) {
        step();
        for (int i = 1; i < SILOS; i++)
            until_poked(i, left_ms(i) > LEASE_MS / 3);
    }
    until_poked(0, lost[0] == 1);
    assert_int_equal(lost[1] + lost[2], 0);
}

/* ---- promises and consents ---- */

static uint32_t consent(int from, int silent, uint64_t beat)
{
    Teff__Cluster__Node node = TEFF__CLUSTER__NODE__INIT;
    Teff__Cluster__Silent one = TEFF__CLUSTER__SILENT__INIT, *list[] = {&one};
    Teff__Cluster__Consent ask = TEFF__CLUSTER__CONSENT__INIT;
    node.silo = id_of(silent).silo;
    node.incarnation = id_of(silent).incarnation;
    one.node = &node;
    one.beat = beat;
    ask.silent = list;
    ask.n_silent = 1;
    return teffi_membership_consent_to_deaths(membership_of(from), &ask);
}

static void a_promise_and_a_consent_exclude_each_other(void **state)
{
    teffi_membership *m = membership_of(0);
    wait_for_same_view();
    assert_non_null(strstr(teffi_promise_give(m, id_of(1), 9), "reaches the store"));
    cut[0] = true;
    for (int t = 0; t < LEASE_MS / 2; t += STEP_MS)
        step();
    assert_null(teffi_promise_give(m, id_of(1), 9));
    assert_int_equal(consent(0, 1, 9), 0);
    assert_int_equal(consent(0, 2, 9), 1);
    ahead_ns[0] += LEASE_MS / 100 * UINT64_C(105) * 1000000;
    assert_int_equal(consent(0, 1, 9), 1);
    assert_non_null(strstr(teffi_promise_give(m, id_of(1), 9), "consented"));
    assert_non_null(strstr(teffi_promise_give(m, id_of(1), 8), "consented"));
    assert_null(teffi_promise_give(m, id_of(1), 10));
    assert_int_equal(consent(0, 1, 10), 0);
    teffi_node_id stranger = {12345, 1};
    assert_non_null(strstr(teffi_promise_give(m, stranger, 1), "not a member"));
}

static void silence_last(void)
{
    wait_for_same_view();
    teffi_membership_stop_timers(membership_of(2));
}

/* Silo 2 writes no heartbeat any more. out: after how much time, on the clocks of the others, it is
 * declared dead. */
static int ms_until_declared_dead(void)
{
    int ms = 0;
    while (ms < 3 * (LEASE_MS + OUTAGE_MS) && teff_silo_members(l->silos[0]) == SILOS) {
        pass(2, LEASE_MS / 5);
        ms += LEASE_MS / 5;
    }
    assert_int_equal(teff_silo_members(l->silos[0]), SILOS - 1);
    return ms;
}

static void by_consent_a_silent_silo_is_declared_dead_without_delay(void **state)
{
    silence_last();
    assert_in_range(ms_until_declared_dead(), LEASE_MS, 2 * LEASE_MS);
}

/* Of two others both must consent. */
static void without_consent_only_after_the_outage(void **state)
{
    silence_last();
    membership_of(1)->promises.of[0] = (teffi_promised){.silo = id_of(2), .until_ns = UINT64_MAX};
    assert_in_range(ms_until_declared_dead(), LEASE_MS + OUTAGE_MS, 2 * LEASE_MS + 2 * OUTAGE_MS);
    for (int i = 0; i < 2; i++)
        assert_int_equal(logged_unconsented[i], 1);
}

/* Without the view of the heartbeat nobody knows whom to ask. */
static void without_the_view_only_after_the_outage(void **state)
{
    silence_last();
    teffi_own_beat beat = {.number = 1001, .view = 999, .sent_ns = 1};
    lab_ok(l->ctx[2], teffi_heartbeat_write_and_renew_lease(l->ctx[2], &beat, NULL, 0));
    assert_in_range(ms_until_declared_dead(), LEASE_MS + OUTAGE_MS, 2 * LEASE_MS + 2 * OUTAGE_MS);
    for (int i = 0; i < 2; i++)
        assert_int_equal(logged_unknown_view[i], 1);
}

/* Only silo 0 watches, by a clock of its own; silo 1 beats when the test says so. */
static void let_only_first_watch(void)
{
    silence_last();
    teffi_membership_stop_timers(membership_of(1));
    for (int i = 1; i < SILOS; i++)
        lab_until(teffi_tasks_count_running(&l->silos[i]->node.home) == 0);
}

static void pass_for_first(uint32_t ms)
{
    lab_ok(l->ctx[1], lab_beat(l->ctx[1]));
    teff_ctx_reset(l->ctx[1]);
    pass(1, ms);
}

/* The heartbeat comes between the look and the change of the table. */
static void a_silo_that_beats_in_time_is_not_logged_as_dead(void **state)
{
    let_only_first_watch();
    beats_late = true;
    while (beats_late)
        pass_for_first(LEASE_MS / 5);
    assert_int_equal(teff_silo_members(l->silos[0]), SILOS);
    assert_int_equal(logged_dead[0], 0);
    while (teff_silo_members(l->silos[0]) == SILOS)
        pass_for_first(LEASE_MS / 5);
    lab_until(logged_dead[0] == 1);
}

static uint64_t *still_ns_of(int silo)
{
    teffi_watched_silo *at = membership_of(0)->beat.watched;
    while (!teffi_node_equals(at->node, id_of(silo)))
        at++;
    return &at->still_ns;
}

/* Silo 1 could be declared dead before the next regular look. */
static void a_death_without_consent_delays_no_other(void **state)
{
    const uint64_t limit_ns = LONG_MS * UINT64_C(1500000), regular_ms = LONG_MS / 5;
    let_only_first_watch();
    membership_of(1)->promises.of[0] = (teffi_promised){.silo = id_of(2), .until_ns = UINT64_MAX};
    do
        pass_for_first(regular_ms);
    while (*still_ns_of(2) <= limit_ns);
    *still_ns_of(1) = limit_ns - regular_ms * 1500000;
    pass(1, regular_ms); /* now half of regular_ms is left */
    uint64_t due_ns = membership_of(0)->beat.look.due_ns;
    assert_true(due_ns < clocks[0](NULL) + regular_ms * 750000);
    assert_int_equal(teff_silo_members(l->silos[0]), SILOS);
}

int main(void)
{
#define ROW(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        ROW(while_no_silo_reaches_the_store_all_serve),
        ROW(but_not_longer_than_the_option_says),
        ROW(one_silo_alone_that_is_cut_off_stops),
        ROW(after_a_change_of_the_view_no_lease_is_extended),
        ROW(a_promise_and_a_consent_exclude_each_other),
        ROW(by_consent_a_silent_silo_is_declared_dead_without_delay),
        ROW(without_consent_only_after_the_outage),
        ROW(without_the_view_only_after_the_outage),
        ROW(a_silo_that_beats_in_time_is_not_logged_as_dead),
        cmocka_unit_test_setup_teardown(a_death_without_consent_delays_no_other, setup_long,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
