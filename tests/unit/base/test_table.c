/* test_table.c - the hash table of intrusive nodes: find, grow, walk, take out. */
#include "base/table.h"

#include <string.h>
/* cmocka comes after these. */
#include "../faults.h"

enum { N = 2000 };

typedef struct item {
    teffi_tnode node;
    unsigned number;
    unsigned seen;
} item;

static item items[N];

/* Ten items share each hash. */
static uint64_t hash_of(unsigned number)
{
    return (number % (N / 10)) * 0x9e3779b97f4a7c15u;
}

static item *find(const teffi_table *t, unsigned number)
{
    uint64_t hash = hash_of(number);
    for (teffi_tnode *n = teffi_table_find_first(t, hash); n; n = teffi_table_find_next(n))
        if (((item *)n)->number == number)
            return (item *)n;
    return NULL;
}

static void fill(teffi_table *t)
{
    memset(items, 0, sizeof items);
    for (unsigned i = 0; i < N; i++) {
        items[i].number = i;
        assert_true(teffi_table_add(t, &items[i].node, hash_of(i)));
        assert_int_equal(t->count, i + 1);
    }
}

static void empty_tables(void **state)
{
    teffi_table t = {0};
    teffi_tnode *next = NULL;
    size_t at = 0;
    assert_null(teffi_table_find_first(&t, 5));
    assert_null(teffi_table_next_node(&t, &at, &next));
    teffi_table_fini(&t);
}

static void all_are_found(void **state)
{
    teffi_table t = {0};
    fill(&t);
    for (unsigned i = 0; i < N; i++)
        assert_ptr_equal(find(&t, i), &items[i]);
    assert_null(find(&t, N));
    teffi_table_fini(&t);
}

static void one_hash_only(void **state)
{
    teffi_table t = {0};
    unsigned found = 0;
    fill(&t);
    for (teffi_tnode *n = teffi_table_find_first(&t, hash_of(3)); n; n = teffi_table_find_next(n)) {
        assert_int_equal(n->hash, hash_of(3));
        found++;
    }
    assert_int_equal(found, 10);
    teffi_table_fini(&t);
}

static void taken_out(void **state)
{
    teffi_table t = {0};
    fill(&t);
    for (unsigned i = 0; i < N; i += 3) {
        teffi_table_del(&t, &items[i].node);
        assert_null(items[i].node.next);
    }
    for (unsigned i = 0; i < N; i++)
        assert_ptr_equal(find(&t, i), i % 3 == 0 ? NULL : &items[i]);
    for (unsigned i = 0; i < N; i++)
        if (i % 3 != 0)
            teffi_table_del(&t, &items[i].node);
    assert_int_equal(t.count, 0);
    assert_true(teffi_table_add(&t, &items[7].node, hash_of(7)));
    assert_ptr_equal(find(&t, 7), &items[7]);
    teffi_table_fini(&t);
}

/* Their hashes differ in high bits only. */
static void hashes_of_one_chain(void **state)
{
    teffi_table t = {0};
    teffi_tnode nodes[4];
    for (uint64_t i = 0; i < 4; i++)
        assert_true(teffi_table_add(&t, &nodes[i], i << 32));
    for (uint64_t i = 0; i < 4; i++) {
        assert_ptr_equal(teffi_table_find_first(&t, i << 32), &nodes[i]);
        assert_null(teffi_table_find_next(&nodes[i]));
    }
    assert_null(teffi_table_find_first(&t, (uint64_t)4 << 32));
    teffi_table_fini(&t);
    assert_null(teffi_table_find_first(&t, 0)); /* empty, as zeroed */
    assert_true(teffi_table_add(&t, &nodes[0], 0));
    teffi_table_fini(&t);
}

/* Only the first node needs memory; the others are found in longer chains. */
static teff_err fill_and_find(void)
{
    teffi_table t = {0};
    teff_err err = TEFF_OK;
    for (unsigned i = 0; !err && i < N; i++) {
        items[i].number = i;
        err = teffi_table_add(&t, &items[i].node, hash_of(i)) ? TEFF_OK : TEFF_E_NOMEM;
    }
    assert_int_equal(t.count, err ? 0 : N);
    for (unsigned i = 0; i < t.count; i++)
        assert_ptr_equal(find(&t, i), &items[i]);
    teffi_table_fini(&t);
    return err;
}

static void without_memory_chains_are_longer(void **state)
{
    assert_true(fault_sweep(fill_and_find, false) > 5);
}

/* The walk meets each once, also while it takes out every second one. */
static void walk(void **state)
{
    teffi_table t = {0};
    teffi_tnode *next = NULL, *n;
    size_t at = 0, met = 0;
    fill(&t);
    while ((n = teffi_table_next_node(&t, &at, &next))) {
        ((item *)n)->seen++;
        if (met++ % 2 == 0)
            teffi_table_del(&t, n);
    }
    assert_int_equal(met, N);
    assert_int_equal(t.count, N / 2);
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(items[i].seen, 1);
    teffi_table_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_tables),
        cmocka_unit_test(all_are_found),
        cmocka_unit_test(one_hash_only),
        cmocka_unit_test(taken_out),
        cmocka_unit_test(hashes_of_one_chain),
        cmocka_unit_test(without_memory_chains_are_longer),
        cmocka_unit_test(walk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
