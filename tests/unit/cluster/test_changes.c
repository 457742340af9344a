/* test_changes.c - who waits for a change: woken by it at once, else by a pause that grows; when a
 * view counts as adopted. The timers and the net are the test's. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include "test.h"
#include "cluster/membership.h"
#include "call/ctx.h"

static teffi_platform platform;
static teffi_exec exec; /* its timers never fire by themselves */
static teffi_node node;
static teffi_timer *_Atomic timer;
static _Atomic uint64_t pause_ns;
static bool fires; /* the timer, just now: it cannot be cancelled any more */
static teffi_membership membership = {.node = &node};

/* The clock stands. */
static uint64_t some_time(void *arg)
{
    return 1000000000u;
}

static void timer_set(teffi_exec *e, teffi_timer *set, uint64_t due_ns)
{
    pause_ns = due_ns - teffi_now(node.platform);
    timer = set;
}

static bool timer_cancel(teffi_exec *e, teffi_timer *set)
{
    assert_ptr_equal(set, timer);
    return !fires;
}

static const teffi_exec_ops ops = {.timer_set = timer_set, .timer_cancel = timer_cancel};

static int setup(void **state)
{
    teffi_platform_init_real(&platform, TEFF_LOG_WARN);
    platform.mono_ns = some_time;
    exec.ops = &ops;
    node.platform = &platform;
    node.home.node = &node;
    node.membership = &membership;
    node.home.exec = &exec;
    fires = false;
    pthread_mutex_init(&node.lock, NULL);
    pthread_mutex_init(&membership.follow.lock, NULL);
    pthread_mutex_init(&membership.follow.changes.lock, NULL);
    return 0;
}

static int teardown(void **state)
{
    pthread_mutex_destroy(&membership.follow.changes.lock);
    pthread_mutex_destroy(&membership.follow.lock);
    pthread_mutex_destroy(&node.lock);
    return 0;
}

typedef struct waiting {
    pthread_t thread;
    uint64_t seen;
    unsigned tries;
    _Atomic bool over;
} waiting;

static void *wait_once(void *arg)
{
    waiting *w = arg;
    teff_ctx *ctx = teffi_ctx_new(&node.home);
    teffi_membership_await_change(ctx, w->seen, w->tries);
    w->over = true;
    teff_ctx_free(ctx);
    return NULL;
}

static void begin(waiting *w, unsigned tries)
{
    *w = (waiting){.seen = membership.follow.changes.count, .tries = tries};
    timer = NULL;
    assert_int_equal(pthread_create(&w->thread, NULL, wait_once, w), 0);
    while (!timer)
        sched_yield();
}

static void a_change_ends_the_wait(void **state)
{
    waiting w;
    begin(&w, 9);
    assert_false(w.over);
    teffi_membership_signal_change(&membership);
    pthread_join(w.thread, NULL);
    assert_null(LIST_FIRST(&membership.follow.changes.waiters));
}

static void what_changed_before_the_wait_is_not_waited_for(void **state)
{
    waiting w = {.seen = membership.follow.changes.count};
    timer = NULL;
    teffi_membership_signal_change(&membership);
    (void)wait_once(&w);
    assert_null(timer);
}

/* Its timer has begun to fire: the change leaves it to that. */
static void timer_and_change_end_it_once(void **state)
{
    waiting w;
    begin(&w, 0);
    fires = true;
    teffi_membership_signal_change(&membership);
    assert_non_null(LIST_FIRST(&membership.follow.changes.waiters));
    assert_false(w.over);
    teffi_timer *fired = timer;
    fired->fire(fired);
    pthread_join(w.thread, NULL);
    assert_null(LIST_FIRST(&membership.follow.changes.waiters));
}

static void pauses_grow_to_a_second(void **state)
{
    waiting w;
    for (unsigned tries = 0; tries < 20; tries++) {
        uint64_t full = (uint64_t)2000000 << (tries < 9 ? tries : 9);
        begin(&w, tries);
        assert_in_range(pause_ns, full / 2, full);
        teffi_membership_signal_change(&membership);
        pthread_join(w.thread, NULL);
    }
}

/* ---- views ---- */

static uint64_t version_at_view, version_at_left;
static teffi_node_id left;

static teff_err peer_add(teffi_net *net, teffi_node_id id, const char *address)
{
    return TEFF_OK;
}

static void peer_left(teffi_net *net, teffi_node_id id)
{
    version_at_left = teffi_membership_version(&node);
    left = id;
}

static void on_view(teffi_node *n, const teffi_view *old, const teffi_view *now)
{
    version_at_view = teffi_membership_version(n);
}

static void adopt(uint64_t version, teffi_member_row *list, size_t n)
{
    teff_ctx *ctx = teffi_ctx_new(&node.home);
    assert_int_equal(
        teffi_membership_adopt_rows(ctx, &(teffi_rows){.version = version, .rows = list, .n = n}),
        TEFF_OK);
    teff_ctx_free(ctx);
}

/* A silo that leaves asks the others for its view's version, and takes the response as: they send
 * nothing more. */
static void a_view_is_adopted_when_nothing_is_sent_to_who_left(void **state)
{
    static const teffi_net_ops net_ops = {.peer_add = peer_add, .peer_left = peer_left};
    teffi_net net = {.ops = &net_ops};
    teffi_member_row rows[] = {
        {.member = {.node = {7, 1}, .status = TEFFI_ACTIVE, .address = "h:7"}},
        {.member = {.node = {8, 1}, .status = TEFFI_LEAVING, .address = "h:8"}}};
    node.home.net = &net;
    node.upcalls.view = on_view;
    adopt(4, rows, 2);
    assert_int_equal(version_at_view, 0);
    assert_int_equal(teffi_membership_version(&node), 4);
    uint64_t seen = membership.follow.changes.count;
    adopt(5, rows, 1);
    assert_true(membership.follow.changes.count > seen);
    assert_int_equal(left.silo, 8);
    assert_int_equal(version_at_view, 4);
    assert_int_equal(version_at_left, 4);
    assert_int_equal(teffi_membership_version(&node), 5);
    adopt(4, rows, 2); /* an older one changes nothing */
    assert_int_equal(teffi_membership_version(&node), 5);
    teffi_view_unref(node.view);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_change_ends_the_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(what_changed_before_the_wait_is_not_waited_for, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(timer_and_change_end_it_once, setup, teardown),
        cmocka_unit_test_setup_teardown(pauses_grow_to_a_second, setup, teardown),
        cmocka_unit_test_setup_teardown(a_view_is_adopted_when_nothing_is_sent_to_who_left, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
