/* test_state_save.c - what a save that failed leaves behind; limits of a state; fields that it does
 * not know. The store fails on command: its door is wrapped.
 * Way:     turns -> teff_state_save -> [__wrap_teffi_store_submit] -> store */
#include <stdlib.h>
#include <string.h>
#include "call/wait.h"
#include "node/ask.h"
#include "acts.h"

typedef enum fault {
    NONE,
    FAILS,           /* nothing is written */
    UNKNOWN_BEFORE,  /* nothing is written, and that is not known */
    UNKNOWN_WRITTEN, /* it is written, and that is not known */
    LATER,           /* the test submits it: later */
} fault;

static _Atomic fault next_write; /* of a state */
static _Atomic int writes;       /* of states that reached the store */

typedef struct hidden {
    teffi_store_op op, *own;
} hidden;

static struct {
    teffi_store *store;
    teffi_store_op *_Atomic op;
} later;

void __real_teffi_store_submit(teffi_store *store, teffi_store_op *op);
void __wrap_teffi_store_submit(teffi_store *store, teffi_store_op *op);

static void ends_unknown(teffi_store_op *op)
{
    op->err = TEFF_E_UNKNOWN;
    strcpy(op->text, "as the test says");
    op->done(op);
}

static void is_hidden(teffi_store_op *op)
{
    hidden *h = (hidden *)(void *)op;
    teffi_store_op *own = h->own;
    free(h);
    ends_unknown(own);
}

void __wrap_teffi_store_submit(teffi_store *store, teffi_store_op *op)
{
    bool is_state = op->kind == TEFFI_STORE_BATCH && !strcmp(op->rows[0].table, "state");
    fault now = is_state && !op->rows[0].any ? atomic_exchange(&next_write, NONE) : NONE;
    writes += is_state && (now == NONE || now == UNKNOWN_WRITTEN);
    if (now == FAILS) {
        op->err = TEFF_E_IO;
        strcpy(op->text, "as the test says");
        op->done(op);
    } else if (now == UNKNOWN_BEFORE) {
        ends_unknown(op);
    } else if (now == UNKNOWN_WRITTEN) {
        hidden *h = malloc(sizeof *h);
        *h = (hidden){*op, op};
        h->op.done = is_hidden;
        __real_teffi_store_submit(store, &h->op);
    } else if (now == LATER) {
        later.store = store;
        later.op = op;
    } else {
        __real_teffi_store_submit(store, op);
    }
}

