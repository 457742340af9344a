/* test_answers.c - calls with idempotency keys: each runs once, whatever it meets. Walks the table
 * of activation/answers.h. The store fails on command: its door is wrapped.
 * Way:     keyed calls -> turns -> state -> [__wrap_teffi_store_submit] -> store */
#include <stdlib.h>
#include <string.h>
#include <teff/pid.h>
#include "activation/answers.h"
#include "activation/turn.h" /* before acts.h, whose ctx its parameters would hide */
#include "acts.h"
#include "call/wait.h"
#include "memory/pool.h"
#include "node/ask.h"

typedef enum fault {
    NONE,
    FAILS,           /* nothing is written */
    UNKNOWN_BEFORE,  /* nothing is written, and that is not known */
    UNKNOWN_WRITTEN, /* it is written, and that is not known */
    LATER,           /* the test submits it: later */
} fault;

static _Atomic fault next_write; /* of a state */
static _Atomic int failures;     /* so many of the next ones fail */
static _Atomic int writes;       /* of states that reached the store */
static _Atomic int runs;         /* of scripts of this test */

typedef struct hidden {
    teffi_store_op op, *own;
} hidden;

static struct {
    teffi_store *store;
    teffi_store_op *_Atomic op;
} later;

void __real_teffi_store_submit(teffi_store *store, teffi_store_op *op);
void __wrap_teffi_store_submit(teffi_store *store, teffi_store_op *op);

static void end_with(teffi_store_op *op, teff_err err)
{
    op->err = err;
    strcpy(op->text, "as the test says");
    op->done(op);
}

static void hide_outcome(teffi_store_op *op)
{
    hidden *h = (hidden *)(void *)op;
    teffi_store_op *own = h->own;
    free(h);
    end_with(own, TEFF_E_UNKNOWN);
}

void __wrap_teffi_store_submit(teffi_store *store, teffi_store_op *op)
{
    bool is_state = op->kind == TEFFI_STORE_BATCH && !strcmp(op->rows[0].table, "state");
    fault now = is_state ? atomic_exchange(&next_write, NONE) : NONE;
    if (is_state && failures > 0) {
        failures--;
        now = FAILS;
    }
    writes += is_state && (now == NONE || now == UNKNOWN_WRITTEN);
    if (now == FAILS || now == UNKNOWN_BEFORE) {
        end_with(op, now == FAILS ? TEFF_E_IO : TEFF_E_UNKNOWN);
    } else if (now == UNKNOWN_WRITTEN) {
        hidden *h = malloc(sizeof *h);
        *h = (hidden){*op, op};
        h->op.done = hide_outcome;
        __real_teffi_store_submit(store, &h->op);
    } else if (now == LATER) {
        later.store = store;
        later.op = op;
    } else {
        __real_teffi_store_submit(store, op);
    }
}

/* ---- memory ---- */

enum { ANSWER_MIN = sizeof(teffi_answer), ANSWER_MAX = ANSWER_MIN + 100 };

enum { LARGE = 700 * 1024 };
enum { CHUNK_BYTES = 1024 }; /* of an arena's first chunk, as in memory/arena.c */

/* This thread's next request for memory of that size fails. starve_max 0: none. */
static _Thread_local size_t starve_min, starve_max;

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);

void *__wrap_malloc(size_t n)
{
    if (n < starve_min || n > starve_max)
        return __real_malloc(n);
    starve_max = 0;
    return NULL;
}

static _Atomic int starve_chunk; /* 1: the next small chunk of an arena fails, on any thread */

void *__real_teffi_block_get(size_t size);
void *__wrap_teffi_block_get(size_t size);

void *__wrap_teffi_block_get(size_t size)
{
    bool small = size == teffi_block_usable_bytes(CHUNK_BYTES);
    return small && atomic_fetch_sub(&starve_chunk, 1) == 1 ? NULL : __real_teffi_block_get(size);
}

/* ---- the row, from the side: there is one at most ---- */

static teffi_row row_of_all(void)
{
    teffi_row from = {.table = "state"};
    teffi_store_op op = {
        .kind = TEFFI_STORE_SCAN, .rows = &from, .n_rows = 1, .limit = 2, .arena = &ctx->arena};
    lab_ok(ctx, teffi_ctx_run_store_op(ctx, &op));
    assert_true(op.n_found <= 1);
    return op.n_found ? op.rows[0] : (teffi_row){0};
}

