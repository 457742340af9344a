/* test_stuck.c - a silo whose workers are all in turns that do not end gives its lease up, and its
 * grains are served elsewhere; a silo that is idle, or whose turns are only long, keeps it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "call/task.h"
#include "cluster/membership.h"
#include "directory/shard.h"
#include "lab.h"

/* Each silo has a clock that the test moves. Times are long compared with what a slow machine adds
 * to them. Silo WELL is in one test only. */
enum { STUCK, WELL, SILOS };
enum { LEASE_MS = 100000, LIMIT_MS = LEASE_MS, BEAT_MS = LEASE_MS / 5 };
/* Turns that keep their thread: two workers have a processor, and two lose theirs. */
enum { WORKERS = 2, INSIDE = 4, CALLS = 12 };

static lab *l;
static int made;
static uint64_t (*real_ns)(void *arg);
static _Atomic uint64_t ahead_ns[SILOS];
static _Atomic int lost;
static char why_lost[200];
static teff_call calls[CALLS];
static int n_calls;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static int tokens; /* guarded by lock; so many turns may end */
static bool declares;
static uint32_t stop_timeout_ms;
static teff_err stop_err;
static teff_err (*real_net_new)(const teffi_platform *platform, const teffi_net_options *opt,
                                teffi_net **net, char *text);
static teffi_net_ops real_net_ops, seen_net_ops;
static int goodbyes; /* of silo STUCK, and how many of them were watched */
static int watched_goodbyes;
static _Atomic int begun;

/* ---- silos ---- */

static uint64_t stuck_ns(void *arg)
{
    return real_ns(arg) + ahead_ns[STUCK];
}

static uint64_t well_ns(void *arg)
{
    return real_ns(arg) + ahead_ns[WELL];
}

static void advance(int silo, uint64_t ms)
{
    ahead_ns[silo] += ms * 1000000u;
}

static void note_lost(void *arg, const char *why)
{
    (void)arg;
    snprintf(why_lost, sizeof why_lost, "%s", why);
    lost++;
}

/* Keeps its thread, and calls nothing of teff's. */
static teff_err stay(lab_rare *self, lab_text *out)
{
    (void)self;
    (void)out;
    begun++;
    if (declares)
        teff_blocking_begin();
    pthread_mutex_lock(&lock);
    while (tokens == 0)
        pthread_cond_wait(&opened, &lock);
    tokens--;
    pthread_mutex_unlock(&lock);
    if (declares)
        teff_blocking_end();
    return TEFF_OK;
}

static void let_turns_end(int n)
{
    pthread_mutex_lock(&lock);
    tokens += n;
    pthread_cond_broadcast(&opened);
    pthread_mutex_unlock(&lock);
}

static teff_err note_goodbye(teffi_net *net, uint32_t timeout_ms)
{
    if (net == l->silos[STUCK]->node.home.net) {
        goodbyes++;
        watched_goodbyes += l->silos[STUCK]->watch != NULL;
    }
    return real_net_ops.shutdown(net, timeout_ms);
}

static teff_err make_seen_net(const teffi_platform *platform, const teffi_net_options *opt,
                              teffi_net **net, char *text)
{
    teff_err err = real_net_new(platform, opt, net, text);
    if (err)
        return err;
    if (!seen_net_ops.shutdown) { /* the first net; the others have the same */
        real_net_ops = seen_net_ops = *(*net)->ops;
        seen_net_ops.shutdown = note_goodbye;
    }
    (*net)->ops = &seen_net_ops;
    return TEFF_OK;
}

