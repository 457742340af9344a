/* test_deadlock.c - a cycle of waiting grains is reported to one caller in it, and nothing else is:
 * on one silo and on three; while probes are lost, forged or late. */
#include "activation/turn.h" /* before acts.h, whose ctx its parameters would hide */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "activation/waits.h"
#include "acts.h"
#include "call/calls.h"
#include "call/wait.h"
#include "directory/client.h"
#include "node/deliver.h"
#include "request/deadlock.h"

enum { SILOS = 3, A = 1, B = 2, C = 3, D = 4, E = 5, SLOW = 50, CLOCK = 60, VISIT_MS = 25 };

typedef Teff__Cluster__Probe probe;

/* ---- probes on their way ---- */

/* What happens to a probe before an activation handles it. out: false: it is lost. */
typedef bool interfere(teffi_activation *act, probe *p);

static bool let_pass(teffi_activation *act, probe *p)
{
    return true;
}

static interfere *_Atomic interferes = let_pass;
static _Atomic int hits;    /* of the present interference */
static teff_cancel *cancel; /* of a call in the cycle */
static int64_t cancellable; /* the grain that makes this call; 0: none */

static int64_t key_of(const teffi_activation *act)
{
    teff_key key;
    teffi_activation_get_key(act, &key);
    return key.number;
}

void __real_teffi_deadlock_handle_probe(teffi_activation *act, teffi_msg *msg);
void __wrap_teffi_deadlock_handle_probe(teffi_activation *act, teffi_msg *msg);

void __wrap_teffi_deadlock_handle_probe(teffi_activation *act, teffi_msg *msg)
{
    interfere *fn = interferes;
    if (fn != let_pass) {
        assert_int_equal(teffi_msg_unpack(msg, &teff__cluster__probe__descriptor), TEFF_OK);
        if (!fn(act, (probe *)msg->body)) {
            teffi_msg_free(msg);
            return;
        }
    }
    __real_teffi_deadlock_handle_probe(act, msg);
}

static _Atomic int visits; /* handled */

void __real_teffi_deadlock_handle_visit(teffi_activation *act, teffi_item *item);
void __wrap_teffi_deadlock_handle_visit(teffi_activation *act, teffi_item *item);

void __wrap_teffi_deadlock_handle_visit(teffi_activation *act, teffi_item *item)
{
    __real_teffi_deadlock_handle_visit(act, item);
    visits++;
}

/* ---- silos ---- */

static lab *three;

static void host_actor(teff_silo *silo)
{
    assert_int_equal(teff_silo_host(silo, direct_actor_type(&acts_actor, NULL)), TEFF_OK);
}

static void begin_test(void)
{
    memset(&world, 0, sizeof world);
    interferes = let_pass;
    hits = visits = 0;
    cancellable = 0;
    cancel = teff_cancel_new();
    assert_non_null(cancel);
}

static int setup(void **state)
{
    begin_test();
    three = lab_open_more(SILOS, host_actor);
    return 0;
}

static int teardown(void **state)
{
    world.gate = true;
    interferes = let_pass;
    lab_close(three);
    teff_cancel_free(cancel);
    return 0;
}

static int setup_one(void **state)
{
    begin_test();
    return acts_setup(state);
}

static int teardown_one(void **state)
{
    interferes = let_pass;
    int err = acts_teardown(state);
    teff_cancel_free(cancel);
    return err;
}

static const teffi_waits *waits_on(int silo)
{
    return three->silos[silo]->node.grains->waits;
}

static uint64_t reports(void)
{
    return waits_on(0)->reports + waits_on(1)->reports + waits_on(2)->reports;
}

static void place(int64_t key, int silo)
{
    direct_number *got;
    lab_ok(three->ctx[silo], direct_actor_obey(three->ctx[silo], key, RUN(responds), &got));
}

static script asks_slow;

/* Time has passed when probes were sent for a call that is slow: at the least 50 ms and 100 ms. */
static void probes_follow_a_slow_call(int silo, int times)
{
    teff_ctx *from = teff_silo_new_ctx(three->silos[silo]);
    teff_call slow, behind;
    uint64_t before = waits_on(silo)->probes;
    lab_ok(from, direct_actor_obey_async(from, SLOW, RUN(asks_slow), NULL, &slow));
    lab_until(world.held > 0);
    lab_ok(from, direct_actor_obey_async(from, SLOW, RUN(responds), NULL, &behind));
    lab_until(waits_on(silo)->probes >= before + (unsigned)times);
    teff_ctx_free(from);
}

