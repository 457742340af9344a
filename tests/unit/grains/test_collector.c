/* test_collector.c - which activations the collector asks to end if there are too many, or memory
 * is short: the oldest ones that may end; when it looks, and where it stops. The clock is the
 * test's; the activations are only asked. */
#include "bare.h"

#include "hosting/install.h"
#include "os/memory_use.h"

enum { NOW_MS = 5000 }; /* of bare_now_ns */
enum { CHECK_MS = 20, SLICE_MS = 1, PAUSE_MS = 1000, ROUND_MS = 60000, MEMORY_MS = 1000 };

static teffi_node hosting;
static teff_grain_type *types[1];
static teffi_activation *made[20000];
static uint32_t n_made;

static uint64_t clock_ns;

static uint64_t read_clock(void *arg)
{
    return clock_ns;
}

static void start_hosting_with(uint32_t activations_max, uint32_t memory_percent)
{
    char text[TEFF_TEXT_MAX] = "";
    clock_ns = bare_now_ns;
    bare_platform.mono_ns = read_clock;
    hosting = (teffi_node){.platform = &bare_platform, .home.exec = &bare_exec};
    types[0] = teff_grain_type_new(&lab_turns_info, NULL, NULL);
    assert_int_equal(teffi_grains_install(&hosting, types, 1, text), TEFF_OK);
    hosting.grains->activations_max = activations_max;
    hosting.grains->memory_percent = memory_percent;
    teffi_grains_start(&hosting);
    n_made = 0;
}

static void start_hosting(uint32_t activations_max)
{
    start_hosting_with(activations_max, 0);
}

static void free_hosting(void)
{
    teffi_grains_stop(&hosting);
    teffi_grains_free(&hosting);
    teff_grain_type_free(types[0]);
}

static teff_err try_to_make(teffi_activation **act)
{
    char key[8];
    int len = snprintf(key, sizeof key, "%u", n_made);
    teffi_ident ident = teffi_ident_of(&hosting.grains->secret, lab_turns_info.id,
                                       (const uint8_t *)key, (uint32_t)len);
    return teffi_shard_create_activation(hosting.grains, &ident, true, NULL, act);
}

/* More activations; the i-th of all was used i ms ago. */
static void make(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++, n_made++) {
        assert_int_equal(try_to_make(&made[n_made]), TEFF_OK);
        made[n_made]->used_ms = NOW_MS - n_made;
    }
}

/* The timer fires. out: ms until the next time. */
static uint64_t fire(void)
{
    bare_timer->fire(bare_timer);
    return (bare_due_ns - clock_ns) / 1000000;
}

static uint32_t count_asked_for(teff_reason reason)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_made; i++)
        n += made[i]->end_reason == reason;
    return n;
}

static uint32_t count_asked(void)
{
    return count_asked_for(TEFF_REASON_LIMIT);
}

/* Exactly these were asked, of those that no situation keeps. */
static void expect_asked(uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < n_made; i++)
        if (made[i]->end_reason != (i >= from && i < to ? TEFF_REASON_LIMIT : 0))
            fail_msg("activation %u: %u", i, made[i]->end_reason);
}

static void the_oldest_are_asked(void **state)
{
    start_hosting(64);
    make(64);
    assert_int_equal(fire(), CHECK_MS);
    expect_asked(0, 0); /* not too many */
    make(1);
    assert_int_equal(fire(), CHECK_MS);
    expect_asked(60, 65); /* a sixteenth less is left */
    for (int i = 0; i < 3; i++)
        assert_int_equal(fire(), CHECK_MS); /* these five have not ended yet */
    expect_asked(60, 65);
    make(10); /* older ones */
    assert_int_equal(fire(), CHECK_MS);
    expect_asked(60, 75);
    free_hosting();
}

/* With equal ages, too, no more are asked than are too many. */
static void of_the_same_age_so_many_are_asked(void **state)
{
    start_hosting(64);
    make(70);
    for (uint32_t i = 0; i < 65; i++)
        made[i]->used_ms = NOW_MS - 1;
    (void)fire();
    assert_int_equal(count_asked(), 10);
    for (uint32_t i = 65; i < 70; i++) /* the older ones are among them */
        assert_int_equal(made[i]->end_reason, TEFF_REASON_LIMIT);
    free_hosting();
}

/* ---- what keeps an activation ---- */

static void keep_queued(teffi_activation *act)
{
    act->queued = 1;
}

static void keep_delayed(teffi_activation *act)
{
    act->used_ms = NOW_MS + 10;
}

