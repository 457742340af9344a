/* test_version.c - silos that host different versions of a type: where calls go, what moves, what
 * fails. The walk of what the versions meet: local, in place, remote, one-way, by a client, behind
 * a running turn, cancelled, each strategy, many callers at once, no version at all. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "directory/placement.h"
#include "lab.h"
#include "version.teff.h"

enum { METHODS = 8, KEYS = 24, CALLERS = 2, ROUNDS = 40 };

static lab *l;
static _Atomic int deactivated, told, held, begun;
static _Atomic bool gate, old_ones_fail, may_put_more, has_put_more;

/* ---- the grain, as each silo hosts it ---- */

/* A description of the type as another build has it. */
typedef struct build {
    teff_type_info info;
    teff_method methods[METHODS];
} build;

static build old, without, newest; /* versions 1, 0 and 3; only newest has Undo */
static build plain;                /* version 1, where Put is not transactional */
static const teff_type_info *hosted;
static intptr_t next_silo;

static const teff_method *find_method(const teff_type_info *info, const char *name)
{
    for (size_t i = 0; i < info->n_methods; i++)
        if (strcmp(strrchr(info->methods[i].name, '.') + 1, name) == 0)
            return &info->methods[i];
    fail_msg("no method %s", name);
    return NULL;
}

static teff_err add(version_tally *self, const version_number *in, version_number *out)
{
    self->state->sum += in->n;
    out->n = self->state->sum;
    return version_tally_save(self);
}

static teff_err where(version_tally *self, const version_number *in, version_number *out)
{
    (void)in;
    out->n = (intptr_t)self->user;
    return TEFF_OK;
}

static teff_err tell(version_tally *self, const version_number *in)
{
    version_number sum;
    teff_err err = add(self, in, &sum);
    told++;
    return err;
}

static teff_err hold(version_tally *self, const version_number *in, version_number *out)
{
    held++;
    while (!gate)
        teffi_ctx_sleep(self->ctx, 1);
    held--;
    return add(self, in, out);
}

static teff_err undo(version_tally *self, const version_number *in, version_number *out)
{
    self->state->sum -= in->n;
    out->n = self->state->sum;
    return version_tally_save(self);
}

static void wait_for(teff_ctx *ctx, const _Atomic bool *flag)
{
    while (!*flag)
        teffi_ctx_sleep(ctx, 1);
}

/* Puts to "t" and, if n is 20, then to "new"; else again to "t". Grain "new" has version 2. If n is
 * 30, the caller does not know that Put is transactional. */
static teff_err both(version_tally *self, const version_number *in, version_number *out)
{
    const teff_key first = {.kind = TEFF_KEY_STRING, .text = "t"},
                   second = {.kind = TEFF_KEY_STRING, .text = in->n == 20 ? "new" : "t"};
    const teff_type_info *info = in->n == 30                ? &plain.info
                                 : strcmp(self->key, "new") ? &old.info
                                                            : &version_tally_info;
    const teff_method *put = find_method(info, "Put");
    teff_call calls[2];
    begun++;
    teff_err err = teff_ask_async(self->ctx, info, &first, put, &in->base, NULL, &calls[0]);
    wait_for(self->ctx, &may_put_more);
    err = err ? err : teff_ask_async(self->ctx, info, &second, put, &in->base, NULL, &calls[1]);
    has_put_more = true;
    return err ? err : teff_await_all(self->ctx, calls, 2);
}

/* The generated call: this caller has version 2. Below 0: adds to this grain itself. */
static teff_err pass(version_tally *self, const version_number *in, version_number *out)
{
    char key[40];
    version_number *sum;
    snprintf(key, sizeof key, "%.30s%s", self->key, in->n < 0 ? "" : "+");
    teff_err err = version_tally_add(self->ctx, key, version_number(.n = in->n), &sum);
    out->n = err ? 0 : sum->n;
    return err;
}

static teff_err begin(version_tally *self)
{
    if (!old_ones_fail || (intptr_t)self->user >= 2)
        return TEFF_OK;
    held++;
    while (!gate)
        teffi_ctx_sleep(self->ctx, 1);
    return teff_fail(self->ctx, TEFF_E_FAILED, "not on this silo");
}