/* ---- methods ---- */

/* out: the first number of the text, and the rest of the text. */
static int64_t split(const char *text, const char **rest)
{
    char *end;
    int64_t key = strtoll(text, &end, 10);
    *rest = *end ? end + 1 : end;
    return key;
}

static script walks;

/* Calls grain `next`. After the call was cancelled, holds the own grain until the gate opens. */
static teff_err walks_cancellably(teff_ctx *turn, int64_t key, int64_t next, const char *rest)
{
    const teff_call_options options = {.size = sizeof options, .cancel = cancel};
    teff_call call;
    direct_number *got, unused;
    lab_ok(turn,
           direct_actor_obey_async(turn, next, ACT(walks, .text = (char *)rest), &options, &call));
    lab_fails(turn, direct_actor_obey_await(turn, call, &got), TEFF_E_CANCELLED);
    return waits(turn, key, direct_act(), &unused);
}

/* "2,3,1": asks grain 2, which asks 3, which asks 1, which responds. */
static teff_err walks(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    const char *rest;
    direct_number *got;
    if (!in->text[0])
        return responds(turn, key, in, out);
    int64_t next = split(in->text, &rest);
    if (key == cancellable)
        return walks_cancellably(turn, key, next, rest);
    teff_err err = direct_actor_obey(turn, next, ACT(walks, .text = (char *)rest), &got);
    out->n = err ? 0 : got->n + 1;
    return err;
}

static teff_err walks_from_gate(teff_ctx *turn, int64_t key, const direct_act *in,
                                direct_number *out)
{
    direct_number unused;
    (void)!waits(turn, key, in, &unused);
    return walks(turn, key, in, out);
}

/* As walks, but the last grain runs its read-only method. */
static teff_err walks_to_reader(teff_ctx *turn, int64_t key, const direct_act *in,
                                direct_number *out)
{
    const char *rest;
    direct_number *got;
    int64_t next = split(in->text, &rest);
    teff_err err =
        rest[0] ? direct_actor_obey(turn, next, ACT(walks_to_reader, .text = (char *)rest), &got)
                : direct_actor_read(turn, next, RUN(responds), &got);
    out->n = err ? 0 : got->n + 1;
    return err;
}

/* Grain 50 asks 51, which waits for the gate. */
static teff_err asks_slow(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    return direct_actor_obey(turn, key + 1, RUN(waits), &got);
}

static teff_err waits_for(bool any, teff_ctx *turn, const direct_act *in, direct_number *out)
{
    const char *rest;
    teff_call calls[2];
    direct_number *got;
    size_t which;
    int64_t next = split(in->text, &rest);
    lab_ok(turn, direct_actor_obey_async(turn, SLOW + 1, RUN(waits), NULL, &calls[0]));
    lab_ok(turn,
           direct_actor_obey_async(turn, next, ACT(walks, .text = (char *)rest), NULL, &calls[1]));
    if (any) {
        lab_ok(turn, teff_await_any(turn, calls, 2, &which));
        assert_int_equal(which, 0);
        return TEFF_OK; /* and drops the other call */
    }
    teff_err err = teff_await_all(turn, &calls[1], 1);
    return err ? err : direct_actor_obey_await(turn, calls[0], &got);
}

static teff_err awaits_any(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    return waits_for(true, turn, in, out);
}

static teff_err awaits_all(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    return waits_for(false, turn, in, out);
}

/* ---- cycles are reported ---- */

static void expect_cycle(teff_ctx *from, int64_t key, const char *path, const char *text)
{
    direct_number *got;
    lab_fails(from, direct_actor_obey(from, key, ACT(walks, .text = (char *)path), &got),
              TEFF_E_DEADLOCK);
    assert_string_equal(teff_error(from), text);
    assert_false(teff_call_may_have_run(TEFF_E_DEADLOCK));
    /* all grains are free again */
    lab_ok(from, direct_actor_obey(from, key, RUN(responds), &got));
}

