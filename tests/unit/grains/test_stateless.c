/* test_stateless.c - stateless workers: how many activations a grain has on a silo, which of them
 * gets a call, and what else they meet. Silos 0 and 1 host the type, silo 2 does not.
 *
 * | what the feature meets | test |
 * |---|---|
 * | calls one after another, at once, too many | one_is_enough, the_pool_grows, a_full_pool |
 * | calls after turns that were suspended | all_were_suspended |
 * | other silos, clients | each_silo_has_its_own, a_silo_without_the_type, clients |
 * | calls inside the caller's turn | calls_in_place, overlapping_calls_from_a_turn |
 * | one-way calls | one_way_calls |
 * | deadlines, cancels, keys | a_call_that_is_late_or_cancelled, a_key_is_refused |
 * | idle time, teff_deactivate, activations_max | the_pool_shrinks, ..._ends_itself, a_full_silo |
 * | a silo that leaves, or has crashed | silos_leave, a_host_that_has_crashed |
 * | hooks, one for each worker, turns that overlap | clerks, the_size_of_a_pool |
 * | deadlocks | a_cycle_through_the_pool |
 * | observers, reminders | observers_and_reminders_are_refused |
 * | versions | a_caller_with_a_newer_version |
 * | timers | a_timer_stays_with_its_activation |
 * | types that differ | the_caller_knows_it_as_an_ordinary_grain, ..._as_a_stateless_worker |
 * | moves, leases, other faults | the simulator |
 */
#include "activation/turn.h" /* before acts.h, whose ctx its parameters would hide */

#include <string.h>
#include <teff/observer.h>
#include <teff/reminder.h>
#include "acts.h"
#include "directory/stateless.h"

enum { SILOS = 3, KEY = 7, A = 1, MAX = 3, QUEUE = 4, CALLS_MAX = 64 };

static lab *three;
static int hosting;                /* silos so far */
static const teff_type_info *at_1; /* the type of silo 1 */

/* ---- the grains ---- */

static teff_err obey(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    world.begun++;
    teff_err err = ((script *)(uintptr_t)in->script)(turn, key, in, out);
    world.ended++;
    return err;
}

static teff_err hand_obey(direct_hand *self, const direct_act *in, direct_number *out)
{
    return obey(self->ctx, self->key, in, out);
}

static teff_err hand_tell(direct_hand *self, const direct_act *in)
{
    direct_number unused;
    return obey(self->ctx, self->key, in, &unused);
}

static teff_err clerk_obey(direct_clerk *self, const direct_act *in, direct_number *out)
{
    return obey(self->ctx, self->key, in, out);
}

static teff_err clerk_begins(direct_clerk *self)
{
    world.activated++;
    teff_sleep(self->ctx, 1);
    return TEFF_OK;
}

static teff_err clerk_ends(direct_clerk *self, teff_reason why)
{
    world.deactivated++;
    teff_sleep(self->ctx, 1);
    return TEFF_OK;
}

static const direct_hand_methods hand = {.obey = hand_obey, .tell = hand_tell};
static const direct_clerk_methods clerk = {
    .obey = clerk_obey, .on_activate = clerk_begins, .on_deactivate = clerk_ends};

/* out: the silo that runs the turn, and the activation's slot. */
static teff_err says_where(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    const teffi_activation *act = teffi_activation_of_ctx(turn);
    out->n = (int64_t)turn->node->id.silo << 32 | act->slot;
    return TEFF_OK;
}

static teff_err waits_and_says_where(teff_ctx *turn, int64_t key, const direct_act *in,
                                     direct_number *out)
{
    teff_err err = waits(turn, key, in, out);
    return err ? err : says_where(turn, key, in, out);
}

/* ---- silos ---- */

static void host(teff_silo *silo)
{
    assert_int_equal(teff_silo_host(silo, direct_actor_type(&acts_actor, NULL)), TEFF_OK);
    if (hosting++ == 2)
        return;
    const teff_type_info *info = hosting == 2 ? at_1 : &direct_hand_info;
    assert_int_equal(teff_silo_host(silo, teff_grain_type_new(info, &hand, NULL)), TEFF_OK);
    assert_int_equal(teff_silo_host(silo, direct_clerk_type(&clerk, NULL)), TEFF_OK);
}