static void change_options(teff_silo *silo)
{
    static const lab_rare_methods methods = {.where = stay};
    int which = made++;
    if (which == STUCK) /* its threads read it from now on */
        real_ns = silo->platform.mono_ns;
    silo->platform.mono_ns = which == STUCK ? stuck_ns : well_ns;
    real_net_new = silo->platform.net_new;
    silo->platform.net_new = make_seen_net;
    silo->opt.lease_ms = LEASE_MS;
    if (which == WELL)
        return;
    silo->opt.workers = WORKERS;
    silo->opt.stuck_ms = LIMIT_MS;
    silo->opt.lost = note_lost;
    assert_int_equal(teff_silo_host(silo, lab_rare_type(&methods, NULL)), TEFF_OK);
}

static int open_silos(int n)
{
    made = n_calls = tokens = 0;
    begun = lost = 0;
    goodbyes = watched_goodbyes = 0;
    declares = false;
    ahead_ns[WELL] = ahead_ns[STUCK] = 0;
    l = lab_open_more(n, change_options);
    teff_ctx_set_timeout(l->ctx[STUCK], 100 * LEASE_MS);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return open_silos(1);
}

static int setup_two(void **state)
{
    (void)state;
    return open_silos(SILOS);
}

static int teardown(void **state)
{
    (void)state;
    let_turns_end(CALLS);
    for (int i = 0; i < n_calls; i++)
        (void)!teff_await_all(l->ctx[STUCK], &calls[i], 1);
    lab_close(l);
    return 0;
}

/* ---- turns and heartbeats ---- */

static void start_turns(int n)
{
    char key[20];
    for (int i = 0; i < n; i++, n_calls++) {
        snprintf(key, sizeof key, "stay-%d", n_calls);
        lab_ok(l->ctx[STUCK], lab_rare_where_async(l->ctx[STUCK], key, NULL, &calls[n_calls]));
    }
}

static uint64_t read_heartbeat(int silo)
{
    teff_ctx *ctx = l->ctx[l->n - 1];
    uint64_t etag = 0;
    lab_ok(ctx, lab_read_alive(ctx, l->silos[silo]->node.id, &etag));
    return etag;
}

static void do_nothing(teff_ctx *ctx, void *arg)
{
    (void)ctx;
    (void)arg;
}

/* Moves a silo's clock, when the time of its next heartbeat is set. A worker that is parked notices
 * that only when it is woken. */
static void move_clock(int silo, uint64_t ms)
{
    lab_until((silo == STUCK && lost) || l->silos[silo]->node.membership->beat.timer.where != 0);
    advance(silo, ms);
    assert_int_equal(teffi_task_start(&l->silos[silo]->node.home, do_nothing, NULL, "wake", false),
                     TEFF_OK);
}

/* Moves the clocks, and waits for the heartbeats that are due by then, or until the lease is lost.
 */
static void beat_after(uint64_t ms)
{
    for (int i = l->n - 1; i >= 0; i--) {
        uint64_t before = read_heartbeat(i);
        move_clock(i, ms);
        lab_until((i == STUCK && lost) || read_heartbeat(i) != before);
    }
}

static void beat_often(int n)
{
    for (int i = 0; i < n; i++)
        beat_after(BEAT_MS);
}

/* All workers are in turns that do not end, and the probe waits, with the next turns. */
static void stick_workers(void)
{
    start_turns(CALLS);
    lab_until(begun >= INSIDE);
    beat_often(2);
    assert_int_equal(lost, 0);
}

/* out: the key of a grain with a state that lives on silo STUCK, in a static buffer. */
static const char *make_grain_there(void)
{
    static char key[20];
    for (int i = 0;; i++) {
        lab_number *out;
        bool certain;
        snprintf(key, sizeof key, "there-%d", i);
        lab_ok(l->ctx[STUCK], lab_account_add(l->ctx[STUCK], key, lab_number(.n = 1), &out));
        teffi_grains *grains = l->silos[STUCK]->node.grains;
        teffi_ident ident = teffi_ident_of(&grains->secret, lab_account_info.id,
                                           (const uint8_t *)key, (uint32_t)strlen(key));
        if (teffi_shard_find_activation_without_lock(grains, &ident, &certain))
            return key;
    }
}

/* ---- the table ---- */