static void a_grain_that_calls_itself(void **state)
{
    expect_cycle(three->ctx[0], A, "1",
                 "direct.Actor.Obey at 1 waits for direct.Actor.Obey at 1, a cycle of 1 grain");
    assert_int_equal(reports(), 1);
}

static const char two_text[] = "direct.Actor.Obey at 1 waits for direct.Actor.Obey at 1, which "
                               "waits for direct.Actor.Obey at 2, a cycle of 2 grains";
static const char three_text[] =
    "direct.Actor.Obey at 1 waits for direct.Actor.Obey at 1, which waits for direct.Actor.Obey "
    "at 2, which waits for direct.Actor.Obey at 3, a cycle of 3 grains";

static void two_grains(void **state)
{
    expect_cycle(three->ctx[0], A, "2,1", two_text); /* new grains, then idle ones: in place */
    expect_cycle(three->ctx[0], A, "2,1", two_text);
}

static bool dump_tells;

static void look_for_deadlocks(void *arg, const char *line)
{
    dump_tells |= strstr(line, ", 2 deadlocks ended, ") != NULL;
}

static void two_grains_on_two_silos(void **state)
{
    place(A, 0);
    place(B, 1);
    expect_cycle(three->ctx[0], A, "2,1", two_text);
    expect_cycle(three->ctx[2], A, "2,1", two_text); /* the caller is on another silo */
    assert_int_equal(waits_on(0)->reports, 2);
    teff_silo_dump(three->silos[0], look_for_deadlocks, NULL);
    assert_true(dump_tells);
}

static void three_grains_on_two_silos(void **state)
{
    place(A, 0);
    place(B, 1);
    place(C, 1);
    expect_cycle(three->ctx[0], A, "2,3,1", three_text);
}

static void a_client_calls(void **state)
{
    teff_client *client = lab_client(three, (int[]){0, -1});
    teff_ctx *from = teff_client_new_ctx(client);
    place(A, 1); /* not the gateway */
    place(B, 2);
    expect_cycle(from, A, "2,1", two_text);
    teff_ctx_free(from);
    teff_client_free(client);
}

/* A's silo sends its request to the silo where B was; from there it goes on. */
static void a_call_through_a_silo_that_the_grain_has_left(void **state)
{
    direct_number *got;
    for (int64_t key = FIRST; key < FIRST + 2; key++) {
        place(A, 0);
        uint64_t before = three->silos[1]->node.grains->shards->activations;
        place(key, 1);
        lab_ok(three->ctx[0], direct_actor_obey(three->ctx[0], key, RUN(ends), &got));
        lab_until(three->silos[1]->node.grains->shards->activations == before);
        place(key, 2);
        char path[20];
        snprintf(path, sizeof path, "%d,1", (int)key);
        lab_fails(three->ctx[0],
                  direct_actor_obey(three->ctx[0], A, ACT(walks, .text = path), &got),
                  TEFF_E_DEADLOCK);
    }
    assert_int_equal(reports(), 2);
}

/* Each of them has a request set aside: one of these fails, and the other one runs. out: which of
 * the two calls has failed. */
static int calls_that_cross(int64_t one, const char *to_two, int64_t two, const char *to_one,
                            teff_ctx *from)
{
    teff_call calls[2];
    direct_number *got;
    world.gate = false;
    lab_ok(from, direct_actor_obey_async(from, one, ACT(walks_from_gate, .text = (char *)to_two),
                                         NULL, &calls[0]));
    lab_ok(from, direct_actor_obey_async(from, two, ACT(walks_from_gate, .text = (char *)to_one),
                                         NULL, &calls[1]));
    lab_until(world.held == 2);
    world.gate = true;
    teff_err first = direct_actor_obey_await(from, calls[0], &got);
    lab_fails(from, direct_actor_obey_await(from, calls[1], &got),
              first ? TEFF_OK : TEFF_E_DEADLOCK);
    if (first)
        assert_int_equal(first, TEFF_E_DEADLOCK);
    lab_until(world.held == 0);
    return first ? 0 : 1;
}

