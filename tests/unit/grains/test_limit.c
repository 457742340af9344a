/* test_limit.c - silos that limit the number of their activations, or are short of memory: the
 * least recently used ones end, what must stay stays, and no call is lost. */
#include <string.h>
#include "directory/shard.h"
#include "lab.h"
#include "os/memory_use.h"
#include "stay.teff.h"

enum { MAX = 64, MOST = MAX + MAX / 4 + 1, MANY = 1000 };

static struct {
    _Atomic bool gate;
    _Atomic int held, activated, deactivated, ended_for[TEFF_REASON_MEMORY + 1];
    _Atomic bool ends_slowly; /* on_deactivate waits for the gate */
    _Atomic int64_t ending;   /* the grain that does */
} world;

static char store[512];
static teff_silo *silos[2];
static teff_ctx *ctx[2];
static teff_client *client;

/* ---- the grains ---- */

static void wait_for_gate(teff_ctx *turn)
{
    world.held++;
    while (!world.gate)
        teff_sleep(turn, 1);
    world.held--;
}

static teff_err add(stay_guest *self, const stay_number *in, stay_number *out)
{
    out->n = self->state->n += in->n;
    return TEFF_OK;
}

static teff_err hold(stay_guest *self)
{
    wait_for_gate(self->ctx);
    return TEFF_OK;
}

static teff_err stay(stay_guest *self, const stay_number *in)
{
    teff_delay_deactivation(self->ctx, in->n);
    return TEFF_OK;
}

/* Locks grain n, and waits. */
static teff_err lock(stay_guest *self, const stay_number *in)
{
    teff_err err = in->n ? stay_guest_lock(self->ctx, in->n, stay_number()) : TEFF_OK;
    if (!err && in->n)
        wait_for_gate(self->ctx);
    return err;
}

static teff_err begin(stay_guest *self)
{
    world.activated++;
    return TEFF_OK;
}

static teff_err end(stay_guest *self, teff_reason why)
{
    world.ended_for[why]++;
    if (world.ends_slowly) {
        world.ending = self->key;
        wait_for_gate(self->ctx);
    }
    teff_err err = stay_guest_save(self);
    world.deactivated++;
    return err;
}

/* Asks visitor n, in place if it is not there yet; or delays its own end. */
static teff_err ask(stay_visitor *self, const stay_number *in, stay_number *out)
{
    stay_number *got;
    if (in->n)
        return stay_visitor_ask(self->ctx, in->n, stay_number(), &got);
    teff_delay_deactivation(self->ctx, 600000);
    return TEFF_OK;
}

static const stay_guest_methods guest = {.add = add,
                                         .hold = hold,
                                         .stay = stay,
                                         .lock = lock,
                                         .on_activate = begin,
                                         .on_deactivate = end};
static const stay_visitor_methods visitor = {.ask = ask};

/* ---- the silos ---- */

/* 400 bytes may be used, and each activation of the first silo uses one. */
static bool say_memory(void *arg, teffi_memory_use *use)
{
    uint64_t n = silos[0]->node.grains->shards->activations;
    *use = (teffi_memory_use){.limit_bytes = 400, .used_bytes = n};
    return true;
}

/* in: hosts: the silo hosts the types. */
static void open_silo(int i, teff_silo_options opt, bool hosts)
{
    static teffi_platform platform;
    char text[TEFF_TEXT_MAX] = "";
    opt.size = sizeof opt;
    opt.store = store;
    teffi_silo_init_platform(&platform, TEFF_LOG_ERROR);
    platform.memory_use = say_memory;
    assert_int_equal(teffi_silo_new_on_platform(&platform, &opt, &silos[i], text), TEFF_OK);
    if (hosts) {
        assert_int_equal(teff_silo_host(silos[i], stay_guest_type(&guest, NULL)), TEFF_OK);
        assert_int_equal(teff_silo_host(silos[i], stay_visitor_type(&visitor, NULL)), TEFF_OK);
    }
    if (teff_silo_start(silos[i], text))
        fail_msg("teff_silo_start: %s", text);
    ctx[i] = teff_silo_new_ctx(silos[i]);
}

static int open_one_with(teff_silo_options opt)
{
    memset(&world, 0, sizeof world);
    lab_fresh_store(store);
    open_silo(0, opt, true);
    return 0;
}

