/* test_handler.c - what an activation does with each item, step by step: when it ends, which
 * requests it refuses and how. */
#include <pthread.h>
#include <stdlib.h>
#include "activation/lock.h"
#include "activation/turn.h"
#include "bare.h"
#include "group/closure.h"

static _Alignas(teffi_activation) teffi_activation act;

static int setup(void **state)
{
    if (bare_open(state))
        return 1;
    teffi_ident ident = bare_ident();
    memset(&act, 0, sizeof act);
    teffi_activation_init(&act, &grains);
    if (teffi_activation_give_identity(&act, type, &ident))
        return 1;
    act.phase = TEFFI_VALID;
    return 0;
}

static int teardown(void **state)
{
    teffi_activation_clear(&act);
    return bare_close(state);
}

static void run_items(void)
{
    (void)teffi_group_run(&act.group, 10, 0);
}

/* ---- when it ends ---- */

typedef struct situation {
    const char *what;
    teff_reason asked;
    teffi_phase phase;
    uint32_t idle_ms, running, queued, pending;
    uint8_t before, after; /* its reason */
} situation;

enum { LONG = 900000000, LOCKED = 2 /* for `pending` */ };
#define IDLE TEFF_REASON_IDLE
#define STOP TEFF_REASON_STOPPING
#define LIMIT TEFF_REASON_LIMIT
#define MEMORY TEFF_REASON_MEMORY

static const situation situations[] = {
    {"idle for long", IDLE, TEFFI_VALID, LONG, 0, 0, 0, 0, IDLE},
    {"used a moment ago", IDLE, TEFFI_VALID, 1, 0, 0, 0, 0, 0},
    {"a turn runs", IDLE, TEFFI_VALID, LONG, 1, 0, 0, 0, 0},
    {"a request is queued", IDLE, TEFFI_VALID, LONG, 0, 1, 0, 0, 0},
    {"a request left late", IDLE, TEFFI_VALID, LONG, 0, UINT32_MAX, 0, 0, IDLE},
    {"a request is set aside", IDLE, TEFFI_VALID, LONG, 0, 0, 1, 0, 0},
    {"it is being activated", IDLE, TEFFI_ACTIVATING, LONG, 0, 0, 0, 0, 0},
    {"it ends already", IDLE, TEFFI_DEACTIVATING, LONG, 0, 0, 0, STOP, STOP},
    {"told to stop", STOP, TEFFI_VALID, 1, 1, 1, 1, 0, STOP},
    {"told to stop while it is being activated", STOP, TEFFI_ACTIVATING, 1, 0, 0, 0, 0, STOP},
    {"told to stop when it was told before", STOP, TEFFI_VALID, 1, 0, 0, 0, IDLE, IDLE},
    {"too many, and used a moment ago", LIMIT, TEFFI_VALID, 1, 0, 0, 0, 0, LIMIT},
    {"too many, and in a delay", LIMIT, TEFFI_VALID, (uint32_t)-5, 0, 0, 0, 0, 0},
    {"idle, but in a delay", IDLE, TEFFI_VALID, (uint32_t)-5, 0, 0, 0, 0, 0},
    {"too many, and a turn runs", LIMIT, TEFFI_VALID, LONG, 1, 0, 0, 0, 0},
    {"too many, and a request is queued", LIMIT, TEFFI_VALID, LONG, 0, 1, 0, 0, 0},
    {"too many, and a request is set aside", LIMIT, TEFFI_VALID, LONG, 0, 0, 1, 0, 0},
    {"too many, and it is being activated", LIMIT, TEFFI_ACTIVATING, LONG, 0, 0, 0, 0, 0},
    {"memory is short, and it was used a moment ago", MEMORY, TEFFI_VALID, 1, 0, 0, 0, 0, MEMORY},
    {"memory is short, and a turn runs", MEMORY, TEFFI_VALID, LONG, 1, 0, 0, 0, 0},
    {"a transaction has locked it", IDLE, TEFFI_VALID, LONG, 0, 0, LOCKED, 0, 0},
    {"too many, and a transaction has locked it", LIMIT, TEFFI_VALID, LONG, 0, 0, LOCKED, 0, 0},
    {"nudged without a reason", (teff_reason)0, TEFFI_VALID, LONG, 0, 0, 0, 0, 0},
};

