/* test_schedule.c - which reminder is due when, and which task starts: with clocks, timers and
 * tasks of the test. */
#include "reminder/schedule.h"
#include "call/task.h"
#include "lab.h"

#define MINUTE_NS UINT64_C(60000000000)
#define HOUR_MS UINT64_C(3600000)

static struct {
    uint64_t mono_ns, wall_ms;
    LIST_HEAD(, teffi_timer) timers;
    int ticks, loads; /* tasks that were started */
    bool lacks_memory, scans_fail;
    unsigned scans;
    teffi_bytes pages[8]; /* the key of the rows that a scan finds; NULL: none */
    uint8_t scanned[8][TEFFI_REMINDER_KEY_MAX]; /* where each scan began */
    size_t scanned_len[8];
    teffi_platform platform;
    teffi_exec exec;
    teffi_exec_ops ops;
    teffi_node node;
    teffi_grains grains;
    teffi_shards shards;
    teffi_reminders all;
} t;

static uint64_t mono(void *arg)
{
    return t.mono_ns;
}

static uint64_t wall(void *arg)
{
    return t.wall_ms * 1000000;
}

static uint64_t draw(void *arg)
{
    return 0;
}

static void set_timer(teffi_exec *exec, teffi_timer *timer, uint64_t due_ns)
{
    timer->due_ns = due_ns;
    timer->where = 1;
    LIST_INSERT_HEAD(&t.timers, timer, link);
}

static bool cancel_timer(teffi_exec *exec, teffi_timer *timer)
{
    if (!timer->where)
        return false;
    timer->where = 0;
    LIST_REMOVE(timer, link);
    return true;
}

/* Lets the time pass, and the timers fire. */
static void pass(uint64_t ns)
{
    t.mono_ns += ns;
    t.wall_ms += ns / 1000000;
    teffi_timer *timer = LIST_FIRST(&t.timers);
    while (timer) {
        bool fires = timer->due_ns <= t.mono_ns;
        if (fires) {
            (void)cancel_timer(&t.exec, timer);
            timer->fire(timer);
        }
        timer = fires ? LIST_FIRST(&t.timers) : LIST_NEXT(timer, link);
    }
}

static void run_ticks(teff_ctx *ctx, void *arg)
{
}

static void run_load(teff_ctx *ctx, void *arg)
{
}

/* The linker sends the library's calls here. */
teff_err __wrap_teffi_task_start(teffi_home *home, void (*fn)(teff_ctx *ctx, void *arg), void *arg,
                                 const char *label, bool system);

teff_err __wrap_teffi_task_start(teffi_home *home, void (*fn)(teff_ctx *ctx, void *arg), void *arg,
                                 const char *label, bool system)
{
    if (t.lacks_memory)
        return TEFF_E_NOMEM;
    t.ticks += fn == run_ticks;
    t.loads += fn == run_load;
    return TEFF_OK;
}

/* ... and those to the store here: each scan fails while t.scans_fail is set. */
teff_err __wrap_teffi_ctx_run_store_op(teff_ctx *ctx, teffi_store_op *op);

teff_err __wrap_teffi_ctx_run_store_op(teff_ctx *ctx, teffi_store_op *op)
{
    static teffi_row rows[1024];
    op->n_found = 0;
    if (t.scans_fail)
        return teff_fail(ctx, TEFF_E_IO, "as the test wants it");
    assert_in_range(t.scans, 0, 7);
    assert_in_range(op->rows[0].key.len, 1, sizeof t.scanned[0]);
    t.scanned_len[t.scans] = op->rows[0].key.len;
    memcpy(t.scanned[t.scans], op->rows[0].key.data, op->rows[0].key.len);
    if (t.pages[t.scans].data) { /* a full page; all its rows have the same key, and are damaged */
        assert_in_range(op->limit, 1, 1024);
        for (op->n_found = 0; op->n_found < op->limit; op->n_found++)
            rows[op->n_found] = (teffi_row){.key = t.pages[t.scans]};
        op->rows = rows;
    }
    t.scans++;
    return TEFF_OK;
}