static int open_silos(const teff_type_info *of_silo_1)
{
    memset(&world, 0, sizeof world);
    hosting = 0;
    at_1 = of_silo_1;
    l = three = lab_open_more(SILOS, host);
    ctx = three->ctx[0];
    return 0;
}

static int setup(void **state)
{
    return open_silos(&direct_hand_info);
}

static teff_type_info newer; /* a version above that of silo 0 */

static int setup_versions(void **state)
{
    newer = direct_hand_info;
    newer.version = 1;
    return open_silos(&newer);
}

static int teardown(void **state)
{
    world.gate = true;
    lab_close(three);
    return 0;
}

static uint32_t id_of(int silo)
{
    return three->silos[silo]->node.id.silo;
}

typedef struct counted {
    uint32_t type;
    int n, idle, registered, queued[CALLS_MAX];
} counted;

static bool count(void *arg, teffi_activation *act)
{
    counted *c = arg;
    if (act->type->info->id == c->type) {
        c->queued[c->n] = (int)act->queued;
        c->registered += act->registered;
        c->idle += teffi_group_state_of(&act->group) == TEFFI_GROUP_IDLE;
        c->n++;
    }
    return true;
}

static counted count_pool(int silo, const teff_type_info *type)
{
    counted c = {.type = type->id};
    uint64_t cursor = 0;
    (void)teffi_shards_walk_activations(three->silos[silo]->node.grains, NULL, &cursor, count, &c);
    return c;
}

static int hands(int silo)
{
    return count_pool(silo, &direct_hand_info).n;
}

/* ---- calls ---- */

static struct {
    teff_ctx *from;
    teff_call call;
} calls[CALLS_MAX];
static int n_calls;

/* Begins n calls that wait for the gate. */
static void begin_calls(teff_ctx *from, int n)
{
    for (int i = 0; i < n; i++, n_calls++) {
        calls[n_calls].from = from;
        lab_ok(from, direct_hand_obey_async(from, KEY, RUN(waits), NULL, &calls[n_calls].call));
    }
}

/* Opens the gate: all calls end well. */
static void end_calls(void)
{
    direct_number *got;
    world.gate = true;
    for (; n_calls > 0; n_calls--)
        lab_ok(calls[n_calls - 1].from,
               direct_hand_obey_await(calls[n_calls - 1].from, calls[n_calls - 1].call, &got));
    assert_int_equal(world.begun, world.ended);
}

static int64_t ask_where(teff_ctx *from)
{
    direct_number *got;
    lab_ok(from, direct_hand_obey(from, KEY, RUN(says_where), &got));
    return got->n;
}

static uint32_t ask_silo(teff_ctx *from)
{
    return (uint32_t)((uint64_t)ask_where(from) >> 32);
}

/* ---- one silo ---- */

/* A response may come just before its activation is idle again. */
static void one_is_enough(void **state)
{
    for (int i = 0; i < 20; i++) {
        assert_int_equal(ask_silo(ctx), id_of(0));
        lab_until(count_pool(0, &direct_hand_info).idle == hands(0));
    }
    assert_int_equal(hands(0), 1);
    assert_int_equal(hands(1), 0);
}

static void the_pool_grows(void **state)
{
    begin_calls(ctx, 1);
    lab_until(world.held == 1);
    begin_calls(ctx, 1);
    lab_until(world.held == 2);
    assert_int_equal(hands(0), 2);
    begin_calls(ctx, 5);
    lab_until(world.held == MAX);
    assert_int_equal(hands(0), MAX);
    end_calls();
    assert_int_equal(world.begun, 7);
    assert_true(hands(0) <= MAX);
}

static void a_full_pool(void **state)
{
    direct_number *got;
    begin_calls(ctx, MAX);
    lab_until(world.held == MAX);
    begin_calls(ctx, MAX * QUEUE);
    counted c = count_pool(0, &direct_hand_info);
    assert_int_equal(c.n, MAX);
    for (int i = 0; i < MAX; i++)
        assert_int_equal(c.queued[i], QUEUE);
    lab_fails(ctx, direct_hand_obey(ctx, KEY, RUN(responds), &got), TEFF_E_OVERLOADED);
    assert_non_null(strstr(teff_error(ctx), "the grain's queue is full"));
    end_calls();
    assert_int_equal(world.begun, MAX + MAX * QUEUE);
}

