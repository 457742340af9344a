/* test_locate.c - look-ups that wait for a silo that is gone: how often they try, and how often the
 * store is read for all of them; and that a new view ends the waiting. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "call/calls.h"
#include "cluster.pb-c.h"
#include "cluster/membership.h"
#include "cluster/join.h"
#include "call/ctx.h"
#include "cluster/rows.h"
#include "directory/partition.h"
#include "node/ask.h"
#include "node/deliver.h"
#include "request/route.h"
#include "lab.h"
#include "store/engine.h"

enum { CALLS = 300, TIMEOUT_MS = 2000 };

static lab *l;
static teff_ctx *ctx;
static teffi_node *node;

/* ---- what is counted ---- */

static teffi_platform real;
static _Atomic int reads, sends, timers;
static const teffi_node_id ghost = {12345, 1}; /* a silo that is in the table, and nowhere else */
static _Atomic bool ghost_leaves;
static _Atomic bool holding; /* the next scan waits for the test */
static teffi_store_op *_Atomic held;
static const teffi_exec_ops *real_exec;
static teffi_exec_ops counting_exec;
static const teffi_store_ops *real_store;
static const teffi_net_ops *real_net;
static teffi_store_ops counting_store;
static teffi_net_ops counting_net;

static void submit(teffi_store *store, teffi_store_op *op)
{
    reads += op->kind == TEFFI_STORE_READ || op->kind == TEFFI_STORE_SCAN;
    if (op->kind == TEFFI_STORE_SCAN && atomic_exchange(&holding, false))
        held = op;
    else
        real_store->submit(store, op);
}

static void timer_set(teffi_exec *exec, teffi_timer *timer, uint64_t due_ns)
{
    timers++;
    real_exec->timer_set(exec, timer, due_ns);
}

/* While ghost_leaves: the link to it ends between the sender's last step and the net's answer. */
static teff_err send_one(teffi_net *net, teffi_node_id to, teffi_msg *msg)
{
    sends++;
    if (!ghost_leaves || !teffi_node_equals(to, ghost))
        return real_net->send(net, to, msg);
    teffi_node_send_outcomes_and_free_relays(node, teffi_calls_end_sent_to(&node->home, ghost));
    return TEFF_E_CLOSED;
}

static teff_err exec_new(const teffi_platform *platform, unsigned workers,
                         const teff_sched_options *opt, teffi_exec **exec)
{
    teff_err err = real.exec_new(platform, workers, opt, exec);
    real_exec = (*exec)->ops;
    counting_exec = *real_exec;
    counting_exec.timer_set = timer_set;
    (*exec)->ops = &counting_exec;
    return err;
}

static teff_err net_new(const teffi_platform *platform, const teffi_net_options *opt,
                        teffi_net **net, char *text)
{
    teff_err err = real.net_new(platform, opt, net, text);
    real_net = (*net)->ops;
    counting_net = *real_net;
    counting_net.send = send_one;
    (*net)->ops = &counting_net;
    return err;
}

static teff_err store_open(const teffi_platform *platform, const char *address, teffi_store **store,
                           char *text)
{
    teff_err err = real.store_open(platform, address, store, text);
    real_store = (*store)->ops;
    counting_store = *real_store;
    counting_store.submit = submit;
    (*store)->ops = &counting_store;
    return err;
}

static teff_silo *counted_silo(lab_record *record)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .store = "memory", .workers = 2};
    teff_silo *silo;
    teffi_silo_init_platform(&real, TEFF_LOG_WARN);
    teffi_platform platform = real;
    platform.exec_new = exec_new;
    platform.net_new = net_new;
    platform.store_open = store_open;
    assert_int_equal(teffi_silo_new_on_platform(&platform, &opt, &silo, text), TEFF_OK);
    lab_host_all(silo, record);
    assert_int_equal(teff_silo_start(silo, text), TEFF_OK);
    return silo;
}