static uint8_t reason_after(const situation *s)
{
    static teffi_lock lock;
    teffi_msg waits = {.item.kind = TEFFI_MSG_REQUEST};
    act.phase = s->phase;
    act.used_ms = BARE_COARSE_MS - s->idle_ms;
    act.running = s->running;
    act.queued = s->queued;
    act.reason = s->before;
    act.end_reason = 0;
    act.busy = TEFFI_BUSY_LIFE; /* nothing comes of it yet */
    if (s->pending == LOCKED)
        teffi_activation_ensure_rare_fields(&act)->lock = &lock;
    else if (s->pending)
        teffi_queue_push(&teffi_activation_ensure_rare_fields(&act)->pending, &waits.link);
    if (s->asked)
        teffi_activation_ask_to_end(&act, s->asked);
    else
        teffi_activation_nudge(&act);
    run_items();
    teffi_activation_free_rare_fields(&act);
    return act.reason;
}

static void an_activation_ends_when_it_is_told_to_or_idle(void **state)
{
    for (size_t i = 0; i < sizeof situations / sizeof situations[0]; i++) {
        uint8_t after = reason_after(&situations[i]);
        if (after != situations[i].after)
            fail_msg("%s: reason %u", situations[i].what, after);
        assert_false(act.marks & TEFFI_NUDGED);
        assert_int_equal(act.end_reason, after ? situations[i].asked : 0); /* not asked again */
        bool used = !after && situations[i].asked && situations[i].idle_ms == LONG;
        assert_int_equal(act.used_ms, BARE_COARSE_MS - (used ? 0 : situations[i].idle_ms));
    }
}

/* The collector may find an activation idle just before another thread tells it to end: in use
 * again, it drops IDLE, and must not drop the other reason with it. */
static void a_stored_idle_gives_way_to_other_reasons(void **state)
{
    static const teff_reason unused[] = {IDLE, LIMIT, MEMORY};
    act.phase = TEFFI_VALID;
    act.used_ms = BARE_COARSE_MS; /* in use */
    act.busy = TEFFI_BUSY_LIFE;   /* nothing comes of it yet */
    for (int i = 0; i < 3; i++) {
        act.reason = 0;
        act.end_reason = 0;
        teffi_activation_ask_to_end(&act, unused[i]);
        teffi_activation_ask_to_end(&act, unused[(i + 1) % 3]);
        assert_int_equal(act.end_reason, unused[i]);
        teffi_activation_ask_to_end(&act, TEFF_REASON_DUPLICATE);
        teffi_activation_ask_to_end(&act, unused[i]);
        teffi_activation_ask_to_end(&act, TEFF_REASON_STOPPING);
        run_items();
        assert_int_equal(act.reason, TEFF_REASON_DUPLICATE);
    }
}

static atomic_bool is_duplicate;

/* As teffi_shard_ask_duplicate_to_end(), without its other accesses to the same eight bytes: TSan
 * remembers only four. */
static void *unregister(void *arg)
{
    assert_true(teffi_activation_set_registered(arg, false));
    atomic_store_explicit(&is_duplicate, true, memory_order_relaxed);
    return NULL;
}

/* Another thread may learn that another silo holds the grain before the first item is handled.
 * relaxed: it orders nothing for TSan. */
static void a_duplicate_may_be_found_before_it_begins(void **state)
{
    static const lab_turns_methods no_hooks;
    pthread_t thread;
    teffi_activation *made;
    teffi_ident ident = bare_ident();
    type->methods = &no_hooks;
    bare_view(1, &bare_self, 1);
    teffi_shard_of(&grains, ident.hash)->phase = TEFFI_SERVING;
    assert_int_equal(teffi_shard_create_activation(&grains, &ident, true, NULL, &made), TEFF_OK);
    teffi_activation_nudge(made);
    assert_int_equal(pthread_create(&thread, NULL, unregister, made), 0);
    while (!atomic_load_explicit(&is_duplicate, memory_order_relaxed))
        sched_yield();
    (void)teffi_group_run(&made->group, 10, 0);
    pthread_join(thread, NULL);
    assert_true(made->registered); /* again: there was no other */
    teffi_activation_ask_to_end(made, TEFF_REASON_STOPPING);
    (void)teffi_group_run(&made->group, 10, 0);
    assert_int_equal(grains.shards->activations, 0);
    assert_int_equal(sent.n, 0);
}