/* Calls that are made one after another use few activations, also after all had suspended turns and
 * were found so. */
static void all_were_suspended(void **state)
{
    enum { N = 60, MOST = 40 };
    int same = 0;
    begin_calls(ctx, MAX);
    lab_until(world.held == MAX && count_pool(0, &direct_hand_info).idle == MAX);
    begin_calls(ctx, 1); /* its search finds all suspended */
    end_calls();
    for (int64_t i = 0, before = 0, at; i < N; i++, before = at) {
        lab_until(count_pool(0, &direct_hand_info).idle == hands(0));
        at = ask_where(ctx);
        same += at == before;
    }
    assert_in_range(same, MOST, N);
}

/* One key's pool is not another one's. */
static void each_key_has_its_own(void **state)
{
    direct_number *got;
    begin_calls(ctx, MAX);
    lab_until(world.held == MAX);
    lab_ok(ctx, direct_hand_obey(ctx, KEY + 1, RUN(responds), &got));
    assert_int_equal(hands(0), MAX + 1);
    end_calls();
}

static void the_pool_shrinks(void **state)
{
    begin_calls(ctx, MAX);
    lab_until(world.held == MAX);
    end_calls();
    lab_until(hands(0) == 0);
    world.gate = false;
    begin_calls(ctx, 1);
    lab_until(world.held == 1);
    (void)ask_silo(ctx);
    lab_until(hands(0) == 1); /* that in use stays */
    assert_int_equal(world.held, 1);
    end_calls();
    lab_until(hands(0) == 0);
}

static void an_activation_ends_itself(void **state)
{
    direct_number *got;
    begin_calls(ctx, MAX - 1);
    lab_until(world.held == MAX - 1);
    lab_ok(ctx, direct_hand_obey(ctx, KEY, RUN(ends), &got));
    lab_until(hands(0) == MAX - 1);
    lab_ok(ctx, direct_hand_obey(ctx, KEY, RUN(responds), &got));
    end_calls();
}

/* The silo has room for two activations: calls queue in the pool, and another key has none. */
static void a_full_silo(void **state)
{
    direct_number *got;
    lab_until(acts_activations() == 0);
    three->silos[0]->node.grains->activations_max = 1;
    begin_calls(ctx, 2);
    lab_until(world.held == 2);
    begin_calls(ctx, 3);
    assert_int_equal(hands(0), 2);
    lab_fails(ctx, direct_hand_obey(ctx, KEY + 1, RUN(responds), &got), TEFF_E_OVERLOADED);
    assert_non_null(strstr(teff_error(ctx), "activations_max"));
    end_calls();
    three->silos[0]->node.grains->activations_max = 0;
}

/* Turns that overlap are spread over the pool, which is as large as the silo has workers. */
static void clerks(void **state)
{
    enum { N = 40, LEAST = 4, WORKERS = 2 };
    teff_call begun[N];
    int64_t first = 0;
    int at_first = 0;
    for (int i = 0; i < N; i++) { /* each when no other is queued */
        lab_ok(ctx, direct_clerk_obey_async(ctx, KEY, RUN(waits_and_says_where), NULL, &begun[i]));
        lab_until(world.held == i + 1);
    }
    assert_int_equal(count_pool(0, &direct_clerk_info).n, WORKERS);
    assert_int_equal(world.activated, WORKERS);
    world.gate = true;
    for (int i = 0; i < N; i++) {
        direct_number *got;
        lab_ok(ctx, direct_clerk_obey_await(ctx, begun[i], &got));
        first = first ? first : got->n;
        at_first += got->n == first;
    }
    assert_in_range(at_first, LEAST, N - LEAST);
    lab_ok(three->ctx[1], lab_remove(three, 0));
    assert_int_equal(world.deactivated, WORKERS);
}

