/* test_deadline.c - who gives up when: calls inherit the deadline of their turn's caller, and a
 * request that is late does not run. On one silo and on two. */
#include <pthread.h>
#include <string.h>
#include "activation/waits.h"
#include "directory/shard.h"
#include "call/call.h"
#include "call/calls.h"
#include "lab.h"
#include "request/route.h"
#include "call/ctx.h"
#include "silo/client.h"

enum { SHORT_MS = 300, LONG_MS = 20000 };

static void give_up_soon(teff_ctx *ctx)
{
    teff_ctx_set_timeout(ctx, SHORT_MS);
}

/* The grain is free again long before a call's own 30 s are over. */
static void is_free(teff_ctx *ctx, const char *key)
{
    lab_number *out;
    teff_ctx_set_timeout(ctx, LONG_MS);
    lab_ok(ctx, lab_relay_go(ctx, key, lab_path(.n_keys = 0), &out));
}

static void a_cycle_ends_with_its_caller(int silos)
{
    lab *l = lab_open(silos);
    teff_ctx *ctx = l->ctx[0];
    const char *self[] = {"self"}, *round[] = {"b", "c", "a"};
    lab_number *out;
    for (int i = 0; i < silos; i++) /* else a probe would find the cycle (test_deadlock.c) */
        teffi_waits_stop(l->silos[i]->node.grains->waits);
    give_up_soon(ctx);
    lab_fails(ctx, lab_relay_go(ctx, "self", lab_path(.n_keys = 1, .keys = self), &out),
              TEFF_E_TIMEOUT);
    is_free(ctx, "self");
    give_up_soon(ctx);
    lab_fails(ctx, lab_relay_go(ctx, "a", lab_path(.n_keys = 3, .keys = round), &out),
              TEFF_E_TIMEOUT);
    is_free(ctx, "a");
    is_free(ctx, "b");
    is_free(ctx, "c");
    lab_close(l);
}

/* A request that is late before it starts does not run: then it gets more time. */
static void a_turn_that_is_held_until_late(lab *l, teff_ctx *ctx)
{
    const char *next[] = {"next"};
    lab_number *out;
    l->record.went = l->record.went_err = 0;
    for (uint32_t ms = SHORT_MS; !l->record.went; ms *= 2) {
        assert_true(ms < LONG_MS);
        teff_ctx_set_timeout(ctx, ms);
        lab_fails(
            ctx, lab_relay_go(ctx, "late", lab_path(.n_keys = 1, .keys = next, .hold = true), &out),
            TEFF_E_TIMEOUT);
    }
}

/* Another silo counts a call's time from when the request came: its deadline is later by that. */
static bool is_past(lab *l, uint32_t due_ms)
{
    uint64_t now_ns = teffi_now(l->silos[0]->node.platform);
    return teffi_ms_until_due(due_ms, (uint32_t)(now_ns / 1000000)) <= 0;
}

static void a_late_turn_is_told_at_its_next_call(int silos)
{
    lab *l = lab_open(silos);
    for (int warm = 0; warm < 2; warm++) { /* its callee: not there yet, idle */
        l->record.gate = false;
        a_turn_that_is_held_until_late(l, l->ctx[0]);
        assert_int_equal(l->record.went, 1);
        lab_until(is_past(l, l->record.held_due_ms));
        l->record.gate = true;
        lab_until(l->record.went_err == TEFF_E_TIMEOUT);
        is_free(l->ctx[0], "next");
        assert_int_equal(l->record.went, 2); /* by that look only */
    }
    lab_close(l);
}

/* It waits in the queue of a grain that computes, not among those that admission lets wait. */
static void a_late_request_does_not_run(void **state)
{
    lab *l = lab_open(1);
    teff_ctx *ctx = l->ctx[0], *other = teff_silo_new_ctx(l->silos[0]);
    lab_number *out;
    teff_call spins;
    lab_ok(ctx, lab_turns_write_async(ctx, "busy", lab_step(.spin = true), NULL, &spins));
    lab_until(l->record.held == 1);
    lab_fails(other, lab_turns_quick(other, "busy", lab_step(.seq = 1), &out), TEFF_E_TIMEOUT);
    l->record.gate = true;
    lab_ok(ctx, lab_turns_write_await(ctx, spins, &out));
    lab_ok(ctx, lab_turns_write(ctx, "busy", lab_step(.seq = 2), &out));
    assert_int_equal(l->record.started, 2); /* the first, and this one */
    teff_ctx_free(other);
    lab_close(l);
}

