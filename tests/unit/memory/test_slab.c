/* test_slab.c - entries: each its own slot, found by it, used again by whichever thread needs one;
 * after a peak their memory is decommitted, and their generations continue. */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include "memory/slab.h"
#include "os/thread.h"

enum { BLOCK = TEFFI_SLAB_BLOCK, PEAK = 200000, PAGE = 4096, FREE_WORD = 7, IMAGE = 1024 };

typedef struct thing {
    uint64_t word; /* FREE_WORD in the image */
    uint32_t slot, generation;
    teffi_slab_link link;
    char more[168];
} thing;

_Static_assert(sizeof(thing) * BLOCK % PAGE == 0, "blocks are whole pages");

/* Blocks that may stay committed: free ones, and one for each entry of a thread's lists. */
enum { STAY = TEFFI_SLAB_KEEPS + 8, OWN = 3 * BLOCK };

static void begin(void *entry, uint32_t slot, uint32_t generation, void *owner)
{
    thing *t = entry;
    t->slot = slot;
    t->generation = generation;
    assert_non_null(owner);
}

static teffi_slab_use last_use(const void *entry)
{
    const thing *t = entry;
    return (teffi_slab_use){t->slot, t->generation};
}

static const teffi_slab_type type = {.bytes = sizeof(thing),
                                     .link = offsetof(thing, link),
                                     .entries_max = 1 << 20,
                                     .begin = begin,
                                     .last_use = last_use};

static teffi_slab slab;

static int setup(void **state)
{
    return !teffi_slab_init(&slab, &type, &slab, NULL, 0);
}

static int setup_image(void **state)
{
    static thing image[IMAGE];
    for (int i = 0; i < IMAGE; i++)
        image[i].word = FREE_WORD;
    return !teffi_slab_init(&slab, &type, &slab, image, IMAGE);
}

static int teardown(void **state)
{
    teffi_slab_fini(&slab, NULL);
    return 0;
}

/* ---- the clock ---- */

static uint64_t now_ns = 1000000000;

static void settle(void)
{
    enum { PERIODS = 2, SLICES = PEAK / BLOCK / TEFFI_SLAB_SLICE + 1 };
    for (int i = 0; i < PERIODS + SLICES; i++)
        teffi_slab_reclaim(now_ns += TEFFI_SLAB_AGE_MS * UINT64_C(1000000));
}

/* ---- entries ---- */

static thing **take(int n)
{
    thing **got = malloc((size_t)n * sizeof *got);
    assert_non_null(got);
    for (int i = 0; i < n; i++) {
        assert_non_null(got[i] = teffi_slab_take(&slab));
        assert_ptr_equal(teffi_slab_at(&slab, got[i]->slot), got[i]);
    }
    return got;
}

static void put_all(thing **got, int from, int n)
{
    for (int i = from; i < n; i++)
        teffi_slab_put(&slab, got[i]);
}

static void shuffle(thing **got, int n)
{
    uint64_t rng = 0x9e3779b97f4a7c15u;
    for (int i = n - 1; i > 0; i--) {
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        int j = (int)((rng >> 33) % (uint64_t)(i + 1));
        thing *was = got[i];
        got[i] = got[j];
        got[j] = was;
    }
}

static uint32_t used(void)
{
    return teffi_slab_block_count(&slab) * BLOCK;
}

static bool is_committed(uint32_t block)
{
    return teffi_slab_next_committed(&slab, block) == block;
}

static bool is_resident(uint32_t block)
{
    unsigned char pages[BLOCK * sizeof(thing) / PAGE];
    assert_int_equal(mincore(teffi_slab_at(&slab, block * BLOCK), sizeof pages * PAGE, pages), 0);
    for (size_t i = 0; i < sizeof pages; i++)
        if (pages[i] & 1)
            return true;
    return false;
}

static void gone_but(uint32_t stay)
{
    uint32_t committed = 0, resident = 0;
    for (uint32_t b = 0; b < teffi_slab_block_count(&slab); b++) {
        committed += is_committed(b);
        resident += !slab.pages.bytes && is_resident(b); /* the file of an image is always */
    }
    assert_int_equal(committed, teffi_slab_block_count(&slab) - slab.n[TEFFI_SLAB_DECOMMITTED]);
    if (committed > stay || resident > stay)
        fail_msg("%u blocks are committed, %u resident, %u may be", committed, resident, stay);
}

static void slots_are_found(void **state)
{
    enum { N = 300000 }; /* nine segments */
    bool *seen = calloc(N + BLOCK, sizeof *seen);
    assert_null(teffi_slab_at(&slab, 0));
    thing **got = take(N);
    for (int i = 0; i < N; i++) {
        assert_true(got[i]->slot < N + BLOCK && !seen[got[i]->slot]);
        assert_int_equal((uintptr_t)got[i] % 64, 0);
        seen[got[i]->slot] = true;
    }
    assert_true(used() < N + BLOCK);
    assert_null(teffi_slab_at(&slab, used()));
    assert_null(teffi_slab_at(&slab, UINT32_MAX));
    free(got);
    free(seen);
}

