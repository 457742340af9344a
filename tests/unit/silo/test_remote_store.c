/* test_remote_store.c - a write through a seed's store whose response is lost: its outcome is
 * unknown once it is over, not while it may still be done. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "lab.h"
#include "row_op.h"
#include "cluster/membership.h"
#include "node/ask.h"
#include "store/engine.h"
#include "store/store.h"

/* ---- the seed's store: in memory; operations on one table wait while it is held ---- */

enum { HELD_MAX = 16 };

typedef struct door {
    teffi_store base;
    teffi_store *rows;
    pthread_mutex_t lock;
    bool hold; /* guarded by lock */
    teffi_store_op *held[HELD_MAX];
    _Atomic int n_held; /* written under lock */
    _Atomic bool full;  /* reads of that table are refused */
    _Atomic int n_refused;
} door;

static door *seeds;

static void submit(teffi_store *store, teffi_store_op *op)
{
    door *d = (door *)store;
    bool held = false;
    if (d->full && op->kind == TEFFI_STORE_READ && strcmp(op->rows[0].table, "words") == 0) {
        d->n_refused++;
        teffi_store_op_set_error(op, TEFF_E_OVERLOADED, "too many operations wait");
        op->done(op);
        return;
    }
    pthread_mutex_lock(&d->lock);
    if (d->hold && strcmp(op->rows[0].table, "words") == 0 && d->n_held < HELD_MAX) {
        d->held[d->n_held++] = op;
        held = true;
    }
    pthread_mutex_unlock(&d->lock);
    if (!held)
        d->rows->ops->submit(d->rows, op);
}

static void set_hold(door *d, bool hold)
{
    pthread_mutex_lock(&d->lock);
    d->hold = hold;
    for (int i = 0; i < d->n_held && !hold; i++) /* in order, as the contract has it */
        d->rows->ops->submit(d->rows, d->held[i]);
    d->n_held = hold ? d->n_held : 0;
    pthread_mutex_unlock(&d->lock);
}

static void close_door(teffi_store *store)
{
    teffi_store *rows = ((door *)store)->rows;
    rows->ops->close(rows);
}

