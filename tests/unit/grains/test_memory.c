/* test_memory.c - no message ends the process by the memory that its turn takes: the turn ends.
 * Way:     turns -> teff_alloc, teff_state_alloc -> their limits */
#include "activation/turn.h" /* before acts.h, whose ctx its parameters would hide */
#include <string.h>
#include <teff/fork.h>
#include <teff/sched.h>
#include "acts.h"
#include "call/call.h"
#include "call/wait.h"
#include "cluster/membership.h"

enum { MB = 1024 * 1024, NOTE = 1024 * 1024 };

static const size_t absurd = (size_t)1 << 40;

/* ---- scripts: one piece that is too much; many pieces ---- */

static teff_err takes_too_much(teff_ctx *turn, int64_t key, const direct_act *in,
                               direct_number *out)
{
    memset(teff_alloc(turn, absurd), 1, absurd);
    out->n = 1;
    return TEFF_OK;
}

static teff_err takes_for_ever(teff_ctx *turn, int64_t key, const direct_act *in,
                               direct_number *out)
{
    for (char *last = teff_alloc(turn, MB);; last = teff_alloc(turn, MB))
        last[0] = 1;
    return TEFF_OK;
}

static teff_err waits_and_takes(teff_ctx *turn, int64_t key, const direct_act *in,
                                direct_number *out)
{
    teffi_ctx_sleep(turn, 1);
    return takes_too_much(turn, key, in, out);
}

static teff_err starts_and_takes(teff_ctx *turn, int64_t key, const direct_act *in,
                                 direct_number *out)
{
    teff_call calls[3];
    for (int i = 0; i < 3; i++)
        if (direct_actor_obey_async(turn, key + FIRST + i, RUN(i ? sleeps : responds), NULL,
                                    &calls[i]))
            return TEFF_E_FAILED;
    return takes_too_much(turn, key, in, out);
}

static teff_err blocks_and_takes(teff_ctx *turn, int64_t key, const direct_act *in,
                                 direct_number *out)
{
    teff_blocking_begin();
    teff_blocking_begin();
    return takes_too_much(turn, key, in, out);
}

static void part(void *arg)
{
    int *count = arg;
    for (int i = 0; i < 100; i++) {
        (void)teff_yield_if_due();
        ++*count;
    }
    world.rounds += *count;
}

/* The parts' counts are on this stack. */
static teff_err forks_and_takes(teff_ctx *turn, int64_t key, const direct_act *in,
                                direct_number *out)
{
    teff_join outer = {{0}}, inner = {{0}};
    int counts[4] = {0};
    teff_fork(&outer, TEFF_STEAL_CHILD, part, &counts[0]);
    teff_fork(&inner, TEFF_STEAL_CHILD, part, &counts[1]);
    teff_fork(&outer, TEFF_STEAL_CONTINUATION, part, &counts[2]);
    teff_fork(&inner, TEFF_STEAL_CHILD, part, &counts[3]);
    return takes_too_much(turn, key, in, out);
}

static teff_err hears(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    return out ? TEFF_E_FAILED : teff_fail(turn, TEFF_OK, "nothing");
}

/* What another grain's turn makes of it. */
static teff_err asks_a_taker(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    teff_call call;
    out->n = direct_actor_obey(turn, key + FIRST, RUN(takes_too_much), &got);
    out->text = teff_strdup(turn, teff_error(turn));
    if (direct_actor_obey_async(turn, key + FIRST, RUN(takes_too_much), NULL, &call) == TEFF_OK &&
        direct_actor_obey_await(turn, call, &got) == TEFF_E_NOMEM &&
        direct_actor_tell(turn, key + FIRST, RUN(hears)) == TEFF_OK)
        return direct_actor_obey(turn, key + FIRST, ACT(responds, .n = 1), &got);
    return TEFF_E_FAILED;
}

static void fails_alone(script *own)
{
    direct_number *out;
    uint64_t activations;
    lab_ok(ctx, direct_actor_obey(ctx, 1, RUN(responds), &out));
    activations = acts_activations();
    for (int i = 0; i < 20; i++) {
        lab_fails(ctx, direct_actor_obey(ctx, 1, RUN(own), &out), TEFF_E_NOMEM);
        assert_non_null(strstr(teff_error(ctx), "direct.Actor.Obey at "));
        assert_non_null(strstr(teff_error(ctx), "at most 134217728"));
        lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(responds, .n = i), &out));
        assert_int_equal(out->n, i + 1);
        teff_ctx_reset(ctx);
    }
    assert_true(acts_activations() >= activations);
}