static void there_are_as_many_as_may_be(void **state)
{
    free(take(1 << 20));
    assert_null(teffi_slab_take(&slab));
    teffi_slab_put(&slab, teffi_slab_at(&slab, 5));
    assert_ptr_equal(teffi_slab_take(&slab), teffi_slab_at(&slab, 5));
}

static void what_was_put_last_comes_first(void **state)
{
    for (int round = 0; round < 100; round++) {
        thing **got = take(1000);
        put_all(got, 0, 1000);
        assert_ptr_equal(teffi_slab_take(&slab), got[999]);
        teffi_slab_put(&slab, got[999]);
        free(got);
    }
    assert_int_equal(used(), 1024);
}

/* ---- after a peak ---- */

static void in_any_order(void **state)
{
    for (int round = 0; round < 3; round++) {
        thing **got = take(PEAK);
        shuffle(got, PEAK);
        put_all(got, 0, PEAK);
        settle();
        gone_but(STAY + OWN);
        free(got);
    }
    assert_true(used() <= PEAK + BLOCK);
}

/* Each is handed out once, also from blocks of which a few are free. */
static void free_entries_of_blocks_are_used_again(void **state)
{
    enum { KEPT = PEAK / 8 };
    bool *seen = calloc(PEAK + BLOCK, sizeof *seen);
    thing **got = take(PEAK);
    shuffle(got, PEAK);
    put_all(got, KEPT, PEAK);
    settle();
    for (int i = 0; i < KEPT; i++)
        seen[got[i]->slot] = true;
    thing **again = take(PEAK - KEPT);
    for (int i = 0; i < PEAK - KEPT; i++) {
        assert_false(seen[again[i]->slot]);
        seen[again[i]->slot] = true;
    }
    assert_true(used() <= PEAK + BLOCK);
    put_all(got, 0, KEPT);
    put_all(again, 0, PEAK - KEPT);
    settle();
    gone_but(STAY + OWN);
    free(got);
    free(again);
    free(seen);
}

static void a_decommitted_block_is_as_the_image(void **state)
{
    thing **got = take(PEAK);
    for (int i = 0; i < PEAK; i++) {
        assert_int_equal(got[i]->word, FREE_WORD);
        got[i]->word = (uint64_t)i;
        *teffi_slab_get_block_mark(&slab, got[i]->slot / BLOCK) = 1;
    }
    put_all(got, 0, PEAK);
    settle();
    gone_but(STAY);
    for (int i = 0; i < PEAK; i++) {
        uint32_t block = (uint32_t)i / BLOCK;
        const thing *t = teffi_slab_at(&slab, (uint32_t)i);
        if (is_committed(block))
            continue;
        assert_int_equal(t->word, FREE_WORD);
        assert_true(*teffi_slab_get_block_mark(&slab, block) == UINT64_MAX);
    }
    free(got);
}

static void an_image_needs_a_file_and_errno_says_why_there_is_none(void **state)
{
    struct rlimit was, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    none = (struct rlimit){0, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int failed = setup_image(NULL), why = errno;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(failed, 1);
    assert_int_equal(why, EMFILE);
    assert_int_equal(teardown(NULL), 0);
}

/* ---- generations ---- */

enum { MANY = 256 * BLOCK };

static uint32_t furthest[MANY / BLOCK]; /* by block: the generation of the furthest entry */
static uint32_t last[MANY];

/* in: how much further one entry of each block is than any was. out: blocks that went. */
static unsigned go_on(uint32_t further)
{
    unsigned gone = 0;
    thing **got = take(MANY);
    for (int i = 0; i < MANY; i++)
        last[got[i]->slot] = ++got[i]->generation;
    for (uint32_t b = 0; b < MANY / BLOCK; b++) {
        thing *t = teffi_slab_at(&slab, b * BLOCK + b % BLOCK);
        furthest[b] = last[t->slot] = t->generation = furthest[b] + further;
    }
    put_all(got, 0, MANY);
    free(got);
    settle();
    for (uint32_t b = 0; b < MANY / BLOCK; b++)
        gone += !is_committed(b);
    return gone;
}

/* Entries continue behind the furthest of their block, around the end of the numbers as well; a
 * block stays if that is so far that it might be taken for what is behind. */
static void generations_continue(void **state)
{
    memset(furthest, 0, sizeof furthest);
    for (uint32_t round = 0; round < 5; round++) {
        bool gone[MANY / BLOCK];
        assert_true(go_on(0x70000000u) > MANY / BLOCK / 4);
        for (uint32_t b = 0; b < MANY / BLOCK; b++)
            gone[b] = !is_committed(b);
        thing **got = take(MANY);
        for (int i = 0; i < MANY; i++) {
            uint32_t b = got[i]->slot / BLOCK;
            assert_int_equal(got[i]->generation, gone[b] ? furthest[b] : last[got[i]->slot]);
            got[i]->generation = furthest[b];
        }
        put_all(got, 0, MANY);
        free(got);
    }
    settle();
    assert_int_equal(go_on(0x80000000u), 0);
}

/* ---- a thread's lists ---- */

static void *take_block(void *to)
{
    thing **got = to;
    for (int i = 0; i < BLOCK; i++)
        got[i] = teffi_slab_take(&slab);
    return NULL;
}

/* out: the highest slot of a block of entries that another thread takes. */
static uint32_t highest_taken_elsewhere(void)
{
    thing *got[BLOCK];
    uint32_t highest = 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, take_block, got), 0);
    pthread_join(thread, NULL);
    for (int i = 0; i < BLOCK; i++)
        highest = got[i]->slot > highest ? got[i]->slot : highest;
    return highest;
}

