/* test_filter.c - what filters see and may do. The table of teff/filter.h, row by row:
 *
 * | what | tests |
 * |---|---|
 * | calls in place, on the silo, of another silo, of clients | the_order_of_filters |
 * | one-way methods | one_way |
 * | transactions | a_transaction_begins_again |
 * | ticks, hooks | ticks_and_hooks |
 * | notifications | notifications |
 * | refused before the turn | refused_before_the_turn |
 * | refuse, answer, change the outcome | refusals, answers, outcomes |
 * | wait, call grains | filters_that_wait, calls_of_filters |
 * | the caller leaves meanwhile | the_caller_leaves_in_a_filter |
 * | what a filter sees | what_filters_see |
 * | lists, wrong errors | lists_and_errors |
 * | turns that end in the middle | a_turn_that_ends_in_a_filter |
 * | idempotency keys: refused before the method | refused_with_a_key, refused_roots_with_a_key,
 *   refusals_push_out_no_answers, a_state_saved_by_a_filter | */
#include "taps.h"

/* ---- order ---- */

static void the_order_of_filters(void **state)
{
    filter_number *got;
    char key[12];
    lab_ok(ctx, run_at("a", NULL, 5, &got)); /* from a thread: queued */
    assert_int_equal(got->n, 5);
    expect_trace(all);
    lab_ok(ctx, run_at("a", calls_plain, 5, &got));
    assert_int_equal(got->n, 6);
    expect_trace("o1( o2( s( t( M o1( o2( s( M s) o2) o1) t) s) o2) o1) ");
    start_silo(1);
    lab_until(teff_silo_members(silos[0]) == 2);
    for (int i = 0; i < 20; i++) { /* some of them are on the other silo */
        snprintf(key, sizeof key, "%d", i);
        lab_ok(ctx, run_at(key, NULL, i, &got));
        assert_int_equal(got->n, i);
        expect_trace(all);
    }
    teff_client *client = connect_client(outgoing);
    teff_ctx *of_client = teff_client_new_ctx(client);
    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof key, "%d", i);
        lab_ok(of_client, filter_till_run(of_client, key, ACT(NULL, i), &got));
        assert_int_equal(got->n, i);
        expect_trace(all);
    }
    teff_ctx_free(of_client);
    teff_client_free(client);
    client = connect_client(NULL);
    of_client = teff_client_new_ctx(client);
    lab_ok(of_client, filter_till_nothing(of_client, "a"));
    expect_trace("s( t( M t) s) ");
    teff_ctx_free(of_client);
    teff_client_free(client);
}

static void one_way(void **state)
{
    lab_ok(ctx, filter_till_note(ctx, "a", ACT(NULL, 0)));
    lab_until(trace_has("s) ") && trace_has("o1) "));
    assert_int_equal(trace_len(), strlen(all)); /* in any order */
    assert_int_equal(taps[TYPE].kind, TEFF_CALL_ONE_WAY);
    assert_int_equal(taps[OUT1].kind, TEFF_CALL_ONE_WAY);
    clear_trace();
    lab_ok(ctx, filter_till_run_send(ctx, "a", ACT(NULL, 0)));
    lab_until(trace_len() == strlen(all));
    assert_int_equal(taps[TYPE].kind, TEFF_CALL_ONE_WAY);
    assert_int_equal(taps[OUT1].kind, TEFF_CALL_ONE_WAY);
}

static teff_err aborts_once(teff_filter_call *call, teff_err err)
{
    return taps[TYPE].calls == 1 ? teff_fail(call->ctx, TEFF_E_ABORTED, "once more") : err;
}

static void a_transaction_begins_again(void **state)
{
    filter_number *got;
    taps[TYPE].after = aborts_once;
    lab_ok(ctx, filter_till_move(ctx, "a", ACT(NULL, 2), &got));
    expect_trace("o1( o2( s( t( M t) s)ABORTED s( t( M t) s) o2) o1) ");
    taps[TYPE].after = NULL;
    taps[SILO].before = refuses; /* nothing is changed */
    lab_fails(ctx, filter_till_move(ctx, "a", ACT(NULL, 2), &got), TEFF_E_REFUSED);
    expect_trace("o1( o2( s( o2)REFUSED o1)REFUSED ");
}