static void test_a_turn_ends_over_its_memory(void **state)
{
    fails_alone(takes_too_much);
    fails_alone(takes_for_ever);
    fails_alone(waits_and_takes);
    fails_alone(starts_and_takes);
    direct_number *out;
    for (int i = 0; i < 3; i++) /* the last of them are done, too */
        lab_ok(ctx, direct_actor_obey(ctx, 1 + FIRST + i, RUN(responds), &out));
}

static void test_its_caller_goes_on(void **state)
{
    direct_number *out;
    for (int i = 0; i < 20; i++) {
        lab_ok(ctx, direct_actor_obey(ctx, 1, RUN(asks_a_taker), &out));
        assert_int_equal(out->n, TEFF_E_NOMEM);
        assert_non_null(strstr(out->text, "direct.Actor.Obey at "));
    }
}

static void test_nobody_is_told_of_a_one_way_message(void **state)
{
    direct_number *out;
    lab_ok(ctx, direct_actor_tell(ctx, 1, RUN(takes_for_ever)));
    lab_ok(ctx, direct_actor_obey(ctx, 1, RUN(responds), &out));
}

/* With one worker: it must be back. */
static void test_blocking_regions_end(void **state)
{
    fails_alone(blocks_and_takes);
}

static void test_forked_parts_are_waited_for(void **state)
{
    fails_alone(forks_and_takes);
    assert_int_equal(world.rounds, 20 * 4 * 100);
}

/* ---- state ---- */

static teff_err adds(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    out->n = acts_memo(turn)->count += in->n;
    return in->text[0] ? teff_state_save(turn) : TEFF_OK;
}

static teff_err spoils(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    acts_memo(turn)->n_lines = 1000; /* and then room for them: */
    acts_memo(turn)->lines = teff_state_alloc(turn, absurd);
    out->n = 1;
    return TEFF_OK;
}

static teff_err spoils_in_a_loop(teff_ctx *turn, int64_t key, const direct_act *in,
                                 direct_number *out)
{
    for (;; out->n++)
        acts_memo(turn)->note = memset(teff_state_alloc(turn, NOTE), 0, 1);
    return TEFF_OK;
}

/* The text and its end. */
static teff_err spoils_by_texts(teff_ctx *turn, int64_t key, const direct_act *in,
                                direct_number *out)
{
    static char text[NOTE];
    memset(text, 'x', NOTE - 1);
    for (int i = 0; i < 126; i++)
        acts_memo(turn)->note = memset(teff_state_alloc(turn, NOTE), 0, 1);
    for (;; out->n++)
        acts_memo(turn)->note = teff_state_strdup(turn, text);
    return TEFF_OK;
}

static teff_err spoils_by_the_turns_memory(teff_ctx *turn, int64_t key, const direct_act *in,
                                           direct_number *out)
{
    acts_memo(turn)->count = 1000;
    return takes_too_much(turn, key, in, out);
}

static void is_as_saved_after(script *own, const char *text)
{
    direct_number *out;
    lab_ok(ctx, direct_keeper_obey(ctx, 1, ACT(adds, .n = 5, .text = "save"), &out));
    int64_t saved = out->n;
    for (int i = 0; i < 5; i++) {
        int activated = world.activated;
        lab_ok(ctx, direct_keeper_obey(ctx, 1, ACT(adds, .n = 1), &out));
        lab_fails(ctx, direct_keeper_obey(ctx, 1, RUN(own), &out), TEFF_E_NOMEM);
        assert_non_null(strstr(teff_error(ctx), text));
        lab_ok(ctx, direct_keeper_obey(ctx, 1, ACT(adds, .n = 0), &out));
        assert_int_equal(out->n, saved);
        assert_int_equal(world.activated, activated + 1);
    }
    assert_int_equal(world.deactivated, 0);
}

static void test_a_state_is_as_it_was_saved(void **state)
{
    is_as_saved_after(spoils, "direct.Keeper.Obey at 1: no memory for 1099511627776 bytes more");
    is_as_saved_after(spoils_in_a_loop, "at most 134217728");
    is_as_saved_after(spoils_by_texts, "direct.Keeper.Obey at 1: no memory for 1048576 bytes more");
    is_as_saved_after(spoils_by_the_turns_memory, "more for a turn");
}

static teff_err spoils_once(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    world.on_activate = (script *)0;
    return spoils(turn, key, in, out);
}

static void test_an_activation_fails(void **state)
{
    direct_number *out;
    world.on_activate = spoils_once;
    lab_fails(ctx, direct_keeper_obey(ctx, 1, ACT(adds, .n = 5), &out), TEFF_E_NOMEM);
    assert_non_null(strstr(teff_error(ctx), "direct.Keeper at 1: "));
    lab_ok(ctx, direct_keeper_obey(ctx, 1, ACT(adds, .n = 5), &out));
    assert_int_equal(out->n, 5);
    assert_int_equal(world.deactivated, 0);
}