static void turns_that_do_not_end_cost_the_lease(void **state)
{
    (void)state;
    const char *key = make_grain_there();
    lab_number *out;
    stick_workers();
    beat_often(3);
    assert_int_equal(lost, 0);
    beat_often(3);
    assert_int_equal(lost, 1);
    assert_non_null(strstr(why_lost, "stuck"));
    assert_true(teffi_lease_is_over(&l->silos[STUCK]->node.home.lease));
    assert_true(teffi_stuck_was_found(l->silos[STUCK]->node.membership));
    for (int i = 0; i < 40 && teff_silo_members(l->silos[WELL]) == SILOS; i++) {
        uint64_t before = read_heartbeat(WELL);
        move_clock(WELL, BEAT_MS);
        lab_until(read_heartbeat(WELL) != before || teff_silo_members(l->silos[WELL]) != SILOS);
    }
    lab_ok(l->ctx[WELL], lab_account_add(l->ctx[WELL], key, lab_number(.n = 1), &out));
    assert_int_equal(out->n, 2);
}

/* The probe waits behind turns that each take less than the limit, and all together more. */
static void long_turns_keep_the_lease(void **state)
{
    (void)state;
    stick_workers();
    for (int i = 0; i < 4; i++) {
        int before = begun;
        beat_often(2);
        let_turns_end(1);
        lab_until(begun > before);
        beat_after(BEAT_MS);
    }
    assert_int_equal(lost, 0);
}

static void turns_in_blocking_regions_keep_the_lease(void **state)
{
    (void)state;
    declares = true;
    start_turns(CALLS);
    lab_until(begun == CALLS);
    beat_often(8);
    assert_int_equal(lost, 0);
}

static void *stop_silo(void *arg)
{
    (void)arg;
    stop_err = teff_silo_stop(l->silos[STUCK], stop_timeout_ms);
    return NULL;
}

static void begin_stop(pthread_t *stopper, uint32_t timeout_ms)
{
    l->silos[STUCK]->opt.stop_ms = 7;
    stop_timeout_ms = timeout_ms;
    assert_int_equal(pthread_create(stopper, NULL, stop_silo, NULL), 0);
    lab_until(lost);
    assert_non_null(strstr(why_lost, "its stop has waited for 7 ms: "));
}

static void end_stop(pthread_t stopper, teff_err err)
{
    assert_int_equal(pthread_join(stopper, NULL), 0);
    assert_int_equal(stop_err, err);
    assert_int_equal(lost, 1);
    assert_null(l->silos[STUCK]->watch);
}

/* An embedded silo's program is told once, and the stop ends when the turns do. The lease has
 * ended: the turns' grains may be active elsewhere. */
static void a_stop_that_waits_for_turns_is_told(void **state)
{
    (void)state;
    pthread_t stopper;
    start_turns(INSIDE);
    lab_until(begun >= WORKERS);
    begin_stop(&stopper, 1);
    assert_true(teffi_lease_is_over(&l->silos[STUCK]->node.home.lease));
    assert_int_equal(goodbyes, 0);
    assert_non_null(strstr(why_lost, "turns do not end, such as grain lab.Rare stay-"));
    assert_non_null(strstr(why_lost, ", in lab.Rare.Where"));
    let_turns_end(INSIDE);
    end_stop(stopper, TEFF_E_TIMEOUT);
    n_calls = 0; /* none can be awaited after the stop */
}

static void wait_for_token(teff_ctx *ctx, void *arg)
{
    (void)arg;
    bool ends = false;
    while (!ends) {
        teffi_ctx_sleep(ctx, 1);
        pthread_mutex_lock(&lock);
        ends = tokens > 0;
        pthread_mutex_unlock(&lock);
    }
}

