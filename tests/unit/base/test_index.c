/* test_index.c - the index from hashes to numbers: found, grown, shrunk, walked, and read by
 * threads that hold no lock while another writes. */
#include "base/index.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
/* cmocka comes after these. */
#include "../faults.h"
#include "base/hash.h"

/* Some share all bits that the index looks at. */
static uint64_t hash_of(uint32_t number)
{
    return teffi_mix64(number % 7 ? number : number / 14);
}

static bool has(const teffi_index *index, uint32_t number)
{
    teffi_probe probe;
    uint32_t found = teffi_index_find_first(&probe, index, hash_of(number));
    while (found && found != number)
        found = teffi_index_find_next(&probe);
    assert_true(found || teffi_index_search_was_complete(&probe)); /* nobody writes meanwhile */
    return found == number;
}

static void an_empty_one_finds_nothing(void **state)
{
    teffi_index index = {0};
    uint32_t at = 0;
    assert_false(has(&index, 5));
    assert_int_equal(teffi_index_next_number(&index, &at), 0);
    teffi_index_fini(&index);
}

static size_t bytes_of(const teffi_index *index)
{
    const teffi_cells *cells = atomic_load(&index->now);
    return cells->n * sizeof cells->cell[0];
}

static void all_are_found_while_it_grows_and_shrinks(void **state)
{
    enum { N = 20000 };
    teffi_index index = {0};
    for (uint32_t i = 2; i < N; i++) {
        assert_true(teffi_index_add(&index, hash_of(i), i));
        assert_int_equal(index.count, i - 1);
        if (i % 1000 == 0)
            for (uint32_t j = 2; j < N; j++)
                assert_int_equal(has(&index, j), j <= i);
    }
    assert_in_range(bytes_of(&index), N * 8, N * 17);
    size_t most = bytes_of(&index);
    for (uint32_t i = N - 1; i >= 2; i--) {
        teffi_index_del(&index, hash_of(i), i);
        if (i % 1000 == 0)
            for (uint32_t j = 2; j < N; j++)
                assert_int_equal(has(&index, j), j < i);
    }
    assert_int_equal(index.count, 0);
    assert_true(bytes_of(&index) < most / 100);
    teffi_index_fini(&index);
}

/* As many come as go: what was taken out makes room. */
static void coming_and_going_does_not_grow_it(void **state)
{
    teffi_index index = {0};
    for (uint32_t i = 2; i < 300000; i++) {
        assert_true(teffi_index_add(&index, hash_of(i), i));
        if (i >= 1000)
            teffi_index_del(&index, hash_of(i - 998), i - 998);
    }
    assert_int_equal(index.count, 998);
    assert_true(bytes_of(&index) <= 8 * 4096);
    for (uint32_t i = 299999; i > 299999 - 998; i--)
        assert_true(has(&index, i));
    assert_false(has(&index, 299999 - 998));
    teffi_index_fini(&index);
}

/* A rebuild makes it a third to a half full. */
static void three_quarters_of_the_array_are_used(void **state)
{
    teffi_index index = {0};
    for (uint32_t i = 2; i < 14; i++)
        assert_true(teffi_index_add(&index, hash_of(i), i));
    assert_int_equal(bytes_of(&index), 16 * 8);
    assert_true(teffi_index_add(&index, hash_of(14), 14));
    assert_int_equal(bytes_of(&index), 40 * 8);
    for (uint32_t i = 2; i < 15; i++)
        teffi_index_del(&index, hash_of(i), i);
    uint32_t moves = index.moves;
    assert_true(teffi_index_add(&index, hash_of(2), 2));
    assert_int_equal(index.moves, moves);
    teffi_index_fini(&index);
    assert_false(has(&index, 2)); /* empty, as zeroed */
    assert_true(teffi_index_add(&index, hash_of(2), 2));
    teffi_index_fini(&index);
}

static unsigned count_of_hash(const teffi_index *index, uint64_t hash)
{
    teffi_probe probe;
    unsigned n = 0;
    for (uint32_t found = teffi_index_find_first(&probe, index, hash); found; n++)
        found = teffi_index_find_next(&probe);
    return n;
}