static void write_row(teffi_row row)
{
    row.any = true;
    teffi_store_op op = {
        .kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1, .arena = &ctx->arena};
    lab_ok(ctx, teffi_ctx_run_store_op(ctx, &op));
}

static void write_value(const void *bytes, size_t n)
{
    teffi_row row = row_of_all();
    row.value = (teffi_bytes){bytes, n};
    write_row(row);
}

static int stored_count(void)
{
    teffi_row row = row_of_all();
    const uint8_t *bytes = row.value.data;
    return row.etag && row.value.len >= 2 && bytes[0] == 0x08 ? bytes[1] : -1;
}

/* ---- scripts ---- */

/* Does not save. */
static teff_err adds(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    runs++;
    out->n = acts_memo(turn)->count += in->n;
    out->text = in->text;
    return TEFF_OK;
}

static teff_err adds_and_saves(teff_ctx *turn, int64_t key, const direct_act *in,
                               direct_number *out)
{
    teff_err err = adds(turn, key, in, out);
    return err ? err : teff_state_save(turn);
}

static teff_err adds_and_waits(teff_ctx *turn, int64_t key, const direct_act *in,
                               direct_number *out)
{
    teff_err err = adds_and_saves(turn, key, in, out);
    return err ? err : waits(turn, key, ACT(0, .n = out->n - 1, .text = in->text), out);
}

static teff_err adds_and_fails(teff_ctx *turn, int64_t key, const direct_act *in,
                               direct_number *out)
{
    (void)!adds(turn, key, in, out);
    return teff_fail(turn, TEFF_E_USER + 3, "no more of %s", in->text);
}

static teff_err adds_and_exits(teff_ctx *turn, int64_t key, const direct_act *in,
                               direct_number *out)
{
    (void)!adds_and_saves(turn, key, in, out);
    if (runs == 1)
        (void)teff_alloc(turn, (size_t)TEFF_TURN_MEMORY_MAX + 1);
    return TEFF_OK;
}

static teff_err adds_and_starves(teff_ctx *turn, int64_t key, const direct_act *in,
                                 direct_number *out)
{
    teff_err err = adds(turn, key, in, out);
    starve_min = ANSWER_MIN + 1;
    starve_max = runs == 1 ? ANSWER_MAX : 0;
    return err;
}

static teff_err adds_and_starves_its_response(teff_ctx *turn, int64_t key, const direct_act *in,
                                              direct_number *out)
{
    teff_err err = adds(turn, key, in, out);
    if (runs > 1)
        return err;
    out->text = memset(teff_alloc(turn, LARGE), 'x', LARGE - 1);
    starve_min = LARGE / 2;
    starve_max = SIZE_MAX;
    return err;
}

static teff_err clears(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    runs++;
    return teff_state_clear(turn);
}

/* Its response points to the state, which scribbles() changes in place. */
static char *_Atomic note;

static teff_err notes(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    runs++;
    note = teff_state_strdup(turn, "first");
    out->text = note;
    return TEFF_OK;
}

static teff_err scribbles(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    note[0] = 'w';
    return TEFF_OK;
}

static teff_err saves(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    out->n = acts_memo(turn)->count;
    return teff_state_save(turn);
}

static teff_err counts(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    out->n = acts_memo(turn)->count;
    return TEFF_OK;
}

/* ---- calls ---- */

static teff_call_options with_key(teff_uuid *id, uint8_t key)
{
    *id = (teff_uuid){{key, 1}};
    return (teff_call_options){.size = sizeof(teff_call_options), .once = id};
}

/* A call with a key. out: err; *n: of the response. */
static teff_err ask(uint8_t key, const direct_act *act, int64_t *n)
{
    teff_uuid id;
    teff_call_options opt = with_key(&id, key);
    teff_call call;
    direct_number *out;
    teff_err err = direct_keeper_obey_async(ctx, 1, act, &opt, &call);
    if (!err)
        err = direct_keeper_obey_await(ctx, call, &out);
    if (!err && n)
        *n = out->n;
    return err;
}

static void responds_with(uint8_t key, const direct_act *act, int64_t expected)
{
    int64_t n;
    lab_ok(ctx, ask(key, act, &n));
    assert_int_equal(n, expected);
}

