/* test_calls.c - how calls end: responds, errors and their texts, limits, deadlines, keys, fan-out.
 * Each case runs with one silo, with a caller on another silo, and with a client; the latter two
 * also between nodes on different transports. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "lab.h"

/* Who calls: the thread of a silo, or of a client whose gateway is that silo. */
typedef struct place {
    lab *l;
    teff_client *client;
    teff_ctx *ctx;
} place;

static place here;

static int setup_one(void **state)
{
    here = (place){.l = lab_open(1)};
    here.ctx = here.l->ctx[0];
    return 0;
}

static int setup_two(void **state)
{
    here = (place){.l = lab_open(2)};
    here.ctx = here.l->ctx[0];
    return 0;
}

static int setup_mixed(void **state)
{
    here = (place){.l = lab_open_mixed(2)};
    here.ctx = here.l->ctx[0];
    return 0;
}

static int connect_client(lab *l, int gateway)
{
    here = (place){.l = l, .client = lab_client(l, (const int[]){gateway, -1})};
    here.ctx = teff_client_new_ctx(here.client);
    return 0;
}

static int setup_client(void **state)
{
    return connect_client(lab_open(2), 1);
}

static int setup_reactor_client(void **state)
{
    return connect_client(lab_open_mixed(2), 0);
}

static int setup_nng_client(void **state)
{
    return connect_client(lab_open_mixed(2), 1);
}

static int teardown(void **state)
{
    here.l->record.gate = true;
    if (here.client) {
        teff_ctx_free(here.ctx);
        teff_client_free(here.client);
    }
    lab_close(here.l);
    return 0;
}

/* Before each case. */
static lab_record *fresh(void)
{
    here.l->record.gate = false;
    here.l->record.started = 0;
    teff_ctx_reset(here.ctx);
    teff_ctx_set_timeout(here.ctx, 0);
    return &here.l->record;
}

/* Several grains of each kind, so that some are here and some are there. */
enum { SPREAD = 12 };

static const char *name(const char *prefix, int i)
{
    static char text[64];
    snprintf(text, sizeof text, "%s-%d", prefix, i);
    return text;
}

static void methods_fail_with_code_and_text(void **state)
{
    static const int codes[] = {TEFF_E_FAILED,   TEFF_E_INVALID, TEFF_E_OVERLOADED, TEFF_E_USER,
                                TEFF_E_USER + 5, TEFF_E_MAX,     TEFF_E_NOT_FOUND};
    char expected[100];
    lab_text *out;
    fresh();
    for (int i = 0; i < SPREAD; i++) {
        int code = codes[(size_t)i % (sizeof codes / sizeof codes[0])];
        const char *key = name("moody", i);
        snprintf(expected, sizeof expected, "failed with %d at %s", code, key);
        lab_fails(here.ctx, lab_moody_fail(here.ctx, key, lab_number(.n = code), &out),
                  (teff_err)code);
        assert_string_equal(teff_error(here.ctx), expected);
    }
}

/* 65536 was TEFF_OK when it had been cut to 16 bits. */
static void codes_out_of_range_are_failures(void **state)
{
    static const int64_t codes[] = {TEFF_E_MAX + 1, TEFF_E_MAX + 5, 0x7fffffff, -1, -65536};
    lab_text *out;
    char text[100];
    fresh();
    for (int i = 0; i < SPREAD; i++) {
        int64_t code = codes[(size_t)i % (sizeof codes / sizeof codes[0])];
        const char *key = name("moody", i);
        snprintf(text, sizeof text, "lab.Moody.Fail at %s returned %d, which", key, (int)code);
        lab_fails(here.ctx, lab_moody_fail(here.ctx, key, lab_number(.n = code), &out),
                  TEFF_E_FAILED);
        assert_non_null(strstr(teff_error(here.ctx), text));
        assert_non_null(strstr(teff_error(here.ctx), "failed with"));
    }
}

