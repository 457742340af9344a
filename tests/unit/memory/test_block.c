/* test_block.c - large memory is used again, in its size, and goes back when nobody needs it. */
#include "test.h"

#include <pthread.h>
#include <string.h>
#include "memory/arena.h"
#include "memory/pool.h"

enum { N = 64, SIZE = 65 * 1024 };

static const uint64_t second_ns = 1000000000;
static uint64_t now_ns; /* by hand; it only rises */

static size_t kept(void)
{
    return teffi_block_reclaim(now_ns);
}

static void let_all_go(void)
{
    for (int i = 0; i < 2; i++)
        (void)teffi_block_reclaim(now_ns += second_ns);
    assert_int_equal(kept(), 0);
}

static void rooms_are_no_smaller_and_not_much_larger(void **state)
{
    for (size_t n = 1; n <= TEFFI_BLOCK_MAX + 3; n += n < 4096 ? 1 : n / 1000) {
        size_t room = teffi_block_usable_bytes(n);
        assert_true(room >= n);
        assert_true(room == n || room <= n + n / 4 + 1);
        assert_int_equal(teffi_block_usable_bytes(room), room);
        if (n >= TEFFI_BLOCK_MIN && n <= TEFFI_BLOCK_MAX)
            assert_int_equal(room % 4096, 0);
    }
    assert_int_equal(teffi_block_usable_bytes(TEFFI_BLOCK_MIN), TEFFI_BLOCK_MIN);
    assert_int_equal(teffi_block_usable_bytes(TEFFI_BLOCK_MIN + 1), TEFFI_BLOCK_MIN / 4 * 5);
    assert_int_equal(teffi_block_usable_bytes(TEFFI_BLOCK_MAX), TEFFI_BLOCK_MAX);
}

static void every_size_is_usable_to_its_end(void **state)
{
    for (int round = 0; round < 2; round++)
        for (size_t n = 1000; n < TEFFI_BLOCK_MAX * (size_t)2; n += n / 3) {
            uint8_t *bytes = teffi_block_get(n);
            assert_non_null(bytes);
            assert_int_equal((uintptr_t)bytes % 16, 0);
            memset(bytes, 7, teffi_block_usable_bytes(n));
            teffi_block_put(bytes, n);
        }
    teffi_block_put(NULL, SIZE);
    assert_true(kept() > 0);
    let_all_go();
}

static void what_was_given_back_is_used_again(void **state)
{
    void *first = teffi_block_get(SIZE);
    teffi_block_put(first, SIZE);
    assert_int_equal(kept(), teffi_block_usable_bytes(SIZE));
    void *again = teffi_block_get(SIZE + 100); /* the same room */
    assert_ptr_equal(first, again);
    assert_int_equal(kept(), 0);
    teffi_block_put(again, teffi_block_usable_bytes(SIZE));
    let_all_go();
}

static void take_and_give_back(unsigned n)
{
    static void *all[N];
    for (unsigned i = 0; i < n; i++)
        assert_non_null(all[i] = teffi_block_get(SIZE));
    for (unsigned i = 0; i < n; i++)
        teffi_block_put(all[i], SIZE);
}

/* Only what nobody has taken between two looks goes; and looks that come too soon are none. */
static void after_a_peak_the_heap_gets_it_back(void **state)
{
    size_t room = teffi_block_usable_bytes(SIZE);
    (void)teffi_block_reclaim(now_ns += second_ns);
    take_and_give_back(N);
    (void)teffi_block_reclaim(now_ns += second_ns);
    assert_int_equal(kept(), N * room);
    take_and_give_back(10);
    (void)teffi_block_reclaim(now_ns + 1000);
    assert_int_equal(kept(), N * room);
    (void)teffi_block_reclaim(now_ns += second_ns);
    assert_int_equal(kept(), 10 * room);
    take_and_give_back(10);
    (void)teffi_block_reclaim(now_ns += second_ns);
    assert_int_equal(kept(), 10 * room);
    let_all_go();
}

static void what_is_kept_has_a_limit(void **state)
{
    static void *all[TEFFI_BLOCK_KEPT_MAX / TEFFI_BLOCK_MAX + 4];
    size_t n = sizeof all / sizeof all[0];
    for (size_t i = 0; i < n; i++)
        assert_non_null(all[i] = teffi_block_get(TEFFI_BLOCK_MAX));
    for (size_t i = 0; i < n; i++)
        teffi_block_put(all[i], TEFFI_BLOCK_MAX);
    assert_int_equal(kept(), TEFFI_BLOCK_KEPT_MAX);
    let_all_go();
}

static void arenas_take_large_chunks_from_here(void **state)
{
    teff_arena arena;
    for (int i = 0; i < 3; i++) {
        teffi_arena_init(&arena, NULL, 0, 0);
        uint8_t *bytes = teff_arena_alloc(&arena, SIZE);
        assert_non_null(bytes);
        memset(bytes, i, SIZE);
        assert_int_equal(kept(), 0);
        teffi_arena_fini(&arena);
        assert_int_equal(kept(), teffi_block_usable_bytes(SIZE));
    }
    let_all_go();
}

/* Large pieces and what they are mixed with: all that was taken since the mark goes. */
static void an_arena_that_goes_back_keeps_nothing_newer(void **state)
{
    enum { PIECES = 20 };
    teff_arena arena;
    teffi_arena_init(&arena, NULL, 0, 0);
    char *first = teff_arena_copy(&arena, "first", 5);
    for (int round = 0; round < 3; round++) {
        teffi_arena_mark here = teffi_arena_get_mark(&arena);
        size_t before = kept();
        for (int i = 0; i < PIECES; i++) {
            assert_non_null(teff_arena_alloc(&arena, SIZE));
            memset(teff_arena_alloc(&arena, 500), 'x', 500);
        }
        teffi_arena_rewind(&arena, here);
        assert_true(kept() >= PIECES * teffi_block_usable_bytes(SIZE));
        assert_true(round == 0 || kept() == before);
        assert_string_equal(first, "first");
    }
    assert_non_null(teff_arena_alloc(&arena, SIZE));
    teffi_arena_fini(&arena);
    let_all_go();
}

static void *use_some(void *arg)
{
    for (int i = 0; i < 20000; i++) {
        size_t n = TEFFI_BLOCK_MIN + (size_t)(i * 7919) % (TEFFI_BLOCK_MIN * 4);
        uint8_t *bytes = teffi_block_get(n);
        bytes[0] = bytes[n - 1] = (uint8_t)i;
        teffi_block_put(bytes, n);
    }
    return NULL;
}

static void many_threads_share_it(void **state)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_some, NULL), 0);
    for (int i = 0; i < 1000; i++)
        (void)teffi_block_reclaim(now_ns += second_ns);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    let_all_go();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rooms_are_no_smaller_and_not_much_larger),
        cmocka_unit_test(every_size_is_usable_to_its_end),
        cmocka_unit_test(what_was_given_back_is_used_again),
        cmocka_unit_test(after_a_peak_the_heap_gets_it_back),
        cmocka_unit_test(what_is_kept_has_a_limit),
        cmocka_unit_test(arenas_take_large_chunks_from_here),
        cmocka_unit_test(an_arena_that_goes_back_keeps_nothing_newer),
        cmocka_unit_test(many_threads_share_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