static teff_err keeps_without_state(teff_ctx *turn, int64_t key, const direct_act *in,
                                    direct_number *out)
{
    out->text = teff_state_strdup(turn, in->text);
    return TEFF_OK;
}

static void test_a_turn_without_state_has_no_memory_of_one(void **state)
{
    direct_number *out;
    lab_fails(ctx, direct_actor_obey(ctx, 1, RUN(keeps_without_state), &out), TEFF_E_INVALID);
    lab_ok(ctx, direct_actor_obey(ctx, 1, RUN(responds), &out));
}

/* ---- the end of a life ---- */

static void add_silo(void)
{
    const char *seed = l->silos[0]->node.address;
    char text[TEFF_TEXT_MAX] = "";
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .seeds = {seed}, .workers = 2};
    if (teff_silo_new(&opt, &l->silos[1], text) || teff_silo_start(l->silos[1], text))
        fail_msg("%s", text);
    l->ctx[1] = teff_silo_new_ctx(l->silos[1]);
    l->n = 2;
    lab_until(teff_silo_members(l->silos[0]) == 2);
    lab_until(!l->silos[0]->node.grains->shards->recovering);
    lab_until(!l->silos[1]->node.grains->shards->recovering);
}

/* Of a grain whose entry the other silo keeps. */
static int64_t key_elsewhere(unsigned *partition)
{
    teffi_node *node = &l->silos[0]->node;
    const teffi_view *view = teffi_view_ref_current(node);
    int64_t key = 0;
    teffi_node_id owner;
    do {
        key++;
        *partition =
            teffi_partition_of_hash(teffi_ident_of(&node->grains->secret, direct_keeper_info.id,
                                                   (const uint8_t *)&key, sizeof key)
                                        .hash);
        owner = teffi_view_owner(view, *partition);
    } while (teffi_node_equals(owner, node->id));
    teffi_view_unref(view);
    return key;
}

enum { AHEAD = 1000, LEFT = 20000 /* enough to read rows into, but not to list them */ };
static unsigned partition_away;
static uint64_t changes_seen;

/* The other silo says from now on that it is not the owner, and knows newer views. */
static void set_owner(bool is)
{
    teffi_grains *other = l->silos[1]->node.grains;
    pthread_mutex_t *lock = &other->shards->at[partition_away].lock;
    pthread_mutex_lock(lock);
    other->shards->at[partition_away].phase = is ? TEFFI_SERVING : TEFFI_NOT_MINE;
    if (is)
        other->shards->version -= AHEAD;
    else
        other->shards->version += AHEAD;
    pthread_mutex_unlock(lock);
}

static teff_err takes_most_and_fails(teff_ctx *turn, int64_t key, const direct_act *in,
                                     direct_number *out)
{
    for (size_t n = MB; n; n /= 2)
        while (turn->arena.budget_bytes - turn->arena.used_bytes >= n + LEFT)
            (void)teff_alloc(turn, n);
    set_owner(false);
    changes_seen = turn->node->membership->follow.changes.count;
    world.held = 1;
    return teff_fail(turn, TEFF_E_USER, "not now");
}

/* What its code took does not keep the runtime from what is to be done at its end: here it reads
 * the table of members for all of the silo. */
static void test_a_life_that_took_its_memory_is_taken_down(void **state)
{
    direct_number *out;
    teff_call call;
    add_silo();
    teffi_membership *members = l->silos[0]->node.membership;
    int64_t key = key_elsewhere(&partition_away);
    world.on_activate = takes_most_and_fails;
    lab_ok(ctx, direct_keeper_obey_async(ctx, key, ACT(adds, .n = 5), NULL, &call));
    lab_until(world.held);
    lab_until(members->follow.changes.count > changes_seen || !lab_pending(call.impl));
    set_owner(true);
    lab_fails(ctx, direct_keeper_obey_await(ctx, call, &out), TEFF_E_USER);
    lab_ok(ctx, teffi_membership_refresh(ctx, 0));
}

/* ---- turns that overlap ---- */