static void a_bare_code_names_grain_and_method(void **state)
{
    char expected[200];
    fresh();
    for (int i = 0; i < SPREAD; i++) {
        const char *key = name("moody", i);
        snprintf(expected, sizeof expected, "lab.Moody.Bare at %s returned user error 3", key);
        lab_fails(here.ctx, lab_moody_bare(here.ctx, key, lab_number(.n = TEFF_E_USER(3))),
                  TEFF_E_USER(3));
        assert_string_equal(teff_error(here.ctx), expected);
        snprintf(expected, sizeof expected,
                 "lab.Moody.Bare at %s returned user error 4 (the last error was: failed with 9 at "
                 "another one)",
                 key);
        lab_fails(here.ctx, lab_moody_bare(here.ctx, key, lab_number(.n = -1)), TEFF_E_USER(4));
        assert_string_equal(teff_error(here.ctx), expected);
    }
}

/* In a turn: what a method that fails says of why. */
static void texts_can_be_wrapped(void **state)
{
    char expected[100];
    fresh();
    assert_int_equal(teff_fail(here.ctx, TEFF_E_IO, "%s", "inner"), TEFF_E_IO);
    assert_int_equal(teff_fail(here.ctx, TEFF_E_IO, "outer: %s", teff_error(here.ctx)), TEFF_E_IO);
    assert_string_equal(teff_error(here.ctx), "outer: inner");
    for (int i = 0; i < 200; i++)
        (void)teff_fail(here.ctx, TEFF_E_IO, "once more: %s", teff_error(here.ctx));
    assert_int_equal(strlen(teff_error(here.ctx)), TEFF_TEXT_MAX - 1);
    for (int i = 0; i < SPREAD; i++) {
        const char *key = name("moody", i);
        snprintf(expected, sizeof expected, "wrapped: failed with 1003 at %s, asked", key);
        lab_fails(here.ctx, lab_moody_wrap(here.ctx, key), TEFF_E_USER(3));
        assert_string_equal(teff_error(here.ctx), expected);
    }
}

static void an_empty_slot_is_unimplemented(void **state)
{
    fresh();
    for (int i = 0; i < SPREAD; i++) {
        lab_fails(here.ctx, lab_turns_nothing(here.ctx, name("none", i)), TEFF_E_UNIMPLEMENTED);
        assert_non_null(strstr(teff_error(here.ctx), "lab.Turns.Nothing"));
    }
}

static void a_type_nobody_hosts_is_not_found(void **state)
{
    lab_text *out;
    fresh();
    for (int i = 0; i < SPREAD; i++)
        lab_fails(here.ctx, lab_rare_where(here.ctx, name("rare", i), &out), TEFF_E_NOT_FOUND);
    assert_non_null(strstr(teff_error(here.ctx), "hosts"));
}

static void bad_keys_are_told_before_anything_is_sent(void **state)
{
    static char large[TEFF_KEY_MAX + 2];
    lab_number *out;
    fresh();
    memset(large, 'k', TEFF_KEY_MAX + 1);
    lab_fails(here.ctx, lab_turns_write(here.ctx, "", lab_step(), &out), TEFF_E_INVALID);
    lab_fails(here.ctx, lab_turns_write(here.ctx, NULL, lab_step(), &out), TEFF_E_INVALID);
    lab_fails(here.ctx, lab_turns_write(here.ctx, "\xff", lab_step(), &out), TEFF_E_INVALID);
    lab_fails(here.ctx, lab_turns_write(here.ctx, large, lab_step(), &out), TEFF_E_INVALID);
    lab_fails(here.ctx, lab_turns_note(here.ctx, large, lab_step()), TEFF_E_INVALID);
    lab_fails(here.ctx, lab_turns_write(here.ctx, "a", NULL, &out), TEFF_E_INVALID);
    assert_int_equal(here.l->record.started, 0);
    large[TEFF_KEY_MAX] = '\0';
    lab_ok(here.ctx, lab_turns_write(here.ctx, large, lab_step(), &out));
}

