/* test_arena.c - bump memory: alignment, blocks, budget. */
#include "memory/arena.h"
#include "memory/pool.h"

#include <string.h>
/* cmocka comes after these. */
#include "../faults.h"

static bool aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

static void allocations_are_zeroed_and_aligned(void **state)
{
    static const char zeros[5000];
    _Alignas(16) char block[256];
    teff_arena arena;
    memset(block, 'x', sizeof block);
    teffi_arena_init(&arena, block + 1, sizeof block - 1, 0);
    for (size_t n = 0; n < sizeof zeros; n = n * 2 + 1) {
        char *p = teff_arena_alloc(&arena, n);
        assert_non_null(p);
        assert_true(aligned(p));
        assert_memory_equal(p, zeros, n);
        memset(p, 'y', n);
    }
    teffi_arena_fini(&arena);
}

static void allocations_do_not_overlap(void **state)
{
    enum { N = 200 };
    unsigned char *p[N];
    teff_arena arena;
    teffi_arena_init(&arena, NULL, 0, 0);
    for (size_t i = 0; i < N; i++) {
        p[i] = teff_arena_alloc(&arena, i);
        assert_non_null(p[i]);
        memset(p[i], (int)i, i);
    }
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < i; k++)
            assert_int_equal(p[i][k], i);
    teffi_arena_fini(&arena);
}

static void the_block_comes_first(void **state)
{
    char block[128];
    teff_arena arena;
    teffi_arena_init(&arena, block, sizeof block, 0);
    char *first = teff_arena_alloc(&arena, 16);
    char *large = teff_arena_alloc(&arena, 4096);
    assert_true(first >= block && first + 16 <= block + sizeof block);
    assert_true(large < block || large >= block + sizeof block);
    assert_non_null(arena.chunks);
    teffi_arena_fini(&arena);
}

static void too_small_blocks_are_left_alone(void **state)
{
    char block[32];
    teff_arena arena;
    memset(block, 'x', sizeof block);
    for (size_t n = 0; n < 16; n++) {
        teffi_arena_init(&arena, block, n, 0);
        char *p = teff_arena_alloc(&arena, 16);
        assert_non_null(p);
        memset(p, 'y', 16);
        for (size_t i = 0; i < sizeof block; i++)
            assert_int_equal(block[i], 'x');
        teffi_arena_fini(&arena);
    }
}

static void budget(void **state)
{
    teff_arena arena;
    teffi_arena_init(&arena, NULL, 0, 100);
    assert_non_null(teff_arena_alloc(&arena, 60));
    assert_null(teff_arena_alloc(&arena, 41));
    assert_non_null(teff_arena_alloc(&arena, 40));
    assert_null(teff_arena_alloc(&arena, 1));
    assert_null(teff_arena_copy(&arena, "", 0)); /* its zero byte does not fit */
    teffi_arena_fini(&arena);
}

static void absurd_sizes(void **state)
{
    teff_arena arena;
    teffi_arena_init(&arena, NULL, 0, 0);
    assert_null(teff_arena_alloc(&arena, SIZE_MAX));
    assert_null(teff_arena_alloc(&arena, SIZE_MAX - 15));
    assert_null(teff_arena_alloc(&arena, SIZE_MAX / 2 + 1));
    assert_null(teff_arena_copy(&arena, "", SIZE_MAX));
    assert_non_null(teff_arena_alloc(&arena, 1));
    teffi_arena_fini(&arena);
}

static void copies_end_with_zero(void **state)
{
    teff_arena arena;
    teffi_arena_init(&arena, NULL, 0, 0);
    memset(teff_arena_alloc(&arena, 64), 'x', 64);
    char *p = teff_arena_copy(&arena, "abcdef", 3);
    assert_string_equal(p, "abc");
    assert_string_equal(teff_arena_copy(&arena, NULL, 0), "");
    teffi_arena_fini(&arena);
}

/* In the block, and in chunks; behind each copy stands what was not written. */
static void copies_are_whole(void **state)
{
    _Alignas(16) char block[2000];
    char from[300];
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (char)(i + 1);
    for (int in_block = 0; in_block < 2; in_block++)
        for (size_t n = 0; n < sizeof from; n++) {
            teff_arena arena;
            memset(block, 'x', sizeof block);
            teffi_arena_init(&arena, in_block ? block : NULL, in_block ? sizeof block : 0, 0);
            char *p = teff_arena_copy(&arena, from, n);
            char *next = teff_arena_alloc(&arena, 1);
            memset(next, 'y', 1);
            assert_memory_equal(p, from, n);
            assert_int_equal(p[n], 0);
            teffi_arena_fini(&arena);
        }
}

