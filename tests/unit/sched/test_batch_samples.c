/* test_batch_samples.c - which picks of a local batch are sampled, and after which samples others
 * may take from it. The clock is the test's. */
#include "sched/policy/local_batch.h"

#include "os/thread.h"
/* cmocka comes after these. */
#include "test.h"

static uint64_t now_ns;

static uint64_t hand_clock(void *arg)
{
    return now_ns;
}

static const teffi_platform by_hand = {.mono_ns = hand_clock};

/* A check before the next pick, ns after the one before. */
static teffi_batch_verdict check_after(teffi_local_batch *batch, uint64_t ns)
{
    uint64_t preemptions = UINT64_MAX; /* not what the OS says: this thread was preempted */
    now_ns += ns;
    return teffi_local_batch_sample_if_due(batch, &by_hand, &preemptions);
}

static void begin_batch(teffi_local_batch *batch)
{
    batch->exists = false;
    now_ns += 10000000; /* what was before it does not count */
    (void)teffi_local_batch_record_push(batch, false);
}

static void test_picks_that_are_sampled(void **state)
{
    teffi_local_batch batch = {0};
    begin_batch(&batch);
    for (unsigned pick = 0; pick < 70; pick++) {
        bool sampled = pick < 3 || pick % 4 == 0;
        assert_int_equal(check_after(&batch, 0) != TEFFI_BATCH_NOT_SAMPLED, sampled);
    }
}

/* ns for the turns between the samples at picks 0, 1, 2, 4 and 8. */
static teffi_batch_verdict verdict_at_8(const uint64_t ns[4])
{
    static const unsigned picks[] = {1, 1, 2, 4};
    teffi_local_batch batch = {0};
    begin_batch(&batch);
    teffi_batch_verdict verdict = check_after(&batch, 0);
    for (unsigned i = 0; i < 4; i++) {
        if (verdict == TEFFI_BATCH_SHARED)
            fail_msg("shared before sample %u", i + 1);
        for (unsigned k = 1; k < picks[i]; k++)
            assert_int_equal(check_after(&batch, 0), TEFFI_BATCH_NOT_SAMPLED);
        verdict = check_after(&batch, ns[i]);
    }
    return verdict;
}

/* 2 us a turn, and 20 us for each of the first two, 6 us for later samples. */
static void test_three_slow_samples_in_a_row(void **state)
{
    static const struct {
        uint64_t ns[4];
        teffi_batch_verdict verdict;
    } rows[] = {
        {{22000, 22001, 10001, 14001}, TEFFI_BATCH_SHARED},
        {{22001, 22000, 10001, 14001}, TEFFI_BATCH_LOCAL},
        {{22001, 22001, 10000, 14001}, TEFFI_BATCH_LOCAL},
        {{22000, 22001, 10001, 14000}, TEFFI_BATCH_LOCAL},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(verdict_at_8(rows[i].ns), rows[i].verdict);
}

/* out: false: the OS preempted this thread meanwhile, which says nothing. */
static bool check_unpreempted(uint64_t ns, teffi_batch_verdict verdict)
{
    teffi_local_batch batch = {0};
    begin_batch(&batch);
    (void)check_after(&batch, 0);
    uint64_t before = teffi_thread_count_preemptions(), preemptions = before;
    now_ns += ns;
    teffi_batch_verdict found = teffi_local_batch_sample_if_due(&batch, &by_hand, &preemptions);
    if (teffi_thread_count_preemptions() != before)
        return false;
    assert_int_equal(found, verdict);
    return true;
}

static void test_one_sample_over_200_us_unless_preempted(void **state)
{
    teffi_local_batch batch = {0};
    while (!check_unpreempted(200000, TEFFI_BATCH_LOCAL))
        ;
    while (!check_unpreempted(200001, TEFFI_BATCH_SHARED))
        ;
    begin_batch(&batch);
    (void)check_after(&batch, 0);
    assert_int_equal(check_after(&batch, 200001), TEFFI_BATCH_LOCAL);
}

/* in: a batch that has just begun. out: the pick that others may take from. */
static unsigned first_shared_pick(teffi_local_batch *batch, uint64_t turn_ns)
{
    unsigned pick = 0;
    while (check_after(batch, pick ? turn_ns : 0) != TEFFI_BATCH_SHARED)
        pick++;
    return pick;
}

static void test_a_batch_lasts_for_4_ms(void **state)
{
    teffi_local_batch batch = {0};
    begin_batch(&batch);
    assert_int_equal(first_shared_pick(&batch, 2000), 2004); /* at pick 2,000 it is 4 ms old */
}

/* A batch without end is shared for 1,024 picks of each 4 ms: what is stolen costs more. */
static void test_it_is_local_again_after_1024_picks(void **state)
{
    teffi_local_batch batch = {0};
    begin_batch(&batch);
    (void)first_shared_pick(&batch, 2000);
    unsigned pick = 1;
    while (check_after(&batch, 2000) != TEFFI_BATCH_LOCAL)
        pick++;
    assert_int_equal(pick, 1024);
    while (check_after(&batch, 2000) != TEFFI_BATCH_SHARED)
        pick++;
    assert_int_equal(pick, 2003);
}

/* Behind it, batches of any length are shared until 1,024 groups have run. */
static void test_later_batches_are_shared_for_1024_picks(void **state)
{
    teffi_local_batch batch = {0};
    begin_batch(&batch);
    (void)first_shared_pick(&batch, 22001);
    begin_batch(&batch);
    for (unsigned pick = 0; pick <= 1; pick++)
        assert_int_equal(check_after(&batch, 0), TEFFI_BATCH_SHARED);
    begin_batch(&batch);
    assert_false(teffi_local_batch_record_push(&batch, false));
    for (unsigned pick = 0; pick < 1024; pick++)
        assert_int_not_equal(check_after(&batch, 0), TEFFI_BATCH_LOCAL);
    assert_int_equal(check_after(&batch, 0), TEFFI_BATCH_LOCAL);
    assert_true(teffi_local_batch_record_push(&batch, false));
    assert_false(teffi_local_batch_record_push(&batch, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_picks_that_are_sampled),
        cmocka_unit_test(test_three_slow_samples_in_a_row),
        cmocka_unit_test(test_one_sample_over_200_us_unless_preempted),
        cmocka_unit_test(test_a_batch_lasts_for_4_ms),
        cmocka_unit_test(test_it_is_local_again_after_1024_picks),
        cmocka_unit_test(test_later_batches_are_shared_for_1024_picks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