/* Its deadline has passed when the look-up for its grain ends: nowhere is the grain activated. */
static void a_request_located_late_does_not_run(void **state)
{
    static const uint8_t key[] = "looked-up";
    lab *l = lab_open(1);
    teffi_node *node = &l->silos[0]->node;
    lab_number *out;
    for (int late = 1; late >= 0; late--) {
        teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST);
        assert_non_null(msg);
        msg->src = (teffi_node_id){TEFFI_CLIENT_BIT | 1, 1}; /* one that is gone */
        msg->type_id = lab_turns_info.id;
        msg->method_id = lab_turns_info.methods[0].id;
        for (size_t i = 0; i < lab_turns_info.n_methods; i++)
            if (strcmp(lab_turns_info.methods[i].name, "lab.Turns.Write") == 0)
                msg->method_id = lab_turns_info.methods[i].id;
        msg->key = key;
        msg->key_len = sizeof key - 1;
        msg->deadline_ns = late ? 1 : teffi_now(node->platform) + 60000000000ull;
        uint64_t answered = node->dropped;
        msg->hops = 1;
        teffi_reroute_unsent_request(node->grains, msg, (teffi_node_id){0});
        lab_until(node->dropped == answered + 1);
        assert_int_equal(l->record.started, late ? 0 : 1);
        assert_int_equal(node->grains->shards->activations, late ? 0 : 1);
    }
    lab_ok(l->ctx[0], lab_turns_write(l->ctx[0], "looked-up", lab_step(.seq = 1), &out));
    lab_close(l);
}

static uint64_t pending_due_ns(teffi_node *node)
{
    uint64_t due_ns = UINT64_MAX;
    teffi_slab *slab = &node->home.calls.slab;
    const teffi_call *call;
    for (uint32_t slot = 0; (call = teffi_slab_at(slab, slot)); slot++) {
        uint64_t ns = teffi_call_due_ns(call);
        due_ns = ns < due_ns ? ns : due_ns;
    }
    return due_ns;
}

typedef struct asker {
    teff_ctx *ctx;
    teff_err err;
} asker;

static void *ask(void *arg)
{
    asker *a = arg;
    lab_number *out;
    a->err = lab_turns_again(a->ctx, "again", lab_step(.hold = true), &out);
    return NULL;
}

static void all_tries_share_a_deadline(void **state)
{
    enum { TRIES = 5, MS = 1000000 };
    lab *l = lab_open(1);
    teff_client *client = lab_client(l, (const int[]){0, -1});
    teffi_node *node = &client->node;
    asker a = {.ctx = teff_client_new_ctx(client)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, ask, &a), 0);
    lab_until(pending_due_ns(node) != UINT64_MAX);
    uint64_t first = pending_due_ns(node);
    for (int i = 0; i < TRIES; i++) { /* each waits 20 ms before the next */
        lab_until(pending_due_ns(node) != UINT64_MAX);
        assert_true(pending_due_ns(node) <= first + 2 * MS);
        assert_null(teffi_calls_end_sent_to(&node->home, l->silos[0]->node.id));
    }
    l->record.gate = true;
    pthread_join(thread, NULL);
    assert_int_equal(a.err, TEFF_OK);
    teff_ctx_free(a.ctx);
    teff_client_free(client);
    lab_close(l);
}

static void cycles_on_one_silo(void **state)
{
    a_cycle_ends_with_its_caller(1);
}

static void cycles_on_two_silos(void **state)
{
    a_cycle_ends_with_its_caller(2);
}

static void late_turns_on_one_silo(void **state)
{
    a_late_turn_is_told_at_its_next_call(1);
}

static void late_turns_on_two_silos(void **state)
{
    a_late_turn_is_told_at_its_next_call(2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cycles_on_one_silo),
        cmocka_unit_test(cycles_on_two_silos),
        cmocka_unit_test(late_turns_on_one_silo),
        cmocka_unit_test(late_turns_on_two_silos),
        cmocka_unit_test(a_late_request_does_not_run),
        cmocka_unit_test(a_request_located_late_does_not_run),
        cmocka_unit_test(all_tries_share_a_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
