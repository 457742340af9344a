/* test_slab.c - the memory of activations: by slot, used again, given back, refused while free. */
#include <stdlib.h>
#include <sys/resource.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka comes after these. */
#include <cmocka.h>
#include "grains.h"
#include "slab.h"

enum { MANY = 6000 };

static teffi_exec executor;
static teffi_node node = {.exec = &executor};
static teffi_grains grains = {.node = &node};
static teffi_slab slab;
static teffi_activation *taken[MANY];

static int setup(void **state)
{
    (void)state;
    memset(&slab, 0, sizeof slab);
    assert_true(teffi_slab_init(&slab, &grains));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    teffi_slab_fini(&slab);
    return 0;
}

/* As born() does. */
static void take_many(void)
{
    for (int i = 0; i < MANY; i++) {
        taken[i] = teffi_slab_take(&slab);
        assert_non_null(taken[i]);
        assert_true(taken[i]->slot >= TEFFI_SLOT_SYSTEM_END && taken[i]->slot < TEFFI_PROCESS_BIT);
        assert_ptr_equal(teffi_slab_at(&slab, taken[i]->slot), taken[i]);
        assert_int_equal(taken[i]->phase, TEFFI_FREE);
        taken[i]->generation++;
    }
    assert_int_equal(slab.live, MANY);
}

static void give(teffi_activation **at)
{
    teffi_slab_give(&slab, *at);
    *at = NULL;
}

static void give_all(void)
{
    for (int i = 0; i < MANY; i++)
        if (taken[i])
            give(&taken[i]);
    assert_int_equal(slab.live, 0);
}

static void each_has_a_place_of_its_own(void **state)
{
    (void)state;
    take_many();
    for (int i = 0; i < MANY; i++)
        taken[i]->used_ms = (uint32_t)i;
    for (int i = 0; i < MANY; i++)
        assert_int_equal(taken[i]->used_ms, i);
    assert_in_range(teffi_slab_held(&slab), MANY * sizeof(teffi_activation),
                    MANY * sizeof(teffi_activation) + 2 * TEFFI_BLOCK_BYTES);
    give_all();
}

static void memory_goes_back_and_no_life_is_taken_for_another(void **state)
{
    uint64_t most = 0;
    (void)state;
    for (uint32_t round = 1; round <= 4; round++) {
        take_many();
        for (int i = 0; i < MANY; i++)
            assert_in_range(taken[i]->generation, round, UINT32_MAX); /* its slot's next one */
        most = teffi_slab_held(&slab);
        give_all();
        assert_in_range(teffi_slab_held(&slab), 0, TEFFI_BLOCK_BYTES);
    }
    assert_true(most >= MANY * sizeof(teffi_activation));
}

static void a_block_with_one_that_lives_stays(void **state)
{
    (void)state;
    take_many();
    for (int i = 0; i < MANY; i++)
        if (i % (int)TEFFI_BLOCK_ACTS != 0)
            give(&taken[i]);
    assert_true(teffi_slab_held(&slab) >= MANY * sizeof(teffi_activation));
    for (int i = 0; i < MANY; i += (int)TEFFI_BLOCK_ACTS)
        assert_int_equal(taken[i]->generation, 1);
    give_all();
    assert_in_range(teffi_slab_held(&slab), 0, TEFFI_BLOCK_BYTES);
}

static void what_is_free_refuses_items(void **state)
{
    teffi_item item = {.kind = 1};
    teffi_activation *kept;
    (void)state;
    take_many();
    kept = taken[MANY / 2];
    assert_false(teffi_group_push(&kept->group, &item)); /* not born yet */
    assert_false(teffi_group_claim(&kept->group));
    give_all();
    assert_false(teffi_group_push(&kept->group, &item)); /* its memory has gone */
    assert_false(teffi_group_claim(&kept->group));
    assert_int_equal(teffi_group_state_of(&kept->group), TEFFI_GROUP_COMPLETE);
}

/* No file can be made: then memory is kept, and used again. */
static void it_works_where_pages_cannot_be_forgotten(void **state)
{
    struct rlimit was, none;
    (void)state;
    teffi_slab_fini(&slab);
    memset(&slab, 0, sizeof slab);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    none = (struct rlimit){0, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    bool made = teffi_slab_init(&slab, &grains);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_true(made);
    assert_true(slab.pages.fd < 0);
    for (uint32_t round = 1; round <= 3; round++) {
        take_many();
        assert_int_equal(taken[0]->generation, round);
        give_all();
    }
    assert_true(teffi_slab_held(&slab) >= MANY * sizeof(teffi_activation));
}

int main(void)
{
#define SLAB(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        SLAB(each_has_a_place_of_its_own),
        SLAB(memory_goes_back_and_no_life_is_taken_for_another),
        SLAB(a_block_with_one_that_lives_stays),
        SLAB(what_is_free_refuses_items),
        SLAB(it_works_where_pages_cannot_be_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