static void calls_that_cross_lose_one(void **state)
{
    (void)calls_that_cross(A, "2", B, "1", three->ctx[0]);
    place(C, 0);
    place(D, 1);
    /* the request fails that waits at the silo with the lower id: grain C calls D, and D calls C */
    bool c_fails =
        teffi_node_to_word(three->silos[1]->node.id) < teffi_node_to_word(three->silos[0]->node.id);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(calls_that_cross(C, "4", D, "3", three->ctx[i % SILOS]), c_fails ? 0 : 1);
    assert_int_equal(reports(), 11);
}

static void two_cycles_lose_one_each(void **state)
{
    teff_ctx *from = three->ctx[0];
    teff_call calls[2];
    direct_number *got;
    place(A, 0);
    place(B, 1);
    place(C, 1);
    place(D, 2);
    lab_ok(from, direct_actor_obey_async(from, A, ACT(walks, .text = "2,1"), NULL, &calls[0]));
    lab_ok(from, direct_actor_obey_async(from, C, ACT(walks, .text = "4,3"), NULL, &calls[1]));
    lab_fails(from, direct_actor_obey_await(from, calls[1], &got), TEFF_E_DEADLOCK);
    lab_fails(from, direct_actor_obey_await(from, calls[0], &got), TEFF_E_DEADLOCK);
    assert_int_equal(reports(), 2);
}

static void calls_begun_before_they_are_awaited(void **state)
{
    direct_number *got;
    place(A, 0);
    place(B, 1);
    world.gate = true;
    lab_fails(three->ctx[0],
              direct_actor_obey(three->ctx[0], A, ACT(awaits_all, .text = "2,1"), &got),
              TEFF_E_DEADLOCK);
}

/* A reader waits for a writer, and a writer for a reader. */
static void readers_and_writers(void **state)
{
    teff_ctx *from = three->ctx[0];
    direct_number *got;
    place(A, 0);
    place(B, 1);
    lab_fails(from, direct_actor_read(from, A, ACT(walks, .text = "2,1"), &got), TEFF_E_DEADLOCK);
    assert_string_equal(teff_error(from),
                        "direct.Actor.Obey at 1 waits for direct.Actor.Read at 1, which waits for "
                        "direct.Actor.Obey at 2, a cycle of 2 grains");
    lab_fails(from, direct_actor_obey(from, A, ACT(walks_to_reader, .text = "2,1"), &got),
              TEFF_E_DEADLOCK);
    lab_ok(from, direct_actor_read(from, A, ACT(walks_to_reader, .text = "2,1"), &got));
    assert_int_equal(reports(), 2);
}

/* Two readers run; the writer waits for both, and only one of them waits for the writer. */
static void one_of_two_readers(void **state)
{
    teff_ctx *from = three->ctx[0];
    teff_call free_reader, reader;
    direct_number *got;
    place(A, 0);
    place(B, 1);
    lab_ok(from, direct_actor_read_async(from, A, RUN(waits), NULL, &free_reader));
    lab_until(world.held == 1);
    lab_ok(from, direct_actor_read_async(from, A, ACT(walks, .text = "2,1"), NULL, &reader));
    lab_fails(from, direct_actor_read_await(from, reader, &got), TEFF_E_DEADLOCK);
    world.gate = true;
    lab_ok(from, direct_actor_read_await(from, free_reader, &got));
}

/* ---- nothing else is ---- */

static void slow_calls_are_not_reported(void **state)
{
    teff_ctx *from = three->ctx[0];
    teff_call calls[3];
    direct_number *got;
    place(A, 0);
    place(B, 1);
    place(SLOW + 1, 2);
    lab_ok(from,
           direct_actor_obey_async(from, A, ACT(walks_from_gate, .text = ""), NULL, &calls[0]));
    lab_ok(from, direct_actor_obey_async(from, B, ACT(walks, .text = "1"), NULL, &calls[1]));
    lab_ok(from, direct_actor_obey_async(from, B, RUN(responds), NULL, &calls[2]));
    probes_follow_a_slow_call(0, 3);
    assert_int_equal(reports(), 0);
    world.gate = true;
    for (int i = 0; i < 3; i++)
        lab_ok(from, direct_actor_obey_await(from, calls[i], &got));
}

