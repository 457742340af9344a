/* test_view.c - views: members sorted, every partition owned, shares even, little moves. */
#include <stdlib.h>
#include <string.h>
#include "test.h"
#include "cluster/view.h"
#include "node/node.h"

enum { MAX = 32 };

static teffi_member members[MAX];
static uint32_t types[] = {3, 8}, versions[] = {2};

static void fill(unsigned n)
{
    memset(members, 0, sizeof members);
    for (unsigned i = 0; i < n; i++) {
        members[i].node = (teffi_node_id){0x1000u + 7919u * i, 100 + i};
        members[i].status = TEFFI_ACTIVE;
        members[i].types = types;
        members[i].n_types = 2;
        members[i].versions = versions;
        members[i].n_versions = 1; /* of the first type only */
    }
}

static teffi_view *view_of(unsigned n)
{
    fill(n);
    teffi_view *view = teffi_view_new(1, members, n);
    assert_non_null(view);
    return view;
}

static unsigned owned(const teffi_view *view, teffi_node_id node)
{
    unsigned n = 0;
    for (unsigned i = 0; i < TEFFI_PARTITIONS; i++)
        n += teffi_node_equals(teffi_view_owner(view, i), node);
    return n;
}

static void every_partition_has_an_active_owner(void **state)
{
    for (unsigned n = 1; n <= MAX; n++) {
        teffi_view *view = view_of(n);
        unsigned total = 0;
        for (unsigned m = 0; m < n; m++)
            total += owned(view, members[m].node);
        assert_int_equal(total, TEFFI_PARTITIONS);
        assert_int_equal(view->n_active, n);
        teffi_view_unref(view);
    }
}

/* 256 arcs by 64 points each: nobody gets more than twice the mean among few silos. */
static void shares_are_even(void **state)
{
    for (unsigned n = 2; n <= 8; n++) {
        teffi_view *view = view_of(n);
        for (unsigned m = 0; m < n; m++) {
            unsigned share = owned(view, members[m].node);
            assert_true(share <= 2 * TEFFI_PARTITIONS / n);
            assert_true(share >= TEFFI_PARTITIONS / n / 3);
        }
        teffi_view_unref(view);
    }
}

/* Partitions go to the silo that comes, or from the one that goes; between the others
 * none moves. */
static void only_what_must_moves(void **state)
{
    for (unsigned n = 1; n < 16; n++) {
        teffi_view *before = view_of(n), *after = view_of(n + 1);
        teffi_node_id added = members[n].node;
        unsigned moved = 0;
        for (unsigned i = 0; i < TEFFI_PARTITIONS; i++) {
            teffi_node_id old = teffi_view_owner(before, i), now = teffi_view_owner(after, i);
            if (teffi_node_equals(old, now))
                continue;
            assert_true(teffi_node_equals(now, added));
            moved++;
        }
        assert_true(moved > 0);
        assert_true(moved <= 2 * TEFFI_PARTITIONS / (n + 1));
        teffi_view_unref(before);
        teffi_view_unref(after);
    }
}

/* Whatever order the rows came in: all silos must compute the same owners. */
static void owners_do_not_depend_on_order(void **state)
{
    teffi_view *a = view_of(9);
    for (int i = 0; i < 4; i++) {
        teffi_member t = members[i];
        members[i] = members[8 - i];
        members[8 - i] = t;
    }
    teffi_view *b = teffi_view_new(1, members, 9);
    for (unsigned i = 0; i < TEFFI_PARTITIONS; i++)
        assert_true(teffi_node_equals(teffi_view_owner(a, i), teffi_view_owner(b, i)));
    for (unsigned i = 0; i < 9; i++)
        assert_true(teffi_node_equals(a->members[i].node, b->members[i].node));
    teffi_view_unref(a);
    teffi_view_unref(b);
}

static void leaving_members_own_nothing(void **state)
{
    fill(3);
    members[1].status = TEFFI_LEAVING;
    teffi_view *view = teffi_view_new(4, members, 3);
    assert_int_equal(view->n_members, 3);
    assert_int_equal(view->n_active, 2);
    assert_int_equal(owned(view, members[1].node), 0);
    assert_non_null(teffi_view_find_member(view, members[1].node));
    teffi_view_unref(view);
    for (int i = 0; i < 3; i++)
        members[i].status = TEFFI_LEAVING;
    view = teffi_view_new(5, members, 3);
    assert_true(teffi_node_is_none(teffi_view_owner(view, 17)));
    teffi_view_unref(view);
}

static void an_empty_view_is_allowed(void **state)
{
    teffi_view *view = teffi_view_new(0, NULL, 0);
    assert_non_null(view);
    assert_true(teffi_node_is_none(teffi_view_owner(view, 0)));
    assert_true(teffi_node_is_none(teffi_view_owner(view, TEFFI_PARTITIONS - 1)));
    teffi_view_unref(view);
    teffi_view_unref(NULL);
}

static void members_are_copies(void **state)
{
    teffi_view *view = view_of(2);
    teffi_node_id first = members[0].node;
    types[0] = 77;
    versions[0] = 5;
    members[0].node.incarnation = 9;
    const teffi_member *m = teffi_view_find_member(view, first);
    assert_non_null(m);
    assert_int_equal(teffi_member_type_version(m, 3), 2);
    assert_int_equal(teffi_member_type_version(m, 8), 0);
    assert_int_equal(teffi_member_type_version(m, 77), -1);
    assert_null(teffi_view_find_member(view, members[0].node));
    types[0] = 3;
    versions[0] = 2;
    teffi_node node = {.view = view};
    const teffi_view *again = teffi_view_ref_current(&node);
    teffi_view_unref(view);
    assert_int_equal(teffi_member_type_version(teffi_view_find_member(again, first), 8), 0);
    teffi_view_unref(again);
}

static void hashes_spread_over_partitions(void **state)
{
    assert_int_equal(teffi_partition_of_hash(0), 0);
    assert_int_equal(teffi_partition_of_hash(UINT64_MAX), TEFFI_PARTITIONS - 1);
    assert_int_equal(teffi_partition_of_hash((uint64_t)1 << 56), 1);
    assert_int_equal(teffi_partition_of_hash(((uint64_t)1 << 56) - 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_partition_has_an_active_owner),
        cmocka_unit_test(shares_are_even),
        cmocka_unit_test(only_what_must_moves),
        cmocka_unit_test(owners_do_not_depend_on_order),
        cmocka_unit_test(leaving_members_own_nothing),
        cmocka_unit_test(an_empty_view_is_allowed),
        cmocka_unit_test(members_are_copies),
        cmocka_unit_test(hashes_spread_over_partitions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