static void keys_of_all_kinds_arrive(void **state)
{
    static char name_1024[TEFF_KEY_MAX + 1];
    teff_uuid id = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0}};
    char expected[TEFF_KEY_MAX + 40];
    lab_text *out;
    fresh();
    memset(name_1024, 'n', TEFF_KEY_MAX);
    for (uint8_t i = 0; i < SPREAD; i++) {
        id.bytes[15] = i;
        snprintf(expected, sizeof expected, "000102030405060708090a0b0c0d0e%02x", i);
        lab_ok(here.ctx, lab_ids_who(here.ctx, id, &out));
        assert_string_equal(out->text, expected);
        snprintf(expected, sizeof expected, "000102030405060708090a0b0c0d0e%02x/%s", i, name_1024);
        lab_ok(here.ctx, lab_id_pair_who(here.ctx, id, name_1024, &out));
        assert_string_equal(out->text, expected);
        snprintf(expected, sizeof expected, "%d/\xe1\x8a\xa0", -i);
        lab_ok(here.ctx, lab_pair_who(here.ctx, -i, "\xe1\x8a\xa0", &out));
        assert_string_equal(out->text, expected);
    }
}

static void a_timeout_leaves_the_outcome_open(void **state)
{
    lab_record *r = fresh();
    lab_number *out;
    for (int i = 0; i < 3; i++)
        while (r->started <= i) { /* on a slow machine its time was over before it began */
            lab_fails(here.ctx,
                      lab_turns_quick(here.ctx, name("slow", i), lab_step(.hold = true), &out),
                      TEFF_E_TIMEOUT);
            assert_true(teff_call_may_have_run(TEFF_E_TIMEOUT));
            assert_true(strlen(teff_error(here.ctx)) > 0);
        }
    r->gate = true;
    lab_until(r->held == 0);
    /* Nothing of the late responses is left: the grain and the context go on as before. */
    for (int i = 0; i < 3; i++)
        lab_ok(here.ctx, lab_turns_write(here.ctx, name("slow", i), lab_step(), &out));
}

/* Until the clock of whoever holds a request has passed its deadline, which is counted from when it
 * arrived. */
static void let_expire(void)
{
    struct timespec now, begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - begin.tv_sec < 2);
}

static void an_expired_request_never_runs(void **state)
{
    lab_record *r = fresh();
    teff_call held;
    lab_number *out;
    lab_ok(here.ctx,
           lab_turns_write_async(here.ctx, "expire", lab_step(.hold = true), NULL, &held));
    lab_until(r->held == 1);
    for (int i = 0; i < 5; i++)
        lab_fails(here.ctx, lab_turns_quick(here.ctx, "expire", lab_step(), &out), TEFF_E_TIMEOUT);
    lab_ok(here.ctx, lab_turns_peek(here.ctx, "expire", lab_step(), &out)); /* they all arrived */
    let_expire();
    r->gate = true;
    lab_ok(here.ctx, lab_turns_write_await(here.ctx, held, &out));
    lab_ok(here.ctx, lab_turns_write(here.ctx, "expire", lab_step(), &out));
    assert_int_equal(r->started, 3);
}

static void a_context_has_a_timeout_of_its_own(void **state)
{
    lab_record *r = fresh();
    lab_number *out;
    teff_ctx_set_timeout(here.ctx, 50);
    lab_fails(here.ctx, lab_turns_write(here.ctx, "own", lab_step(.hold = true), &out),
              TEFF_E_TIMEOUT);
    r->gate = true;
    teff_ctx_set_timeout(here.ctx, 0);
    lab_ok(here.ctx, lab_turns_write(here.ctx, "own", lab_step(), &out));
    lab_until(r->held == 0);
}

