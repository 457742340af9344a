/* test_cancel.c - a cancel follows its request to the grain: queued, running, ended; on the same
 * silo, on another one, through a gateway, through a silo that the grain has left. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "activation/turn.h" /* before acts.h, whose ctx its parameters would hide */
#include "acts.h"
#include "call/calls.h"
#include "call/relay.h"
#include "call/wait.h"
#include "request/route.h"

enum { SILOS = 3, NEVER_MS = 600000 };

/* The turn that is cancelled. */
static struct watched {
    _Atomic int begun, ended;
    _Atomic teff_err saw;
    _Atomic bool later; /* it does not look */
} watched;

static lab *three;
static teff_client *client; /* its gateway is silo 0 */
static teff_ctx *client_ctx;
static teff_cancel *cancel;
static teff_call_options given;

static void host_actor(teff_silo *silo)
{
    assert_int_equal(teff_silo_host(silo, direct_actor_type(&acts_actor, NULL)), TEFF_OK);
}

static void begin_cell(void)
{
    teff_cancel_free(cancel);
    cancel = teff_cancel_new();
    assert_non_null(cancel);
    given = (teff_call_options){.size = sizeof given, .timeout_ms = NEVER_MS, .cancel = cancel};
    memset(&watched, 0, sizeof watched);
    memset(&world, 0, sizeof world);
}

static int setup(void **state)
{
    three = lab_open_more(SILOS, host_actor);
    client = lab_client(three, (int[]){0, -1});
    client_ctx = teff_client_new_ctx(client);
    begin_cell();
    return 0;
}

static int teardown(void **state)
{
    world.gate = true;
    teff_ctx_free(client_ctx);
    teff_client_free(client);
    lab_close(three);
    teff_cancel_free(cancel);
    cancel = NULL;
    return 0;
}

static teff_err watches(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    watched.begun++;
    teff_err saw;
    while (watched.later || !(saw = teff_ctx_check(turn, NULL)))
        acts_sleep_ms(1);
    watched.saw = saw;
    watched.ended++;
    return TEFF_OK;
}

/* For a message: no response. */
static teff_err holds(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number unused;
    return waits(turn, key, in, &unused);
}

/* Until its grain must end, too: what waits behind it does not run there. */
static teff_err holds_to_the_end(teff_ctx *turn, int64_t key, const direct_act *in,
                                 direct_number *out)
{
    teff_err err = holds(turn, key, in, out);
    while (!teffi_activation_of_ctx(turn)->reason)
        teffi_ctx_sleep(turn, 1);
    return err;
}

/* ---- where the call comes from, and where its grain is ---- */

typedef enum origin { SILO, CLIENT } origin; /* silo 0, or the client of silo 0 */

typedef struct way {
    origin from;
    int old;  /* where the caller's silo supposes the grain: it was there; -1: nowhere */
    int home; /* where it is */
} way;