static teff_err starts_timer(teff_ctx *turn, int64_t n, filter_number *out)
{
    static const teff_timer_options at_once = {.size = sizeof at_once};
    (void)n;
    (void)out;
    return filter_till_note_timer(turn, ACT(NULL, 1), &at_once, NULL);
}

static teff_err registers(teff_ctx *turn, int64_t n, filter_number *out)
{
    (void)n;
    (void)out;
    return teff_reminder_register(turn, "r", NULL);
}

static void ticks_and_hooks(void **state)
{
    filter_number *got;
    lab_ok(ctx, run_at("a", starts_timer, 1, &got));
    lab_until(taps[TYPE].calls == 2);
    lab_until(trace_len() == strlen(all) + strlen("s( t( M t) s) "));
    assert_int_equal(taps[TYPE].kind, TEFF_CALL_TICK);
    assert_int_equal(taps[TYPE].from, 0);
    clear_trace();
    lab_ok(ctx, run_at("a", registers, 1, &got));
    lab_until(trace_has("R "));
    assert_int_equal(trace_len(), strlen(all) + strlen("R "));
    assert_int_equal(taps[TYPE].calls, 3);
}

static teff_err tells_itself(teff_ctx *turn, int64_t n, filter_number *out)
{
    ProtobufCBinaryData me;
    (void)out;
    teff_err err = filter_listener_of_grain(turn, &me);
    if (!err)
        err = filter_listener_subscribe(turn, me, 0);
    return err ? err : filter_listener_heard_notify(turn, ACT(NULL, n));
}

static void notifications(void **state)
{
    filter_number *got;
    lab_ok(ctx, run_at("a", tells_itself, 1, &got));
    lab_until(trace_len() == strlen(all) + strlen("s( t( M t) s) "));
    assert_int_equal(taps[TYPE].kind, TEFF_CALL_ONE_WAY);
    assert_int_equal(taps[OUT1].calls, 1);
}

static teff_err calls_itself(teff_ctx *turn, int64_t n, filter_number *out)
{
    filter_number *got;
    (void)out;
    return filter_till_run(turn, "a", ACT(NULL, n), &got);
}

static void refused_before_the_turn(void **state)
{
    filter_number *got;
    lab_fails(ctx, run_at("a", calls_itself, 1, &got), TEFF_E_DEADLOCK);
    expect_trace("o1( o2( s( t( M o1( o2( o2)DEADLOCK o1)DEADLOCK "
                 "t)DEADLOCK s)DEADLOCK o2)DEADLOCK o1)DEADLOCK ");
    teff_client *client = connect_client(outgoing);
    teff_ctx *of_client = teff_client_new_ctx(client);
    refuses_client = 1;
    lab_fails(of_client, filter_till_run(of_client, "a", ACT(NULL, 1), &got), TEFF_E_REFUSED);
    expect_trace("o1( o2( o2)REFUSED o1)REFUSED ");
    teff_ctx_free(of_client);
    teff_client_free(client);
}

/* ---- what filters may do ---- */

static void refusals(void **state)
{
    filter_number *got;
    taps[OUT2].before = refuses;
    lab_fails(ctx, run_at("a", NULL, 1, &got), TEFF_E_REFUSED);
    expect_trace("o1( o2( o1)REFUSED ");
    lab_fails(ctx, filter_till_note(ctx, "a", ACT(NULL, 1)), TEFF_E_REFUSED);
    expect_trace("o1( o2( o1)REFUSED ");
    taps[OUT2].before = NULL;
    taps[TYPE].before = refuses;
    lab_fails(ctx, run_at("a", NULL, 1, &got), TEFF_E_REFUSED);
    assert_string_equal(teff_error(ctx), "not by you");
    expect_trace("o1( o2( s( t( s)REFUSED o2)REFUSED o1)REFUSED ");
    lab_fails(ctx, filter_till_nothing(ctx, "a"), TEFF_E_REFUSED);
    clear_trace();
    lab_ok(ctx, filter_plain_run(ctx, 1, ACT(NULL, 1), &got)); /* another type */
}

