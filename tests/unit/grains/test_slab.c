/* test_slab.c - the memory of activations: by slot; free ones refuse items, decommitted too. */
#include "test.h"
#include "directory/shard.h"

enum { MANY = 94 * TEFFI_SLAB_BLOCK, MS = 1000000 };

static uint64_t now_ns = MS;
static teffi_exec executor;
static teffi_node node = {.home.exec = &executor};
static teffi_grains grains = {.node = &node};
static teffi_slab memory;
static teffi_activation *taken[MANY];

static int setup(void **state)
{
    return !teffi_activation_slab_init(&memory, &grains);
}

static int teardown(void **state)
{
    teffi_slab_fini(&memory, NULL);
    return 0;
}

/* As born() does. */
static void take_many(void)
{
    for (int i = 0; i < MANY; i++) {
        taken[i] = teffi_slab_take(&memory);
        assert_non_null(taken[i]);
        assert_true(taken[i]->slot >= TEFFI_SLOT_SYSTEM_END && taken[i]->slot < TEFFI_PROCESS_BIT);
        assert_ptr_equal(teffi_activation_at(&memory, taken[i]->slot), taken[i]);
        assert_int_equal(taken[i]->phase, TEFFI_FREE);
        taken[i]->generation++;
    }
}

static void put_all(void)
{
    for (int i = 0; i < MANY; i++)
        teffi_slab_put(&memory, taken[i]);
    for (int i = 0; i < 3; i++)
        teffi_slab_reclaim(now_ns += TEFFI_SLAB_AGE_MS * (uint64_t)MS);
}

/* Entries of the blocks that are not decommitted. */
static uint32_t entries_held(void)
{
    return (teffi_slab_block_count(&memory) - memory.n[TEFFI_SLAB_DECOMMITTED]) * TEFFI_SLAB_BLOCK;
}

static void memory_goes_back_and_no_life_is_taken_for_another(void **state)
{
    for (uint32_t round = 1; round <= 4; round++) {
        take_many();
        for (int i = 0; i < MANY; i++)
            assert_in_range(taken[i]->generation, round, UINT32_MAX); /* its slot's next one */
        assert_true(entries_held() >= MANY);
        put_all();
        assert_in_range(entries_held(), 0, MANY / 2);
    }
}

static void what_is_free_refuses_items(void **state)
{
    teffi_item item = {.kind = 1};
    take_many();
    assert_false(teffi_group_push(&taken[0]->group, &item)); /* not born yet */
    assert_false(teffi_group_claim(&taken[0]->group));
    put_all();
    for (int i = 0; i < MANY; i++) { /* of some the memory has gone */
        assert_false(teffi_group_push(&taken[i]->group, &item));
        assert_false(teffi_group_claim(&taken[i]->group));
        assert_int_equal(teffi_group_state_of(&taken[i]->group), TEFFI_GROUP_COMPLETE);
    }
}

int main(void)
{
#define ENTRIES(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        ENTRIES(memory_goes_back_and_no_life_is_taken_for_another),
        ENTRIES(what_is_free_refuses_items),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