static void ask_to_stop(teffi_activation *act)
{
    act->end_reason = TEFF_REASON_STOPPING;
}

static const struct {
    const char *what;
    void (*set)(teffi_activation *act);
    uint32_t asked; /* of 70, with five in this situation */
} situations[] = {
    {"requests are queued", keep_queued, 10},
    {"delays", keep_delayed, 10},
    {"ending already", ask_to_stop, 5},
};

static void some_stay(void **state)
{
    for (size_t i = 0; i < sizeof situations / sizeof situations[0]; i++) {
        start_hosting(64);
        make(70);
        for (int k = 65; k < 70; k++) /* the oldest */
            situations[i].set(made[k]);
        (void)fire();
        if (count_asked() != situations[i].asked)
            fail_msg("%s: %u asked", situations[i].what, count_asked());
        for (int k = 65; k < 70; k++)
            assert_int_not_equal(made[k]->end_reason, TEFF_REASON_LIMIT);
        for (uint32_t k = 0; k < situations[i].asked; k++) /* the next ones */
            assert_int_equal(made[64 - k]->end_reason, TEFF_REASON_LIMIT);
        free_hosting();
    }
}

static void if_nothing_may_end_it_pauses(void **state)
{
    start_hosting(64);
    make(70);
    for (uint32_t i = 0; i < 70; i++)
        keep_queued(made[i]);
    assert_int_equal(fire(), PAUSE_MS);
    assert_int_equal(count_asked(), 0);
    for (uint32_t i = 0; i < 70; i++)
        made[i]->queued = 0;
    assert_int_equal(fire(), CHECK_MS);
    assert_int_equal(count_asked(), 10);
    free_hosting();
}

/* ---- many ---- */

/* All slices of a walk ask their share, and nearly only the oldest: of 18,000, about 3,000 end. */
static void many_are_asked_in_slices(void **state)
{
    enum { MANY = 18000, MAX = 16000, LEFT = 15000, SLICES = (MANY + 1023) / 1024 };
    start_hosting(MAX);
    make(MANY);
    for (int slice = 1; slice < SLICES; slice++) {
        assert_int_equal(fire(), SLICE_MS);
        assert_true(count_asked() > 0);
    }
    assert_int_equal(fire(), CHECK_MS);
    uint32_t asked = count_asked(), oldest = 0;
    for (uint32_t i = LEFT; i < MANY; i++)
        oldest += made[i]->end_reason == TEFF_REASON_LIMIT;
    assert_in_range(asked, MANY - LEFT, MANY - LEFT + SLICES);
    assert_true(oldest > asked - asked / 8);
    for (uint32_t i = 0; i < LEFT - LEFT / 8; i++)
        assert_int_equal(made[i]->end_reason, 0);
    free_hosting();
}

/* ---- the limit ---- */

static void beyond_a_quarter_more_none_is_made(void **state)
{
    static const struct {
        uint32_t max, most;
    } rows[] = {{1, 2}, {3, 4}, {4, 6}, {64, 81}, {1000, 1251}};
    teffi_activation *act;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        start_hosting(rows[i].max);
        make(rows[i].most);
        assert_int_equal(try_to_make(&act), TEFF_E_OVERLOADED);
        assert_int_equal(hosting.grains->shards->activations, rows[i].most);
        free_hosting();
    }
}

static void without_a_limit_nothing_is_asked(void **state)
{
    start_hosting(0);
    make(2000);
    (void)fire();
    assert_int_equal(fire(), ROUND_MS);
    assert_int_equal(count_asked(), 0);
    free_hosting();
}

/* ---- memory ---- */

static teffi_memory_use memory; /* what the platform says; limit_bytes 0: no limit */
static int reads;

static bool read_memory(void *arg, teffi_memory_use *use)
{
    *use = memory;
    reads++;
    return memory.limit_bytes > 0;
}

static void say_memory(uint64_t used_percent, uint32_t stalled_percent)
{
    memory = (teffi_memory_use){1000000, used_percent * 10000, stalled_percent};
}

static const struct {
    const char *what;
    uint32_t memory_percent;
    uint64_t used;
    uint32_t stalled;
    uint32_t asked; /* of 320 */
} uses[] = {
    {"the option is off", 0, 99, 99, 0},
    {"little is used", 80, 70, 0, 0},
    {"little is used, and threads wait for something", 80, 75, 99, 0},
    {"not enough is used", 80, 79, 9, 0},
    {"not enough is used, but threads wait", 80, 79, 10, 16},
    {"enough is used", 80, 80, 0, 20},
    {"all is used", 80, 100, 0, 80},
    {"more than all", 80, 150, 0, 160},
    {"at least a 32nd", 80, 76, 50, 10},
    {"another percentage", 10, 10, 0, 160},
    {"all of it", 100, 99, 9, 0},
    {"all of it is used", 100, 100, 0, 16},
};

