/* test_leave.c - silos that leave one after another, while the first still passes requests on; the
 * last one has no silo to ask. */
#include "cluster.pb-c.h"
#include "cluster/join.h"
#include "cluster/view.h"
#include "node/ask.h"
#include "lab.h"

enum { LEAVE_MS = 30000 };

static bool sees(teff_silo *silo, teffi_node_id other)
{
    const teffi_view *view = teffi_view_ref_current(&silo->node);
    bool found = teffi_view_find_member(view, other) != NULL;
    teffi_view_unref(view);
    return found;
}

/* Else the first would still send it requests, which the second, gone, could not pass on. */
static void one_that_left_learns_that_another_leaves(void **state)
{
    lab *l = lab_open(3);
    teffi_node_id second = l->silos[1]->node.id;
    uint64_t deadline_ns = teffi_now(&l->silos[0]->platform) + LEAVE_MS * 1000000ull;
    lab_ok(l->ctx[0], teffi_silo_leave(l->ctx[0], l->silos[0], deadline_ns));
    assert_true(sees(l->silos[0], second));
    assert_int_equal(lab_remove(l, 1), TEFF_OK);
    assert_false(sees(l->silos[0], second));
    lab_close(l);
}

/* As above, but the second joined after the first had left, so its views never had the first. */
static void one_that_left_learns_that_a_later_one_leaves(void **state)
{
    Teff__Cluster__ViewAtLeast ask = TEFF__CLUSTER__VIEW_AT_LEAST__INIT;
    lab *l = lab_open(2);
    teff_ctx *ctx = l->ctx[0];
    uint64_t deadline_ns = teffi_now(&l->silos[0]->platform) + LEAVE_MS * 1000000ull;
    lab_ok(ctx, teffi_silo_leave(ctx, l->silos[0], deadline_ns));
    int later = lab_add(l);
    teffi_node_id id = l->silos[later]->node.id;
    lab_ok(ctx, teffi_membership_refresh(ctx, 0));
    lab_ok(ctx, teffi_ctx_run_rpc(ctx, id, TEFFI_SLOT_MEMBERSHIP, TEFFI_METHOD_VIEW_AT_LEAST,
                                  &ask.base, LEAVE_MS, NULL, NULL));
    assert_true(sees(l->silos[0], id));
    assert_int_equal(lab_remove(l, later), TEFF_OK);
    assert_false(sees(l->silos[0], id));
    lab_close(l);
}

/* Else the call, and with it the stop of the silo, would wait for the call's deadline. */
static void the_last_silo_to_leave_ends_calls_of_grains_that_are_nowhere(void **state)
{
    lab_number *out;
    lab *l = lab_open(1);
    lab_ok(l->ctx[0], teffi_membership_begin_leaving(l->ctx[0]));
    teff_ctx_set_timeout(l->ctx[0], LEAVE_MS / 2);
    lab_fails(l->ctx[0], lab_single_add(l->ctx[0], 1, lab_number(.n = 1), &out),
              TEFF_E_UNAVAILABLE);
    assert_non_null(strstr(teff_error(l->ctx[0]), "the call did not run"));
    lab_close(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_left_learns_that_another_leaves),
        cmocka_unit_test(one_that_left_learns_that_a_later_one_leaves),
        cmocka_unit_test(the_last_silo_to_leave_ends_calls_of_grains_that_are_nowhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