static void a_wait_for_any_call_is_not_reported(void **state)
{
    teff_ctx *from = three->ctx[0];
    teff_call call;
    direct_number *got;
    place(A, 0);
    place(B, 0);
    place(SLOW + 1, 1);
    lab_ok(from, direct_actor_obey_async(from, A, ACT(awaits_any, .text = "2,1"), NULL, &call));
    lab_until(world.held == 1);
    probes_follow_a_slow_call(2, 3);
    assert_int_equal(reports(), 0);
    assert_int_equal(waits_on(0)->probes, 0);
    world.gate = true;
    lab_ok(from, direct_actor_obey_await(from, call, &got));
}

static bool cancel_when_confirming_at_b(teffi_activation *act, probe *p)
{
    if (key_of(act) == B && p->confirms && !hits++)
        teff_cancel_fire(cancel);
    return true;
}

static bool cancel_when_first_round_is_at_c(teffi_activation *act, probe *p)
{
    if (key_of(act) == C && !p->confirms && !hits++)
        teff_cancel_fire(cancel);
    return true;
}

/* The call of grain `caller` ends while a probe is behind it. Its turn then waits for the gate, so
 * that the request at A stays set aside. */
static void a_call_that_ends_meanwhile(int64_t caller, interfere *when)
{
    teff_ctx *from = three->ctx[0];
    direct_number *got;
    teff_call call;
    place(A, 0);
    place(B, 1);
    place(C, 2);
    cancellable = caller;
    interferes = when;
    lab_ok(from, direct_actor_obey_async(from, A, ACT(walks, .text = "2,3,1"), NULL, &call));
    lab_until(hits && world.held == 1);
    probes_follow_a_slow_call(0, 3);
    assert_int_equal(reports(), 0);
    world.gate = true;
    lab_ok(from, direct_actor_obey_await(from, call, &got));
}

static void a_call_that_ends_in_the_second_round(void **state)
{
    a_call_that_ends_meanwhile(A, cancel_when_confirming_at_b);
}

static void a_call_that_ends_in_the_first_round(void **state)
{
    a_call_that_ends_meanwhile(B, cancel_when_first_round_is_at_c);
}

/* ---- probes that are lost or forged ---- */

static bool lose_some(teffi_activation *act, probe *p)
{
    return hits++ >= 3;
}

static bool lose_one_that_confirms(teffi_activation *act, probe *p)
{
    return !p->confirms || hits++ >= 1;
}

static void lost_probes_are_repeated(void **state)
{
    place(A, 0);
    place(B, 1);
    interferes = lose_some;
    expect_cycle(three->ctx[0], A, "2,1", two_text);
    assert_true(hits > 3);
    hits = 0;
    interferes = lose_one_that_confirms;
    expect_cycle(three->ctx[0], A, "2,1", two_text);
    assert_true(hits > 1);
}

/* Until hits is 3, each probe that comes back says that another activation has begun it. */
static bool forge_token(teffi_activation *act, probe *p)
{
    assert_int_equal(reports(), 0);
    if (key_of(act) == A && hits++ < 3)
        p->token ^= 1;
    return true;
}

static void a_probe_that_this_silo_did_not_begin(void **state)
{
    place(A, 0);
    place(B, 1);
    interferes = forge_token;
    expect_cycle(three->ctx[0], A, "2,1", two_text);
    assert_true(hits > 3);
}

/* A probe to an actor's call in slot 1. */
static teffi_msg *new_probe_msg(teffi_node_id from, size_t words, size_t key_len)
{
    static uint64_t path[2 * TEFFI_PROBE_CALLS_MAX + 2];
    static uint8_t key[TEFFI_KEY_BYTES_MAX + 1];
    probe p = TEFF__CLUSTER__PROBE__INIT;
    teffi_packed_pid initiator;
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_ONEWAY);
    assert_non_null(msg);
    teffi_pid_pack(&initiator, (teffi_pid){from, 100, 1});
    p.initiator = &initiator.pid;
    p.path = path;
    p.n_path = words;
    p.slot = p.generation = 1;
    p.budget = 1000000;
    p.type = direct_actor_info.id;
    p.key = (ProtobufCBinaryData){key_len, key};
    assert_true(teffi_node_pack_body(msg, &p.base));
    msg->src = from;
    msg->to.slot = TEFFI_SLOT_DEADLOCK;
    return msg;
}