/* Those that sleep meanwhile would go on with what is half changed: they end, too. */
static void test_the_other_turns_of_the_grain_end(void **state)
{
    enum { HELD = 5 };
    teff_call calls[HELD];
    direct_number *out;
    lab_ok(ctx, direct_crowd_obey(ctx, 1, ACT(adds, .n = 5, .text = "save"), &out));
    for (int i = 0; i < HELD; i++)
        lab_ok(ctx, direct_crowd_obey_async(ctx, 1, RUN(waits), NULL, &calls[i]));
    lab_until(world.held == HELD);
    lab_fails(ctx, direct_crowd_obey(ctx, 1, RUN(spoils), &out), TEFF_E_NOMEM);
    for (int i = 0; i < HELD; i++) {
        lab_fails(ctx, direct_crowd_obey_await(ctx, calls[i], &out), TEFF_E_NOMEM);
        assert_non_null(strstr(teff_error(ctx), "with its grain"));
        assert_non_null(strstr(teff_error(ctx), "direct.Crowd.Obey at 1: with"));
    }
    lab_ok(ctx, direct_crowd_obey(ctx, 1, ACT(adds, .n = 0), &out));
    assert_int_equal(out->n, 5);
    assert_int_equal(world.activated, 2);
    assert_int_equal(world.deactivated, 0);
}

static teff_err notes(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    char *note = teff_state_alloc(turn, NOTE);
    memset(note, 'a' + (int)(in->n % 26), NOTE - 1);
    acts_memo(turn)->note = note;
    return adds(turn, key, ACT(0, .n = 1, .text = ""), out);
}

/* It lasts until the next one is there, or new ones wait until the state is compacted. */
static teff_err overlaps(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    int64_t mine = ++world.rounds;
    while (world.rounds == mine && !world.gate &&
           !(teffi_activation_of_ctx(turn)->busy & TEFFI_BUSY_COMPACT))
        teffi_ctx_sleep(turn, 1);
    return TEFF_OK;
}

/* 300 MB of notes, one turn or another runs all the time. */
static void test_overlapping_turns_make_room(void **state)
{
    enum { ROUNDS = 30, NOTES = 10 };
    teff_call turns[ROUNDS + 1], calls[NOTES];
    direct_number *out;
    lab_ok(ctx, direct_crowd_obey_async(ctx, 1, RUN(overlaps), NULL, &turns[0]));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < NOTES; i++)
            lab_ok(ctx, direct_crowd_obey_async(ctx, 1, ACT(notes, .n = round), NULL, &calls[i]));
        lab_ok(ctx, direct_crowd_obey_async(ctx, 1, RUN(overlaps), NULL, &turns[round + 1]));
        lab_ok(ctx, teff_await_all(ctx, calls, NOTES));
    }
    world.gate = true;
    lab_ok(ctx, teff_await_all(ctx, turns, ROUNDS + 1));
    lab_ok(ctx, direct_crowd_obey(ctx, 1, ACT(adds, .n = 0), &out));
    assert_int_equal(out->n, ROUNDS * NOTES);
    assert_int_equal(world.activated, 1);
}

/* One turn sleeps for good: each pause for it has an end, and so has the memory. */
static void test_a_turn_that_stays_is_not_waited_for(void **state)
{
    direct_number *out;
    teff_call held;
    teff_err err = TEFF_OK;
    int n = 0;
    lab_ok(ctx, direct_crowd_obey_async(ctx, 1, RUN(waits), NULL, &held));
    while (!err && n < 1000) {
        err = direct_crowd_obey(ctx, 1, ACT(notes, .n = n), &out);
        n += !err;
    }
    assert_int_equal(err, TEFF_E_NOMEM);
    assert_in_range(n, 100, 128);
    world.gate = true;
    lab_fails(ctx, direct_crowd_obey_await(ctx, held, &out), TEFF_E_NOMEM);
    lab_ok(ctx, direct_crowd_obey(ctx, 1, ACT(adds, .n = 0), &out));
    assert_int_equal(out->n, 0);
}

/* The silo stops in a pause. */
static void test_a_pause_ends_with_the_silo(void **state)
{
    direct_number *out;
    teff_call held;
    lab_ok(ctx, direct_crowd_obey_async(ctx, 1, RUN(waits), NULL, &held));
    for (int n = 0; n < 64; n++)
        lab_ok(ctx, direct_crowd_obey(ctx, 1, ACT(notes, .n = n), &out));
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, acts_setup, acts_teardown)
#define ALONE(fn) cmocka_unit_test_setup_teardown(fn, acts_setup_one_worker, acts_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_a_turn_ends_over_its_memory),
        CASE(test_its_caller_goes_on),
        CASE(test_nobody_is_told_of_a_one_way_message),
        ALONE(test_blocking_regions_end),
        CASE(test_forked_parts_are_waited_for),
        CASE(test_a_state_is_as_it_was_saved),
        CASE(test_an_activation_fails),
        CASE(test_a_turn_without_state_has_no_memory_of_one),
        CASE(test_a_life_that_took_its_memory_is_taken_down),
        CASE(test_the_other_turns_of_the_grain_end),
        CASE(test_overlapping_turns_make_room),
        CASE(test_a_turn_that_stays_is_not_waited_for),
        CASE(test_a_pause_ends_with_the_silo),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