static int setup(void **state)
{
    memset(&t, 0, sizeof t);
    t.mono_ns = MINUTE_NS;
    t.wall_ms = 1000 * HOUR_MS;
    t.platform.mono_ns = mono;
    t.platform.wall_ns = wall;
    t.platform.random = draw;
    t.ops.timer_set = set_timer;
    t.ops.timer_cancel = cancel_timer;
    t.exec.ops = &t.ops;
    t.node.platform = &t.platform;
    t.node.home.exec = &t.exec;
    t.grains.node = &t.node;
    t.grains.shards = &t.shards;
    t.grains.reminders = &t.all;
    for (unsigned i = 0; i < TEFFI_PARTITIONS; i++) {
        pthread_mutex_init(&t.shards.at[i].lock, NULL);
        t.shards.at[i].phase = TEFFI_SERVING;
    }
    return teffi_reminders_init(&t.all, &t.grains, run_ticks, run_load) ? 0 : -1;
}

static int teardown(void **state)
{
    teffi_reminders_stop(&t.all);
    teffi_reminders_fini(&t.all);
    return 0;
}

static void note(int no, uint64_t etag, const teffi_reminder_value *value)
{
    assert_true(
        teffi_reminders_note(&t.all, (teffi_bytes){&no, sizeof no}, 7, "a.Type", etag, value));
}

/* out: the number of a reminder that a task has taken; -1: none. */
static int take(teffi_reminder **r)
{
    uint64_t etag;
    teffi_reminder_value value;
    bool rereads;
    int no;
    *r = teffi_reminders_take_due(&t.all, &etag, &value, &rereads);
    if (!*r)
        return -1;
    memcpy(&no, (*r)->key, sizeof no);
    return no;
}

static void end(teffi_reminder *r, teffi_tick_end how)
{
    teffi_reminder_value value = r->value;
    teffi_reminders_end_tick(r, how, r->etag, r->etag, &value);
}

/* ---- ticks ---- */

static void a_task_that_has_a_tick_does_not_count_for_the_next(void **state)
{
    teffi_reminder *a, *b;
    note(1, 1, &(teffi_reminder_value){.next_ms = t.wall_ms});
    note(2, 1, &(teffi_reminder_value){.next_ms = t.wall_ms + 1000});
    pass(0);
    assert_int_equal(t.ticks, 1);
    assert_int_equal(take(&a), 1);
    pass(1000000000);
    assert_int_equal(t.ticks, 2);
    assert_int_equal(take(&b), 2);
    end(a, TEFFI_TICK_GONE);
    end(b, TEFFI_TICK_GONE);
    assert_int_equal(take(&a), -1);
}

static void tries_again_leave_room_for_others(void **state)
{
    static teffi_reminder *r[TEFFI_REMINDER_TICKS_MAX];
    teffi_reminder *other;
    int n = TEFFI_REMINDER_TICKS_MAX;
    for (int i = 0; i < n; i++)
        note(i, 1, &(teffi_reminder_value){.next_ms = t.wall_ms});
    pass(0);
    assert_int_equal(t.ticks, n);
    for (int i = 0; i < n; i++)
        assert_true(take(&r[i]) >= 0);
    for (int i = 0; i < n; i++)
        end(r[i], TEFFI_TICK_FAILED);
    for (int i = 0; i < n; i++)
        assert_int_equal(take(&other), -1); /* all tasks end */
    t.ticks = 0;
    pass(1000000000);
    assert_int_equal(t.ticks, n / 2);
    for (int i = 0; i < n / 2; i++)
        assert_true(take(&r[i]) >= 0);
    note(1000, 1, &(teffi_reminder_value){.next_ms = t.wall_ms});
    pass(0);
    assert_int_equal(t.ticks, n / 2 + 1);
    assert_int_equal(take(&other), 1000);
    end(r[0], TEFFI_TICK_KEPT); /* its task takes one of those that wait */
    assert_true(take(&r[0]) >= 0);
    end(other, TEFFI_TICK_GONE);
    assert_int_equal(take(&other), -1);
    for (int i = 0; i < n / 2; i++)
        end(r[i], TEFFI_TICK_GONE);
}