static const way ways[] = {
    {SILO, -1, 0}, {SILO, -1, 1}, {SILO, 1, 2}, {CLIENT, -1, 0}, {CLIENT, -1, 1}, {CLIENT, 1, 2},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

static teff_ctx *caller_of(const way *w)
{
    return w->from == CLIENT ? client_ctx : three->ctx[0];
}

static uint64_t activations_on(int silo)
{
    return three->silos[silo]->node.grains->shards->activations;
}

static uint32_t kept_on(int silo)
{
    return three->silos[silo]->node.home.calls.cancels;
}

static uint32_t relays(void)
{
    uint32_t n = 0;
    for (int i = 0; i < SILOS; i++)
        n += three->silos[i] ? teffi_calls_relay_count(&three->silos[i]->node.home) : 0;
    return n;
}

static bool add_queued(void *arg, teffi_activation *act)
{
    *(int *)arg += (int)act->queued;
    return true;
}

static int queued_at(teffi_node *node)
{
    uint64_t cursor = 0;
    int n = 0;
    (void)teffi_shards_walk_activations(node->grains, NULL, &cursor, add_queued, &n);
    return n;
}

static int queued_on(int silo)
{
    return queued_at(&three->silos[silo]->node);
}

/* Its cancel is kept, or has removed the request that was queued there. */
static bool has_come(teffi_node *node)
{
    return node->home.calls.cancels == 1 || queued_at(node) == 0;
}

static void place(const way *w, int64_t key)
{
    direct_number *got;
    if (w->old >= 0) {
        uint64_t before = activations_on(w->old);
        lab_ok(three->ctx[w->old], direct_actor_obey(three->ctx[w->old], key, RUN(responds), &got));
        lab_ok(caller_of(w), direct_actor_obey(caller_of(w), key, RUN(ends), &got));
        lab_until(activations_on(w->old) == before);
    }
    lab_ok(three->ctx[w->home], direct_actor_obey(three->ctx[w->home], key, RUN(responds), &got));
    assert_true(activations_on(w->home) > 0);
}

/* Of a request from silo 0 or its client that is at the grain. */
static uint32_t relays_of(const way *w)
{
    return (w->from == CLIENT && w->home != 0 ? 1u : 0u) + (w->old >= 0 ? 1u : 0u);
}

/* ---- the table ---- */

static void queued_it_does_not_run(const way *w, int64_t key)
{
    teff_ctx *from = caller_of(w), *at = three->ctx[w->home];
    teff_call holder, call;
    direct_number *got;
    lab_ok(at, direct_actor_obey_async(at, key, RUN(waits), NULL, &holder));
    lab_until(world.held == 1);
    lab_ok(from, direct_actor_obey_async(from, key, RUN(watches), &given, &call));
    lab_until(queued_on(w->home) == 1);
    assert_int_equal(relays(), relays_of(w));
    teff_cancel_fire(cancel);
    lab_fails(from, direct_actor_obey_await(from, call, &got), TEFF_E_CANCELLED);
    lab_until(has_come(&three->silos[w->home]->node));
    lab_until(relays() == 0);
    world.gate = true;
    lab_ok(at, direct_actor_obey_await(at, holder, &got));
    lab_ok(from, direct_actor_obey(from, key, RUN(responds), &got));
    assert_int_equal(watched.begun, 0);
    assert_int_equal(kept_on(w->home), 0);
}

static void running_it_sees_the_cancel(const way *w, int64_t key)
{
    teff_ctx *from = caller_of(w);
    teff_call call;
    direct_number *got;
    lab_ok(from, direct_actor_obey_async(from, key, RUN(watches), &given, &call));
    lab_until(watched.begun == 1);
    assert_int_equal(watched.saw, TEFF_OK);
    teff_cancel_fire(cancel);
    lab_fails(from, direct_actor_obey_await(from, call, &got), TEFF_E_CANCELLED);
    lab_until(watched.ended == 1);
    assert_int_equal(watched.saw, TEFF_E_CANCELLED);
    lab_ok(from, direct_actor_obey(from, key, RUN(responds), &got));
    assert_int_equal(kept_on(w->home), 0);
    lab_until(relays() == 0);
}

static void ended_it_notices_nothing(const way *w, int64_t key)
{
    teff_ctx *from = caller_of(w);
    teff_call call;
    direct_number *got;
    lab_ok(from, direct_actor_obey_async(from, key, ACT(responds, .n = 6), &given, &call));
    lab_ok(from, teff_await_all(from, &call, 1));
    teff_cancel_fire(cancel);
    lab_ok(from, direct_actor_obey_await(from, call, &got));
    assert_int_equal(got->n, 7);
    lab_ok(from, direct_actor_obey(from, key, RUN(responds), &got));
    for (int i = 0; i < SILOS; i++)
        assert_int_equal(kept_on(i), 0);
}

static void each_way(void (*cell)(const way *w, int64_t key))
{
    for (size_t i = 0; i < WAYS; i++) {
        begin_cell();
        place(&ways[i], FIRST + (int64_t)i);
        cell(&ways[i], FIRST + (int64_t)i);
    }
}

static void a_queued_request_does_not_run(void **state)
{
    each_way(queued_it_does_not_run);
}

static void a_running_turn_sees_it(void **state)
{
    each_way(running_it_sees_the_cancel);
}

static void a_call_that_has_ended_is_not_changed(void **state)
{
    each_way(ended_it_notices_nothing);
}

/* ---- handed on by the silo where it waited ---- */

static void *leaves(void *arg)
{
    assert_int_equal(lab_remove(three, 1), TEFF_OK);
    return NULL;
}

/* Silo 1 leaves while a call of its grain is queued there behind a turn. */
static pthread_t queue_and_leave(const way *w, teff_call *call)
{
    teff_ctx *from = caller_of(w);
    pthread_t thread;
    place(w, FIRST);
    lab_ok(from, direct_actor_tell(from, FIRST, RUN(holds_to_the_end)));
    lab_until(world.held == 1);
    lab_ok(from, direct_actor_obey_async(from, FIRST, RUN(watches), &given, call));
    lab_until(queued_on(1) == 1);
    assert_int_equal(pthread_create(&thread, NULL, leaves, NULL), 0);
    return thread;
}

static void a_forwarded_request_is_followed(origin from)
{
    const way w = {from, -1, 1};
    teff_ctx *caller = caller_of(&w);
    teff_call call;
    direct_number *got;
    pthread_t thread = queue_and_leave(&w, &call);
    world.gate = true; /* the grain ends, and its queue is handed on */
    lab_until(watched.begun == 1);
    teff_cancel_fire(cancel);
    lab_fails(caller, direct_actor_obey_await(caller, call, &got), TEFF_E_CANCELLED);
    lab_until(watched.ended == 1);
    assert_int_equal(watched.saw, TEFF_E_CANCELLED);
    pthread_join(thread, NULL);
    lab_until(relays() == 0);
}

/* Silo 1 has brought the cancel, and is gone before the turn looks. */
static void a_cancel_outlives_the_silo_that_passed_it_on(origin from)
{
    const way w = {from, -1, 1};
    teff_ctx *caller = caller_of(&w);
    teff_call call;
    direct_number *got;
    watched.later = true;
    pthread_t thread = queue_and_leave(&w, &call);
    world.gate = true;
    lab_until(watched.begun == 1);
    teff_cancel_fire(cancel);
    lab_fails(caller, direct_actor_obey_await(caller, call, &got), TEFF_E_CANCELLED);
    pthread_join(thread, NULL);
    watched.later = false;
    lab_until(watched.ended == 1);
    assert_int_equal(watched.saw, TEFF_E_CANCELLED);
    lab_until(relays() + kept_on(0) + kept_on(2) == 0);
}

static void a_cancelled_request_is_not_handed_on(origin from)
{
    const way w = {from, -1, 1};
    teff_ctx *caller = caller_of(&w);
    teff_call call;
    direct_number *got;
    pthread_t thread = queue_and_leave(&w, &call);
    teff_cancel_fire(cancel);
    lab_fails(caller, direct_actor_obey_await(caller, call, &got), TEFF_E_CANCELLED);
    lab_until(has_come(&three->silos[1]->node));
    world.gate = true;
    pthread_join(thread, NULL);
    lab_ok(caller, direct_actor_obey(caller, FIRST, RUN(responds), &got));
    assert_int_equal(watched.begun, 0);
    lab_until(relays() + kept_on(0) + kept_on(2) == 0);
}

static void forwarded_after_a_move_from_a_silo(void **state)
{
    a_forwarded_request_is_followed(SILO);
}

static void forwarded_after_a_move_from_a_client(void **state)
{
    a_forwarded_request_is_followed(CLIENT);
}

static void it_outlives_the_silo_that_moved_from_a_silo(void **state)
{
    a_cancel_outlives_the_silo_that_passed_it_on(SILO);
}

static void it_outlives_the_silo_that_moved_from_a_client(void **state)
{
    a_cancel_outlives_the_silo_that_passed_it_on(CLIENT);
}

static void cancelled_before_the_move_by_a_silo(void **state)
{
    a_cancelled_request_is_not_handed_on(SILO);
}

static void cancelled_before_the_move_by_a_client(void **state)
{
    a_cancelled_request_is_not_handed_on(CLIENT);
}

/* ---- not at an activation yet ---- */

static teff_err holds_up(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    return holds(turn, key, in, NULL);
}

static void cancel_before_activation(teff_ctx *from, int64_t key)
{
    teff_call call;
    direct_number *got;
    begin_cell();
    world.on_activate = holds_up;
    lab_ok(from, direct_keeper_obey_async(from, key, RUN(watches), &given, &call));
    lab_until(world.held == 1);
    teff_cancel_fire(cancel);
    lab_fails(from, direct_keeper_obey_await(from, call, &got), TEFF_E_CANCELLED);
    lab_until(has_come(&l->silos[0]->node));
    world.gate = true;
    lab_ok(from, direct_keeper_obey(from, key, RUN(responds), &got));
    assert_int_equal(watched.begun, 0);
    assert_int_equal(l->silos[0]->node.home.calls.cancels, 0);
}

static void a_request_that_waits_for_its_activation_does_not_run(void **state)
{
    (void)acts_setup(state);
    teff_client *own = lab_client(l, (int[]){0, -1});
    teff_ctx *own_ctx = teff_client_new_ctx(own);
    cancel_before_activation(ctx, FIRST);
    cancel_before_activation(own_ctx, FIRST + 1);
    teff_ctx_free(own_ctx);
    teff_client_free(own);
    (void)acts_teardown(state);
    teff_cancel_free(cancel);
    cancel = NULL;
}

static teffi_msg *request_of_a_client(void)
{
    static const uint8_t key[] = "looked-up";
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST);
    assert_non_null(msg);
    msg->src = (teffi_node_id){TEFFI_CLIENT_BIT | 1, 1};
    msg->call.slot = 5;
    msg->call.generation = 6;
    msg->call.cookie = 7;
    msg->type_id = lab_turns_info.id;
    msg->method_id = lab_turns_info.methods[0].id;
    msg->key = key;
    msg->key_len = sizeof key - 1;
    msg->hops = 1;
    return msg;
}