static teff_err end(version_tally *self, teff_reason why)
{
    (void)self;
    deactivated += why == TEFF_REASON_VERSION;
    return TEFF_OK;
}

static void host(teff_silo *silo)
{
    static const version_tally_methods methods = {.add = add,
                                                  .where = where,
                                                  .tell = tell,
                                                  .hold = hold,
                                                  .put = hold,
                                                  .both = both,
                                                  .undo = undo,
                                                  .pass = pass,
                                                  .on_activate = begin,
                                                  .on_deactivate = end};
    teff_grain_type *type = teff_grain_type_new(hosted, &methods, (void *)next_silo++);
    if (teff_silo_host(silo, type) != TEFF_OK)
        fail_msg("not hosted");
}

static void make_build(build *b, uint32_t version, bool undoes)
{
    size_t n = 0;
    b->info = version_tally_info;
    b->info.version = version;
    b->info.methods = b->methods;
    for (size_t i = 0; i < METHODS; i++)
        if (undoes || strcmp(version_tally_info.methods[i].name, "version.Tally.Undo") != 0)
            b->methods[n++] = version_tally_info.methods[i];
    b->info.n_methods = n;
}

/* ---- callers ---- */

/* A call by a program that was built with info. */
static teff_err ask(teff_ctx *ctx, const teff_type_info *info, const char *key, const char *method,
                    int64_t n, int64_t *result)
{
    const teff_key to = {.kind = TEFF_KEY_STRING, .text = key};
    version_number in = VERSION__NUMBER__INIT;
    ProtobufCMessage *out = NULL;
    in.n = n;
    teff_err err = teff_ask(ctx, info, &to, find_method(info, method), &in.base, &out);
    if (!err && result)
        *result = ((version_number *)(void *)out)->n;
    return err;
}

static int64_t sum_of(teff_ctx *ctx, const teff_type_info *info, const char *key)
{
    int64_t n = -1;
    lab_ok(ctx, ask(ctx, info, key, "Add", 0, &n));
    return n;
}

static int64_t place_of(teff_ctx *ctx, const teff_type_info *info, const char *key)
{
    int64_t n = -1;
    lab_ok(ctx, ask(ctx, info, key, "Where", 0, &n));
    return n;
}

static const char *name_key(char *key, int i)
{
    snprintf(key, 16, "k%d", i);
    return key;
}

static bool sees_newest(teff_ctx *ctx, int64_t version)
{
    return teffi_find_newest_type_version(ctx->node->grains, version_tally_info.id) == version;
}

/* One more silo, with this build; every silo knows. */
static int roll(const teff_type_info *info)
{
    hosted = info;
    int at = lab_add(l);
    for (int i = 0; i < l->n; i++)
        lab_until(!l->ctx[i] || sees_newest(l->ctx[i], info->version));
    return at;
}

/* ---- tests; the first two silos have version 1 ---- */

static void test_an_old_cluster_says_what_it_has(void **state)
{
    int64_t n;
    (void)state;
    lab_ok(l->ctx[0], ask(l->ctx[0], &old.info, "a", "Add", 3, &n));
    assert_int_equal(n, 3);
    for (int i = 0; i < 2; i++) { /* beside the activation, and from the other silo */
        lab_fails(l->ctx[i], ask(l->ctx[i], &version_tally_info, "a", "Undo", 1, &n),
                  TEFF_E_VERSION);
        assert_string_equal(teff_error(l->ctx[i]),
                            "version.Tally.Undo at a: the caller has version 2 of the grain type, "
                            "the newest silo of the cluster has version 1; the call did not run");
    }
    /* also where nothing is active */
    lab_fails(l->ctx[0], ask(l->ctx[0], &version_tally_info, "b", "Add", 1, &n), TEFF_E_VERSION);
    assert_false(teff_call_may_have_run(TEFF_E_VERSION));
    assert_int_equal(sum_of(l->ctx[1], &old.info, "a"), 3);
    assert_int_equal(sum_of(l->ctx[1], &without.info, "a"), 3);
    assert_int_equal(deactivated, 0); /* nobody can do better */
}