static void answers(void **state)
{
    filter_number *got;
    taps[OUT1].before = answers_nine;
    lab_ok(ctx, run_at("a", NULL, 1, &got));
    assert_int_equal(got->n, 9);
    expect_trace("o1( o1) ");
    taps[OUT1].before = answers_nothing;
    lab_ok(ctx, run_at("a", NULL, 1, &got));
    assert_int_equal(got->n, 0);
    lab_ok(ctx, filter_till_nothing(ctx, "a"));
    lab_ok(ctx, filter_till_note(ctx, "a", ACT(NULL, 1)));
    expect_trace("o1( o1) o1( o1) o1( o1) ");
    taps[OUT1].before = NULL;
    taps[SILO].before = answers_nine;
    lab_ok(ctx, run_at("a", NULL, 1, &got));
    assert_int_equal(got->n, 9);
    expect_trace("o1( o2( s( s) o2) o1) ");
    taps[SILO].before = answers_nothing;
    lab_ok(ctx, run_at("a", NULL, 1, &got));
    assert_int_equal(got->n, 0);
}

static teff_err adds_ten(teff_filter_call *call, teff_err err)
{
    if (!err && call->method->out) {
        filter_number *number = (filter_number *)call->out;
        number->n += 10;
        number->text = teff_strdup(call->ctx, "ten more");
    }
    return err;
}

static teff_err fails_late(teff_filter_call *call, teff_err err)
{
    return err ? err : teff_fail(call->ctx, TEFF_E_FAILED, "after all");
}

static teff_err forgets_error(teff_filter_call *call, teff_err err)
{
    if (!err || strcmp(teff_error(call->ctx), "filter.Till.Run at a returned TEFF_E_NOT_FOUND"))
        return teff_fail(call->ctx, TEFF_E_FAILED, "another text: %s", teff_error(call->ctx));
    return TEFF_OK;
}

static teff_err fails_with_half(teff_ctx *turn, int64_t n, filter_number *out)
{
    (void)turn;
    out->n = n; /* not seen */
    out->text = teff_strdup(turn, "half");
    return TEFF_E_NOT_FOUND;
}

static void outcomes(void **state)
{
    filter_number *got;
    taps[TYPE].after = taps[OUT2].after = adds_ten;
    lab_ok(ctx, run_at("a", NULL, 1, &got));
    assert_int_equal(got->n, 21);
    assert_string_equal(got->text, "ten more");
    taps[TYPE].after = taps[OUT2].after = NULL;
    clear_trace();
    taps[TYPE].after = fails_late;
    lab_fails(ctx, run_at("a", NULL, 1, &got), TEFF_E_FAILED);
    assert_string_equal(teff_error(ctx), "after all");
    expect_trace("o1( o2( s( t( M t) s)FAILED o2)FAILED o1)FAILED ");
    taps[TYPE].after = forgets_error;
    lab_ok(ctx, run_at("a", fails_with_half, 5, &got));
    assert_int_equal(got->n, 0);
    assert_string_equal(got->text, "");
    expect_trace("o1( o2( s( t( M t)NOT_FOUND s) o2) o1) ");
    taps[TYPE].after = NULL;
    taps[OUT1].after = forgives;
    lab_ok(ctx, run_at("a", fails_with_half, 5, &got));
    assert_int_equal(got->n, 0);
    expect_trace("o1( o2( s( t( M t)NOT_FOUND s)NOT_FOUND o2)NOT_FOUND o1)NOT_FOUND ");
}

