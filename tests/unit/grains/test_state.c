/* test_state.c - stored state: loaded, saved, lost races, rows that do not decode, memory. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "activation/ident.h"
#include "node/ask.h"
#include "lab.h"

static lab *l;

static int setup(void **state)
{
    l = lab_open(1);
    return 0;
}

static int setup_two(void **state)
{
    l = lab_open(2);
    return 0;
}

static int setup_seeded(void **state)
{
    l = lab_open_seeded(2);
    return 0;
}

static int teardown(void **state)
{
    lab_close(l);
    return 0;
}

static int64_t add(const char *key, int64_t n)
{
    lab_number *out;
    lab_ok(l->ctx[0], lab_account_add(l->ctx[0], key, lab_number(.n = n), &out));
    return out->n;
}

static lab_box *get(const char *key)
{
    lab_box *out;
    lab_ok(l->ctx[0], lab_account_get(l->ctx[0], key, &out));
    return out;
}

static void deactivate(const char *key)
{
    int before = l->record.deactivated;
    lab_ok(l->ctx[0], lab_account_quit(l->ctx[0], key));
    lab_until(l->record.deactivated == before + 1);
    assert_int_equal(l->record.last_reason, TEFF_REASON_REQUESTED);
}

/* ---- the row, from the side ---- */

static teffi_bytes row_key(const char *key)
{
    static char bytes[200];
    int n = snprintf(bytes, sizeof bytes, "dev%clab.Account%c%s", 0, 0, key);
    return (teffi_bytes){bytes, (size_t)n};
}

static teffi_row read_row(const char *key)
{
    teffi_row row = {.table = "state", .key = row_key(key)};
    teffi_store_op op = {
        .kind = TEFFI_STORE_READ, .rows = &row, .n_rows = 1, .arena = &l->ctx[0]->arena};
    lab_ok(l->ctx[0], teffi_ctx_run_store_op(l->ctx[0], &op));
    return row;
}

static void write_row(const char *key, const void *value, size_t len)
{
    teffi_row row = {.table = "state", .key = row_key(key), .value = {value, len}, .any = true};
    teffi_store_op op = {
        .kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1, .arena = &l->ctx[0]->arena};
    lab_ok(l->ctx[0], teffi_ctx_run_store_op(l->ctx[0], &op));
}

/* ---- cases ---- */

static void a_grain_comes_back_with_its_saved_state(void **state)
{
    assert_int_equal(add("a", 5), 5);
    assert_int_equal(add("a", 2), 7);
    lab_ok(l->ctx[0], lab_account_set_note(l->ctx[0], "a", lab_text(.text = "not saved")));
    assert_string_equal(get("a")->note, "not saved");
    deactivate("a");
    assert_int_equal(get("a")->count, 7);
    assert_string_equal(get("a")->note, "");
    assert_int_equal(l->record.activated, 2);
}

static void grains_do_not_share_state(void **state)
{
    add("a", 1);
    add("b", 2);
    assert_int_equal(get("a")->count, 1);
    assert_int_equal(get("b")->count, 2);
    assert_int_equal(get("c")->count, 0);
}

static void cleared_state_is_gone_and_may_be_saved_again(void **state)
{
    lab_ok(l->ctx[0], lab_account_wipe(l->ctx[0], "a")); /* nothing stored: nothing to do */
    add("a", 5);
    uint64_t first = read_row("a").etag;
    lab_ok(l->ctx[0], lab_account_wipe(l->ctx[0], "a"));
    assert_int_equal(get("a")->count, 0);
    assert_int_equal(read_row("a").etag, 0);
    assert_int_equal(add("a", 3), 3);
    assert_true(read_row("a").etag > first);
    deactivate("a");
    assert_int_equal(get("a")->count, 3);
}

static void a_lost_race_ends_only_that_activation(void **state)
{
    uint8_t stored[] = {0x08, 100}; /* count: 100 */
    lab_number *out;
    add("a", 5);
    add("b", 5);
    write_row("a", stored, sizeof stored);
    lab_fails(l->ctx[0], lab_account_add(l->ctx[0], "a", lab_number(.n = 1), &out),
              TEFF_E_CONFLICT);
    assert_non_null(strstr(teff_error(l->ctx[0]), "lab.Account"));
    lab_until(l->record.deactivated == 1);
    assert_int_equal(get("a")->count, 100);
    assert_int_equal(add("a", 1), 101);
    assert_int_equal(add("b", 1), 6);
    assert_int_equal(l->record.activated, 3);
}

static void what_does_not_decode_is_left_as_it_is(void **state)
{
    static const uint8_t bad[] = {0x08, 0xff, 0xff, 0x12, 200, 'x'};
    lab_number *out;
    write_row("a", bad, sizeof bad);
    for (int i = 0; i < 3; i++) {
        lab_fails(l->ctx[0], lab_account_add(l->ctx[0], "a", lab_number(.n = 1), &out),
                  TEFF_E_MALFORMED);
        assert_non_null(strstr(teff_error(l->ctx[0]),
                               "lab.Account.Add at a: the state in the store does not decode"));
    }
    teffi_row row = read_row("a");
    assert_int_equal(row.value.len, sizeof bad);
    assert_memory_equal(row.value.data, bad, sizeof bad);
    assert_int_equal(l->record.activated, 0);
    assert_int_equal(add("b", 1), 1);
}

