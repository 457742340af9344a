/* test_deadline.c - deadlines of pending calls, on a clock and a timer that are moved by hand:
 * never early, at most 4 ms late, no timer for nothing, and no sweep that goes on for long. */
#include "test.h"

#include <stdlib.h>
#include <string.h>
#include "call/ctx.h"
#include "call/call.h"
#include "call/calls.h"
#include "call/wait.h"

enum { MS = 1000000, LATE_MAX_MS = 4, MANY = 100000 };

static bool is_pending(const teffi_call *call)
{
    return teffi_call_is_pending(call->home, call->slot, call->generation);
}

static teffi_home home;
static teff_ctx *ctx;

/* ---- the world: a clock, and a wheel for the one timer that there is ---- */

static uint64_t now_ns, look_ns; /* each look at the clock takes so long */
static void (*on_look)(void);    /* when looks_left have been taken; 0: never */
static unsigned looks_left;
static teffi_timer *timer; /* NULL: none is set */
static unsigned sets, cancels, fires;
static uint64_t longest_fire_ns;

static uint64_t mono_ns(void *arg)
{
    now_ns += look_ns;
    if (looks_left && --looks_left == 0)
        on_look();
    return now_ns;
}

static void timer_set(teffi_exec *exec, teffi_timer *t, uint64_t due_ns)
{
    assert_null(timer);
    timer = t;
    t->due_ns = due_ns;
    sets++;
}

static bool timer_cancel(teffi_exec *exec, teffi_timer *t)
{
    bool was = timer == t;
    timer = NULL;
    cancels++;
    return was;
}

static uint64_t tick_of(uint64_t ns)
{
    return (ns + MS - 1) / MS;
}

/* As the wheel does: what is due at the tick where it stands. */
static void fire_due(uint64_t tick)
{
    while (timer && tick_of(timer->due_ns) <= tick) {
        teffi_timer *t = timer;
        uint64_t from = now_ns;
        timer = NULL;
        fires++;
        t->fire(t);
        if (now_ns - from > longest_fire_ns)
            longest_fire_ns = now_ns - from;
    }
}

static void pass(uint64_t ms)
{
    uint64_t until = now_ns + ms * MS;
    while (now_ns < until) {
        uint64_t tick = now_ns / MS + 1;
        now_ns = tick * MS;
        fire_due(tick);
    }
}

static int setup(void **state)
{
    static const teffi_exec_ops ops = {.timer_set = timer_set, .timer_cancel = timer_cancel};
    static teffi_platform platform = {.mono_ns = mono_ns};
    static teffi_exec exec = {.ops = &ops, .platform = &platform};
    now_ns = (uint64_t)1000 * MS;
    look_ns = longest_fire_ns = 0;
    sets = cancels = fires = 0;
    looks_left = 0;
    timer = NULL;
    memset(&home, 0, sizeof home);
    home.exec = &exec;
    teffi_calls_init(&home);
    ctx = teffi_ctx_new(&home);
    return ctx == NULL;
}

static int teardown(void **state)
{
    teff_ctx_free(ctx);
    teffi_calls_fini(&home);
    return 0;
}

/* ---- calls ---- */

static teffi_call *call_until(uint64_t deadline_ns)
{
    teffi_call *call = teffi_ctx_call_new(ctx, deadline_ns);
    assert_non_null(call);
    return call;
}

static teffi_call *call_for(uint64_t us)
{
    return call_until(now_ns + us * 1000);
}

static void respond(const teffi_call *call)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_RESPONSE);
    assert_non_null(msg);
    msg->call.slot = call->slot;
    msg->call.generation = call->generation;
    assert_null(teffi_call_end_by_response(&home, msg));
}

static bool has_ended(const teffi_call *call)
{
    return teffi_wait_is_done(&call->wait);
}

static bool is_late(const teffi_call *call)
{
    return has_ended(call) && call->err == TEFF_E_TIMEOUT;
}

static uint64_t deadline_of(const teffi_call *call)
{
    return atomic_load(&call->deadline_ns);
}

/* Of all: which have ended must be as the clock says. out: how many have. */
static int check(teffi_call *const *calls, int n)
{
    int ended = 0;
    for (int i = 0; i < n; i++) {
        ended += is_late(calls[i]);
        if (is_late(calls[i]) && now_ns < deadline_of(calls[i]))
            fail_msg("call %d ended before its deadline", i);
        if (!is_late(calls[i]) && now_ns >= deadline_of(calls[i]) + LATE_MAX_MS * MS)
            fail_msg("call %d has not ended 4 ms after its deadline", i);
    }
    return ended;
}

