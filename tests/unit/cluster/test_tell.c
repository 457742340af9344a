/* test_tell.c - which silos are told of a view: each once, also those that left or are unknown. */
#include "cluster/membership.h"

#include "call/ctx.h"
#include "cluster/join.h"
#include "lab.h"

static lab *l;

static int setup(void **state)
{
    l = lab_open(2);
    return 0;
}

static int teardown(void **state)
{
    lab_close(l);
    return 0;
}

static unsigned told_of_view(bool departed_too)
{
    teff_ctx *ctx = l->ctx[0];
    uint32_t calls_before = ctx->n_calls;
    teffi_membership_push_view(ctx, departed_too);
    return ctx->n_calls - calls_before;
}

static void each_silo_is_told_once(void **state)
{
    teffi_membership *m = l->silos[0]->node.membership;
    teffi_node_id member = l->silos[1]->node.id, stranger = {9, 9};
    assert_int_equal(told_of_view(true), 1);
    teffi_outsiders_add_connection(m, member);
    assert_int_equal(told_of_view(true), 1);
    for (int i = 0; i < 3; i++)
        teffi_outsiders_add_connection(m, stranger);
    assert_int_equal(told_of_view(true), 2);
    assert_int_equal(told_of_view(false), 1);
    for (uint32_t i = 0; i < 2 * TEFFI_OUTSIDERS_MAX; i++)
        teffi_outsiders_add_connection(m, (teffi_node_id){100 + i, 1});
    assert_int_equal(told_of_view(true), 1 + TEFFI_OUTSIDERS_MAX);
}

static unsigned departed(teffi_membership *m)
{
    pthread_mutex_lock(&m->follow.lock);
    unsigned n = (unsigned)m->follow.n_departed;
    pthread_mutex_unlock(&m->follow.lock);
    return n;
}

static void left_at(teffi_membership *m, uint64_t since_ns)
{
    pthread_mutex_lock(&m->follow.lock);
    m->follow.departed[0].since_ns = since_ns;
    pthread_mutex_unlock(&m->follow.lock);
}

/* It may still forward requests, and say goodbye. */
static void the_connection_to_a_silo_that_left_is_kept_for_a_while(void **state)
{
    teffi_membership *m = l->silos[0]->node.membership;
    assert_int_equal(lab_remove(l, 1), TEFF_OK);
    lab_until(departed(m) == 1);
    left_at(m, UINT64_MAX);
    teffi_membership_disconnect_departed(m);
    assert_int_equal(departed(m), 1);
    left_at(m, 0);
    lab_until(departed(m) == 0); /* the next heartbeat */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_silo_is_told_once, setup, teardown),
        cmocka_unit_test_setup_teardown(the_connection_to_a_silo_that_left_is_kept_for_a_while,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
