/* test_pool.c - memory comes back to who gave it, moves between threads, ends at the heap. */
#include "test.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "memory/pool.h"

enum { N = 20000 };

static void what_was_given_back_is_used_again(void **state)
{
    void *first = teffi_pool_get(100);
    assert_non_null(first);
    memset(first, 1, 100);
    teffi_pool_put(first, 100);
    void *again = teffi_pool_get(128); /* of the same class */
    assert_ptr_equal(first, again);
    teffi_pool_put(again, 128);
    teffi_pool_put(NULL, 10);
}

/* So a process's event, 80 bytes, does not take the memory of 128. */
static void sizes_up_to_96_have_a_class_of_their_own(void **state)
{
    void *small = teffi_pool_get(80), *large = teffi_pool_get(97);
    teffi_pool_put(large, 97);
    teffi_pool_put(small, 80); /* the next one of its class */
    void *first = teffi_pool_get(128), *second = teffi_pool_get(65);
    assert_ptr_equal(first, large);
    assert_ptr_equal(second, small);
    teffi_pool_put(first, 128);
    teffi_pool_put(second, 65);
}

static void every_size_is_usable_to_its_end(void **state)
{
    static void *all[2000];
    for (int round = 0; round < 2; round++) {
        for (size_t n = 0; n < 2000; n++) {
            assert_non_null(all[n] = teffi_pool_get(n));
            assert_int_equal((uintptr_t)all[n] % 16, 0);
            memset(all[n], (int)n, n);
        }
        for (size_t n = 0; n < 2000; n++) {
            const uint8_t *bytes = all[n];
            assert_true(n == 0 || (bytes[0] == (uint8_t)n && bytes[n - 1] == (uint8_t)n));
            teffi_pool_put(all[n], n);
        }
    }
}

static void *give_back_all(void *arg)
{
    void **all = arg;
    for (int i = 0; i < N; i++)
        teffi_pool_put(all[i], 64);
    return NULL;
}

static void take_and_give_back_elsewhere(void)
{
    static void *all[N];
    pthread_t other;
    for (int i = 0; i < N; i++)
        assert_non_null(all[i] = teffi_pool_get(64));
    assert_int_equal(pthread_create(&other, NULL, give_back_all, all), 0);
    pthread_join(other, NULL);
}

static uint64_t now_ns = 1000000000;

/* out: bytes that were freed until only a few batches stay. */
static size_t let_go(void)
{
    size_t gone = 0, calls = 0;
    (void)teffi_pool_reclaim(now_ns += 1000000000, &gone); /* it was needed until now */
    while (teffi_pool_reclaim(now_ns += 1000000000, &gone))
        assert_true(++calls < 1000);
    return gone;
}

static void memory_moves_between_threads(void **state)
{
    (void)let_go();
    take_and_give_back_elsewhere();
    take_and_give_back_elsewhere(); /* it was used again */
    assert_in_range(let_go(), N * 64 / 2, N * 64 * 3 / 2);
}

/* What is needed in between stays: only batches that nobody has touched go. */
static void what_is_in_use_stays(void **state)
{
    enum { NEEDED = 6000 };
    static void *all[NEEDED];
    size_t gone = 0;
    take_and_give_back_elsewhere();
    for (int round = 0; round < 1000; round++) {
        for (int i = 0; i < NEEDED; i++)
            all[i] = teffi_pool_get(64);
        for (int i = 0; i < NEEDED; i++)
            teffi_pool_put(all[i], 64);
        (void)teffi_pool_reclaim(now_ns += 200000000, &gone);
    }
    assert_true(gone < N * 64);
    assert_in_range(let_go(), NEEDED * 64 / 2, NEEDED * 64 * 3 / 2);
}

/* With a clock: a slice at a time, once nobody has needed it between two looks; some stays. */
static void what_nobody_needs_for_long_goes(void **state)
{
    size_t gone = 0, calls = 0;
    take_and_give_back_elsewhere();
    assert_true(teffi_pool_reclaim(now_ns += 1000000000, &gone));
    assert_int_equal(gone, 0); /* it may have come just now */
    assert_true(teffi_pool_reclaim(now_ns + 1, &gone));
    assert_int_equal(gone, 0);
    for (now_ns += 1000000000; teffi_pool_reclaim(now_ns, &gone); now_ns += 1000000)
        assert_true(++calls < 1000);
    assert_true(calls > 1);
    assert_in_range(gone, N * 64 / 2, N * 64);
    assert_false(teffi_pool_reclaim(now_ns += 1000000000, &gone));
}

/* ---- threads that end ---- */

enum { LARGE = 1024, KEPT = 40, ONE_BATCH = 16 }; /* bytes; more than two batches of that size */

static void *kept[KEPT];

static void *take_and_put_back(void *arg)
{
    for (int i = 0; i < KEPT; i++)
        kept[i] = teffi_pool_get(LARGE);
    for (int i = 0; i < KEPT; i++)
        teffi_pool_put(kept[i], LARGE);
    return NULL;
}

static bool was_kept(const void *memory)
{
    for (int i = 0; i < KEPT; i++)
        if (kept[i] == memory)
            return true;
    return false;
}

/* The two batches that the ended thread has filled, and had not used again. */
static void *count_kept(void *arg)
{
    void *all[2 * ONE_BATCH];
    unsigned *n = arg;
    for (int i = 0; i < 2 * ONE_BATCH; i++) {
        all[i] = teffi_pool_get(LARGE);
        *n += was_kept(all[i]);
    }
    for (int i = 0; i < 2 * ONE_BATCH; i++)
        teffi_pool_put(all[i], LARGE);
    return NULL;
}

static void in_a_thread(void *(*fn)(void *arg), void *arg)
{
    pthread_t id;
    assert_int_equal(pthread_create(&id, NULL, fn, arg), 0);
    pthread_join(id, NULL);
}

static void what_an_ended_thread_had_is_used_by_others(void **state)
{
    unsigned n = 0;
    in_a_thread(take_and_put_back, NULL);
    in_a_thread(count_kept, &n);
    assert_int_equal(n, 2 * ONE_BATCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_an_ended_thread_had_is_used_by_others), /* first: it is all there */
        cmocka_unit_test(what_is_in_use_stays), /* before others: it measures all sizes */
        cmocka_unit_test(what_was_given_back_is_used_again),
        cmocka_unit_test(sizes_up_to_96_have_a_class_of_their_own),
        cmocka_unit_test(every_size_is_usable_to_its_end),
        cmocka_unit_test(memory_moves_between_threads),
        cmocka_unit_test(what_nobody_needs_for_long_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