static teff_err sleeps(teff_filter_call *call)
{
    teff_sleep(call->ctx, 3);
    return TEFF_OK;
}

static teff_err sleeps_after(teff_filter_call *call, teff_err err)
{
    teff_sleep(call->ctx, 3);
    return err;
}

static void filters_that_wait(void **state)
{
    filter_number *got;
    teff_call calls[8];
    for (int i = 0; i < TAPS; i++) {
        taps[i].before = sleeps;
        taps[i].after = sleeps_after;
    }
    lab_ok(ctx, run_at("a", calls_plain, 1, &got));
    assert_int_equal(got->n, 2);
    expect_trace("o1( o2( s( t( M o1( o2( s( M s) o2) o1) t) s) o2) o1) ");
    taps[OUT1].before = taps[OUT2].before = NULL;
    taps[OUT1].after = taps[OUT2].after = NULL;
    for (int i = 0; i < 8; i++) /* the turns of a grain do not overlap, nor do their filters */
        lab_ok(ctx, filter_till_run_async(ctx, "b", ACT(NULL, i), NULL, &calls[i]));
    lab_ok(ctx, teff_await_all(ctx, calls, 8));
    char copy[TRACE_BYTES];
    take_trace(copy, true);
    for (char *at = copy; (at = strstr(at, "s( "));) {
        static const char turn[] = "s( t( M t) s) ";
        for (const char *next = turn; *next; at++) /* o1) and o2) may be in between */
            if (*at == 'o')
                at += 3;
            else
                assert_int_equal(*at, *next++);
    }
}

static teff_err holds_before(teff_filter_call *call)
{
    filter_number out;
    return call->key->text[0] == 'b' ? TEFF_OK : holds(call->ctx, 0, &out);
}

static teff_err checks_text(teff_filter_call *call, teff_err err)
{
    char text[80];
    snprintf(text, sizeof text, "filter.Till.Run at %s: the caller has left", call->key->text);
    if (err && strncmp(teff_error(call->ctx), text, strlen(text)) != 0)
        note("another text ");
    return err;
}

/* The method does not begin when its caller has left. Its error is not stored for the key. */
static void the_caller_leaves_in_a_filter(void **state)
{
    const teff_uuid id = {{7}};
    teff_cancel *cancel = teff_cancel_new();
    const teff_call_options late = {.size = sizeof late, .timeout_ms = 20},
                            left = {.size = sizeof left, .cancel = cancel},
                            keyed = {.size = sizeof keyed, .timeout_ms = 20, .once = &id};
    const teff_call_options *const options[] = {&late, &left, &keyed};
    static const char *const traces[] = {"t)TIMEOUT s)TIMEOUT ", "t)CANCELLED s)CANCELLED ",
                                         "t)TIMEOUT s)TIMEOUT "};
    static const char *const keys[] = {"late", "left", "keyed"};
    filter_number *got;
    teff_call call;
    taps[TYPE].before = holds_before;
    taps[TYPE].after = checks_text;
    for (int i = 0; i < 3; i++) {
        gate = false;
        lab_ok(ctx, filter_till_run_async(ctx, keys[i], ACT(NULL, i), options[i], &call));
        lab_until(held == 1);
        if (i == 1)
            teff_cancel_fire(cancel);
        assert_int_not_equal(filter_till_run_await(ctx, call, &got), TEFF_OK);
        lab_until(trace_len());
        clear_trace();
        gate = true;
        lab_until(trace_is(traces[i]));
        clear_trace();
    }
    const teff_call_options again = {.size = sizeof again, .once = &id};
    lab_ok(ctx, filter_till_run_async(ctx, "keyed", ACT(NULL, 2), &again, &call));
    lab_ok(ctx, filter_till_run_await(ctx, call, &got));
    expect_trace(all);
    teff_cancel_free(cancel);
}