/* One runs, four wait, the next is refused; afterwards there is room again. */
static void a_full_queue_refuses(void **state)
{
    lab_record *r = fresh();
    teff_call calls[5], more[8];
    lab_number *out;
    int refused = 0;
    lab_ok(here.ctx,
           lab_small_write_async(here.ctx, "full", lab_step(.hold = true), NULL, &calls[0]));
    lab_until(r->held == 1);
    for (int i = 1; i < 5; i++)
        lab_ok(here.ctx, lab_small_write_async(here.ctx, "full", lab_step(), NULL, &calls[i]));
    for (int i = 0; i < 8; i++)
        lab_ok(here.ctx, lab_small_write_async(here.ctx, "full", lab_step(), NULL, &more[i]));
    for (int i = 0; i < 8; i++) {
        teff_err err = lab_small_write_await(here.ctx, more[i], &out);
        assert_int_equal(err, TEFF_E_OVERLOADED);
        assert_non_null(strstr(teff_error(here.ctx), "full"));
        refused++;
    }
    assert_int_equal(refused, 8);
    assert_int_equal(r->started, 1);
    r->gate = true;
    lab_ok(here.ctx, teff_await_all(here.ctx, calls, 5));
    lab_ok(here.ctx, lab_small_write(here.ctx, "full", lab_step(), &out));
    assert_int_equal(r->started, 6);
}

static void large_messages_are_refused(void **state)
{
    char text[200] = "";
    lab_text *out;
    fresh();
    memset(text, 'x', 98);
    lab_ok(here.ctx, lab_small_echo(here.ctx, "large", lab_text(.text = text), &out));
    assert_string_equal(out->text, text);
    memset(text, 'x', 99);
    lab_fails(here.ctx, lab_small_echo(here.ctx, "large", lab_text(.text = text), &out),
              TEFF_E_TOO_LARGE);
    for (int i = 0; i < SPREAD; i++) {
        lab_fails(here.ctx, lab_small_blow(here.ctx, name("large", i), lab_number(.n = 99), &out),
                  TEFF_E_TOO_LARGE);
        assert_non_null(strstr(teff_error(here.ctx), "lab.Small.Blow"));
    }
}

/* Over what a frame holds: only a caller on another node can notice; nothing may hang or break. */
static void a_frame_has_a_limit(void **state)
{
    enum { LARGE = 3 * 1024 * 1024 };
    char *text = malloc(LARGE + 1);
    int large = 0;
    fresh();
    assert_non_null(text);
    memset(text, 'x', LARGE);
    text[LARGE] = '\0';
    for (int i = 0; i < SPREAD; i++) {
        teff_err err = lab_account_set_note(here.ctx, name("frame", i), lab_text(.text = text));
        assert_true(err == TEFF_OK || err == TEFF_E_TOO_LARGE);
        lab_box *box;
        teff_err got = lab_account_get(here.ctx, name("frame", i), &box);
        assert_true(got == TEFF_OK || got == TEFF_E_TOO_LARGE);
        large += err == TEFF_E_TOO_LARGE;
        teff_ctx_reset(here.ctx);
    }
    free(text);
    if (here.client)
        assert_int_equal(large, SPREAD);
}

static void a_failed_activation_is_told_and_tried_again(void **state)
{
    lab_record *r = fresh();
    lab_number *out;
    for (int i = 0; i < 4; i++) {
        r->moody_failures = 2;
        const char *key = name("sulk", i);
        for (int n = 0; n < 2; n++) {
            lab_fails(here.ctx, lab_moody_ask(here.ctx, key, &out), TEFF_E_USER + 7);
            assert_non_null(strstr(teff_error(here.ctx), "not in the mood, says sulk-"));
        }
        lab_ok(here.ctx, lab_moody_ask(here.ctx, key, &out));
    }
}

static void a_chain_of_grains_responds(void **state)
{
    const char *keys[] = {"b", "c", "d", "e", "f", "g", "h", "i"};
    lab_number *out;
    fresh();
    for (int i = 0; i < 20; i++)
        lab_ok(here.ctx, lab_relay_go(here.ctx, "a", lab_path(.n_keys = 8, .keys = keys), &out));
    assert_int_equal(out->n, 9);
}

/* A grain that awaits itself waits for its own turn to end. */
static void a_grain_that_calls_itself_is_told(void **state)
{
    const char *keys[] = {"self"};
    lab_number *out;
    fresh();
    lab_fails(here.ctx, lab_relay_go(here.ctx, "self", lab_path(.n_keys = 1, .keys = keys), &out),
              TEFF_E_DEADLOCK);
    lab_ok(here.ctx, lab_relay_go(here.ctx, "self", lab_path(), &out));
}