/* The silo has left in time, so it says goodbye; stop_ms begins afterwards. */
static void a_stop_that_waits_after_a_goodbye_is_told(void **state)
{
    (void)state;
    pthread_t stopper;
    teffi_home *home = &l->silos[STUCK]->node.home;
    assert_int_equal(teffi_task_start(home, wait_for_token, NULL, "wait", false), TEFF_OK);
    begin_stop(&stopper, 60000);
    assert_false(teffi_lease_is_over(&home->lease));
    assert_int_equal(goodbyes, 1);
    assert_int_equal(watched_goodbyes, 0);
    let_turns_end(1);
    end_stop(stopper, TEFF_OK);
}

/* As in a simulator, where no other thread may read the clock. */
static void a_stop_is_not_watched_without_the_op(void **state)
{
    (void)state;
    teff_silo *silo = calloc(1, sizeof *silo);
    const teffi_exec_ops *real = l->silos[STUCK]->node.home.exec->ops;
    teffi_exec_ops none = *real;
    teffi_exec exec = {.ops = &none};
    assert_non_null(silo);
    silo->platform = l->silos[STUCK]->platform;
    silo->node.home.exec = &exec;
    none.turns = NULL;
    teffi_stop_watch_begin(silo);
    assert_null(silo->watch);
    exec.ops = real;
    teffi_stop_watch_begin(silo);
    assert_non_null(silo->watch);
    teffi_stop_watch_end(silo);
    assert_null(silo->watch);
    free(silo);
}

static void a_stop_without_turns_is_not_told(void **state)
{
    (void)state;
    l->silos[STUCK]->opt.stop_ms = 3600 * 1000;
    assert_int_equal(teff_silo_stop(l->silos[STUCK], 60000), TEFF_OK);
    assert_int_equal(lost, 0);
    assert_null(l->silos[STUCK]->watch);
}

/* The monitor gives its processor to another worker. */
static void one_turn_that_does_not_end_keeps_the_lease(void **state)
{
    (void)state;
    start_turns(1);
    lab_until(begun == 1);
    beat_often(8);
    assert_int_equal(lost, 0);
}

static void an_idle_silo_keeps_the_lease(void **state)
{
    (void)state;
    beat_often(8);
    assert_int_equal(lost, 0);
}

/* Workers that were stuck for less than the limit, and then went on, begin anew. */
static void workers_that_go_on_keep_the_lease(void **state)
{
    (void)state;
    stick_workers();
    beat_often(3);
    let_turns_end(CALLS);
    lab_until(begun == CALLS);
    for (int i = 0; i < n_calls; i++)
        lab_ok(l->ctx[STUCK], teff_await_all(l->ctx[STUCK], &calls[i], 1));
    n_calls = 0;
    begun = 0;
    beat_often(2);
    stick_workers();
    beat_often(2);
    assert_int_equal(lost, 0);
}

/* The process was paused for most of a lease: no worker had any time. */
static void a_pause_counts_for_half_a_lease(void **state)
{
    (void)state;
    stick_workers();
    beat_after(BEAT_MS);
    beat_after(LEASE_MS * 9 / 10);
    assert_int_equal(lost, 0);
    beat_often(3);
    assert_int_equal(lost, 1);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(turns_that_do_not_end_cost_the_lease, setup_two, teardown),
        CASE(long_turns_keep_the_lease),
        CASE(turns_in_blocking_regions_keep_the_lease),
        CASE(one_turn_that_does_not_end_keeps_the_lease),
        CASE(an_idle_silo_keeps_the_lease),
        CASE(workers_that_go_on_keep_the_lease),
        CASE(a_pause_counts_for_half_a_lease),
        CASE(a_stop_that_waits_for_turns_is_told),
        cmocka_unit_test_setup_teardown(a_stop_that_waits_after_a_goodbye_is_told, setup_two,
                                        teardown),
        CASE(a_stop_is_not_watched_without_the_op),
        CASE(a_stop_without_turns_is_not_told),
    };
#undef CASE
    return cmocka_run_group_tests_name("cluster/stuck", tests, NULL, NULL);
}