/* An empty row is a state of zeros, not a missing one. */
static void an_empty_row_is_an_empty_state(void **state)
{
    write_row("a", "", 0);
    assert_int_equal(get("a")->count, 0);
    assert_int_equal(add("a", 1), 1);
}

/* What the state no longer points to is given back: 200 MB pass through a budget of 64. */
static void replaced_memory_is_given_back(void **state)
{
    enum { LEN = 100 * 1000, TIMES = 2000 };
    char *text = malloc(LEN + 1);
    assert_non_null(text);
    memset(text, 'n', LEN);
    text[LEN] = '\0';
    for (int i = 0; i < TIMES; i++) {
        text[0] = (char)('a' + i % 26);
        lab_ok(l->ctx[0], lab_account_set_note(l->ctx[0], "a", lab_text(.text = text)));
    }
    assert_string_equal(get("a")->note, text);
    free(text);
}

static void lists_grow_over_turns(void **state)
{
    enum { LINES = 500 };
    char line[40];
    lab_number *n = NULL;
    for (int i = 0; i < LINES; i++) {
        snprintf(line, sizeof line, "line %d of the state", i);
        lab_ok(l->ctx[0], lab_account_push(l->ctx[0], "a", lab_text(.text = line), &n));
    }
    assert_int_equal(n->n, LINES);
    lab_ok(l->ctx[0], lab_account_keep(l->ctx[0], "a"));
    deactivate("a");
    lab_box *box = get("a");
    assert_int_equal(box->n_lines, LINES);
    assert_string_equal(box->lines[0], "line 0 of the state");
    assert_string_equal(box->lines[LINES - 1], line);
}

static void a_state_too_large_for_the_store_is_told(void **state)
{
    char *text = malloc(900001);
    assert_non_null(text);
    memset(text, 'x', 900000);
    text[900000] = '\0';
    add("a", 1);
    for (int i = 0; i < 20; i++)
        lab_ok(l->ctx[0],
               lab_account_push(l->ctx[0], "a", lab_text(.text = text), &(lab_number *){0}));
    lab_fails(l->ctx[0], lab_account_keep(l->ctx[0], "a"), TEFF_E_TOO_LARGE);
    deactivate("a");
    assert_int_equal(get("a")->count, 1);
    free(text);
}

/* Larger than any message between grains: rows go to the seed's store and back. */
static void a_large_state_is_kept_by_a_seed(void **state)
{
    enum { KEYS = 6, LINES = 17, LINE = 900000 };
    char *text = malloc(LINE + 1), key[20];
    lab_number *n;
    assert_non_null(text);
    memset(text, 'x', LINE);
    text[LINE] = '\0';
    for (int k = 0; k < KEYS; k++) {
        snprintf(key, sizeof key, "large-%d", k);
        for (int i = 0; i < LINES; i++)
            lab_ok(l->ctx[1], lab_account_push(l->ctx[1], key, lab_text(.text = text), &n));
        lab_ok(l->ctx[1], lab_account_keep(l->ctx[1], key));
        int before = l->record.deactivated;
        lab_ok(l->ctx[1], lab_account_quit(l->ctx[1], key));
        lab_until(l->record.deactivated == before + 1);
        lab_ok(l->ctx[1], lab_account_push(l->ctx[1], key, lab_text(.text = "more"), &n));
        assert_int_equal(n->n, LINES + 1);
        lab_ok(l->ctx[1], lab_account_wipe(l->ctx[1], key));
        teff_ctx_reset(l->ctx[1]);
    }
    free(text);
}

static void saving_outside_a_turn_is_refused(void **state)
{
    assert_int_equal(teff_state_save(l->ctx[0]), TEFF_E_INVALID);
    assert_int_equal(teff_state_clear(l->ctx[0]), TEFF_E_INVALID);
}

/* The grain moves: its silo leaves, the other one loads what was saved. */
static void state_moves_with_a_leaving_silo(void **state)
{
    char key[20];
    lab_number *out;
    for (int i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "move-%d", i);
        lab_ok(l->ctx[0], lab_account_add(l->ctx[0], key, lab_number(.n = i), &out));
    }
    assert_int_equal(lab_remove(l, 1), TEFF_OK);
    for (int i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "move-%d", i);
        assert_int_equal(add(key, 1), i + 1);
    }
}

int main(void)
{
#define STATE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        STATE(a_grain_comes_back_with_its_saved_state),
        STATE(grains_do_not_share_state),
        STATE(cleared_state_is_gone_and_may_be_saved_again),
        STATE(a_lost_race_ends_only_that_activation),
        STATE(what_does_not_decode_is_left_as_it_is),
        STATE(an_empty_row_is_an_empty_state),
        STATE(replaced_memory_is_given_back),
        STATE(lists_grow_over_turns),
        STATE(a_state_too_large_for_the_store_is_told),
        STATE(saving_outside_a_turn_is_refused),
        cmocka_unit_test_setup_teardown(a_large_state_is_kept_by_a_seed, setup_seeded, teardown),
        cmocka_unit_test_setup_teardown(state_moves_with_a_leaving_silo, setup_two, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