static void each_ends_at_its_deadline(void **state)
{
    enum { N = 2000, LAST_MS = 3000 };
    static teffi_call *calls[N];
    for (int i = 0; i < N; i++)
        calls[i] = call_for((uint64_t)(i * 7919 % (LAST_MS * 1000)));
    for (int ms = 0; ms < LAST_MS + LATE_MAX_MS; ms++) {
        pass(1);
        (void)check(calls, N);
    }
    assert_int_equal(check(calls, N), N);
    assert_null(timer);
    assert_true(fires <= LAST_MS / TEFFI_CALL_GAP_MS + 2);
}

static void responses_leave_the_timer_alone_and_it_ends(void **state)
{
    for (int i = 0; i < MANY; i++) {
        teffi_call *call = call_for(30000000);
        respond(call);
        teff_ctx_reset(ctx);
        now_ns += 10000;
    }
    assert_int_equal(sets, 1); /* a second of calls, and a timer in 29 */
    assert_int_equal(cancels, 0);
    pass(60000);
    assert_int_equal(fires, 1);
    assert_null(timer);
}

/* 100,000 calls in 10 s, of which one in 4,000 is not answered: it alone costs a sweep. */
static void calls_go_on_while_deadlines_come(void **state)
{
    teffi_call *kept[MANY / 4000];
    teff_ctx *passing = teffi_ctx_new(&home);
    int n = 0, ended = 0;
    for (int i = 0; i < MANY; i++) {
        if (i % 4000 == 0)
            kept[n++] = call_for(1000000);
        respond(teffi_ctx_call_new(passing, now_ns + (uint64_t)1000 * MS));
        teff_ctx_reset(passing);
        if (i % 10 == 9) {
            pass(1);
            ended = check(kept, n);
        }
    }
    assert_int_equal(ended, n - 2);
    pass(1000 + LATE_MAX_MS);
    assert_int_equal(check(kept, n), n);
    assert_true(fires <= (unsigned)n + 12);
    teff_ctx_free(passing);
}

static void a_shorter_one_comes_first(void **state)
{
    teffi_call *slow = call_for(60000000), *fast = call_for(100000), *faster = call_for(20000);
    assert_int_equal(sets, 3);
    assert_int_equal(cancels, 2);
    pass(20 + LATE_MAX_MS);
    assert_true(is_late(faster) && !has_ended(fast));
    pass(80 + LATE_MAX_MS);
    assert_true(is_late(fast) && !has_ended(slow));
    pass(60000);
    assert_true(is_late(slow));
    assert_int_equal(fires, 3);
}

static void one_that_has_none_never_ends_so(void **state)
{
    teffi_call *call = call_until(UINT64_MAX);
    assert_null(timer);
    teffi_call *other = call_for(1000);
    pass(86400000 / 1000);
    assert_true(is_late(other) && is_pending(call));
    assert_null(timer);
    respond(call);
    assert_true(has_ended(call) && !call->err);
}

static void one_that_is_late_when_it_comes_ends(void **state)
{
    teffi_call *call = call_until(1);
    pass(1);
    assert_true(is_late(call));
}

/* The worker stood still for ten seconds: they end in one sweep. */
static void a_timer_may_come_late(void **state)
{
    static teffi_call *calls[1000];
    for (int i = 0; i < 1000; i++)
        calls[i] = call_for((uint64_t)i * 1000);
    now_ns += (uint64_t)10000 * MS;
    fire_due(now_ns / MS);
    assert_int_equal(check(calls, 1000), 1000);
    assert_int_equal(fires, 1);
}

/* ---- many ---- */

static teffi_call **many(uint64_t step_us)
{
    teffi_call **calls = malloc(MANY * sizeof *calls);
    assert_non_null(calls);
    for (int i = 0; i < MANY; i++)
        calls[i] = call_for(50000 + (uint64_t)i % 1000 * step_us);
    return calls;
}

static void a_hundred_thousand_end_each_in_its_time(void **state)
{
    teffi_call **calls = many(1000);
    assert_int_equal(teffi_calls_count_pending(&home), MANY);
    for (int ms = 0; ms < 1050 + LATE_MAX_MS; ms++) {
        pass(1);
        if (ms % 50 == 0)
            (void)check(calls, MANY);
    }
    assert_int_equal(check(calls, MANY), MANY);
    assert_int_equal(teffi_calls_count_pending(&home), 0);
    assert_null(timer);
    free(calls);
}

/* Each look at the clock takes 20 us, as the block between two of them might. */
static void a_long_sweep_is_cut_in_slices(void **state)
{
    teffi_call **calls = many(0);
    look_ns = 20000;
    pass(50);
    assert_int_equal(fires, 1);
    unsigned at_first = 0;
    for (int i = 0; i < MANY; i++)
        at_first += is_late(calls[i]);
    assert_true(at_first > 0 && at_first < MANY);
    while (teffi_calls_count_pending(&home))
        pass(1);
    assert_true(fires >= 20);
    assert_true(longest_fire_ns <= MS);
    assert_true(now_ns < calls[0]->deadline_ns + (uint64_t)fires * 2 * MS);
    look_ns = 0;
    pass(10);
    assert_null(timer);
    free(calls);
}