static void deactivate(void)
{
    direct_number *out;
    int before = world.deactivated;
    lab_ok(ctx, direct_keeper_obey(ctx, 1, RUN(ends), &out));
    lab_until(world.deactivated == before + 1);
}

static int64_t count(void)
{
    direct_number *out;
    lab_ok(ctx, direct_keeper_obey(ctx, 1, RUN(counts), &out));
    return out->n;
}

/* ---- answers ---- */

static void test_an_answer_is_given_again(void **state)
{
    responds_with(1, ACT(adds, .n = 5), 5);
    assert_int_equal(stored_count(), 5);
    responds_with(1, ACT(adds, .n = 5), 5);
    assert_int_equal(writes, 1);
    responds_with(2, ACT(adds_and_saves, .n = 2), 7);
    assert_int_equal(writes, 2);
    responds_with(1, ACT(adds, .n = 5), 5);
    deactivate();
    responds_with(1, ACT(adds, .n = 5), 5);
    responds_with(2, ACT(adds_and_saves, .n = 2), 7);
    assert_int_equal(runs, 2);
    assert_int_equal(world.activated, 2);
    assert_int_equal(count(), 7);
}

static void test_an_error_is_an_answer(void **state)
{
    for (int i = 0; i < 3; i++) {
        if (i == 2)
            deactivate();
        lab_fails(ctx, ask(1, ACT(adds_and_fails, .n = 5, .text = "it"), NULL), TEFF_E_USER + 3);
        assert_string_equal(teff_error(ctx), "no more of it");
        assert_int_equal(runs, 1);
        assert_int_equal(stored_count(), 5);
    }
}

static void test_a_key_is_for_one_method_and_request(void **state)
{
    teff_uuid id;
    teff_call_options opt = with_key(&id, 1);
    teff_call call;
    direct_number *out;
    responds_with(1, ACT(adds, .n = 5), 5);
    lab_fails(ctx, ask(1, ACT(adds, .n = 6), NULL), TEFF_E_INVALID);
    assert_non_null(strstr(teff_error(ctx), "direct.Keeper.Obey at 1: the idempotency key"));
    lab_ok(ctx, direct_keeper_other_async(ctx, 1, ACT(adds, .n = 5), &opt, &call));
    lab_fails(ctx, direct_keeper_other_await(ctx, call, &out), TEFF_E_INVALID);
    assert_int_equal(runs, 1);
    lab_ok(ctx, direct_keeper_obey_async(ctx, 2, ACT(adds, .n = 6), &opt, &call));
    lab_ok(ctx, direct_keeper_obey_await(ctx, call, &out)); /* another grain */
    assert_int_equal(runs, 2);
}

static void test_some_methods_take_no_key(void **state)
{
    teff_uuid id;
    teff_call_options opt = with_key(&id, 1);
    teff_call call;
    direct_number *out;
    lab_ok(ctx, direct_actor_obey_async(ctx, 1, ACT(adds, .n = 5), &opt, &call));
    lab_fails(ctx, direct_actor_obey_await(ctx, call, &out), TEFF_E_INVALID);
    assert_non_null(strstr(teff_error(ctx), "needs a grain type with state"));
    lab_ok(ctx, direct_keeper_look_async(ctx, 1, ACT(adds, .n = 5), &opt, &call));
    lab_fails(ctx, direct_keeper_look_await(ctx, call, &out), TEFF_E_INVALID);
    assert_non_null(strstr(teff_error(ctx), "read-only"));
    lab_fails(ctx, teff_pid_ask_async(ctx, (teff_pid){0}, 1, NULL, 0, &opt, &call), TEFF_E_INVALID);
    assert_int_equal(runs, 0);
}

static void test_a_large_answer_is_not_kept(void **state)
{
    char text[TEFF_ANSWER_MAX + 1];
    memset(text, 'x', TEFF_ANSWER_MAX);
    text[TEFF_ANSWER_MAX] = '\0';
    responds_with(1, ACT(adds, .n = 5, .text = text), 5);
    for (int i = 0; i < 2; i++) {
        lab_fails(ctx, ask(1, ACT(adds, .n = 5, .text = text), NULL), TEFF_E_TOO_LARGE);
        assert_non_null(strstr(teff_error(ctx), "the call ran before"));
        deactivate();
    }
    text[TEFF_ANSWER_MAX - 5] = '\0'; /* with its tags and the number: TEFF_ANSWER_MAX */
    responds_with(2, ACT(adds, .n = 5, .text = text), 10);
    responds_with(2, ACT(adds, .n = 5, .text = text), 10);
    assert_int_equal(runs, 2);
}