static void the_size_of_a_pool(void **state)
{
    const teffi_grains *grains = three->silos[0]->node.grains;
    teff_type_info info = {.pool_max = 0};
    assert_int_equal(teffi_pool_max(grains, &info), 2); /* workers */
    info.pool_max = 3;
    assert_int_equal(teffi_pool_max(grains, &info), 3);
    info.pool_max = UINT32_MAX; /* no generated type has that */
    assert_int_equal(teffi_pool_max(grains, &info), TEFFI_POOL_MAX);
}

/* ---- several silos, clients ---- */

static void each_silo_has_its_own(void **state)
{
    begin_calls(three->ctx[0], MAX + 1);
    begin_calls(three->ctx[1], MAX + 1);
    lab_until(world.held == 2 * MAX);
    assert_int_equal(hands(0), MAX);
    assert_int_equal(hands(1), MAX);
    end_calls();
    assert_int_equal(ask_silo(three->ctx[0]), id_of(0));
    assert_int_equal(ask_silo(three->ctx[1]), id_of(1));
}

/* Its calls go to both silos that host the type. */
static void a_silo_without_the_type(void **state)
{
    int at[2] = {0, 0};
    for (int i = 0; i < 60; i++) {
        uint32_t silo = ask_silo(three->ctx[2]);
        assert_true(silo == id_of(0) || silo == id_of(1));
        at[silo == id_of(1)]++;
    }
    assert_true(at[0] && at[1]);
    assert_int_equal(hands(2), 0);
}

static void clients(void **state)
{
    for (int gateway = 0; gateway < SILOS; gateway++) {
        teff_client *client = lab_client(three, (int[]){gateway, -1});
        teff_ctx *from = teff_client_new_ctx(client);
        uint32_t silo = ask_silo(from);
        assert_true(gateway == 2 ? silo != id_of(2) : silo == id_of(gateway));
        teff_ctx_free(from);
        teff_client_free(client);
    }
}

static void silos_leave(void **state)
{
    direct_number *got;
    begin_calls(three->ctx[1], 2);
    lab_until(world.held == 2);
    lab_ok(three->ctx[2], lab_remove(three, 0));
    for (int i = 0; i < 20; i++)
        assert_int_equal(ask_silo(three->ctx[2]), id_of(1));
    end_calls();
    lab_ok(three->ctx[2], lab_remove(three, 1));
    lab_fails(three->ctx[2], direct_hand_obey(three->ctx[2], KEY, RUN(responds), &got),
              TEFF_E_NOT_FOUND);
}

/* ---- calls from turns ---- */

static void place_actor(int silo)
{
    direct_number *got;
    lab_ok(three->ctx[silo], direct_actor_obey(three->ctx[silo], A, RUN(responds), &got));
}

static _Atomic int in_place;

/* Counts the turns that run inside their caller's turn. */
static teff_err counts_in_place(teff_ctx *turn, int64_t key, const direct_act *in,
                                direct_number *out)
{
    in_place += ((const teffi_turn *)turn->owner)->place != NULL;
    return TEFF_OK;
}

/* Asks hands, one call after the other. */
static teff_err asks_hands(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    for (int i = 0; i < 64; i++)
        lab_ok(turn, direct_hand_obey(turn, KEY + i % 4, RUN(counts_in_place), &got));
    return TEFF_OK;
}

/* out: how many of 64 calls from a turn ran inside it. */
static int count_calls_in_place(void)
{
    direct_number *got;
    in_place = 0;
    lab_ok(ctx, direct_actor_obey(ctx, A, RUN(asks_hands), &got));
    return in_place;
}

/* Some calls are queued: when 256 have run in place, or if another thread uses the callee. */
static void calls_in_place(void **state)
{
    enum { MOST = 60 };
    place_actor(0);
    assert_in_range(count_calls_in_place(), MOST, 64);
    assert_int_equal(hands(0), 4);
    lab_until(count_pool(0, &direct_hand_info).idle == 4);
    begin_calls(ctx, MAX - 1); /* the first of these waits at the activation in the cache */
    lab_until(world.held == MAX - 1);
    assert_in_range(count_calls_in_place(), MOST, 64);
    assert_true(hands(0) <= MAX + 3);
    end_calls();
}

/* The cache has an activation. Then 40 turns that may overlap begin. out: how many of them ran
 * where the first of them ran. */