/* ---- what comes in between ---- */

static teffi_call *came;

static void come(void)
{
    came = call_for(10000);
}

/* It takes an entry of the first of three blocks: before the sweep looks there (when the timer has
 * fired, when it is about to look), and when it has passed it. */
static void a_call_that_comes_in_a_sweep_is_watched(void **state)
{
    on_look = come;
    for (unsigned look = 1; look <= 3; look++) {
        teff_ctx *passing = teffi_ctx_new(&home);
        came = NULL;
        teffi_call *first = teffi_ctx_call_new(passing, now_ns + (uint64_t)50 * MS);
        assert_int_equal(first->slot, 0);
        for (int i = 0; i < 2 * TEFFI_SLAB_BLOCK; i++)
            (void)call_for(50000);
        respond(first);
        teff_ctx_free(passing);
        pass(49);
        looks_left = look;
        pass(1 + LATE_MAX_MS);
        assert_int_equal(looks_left, 0);
        assert_int_equal(came->slot, 0);
        assert_true(is_pending(came));
        pass(10);
        assert_true(is_late(came));
        assert_int_equal(teffi_calls_count_pending(&home), 0);
        pass(100);
        assert_null(timer);
        (void)teardown(NULL);
        assert_int_equal(setup(NULL), 0);
    }
}

/* The timer has left the wheel and not begun: it cannot be cancelled, and need not be. */
static void a_call_that_comes_as_the_timer_fires_is_watched(void **state)
{
    teffi_call *slow = call_for(20000);
    pass(19);
    teffi_timer *t = timer;
    timer = NULL;
    now_ns += MS;
    teffi_call *fast = call_until(now_ns - 5 * MS), *next = call_until(now_ns + 5 * MS);
    assert_null(timer);
    t->fire(t);
    assert_true(is_late(slow) && is_late(fast) && !has_ended(next));
    assert_non_null(timer);
    pass(5 + LATE_MAX_MS);
    assert_true(is_late(next));
}

static void a_late_response_finds_another_use(void **state)
{
    for (int i = 0; i < 1000; i++) {
        teffi_call *call = call_for(1000);
        teffi_call before = {.slot = call->slot, .generation = call->generation};
        pass(1 + LATE_MAX_MS);
        assert_true(is_late(call));
        teff_ctx_reset(ctx);
        teffi_call *again = call_for(1000000); /* the entry that was given back last */
        assert_int_equal(again->slot, before.slot);
        assert_int_not_equal(again->generation, before.generation);
        respond(&before);
        teffi_call_set_sent_to(&home, before.slot, before.generation, (teffi_node_id){7, 7});
        assert_null(teffi_calls_end_sent_to(&home, (teffi_node_id){7, 7}));
        assert_true(is_pending(again));
        respond(again);
        assert_true(has_ended(again) && !again->err);
        teff_ctx_reset(ctx);
    }
}

static void the_end_of_a_link_ends_what_that_node_was_asked(void **state)
{
    const teffi_node_id one = {11, 1}, two = {22, 1};
    teffi_call *asked = call_for(1000000), *other = call_for(1000000);
    teffi_call_set_sent_to(&home, asked->slot, asked->generation, one);
    teffi_call_set_sent_to(&home, other->slot, other->generation, two);
    assert_true(teffi_calls_any_sent_to(&home, one));
    assert_null(teffi_calls_end_sent_to(&home, one));
    assert_true(has_ended(asked) && asked->err == TEFF_E_UNREACHABLE);
    assert_true(is_pending(other));
    assert_false(teffi_calls_any_sent_to(&home, one));
    assert_true(teffi_calls_any_sent_to(&home, two));
    assert_null(teffi_calls_cancel_all(&home));
    assert_true(has_ended(other) && other->err == TEFF_E_CANCELLED);
}

int main(void)
{
#define LATE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        LATE(each_ends_at_its_deadline),
        LATE(responses_leave_the_timer_alone_and_it_ends),
        LATE(calls_go_on_while_deadlines_come),
        LATE(a_shorter_one_comes_first),
        LATE(one_that_has_none_never_ends_so),
        LATE(one_that_is_late_when_it_comes_ends),
        LATE(a_timer_may_come_late),
        LATE(a_hundred_thousand_end_each_in_its_time),
        LATE(a_long_sweep_is_cut_in_slices),
        LATE(a_call_that_comes_in_a_sweep_is_watched),
        LATE(a_call_that_comes_as_the_timer_fires_is_watched),
        LATE(a_late_response_finds_another_use),
        LATE(the_end_of_a_link_ends_what_that_node_was_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