/* ---- requests that do not start ---- */

static void handle(teffi_msg *msg)
{
    uint32_t deep;
    assert_int_equal(teffi_activation_push(&act, type, msg, &deep), TEFF_OK);
    run_items();
}

static void expect(unsigned n, teff_err err, const char *text)
{
    bare_responded(n, err, text);
    assert_int_equal(act.queued, 0);
}

static void an_unknown_method_is_not_found(void **state)
{
    teffi_msg *msg = bare_message(TEFFI_MSG_REQUEST);
    msg->method_id = 1;
    handle(msg);
    expect(1, TEFF_E_NOT_FOUND, "the grain type has no such method here");
}

static void a_request_whose_deadline_has_passed_does_not_wait(void **state)
{
    teffi_msg *msg = bare_message(TEFFI_MSG_REQUEST);
    msg->deadline_ns = bare_now_ns;
    handle(msg);
    expect(1, TEFF_E_TIMEOUT, "expired while it waited for the grain");
}

static size_t waiting(void)
{
    return act.more ? act.more->pending.count : 0;
}

static void one_that_may_not_start_is_set_aside(void **state)
{
    teffi_msg *late = bare_message(TEFFI_MSG_ONEWAY), *early = bare_message(TEFFI_MSG_REQUEST);
    act.busy = TEFFI_BUSY_LIFE;
    late->deadline_ns = bare_now_ns; /* of a one-way nobody waits for the outcome */
    early->deadline_ns = bare_now_ns + 1;
    handle(late);
    handle(early);
    assert_int_equal(sent.n, 0);
    assert_int_equal(waiting(), 2);
    assert_int_equal(act.queued, 2);
    for (teffi_qnode *at; (at = teffi_queue_pop(&act.more->pending));)
        teffi_msg_free(teffi_container(at, teffi_msg, link));
}

/* ---- requests for another grain ---- */

/* Its sender found this memory before it was used again, or the grains have one hash. */
static void a_request_for_another_grain_is_routed_again(void **state)
{
    static const struct {
        uint32_t type_more;
        const char *key;
    } others[] = {{1, "a"}, {0, "b"}, {0, "ab"}};
    for (unsigned i = 0; i < sizeof others / sizeof others[0]; i++) {
        teffi_msg *msg = bare_message(TEFFI_MSG_REQUEST);
        msg->type_id += others[i].type_more;
        msg->key = (const uint8_t *)others[i].key;
        msg->key_len = (uint32_t)strlen(others[i].key);
        handle(msg);
        assert_int_equal(sent.n, i + 1); /* the sender's silo learns that the grain is not here */
        assert_int_equal(sent.method_id, TEFFI_METHOD_MOVED);
        assert_int_equal(act.queued, 0);
        assert_false(act.running || act.more);
    }
    assert_true(teffi_lookups_are_pending(&grains));
}

/* ---- an activation that failed ---- */

static void fail_as(teff_err err, const char *text, bool named)
{
    teffi_more *more = teffi_activation_ensure_rare_fields(&act);
    assert_non_null(more);
    more->failed_text = text ? strdup(text) : NULL;
    more->failed_named = named;
    act.failed = (uint16_t)err;
    act.phase = TEFFI_ENDED;
}

static void requests_get_the_error_of_a_failed_activation(void **state)
{
    fail_as(TEFF_E_IO, "the disk is full", false);
    handle(bare_message(TEFFI_MSG_REQUEST));
    expect(1, TEFF_E_IO, "the disk is full");
    assert_true(sent.flags & TEFFI_MSG_UNNAMED);
    act.more->failed_named = true;
    handle(bare_message(TEFFI_MSG_REQUEST));
    expect(2, TEFF_E_IO, "the disk is full");
    assert_false(sent.flags & TEFFI_MSG_UNNAMED);
    teffi_activation_free_rare_fields(&act); /* there was no memory for the text */
    handle(bare_message(TEFFI_MSG_REQUEST));
    expect(3, TEFF_E_IO, "none");
}

/* ---- an activation that has ended ---- */

static void ends_in_favour_of(teffi_node_id winner)
{
    teffi_more *more = teffi_activation_ensure_rare_fields(&act);
    assert_non_null(more);
    more->winner = (teffi_pid){winner, 20, 1};
    act.phase = TEFFI_ENDED;
}