static teff_err asks_clerks(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    enum { N = 40 };
    teff_call begun[N];
    direct_number *got;
    int64_t first = 0;
    for (int i = 0; i < 2; i++)
        lab_ok(turn, direct_clerk_obey(turn, KEY, RUN(says_where), &got));
    for (int i = 0; i < N; i++)
        lab_ok(turn,
               direct_clerk_obey_async(turn, KEY, RUN(waits_and_says_where), NULL, &begun[i]));
    for (int i = 0; i < N; i++) {
        lab_ok(turn, direct_clerk_obey_await(turn, begun[i], &got));
        first = first ? first : got->n;
        out->n += got->n == first;
    }
    return TEFF_OK;
}

static void overlapping_calls_from_a_turn(void **state)
{
    direct_number *got;
    teff_call call;
    place_actor(0);
    lab_ok(ctx, direct_actor_obey_async(ctx, A, RUN(asks_clerks), NULL, &call));
    lab_until(world.held == 40);
    assert_int_equal(count_pool(0, &direct_clerk_info).n, 2);
    world.gate = true;
    lab_ok(ctx, direct_actor_obey_await(ctx, call, &got));
    assert_in_range(got->n, 4, 36);
}

/* ---- crashes ---- */

/* Silo 2 reaches silo `crashed` no more, as after a crash that the view does not show yet. */
static const teffi_net_ops *real_net;
static teffi_net_ops cut_net;
static teffi_node_id crashed;

static teff_err send_unless_crashed(teffi_net *net, teffi_node_id to, teffi_msg *msg)
{
    return teffi_node_equals(to, crashed) ? TEFF_E_UNREACHABLE : real_net->send(net, to, msg);
}

/* out: the silo that owns the partition of the hand with this key. */
static teffi_node_id owner_of(int64_t key)
{
    teffi_node *node = &three->silos[2]->node;
    teffi_ident ident = teffi_ident_of(&node->grains->secret, direct_hand_info.id,
                                       (const uint8_t *)&key, sizeof key);
    const teffi_view *view = teffi_view_ref_current(node);
    teffi_node_id owner = teffi_view_owner(view, teffi_partition_of_hash(ident.hash));
    teffi_view_unref(view);
    return owner;
}

/* The crashed silo owns the key's partition: nobody could look the grain up. Each try draws a
 * host anew. */
static void a_host_that_has_crashed(void **state)
{
    teffi_net *net = three->silos[2]->node.home.net;
    int64_t key = 0;
    direct_number *got;
    do
        crashed = owner_of(++key);
    while (teffi_node_equals(crashed, three->silos[2]->node.id));
    real_net = net->ops;
    cut_net = *real_net;
    cut_net.send = send_unless_crashed;
    net->ops = &cut_net;
    teff_ctx_set_timeout(three->ctx[2], 20000);
    for (int i = 0; i < 5; i++)
        lab_ok(three->ctx[2], direct_hand_obey(three->ctx[2], key, RUN(responds), &got));
    teff_ctx_set_timeout(three->ctx[2], 0);
    net->ops = real_net;
}

static teff_err tells_hands(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    for (int i = 0; i < 6; i++)
        lab_ok(turn, direct_hand_tell(turn, KEY, RUN(waits)));
    return TEFF_OK;
}

static void one_way_calls(void **state)
{
    direct_number *got;
    for (int silo = 0; silo < SILOS; silo += 2) { /* hosts the type; does not */
        teff_ctx *from = three->ctx[silo];
        int64_t key = A + silo;
        world.gate = false;
        world.begun = world.ended = 0;
        lab_ok(from, direct_actor_obey(from, key, RUN(responds), &got));
        lab_ok(from, direct_actor_obey(from, key, RUN(tells_hands), &got));
        lab_until(world.held >= MAX);
        assert_true(hands(0) <= MAX && hands(1) <= MAX);
        world.gate = true;
        lab_until(world.ended == 2 + 6);
    }
}

