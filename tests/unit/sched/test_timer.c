/* test_timer.c - the wheel against a plain list: never early, never lost, cancel exact. */
#include "test.h"
#include <string.h>
#include "base/hash.h"
#include "base/queue.h"
#include "sched/queue/timer.h"

#define MS TEFFI_TICK_NS

typedef struct probe {
    teffi_timer timer;
    unsigned fired;
    uint64_t at_ns;    /* when it fired */
    uint64_t again_ns; /* fire sets it again, this much later */
} probe;

static teffi_wheel wheel;
static uint64_t now_ns;

static void on_fire(teffi_timer *timer)
{
    probe *p = teffi_container(timer, probe, timer);
    p->fired++;
    p->at_ns = now_ns;
    if (p->again_ns)
        (void)teffi_wheel_set_timer(&wheel, timer, now_ns + p->again_ns);
}

static int setup(void **state)
{
    now_ns = 123456789;
    teffi_wheel_init(&wheel, 1, now_ns);
    return 0;
}

static void set(probe *p, uint64_t in_ns)
{
    *p = (probe){.timer.fire = on_fire};
    (void)teffi_wheel_set_timer(&wheel, &p->timer, now_ns + in_ns);
}

static bool cancel(probe *p)
{
    return teffi_wheel_cancel_timer(&wheel, sizeof wheel, &p->timer);
}

static void test_never_early(void **state)
{
    probe p;
    set(&p, 5 * MS + 1);
    now_ns += 5 * MS;
    teffi_wheel_fire_due_timers(&wheel, now_ns);
    assert_int_equal(p.fired, 0);
    assert_int_equal(teffi_wheel_count(&wheel), 1);
    now_ns += 2 * MS;
    teffi_wheel_fire_due_timers(&wheel, now_ns);
    assert_int_equal(p.fired, 1);
    assert_true(teffi_wheel_next_due(&wheel) == UINT64_MAX);
    assert_int_equal(teffi_wheel_count(&wheel), 0);
}

static void test_due_now_or_before(void **state)
{
    probe p;
    set(&p, 0);
    p.timer.due_ns = 0;
    now_ns += MS;
    teffi_wheel_fire_due_timers(&wheel, now_ns);
    assert_int_equal(p.fired, 1);
}

static void test_cancel(void **state)
{
    probe p;
    set(&p, 3 * MS);
    assert_true(cancel(&p));
    assert_false(cancel(&p));
    now_ns += 10 * MS;
    teffi_wheel_fire_due_timers(&wheel, now_ns);
    assert_int_equal(p.fired, 0);
    set(&p, MS);
    now_ns += 2 * MS;
    teffi_wheel_fire_due_timers(&wheel, now_ns);
    assert_int_equal(p.fired, 1);
    assert_false(cancel(&p));
}

static void test_set_again_from_fire(void **state)
{
    probe p;
    set(&p, MS);
    p.again_ns = 10 * MS;
    for (unsigned i = 0; i < 100; i++) {
        now_ns += MS;
        teffi_wheel_fire_due_timers(&wheel, now_ns);
    }
    assert_in_range(p.fired, 9, 10);
    assert_true(cancel(&p));
}

static void test_set_in_the_past_from_fire_ends(void **state)
{
    probe p;
    set(&p, 0);
    now_ns += 2 * MS;
    p.again_ns = 0 - 5 * (uint64_t)MS; /* five ticks ago, always due */
    teffi_wheel_fire_due_timers(&wheel, now_ns);
    assert_in_range(p.fired, 1, 5000);
    assert_true(cancel(&p));
}

static void test_earliest_is_told(void **state)
{
    probe a, b, c;
    now_ns = 128 * (uint64_t)MS; /* the start of a turn of level 0: what it says is exact */
    teffi_wheel_init(&wheel, 1, now_ns);
    a = b = c = (probe){.timer.fire = on_fire};
    assert_true(teffi_wheel_set_timer(&wheel, &a.timer, now_ns + 50 * MS));
    assert_false(teffi_wheel_set_timer(&wheel, &b.timer, now_ns + 5000 * (uint64_t)MS));
    assert_true(teffi_wheel_set_timer(&wheel, &c.timer, now_ns + 5 * MS));
    assert_true(cancel(&a) && cancel(&b) && cancel(&c));
}

