/* test_location_cache.c - where a grain was sent last: found again, the oldest dropped, silos that
 * come and go, and threads that read and write it without a lock while views change. */
#include "directory/location_cache.h"

#include <pthread.h>
#include <string.h>
/* cmocka comes after these. */
#include "test.h"
#include "base/hash.h"

enum { SELF = 0, SILOS = 16 };

/* incarnation tells silo: a torn pair is seen. */
static teffi_node_id silo(uint32_t i)
{
    return (teffi_node_id){i + 1, (i + 1) * 7919};
}

/* in: bit i: silo i is a member. */
static void adopt(teffi_location_cache *hints, uint32_t members)
{
    teffi_member list[32];
    size_t n = 0;
    memset(list, 0, sizeof list);
    for (uint32_t i = 0; i < 32; i++)
        if (members >> i & 1) {
            list[n].status = TEFFI_ACTIVE;
            list[n++].node = silo(i);
        }
    teffi_view *view = teffi_view_new(1, list, n);
    assert_non_null(view);
    teffi_locations_adopt_view(hints, view, silo(SELF));
    teffi_view_unref(view);
}

/* All in one line, each with a tag of its own. */
static uint64_t in_line(uint32_t i)
{
    return (uint64_t)(i + 1) << 16 | 5;
}

static bool leads_to(const teffi_location_cache *hints, uint64_t hash, uint32_t i)
{
    return teffi_node_equals(teffi_location_get(hints, hash), silo(i));
}

static bool leads_nowhere(const teffi_location_cache *hints, uint64_t hash)
{
    return teffi_node_is_none(teffi_location_get(hints, hash));
}

static teffi_location_cache h;

static int setup(void **state)
{
    memset(&h, 0, sizeof h);
    return 0;
}

static void only_silos_of_the_view_are_hinted_at(void **state)
{
    teffi_location_put(&h, 77, silo(1));
    assert_true(leads_nowhere(&h, 77));
    adopt(&h, 1u << SELF | 1u << 1);
    assert_true(leads_nowhere(&h, 77)); /* it was not kept for later */
    teffi_location_put(&h, 77, silo(1));
    assert_true(leads_to(&h, 77, 1));
    teffi_location_put(&h, 77, silo(SELF));
    teffi_location_put(&h, 77, silo(2));
    assert_true(leads_to(&h, 77, 1));
    assert_true(leads_nowhere(&h, 77 ^ 1ull << 16));
    assert_true(leads_nowhere(&h, 77 ^ 1ull << 63));
}

static void the_newest_of_a_line_stay(void **state)
{
    adopt(&h, 0xffff);
    for (uint32_t i = 0; i < TEFFI_LOCATION_WAYS; i++)
        teffi_location_put(&h, in_line(i), silo(1 + i));
    for (uint32_t i = 0; i < TEFFI_LOCATION_WAYS; i++)
        assert_true(leads_to(&h, in_line(i), 1 + i));
    teffi_location_put(&h, in_line(0), silo(12)); /* again: now the newest */
    teffi_location_put(&h, in_line(100), silo(2));
    assert_true(leads_to(&h, in_line(0), 12));
    assert_true(leads_to(&h, in_line(100), 2));
    assert_true(leads_nowhere(&h, in_line(1)));
    for (uint32_t i = 2; i < TEFFI_LOCATION_WAYS; i++)
        assert_true(leads_to(&h, in_line(i), 1 + i));
}

static void what_is_dropped_is_dropped_once(void **state)
{
    adopt(&h, 0xff);
    for (uint32_t i = 0; i < 3; i++)
        teffi_location_put(&h, in_line(i), silo(1));
    teffi_location_drop(&h, in_line(1), silo(2)); /* it says another */
    assert_true(leads_to(&h, in_line(1), 1));
    teffi_location_drop(&h, in_line(2), silo(1)); /* leaves an empty place before the others */
    assert_true(leads_nowhere(&h, in_line(2)));
    teffi_location_put(&h, in_line(0), silo(3));
    assert_true(leads_to(&h, in_line(0), 3));
    teffi_location_drop(&h, in_line(0), silo(3));
    assert_true(leads_nowhere(&h, in_line(0))); /* no older one comes back */
    assert_true(leads_to(&h, in_line(1), 1));
}