static int open_one(void **state)
{
    return open_one_with((teff_silo_options){.activations_max = MAX});
}

static int open_one_with_little_memory(void **state)
{
    return open_one_with((teff_silo_options){.memory_percent = 60});
}

/* The second silo hosts nothing; a client is connected to it. */
static int open_two(void **state)
{
    teff_client_options opt = {.size = sizeof opt};
    (void)open_one(state);
    open_silo(1, (teff_silo_options){0}, false);
    lab_until(teff_silo_members(silos[0]) == 2);
    opt.gateways[0] = teff_silo_address(silos[1]);
    assert_int_equal(teff_client_connect(&opt, &client, NULL), TEFF_OK);
    return 0;
}

static int close_silos(void **state)
{
    world.gate = true;
    teff_client_free(client);
    client = NULL;
    for (int i = 1; i >= 0; i--) {
        if (silos[i])
            teff_ctx_free(ctx[i]);
        teff_silo_free(silos[i]);
        silos[i] = NULL;
    }
    lab_drop_store(store);
    return 0;
}

static uint64_t count_activations(void)
{
    return silos[0]->node.grains->shards->activations;
}

/* Calls the grain until the silo is not full. */
static int64_t add_to(teff_ctx *from, int64_t key, int64_t n)
{
    stay_number *out;
    teff_err err;
    uint64_t spent = 0;
    do
        err = stay_guest_add(from, key, stay_number(.n = n), &out);
    while (err == TEFF_E_OVERLOADED && lab_pause(&spent));
    lab_ok(from, err);
    return out->n;
}

/* ---- what ends ---- */

static void the_number_is_limited_and_no_call_is_lost(void **state)
{
    for (int64_t round = 1; round <= 3; round++)
        for (int64_t key = 1; key <= MANY; key++) {
            assert_int_equal(add_to(ctx[0], key, 1), round);
            assert_true(count_activations() <= MOST + 1); /* one that is being refused */
        }
    lab_until(count_activations() <= MAX);
    lab_until(world.ended_for[TEFF_REASON_LIMIT] == world.deactivated); /* for no other reason */
    assert_true(world.activated >= 3 * (MANY - MAX));
}

/* A grain is used again after each eight calls of others: it stays, though they come and go. */
static void the_least_recently_used_end(void **state)
{
    (void)add_to(ctx[0], 1, 1);
    int64_t n = 1;
    for (int64_t key = 2; key <= MANY; key++) {
        (void)add_to(ctx[0], key, 1);
        if (key % 8 == 0)
            n = add_to(ctx[0], 1, 1);
    }
    assert_int_equal(n, 1 + MANY / 8);
    lab_until(count_activations() <= MAX);
    assert_int_equal(world.activated, MANY); /* each once */
}

/* The calls of a grain that ends wait for its next activation, which has its state. */
static void calls_reach_the_next_activation(void **state)
{
    teff_call call;
    stay_number *out;
    world.ends_slowly = true;
    for (int64_t key = 1; key <= MAX + 1; key++)
        (void)add_to(ctx[0], key, 1);
    lab_until(world.held > 0);
    lab_ok(ctx[0], stay_guest_add_async(ctx[0], world.ending, stay_number(.n = 1), NULL, &call));
    for (int i = 0; i < 20; i++)
        (void)add_to(ctx[0], MAX + 1, 0);
    assert_false(teff_call_ended(ctx[0], call));
    world.gate = true;
    lab_ok(ctx[0], stay_guest_add_await(ctx[0], call, &out));
    assert_int_equal(out->n, 2);
}

/* ---- what stays ---- */

enum { KEPT = MOST - 1 }; /* and a visitor */

static teff_call held[KEPT];

static void keep_by_turns(void)
{
    for (int64_t key = 0; key < KEPT; key++)
        lab_ok(ctx[0], stay_guest_hold_async(ctx[0], key, NULL, &held[key]));
    lab_until(world.held == KEPT);
}

/* Half of them are set by calls from the other silo. */
static void keep_by_delays(void)
{
    for (int64_t key = 0; key < KEPT; key++)
        lab_ok(ctx[key % 2], stay_guest_stay(ctx[key % 2], key, stay_number(.n = 600000)));
}

/* Each root waits, and has locked a grain where no turn runs. */
static void keep_by_locks(void)
{
    for (int64_t key = 0; key < KEPT; key += 2)
        lab_ok(ctx[0], stay_guest_lock_async(ctx[0], 1000 + key, stay_number(.n = 1001 + key), NULL,
                                             &held[key]));
    lab_until(world.held == KEPT / 2);
}