static void requests_follow_the_winner_of_a_race(void **state)
{
    ends_in_favour_of(bare_other);
    handle(bare_message(TEFFI_MSG_REQUEST));
    assert_int_equal(sent.n, 1);
    assert_true(teffi_node_equals(sent.to, bare_other));
    assert_int_equal(sent.kind, TEFFI_MSG_REQUEST);
    teffi_msg *often = bare_message(TEFFI_MSG_REQUEST);
    often->hops = TEFFI_HOPS_MAX;
    handle(often);
    expect(2, TEFF_E_UNAVAILABLE, "the grain keeps ending");
}

static void without_a_winner_they_are_located_again(void **state)
{
    teffi_ident ident = bare_ident();
    ends_in_favour_of((teffi_node_id){0});
    handle(bare_message(TEFFI_MSG_REQUEST));
    assert_int_equal(sent.n, 1); /* their silo learns that the grain is not here */
    assert_int_equal(sent.method_id, TEFFI_METHOD_MOVED);
    assert_true(teffi_lookup_exists(&grains, &ident));
    assert_int_equal(act.queued, 0);
}

static void a_valid_activation_that_ends_costs_its_requests_no_forwards(void **state)
{
    teffi_ident ident = bare_ident();
    for (int was_valid = 0; was_valid < 2; was_valid++) {
        ends_in_favour_of((teffi_node_id){0});
        act.was_valid = was_valid;
        teffi_msg *often = bare_message(TEFFI_MSG_REQUEST);
        often->hops = TEFFI_HOPS_MAX;
        handle(often);
        assert_int_equal(teffi_lookup_exists(&grains, &ident), was_valid);
        if (!was_valid)
            expect(1, TEFF_E_UNAVAILABLE, "the grain keeps ending");
    }
}

/* Both kinds of items that hold memory; the rest of the test is bare_close(). */
static void what_is_queued_is_freed_with_it(void **state)
{
    uint32_t deep;
    act.busy = TEFFI_BUSY_LIFE;
    handle(bare_message(TEFFI_MSG_REQUEST));
    for (uint32_t kind = TEFFI_MSG_REQUEST; kind <= TEFFI_MSG_ONEWAY; kind++)
        assert_int_equal(teffi_activation_push(&act, type, bare_message(kind), &deep), TEFF_OK);
    assert_int_equal(waiting(), 1);
    teffi_activation_discard_contents(&act);
    assert_int_equal(bytes_used(node.budget), 0);
}

/* ---- eviction ---- */

static bool evicted(teffi_item *item)
{
    return teffi_activation_ops.evict(&act.group, item);
}

static void requests_are_evicted_and_nothing_else(void **state)
{
    static const uint32_t others[] = {TEFFI_ITEM_WAIT, TEFFI_ITEM_CLOSURE, TEFFI_ITEM_NUDGE};
    act.queued = 2;
    assert_true(evicted(&bare_message(TEFFI_MSG_REQUEST)->item));
    assert_int_equal(act.queued, 1);
    assert_true(evicted(&bare_message(TEFFI_MSG_ONEWAY)->item));
    expect(1, TEFF_E_OVERLOADED, "evicted: more grains wait on this silo than may");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_false(evicted(&(teffi_item){.kind = others[i]}));
}

int main(void)
{
#define HANDLER(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        HANDLER(an_activation_ends_when_it_is_told_to_or_idle),
        HANDLER(a_duplicate_may_be_found_before_it_begins),
        HANDLER(an_unknown_method_is_not_found),
        HANDLER(a_request_whose_deadline_has_passed_does_not_wait),
        HANDLER(one_that_may_not_start_is_set_aside),
        HANDLER(a_request_for_another_grain_is_routed_again),
        HANDLER(requests_get_the_error_of_a_failed_activation),
        HANDLER(requests_follow_the_winner_of_a_race),
        HANDLER(a_stored_idle_gives_way_to_other_reasons),
        HANDLER(without_a_winner_they_are_located_again),
        HANDLER(a_valid_activation_that_ends_costs_its_requests_no_forwards),
        HANDLER(what_is_queued_is_freed_with_it),
        HANDLER(requests_are_evicted_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