static void free_door(teffi_store *store)
{
    door *d = (door *)store;
    teffi_store_close(d->rows);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static teff_err open_door(const teffi_platform *platform, const char *address, teffi_store **store,
                          char *text)
{
    static const teffi_store_ops ops = {submit, close_door, free_door};
    door *d = calloc(1, sizeof *d);
    assert_non_null(d);
    d->base.ops = &ops;
    pthread_mutex_init(&d->lock, NULL);
    *store = &d->base;
    seeds = d;
    return teffi_store_open("memory", &d->rows, text);
}

static teff_silo *start_silo(const char *seed)
{
    static lab_record record;
    teffi_platform platform;
    teff_silo_options opt = {.size = sizeof opt, .workers = 1, .seeds = {seed}};
    teff_silo *silo;
    teffi_silo_init_platform(&platform, TEFF_LOG_ERROR);
    platform.store_open = open_door;
    assert_int_equal(teffi_silo_new_on_platform(&platform, &opt, &silo, NULL), TEFF_OK);
    lab_host_all(silo, &record);
    assert_int_equal(teff_silo_start(silo, NULL), TEFF_OK);
    return silo;
}

static void break_links(teff_silo *from, teff_silo *to)
{
    teffi_net *net = from->node.home.net;
    net->ops->peer_remove(net, to->node.id, false);
    assert_int_equal(net->ops->peer_add(net, to->node.id, to->node.address), TEFF_OK);
}

/* full: at first the seed's store does not take the read that tells whether the write is over. */
static void write_and_lose_the_response(bool full)
{
    teff_silo *seed = start_silo(NULL), *other = start_silo(teff_silo_address(seed));
    teff_ctx *ctx = teff_silo_new_ctx(other);
    row_op write = row_op_new(ctx, TEFFI_STORE_WRITE), read;
    pthread_t thread;
    seeds->full = full;
    set_hold(seeds, true);
    assert_int_equal(pthread_create(&thread, NULL, row_op_run, &write), 0);
    lab_until(seeds->n_held == 1);
    break_links(seed, other);
    lab_until(!full || seeds->n_refused > 1 || write.done);
    seeds->full = false;
    lab_until(seeds->n_held == 2 || write.done); /* a read of the row, behind the write */
    assert_false(write.done);
    set_hold(seeds, false);
    pthread_join(thread, NULL);
    assert_int_equal(write.op.err, TEFF_E_UNKNOWN);
    read = row_op_new(ctx, TEFFI_STORE_READ);
    (void)row_op_run(&read);
    assert_int_equal(read.op.err, TEFF_OK);
    assert_int_equal(read.row.value.len, 1);
    teff_ctx_free(ctx);
    teff_silo_free(other);
    teff_silo_free(seed);
}

static void a_write_is_unknown_when_it_is_over(void **state)
{
    write_and_lose_the_response(false);
}

static void a_full_store_does_not_say_that_it_is_over(void **state)
{
    write_and_lose_the_response(true);
}

/* Makes the seed forget its newest view: it has the one before the other silo joined. */
static void make_seed_lag(teff_silo *seed)
{
    teffi_node *node = &seed->node;
    teffi_follow *follow = &node->membership->follow;
    pthread_mutex_lock(&follow->lock);
    const teffi_view *now = node->view;
    size_t own = !teffi_node_equals(now->members[0].node, node->id);
    teffi_view *old = teffi_view_new(now->version - 1, &now->members[own], 1);
    assert_non_null(old);
    pthread_mutex_lock(&node->lock);
    node->view = old;
    pthread_mutex_unlock(&node->lock);
    follow->adopted = old->version;
    pthread_mutex_unlock(&follow->lock);
    teffi_view_unref(now);
}

/* The table lists the silo, but its seed has not read it yet. */
static void a_silo_that_has_just_joined_asks_again(void **state)
{
    teff_silo *seed = start_silo(NULL), *other = start_silo(teff_silo_address(seed));
    teff_ctx *ctx = teff_silo_new_ctx(other);
    row_op write = row_op_new(ctx, TEFFI_STORE_WRITE);
    make_seed_lag(seed);
    (void)row_op_run(&write);
    assert_int_equal(write.op.err, TEFF_OK);
    assert_true(teffi_view_current_has_member(&seed->node, other->node.id));
    teff_ctx_free(ctx);
    teff_silo_free(other);
    teff_silo_free(seed);
}

/* It may still read the members. What else it asks for is refused at once. */
static void a_silo_that_has_left_is_refused(void **state)
{
    const uint64_t leave_ns = UINT64_C(60000000000), again_ns = UINT64_C(4000000000);
    teff_silo *seed = start_silo(NULL), *other = start_silo(teff_silo_address(seed));
    teff_ctx *ctx = teff_silo_new_ctx(other);
    row_op write = row_op_new(ctx, TEFFI_STORE_WRITE);
    uint64_t begun_ns = teffi_now(&other->platform);
    lab_ok(ctx, teffi_silo_leave(ctx, other, begun_ns + leave_ns));
    begun_ns = teffi_now(&other->platform);
    (void)row_op_run(&write);
    assert_int_equal(write.op.err, TEFF_E_IO);
    assert_non_null(strstr(write.op.text, "it is not in its seed's view"));
    assert_true(teffi_now(&other->platform) - begun_ns < again_ns);
    lab_ok(ctx, teffi_membership_refresh(ctx, 0));
    teff_ctx_free(ctx);
    teff_silo_free(other);
    teff_silo_free(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_write_is_unknown_when_it_is_over),
                                       cmocka_unit_test(a_full_store_does_not_say_that_it_is_over),
                                       cmocka_unit_test(a_silo_that_has_just_joined_asks_again),
                                       cmocka_unit_test(a_silo_that_has_left_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