static void test_grains_move_to_the_silo_that_can(void **state)
{
    char key[16];
    int64_t n;
    (void)state;
    for (int i = 0; i < KEYS; i++)
        lab_ok(l->ctx[0], ask(l->ctx[0], &old.info, name_key(key, i), "Add", 5, &n));
    int at = roll(&version_tally_info);
    for (int i = 0; i < KEYS; i++) {
        teff_ctx *ctx = l->ctx[i % 3];
        lab_ok(ctx, ask(ctx, &version_tally_info, name_key(key, i), "Undo", 1, &n));
        assert_int_equal(n, 4);
        assert_int_equal(place_of(ctx, &old.info, key), at);
    }
    assert_int_equal(deactivated, KEYS);
    /* The new silo serves old callers, and callers without a version. */
    for (int i = 0; i < KEYS; i++) {
        assert_int_equal(sum_of(l->ctx[i % 2], &old.info, name_key(key, i)), 4);
        assert_int_equal(sum_of(l->ctx[i % 2], &without.info, key), 4);
    }
    lab_fails(l->ctx[0], ask(l->ctx[0], &newest.info, "k0", "Add", 1, &n), TEFF_E_VERSION);
    assert_non_null(strstr(teff_error(l->ctx[0]), "version 3 of the grain type, the newest silo of "
                                                  "the cluster has version 2"));
}

static void test_each_strategy_chooses_silos_that_can(void **state)
{
    static const teff_placement all[] = {TEFF_PLACE_RANDOM, TEFF_PLACE_PREFER_LOCAL,
                                         TEFF_PLACE_HASH};
    char key[16];
    (void)state;
    int at = roll(&version_tally_info);
    for (int i = 0; i < 3 * KEYS; i++) {
        teff_type_info info = version_tally_info, before = old.info;
        before.placement = info.placement = all[i % 3];
        name_key(key, i);
        assert_int_equal(place_of(l->ctx[i % 2], &info, key), at);
        if (all[i % 3] == TEFF_PLACE_PREFER_LOCAL) {
            name_key(key, i + 1000);
            assert_int_equal(place_of(l->ctx[i % 2], &before, key), i % 2);
        }
    }
}

/* A turn of an old silo whose program has newer stubs: the grain that it calls is idle beside it,
 * but must not run in place. */
static void test_a_call_in_place_sees_the_version(void **state)
{
    int64_t n;
    (void)state;
    teff_type_info beside = old.info;
    beside.placement = TEFF_PLACE_PREFER_LOCAL;
    lab_ok(l->ctx[0], ask(l->ctx[0], &beside, "p", "Add", 1, &n));
    lab_ok(l->ctx[0], ask(l->ctx[0], &beside, "p+", "Add", 1, &n));
    lab_fails(l->ctx[0], ask(l->ctx[0], &beside, "p", "Pass", 1, &n), TEFF_E_VERSION);
    int at = roll(&version_tally_info);
    lab_ok(l->ctx[0], ask(l->ctx[0], &beside, "p", "Pass", 1, &n));
    assert_int_equal(n, 2);
    assert_int_equal(place_of(l->ctx[0], &beside, "p"), 0);
    assert_int_equal(place_of(l->ctx[0], &beside, "p+"), at);
}

static void test_one_way_and_clients(void **state)
{
    int64_t n;
    const teff_key to = {.kind = TEFF_KEY_STRING, .text = "w"};
    version_number in = VERSION__NUMBER__INIT;
    (void)state;
    in.n = 7;
    lab_ok(l->ctx[0], ask(l->ctx[0], &old.info, "w", "Add", 1, &n));
    teff_client *client = lab_client(l, (const int[]){0, -1});
    teff_ctx *ctx = teff_client_new_ctx(client);
    lab_fails(ctx, ask(ctx, &version_tally_info, "w", "Add", 1, &n), TEFF_E_VERSION);
    int at = roll(&version_tally_info);
    lab_ok(l->ctx[1], teff_send(l->ctx[1], &version_tally_info, &to,
                                find_method(&version_tally_info, "Tell"), &in.base));
    lab_until(told == 1);
    assert_int_equal(place_of(ctx, &old.info, "w"), at);
    assert_int_equal(sum_of(ctx, &version_tally_info, "w"), 8);
    teff_ctx_free(ctx);
    teff_client_free(client);
}