static void the_use_of_memory_decides(void **state)
{
    bare_platform.memory_use = read_memory;
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++) {
        start_hosting_with(0, uses[i].memory_percent);
        make(320);
        say_memory(uses[i].used, uses[i].stalled);
        (void)fire();
        uint32_t asked = count_asked_for(TEFF_REASON_MEMORY);
        if (asked != uses[i].asked)
            fail_msg("%s: %u asked", uses[i].what, asked);
        for (uint32_t k = 0; k < asked; k++) /* the oldest */
            assert_int_equal(made[319 - k]->end_reason, TEFF_REASON_MEMORY);
        free_hosting();
    }
}

/* The clock moves until the use of memory was read n times in all. */
static void pass_until_read(int n)
{
    while (reads < n) {
        clock_ns = bare_due_ns;
        (void)fire();
    }
}

/* Once a second, whatever else the collector does; then it makes one walk. */
static void memory_is_read_once_a_second(void **state)
{
    bare_platform.memory_use = read_memory;
    start_hosting_with(0, 80);
    make(320);
    reads = 0;
    say_memory(90, 0);
    pass_until_read(1);
    uint64_t first_ns = clock_ns;
    assert_int_equal(count_asked_for(TEFF_REASON_MEMORY), 54);
    make(32);
    (void)fire(); /* no second walk */
    assert_int_equal(count_asked_for(TEFF_REASON_MEMORY), 54);
    say_memory(76, 0); /* it goes on until five points less are used */
    pass_until_read(2);
    assert_int_equal((clock_ns - first_ns) / 1000000, MEMORY_MS);
    assert_int_equal(count_asked_for(TEFF_REASON_MEMORY), 54); /* those count: they end already */
    make(128);
    say_memory(90, 0);
    pass_until_read(3);
    assert_int_equal(count_asked_for(TEFF_REASON_MEMORY), 80);
    say_memory(75, 0);
    pass_until_read(4);
    make(100);
    say_memory(79, 0); /* and then not again */
    pass_until_read(5);
    assert_int_equal(count_asked_for(TEFF_REASON_MEMORY), 80);
    assert_int_equal((clock_ns - first_ns) / 1000000, 4 * MEMORY_MS);
    free_hosting();
}

static void without_a_limit_of_memory_nothing_is_asked(void **state)
{
    bare_platform.memory_use = read_memory;
    start_hosting_with(0, 80);
    make(320);
    memory = (teffi_memory_use){0, 1000, 100};
    assert_int_equal(fire(), CHECK_MS);
    assert_int_equal(count_asked_for(TEFF_REASON_MEMORY), 0);
    free_hosting();
    bare_platform.memory_use = NULL; /* the simulator has none */
    start_hosting_with(0, 80);
    assert_int_equal((bare_due_ns - bare_now_ns) / 1000000, ROUND_MS);
    free_hosting();
}

/* The larger of the two numbers counts, with its reason. */
static void both_limits_hold(void **state)
{
    bare_platform.memory_use = read_memory;
    start_hosting_with(64, 80);
    make(70);
    say_memory(80, 0);
    (void)fire();
    assert_int_equal(count_asked_for(TEFF_REASON_LIMIT), 10);
    free_hosting();
    start_hosting_with(64, 80);
    make(70);
    say_memory(100, 0);
    (void)fire();
    assert_int_equal(count_asked_for(TEFF_REASON_MEMORY), 18);
    free_hosting();
}

int main(void)
{
#define BARE(f) cmocka_unit_test_setup_teardown(f, bare_open, bare_close)
    const struct CMUnitTest tests[] = {
        BARE(the_oldest_are_asked),
        BARE(of_the_same_age_so_many_are_asked),
        BARE(some_stay),
        BARE(if_nothing_may_end_it_pauses),
        BARE(many_are_asked_in_slices),
        BARE(beyond_a_quarter_more_none_is_made),
        BARE(without_a_limit_nothing_is_asked),
        BARE(the_use_of_memory_decides),
        BARE(memory_is_read_once_a_second),
        BARE(without_a_limit_of_memory_nothing_is_asked),
        BARE(both_limits_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
