/* test_faults.c - views and a membership when a request for memory fails: nothing is made, and
 * nothing is lost. */
#include "../faults.h"

#include <string.h>
#include "cluster/membership.h"

enum { MEMBERS = 3 };

static uint32_t types[] = {3, 8};
static teffi_member members[MEMBERS];

static teff_err make_view(void)
{
    teffi_view *view = teffi_view_new(1, members, MEMBERS);
    if (!view)
        return TEFF_E_NOMEM;
    assert_int_equal(view->n_active, MEMBERS);
    assert_false(teffi_node_is_none(teffi_view_owner(view, 0)));
    teffi_view_unref(view);
    return TEFF_OK;
}

static void a_view_is_made_whole_or_not_at_all(void **state)
{
    for (unsigned i = 0; i < MEMBERS; i++)
        members[i] = (teffi_member){.node = {i + 1, 1},
                                    .status = TEFFI_ACTIVE,
                                    .address = "h:1",
                                    .types = types,
                                    .n_types = 2};
    assert_int_equal(fault_sweep(make_view, true), 3 + MEMBERS);
}

/* ---- a membership ---- */

static uint64_t on_clock(void *arg)
{
    return 1000000000;
}

static uint64_t on_random(void *arg)
{
    return 0x9e3779b97f4a7c15u;
}

static const teffi_exec_ops exec_ops;
static teffi_platform platform;
static teffi_exec exec = {.ops = &exec_ops, .platform = &platform};
static teffi_node node;

static teff_err give_exec(const teffi_platform *on, unsigned workers, const teff_sched_options *opt,
                          teffi_exec **out)
{
    *out = &exec;
    return TEFF_OK;
}

static int setup(void **state)
{
    platform = (teffi_platform){.mono_ns = on_clock, .random = on_random, .exec_new = give_exec};
    return teffi_node_init(&node, &platform, TEFFI_ROLE_SILO, "test", 1, NULL) != TEFF_OK;
}

static int teardown(void **state)
{
    teffi_node_fini(&node);
    return 0;
}

/* The node's target of an earlier one is free again. */
static teff_err make_membership(void)
{
    node.targets[TEFFI_SLOT_MEMBERSHIP].handle = NULL;
    node.membership = NULL;
    teffi_membership *m = teffi_membership_new(&node, types, NULL, 2);
    assert_ptr_equal(m, node.membership);
    if (!m)
        return TEFF_E_NOMEM;
    assert_int_equal(m->n_types, 2);
    assert_memory_equal(m->types, types, sizeof types);
    teffi_membership_free(m);
    return TEFF_OK;
}

static void a_membership_that_cannot_be_made_is_not_the_nodes(void **state)
{
    assert_int_equal(fault_sweep(make_membership, true), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_view_is_made_whole_or_not_at_all),
        cmocka_unit_test_setup_teardown(a_membership_that_cannot_be_made_is_not_the_nodes, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