static void test_the_newest_answers_are_kept(void **state)
{
    for (uint8_t key = 0; key <= TEFF_ANSWERS_DEFAULT; key++)
        responds_with(key, ACT(adds, .n = 1), key + 1);
    for (uint8_t key = 1; key <= TEFF_ANSWERS_DEFAULT; key++)
        responds_with(key, ACT(adds, .n = 1), key + 1);
    assert_int_equal(runs, TEFF_ANSWERS_DEFAULT + 1);
    responds_with(0, ACT(adds, .n = 1), TEFF_ANSWERS_DEFAULT + 2);
}

/* ---- turns ---- */

/* The second has the same key and waits for the first, which is saved when it has ended. */
static void call_twice(bool overlap)
{
    teff_uuid id;
    teff_call_options opt = with_key(&id, 1);
    teff_call calls[2];
    direct_number *out;
    for (int i = 0; i < 2; i++)
        if (overlap)
            lab_ok(ctx,
                   direct_crowd_obey_async(ctx, 1, ACT(adds_and_waits, .n = 5), &opt, &calls[i]));
        else
            lab_ok(ctx,
                   direct_keeper_obey_async(ctx, 1, ACT(adds_and_waits, .n = 5), &opt, &calls[i]));
    lab_until(world.held == 1);
    acts_sleep_ms(5);
    assert_int_equal(writes, 0);
    assert_int_equal(runs, 1);
    assert_false(teff_call_ended(ctx, calls[1]));
    world.gate = true;
    for (int i = 0; i < 2; i++) {
        lab_ok(ctx, overlap ? direct_crowd_obey_await(ctx, calls[i], &out)
                            : direct_keeper_obey_await(ctx, calls[i], &out));
        assert_int_equal(out->n, 5);
    }
    assert_int_equal(runs, 1);
    assert_int_equal(writes, 1);
    assert_int_equal(stored_count(), 5);
}

static void test_a_call_waits_for_its_key(void **state)
{
    call_twice(false);
}

static void test_a_call_waits_for_its_key_among_turns_that_overlap(void **state)
{
    call_twice(true);
}

/* Or half of what the first turn does would be stored without its answer. */
static void test_saves_of_other_turns_wait(void **state)
{
    teff_uuid id;
    teff_call_options opt = with_key(&id, 1);
    teff_call first, second;
    direct_number *out;
    lab_ok(ctx, direct_crowd_obey_async(ctx, 1, ACT(adds_and_waits, .n = 5), &opt, &first));
    lab_until(world.held == 1);
    lab_ok(ctx, direct_crowd_obey_async(ctx, 1, RUN(saves), NULL, &second));
    acts_sleep_ms(5);
    assert_int_equal(writes, 0);
    world.gate = true;
    lab_ok(ctx, direct_crowd_obey_await(ctx, second, &out));
    lab_ok(ctx, direct_crowd_obey_await(ctx, first, &out));
    assert_int_equal(stored_count(), 5);
}

/* A call whose time is over while it waits for another turn does not run. */
static void test_a_call_that_waited_too_long_does_not_run(void **state)
{
    teff_uuid ids[2];
    teff_call_options opt = with_key(&ids[0], 1), short_opt = with_key(&ids[1], 2);
    teff_call first, second;
    direct_number *out;
    short_opt.timeout_ms = 20;
    lab_ok(ctx, direct_crowd_obey_async(ctx, 1, ACT(adds_and_waits, .n = 5), &opt, &first));
    lab_until(world.held == 1);
    lab_ok(ctx, direct_crowd_obey_async(ctx, 1, ACT(adds, .n = 1), &short_opt, &second));
    lab_fails(ctx, direct_crowd_obey_await(ctx, second, &out), TEFF_E_TIMEOUT);
    world.gate = true;
    lab_ok(ctx, direct_crowd_obey_await(ctx, first, &out));
    lab_until(world.begun == world.ended);
    short_opt.timeout_ms = 0;
    lab_ok(ctx, direct_crowd_obey_async(ctx, 1, ACT(adds, .n = 1), &short_opt, &second));
    lab_ok(ctx, direct_crowd_obey_await(ctx, second, &out));
    assert_int_equal(out->n, 6);
    assert_int_equal(runs, 2);
}