static void end_delays(void)
{
    for (int64_t key = 0; key < KEPT; key++)
        lab_ok(ctx[0], stay_guest_stay(ctx[0], key, stay_number(.n = 0)));
}

static void open_gate(void)
{
    world.gate = true;
}

static const struct {
    const char *what;
    void (*keep)(void), (*let_go)(void);
} keeps[] = {
    {"running turns", keep_by_turns, open_gate},
    {"delays", keep_by_delays, end_delays},
    {"locks of transactions", keep_by_locks, open_gate},
};

/* A call of a grain that is not active is refused, wherever it comes from. */
static void expect_refused(teff_ctx *from, teff_err err)
{
    lab_fails(from, err, TEFF_E_OVERLOADED);
    if (!strstr(teff_error(from), "activations_max"))
        fail_msg("%s", teff_error(from));
}

/* Grains that are active are called as before. */
static void expect_full(teff_ctx *remote)
{
    enum { KEY = 5000 };
    teff_ctx *const from[] = {ctx[0], ctx[1], remote};
    stay_number *out;
    for (size_t i = 0; i < sizeof from / sizeof from[0]; i++) {
        expect_refused(from[i], stay_guest_add(from[i], KEY, stay_number(), &out));
        expect_refused(from[i], stay_visitor_ask(from[i], 1, stay_number(.n = KEY), &out));
        lab_ok(from[i], stay_visitor_ask(from[i], 1, stay_number(), &out));
    }
    assert_int_equal(count_activations(), MOST);
    assert_int_equal(world.ended_for[TEFF_REASON_LIMIT], 0);
}

/* While nothing may end, so many are active; then the silo recovers. */
static void what_is_in_use_stays(void **state)
{
    for (size_t i = 0; i < sizeof keeps / sizeof keeps[0]; i++) {
        stay_number *out;
        assert_int_equal(open_two(state), 0);
        teff_ctx *remote = teff_client_new_ctx(client);
        lab_ok(ctx[0], stay_visitor_ask(ctx[0], 1, stay_number(), &out));
        keeps[i].keep();
        expect_full(remote);
        keeps[i].let_go();
        lab_until(count_activations() <= MAX);
        (void)add_to(remote, 6000, 1);
        teff_ctx_free(remote);
        assert_int_equal(close_silos(state), 0);
    }
}

/* ---- memory ---- */

/* From 60 percent on until 55 are used. No call is refused, though more are active than there is
 * memory for while they all have turns. */
static void if_memory_is_short_the_least_recently_used_end(void **state)
{
    enum { GRAINS = 300, HELD = 230, MORE = 240, LEFT = 223 };
    static teff_call calls[HELD];
    uint64_t spent = 0;
    for (int64_t key = 1; key <= GRAINS; key++)
        (void)add_to(ctx[0], key, 1);
    while (count_activations() > LEFT && lab_pause(&spent))
        (void)add_to(ctx[0], GRAINS, 0);
    assert_true(count_activations() <= LEFT);
    assert_int_equal(world.activated, GRAINS); /* the one that is used, too, only once */
    lab_until(world.ended_for[TEFF_REASON_MEMORY] == world.deactivated);
    for (int64_t key = 0; key < HELD; key++)
        lab_ok(ctx[0], stay_guest_hold_async(ctx[0], 1000 + key, NULL, &calls[key]));
    lab_until(world.held == HELD);
    lab_until(count_activations() < MORE); /* the others end */
    world.gate = true;
    lab_until(count_activations() <= LEFT);
    for (int64_t key = 1; key <= GRAINS; key++)
        assert_int_equal(add_to(ctx[0], key, 0), 1);
}

int main(void)
{
#define ONE(f) cmocka_unit_test_setup_teardown(f, open_one, close_silos)
    const struct CMUnitTest tests[] = {
        ONE(the_number_is_limited_and_no_call_is_lost),
        ONE(the_least_recently_used_end),
        ONE(calls_reach_the_next_activation),
        cmocka_unit_test(what_is_in_use_stays),
        cmocka_unit_test_setup_teardown(if_memory_is_short_the_least_recently_used_end,
                                        open_one_with_little_memory, close_silos),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