static void a_silo_that_goes_takes_its_hints_along(void **state)
{
    adopt(&h, 0x7);
    teffi_location_put(&h, 1000, silo(1));
    teffi_location_put(&h, 2000, silo(2));
    adopt(&h, 0x5); /* 1 is gone */
    assert_true(leads_nowhere(&h, 1000));
    assert_true(leads_to(&h, 2000, 2));
    adopt(&h, 0xd); /* 3 gets its number */
    assert_int_equal(h.n_silos, 2);
    assert_true(leads_nowhere(&h, 1000));
    teffi_location_put(&h, 1000, silo(3));
    assert_true(leads_to(&h, 1000, 3));
    adopt(&h, 0xf);
    assert_true(leads_to(&h, 1000, 3));
}

static void silos_over_the_number_are_located_each_time(void **state)
{
    static teffi_member list[TEFFI_LOCATION_SILOS + 10];
    size_t n = sizeof list / sizeof list[0];
    unsigned led = 0;
    for (uint32_t i = 0; i < n; i++)
        list[i] = (teffi_member){.node = silo(i), .status = TEFFI_ACTIVE};
    teffi_view *view = teffi_view_new(1, list, n);
    assert_non_null(view);
    teffi_locations_adopt_view(&h, view, silo(SELF));
    teffi_view_unref(view);
    for (uint32_t i = 1; i < n; i++) {
        uint64_t hash = teffi_mix64(i);
        teffi_location_put(&h, hash, silo(i));
        assert_true(leads_nowhere(&h, hash) || leads_to(&h, hash, i));
        led += leads_to(&h, hash, i);
    }
    assert_int_equal(led, TEFFI_LOCATION_SILOS - 1);
}

/* ---- threads ---- */

enum { THREADS = 3, VIEWS = 400, LOOKS_LEAST = 20000 };

typedef struct world {
    teffi_location_cache hints;
    _Atomic uint32_t members; /* of the view that stands; 0 while one is adopted */
    _Atomic uint64_t looks, led, wrong;
    _Atomic bool over;
} world;

/* A hint that came while one view stood leads to one of its members. */
static void look(world *w, uint64_t hash)
{
    uint32_t before = atomic_load(&w->members);
    teffi_node_id got = teffi_location_get(&w->hints, hash);
    uint32_t after = atomic_fetch_add(&w->members, 0); /* after the hint on any machine */
    uint32_t i = got.silo - 1;
    if (!teffi_node_is_none(got)) {
        w->led++;
        w->wrong += i >= SILOS || i == SELF || !teffi_node_equals(got, silo(i)) ||
                    (before && before == after && !(before >> i & 1));
    }
    w->looks++;
}

static void *use(void *arg)
{
    world *w = arg;
    for (uint64_t n = (uintptr_t)&n; !w->over; n = teffi_mix64(n)) {
        uint64_t hash = in_line((uint32_t)(n % 12));
        if (n >> 60 == 0)
            teffi_location_drop(&w->hints, hash, silo((uint32_t)(n >> 32) % SILOS));
        else if (n >> 60 < 4)
            teffi_location_put(&w->hints, hash, silo((uint32_t)(n >> 32) % SILOS));
        else
            look(w, hash);
    }
    return NULL;
}

static void threads_never_see_a_silo_that_is_none(void **state)
{
    static world w;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use, &w), 0);
    /* The mark rises with each view, so that one that came back is not taken for one that stood. */
    for (uint32_t v = 1; v <= VIEWS || w.led < LOOKS_LEAST; v++) {
        uint32_t members = (uint32_t)teffi_mix64(v) & 0xffff & ~(1u << SELF);
        atomic_store(&w.members, 0);
        adopt(&w.hints, members);
        atomic_store(&w.members, v << 16 | members);
    }
    w.over = true;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(w.wrong, 0);
    assert_true(w.looks > w.led);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(only_silos_of_the_view_are_hinted_at, setup),
        cmocka_unit_test_setup(the_newest_of_a_line_stay, setup),
        cmocka_unit_test_setup(what_is_dropped_is_dropped_once, setup),
        cmocka_unit_test_setup(a_silo_that_goes_takes_its_hints_along, setup),
        cmocka_unit_test_setup(silos_over_the_number_are_located_each_time, setup),
        cmocka_unit_test(threads_never_see_a_silo_that_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