/* ---- the ghost ---- */

static void write_ghost(bool dead)
{
    teffi_rows rows;
    uint32_t types[] = {lab_single_info.id};
    teffi_member_row row = {.member = {.node = ghost,
                                       .status = TEFFI_ACTIVE,
                                       .types = types,
                                       .n_types = 1,
                                       .lease_ms = TEFFI_LEASE_MS}};
    strcpy(row.member.address, "127.0.0.1:1");
    lab_ok(ctx, teffi_rows_read(ctx, &rows));
    for (size_t i = 0; i < rows.n; i++)
        if (rows.rows[i].member.node.silo == ghost.silo)
            row.etag = rows.rows[i].etag;
    row.dead = dead;
    lab_ok(ctx, teffi_rows_write(ctx, &rows, &row, 1));
    lab_ok(ctx, teffi_membership_refresh(ctx, 0));
}

static int setup(void **state)
{
    l = calloc(1, sizeof *l);
    assert_non_null(l);
    l->silos[0] = counted_silo(&l->record);
    l->n = 1;
    ctx = l->ctx[0] = teff_silo_new_ctx(l->silos[0]);
    node = &l->silos[0]->node;
    lab_until(!node->grains->shards->recovering);
    write_ghost(false);
    return 0;
}

static int teardown(void **state)
{
    write_ghost(true);
    lab_until(!teffi_lookups_are_pending(node->grains));
    lab_close(l);
    return 0;
}

static teffi_ident ident_of(const int64_t *key)
{
    return teffi_ident_of(&node->grains->secret, lab_single_info.id, (const uint8_t *)key,
                          sizeof *key);
}

static bool owned_by_ghost(int64_t key)
{
    const teffi_view *view = teffi_view_ref_current(node);
    unsigned partition = teffi_partition_of_hash(ident_of(&key).hash);
    bool is = teffi_node_equals(teffi_view_owner(view, partition), ghost);
    teffi_view_unref(view);
    return is;
}

static int64_t next_key(int64_t key, bool of_ghost)
{
    do
        key++;
    while (owned_by_ghost(key) != of_ghost);
    return key;
}

static void start_calls(teff_call *calls, bool of_ghost)
{
    int64_t key = 0;
    for (int i = 0; i < CALLS; i++) {
        key = next_key(key, of_ghost);
        lab_ok(ctx, lab_single_add_async(ctx, key, lab_number(.n = 1), NULL, &calls[i]));
    }
}

/* The directory names the ghost as the holder. */
static void hold_by_ghost(void)
{
    int64_t key = 0;
    for (int i = 0; i < CALLS; i++) {
        teffi_pid holder, pid = {ghost, 20, 1};
        key = next_key(key, false);
        teffi_ident ident = ident_of(&key);
        assert_int_equal(teffi_partition_execute_directory_method(
                             node->grains, TEFFI_METHOD_REGISTER, &ident, pid, &holder, NULL),
                         TEFF_OK);
    }
}

/* ---- */

static void the_store_is_read_once_for_all(void **state)
{
    teff_call calls[CALLS];
    teff_ctx_set_timeout(ctx, TIMEOUT_MS);
    reads = 0;
    start_calls(calls, true);
    (void)!teff_await_all(ctx, calls, CALLS);
    assert_true(reads < CALLS);
}

static void tries_become_rare(void **state)
{
    enum { TRIES_MAX = 30 };
    teff_call calls[CALLS];
    hold_by_ghost();
    teff_ctx_set_timeout(ctx, TIMEOUT_MS);
    sends = 0;
    start_calls(calls, false);
    (void)!teff_await_all(ctx, calls, CALLS);
    assert_true(sends < CALLS * TRIES_MAX);
}

static void a_new_view_ends_the_waiting(void **state)
{
    teff_call calls[CALLS];
    hold_by_ghost();
    sends = 0;
    start_calls(calls, false);
    lab_until(sends >= CALLS); /* all have tried */
    write_ghost(true);
    lab_ok(ctx, teff_await_all(ctx, calls, CALLS));
}