static teff_err asks_plain(teff_filter_call *call)
{
    filter_number *got;
    teff_err err = filter_plain_run(call->ctx, 3, ACT(NULL, 30), &got);
    return err || got->n == 30 ? err : TEFF_E_FAILED;
}

static teff_err is_busy(teff_ctx *turn, int64_t n, filter_number *out)
{
    (void)n;
    (void)out;
    return teff_fail(turn, TEFF_E_OVERLOADED, "too busy");
}

static teff_err fails_to_ask(teff_filter_call *call, teff_err err)
{
    filter_number *got;
    return filter_plain_run(call->ctx, 3, ACT(fails_with_half, 1), &got) == TEFF_E_NOT_FOUND
               ? err
               : TEFF_E_FAILED;
}

static void calls_of_filters(void **state)
{
    filter_number *got;
    taps[OUT2].before = asks_plain; /* not filtered again on its way out */
    lab_ok(ctx, run_at("a", NULL, 1, &got));
    expect_trace("o1( o2( s( M s) s( t( M t) s) o2) o1) ");
    taps[OUT2].before = NULL;
    taps[TYPE].before = asks_plain; /* this turn's call is filtered as any other */
    lab_ok(ctx, run_at("a", NULL, 1, &got));
    expect_trace("o1( o2( s( t( o1( o2( s( M s) o2) o1) M t) s) o2) o1) ");
    taps[TYPE].before = NULL;
    taps[TYPE].after = taps[OUT2].after = fails_to_ask; /* the text of the first error stays */
    lab_fails(ctx, run_at("a", is_busy, 1, &got), TEFF_E_OVERLOADED);
    assert_string_equal(teff_error(ctx), "too busy");
}

static const teff_method *method_named(const char *name)
{
    size_t i = 0;
    while (strcmp(filter_till_info.methods[i].name, name) != 0)
        i++;
    return &filter_till_info.methods[i];
}

static teff_err looks(teff_filter_call *call)
{
    const filter_act *in = (const filter_act *)call->in;
    bool right = strcmp(call->type->name, "filter.Till") == 0 && call->type->id &&
                 strcmp(call->method->name, "filter.Till.Run") == 0 &&
                 call->method->id == method_named("filter.Till.Run")->id &&
                 strcmp(call->method->in->desc->name, "filter.Act") == 0 &&
                 strcmp(call->method->out->desc->name, "filter.Number") == 0 &&
                 strcmp(call->key->text, "a") == 0 && call->key->kind == TEFF_KEY_STRING &&
                 in->n == 6 && !call->answered;
    return right ? TEFF_OK : teff_fail(call->ctx, TEFF_E_FAILED, "it sees something else");
}

static void what_filters_see(void **state)
{
    filter_number *got;
    for (int i = 0; i < TAPS; i++)
        taps[i].before = looks;
    lab_ok(ctx, run_at("a", NULL, 6, &got));
    assert_int_equal(taps[TYPE].kind, TEFF_CALL_REQUEST);
    assert_int_equal(taps[TYPE].from, teffi_node_to_word(silos[0]->node.id));
    assert_false(taps[TYPE].from_client);
    assert_int_equal(taps[OUT1].from, 0);
    teff_client *client = connect_client(NULL);
    teff_ctx *of_client = teff_client_new_ctx(client);
    lab_ok(of_client, filter_till_run(of_client, "a", ACT(NULL, 6), &got));
    assert_true(taps[TYPE].from_client);
    assert_int_not_equal(taps[TYPE].from, teffi_node_to_word(silos[0]->node.id));
    teff_ctx_free(of_client);
    teff_client_free(client);
}

static teff_err returns_nonsense(teff_filter_call *call)
{
    (void)call;
    return (teff_err)-5;
}

static teff_err returns_bare_error(teff_filter_call *call)
{
    (void)call;
    return TEFF_E_REFUSED;
}