static void after_a_lack_of_memory_as_many_tasks_start_as_are_missing(void **state)
{
    t.lacks_memory = true;
    for (int i = 0; i < 5; i++)
        note(i, 1, &(teffi_reminder_value){.next_ms = t.wall_ms});
    pass(0);
    assert_int_equal(t.ticks, 0);
    t.lacks_memory = false;
    pass(1000000000);
    assert_int_equal(t.ticks, 5);
}

/* ---- the wall clock ---- */

static void after_the_clock_was_set_back_it_waits_for_two_periods(void **state)
{
    teffi_reminder *r;
    const teffi_reminder_value value = {
        .next_ms = t.wall_ms + HOUR_MS, .period_ms = HOUR_MS, .ticked = true};
    note(1, 1, &value);
    t.wall_ms -= 24 * HOUR_MS;
    for (int minutes = 0; minutes < 65; minutes += 5) {
        note(1, 1, &value); /* the row is loaded again */
        pass(5 * MINUTE_NS);
    }
    assert_int_equal(t.ticks, 1);
    assert_int_equal(take(&r), 1);
    end(r, TEFFI_TICK_GONE);
}

static void when_the_clock_is_set_it_follows(void **state)
{
    teffi_reminder *r;
    const teffi_reminder_value value = {.next_ms = t.wall_ms + HOUR_MS, .period_ms = HOUR_MS};
    note(1, 1, &value);
    t.wall_ms -= HOUR_MS / 2; /* the tick is an hour and a half away */
    note(1, 1, &value);
    pass(61 * MINUTE_NS);
    assert_int_equal(t.ticks, 0);
    t.wall_ms += HOUR_MS;
    note(1, 1, &value);
    pass(0);
    assert_int_equal(take(&r), 1);
    end(r, TEFFI_TICK_GONE);
}

static void a_time_far_away_is_not_due(void **state)
{
    note(1, 1, &(teffi_reminder_value){.next_ms = TEFFI_REMINDER_MS_MAX - 1});
    pass(365 * 24 * 60 * MINUTE_NS);
    assert_int_equal(t.ticks, 0);
}

/* ---- loads ---- */

/* Runs the load, if one was started. out: was the partition read? */
static bool load(unsigned partition, unsigned loaded)
{
    uint8_t set[TEFFI_PARTITION_SET_BYTES];
    bool any = false;
    while (t.all.loads && teffi_reminders_begin_load(&t.all, set)) {
        any |= teffi_set_has_partition(set, partition);
        if (!teffi_reminders_end_load(&t.all, loaded))
            break;
    }
    return any;
}

static void partitions_that_come_and_go_do_not_put_off_the_reload(void **state)
{
    teffi_reminders_apply_phases(&t.grains);
    assert_true(load(0, TEFFI_PARTITIONS));
    bool read = false;
    for (int minute = 0; minute < 6; minute++) {
        t.shards.at[9].phase = TEFFI_NOT_MINE;
        teffi_reminders_apply_phases(&t.grains);
        t.shards.at[9].phase = TEFFI_SERVING;
        teffi_reminders_apply_phases(&t.grains);
        read |= load(0, TEFFI_PARTITIONS);
        pass(MINUTE_NS);
        read |= load(0, TEFFI_PARTITIONS);
    }
    assert_true(read);
}