/* Too long, not a probe, from a node that is no silo of the view: all are dropped. */
static void probes_that_are_not_valid(void **state)
{
    teffi_node *node = &three->silos[0]->node;
    const teffi_node_id peer = three->silos[1]->node.id, client = {TEFFI_CLIENT_BIT | 7, 7};
    const uint64_t before = node->dropped;
    teffi_msg *bad[] = {
        new_probe_msg(peer, 0, 8),
        new_probe_msg(peer, 3, 8),
        new_probe_msg(peer, 2 * TEFFI_PROBE_CALLS_MAX + 2, 8),
        new_probe_msg(peer, 2, TEFFI_KEY_BYTES_MAX + 1),
        new_probe_msg(client, 2, 8),
        new_probe_msg((teffi_node_id){1, 1}, 2, 8),
        new_probe_msg(peer, 2, 8),
        new_probe_msg(peer, 2, 8),
        new_probe_msg(peer, 2, 8),
    };
    const size_t n = sizeof bad / sizeof bad[0];
    static uint8_t large[TEFFI_PROBE_BYTES_MAX + 1];
    bad[n - 1]->raw = large; /* zeros do not decode, either */
    bad[n - 1]->raw_len = sizeof large;
    bad[n - 2]->raw_len--;
    bad[n - 3]->item.kind = TEFFI_MSG_REQUEST;
    for (size_t i = 0; i < n; i++)
        teffi_node_deliver(node, bad[i]);
    lab_until(node->dropped == before + n);
    teffi_node_deliver(node, new_probe_msg(peer, 2, 8)); /* valid: there is no such grain */
    expect_cycle(three->ctx[0], A, "1",
                 "direct.Actor.Obey at 1 waits for direct.Actor.Obey at 1, a cycle of 1 grain");
    assert_int_equal(node->dropped, before + n);
}

/* ---- when: the clock is moved by hand ---- */

static teff_ctx *clock_ctx;

static teff_err passes(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    acts_pass_ms((uint64_t)in->n);
    return TEFF_OK;
}

static void pass_ms(int64_t ms)
{
    direct_number *got;
    lab_ok(clock_ctx, direct_actor_obey(clock_ctx, CLOCK, ACT(passes, .n = ms), &got));
}

static const teffi_waits *own_waits(void)
{
    return l->silos[0]->node.grains->waits;
}

static int setup_stopped(void **state)
{
    setup_one(state);
    acts_stop_time();
    clock_ctx = teff_silo_new_ctx(l->silos[0]);
    return 0;
}

static int teardown_stopped(void **state)
{
    teff_ctx_free(clock_ctx);
    return teardown_one(state);
}

/* The next visit is handled when the clock has passed the 25 ms, rounded up to the next tick of the
 * timers, and not before. */
static void pass_until_next_visit(void)
{
    int before = visits;
    pass_ms(VISIT_MS - 1);
    assert_int_equal(visits, before);
    pass_ms(2);
    lab_until(visits == before + 1);
}

static void a_cycle_is_reported_after_75_ms(void **state)
{
    teff_call call;
    direct_number *got;
    lab_ok(ctx, direct_actor_obey_async(ctx, A, ACT(walks, .text = "1"), NULL, &call));
    lab_until(own_waits()->watched == 1);
    pass_until_next_visit();
    pass_until_next_visit();
    assert_int_equal(own_waits()->probes, 0); /* it may have waited for less than 50 ms */
    pass_until_next_visit();
    lab_fails(ctx, direct_actor_obey_await(ctx, call, &got), TEFF_E_DEADLOCK);
    assert_int_equal(own_waits()->probes, 2); /* one in each round */
    int before = visits;
    while (own_waits()->watched) /* the timer finds that no request waits: no visit is needed */
        pass_ms(VISIT_MS + 1);
    assert_int_equal(visits, before);
}

static teff_err walks_for_60_ms(teff_ctx *turn, int64_t key, const direct_act *in,
                                direct_number *out)
{
    teff_ctx_set_timeout(turn, 60);
    return walks(turn, key, in, out);
}