static void a_request_that_is_being_located_does_not_run(void **state)
{
    lab *one = lab_open(1);
    teffi_node *node = &one->silos[0]->node;
    for (int i = 0; i < 2; i++) { /* the second is not cancelled */
        teffi_msg *msg = request_of_a_client();
        uint64_t dropped = node->dropped;
        if (!i)
            teffi_cancel_apply(&node->home, msg->src, (teffi_origin){5, 6, 7}, UINT64_MAX);
        teffi_reroute_unsent_request(node->grains, msg, (teffi_node_id){0});
        lab_until(!teffi_lookups_are_pending(node->grains) && node->home.calls.cancels == 0);
        lab_until(node->dropped == dropped + (unsigned)i); /* the response to a client not there */
    }
    lab_close(one);
}

int main(void)
{
#define HERE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        HERE(a_queued_request_does_not_run),
        HERE(a_running_turn_sees_it),
        HERE(a_call_that_has_ended_is_not_changed),
        HERE(forwarded_after_a_move_from_a_silo),
        HERE(forwarded_after_a_move_from_a_client),
        HERE(it_outlives_the_silo_that_moved_from_a_silo),
        HERE(it_outlives_the_silo_that_moved_from_a_client),
        HERE(cancelled_before_the_move_by_a_silo),
        HERE(cancelled_before_the_move_by_a_client),
        cmocka_unit_test(a_request_that_waits_for_its_activation_does_not_run),
        cmocka_unit_test(a_request_that_is_being_located_does_not_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