/* A turn that runs ends first; a call that is cancelled meanwhile does not run. */
static void test_a_running_turn_ends_first(void **state)
{
    const teff_key to = {.kind = TEFF_KEY_STRING, .text = "h"};
    version_number in = VERSION__NUMBER__INIT;
    ProtobufCMessage *out;
    teff_ctx *ctx = l->ctx[0];
    teff_call holds, adds, cancelled, follows;
    (void)state;
    in.n = 10;
    lab_ok(ctx, teff_ask_async(ctx, &old.info, &to, find_method(&old.info, "Hold"), &in.base, NULL,
                               &holds));
    lab_until(held == 1);
    int at = roll(&version_tally_info);
    teff_call_options opt = {.size = sizeof opt, .cancel = teff_cancel_new()};
    const teff_method *add2 = find_method(&version_tally_info, "Add");
    in.n = 100;
    lab_ok(ctx, teff_ask_async(ctx, &version_tally_info, &to, add2, &in.base, &opt, &cancelled));
    in.n = 1;
    lab_ok(ctx, teff_ask_async(ctx, &version_tally_info, &to, add2, &in.base, NULL, &adds));
    lab_ok(ctx, teff_ask_async(ctx, &old.info, &to, find_method(&old.info, "Add"), &in.base, NULL,
                               &follows));
    assert_true(lab_pending(adds.impl));
    teff_cancel_fire(opt.cancel);
    lab_fails(ctx, teff_await(ctx, cancelled, &out), TEFF_E_CANCELLED);
    gate = true;
    lab_ok(ctx, teff_await(ctx, holds, &out));
    assert_int_equal(((version_number *)(void *)out)->n, 10);
    lab_ok(ctx, teff_await(ctx, adds, &out));
    lab_ok(ctx, teff_await(ctx, follows, &out));
    assert_int_equal(sum_of(ctx, &old.info, "h"), 12);
    assert_int_equal(place_of(ctx, &old.info, "h"), at);
    teff_cancel_free(opt.cancel);
}

/* The turns of a reentrant grain end first, too: so a newer caller's request to its own grain, for
 * which a turn waits, ends as a deadlock. Then the grain moves. */
static void test_a_turn_that_waits_for_a_newer_caller_ends_first(void **state)
{
    const teff_key to = {.kind = TEFF_KEY_STRING, .text = "s"};
    version_number in = VERSION__NUMBER__INIT;
    ProtobufCMessage *out;
    teff_ctx *ctx = l->ctx[0];
    teff_call one;
    (void)state;
    old.info.flags |= TEFF_TYPE_REENTRANT;
    lab_ok(ctx, ask(ctx, &old.info, "s", "Add", 1, NULL));
    int at = roll(&version_tally_info);
    in.n = -1;
    lab_ok(ctx, teff_ask_async(ctx, &old.info, &to, find_method(&old.info, "Pass"), &in.base, NULL,
                               &one));
    lab_fails(ctx, teff_await(ctx, one, &out), TEFF_E_DEADLOCK);
    assert_int_equal(place_of(ctx, &version_tally_info, "s"), at);
}

/* A grain does not move while a transaction has locked it: its requests start past those of newer
 * callers, whose methods the old silo does not know. */
static void test_a_transaction_ends_first(void **state)
{
    const teff_key root = {.kind = TEFF_KEY_STRING, .text = "r"},
                   to = {.kind = TEFF_KEY_STRING, .text = "t"};
    version_number in = VERSION__NUMBER__INIT;
    ProtobufCMessage *out;
    teff_ctx *ctx = l->ctx[0];
    teff_call puts, undoes;
    teff_type_info beside = old.info;
    (void)state;
    beside.placement = TEFF_PLACE_PREFER_LOCAL;
    lab_ok(ctx, ask(ctx, &beside, "r", "Add", 1, NULL));
    lab_ok(ctx, ask(ctx, &beside, "t", "Add", 1, NULL));
    int at = roll(&version_tally_info);
    in.n = 10;
    lab_ok(ctx, teff_ask_async(ctx, &beside, &root, find_method(&beside, "Both"), &in.base, NULL,
                               &puts));
    lab_until(held == 1);
    lab_ok(ctx, teff_ask_async(ctx, &version_tally_info, &to,
                               find_method(&version_tally_info, "Undo"), &in.base, NULL, &undoes));
    may_put_more = true;
    lab_until(has_put_more);
    gate = true;
    lab_ok(ctx, teff_await(ctx, puts, &out));
    lab_ok(ctx, teff_await(ctx, undoes, &out));
    assert_int_equal(((version_number *)(void *)out)->n, 11);
    assert_int_equal(place_of(ctx, &old.info, "t"), at);
}