static void a_load_that_fails_begins_again_ever_later(void **state)
{
    teffi_reminders_apply_phases(&t.grains);
    assert_true(load(3, 4));
    for (int s = 0; s < 62; s++) {
        pass(1000000000);
        assert_false(load(3, 4)); /* it was read to its end */
    }
    assert_int_equal(t.loads, 1 + 5); /* after 1, 2, 4, 8, 16 s; in between: 1, 3, 7, 15, 31 */
    pass(MINUTE_NS);
    assert_true(load(4, TEFFI_PARTITIONS));
}

/* What was not read is wanted. */
static void a_scan_that_fails_is_made_again(void **state)
{
    teff_ctx ctx = {.node = &t.node};
    t.exec.platform = &t.platform;
    strcpy(t.node.cluster, "tested");
    t.scans_fail = true;
    teffi_reminders_apply_phases(&t.grains);
    assert_int_equal(t.loads, 1);
    teffi_reminders_load(&ctx, &t.all);
    assert_int_equal(t.all.load[0], TEFFI_LOAD_WANTED);
    assert_int_equal(t.all.load[TEFFI_PARTITIONS - 1], TEFFI_LOAD_WANTED);
    pass(MINUTE_NS / 60);
    assert_int_equal(t.loads, 2);
    t.scans_fail = false;
    teffi_reminders_load(&ctx, &t.all);
    assert_int_equal(t.all.load[0], TEFFI_LOAD_LOADED);
    assert_int_equal(t.all.load[TEFFI_PARTITIONS - 1], TEFFI_LOAD_LOADED);
}

static void check_scan(unsigned scan, const uint8_t *key, size_t len)
{
    assert_int_equal(t.scanned_len[scan], len);
    assert_memory_equal(t.scanned[scan], key, len);
}

/* A page goes on behind its last row, or at the next partition of this silo. */
static void a_load_skips_the_partitions_of_others(void **state)
{
    teff_ctx ctx = {.node = &t.node};
    uint8_t own[TEFFI_REMINDER_KEY_MAX], other[sizeof own], next[sizeof own];
    t.exec.platform = &t.platform;
    strcpy(t.node.cluster, "tested");
    for (unsigned i = 0; i < TEFFI_PARTITIONS; i++)
        t.shards.at[i].phase = i == 3 || i == 9 ? TEFFI_SERVING : TEFFI_NOT_MINE;
    size_t own_len = teffi_reminder_make_partition_key("tested", 3, own);
    size_t other_len = teffi_reminder_make_partition_key("tested", 5, other);
    t.pages[0] = (teffi_bytes){own, own_len};
    t.pages[1] = (teffi_bytes){other, other_len};
    teffi_reminders_apply_phases(&t.grains);
    teffi_reminders_load(&ctx, &t.all);
    assert_int_equal(t.scans, 3);
    check_scan(0, own, own_len);
    check_scan(1, next, teffi_reminder_make_key_after((teffi_bytes){own, own_len}, next));
    check_scan(2, next, teffi_reminder_make_partition_key("tested", 9, next));
    assert_int_equal(t.all.load[3], TEFFI_LOAD_LOADED);
    assert_int_equal(t.all.load[5], TEFFI_LOAD_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_task_that_has_a_tick_does_not_count_for_the_next, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(tries_again_leave_room_for_others, setup, teardown),
        cmocka_unit_test_setup_teardown(after_a_lack_of_memory_as_many_tasks_start_as_are_missing,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(after_the_clock_was_set_back_it_waits_for_two_periods,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(when_the_clock_is_set_it_follows, setup, teardown),
        cmocka_unit_test_setup_teardown(a_time_far_away_is_not_due, setup, teardown),
        cmocka_unit_test_setup_teardown(partitions_that_come_and_go_do_not_put_off_the_reload,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_load_that_fails_begins_again_ever_later, setup, teardown),
        cmocka_unit_test_setup_teardown(a_scan_that_fails_is_made_again, setup, teardown),
        cmocka_unit_test_setup_teardown(a_load_skips_the_partitions_of_others, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