/* Of what a thread has put it keeps two blocks; what is over is others'. */
static void a_thread_keeps_two_blocks(void **state)
{
    thing **got = take(3 * BLOCK);
    put_all(got, 0, 2 * BLOCK);
    assert_true(highest_taken_elsewhere() >= 3 * BLOCK);
    put_all(got, 2 * BLOCK, 3 * BLOCK);
    assert_true(highest_taken_elsewhere() < 3 * BLOCK);
    free(got);
}

/* ---- threads ---- */

enum { USERS = TEFFI_THREAD_INDEXES + 8, EACH = 100, ROUNDS = 5 };

typedef struct user {
    pthread_t thread;
    uint64_t sum;
} user;

static pthread_barrier_t all;
static uint8_t holders[(USERS + 2) * (EACH + 2 * BLOCK)]; /* a plain mark by slot */

static void *use(void *arg)
{
    user *u = arg;
    thing *got[EACH];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < EACH; i++) {
            got[i] = teffi_slab_take(&slab);
            u->sum += got[i] && !holders[got[i]->slot]++;
        }
        (void)pthread_barrier_wait(&all);
        for (int i = 0; i < EACH; i++) {
            holders[got[i]->slot]--;
            teffi_slab_put(&slab, got[i]);
        }
        (void)pthread_barrier_wait(&all);
    }
    return NULL;
}

/* Some of them have no thread index. What they mark without a lock is each one's own. */
static void more_threads_than_indexes(void **state)
{
    static user users[USERS];
    assert_int_equal(pthread_barrier_init(&all, NULL, USERS), 0);
    for (int i = 0; i < USERS; i++)
        assert_int_equal(pthread_create(&users[i].thread, NULL, use, &users[i]), 0);
    for (int i = 0; i < USERS; i++) {
        pthread_join(users[i].thread, NULL);
        assert_int_equal(users[i].sum, EACH * ROUNDS);
    }
    assert_true(used() <= USERS * 2 * BLOCK + BLOCK);
    (void)pthread_barrier_destroy(&all);
}

/* One thread takes, another puts: entries go round. */
enum { ROUND_TRIPS = 200000, WINDOW = 256 };

static thing *_Atomic window[WINDOW];

static void *put_what_comes(void *arg)
{
    for (int i = 0; i < ROUND_TRIPS; i++) {
        thing *t;
        while (!(t = atomic_exchange(&window[i % WINDOW], NULL)))
            teffi_thread_yield();
        teffi_slab_put(&slab, t);
    }
    return NULL;
}

static void one_takes_and_another_puts(void **state)
{
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, put_what_comes, NULL), 0);
    for (int i = 0; i < ROUND_TRIPS; i++) {
        thing *t = teffi_slab_take(&slab), *none = NULL;
        while (!atomic_compare_exchange_weak(&window[i % WINDOW], &none, t)) {
            none = NULL;
            teffi_thread_yield();
        }
    }
    pthread_join(other, NULL);
    assert_true(used() <= WINDOW + 6 * BLOCK);
}

int main(void)
{
#define SLAB(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        SLAB(slots_are_found),
        SLAB(there_are_as_many_as_may_be),
        SLAB(what_was_put_last_comes_first),
        SLAB(a_thread_keeps_two_blocks),
        SLAB(in_any_order),
        SLAB(free_entries_of_blocks_are_used_again),
        cmocka_unit_test_setup_teardown(a_decommitted_block_is_as_the_image, setup_image, teardown),
        cmocka_unit_test(an_image_needs_a_file_and_errno_says_why_there_is_none),
        SLAB(generations_continue),
        SLAB(more_threads_than_indexes),
        SLAB(one_takes_and_another_puts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
