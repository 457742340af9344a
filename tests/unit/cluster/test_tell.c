/* test_tell.c - which silos are told of a view: each once, also those that left or are unknown; and
 * how a silo learns of one that it was not told of. */
#include "cluster/membership.h"

#include "call/ctx.h"
#include "cluster.pb-c.h"
#include "cluster/join.h"
#include "lab.h"
#include "node/ask.h"

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

static void stop_looks(teffi_membership *m)
{
    pthread_mutex_lock(&m->beat.lock);
    m->beat.stopped = true;
    pthread_mutex_unlock(&m->beat.lock);
    lab_until(!m->beat.looks);
}

static teff_err send_probe(teff_ctx *ctx, teffi_node_id to)
{
    const Teff__Cluster__Probed probe = TEFF__CLUSTER__PROBED__INIT;
    return teffi_ctx_run_rpc(ctx, to, TEFFI_SLOT_MEMBERSHIP, TEFFI_METHOD_PROBE, &probe.base, 60000,
                             &teff__cluster__probed__descriptor, NULL);
}

/* Nobody asks silo 0 to adopt the view, and it does not look at the table by itself. */
static void a_silo_that_hears_of_a_newer_view_reads_the_table(void **state)
{
    teffi_node *old = &l->silos[0]->node;
    teff_ctx *ctx = l->ctx[1];
    teffi_rows rows;
    stop_looks(old->membership);
    lab_ok(ctx, teffi_rows_read(ctx, &rows));
    lab_ok(ctx, teffi_rows_write(ctx, &rows, NULL, 0));
    lab_ok(ctx, teffi_membership_refresh(ctx, rows.version + 1));
    lab_ok(ctx, send_probe(ctx, old->id));
    lab_until(teffi_membership_version(old) == rows.version + 1);
    lab_ok(ctx, teffi_rows_read(ctx, &rows)); /* and later again, for another reason */
    lab_ok(ctx, teffi_rows_write(ctx, &rows, NULL, 0));
    teffi_membership_refresh_soon(old->membership);
    lab_until(teffi_membership_version(old) == rows.version + 1);
}

static void an_older_view_is_no_reason_to_read(void **state)
{
    teffi_node *node = &l->silos[0]->node;
    teffi_membership *m = node->membership;
    stop_looks(m);
    lab_until(!m->follow.looking);
    uint64_t looked_ns = m->follow.looked_ns;
    teffi_membership_hear_view(node, teffi_membership_version(node));
    teffi_membership_hear_view(node, 1);
    assert_false(m->follow.looking);
    assert_int_equal(m->follow.looked_ns, looked_ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_silo_is_told_once, setup, teardown),
        cmocka_unit_test_setup_teardown(the_connection_to_a_silo_that_left_is_kept_for_a_while,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_silo_that_hears_of_a_newer_view_reads_the_table, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_older_view_is_no_reason_to_read, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