static void a_call_that_is_late_or_cancelled(void **state)
{
    direct_number *got;
    teff_call call;
    teff_cancel *cancel = teff_cancel_new();
    const teff_call_options given = {.size = sizeof given, .cancel = cancel};
    begin_calls(ctx, MAX);
    lab_until(world.held == MAX);
    lab_ok(ctx, direct_hand_obey_async(ctx, KEY, RUN(responds), &given, &call));
    teff_cancel_fire(cancel);
    lab_fails(ctx, direct_hand_obey_await(ctx, call, &got), TEFF_E_CANCELLED);
    teff_ctx_set_timeout(ctx, 20);
    lab_fails(ctx, direct_hand_obey(ctx, KEY, RUN(responds), &got), TEFF_E_TIMEOUT);
    teff_ctx_set_timeout(ctx, 0);
    end_calls();
    assert_int_equal(world.begun, MAX);
    teff_cancel_free(cancel);
}

static void a_key_is_refused(void **state)
{
    direct_number *got;
    teff_call call;
    const teff_uuid key = {{1}};
    const teff_call_options given = {.size = sizeof given, .once = &key};
    lab_ok(ctx, direct_hand_obey_async(ctx, KEY, RUN(responds), &given, &call));
    lab_fails(ctx, direct_hand_obey_await(ctx, call, &got), TEFF_E_INVALID);
}

/* ---- cycles ---- */

static teff_err asks_actor(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    return direct_actor_obey(turn, A, RUN(responds), &got);
}

static teff_err asks_hand(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    return direct_hand_obey(turn, KEY, RUN(asks_actor), &got);
}

/* Actor A asks the last activation of a pool, which asks A. */
static void a_cycle_through_the_pool(void **state)
{
    direct_number *got;
    begin_calls(three->ctx[0], MAX - 1);
    begin_calls(three->ctx[1], MAX - 1);
    lab_until(world.held == 2 * (MAX - 1));
    for (int silo = 0; silo < SILOS; silo++) {
        place_actor(silo);
        lab_fails(three->ctx[silo], direct_actor_obey(three->ctx[silo], A, RUN(asks_hand), &got),
                  TEFF_E_DEADLOCK);
        lab_ok(three->ctx[silo], direct_actor_obey(three->ctx[silo], A, RUN(ends), &got));
    }
    end_calls();
}

/* ---- observers and reminders ---- */

static teff_err subscribes(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    static const teff_observer_info info = {.type = {.name = "an observer", .id = 1}};
    return teff_observers_subscribe(turn, &info, (ProtobufCBinaryData){0}, 0);
}

static teff_err registers(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    return teff_reminder_register(turn, "a reminder", NULL);
}

static void observers_and_reminders_are_refused(void **state)
{
    direct_number *got;
    lab_fails(ctx, direct_hand_obey(ctx, KEY, RUN(subscribes), &got), TEFF_E_INVALID);
    assert_string_equal(teff_error(ctx),
                        "direct.Hand.Obey at 7: a stateless worker has no observers");
    lab_fails(ctx, direct_hand_obey(ctx, KEY, RUN(registers), &got), TEFF_E_INVALID);
    assert_string_equal(teff_error(ctx),
                        "direct.Hand.Obey at 7: a stateless worker has no reminders");
}

/* ---- timers ---- */

static _Atomic int64_t ticked_at;

static teff_err notes_where(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    (void)!says_where(turn, key, in, out);
    ticked_at = out->n;
    return TEFF_OK;
}

static teff_err starts_timer(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    static const teff_timer_options options = {.size = sizeof options, .due_ms = 1};
    lab_ok(turn, direct_hand_tell_timer(turn, RUN(notes_where), &options, NULL));
    return says_where(turn, key, in, out);
}

static void a_timer_stays_with_its_activation(void **state)
{
    direct_number *got;
    begin_calls(ctx, MAX - 1);
    lab_until(world.held == MAX - 1);
    ticked_at = 0;
    lab_ok(ctx, direct_hand_obey(ctx, KEY, RUN(starts_timer), &got));
    lab_until(ticked_at);
    assert_int_equal(ticked_at, got->n);
    end_calls();
}

/* ---- types that differ ---- */

static int64_t ask_as(teff_ctx *from, const teff_type_info *type, int64_t to)
{
    ProtobufCMessage *out;
    const teff_key key = {.kind = TEFF_KEY_INT64, .number = to};
    lab_ok(from, teff_ask(from, type, &key, type->methods, &RUN(says_where)->base, &out));
    return ((direct_number *)out)->n;
}