/* The last cell of the array, then the first ones. In each order of removal. */
static void numbers_of_one_hash_go_round_the_end(void **state)
{
    for (unsigned first = 0; first < 3; first++)
        for (unsigned step = 1; step < 3; step++) {
            teffi_index index = {0};
            for (uint32_t i = 2; i < 5; i++)
                assert_true(teffi_index_add(&index, UINT64_MAX, i));
            assert_int_equal(count_of_hash(&index, UINT64_MAX), 3);
            for (unsigned n = 0; n < 3; n++) {
                teffi_index_del(&index, UINT64_MAX, 2 + (first + n * step) % 3);
                assert_int_equal(count_of_hash(&index, UINT64_MAX), 2 - n);
            }
            assert_int_equal(index.filled, 0); /* each cell is EMPTY again */
            teffi_index_fini(&index);
        }
}

/* The arrays of each size serve again, and are empty then. */
static void old_arrays_hold_nothing(void **state)
{
    enum { N = 2000 };
    teffi_index index = {0};
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 2; i < N; i++)
            assert_true(teffi_index_add(&index, i == 2 ? 0 : hash_of(i), i));
        for (uint32_t i = 2; i < N; i++)
            teffi_index_del(&index, i == 2 ? 0 : hash_of(i), i);
        uint32_t at = 0;
        assert_int_equal(teffi_index_next_number(&index, &at), 0);
        assert_int_equal(count_of_hash(&index, 0), 0);
    }
    teffi_index_fini(&index);
}

/* ---- without memory ---- */

static teff_err add_many(void)
{
    enum { N = 1000 };
    teffi_index index = {0};
    uint32_t n = 2;
    while (n < N && teffi_index_add(&index, hash_of(n), n))
        n++;
    for (uint32_t i = 2; i < N; i++)
        assert_int_equal(has(&index, i), i < n);
    for (uint32_t i = 2; i < n; i++)
        teffi_index_del(&index, hash_of(i), i);
    assert_int_equal(index.count, 0);
    teffi_index_fini(&index);
    return n == N ? TEFF_OK : TEFF_E_NOMEM;
}

static void a_failed_rebuild_loses_nothing(void **state)
{
    assert_true(fault_sweep(add_many, false) > 10);
}

/* It takes numbers until one cell is left, at which searches end. */
static void an_array_that_cannot_grow_is_filled_but_one_cell(void **state)
{
    teffi_index index = {0};
    assert_true(teffi_index_add(&index, hash_of(2), 2));
    uint32_t n = 3;
    do
        atomic_store(&faults_left, 1); /* no rebuild */
    while (teffi_index_add(&index, hash_of(n), n) && n++);
    atomic_store(&faults_left, 0);
    assert_int_equal(index.count, 15);
    for (uint32_t i = 2; i < 30; i++)
        assert_int_equal(has(&index, i), i < n);
    teffi_index_fini(&index);
}

static void a_walk_sees_each_that_stays(void **state)
{
    enum { N = 1000 };
    teffi_index index = {0};
    uint8_t seen[N] = {0};
    uint32_t at = 0, number;
    assert_true(teffi_index_add(&index, hash_of(2), 2));
    for (uint32_t i = 3; i < N; i++)
        assert_true(teffi_index_add(&index, hash_of(i), i));
    uint32_t moves = index.moves, last = 0;
    for (int n = 0; (number = teffi_index_next_number(&index, &at)); n++) {
        seen[number]++;
        if (last && n % 3 == 0) /* behind the walk; and a new one, anywhere */
            teffi_index_del(&index, hash_of(last), last);
        last = number;
    }
    assert_int_equal(index.moves, moves);
    for (uint32_t i = 2; i < N; i++)
        assert_int_equal(seen[i], 1);
    teffi_index_fini(&index);
}

/* ---- while an old array is emptied ---- */

static teffi_index rebuilt;
static teffi_probe before; /* begun before the rebuild */
static unsigned emptied, certain_meanwhile;

/* Instead of the C library's. */
int madvise(void *at, size_t len, int advice)
{
    teffi_probe now;
    if (before.index) {
        (void)teffi_index_find_first(&now, &rebuilt, 1);
        emptied++;
        certain_meanwhile +=
            teffi_index_search_was_complete(&now) + teffi_index_search_was_complete(&before);
    }
    return (int)syscall(SYS_madvise, at, len, advice);
}