/* Its caller gives up, but the turn has begun. */
static void test_the_answer_of_a_late_turn_is_stored(void **state)
{
    teff_uuid id;
    teff_call_options opt = with_key(&id, 1);
    teff_call call;
    direct_number *out;
    opt.timeout_ms = 20;
    lab_ok(ctx, direct_keeper_obey_async(ctx, 1, ACT(adds_and_waits, .n = 5), &opt, &call));
    lab_fails(ctx, direct_keeper_obey_await(ctx, call, &out), TEFF_E_TIMEOUT);
    world.gate = true;
    responds_with(1, ACT(adds_and_waits, .n = 5), 5);
    assert_int_equal(runs, 1);
}

/* ---- the store ---- */

static void test_the_answer_follows_the_write(void **state)
{
    teff_uuid id;
    teff_call_options opt = with_key(&id, 1);
    teff_call call;
    direct_number *out;
    next_write = LATER;
    lab_ok(ctx, direct_keeper_obey_async(ctx, 1, ACT(adds, .n = 5), &opt, &call));
    lab_until(later.op);
    acts_sleep_ms(5);
    assert_false(teff_call_ended(ctx, call));
    assert_int_equal(stored_count(), -1);
    __real_teffi_store_submit(later.store, atomic_exchange(&later.op, NULL));
    lab_ok(ctx, direct_keeper_obey_await(ctx, call, &out));
    assert_int_equal(stored_count(), 5);
}

static void test_an_answer_is_not_changed_while_it_is_written(void **state)
{
    teff_uuid id;
    teff_call_options opt = with_key(&id, 1);
    teff_call call;
    direct_number *out;
    next_write = LATER;
    lab_ok(ctx, direct_crowd_obey_async(ctx, 1, RUN(notes), &opt, &call));
    lab_until(later.op);
    lab_ok(ctx, direct_crowd_obey(ctx, 1, RUN(scribbles), &out));
    __real_teffi_store_submit(later.store, atomic_exchange(&later.op, NULL));
    lab_ok(ctx, direct_crowd_obey_await(ctx, call, &out));
    assert_string_equal(out->text, "first");
    lab_ok(ctx, direct_crowd_obey_async(ctx, 1, RUN(notes), &opt, &call));
    lab_ok(ctx, direct_crowd_obey_await(ctx, call, &out));
    assert_string_equal(out->text, "first");
    assert_int_equal(runs, 1);
}

/* The activation ends; on_deactivate saves, too. */
static void test_a_write_that_fails_is_both_or_neither(void **state)
{
    failures = 2;
    lab_fails(ctx, ask(1, ACT(adds, .n = 5), NULL), TEFF_E_IO);
    assert_int_equal(count(), 0);
    assert_int_equal(stored_count(), -1);
    responds_with(1, ACT(adds, .n = 5), 5);
    assert_int_equal(runs, 2);
    failures = 1;
    lab_fails(ctx, ask(2, ACT(adds, .n = 1), NULL), TEFF_E_IO);
    assert_int_equal(count(), 6);
    assert_int_equal(stored_count(), 6);
    responds_with(2, ACT(adds, .n = 1), 6);
    responds_with(1, ACT(adds, .n = 5), 5);
    assert_int_equal(runs, 3);
    assert_int_equal(world.deactivated, 2);
}

static void test_an_unknown_write_is_both_or_neither(void **state)
{
    for (fault how = UNKNOWN_BEFORE; how <= UNKNOWN_WRITTEN; how++) {
        int64_t before = count();
        int ran = runs;
        uint8_t key = (uint8_t)how;
        next_write = how;
        lab_fails(ctx, ask(key, ACT(adds, .n = 5), NULL), TEFF_E_UNKNOWN);
        responds_with(key, ACT(adds, .n = 5), before + 5);
        responds_with(key, ACT(adds, .n = 5), before + 5);
        assert_int_equal(count(), before + 5);
        assert_in_range(runs, ran + 1, ran + 2);
    }
}