/* Whoever sleeps until next_due must get there in few steps, also for years. */
/* Near and far ones; each wheel counts what it has. */
static void test_moved_to_another_wheel(void **state)
{
    enum { N = 3 };
    static teffi_wheel wheels[2];
    static const uint64_t in_ns[N] = {MS, 100 * MS, 3600000 * (uint64_t)MS};
    probe p[N];
    for (uint32_t i = 0; i < 2; i++)
        teffi_wheel_init(&wheels[i], i + 1, now_ns);
    for (unsigned i = 0; i < N; i++) {
        p[i] = (probe){.timer.fire = on_fire};
        (void)teffi_wheel_set_timer(&wheels[0], &p[i].timer, now_ns + in_ns[i]);
    }
    uint64_t next_ns = teffi_wheel_next_due(&wheels[0]);
    assert_true(teffi_wheel_move_timers(&wheels[0], &wheels[1]));
    assert_int_equal(teffi_wheel_count(&wheels[0]), 0);
    assert_int_equal(teffi_wheel_count(&wheels[1]), N);
    assert_true(teffi_wheel_next_due(&wheels[0]) == UINT64_MAX);
    assert_true(teffi_wheel_next_due(&wheels[1]) == next_ns);
    assert_false(teffi_wheel_move_timers(&wheels[0], &wheels[1]));
    for (unsigned i = 0; i < N; i++)
        assert_true(teffi_wheel_cancel_timer(wheels, sizeof *wheels, &p[i].timer));
    assert_int_equal(teffi_wheel_count(&wheels[1]), 0);
}

static void test_far_future(void **state)
{
    static const uint64_t in_ms[] = {
        63, 64, 65, 4095, 4096, 4097, 262144, 20000000, 3000000000u, 80000000000u, 200000000000u};
    for (unsigned i = 0; i < sizeof in_ms / sizeof in_ms[0]; i++) {
        probe p;
        unsigned steps = 0;
        set(&p, in_ms[i] * MS);
        uint64_t due = now_ns + in_ms[i] * MS;
        while (!p.fired && steps++ < 20) {
            if (teffi_wheel_next_due(&wheel) > now_ns)
                now_ns = teffi_wheel_next_due(&wheel);
            teffi_wheel_fire_due_timers(&wheel, now_ns);
        }
        assert_int_equal(p.fired, 1);
        assert_true(p.at_ns >= due && p.at_ns < due + MS);
    }
}

enum { PROBES = 500 };

static bool is_set(const probe *p)
{
    return atomic_load(&p->timer.where) != 0;
}

static void one_step(probe *all, uint64_t draw)
{
    probe *p = &all[draw % PROBES];
    unsigned bits = (unsigned)(draw >> 32) % 36;
    if (is_set(p)) {
        assert_true(cancel(p));
        assert_false(is_set(p));
    } else {
        set(p, teffi_mix64(draw) & (((uint64_t)1 << bits) - 1));
    }
    now_ns += (draw >> 20) % (3 * MS);
    teffi_wheel_fire_due_timers(&wheel, now_ns);
}

/* After each advance: exactly those whose tick has come are not set any more. */
static void check_all(const probe *all)
{
    uint64_t tick = now_ns / MS;
    for (unsigned i = 0; i < PROBES; i++) {
        const probe *p = &all[i];
        uint64_t due_tick = (p->timer.due_ns + MS - 1) / MS;
        if (is_set(p))
            assert_true(due_tick > tick);
        else if (p->fired)
            assert_true(p->at_ns >= p->timer.due_ns && p->fired == 1);
    }
}

static void test_against_a_list(void **state)
{
    static probe all[PROBES];
    memset(all, 0, sizeof all);
    for (uint64_t i = 0; i < 20000; i++) {
        one_step(all, teffi_mix64(i));
        check_all(all);
    }
    now_ns += (uint64_t)1 << 37;
    teffi_wheel_fire_due_timers(&wheel, now_ns);
    assert_true(teffi_wheel_next_due(&wheel) == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_never_early, setup),
        cmocka_unit_test_setup(test_due_now_or_before, setup),
        cmocka_unit_test_setup(test_cancel, setup),
        cmocka_unit_test_setup(test_set_again_from_fire, setup),
        cmocka_unit_test_setup(test_set_in_the_past_from_fire_ends, setup),
        cmocka_unit_test_setup(test_earliest_is_told, setup),
        cmocka_unit_test_setup(test_moved_to_another_wheel, setup),
        cmocka_unit_test_setup(test_far_future, setup),
        cmocka_unit_test_setup(test_against_a_list, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