static void one_call_fans_out_to_a_thousand(void **state)
{
    enum { N = 1000 };
    lab_number *out;
    fresh();
    lab_ok(here.ctx, lab_relay_fan(here.ctx, "fan", lab_plan(.n = N, .prefix = "leaf"), &out));
    assert_int_equal(out->n, (int64_t)N * (N - 1) / 2);
}

static void a_thread_fans_out_too(void **state)
{
    enum { N = 1000 };
    static teff_call calls[N];
    lab_number *out;
    fresh();
    for (int i = 0; i < N; i++)
        lab_ok(here.ctx, lab_turns_write_async(here.ctx, name("out", i % 100), lab_step(.seq = i),
                                               NULL, &calls[i]));
    lab_ok(here.ctx, teff_await_all(here.ctx, calls, N));
    for (int i = 0; i < N; i++) {
        lab_ok(here.ctx, lab_turns_write_await(here.ctx, calls[i], &out));
        assert_int_equal(out->n, i);
    }
}

static void await_all_tells_the_first_failure(void **state)
{
    teff_call calls[4] = {{NULL}};
    lab_text *out;
    fresh();
    for (int i = 0; i < 3; i++)
        lab_ok(here.ctx, lab_moody_fail_async(here.ctx, name("first", i),
                                              lab_number(.n = TEFF_E_USER + i), NULL, &calls[i]));
    lab_fails(here.ctx, teff_await_all(here.ctx, calls, 3), TEFF_E_USER);
    for (int i = 0; i < 3; i++)
        lab_fails(here.ctx, lab_moody_fail_await(here.ctx, calls[i], &out),
                  (teff_err)(TEFF_E_USER + i));
    lab_fails(here.ctx, lab_moody_fail_await(here.ctx, calls[3], &out), TEFF_E_INVALID);
}

static void one_way_arrives(void **state)
{
    enum { N = 500 };
    lab_record *r = fresh();
    r->notes = 0;
    for (int i = 0; i < N; i++)
        lab_ok(here.ctx, lab_turns_note(here.ctx, name("note", i % SPREAD), lab_step()));
    lab_until(r->notes == N);
}

/* Each of the grains, here and there, sees what one context sent in its order: calls and one-ways,
 * also while the grain is being found. The key is the record's "caller". */
static void what_one_sends_to_one_keeps_its_order(void **state)
{
    enum { ROUNDS = 20, EACH = 50 };
    static int life; /* each group of cases has silos of its own; keys differ anyway */
    lab_record *r = fresh();
    life++;
    r->notes = r->disorder = 0;
    for (int k = 0; k < LAB_CALLERS; k++)
        r->last_seq[k] = 0;
    for (int64_t seq = 1; seq <= (int64_t)ROUNDS * EACH;) {
        teff_call calls[EACH * LAB_CALLERS];
        size_t n = 0;
        for (int i = 0; i < EACH; i++, seq++)
            for (uint32_t k = 0; k < LAB_CALLERS; k++) {
                const char *key = name("order", life * LAB_CALLERS + (int)k);
                lab_step step = *lab_step(.caller = k, .seq = seq);
                if (i % 3)
                    lab_ok(here.ctx, lab_turns_note(here.ctx, key, &step));
                else
                    lab_ok(here.ctx,
                           lab_turns_write_async(here.ctx, key, &step, NULL, &calls[n++]));
            }
        lab_ok(here.ctx, teff_await_all(here.ctx, calls, n));
        teff_ctx_reset(here.ctx);
    }
    lab_until(r->started == ROUNDS * EACH * LAB_CALLERS);
    assert_int_equal(r->disorder, 0);
}

/* The context is reset with calls under way: their late responses hurt nobody. */
static void calls_may_be_forgotten(void **state)
{
    lab_record *r = fresh();
    teff_call call;
    lab_number *out;
    for (int i = 0; i < 50; i++)
        lab_ok(here.ctx, lab_turns_read_async(here.ctx, name("forget", i % 5),
                                              lab_step(.hold = true), NULL, &call));
    lab_until(r->held == 50);
    teff_ctx_reset(here.ctx);
    r->gate = true;
    lab_until(r->held == 0);
    for (int i = 0; i < 5; i++)
        lab_ok(here.ctx, lab_turns_write(here.ctx, name("forget", i), lab_step(), &out));
}