static void test_a_conflict_is_both_or_neither(void **state)
{
    static const uint8_t other[] = {0x08, 100};
    responds_with(1, ACT(adds, .n = 5), 5);
    write_value(other, sizeof other);
    lab_fails(ctx, ask(2, ACT(adds, .n = 1), NULL), TEFF_E_CONFLICT);
    responds_with(2, ACT(adds, .n = 1), 101);
    assert_int_equal(stored_count(), 101);
    assert_int_equal(runs, 3);
}

static void test_a_turn_without_memory_stores_nothing(void **state)
{
    lab_fails(ctx, ask(1, ACT(adds_and_exits, .n = 5), NULL), TEFF_E_NOMEM);
    assert_int_equal(stored_count(), -1);
    responds_with(1, ACT(adds_and_exits, .n = 5), 5);
    assert_int_equal(stored_count(), 5);
}

/* As if the turn had no memory: nothing is stored. */
static void test_without_memory_for_the_answer_nothing_is_stored(void **state)
{
    lab_fails(ctx, ask(1, ACT(adds_and_starves, .n = 5), NULL), TEFF_E_NOMEM);
    assert_non_null(strstr(teff_error(ctx), "out of memory for the answer"));
    assert_int_equal(stored_count(), -1);
    responds_with(1, ACT(adds_and_starves, .n = 5), 5);
    responds_with(1, ACT(adds_and_starves, .n = 5), 5);
    assert_int_equal(runs, 2);
}

static void test_without_memory_for_the_response_nothing_is_stored(void **state)
{
    const direct_act *act = ACT(adds_and_starves_its_response, .n = 5);
    lab_fails(ctx, ask(1, act, NULL), TEFF_E_NOMEM);
    assert_int_equal(stored_count(), -1);
    responds_with(1, act, 5);
    responds_with(1, act, 5);
    assert_int_equal(runs, 2);
}

/* The longer the text, the less room is left beside it for the response. */
static void test_a_method_that_did_not_run_has_no_answer(void **state)
{
    char text[CHUNK_BYTES / 2] = "";
    int starved = 0;
    for (uint8_t key = 1; strlen(text) + 17 < sizeof text; strcat(text, "0123456789abcdef"))
        for (int nth = 1; nth <= 3; nth++, key++) {
            starve_chunk = nth;
            teff_err err = ask(key, ACT(adds, .n = 1, .text = text), NULL);
            starve_chunk = 0;
            starved += err && strstr(teff_error(ctx), "out of memory for the response");
            lab_ok(ctx, ask(key, ACT(adds, .n = 1, .text = text), NULL));
        }
    assert_true(starved > 0);
}

static void test_a_cleared_state_keeps_its_answers(void **state)
{
    direct_number *out;
    responds_with(1, ACT(adds, .n = 5), 5);
    lab_ok(ctx, direct_keeper_obey(ctx, 1, RUN(clears), &out));
    assert_int_equal(count(), 0);
    assert_true(row_of_all().value.len > TEFFI_ONCE_BYTES);
    assert_int_equal(stored_count(), -1);
    responds_with(1, ACT(adds, .n = 5), 5);
    deactivate();
    responds_with(1, ACT(adds, .n = 5), 5);
    assert_int_equal(count(), 0);
    responds_with(2, ACT(adds, .n = 5), 5);
    responds_with(3, RUN(clears), 0);
    deactivate();
    responds_with(3, RUN(clears), 0);
    assert_int_equal(count(), 0);
    assert_int_equal(runs, 4);
}

/* ---- the row ---- */

static void test_a_damaged_answer_is_left_as_it_is(void **state)
{
    static const uint8_t number[] = {0x08, 5, 0xf0, 0xd9, 0x09, 1},
                         no_key[] = {0x08, 5, 0xf2, 0xd9, 0x09, 0};
    direct_number *out;
    responds_with(1, ACT(adds, .n = 5), 5);
    deactivate();
    for (int i = 0; i < 2; i++) {
        write_value(i ? no_key : number, sizeof no_key);
        lab_fails(ctx, direct_keeper_obey(ctx, 1, RUN(counts), &out), TEFF_E_MALFORMED);
        assert_int_equal(row_of_all().value.len, sizeof no_key);
    }
}