/* The request of a younger transaction needs a newer silo, and its grain is locked by an older one,
 * which then needs the root of the younger: the younger does not wait for the grain to move. */
static void test_a_younger_transaction_does_not_wait_for_the_move(void **state)
{
    const teff_key older = {.kind = TEFF_KEY_STRING, .text = "r"},
                   younger = {.kind = TEFF_KEY_STRING, .text = "new"};
    version_number in = VERSION__NUMBER__INIT;
    ProtobufCMessage *out;
    teff_ctx *ctx = l->ctx[0];
    teff_call calls[2];
    (void)state;
    lab_ok(ctx, ask(ctx, &old.info, "t", "Add", 1, NULL));
    lab_ok(ctx, ask(ctx, &old.info, "r", "Add", 1, NULL));
    (void)roll(&version_tally_info);
    in.n = 20;
    lab_ok(ctx, teff_ask_async(ctx, &old.info, &older, find_method(&old.info, "Both"), &in.base,
                               NULL, &calls[0]));
    lab_until(held == 1);
    in.n = 1;
    lab_ok(ctx,
           teff_ask_async(ctx, &version_tally_info, &younger,
                          find_method(&version_tally_info, "Both"), &in.base, NULL, &calls[1]));
    lab_until(begun == 2);
    gate = may_put_more = true;
    lab_ok(ctx, teff_await(ctx, calls[0], &out));
    lab_ok(ctx, teff_await(ctx, calls[1], &out));
    assert_int_equal(sum_of(ctx, &old.info, "t"), 23);
}

/* A build has made the method transactional, and its caller, in a transaction, does not know that:
 * the call is a transaction of its own, which is written when it ends. */
static void test_a_method_that_has_become_transactional(void **state)
{
    const teff_key root = {.kind = TEFF_KEY_STRING, .text = "r"};
    version_number in = VERSION__NUMBER__INIT;
    ProtobufCMessage *out;
    teff_ctx *ctx = l->ctx[0];
    teff_call puts;
    (void)state;
    gate = may_put_more = true;
    in.n = 30;
    lab_ok(ctx, teff_ask_async(ctx, &old.info, &root, find_method(&old.info, "Both"), &in.base,
                               NULL, &puts));
    lab_ok(ctx, teff_await(ctx, puts, &out));
    assert_int_equal(sum_of(ctx, &old.info, "t"), 60);
}

/* What fails an activation on an old silo does not fail a newer caller that waits there. */
static void test_a_failed_activation_hands_newer_calls_over(void **state)
{
    const teff_key to = {.kind = TEFF_KEY_STRING, .text = "f"};
    version_number in = VERSION__NUMBER__INIT;
    ProtobufCMessage *out;
    teff_ctx *ctx = l->ctx[0];
    teff_call first, newer;
    (void)state;
    old_ones_fail = true;
    lab_ok(ctx, teff_ask_async(ctx, &old.info, &to, find_method(&old.info, "Add"), &in.base, NULL,
                               &first));
    lab_until(held == 1);
    int at = roll(&version_tally_info);
    lab_ok(ctx, teff_ask_async(ctx, &version_tally_info, &to,
                               find_method(&version_tally_info, "Where"), &in.base, NULL, &newer));
    assert_true(lab_pending(newer.impl));
    gate = true;
    teff_err err = teff_await(ctx, first, &out); /* OK: it was handed over with the newer one */
    assert_true(err == TEFF_OK || err == TEFF_E_FAILED);
    lab_ok(ctx, teff_await(ctx, newer, &out));
    assert_int_equal(((version_number *)(void *)out)->n, at);
}