/* Each as small as it may be: what is asked for is counted, and fits. */
static void memory_of_any_size_is_usable_to_its_end(void **state)
{
    teff_arena arena;
    size_t sum = 0;
    teffi_arena_init(&arena, NULL, 0, 0);
    for (size_t n = 1; n < 100000; n += 1 + n / 10) {
        unsigned char *p = teff_arena_take(&arena, n), *q = teff_arena_alloc(&arena, n);
        memset(p, 1, n);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(q[i], 0);
        memset(q, 2, n);
        assert_int_equal(p[n - 1], 1);
        sum += 2 * n;
        assert_true(arena.used_bytes <= sum + 15 * 200);
    }
    teffi_arena_fini(&arena);
}

/* The first chunk of an arena has room for each size that is not in a chunk of its own. */
static void the_first_chunk_has_room(void **state)
{
    for (size_t n = 1; n < TEFFI_BLOCK_MIN; n++) {
        teff_arena arena;
        teffi_arena_init(&arena, NULL, 0, 0);
        uint8_t *p = teff_arena_take(&arena, n);
        assert_non_null(p);
        if (n <= TEFFI_BLOCK_MIN - 16)
            assert_true(p + n <= arena.at && arena.at <= arena.end);
        teffi_arena_fini(&arena);
    }
}

static void a_chunk_is_adopted_and_counted(void **state)
{
    size_t room = 0;
    teff_arena arena;
    uint8_t *bytes = teffi_chunk_new(20000, &room);
    assert_non_null(bytes);
    assert_in_range(room, 20000, 40000);
    memset(bytes, 1, room);
    teffi_chunk_free(bytes);
    teffi_chunk_free(NULL);
    assert_null(teffi_chunk_new(SIZE_MAX, &room));
    assert_int_equal(teffi_chunks_held_bytes(NULL), 0);
    teffi_arena_init(&arena, NULL, 0, 50000);
    assert_int_equal(teffi_arena_held_bytes(&arena), 0);
    for (int i = 1; i < 5; i++) {
        teffi_arena_adopt_chunk(&arena, teffi_chunk_new(20000, &room));
        assert_true(teffi_chunks_held_bytes(arena.chunks) >= (size_t)i * 20000);
        assert_in_range(arena.used_bytes, i < 3 ? i * 20000 : 50000, 50000); /* not over it */
    }
    assert_null(teff_arena_take(&arena, 1));
    teffi_arena_fini(&arena);
}

static void free_kept_blocks(void)
{
    static uint64_t now_ns;
    do
        now_ns += 1000000000;
    while (teffi_block_reclaim(now_ns));
}

static teff_err take_some(void)
{
    teff_arena arena;
    bool ok = true;
    teffi_arena_init(&arena, NULL, 0, 0);
    for (size_t n = 100; ok && n < 10000000; n *= 3) {
        char *p = teff_arena_take(&arena, n);
        ok = p && teff_arena_copy(&arena, "", 0);
        if (p)
            memset(p, 1, n);
    }
    teffi_arena_fini(&arena);
    free_kept_blocks();
    return ok ? TEFF_OK : TEFF_E_NOMEM;
}

static void without_memory_there_is_none(void **state)
{
    size_t room;
    assert_true(fault_sweep(take_some, true) > 5);
    atomic_store(&faults_left, 1);
    assert_null(teffi_chunk_new(3000000, &room));
}

static void fini_twice_and_again(void **state)
{
    teff_arena arena = {0};
    teffi_arena_fini(&arena);
    assert_non_null(teff_arena_alloc(&arena, 10000));
    teffi_arena_fini(&arena);
    teffi_arena_fini(&arena);
    assert_int_equal(arena.used_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_are_zeroed_and_aligned),
        cmocka_unit_test(allocations_do_not_overlap),
        cmocka_unit_test(the_block_comes_first),
        cmocka_unit_test(too_small_blocks_are_left_alone),
        cmocka_unit_test(budget),
        cmocka_unit_test(absurd_sizes),
        cmocka_unit_test(copies_end_with_zero),
        cmocka_unit_test(copies_are_whole),
        cmocka_unit_test(memory_of_any_size_is_usable_to_its_end),
        cmocka_unit_test(the_first_chunk_has_room),
        cmocka_unit_test(a_chunk_is_adopted_and_counted),
        cmocka_unit_test(without_memory_there_is_none),
        cmocka_unit_test(fini_twice_and_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