/* What the net refuses was not sent: no end of a link ends it, it goes elsewhere. */
static void a_refused_request_is_not_lost_with_the_link(void **state)
{
    teff_call calls[CALLS];
    hold_by_ghost();
    sends = 0;
    ghost_leaves = true;
    start_calls(calls, false);
    lab_until(sends >= CALLS);
    ghost_leaves = false;
    write_ghost(true);
    lab_ok(ctx, teff_await_all(ctx, calls, CALLS));
}

static bool any_ended(const teff_call *calls)
{
    for (int i = 0; i < CALLS; i++)
        if (teff_call_ended(ctx, calls[i]))
            return true;
    return false;
}

/* The ghost could come back, and place the grains at itself: until it is dead, the look-ups wait.
 * Then this silo, which is leaving, is alone. */
static void a_silo_that_leaves_waits_for_the_last_active_one(void **state)
{
    teff_call calls[CALLS];
    teff_ctx_set_timeout(ctx, 10 * TIMEOUT_MS);
    lab_ok(ctx, teffi_membership_begin_leaving(ctx));
    sends = 0;
    start_calls(calls, true);
    lab_until(sends > 0);
    assert_false(any_ended(calls));
    write_ghost(true);
    for (int i = 0; i < CALLS; i++) {
        lab_fails(ctx, teff_await(ctx, calls[i], NULL), TEFF_E_UNAVAILABLE);
        assert_non_null(strstr(teff_error(ctx), "the call did not run"));
    }
}

static bool in_view(teffi_node_id id)
{
    const teffi_view *view = teffi_view_ref_current(node);
    bool in = teffi_view_find_member(view, id) != NULL;
    teffi_view_unref(view);
    return in;
}

/* Not only when the ghost is declared dead. */
static void a_look_up_that_nobody_waits_for_ends(void **state)
{
    teff_call calls[CALLS];
    teff_ctx_set_timeout(ctx, 100);
    start_calls(calls, true);
    assert_int_equal(teff_await_all(ctx, calls, CALLS), TEFF_E_TIMEOUT);
    assert_true(in_view(ghost));
    lab_until(!teffi_lookups_are_pending(node->grains));
    assert_true(in_view(ghost));
}

/* Many ask for a view that nobody has yet: the rows are read for all of them together. */
static void readings_are_shared(void **state)
{
    enum { ASKERS = 200 };
    teffi_call *calls[ASKERS];
    Teff__Cluster__ViewAtLeast ask = TEFF__CLUSTER__VIEW_AT_LEAST__INIT;
    ask.version = 1000;
    reads = timers = 0;
    holding = true;
    for (int i = 0; i < ASKERS; i++)
        calls[i] =
            teffi_ctx_start_rpc(ctx, node->id, TEFFI_SLOT_MEMBERSHIP, TEFFI_METHOD_VIEW_AT_LEAST,
                                &ask.base, 20000, &teff__cluster__view_is__descriptor);
    lab_until(held && timers >= ASKERS - 1); /* all but one wait for the one that reads */
    assert_true(reads < ASKERS / 2);         /* 1, and those of heartbeats */
    real_store->submit(node->store, held);
    for (int i = 0; i < ASKERS; i++)
        assert_int_equal(teffi_ctx_await_call(ctx, calls[i], NULL), TEFF_E_TIMEOUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_store_is_read_once_for_all, setup, teardown),
        cmocka_unit_test_setup_teardown(tries_become_rare, setup, teardown),
        cmocka_unit_test_setup_teardown(a_new_view_ends_the_waiting, setup, teardown),
        cmocka_unit_test_setup_teardown(a_refused_request_is_not_lost_with_the_link, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_silo_that_leaves_waits_for_the_last_active_one, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_look_up_that_nobody_waits_for_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(readings_are_shared, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