static void lists_and_errors(void **state)
{
    teff_filter many[TEFF_FILTERS_MAX + 2];
    filter_number *got;
    char text[TEFF_TEXT_MAX];
    teff_silo *silo;
    teff_client *client;
    taps[TYPE].before = returns_nonsense;
    lab_fails(ctx, run_at("a", NULL, 1, &got), TEFF_E_FAILED);
    assert_string_equal(teff_error(ctx),
                        "a filter of filter.Till.Run returned -5, which is not in 1 .. 65535");
    taps[TYPE].before = returns_bare_error;
    lab_fails(ctx, run_at("a", NULL, 1, &got), TEFF_E_REFUSED);
    assert_string_equal(teff_error(ctx), "a filter of filter.Till.Run returned TEFF_E_REFUSED");

    for (int i = 0; i < TEFF_FILTERS_MAX + 2; i++)
        many[i] = outgoing[0];
    many[TEFF_FILTERS_MAX + 1] = (teff_filter){NULL, NULL, NULL};
    const teff_silo_options too_many = {.size = sizeof too_many, .silent = 1, .outgoing = many};
    assert_int_equal(teff_silo_new(&too_many, &silo, text), TEFF_E_INVALID);
    assert_string_equal(text, "outgoing: more than 16 filters");
    const teff_client_options also = {
        .size = sizeof also, .gateways = {teff_silo_address(silos[0])}, .outgoing = many};
    assert_int_equal(teff_client_connect(&also, &client, text), TEFF_E_INVALID);
    many[TEFF_FILTERS_MAX] = (teff_filter){NULL, NULL, NULL};
    const teff_silo_options full = {
        .size = sizeof full, .silent = 1, .incoming = many, .outgoing = many};
    assert_int_equal(teff_silo_new(&full, &silo, text), TEFF_OK);
    teff_grain_type *till = filter_till_type(&till_methods, NULL);
    teff_grain_type_filter(till, of_type);
    assert_int_equal(teff_silo_host(silo, till), TEFF_E_INVALID);
    teff_grain_type_filter(till, NULL);
    assert_int_equal(teff_silo_host(silo, till), TEFF_OK);
    teff_silo_free(silo);
}

static teff_err takes_all_memory(teff_filter_call *call)
{
    while (teff_alloc(call->ctx, 1 << 24))
        ;
    return TEFF_OK;
}

static void a_turn_that_ends_in_a_filter(void **state)
{
    filter_number *got;
    taps[TYPE].before = takes_all_memory;
    lab_fails(ctx, run_at("a", NULL, 1, &got), TEFF_E_NOMEM);
    expect_trace("o1( o2( s( t( o2)NOMEM o1)NOMEM ");
    taps[TYPE].before = NULL;
    lab_ok(ctx, run_at("a", NULL, 1, &got));
    expect_trace(all);
}

/* ---- idempotency keys ---- */

static teff_err refuses_first(teff_filter_call *call)
{
    return taps[TYPE].calls == 1 ? teff_fail(call->ctx, TEFF_E_OVERLOADED, "not now") : TEFF_OK;
}

typedef teff_err begin_fn(teff_ctx *ctx, const char *key, const filter_act *in,
                          const teff_call_options *options, teff_call *call);

/* Calls grain `a` with the idempotency key {id}. */
static teff_err call_with_key(begin_fn *begin, int id, int64_t n, filter_number **got)
{
    const teff_uuid once = {{(uint8_t)id, (uint8_t)(id >> 8), 1}};
    const teff_call_options options = {.size = sizeof options, .once = &once};
    teff_call call;
    teff_err err = begin(ctx, "a", ACT(NULL, n), &options, &call);
    return err ? err : teff_await(ctx, call, (ProtobufCMessage **)got);
}