static teff_type_info change_placement(const teff_type_info *info, const char *method,
                                       teff_placement placement)
{
    teff_type_info other = *info;
    other.placement = placement;
    while (strcmp(other.methods->name, method) != 0)
        other.methods++;
    return other;
}

/* Silo 0 has the older version, so such a call goes to silo 1; after that silo has left, no silo
 * has the version. */
static void a_caller_with_a_newer_version(void **state)
{
    teff_type_info info = change_placement(&newer, "direct.Hand.Obey", TEFF_PLACE_STATELESS);
    const teff_key key = {.kind = TEFF_KEY_INT64, .number = KEY};
    assert_int_equal(ask_silo(three->ctx[0]), id_of(0));
    for (int silo = 0; silo < SILOS; silo++)
        assert_int_equal((uint64_t)ask_as(three->ctx[silo], &info, KEY) >> 32, id_of(1));
    lab_ok(three->ctx[0], lab_remove(three, 1));
    for (int silo = 0; silo < SILOS; silo += 2)
        lab_fails(three->ctx[silo],
                  teff_ask(three->ctx[silo], &info, &key, info.methods, &RUN(responds)->base, NULL),
                  TEFF_E_VERSION);
}

/* Such callers may reach several activations, none of which is in the directory, whichever silo
 * owns the key's partition. */
static void the_caller_knows_it_as_an_ordinary_grain(void **state)
{
    enum { KEYS = 30 };
    teff_type_info ordinary =
        change_placement(&direct_hand_info, "direct.Hand.Obey", TEFF_PLACE_RANDOM);
    for (int i = 0; i < KEYS; i++)
        for (int silo = 0; silo < SILOS; silo++) {
            uint64_t where = (uint64_t)ask_as(three->ctx[silo], &ordinary, FIRST + i);
            uint32_t at = (uint32_t)(where >> 32);
            assert_true(at == id_of(0) || at == id_of(1));
        }
    for (int silo = 0; silo < SILOS - 1; silo++) {
        counted c = count_pool(silo, &direct_hand_info);
        assert_true(c.n > 0);
        assert_int_equal(c.registered, 0);
    }
    assert_int_equal(ask_silo(three->ctx[0]), id_of(0));
    assert_int_equal(ask_silo(three->ctx[1]), id_of(1));
}

/* The grain still has one activation. */
static void the_caller_knows_it_as_a_stateless_worker(void **state)
{
    teff_type_info stateless =
        change_placement(&direct_actor_info, "direct.Actor.Obey", TEFF_PLACE_STATELESS);
    int64_t where = ask_as(three->ctx[0], &stateless, A);
    for (int i = 0; i < 3; i++)
        for (int silo = 0; silo < SILOS; silo++)
            assert_int_equal(ask_as(three->ctx[silo], &stateless, A), where);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define WITH_VERSIONS(name) cmocka_unit_test_setup_teardown(name, setup_versions, teardown)
    const struct CMUnitTest tests[] = {
        TEST(one_is_enough),
        TEST(the_pool_grows),
        TEST(a_full_pool),
        TEST(all_were_suspended),
        TEST(each_key_has_its_own),
        TEST(the_pool_shrinks),
        TEST(an_activation_ends_itself),
        TEST(a_full_silo),
        TEST(clerks),
        TEST(the_size_of_a_pool),
        TEST(each_silo_has_its_own),
        TEST(a_silo_without_the_type),
        TEST(clients),
        TEST(silos_leave),
        TEST(calls_in_place),
        TEST(overlapping_calls_from_a_turn),
        TEST(a_host_that_has_crashed),
        TEST(one_way_calls),
        TEST(a_call_that_is_late_or_cancelled),
        TEST(a_key_is_refused),
        TEST(a_cycle_through_the_pool),
        TEST(observers_and_reminders_are_refused),
        TEST(a_timer_stays_with_its_activation),
        WITH_VERSIONS(a_caller_with_a_newer_version),
        TEST(the_caller_knows_it_as_an_ordinary_grain),
        TEST(the_caller_knows_it_as_a_stateless_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