static void submit_later(void)
{
    __real_teffi_store_submit(later.store, atomic_exchange(&later.op, NULL));
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

static void write_any(teffi_row row)
{
    row.any = true;
    teffi_store_op op = {
        .kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1, .arena = &ctx->arena};
    lab_ok(ctx, teffi_ctx_run_store_op(ctx, &op));
}

static void write_count(uint8_t count)
{
    uint8_t bytes[] = {0x08, count};
    teffi_row row = row_of_all();
    row.value = (teffi_bytes){bytes, sizeof bytes};
    write_any(row);
}

static int stored_count(void)
{
    teffi_row row = row_of_all();
    const uint8_t *bytes = row.value.data;
    return row.etag && row.value.len >= 2 && bytes[0] == 0x08 ? bytes[1] : -1;
}

/* ---- scripts ---- */

static teff_err adds(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    out->n = acts_memo(turn)->count += in->n;
    return in->text[0] ? teff_state_save(turn) : TEFF_OK;
}

static teff_err clears(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    return teff_state_clear(turn);
}

/* The turn stays until the gate opens; only then may on_deactivate run. */
static teff_err saves_and_waits(teff_ctx *turn, int64_t key, const direct_act *in,
                                direct_number *out)
{
    acts_memo(turn)->count += in->n;
    out->n = teff_state_save(turn);
    for (world.held = 1; !world.gate;)
        teffi_ctx_sleep(turn, 1);
    world.held = 0;
    world.gate = false;
    return TEFF_OK;
}

static teff_err saves_again(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    teff_err err = saves_and_waits(turn, key, in, out);
    acts_memo(turn)->count += in->n;
    return err || out->n != TEFF_E_UNKNOWN ? TEFF_E_FAILED : teff_state_save(turn);
}

static teff_err add(int64_t n)
{
    direct_number *out;
    return direct_keeper_obey(ctx, 1, ACT(adds, .n = n, .text = "save"), &out);
}

static int64_t count(void)
{
    direct_number *out;
    lab_ok(ctx, direct_keeper_obey(ctx, 1, ACT(adds, .n = 0), &out));
    return out->n;
}

static void deactivate(void)
{
    direct_number *out;
    int before = world.deactivated;
    lab_ok(ctx, direct_keeper_obey(ctx, 1, RUN(ends), &out));
    lab_until(world.deactivated == before + 1);
}

/* ---- writes that fail ---- */

static void test_what_was_not_written_is_written_later(void **state)
{
    lab_ok(ctx, add(5));
    next_write = FAILS;
    lab_fails(ctx, add(1), TEFF_E_IO);
    assert_int_equal(stored_count(), 5);
    assert_int_equal(count(), 6);
    assert_int_equal(world.activated, 1);
    lab_ok(ctx, add(1));
    assert_int_equal(stored_count(), 7);
    next_write = FAILS;
    lab_fails(ctx, add(1), TEFF_E_IO);
    deactivate(); /* it saves */
    assert_int_equal(count(), 8);
    assert_int_equal(world.activated, 2);
}

static void is_found_out(fault how, int64_t first)
{
    direct_number *out;
    int activated = world.activated;
    if (first)
        lab_ok(ctx, add(first));
    next_write = how;
    world.gate = true;
    lab_ok(ctx, direct_keeper_obey(ctx, 1, ACT(saves_again, .n = 1), &out));
    assert_int_equal(stored_count(), first + 2);
    assert_int_equal(count(), first + 2); /* of the next activation */
    next_write = how;
    lab_fails(ctx, add(1), TEFF_E_UNKNOWN);
    lab_ok(ctx, add(1)); /* behind on_deactivate, which saved */
    assert_int_equal(stored_count(), first + 4);
    assert_true(world.activated >= activated + 2);
}

static void test_an_unknown_write_is_found_out(void **state)
{
    direct_number *out;
    is_found_out(UNKNOWN_WRITTEN, 0);
    lab_ok(ctx, direct_keeper_obey(ctx, 1, RUN(clears), &out));
    is_found_out(UNKNOWN_BEFORE, 0);
    lab_ok(ctx, direct_keeper_obey(ctx, 1, RUN(clears), &out));
    is_found_out(UNKNOWN_WRITTEN, 5);
    lab_ok(ctx, direct_keeper_obey(ctx, 1, RUN(clears), &out));
    is_found_out(UNKNOWN_BEFORE, 5);
}

static void test_an_unknown_removal_is_found_out(void **state)
{
    direct_number *out;
    for (fault how = UNKNOWN_BEFORE; how <= UNKNOWN_WRITTEN; how++) {
        lab_ok(ctx, add(5));
        next_write = how;
        lab_fails(ctx, direct_keeper_obey(ctx, 1, RUN(clears), &out), TEFF_E_UNKNOWN);
        lab_ok(ctx, add(1));
        assert_int_equal(stored_count(), 6);
        lab_ok(ctx, direct_keeper_obey(ctx, 1, RUN(clears), &out));
        assert_int_equal(stored_count(), -1);
        assert_int_equal(count(), 0);
    }
}

static void test_somebody_else_wrote_after_an_unknown_write(void **state)
{
    direct_number *out;
    teff_call call;
    for (fault how = UNKNOWN_BEFORE; how <= UNKNOWN_WRITTEN; how++) {
        lab_ok(ctx, add(5));
        next_write = how;
        lab_ok(ctx, direct_keeper_obey_async(ctx, 1, ACT(saves_again, .n = 1), NULL, &call));
        lab_until(world.held == 1);
        write_count(100);
        world.gate = true;
        lab_fails(ctx, direct_keeper_obey_await(ctx, call, &out), TEFF_E_CONFLICT);
        assert_int_equal(count(), 100);
        assert_int_equal(stored_count(), 100);
        write_count(0);
        lab_fails(ctx, add(1), TEFF_E_CONFLICT);
    }
}

/* Turns that overlap save one after the other: the second by the version that the first wrote. */
static void test_saves_of_one_grain_take_turns(void **state)
{
    direct_number *out;
    teff_call calls[2];
    next_write = LATER;
    for (int i = 0; i < 2; i++)
        lab_ok(ctx,
               direct_crowd_obey_async(ctx, 1, ACT(adds, .n = 1, .text = "save"), NULL, &calls[i]));
    lab_until(later.op);
    do /* until the second has added, too; it began to save in the same step */
        lab_ok(ctx, direct_crowd_obey(ctx, 1, ACT(adds, .n = 0), &out));
    while (out->n < 2);
    assert_int_equal(writes, 0);
    submit_later();
    for (int i = 0; i < 2; i++)
        lab_ok(ctx, direct_crowd_obey_await(ctx, calls[i], &out));
    assert_int_equal(writes, 1);
    assert_int_equal(stored_count(), 2);
}

/* Even when the row would fit again. */
static void test_after_a_conflict_nothing_is_written(void **state)
{
    direct_number *out;
    teff_call call;
    lab_ok(ctx, direct_keeper_obey(ctx, 1, ACT(adds, .n = 5), &out));
    lab_ok(ctx, direct_crowd_obey(ctx, 1, ACT(adds, .n = 7, .text = "save"), &out));
    teffi_row row = row_of_all(), other = row;
    char key[64];
    size_t at = strlen("dev") + 1 + strlen("direct.");
    assert_true(row.key.len < sizeof key - 1);
    memcpy(key, row.key.data, at); /* a Crowd's key, made a Keeper's */
    memcpy(key + at, "Keeper", 6);
    memcpy(key + at + 6, (const char *)row.key.data + at + 5, row.key.len - at - 5);
    other.key = (teffi_bytes){key, row.key.len + 1};
    write_any(other);
    lab_ok(ctx, direct_keeper_obey_async(ctx, 1, RUN(saves_and_waits), NULL, &call));
    lab_until(world.held == 1);
    other.remove = true;
    write_any(other);
    int written = writes;
    world.gate = true;
    lab_ok(ctx, direct_keeper_obey_await(ctx, call, &out));
    assert_int_equal(out->n, TEFF_E_CONFLICT);
    lab_until(world.deactivated == 1);
    assert_int_equal(writes, written);
    assert_int_equal(count(), 0);
}

/* ---- what can be saved can be loaded ---- */

static teff_err fills(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_memo *memo = acts_memo(turn);
    size_t n = (size_t)in->n;
    memo->lines = teff_state_alloc(turn, n * sizeof *memo->lines);
    memo->n_lines = n;
    const char *line = teff_state_strdup(turn, in->text);
    for (size_t i = 0; i < n; i++)
        memo->lines[i] = line;
    return teff_state_save(turn);
}

static teff_err counts_lines(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    out->n = (int64_t)acts_memo(turn)->n_lines;
    return TEFF_OK;
}

static void comes_back(int64_t n, const char *text)
{
    direct_number *out;
    lab_ok(ctx, direct_keeper_obey(ctx, 1, ACT(fills, .n = n, .text = text), &out));
    deactivate();
    lab_ok(ctx, direct_keeper_obey(ctx, 1, RUN(counts_lines), &out));
    assert_int_equal(out->n, n);
}

static void test_all_that_is_saved_is_loaded(void **state)
{
    comes_back(200000, "a line"); /* more than a request may have */
    comes_back(2000000, "");
    comes_back(16, "sixteen times");
}

static void is_refused(int64_t n, const char *text, teff_err err, const char *why)
{
    direct_number *out;
    int written = writes;
    lab_fails(ctx, direct_keeper_obey(ctx, 1, ACT(fills, .n = n, .text = text), &out), err);
    if (!strstr(teff_error(ctx), why))
        fail_msg("%s, expected %s", teff_error(ctx), why);
    assert_int_equal(writes, written);
}

static teff_err names_badly(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    acts_memo(turn)->n_lines = 0;
    acts_memo(turn)->note = teff_state_strdup(turn, "\xff\xfe");
    return teff_state_save(turn);
}

static void test_what_could_not_be_loaded_is_not_saved(void **state)
{
    direct_number *out;
    char *text = calloc(1, 500001);
    assert_non_null(text);
    memset(text, 'x', 500000);
    lab_ok(ctx, add(5));
    is_refused(40, text, TEFF_E_TOO_LARGE, "direct.Keeper.Obey at 1: the state takes 20");
    is_refused(7500000, "", TEFF_E_TOO_LARGE, "bytes unpacked; at most 67108864");
    lab_fails(ctx, direct_keeper_obey(ctx, 1, RUN(names_badly), &out), TEFF_E_MALFORMED);
    assert_non_null(strstr(teff_error(ctx), "direct.Memo.note is not UTF-8"));
    assert_int_equal(stored_count(), 5);
    free(text);
}

/* ---- what a newer version wrote ---- */

static teff_err notes(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    enum { NOTE = 100000 };
    char *note = teff_state_alloc(turn, NOTE + 1);
    memset(note, 'x', in->n ? NOTE : 1);
    acts_memo(turn)->note = note;
    return adds(turn, key, ACT(0, .text = in->text), out);
}

/* Loaded, copied when it is compacted, saved: as it came. */
static void test_unknown_fields_are_kept(void **state)
{
    static const uint8_t newer[] = {0x08, 5,                                  /* count */
                                    0x12, 1,    'x',                          /* note */
                                    0xa0, 0x06, 7,                            /* 100: a number */
                                    0xaa, 0x06, 5,   'n', 'e', 'w', 'e', 'r', /* 101: a text */
                                    0xb5, 0x06, 1,   2,   3,   4,             /* 102: fixed32 */
                                    0xb9, 0x06, 1,   2,   3,   4,   5,   6,   7, 8};
    direct_number *out;
    lab_ok(ctx, add(1));
    deactivate();
    teffi_row row = row_of_all();
    row.value = (teffi_bytes){newer, sizeof newer};
    write_any(row);
    for (int i = 0; i < 10; i++)
        lab_ok(ctx, direct_keeper_obey(ctx, 1, ACT(notes, .n = 1, .text = ""), &out));
    lab_ok(ctx, direct_keeper_obey(ctx, 1, ACT(notes, .text = "save"), &out));
    for (int i = 0; i < 2; i++) {
        row = row_of_all();
        assert_int_equal(row.value.len, sizeof newer);
        assert_memory_equal(row.value.data, newer, sizeof newer);
        deactivate();
        assert_int_equal(count(), 5);
    }
}

static int setup(void **state)
{
    next_write = NONE;
    writes = 0;
    return acts_setup(state);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, acts_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_what_was_not_written_is_written_later),
        CASE(test_an_unknown_write_is_found_out),
        CASE(test_an_unknown_removal_is_found_out),
        CASE(test_somebody_else_wrote_after_an_unknown_write),
        CASE(test_saves_of_one_grain_take_turns),
        CASE(test_after_a_conflict_nothing_is_written),
        CASE(test_all_that_is_saved_is_loaded),
        CASE(test_what_could_not_be_loaded_is_not_saved),
        CASE(test_unknown_fields_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