/* The method did not run, so the key still counts. Whatever `after` made of the refusal. */
static void refused_with_a_key(void **state)
{
    filter_number *got;
    taps[TYPE].before = refuses_first;
    for (int i = 0; i < 2; i++) {
        taps[TYPE].calls = 0;
        taps[SILO].after = i ? forgives : NULL;
        teff_err err = call_with_key(filter_till_run_async, i, 3, &got);
        assert_int_equal(err, i ? TEFF_OK : TEFF_E_OVERLOADED);
        clear_trace();
        lab_ok(ctx, call_with_key(filter_till_run_async, i, 3, &got));
        assert_int_equal(got->n, 3);
        expect_trace(all);
        lab_ok(ctx, call_with_key(filter_till_run_async, i, 3, &got));
        assert_int_equal(got->n, 3);
        expect_trace("o1( o2( o2) o1) ");
    }
}

static void refused_roots_with_a_key(void **state)
{
    filter_number *got;
    taps[TYPE].before = refuses_first;
    for (int i = 0; i < 2; i++) {
        taps[TYPE].calls = 0;
        taps[SILO].after = i ? forgives : NULL;
        teff_err err = call_with_key(filter_till_move_async, i, 3, &got);
        assert_int_equal(err, i ? TEFF_OK : TEFF_E_OVERLOADED);
        clear_trace();
        lab_ok(ctx, call_with_key(filter_till_move_async, i, 3, &got));
        expect_trace(all);
        lab_ok(ctx, call_with_key(filter_till_move_async, i, 3, &got));
        expect_trace("o1( o2( o2) o1) ");
    }
    lab_ok(ctx, run_at("a", reads_state, 0, &got));
    assert_int_equal(got->n, 6);
}

static void refusals_push_out_no_answers(void **state)
{
    filter_number *got;
    lab_ok(ctx, call_with_key(filter_till_run_async, 0, 3, &got));
    lab_ok(ctx, call_with_key(filter_till_move_async, 1, 3, &got));
    taps[TYPE].before = refuses;
    for (int i = 0; i < TEFF_ANSWERS_DEFAULT; i++)
        lab_fails(
            ctx,
            call_with_key(i % 2 ? filter_till_move_async : filter_till_run_async, i + 2, 3, &got),
            TEFF_E_REFUSED);
    taps[TYPE].before = NULL;
    clear_trace();
    lab_ok(ctx, call_with_key(filter_till_run_async, 0, 3, &got));
    lab_ok(ctx, call_with_key(filter_till_move_async, 1, 3, &got));
    expect_trace("o1( o2( o2) o1) o1( o2( o2) o1) ");
}

static teff_err saves_and_refuses(teff_filter_call *call)
{
    state_of_turn(call->ctx)->n = 8;
    teff_err err = teff_state_save(call->ctx);
    return err ? err : refuses(call);
}

static teff_err ends_activation(teff_ctx *turn, int64_t n, filter_number *out)
{
    (void)n;
    (void)out;
    teff_deactivate(turn);
    return TEFF_OK;
}

/* The state is written, although no answer is. */
static void a_state_saved_by_a_filter(void **state)
{
    filter_number *got;
    taps[TYPE].before = saves_and_refuses;
    lab_fails(ctx, call_with_key(filter_till_run_async, 0, 3, &got), TEFF_E_REFUSED);
    taps[TYPE].before = NULL;
    lab_ok(ctx, run_at("a", ends_activation, 0, &got));
    lab_ok(ctx, run_at("a", reads_state, 0, &got));
    assert_int_equal(got->n, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_order_of_filters),
        TEST(one_way),
        TEST(a_transaction_begins_again),
        TEST(ticks_and_hooks),
        TEST(notifications),
        TEST(refused_before_the_turn),
        TEST(refusals),
        TEST(answers),
        TEST(outcomes),
        TEST(filters_that_wait),
        TEST(the_caller_leaves_in_a_filter),
        TEST(calls_of_filters),
        TEST(what_filters_see),
        TEST(lists_and_errors),
        TEST(a_turn_that_ends_in_a_filter),
        TEST(refused_with_a_key),
        TEST(refused_roots_with_a_key),
        TEST(refusals_push_out_no_answers),
        TEST(a_state_saved_by_a_filter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
