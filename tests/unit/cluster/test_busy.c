/* test_busy.c - silos whose users' turns take all workers, threads or stacks still say that they
 * live, and respond for their part of the directory. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cluster/membership.h"
#include "call/call.h"
#include "cluster/rows.h"
#include "directory/partition.h"
#include "node/deliver.h"
#include "directory/client.h"
#include "lab.h"
#include "os/pages.h"

enum { CALLS = 48, GUARDS = 120, WAITERS = 20000, REFUSED = 100, PARTS = 64 };

static lab *l;
static teff_call calls[WAITERS];
static unsigned n_calls;

/* ---- users' turns ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static bool gate, declares;
static _Atomic int inside[LAB_SILOS_MAX];

static int index_of(const teffi_node *node)
{
    int i = 0;
    while (l->silos[i] && &l->silos[i]->node != node)
        i++;
    return i;
}

/* Keeps its thread and calls nothing of teff's. */
static teff_err stay(lab_rare *self, lab_text *out)
{
    inside[index_of(self->ctx->node)]++;
    if (declares)
        teff_blocking_begin();
    pthread_mutex_lock(&lock);
    while (!gate)
        pthread_cond_wait(&opened, &lock);
    pthread_mutex_unlock(&lock);
    if (declares)
        teff_blocking_end();
    return TEFF_OK;
}

static void host_stay(teff_silo *silo)
{
    static const lab_rare_methods methods = {.where = stay};
    assert_int_equal(teff_silo_host(silo, lab_rare_type(&methods, NULL)), TEFF_OK);
}

static void set_gate(bool open)
{
    pthread_mutex_lock(&lock);
    gate = open;
    pthread_cond_broadcast(&opened);
    pthread_mutex_unlock(&lock);
}

static void begin(bool seeded, bool blocking)
{
    set_gate(false);
    declares = blocking;
    n_calls = 0;
    inside[0] = inside[1] = 0;
    l = calloc(1, sizeof *l);
    assert_non_null(l);
    l->more = host_stay;
    if (seeded)
        snprintf(l->store, sizeof l->store, "memory");
    else
        lab_fresh_store(l->store);
    (void)lab_add(l);
    if (seeded)
        snprintf(l->store, sizeof l->store, "seed");
    (void)lab_add(l);
    lab_until(teff_silo_members(l->silos[0]) == 2 && teff_silo_members(l->silos[1]) == 2);
}

/* As many as there may be without a slot, and those that have one. */
static void keep_workers(int at_least)
{
    char key[20];
    for (; n_calls < CALLS; n_calls++) {
        snprintf(key, sizeof key, "stay-%u", n_calls);
        teff_ctx *ctx = l->ctx[n_calls % 2];
        lab_ok(ctx, lab_rare_where_async(ctx, key, NULL, &calls[n_calls]));
    }
    lab_until(inside[0] >= at_least && inside[1] >= at_least);
}

static void finish(void)
{
    set_gate(true);
    l->record.gate = true;
    for (unsigned i = 0; i < n_calls; i++)
        (void)!teff_await_all(l->ctx[i % 2], &calls[i], 1);
    lab_close(l);
}

/* ---- what the cluster needs ---- */

static uint64_t figure_of(int silo)
{
    uint64_t figure = 0;
    lab_ok(l->ctx[0], lab_read_alive(l->ctx[0], l->silos[silo]->node.id, &figure));
    return figure;
}

/* A write may have been on its way: only the second says that more are made. */
static void says_twice_that_it_lives(int silo)
{
    for (int i = 0; i < 2; i++) {
        uint64_t before = figure_of(silo);
        lab_until(figure_of(silo) != before);
    }
}

/* Much at once, so that the other one leaves the reading to its workers. */
static void send_much(int from)
{
    static const uint8_t bytes[8192];
    teffi_node *node = &l->silos[from]->node;
    for (int i = 0; i < 64; i++) {
        teffi_msg *msg = teffi_msg_new(TEFFI_MSG_ONEWAY);
        assert_non_null(msg);
        msg->src = node->id;
        msg->to = (teffi_pid){.node = l->silos[1 - from]->node.id, .slot = 9}; /* nobody's */
        msg->raw = teff_arena_copy(&msg->arena, bytes, sizeof bytes);
        msg->raw_len = sizeof bytes;
        assert_int_equal(teffi_node_send(node, msg->to.node, msg), TEFF_OK);
    }
}

static void responds_for_the_directory(int asker)
{
    static const _Atomic uint64_t never = UINT64_MAX;
    teffi_node *node = &l->silos[asker]->node;
    for (int64_t key = 0; key < PARTS; key++) {
        teffi_pid holder;
        teffi_ident ident = teffi_ident_of(&node->grains->secret, lab_single_info.id,
                                           (const uint8_t *)&key, sizeof key);
        lab_fails(l->ctx[asker], teffi_directory_lookup(l->ctx[asker], &ident, &never, &holder),
                  TEFF_E_NOT_FOUND);
    }
}

static void is_well(void)
{
    for (int i = 0; i < 2; i++) {
        send_much(i);
        responds_for_the_directory(i);
        says_twice_that_it_lives(i);
        assert_int_equal(teff_silo_members(l->silos[i]), 2);
    }
}

/* ---- tests ---- */

static void all_workers_compute(void **state)
{
    begin(false, false);
    keep_workers(4);
    is_well();
    finish();
}

static void all_workers_compute_and_the_store_is_a_seeds(void **state)
{
    begin(true, false);
    keep_workers(4);
    is_well();
    finish();
}

/* One more turn waits for the one that does not end. out: false: there was no stack for it. */
static bool add_waiter(void)
{
    static const char *last[] = {"last"};
    teff_ctx *ctx = l->ctx[n_calls % 2];
    char key[20];
    int before = l->record.went;
    snprintf(key, sizeof key, "wait-%u", n_calls);
    lab_ok(ctx, lab_relay_go_async(ctx, key, lab_path(.n_keys = 1, .keys = last), NULL,
                                   &calls[n_calls++]));
    const teffi_call *call = LIST_FIRST(&ctx->calls);
    lab_until(l->record.went > before || !lab_pending(call));
    return l->record.went > before;
}

/* Turns that wait have all stacks that there may be; those that threads keep free, too. */
static void all_stacks_wait(void **state)
{
    begin(true, false);
    teffi_guards_simulated = GUARDS;
    lab_ok(l->ctx[0],
           lab_relay_go_async(l->ctx[0], "last", lab_path(.hold = true), NULL, &calls[0]));
    lab_until(l->record.held == 1);
    n_calls = 1;
    for (unsigned refused = 0; refused < REFUSED; refused++) {
        assert_in_range(n_calls, 1, WAITERS - 1);
        if (add_waiter())
            refused = 0;
    }
    is_well();
    teffi_guards_simulated = 0;
    finish();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_workers_compute),
        cmocka_unit_test(all_workers_compute_and_the_store_is_a_seeds),
        cmocka_unit_test(all_stacks_wait),
    };
    return cmocka_run_group_tests_name("cluster/busy", tests, NULL, NULL);
}