/* A program may copy a message of a client, with all its unknown fields, to its state. */
static teff_err forges(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    static uint8_t bytes[] = {0};
    direct_memo *memo = acts_memo(turn);
    ProtobufCMessageUnknownField *field = teff_state_alloc(turn, sizeof *field);
    *field = (ProtobufCMessageUnknownField){19870, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, 1, bytes};
    memo->base.unknown_fields = field;
    memo->base.n_unknown_fields = 1;
    memo->count = 7;
    return teff_state_save(turn);
}

static void test_answers_are_not_forged(void **state)
{
    direct_number *out;
    lab_ok(ctx, direct_keeper_obey(ctx, 1, RUN(forges), &out));
    assert_int_equal(row_of_all().value.len, 2);
    assert_int_equal(stored_count(), 7);
}

/* ---- elsewhere ---- */

static teff_err add_to_account(teff_ctx *from, int64_t n, const teff_call_options *opt,
                               int64_t *total)
{
    teff_call call;
    lab_number *out;
    teff_err err = lab_account_add_async(from, "a", lab_number(.n = n), opt, &call);
    if (!err)
        err = lab_account_add_await(from, call, &out);
    *total = err ? 0 : out->n;
    return err;
}

static void adds_up_to(teff_ctx *from, uint8_t key, int64_t n, int64_t expected)
{
    teff_uuid id;
    int64_t total;
    teff_call_options opt = with_key(&id, key);
    lab_ok(from, add_to_account(from, n, &opt, &total));
    assert_int_equal(total, expected);
}

/* From both silos and a client; then from the silo that is left. */
static void test_an_answer_is_given_elsewhere(void **state)
{
    lab *two = lab_open_mixed(2);
    teff_client *client = lab_client(two, (int[]){0, -1});
    teff_ctx *client_ctx = teff_client_new_ctx(client);
    lab_box *box;
    for (uint8_t key = 1; key <= 3; key++)
        for (int i = 0; i < 3; i++)
            adds_up_to(i == 2 ? client_ctx : two->ctx[i], key, 5, 5 * key);
    lab_ok(client_ctx, lab_account_get(client_ctx, "a", &box));
    assert_int_equal(box->count, 15);
    teff_ctx_free(client_ctx);
    teff_client_free(client);
    assert_int_equal(lab_remove(two, 1), TEFF_OK);
    lab_add(two);
    assert_int_equal(lab_remove(two, 0), TEFF_OK);
    for (uint8_t key = 1; key <= 3; key++)
        adds_up_to(two->ctx[1], key, 5, 5 * key);
    lab_close(two);
}

static int setup(void **state)
{
    next_write = NONE;
    failures = 0;
    writes = 0;
    runs = 0;
    return acts_setup(state);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, acts_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_an_answer_is_given_again),
        CASE(test_an_error_is_an_answer),
        CASE(test_a_key_is_for_one_method_and_request),
        CASE(test_some_methods_take_no_key),
        CASE(test_a_large_answer_is_not_kept),
        CASE(test_the_newest_answers_are_kept),
        CASE(test_a_call_waits_for_its_key),
        CASE(test_a_call_waits_for_its_key_among_turns_that_overlap),
        CASE(test_saves_of_other_turns_wait),
        CASE(test_a_call_that_waited_too_long_does_not_run),
        CASE(test_the_answer_of_a_late_turn_is_stored),
        CASE(test_the_answer_follows_the_write),
        CASE(test_an_answer_is_not_changed_while_it_is_written),
        CASE(test_a_write_that_fails_is_both_or_neither),
        CASE(test_an_unknown_write_is_both_or_neither),
        CASE(test_a_conflict_is_both_or_neither),
        CASE(test_a_turn_without_memory_stores_nothing),
        CASE(test_without_memory_for_the_answer_nothing_is_stored),
        CASE(test_without_memory_for_the_response_nothing_is_stored),
        CASE(test_a_method_that_did_not_run_has_no_answer),
        CASE(test_a_cleared_state_keeps_its_answers),
        CASE(test_a_damaged_answer_is_left_as_it_is),
        CASE(test_answers_are_not_forged),
        cmocka_unit_test(test_an_answer_is_given_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