typedef struct thread {
    pthread_t id;
    teff_ctx *ctx;
    int no;
    teff_err err;
    int64_t sum;
} thread;

static void *add_many(void *arg)
{
    thread *t = arg;
    lab_number *out;
    for (int i = 0; i < 100 && !t->err; i++) {
        t->err = lab_account_add(t->ctx, "shared", lab_number(.n = 1), &out);
        if (i % 10 == 9)
            teff_ctx_reset(t->ctx);
    }
    return NULL;
}

static void threads_call_at_once(void **state)
{
    thread threads[6] = {0};
    lab_number *out;
    fresh();
    for (int i = 0; i < 6; i++) {
        threads[i].ctx = here.client ? teff_client_new_ctx(here.client)
                                     : teff_silo_new_ctx(here.l->silos[i % here.l->n]);
        assert_int_equal(pthread_create(&threads[i].id, NULL, add_many, &threads[i]), 0);
    }
    for (int i = 0; i < 6; i++) {
        pthread_join(threads[i].id, NULL);
        lab_ok(threads[i].ctx, threads[i].err);
        teff_ctx_free(threads[i].ctx);
    }
    lab_ok(here.ctx, lab_account_add(here.ctx, "shared", lab_number(.n = 0), &out));
    assert_int_equal(out->n, 600);
}

#define CASES                                                                                      \
    cmocka_unit_test(methods_fail_with_code_and_text),                                             \
        cmocka_unit_test(codes_out_of_range_are_failures), cmocka_unit_test(texts_can_be_wrapped), \
        cmocka_unit_test(a_bare_code_names_grain_and_method),                                      \
        cmocka_unit_test(an_empty_slot_is_unimplemented),                                          \
        cmocka_unit_test(a_type_nobody_hosts_is_not_found),                                        \
        cmocka_unit_test(bad_keys_are_told_before_anything_is_sent),                               \
        cmocka_unit_test(keys_of_all_kinds_arrive),                                                \
        cmocka_unit_test(a_timeout_leaves_the_outcome_open),                                       \
        cmocka_unit_test(an_expired_request_never_runs),                                           \
        cmocka_unit_test(a_context_has_a_timeout_of_its_own),                                      \
        cmocka_unit_test(a_full_queue_refuses), cmocka_unit_test(large_messages_are_refused),      \
        cmocka_unit_test(a_frame_has_a_limit),                                                     \
        cmocka_unit_test(a_failed_activation_is_told_and_tried_again),                             \
        cmocka_unit_test(a_chain_of_grains_responds),                                              \
        cmocka_unit_test(a_grain_that_calls_itself_is_told),                                       \
        cmocka_unit_test(one_call_fans_out_to_a_thousand),                                         \
        cmocka_unit_test(a_thread_fans_out_too),                                                   \
        cmocka_unit_test(await_all_tells_the_first_failure), cmocka_unit_test(one_way_arrives),    \
        cmocka_unit_test(what_one_sends_to_one_keeps_its_order),                                   \
        cmocka_unit_test(calls_may_be_forgotten), cmocka_unit_test(threads_call_at_once)

int main(void)
{
    const struct CMUnitTest tests[] = {CASES};
    int failed = cmocka_run_group_tests_name("one silo", tests, setup_one, teardown);
    failed += cmocka_run_group_tests_name("two silos", tests, setup_two, teardown);
    failed += cmocka_run_group_tests_name("client", tests, setup_client, teardown);
    failed += cmocka_run_group_tests_name("nng and reactor", tests, setup_mixed, teardown);
    failed += cmocka_run_group_tests_name("reactor client", tests, setup_reactor_client, teardown);
    failed += cmocka_run_group_tests_name("nng client", tests, setup_nng_client, teardown);
    return failed;
}
