/* test_activation_cache.c - guesses: where they lie, and whose they are. */
#include "request/activation_cache.h"

#include <stdlib.h>
#include "lab.h"

enum { TYPE = 0x648fe029 };

static _Alignas(teffi_activation) char place[2 * sizeof(teffi_activation)];
static teffi_activation *const one = (teffi_activation *)(void *)place;
static teffi_activation *const other = one + 1;

static uint64_t mark_of(uint32_t type, uint64_t number)
{
    const teffi_ident ident = {type, sizeof number, (const uint8_t *)&number, 0};
    return teffi_activation_cache_hash(&ident);
}

static void numbers_in_a_row_lie_apart(void **state)
{
    enum { NUMBERS = TEFFI_ACTIVATION_CACHE_SLOTS / 2 };
    for (uint64_t step = 1; step <= 1u << 24; step *= 4) {
        bool *taken = calloc(TEFFI_ACTIVATION_CACHE_SLOTS, sizeof *taken);
        unsigned shared = 0;
        assert_non_null(taken);
        for (uint64_t i = 0; i < NUMBERS; i++) {
            bool *at = &taken[mark_of(TYPE, i * step) % TEFFI_ACTIVATION_CACHE_SLOTS];
            shared += *at;
            *at = true;
        }
        free(taken);
        assert_in_range(shared, 0, NUMBERS / 4);
    }
}

static void types_and_texts_have_marks_of_their_own(void **state)
{
    const teffi_ident a = {TYPE, 5, (const uint8_t *)"alice", 0};
    const teffi_ident b = {TYPE, 5, (const uint8_t *)"blice", 0};
    assert_true(mark_of(TYPE, 1) != mark_of(TYPE + 1, 1));
    assert_true(teffi_activation_cache_hash(&a) != teffi_activation_cache_hash(&b));
}

static void what_was_put_is_found_by_its_mark_only(void **state)
{
    static teffi_activation_cache cache;
    const uint64_t mark = mark_of(TYPE, 7), colliding = mark ^ 1ull << TEFFI_ADDRESS_BITS;
    assert_null(teffi_activation_cache_get(&cache, mark));
    teffi_activation_cache_put(&cache, mark, one);
    assert_ptr_equal(teffi_activation_cache_get(&cache, mark), one);
    assert_null(teffi_activation_cache_get(&cache, colliding)); /* of the same place */
    teffi_activation_cache_put(&cache, colliding, other);
    assert_null(teffi_activation_cache_get(&cache, mark));
    assert_ptr_equal(teffi_activation_cache_get(&cache, colliding), other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_in_a_row_lie_apart),
        cmocka_unit_test(types_and_texts_have_marks_of_their_own),
        cmocka_unit_test(what_was_put_is_found_by_its_mark_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