/* A call of version 2 is never lost between callers of version 1, and nothing runs twice. */
typedef struct caller {
    pthread_t thread;
    teff_ctx *ctx;
    const teff_type_info *info;
    int failed;
} caller;

static void *call_often(void *arg)
{
    caller *c = arg;
    char key[16];
    for (int i = 0; i < ROUNDS * KEYS; i++)
        if (ask(c->ctx, c->info, name_key(key, i % KEYS), "Add", 1, NULL) && !c->failed++)
            fprintf(stderr, "%s\n", teff_error(c->ctx));
    return NULL;
}

static void test_old_and_new_callers_at_once(void **state)
{
    caller callers[2 * CALLERS] = {0};
    char key[16];
    (void)state;
    for (int i = 0; i < KEYS; i++)
        lab_ok(l->ctx[0], ask(l->ctx[0], &old.info, name_key(key, i), "Add", 0, NULL));
    (void)roll(&version_tally_info);
    for (int i = 0; i < 2 * CALLERS; i++) {
        callers[i].ctx = teff_silo_new_ctx(l->silos[i % 3]);
        callers[i].info = i < CALLERS ? &old.info : &version_tally_info;
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call_often, &callers[i]), 0);
    }
    for (int i = 0; i < 2 * CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        teff_ctx_free(callers[i].ctx);
        assert_int_equal(callers[i].failed, 0);
    }
    for (int i = 0; i < KEYS; i++)
        assert_int_equal(sum_of(l->ctx[0], &old.info, name_key(key, i)), 2 * CALLERS * ROUNDS);
}

/* The strategy and the version do not touch each other or the other flags. */
static void test_flags(void **state)
{
    teff_type_info info = {.placement = TEFF_PLACE_HASH, .version = TEFFI_VERSION_MAX};
    (void)state;
    uint16_t flags = teffi_placement_flags(&info);
    assert_int_equal(flags, 0xfe00);
    assert_int_equal(teffi_flags_placement_strategy(flags), TEFF_PLACE_HASH);
    assert_int_equal(teffi_flags_type_version(flags), 63);
    info.version = 1;
    flags = teffi_placement_flags(&info) | TEFFI_MSG_PLACED;
    assert_int_equal(flags, 0x0601);
    assert_int_equal(teffi_flags_raise_type_version(flags, 0), flags);
    assert_int_equal(teffi_flags_raise_type_version(flags, 33), 0x8601);
    assert_int_equal(teffi_flags_type_version(teffi_flags_raise_type_version(flags, 33)), 33);
}

static int setup(void **state)
{
    (void)state;
    make_build(&without, 0, false);
    make_build(&old, 1, false);
    make_build(&plain, 1, false);
    for (size_t i = 0; i < plain.info.n_methods; i++)
        if (!strcmp(plain.methods[i].name, "version.Tally.Put"))
            plain.methods[i].flags &= ~(uint32_t)TEFF_METHOD_TRANSACTIONAL;
    make_build(&newest, 3, true);
    hosted = &old.info;
    next_silo = 0;
    deactivated = told = held = begun = 0;
    gate = old_ones_fail = may_put_more = has_put_more = false;
    l = lab_open_more(2, host);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    gate = may_put_more = true;
    lab_close(l);
    return 0;
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flags),
        CASE(test_an_old_cluster_says_what_it_has),
        CASE(test_grains_move_to_the_silo_that_can),
        CASE(test_each_strategy_chooses_silos_that_can),
        CASE(test_a_call_in_place_sees_the_version),
        CASE(test_one_way_and_clients),
        CASE(test_a_running_turn_ends_first),
        CASE(test_a_turn_that_waits_for_a_newer_caller_ends_first),
        CASE(test_a_transaction_ends_first),
        CASE(test_a_younger_transaction_does_not_wait_for_the_move),
        CASE(test_a_method_that_has_become_transactional),
        CASE(test_a_failed_activation_hands_newer_calls_over),
        CASE(test_old_and_new_callers_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