static void no_search_is_certain_while_an_array_is_emptied(void **state)
{
    for (uint32_t i = 2; emptied < 3; i++) {
        (void)teffi_index_find_first(&before, &rebuilt, hash_of(i));
        assert_true(teffi_index_search_was_complete(&before));
        assert_true(teffi_index_add(&rebuilt, hash_of(i), i));
    }
    assert_int_equal(certain_meanwhile, 0);
    unsigned char in_memory; /* the newest of them holds none */
    assert_int_equal(mincore((void *)rebuilt.spares->cell, 4096, &in_memory), 0);
    assert_int_equal(in_memory & 1, 0);
    assert_false(teffi_index_search_was_complete(&before));
    (void)teffi_index_find_first(&before, &rebuilt, 1);
    assert_true(teffi_index_search_was_complete(&before));
    before.index = NULL;
    teffi_index_fini(&rebuilt);
}

/* ---- beside a writer ---- */

enum { READERS = 2, RESIDENTS = 200, PASSING = 3000, ROUNDS = 60 };

typedef struct world {
    teffi_index index;
    pthread_mutex_t lock;
    _Atomic bool over;
    _Atomic uint64_t hits, misses, unknown, wrong;
} world;

static bool found(world *w, uint32_t number, bool *certain)
{
    teffi_probe probe;
    uint32_t at = teffi_index_find_first(&probe, &w->index, hash_of(number));
    while (at && at != number)
        at = teffi_index_find_next(&probe);
    *certain = at || teffi_index_search_was_complete(&probe);
    return at != 0;
}

/* What stays is found, or the reader is told to take the lock, and finds it then; what was never
 * there is never found. */
static void *reader(void *arg)
{
    world *w = arg;
    bool certain;
    for (uint32_t i = 0; !w->over; i++) {
        uint32_t number = 2 + i % RESIDENTS;
        if (found(w, number, &certain)) {
            w->hits++;
        } else if (certain) {
            w->wrong++;
        } else {
            w->unknown++;
            pthread_mutex_lock(&w->lock);
            w->wrong += !found(w, number, &certain);
            pthread_mutex_unlock(&w->lock);
        }
        w->wrong += found(w, 1000000 + i % 1000, &certain);
        w->misses += certain;
    }
    return NULL;
}

static void write_round(world *w, uint32_t first)
{
    for (uint32_t i = first; i < first + PASSING; i++) {
        pthread_mutex_lock(&w->lock);
        assert_true(teffi_index_add(&w->index, hash_of(i), i));
        pthread_mutex_unlock(&w->lock);
    }
    for (uint32_t i = first; i < first + PASSING; i++) {
        pthread_mutex_lock(&w->lock);
        teffi_index_del(&w->index, hash_of(i), i);
        pthread_mutex_unlock(&w->lock);
    }
}

static void readers_without_a_lock_miss_nothing_that_stays(void **state)
{
    static world w = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[READERS];
    for (uint32_t i = 2; i < 2 + RESIDENTS; i++)
        assert_true(teffi_index_add(&w.index, hash_of(i), i));
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, reader, &w), 0);
    /* At least so many rounds, and until the readers have had their turn on a busy machine. */
    for (int round = 0; round < ROUNDS || w.hits < 10000; round++)
        write_round(&w, 1000);
    w.over = true;
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(w.wrong, 0);
    assert_true(w.hits >= 10000);
    assert_true(w.misses > 0);
    teffi_index_fini(&w.index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_one_finds_nothing),
        cmocka_unit_test(all_are_found_while_it_grows_and_shrinks),
        cmocka_unit_test(coming_and_going_does_not_grow_it),
        cmocka_unit_test(three_quarters_of_the_array_are_used),
        cmocka_unit_test(numbers_of_one_hash_go_round_the_end),
        cmocka_unit_test(old_arrays_hold_nothing),
        cmocka_unit_test(a_failed_rebuild_loses_nothing),
        cmocka_unit_test(an_array_that_cannot_grow_is_filled_but_one_cell),
        cmocka_unit_test(a_walk_sees_each_that_stays),
        cmocka_unit_test(no_search_is_certain_while_an_array_is_emptied),
        cmocka_unit_test(readers_without_a_lock_miss_nothing_that_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