static void a_deadline_is_earlier(void **state)
{
    teff_call call;
    direct_number *got;
    lab_ok(ctx, direct_actor_obey_async(ctx, A, ACT(walks_for_60_ms, .text = "1"), NULL, &call));
    lab_until(own_waits()->watched == 1);
    pass_until_next_visit();
    pass_until_next_visit();
    pass_ms(20);
    lab_fails(ctx, direct_actor_obey_await(ctx, call, &got), TEFF_E_TIMEOUT);
    lab_ok(ctx, direct_actor_obey(ctx, A, RUN(responds), &got));
    assert_int_equal(own_waits()->probes, 0);
    assert_int_equal(own_waits()->reports, 0);
}

static void expect_next_probe_after(int n)
{
    uint64_t before = own_waits()->probes;
    for (int i = 0; i < n; i++) {
        assert_int_equal(own_waits()->probes, before);
        pass_until_next_visit();
    }
    lab_until(own_waits()->probes == before + 1);
}

static void probes_are_repeated_ever_more_slowly(void **state)
{
    teff_call slow, behind[2];
    direct_number *got;
    lab_ok(ctx, direct_actor_obey_async(ctx, SLOW, RUN(asks_slow), NULL, &slow));
    lab_until(world.held == 1);
    lab_ok(ctx, direct_actor_obey_async(ctx, SLOW, RUN(responds), NULL, &behind[0]));
    lab_until(own_waits()->watched == 1);
    static const int pauses[] = {3, 4, 8, 16, 32, 40, 40};
    for (size_t i = 0; i < sizeof pauses / sizeof pauses[0]; i++)
        expect_next_probe_after(pauses[i]);
    lab_ok(ctx, direct_actor_obey_async(ctx, SLOW, RUN(responds), NULL, &behind[1]));
    expect_next_probe_after(3);
    assert_int_equal(own_waits()->reports, 0);
    world.gate = true;
    pass_ms(2); /* a turn looks at it every millisecond */
    lab_ok(ctx, direct_actor_obey_await(ctx, slow, &got));
    for (int i = 0; i < 2; i++)
        lab_ok(ctx, direct_actor_obey_await(ctx, behind[i], &got));
}

/* Per 25 ms, 1,024 are handled. */
static void too_many_probes_are_dropped(void **state)
{
    teffi_node *node = &l->silos[0]->node;
    for (int i = 0; i < 1024 + 10; i++)
        teffi_node_deliver(node, new_probe_msg(node->id, 2, 8));
    lab_until(node->dropped == 10);
    pass_ms(VISIT_MS + 1);
    teffi_node_deliver(node, new_probe_msg(node->id, 2, 8));
    teffi_node_deliver(node, new_probe_msg(node->id, 3, 8)); /* is not valid */
    lab_until(node->dropped >= 11);
    assert_int_equal(node->dropped, 11);
}

int main(void)
{
#define ON_THREE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
#define STOPPED(test) cmocka_unit_test_setup_teardown(test, setup_stopped, teardown_stopped)
    const struct CMUnitTest tests[] = {
        ON_THREE(a_grain_that_calls_itself),
        ON_THREE(two_grains),
        ON_THREE(two_grains_on_two_silos),
        ON_THREE(three_grains_on_two_silos),
        ON_THREE(a_client_calls),
        ON_THREE(a_call_through_a_silo_that_the_grain_has_left),
        ON_THREE(calls_that_cross_lose_one),
        ON_THREE(two_cycles_lose_one_each),
        ON_THREE(calls_begun_before_they_are_awaited),
        ON_THREE(readers_and_writers),
        ON_THREE(one_of_two_readers),
        ON_THREE(slow_calls_are_not_reported),
        ON_THREE(a_wait_for_any_call_is_not_reported),
        ON_THREE(a_call_that_ends_in_the_second_round),
        ON_THREE(a_call_that_ends_in_the_first_round),
        ON_THREE(lost_probes_are_repeated),
        ON_THREE(a_probe_that_this_silo_did_not_begin),
        ON_THREE(probes_that_are_not_valid),
        STOPPED(a_cycle_is_reported_after_75_ms),
        STOPPED(a_deadline_is_earlier),
        STOPPED(probes_are_repeated_ever_more_slowly),
        STOPPED(too_many_probes_are_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
