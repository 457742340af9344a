/* test_faults.c - the grains of a node when a request for memory fails: a request that is refused
 * gets a response that says so, and nothing stays. */
#include "../faults.h"

#include "bare.h"
#include "cluster.pb-c.h"
#include "cluster/join.h"
#include "directory/client.h"
#include "hosting/install.h"
#include "store/engine.h"

static const uint8_t long_key[] =
    "a key that does not fit into an activation, for which it needs a "
    "block of memory of its own";
enum { LONG_KEY = sizeof long_key - 1 };

/* out: NULL: no memory. */
static teffi_msg *request(void)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST);
    if (!msg)
        return NULL;
    msg->src = bare_peer;
    msg->to = (teffi_pid){.node = bare_self, .slot = TEFFI_SLOT_DIRECTORY};
    msg->type_id = lab_turns_info.id;
    msg->method_id = lab_turns_info.methods[0].id;
    msg->key = (const uint8_t *)"a";
    msg->key_len = 1;
    return msg;
}

/* Of the one response, or of the one that could not be made. */
static teff_err outcome(unsigned n_before, uint64_t dropped_before)
{
    assert_int_equal(sent.n - n_before + node.dropped - dropped_before, 1);
    return sent.n == n_before ? TEFF_E_NOMEM : sent.err;
}

/* ---- types and parts ---- */

static teff_err make_type(void)
{
    teff_grain_type *made = teff_grain_type_new(&lab_turns_info, NULL, NULL);
    bool whole = made->info != NULL;
    teff_grain_type_priority(made, 3);
    teff_grain_type_free(made);
    return whole ? TEFF_OK : TEFF_E_NOMEM;
}

static void a_type_is_made_or_a_sign_that_it_was_not(void **state)
{
    assert_int_equal(fault_sweep(make_type, true), 2);
}

static teff_err install(void)
{
    char text[TEFF_TEXT_MAX] = "";
    teffi_node other = {.platform = &bare_platform, .home.exec = &bare_exec};
    teff_err err = teffi_grains_install(&other, &type, 1, text);
    assert_true(!err == (other.grains != NULL));
    assert_true(!err || strstr(text, "out of memory for activations") == text);
    teffi_grains_free(&other);
    assert_null(other.grains);
    return err;
}

static void grains_are_installed_whole_or_not_at_all(void **state)
{
    assert_true(fault_sweep(install, true) >= 2);
}

/* ---- activations ---- */

static void end_activation(teffi_activation *act)
{
    teffi_shard_remove_activation(act);
    teffi_activation_clear(act);
    teffi_group_set_initially_complete(&act->group);
    teffi_shard_reclaim_activation(act);
}

static teff_err make_activation(void)
{
    teffi_activation *act;
    teffi_ident ident = teffi_ident_of(&grains.secret, lab_turns_info.id, long_key, LONG_KEY);
    teff_err err = teffi_shard_create_activation(&grains, &ident, true, NULL, &act);
    assert_int_equal(grains.shards->activations, !err);
    assert_int_equal(teffi_shard_has_activation(&grains, &ident, NULL), !err);
    if (!err)
        end_activation(act);
    return err;
}

static void an_activation_is_made_whole_or_not_at_all(void **state)
{
    assert_true(fault_sweep(make_activation, true) >= 1);
}

static teffi_activation *busy;

static teff_err set_aside(void)
{
    uint32_t deep;
    unsigned n = sent.n;
    uint64_t dropped = node.dropped;
    teffi_msg *msg = request();
    if (!msg)
        return TEFF_E_NOMEM;
    assert_int_equal(teffi_activation_push(busy, type, msg, &deep), TEFF_OK);
    (void)teffi_group_run(&busy->group, 10, 0);
    assert_int_equal(busy->queued, busy->more != NULL);
    if (!busy->more)
        return outcome(n, dropped);
    teffi_msg_free(teffi_container(teffi_queue_pop(&busy->more->pending), teffi_msg, link));
    teffi_activation_free_rare_fields(busy);
    busy->queued = 0;
    return TEFF_OK;
}

static void a_request_that_cannot_be_set_aside_is_refused(void **state)
{
    teffi_ident ident = bare_ident();
    assert_int_equal(teffi_shard_create_activation(&grains, &ident, true, NULL, &busy), TEFF_OK);
    busy->phase = TEFFI_VALID;
    busy->busy = TEFFI_BUSY_LIFE;
    assert_int_equal(fault_sweep(set_aside, true), 2);
    assert_string_equal(sent.text, "out of memory to queue the request");
}

/* ---- look-ups ---- */

/* The silo closes, so that the look-up's task ends at once. */
static teff_err locate(void)
{
    unsigned n = sent.n;
    uint64_t dropped = node.dropped;
    teffi_msg *msg = request();
    if (!msg)
        return TEFF_E_NOMEM;
    msg->hops = 1;
    bare_busy = NULL;
    teffi_reroute_unsent_request(&grains, msg, bare_other);
    assert_int_equal(teffi_lookups_are_pending(&grains), bare_busy != NULL);
    if (!bare_busy && sent.n > n)
        assert_string_equal(sent.text, "out of memory to locate the grain");
    if (!bare_busy)
        return outcome(n, dropped);
    grains.closed = true;
    (void)teffi_group_run(bare_busy, 10, 0); /* it pauses first */
    teffi_membership_signal_change(node.membership);
    (void)teffi_group_run(bare_busy, 10, 0);
    grains.closed = false;
    teff_err err = outcome(n, dropped);
    assert_false(teffi_lookups_are_pending(&grains));
    return err == TEFF_E_UNAVAILABLE ? TEFF_OK : err;
}

static void a_request_that_cannot_be_located_is_refused(void **state)
{
    assert_true(fault_sweep(locate, true) >= 2);
    assert_int_equal(sent.err, TEFF_E_UNAVAILABLE);
}

/* ---- the membership and recovery ---- */

static void refuse_op(teffi_store *store, teffi_store_op *op)
{
    teffi_store_op_set_error(op, TEFF_E_CLOSED, "closed");
    op->done(op);
}

static const teffi_store_ops refusing_ops = {.submit = refuse_op};
static teffi_store refusing = {.ops = &refusing_ops};

/* With memory: a turn does not go on without. out: TEFF_E_NOMEM: it did not begin. */
static teff_err run_task(void)
{
    long left = atomic_exchange(&faults_left, 0);
    while (bare_busy && teffi_tasks_count_running(&node.home))
        (void)teffi_group_run(bare_busy, 10, 0);
    atomic_store(&faults_left, left);
    return bare_busy ? TEFF_OK : TEFF_E_NOMEM;
}

static teff_err look(void)
{
    teffi_membership *m = node.membership;
    node.store = &refusing;
    m->follow.looked_ns = 0; /* not too soon */
    bare_busy = NULL;
    teffi_membership_refresh_soon(m);
    teff_err err = run_task();
    assert_false(m->follow.looking);
    assert_int_equal(m->follow.looked_ns, err ? 0 : bare_now_ns);
    teffi_tasks_free_all(&node.home);
    return err;
}

static void a_look_at_the_table_that_cannot_begin_is_no_look(void **state)
{
    assert_true(fault_sweep(look, true) >= 1);
}

/* Otherwise the silo would not reach that one while both are there: later views do not add it. */
static void a_view_whose_silos_cannot_all_be_added_is_not_adopted(void **state)
{
    teffi_member_row list[] = {{.member = {.node = bare_other, .status = TEFFI_ACTIVE}}};
    teffi_rows rows = {.version = 2, .rows = list, .n = 1};
    teff_ctx ctx;
    strcpy(list[0].member.address, "h:1");
    teffi_ctx_init(&ctx, &node.home, NULL);
    bare_peer_err = TEFF_E_NOMEM;
    assert_int_equal(teffi_membership_adopt_rows(&ctx, &rows), TEFF_E_NOMEM);
    assert_int_equal(teffi_membership_version(&node), 0);
    bare_peer_err = TEFF_E_INVALID; /* a row with an address that is none */
    assert_int_equal(teffi_membership_adopt_rows(&ctx, &rows), TEFF_OK);
    assert_int_equal(teffi_membership_version(&node), 2);
    teffi_ctx_fini(&ctx);
}

static teff_err recover(void)
{
    bare_busy = NULL;
    teffi_recover_start(&grains);
    teff_err err = run_task();
    if (err) /* it begins later, if partitions are LOCKED then; here none is */
        bare_timer->fire(bare_timer);
    assert_false(grains.shards->recovering);
    teffi_tasks_free_all(&node.home);
    return err;
}

static void a_recovery_that_cannot_begin_is_over(void **state)
{
    assert_true(fault_sweep(recover, true) >= 1);
}

static void run_some_steps(void)
{
    for (int i = 0; i < 20; i++)
        (void)teffi_group_run(bare_busy, 10, 0);
}

static void lock_partitions(void)
{
    node.store = &refusing;
    sent.refuse = TEFF_E_UNREACHABLE;
    bare_view(1, (teffi_node_id[]){bare_self, bare_other}, 2);
    bare_due_ns = 0;
    bare_busy = NULL;
}

/* Nobody else starts it: no later view need come. */
static void a_recovery_that_cannot_begin_begins_later(void **state)
{
    lock_partitions();
    atomic_store(&faults_left, 1);
    teffi_recover_start(&grains);
    assert_int_equal(atomic_exchange(&faults_left, 0), 0);
    assert_null(bare_busy);
    assert_in_range((bare_due_ns - bare_now_ns) / 1000000, 10, 1000);
    bare_timer->fire(bare_timer);
    assert_non_null(bare_busy);
    assert_true(grains.shards->recovering);
    run_some_steps();
    grains.closed = true;
    bare_timer->fire(bare_timer);
    run_some_steps();
    assert_false(grains.shards->recovering);
}

/* As it does not fire any more. */
static void a_recovery_does_not_begin_later_if_the_silo_closes(void **state)
{
    bare_due_ns = 0;
    grains.closed = true;
    atomic_store(&faults_left, 1);
    teffi_recover_start(&grains);
    assert_int_equal(atomic_exchange(&faults_left, 0), 0);
    assert_int_equal(bare_due_ns, 0);
    assert_false(grains.shards->recovering);
    grains.closed = false;
}

/* The other silo cannot be reached, nor the table. It ends after the pause if the silo closes. */
static void a_recovery_that_fails_pauses_for_some_ms(void **state)
{
    lock_partitions();
    teffi_recover_start(&grains);
    run_some_steps();
    assert_true(grains.shards->recovering);
    assert_in_range((bare_due_ns - bare_now_ns) / 1000000, 4, 8);
    grains.closed = true;
    bare_timer->fire(bare_timer);
    run_some_steps();
    assert_false(grains.shards->recovering);
}

static teff_err beat(void)
{
    enum { RETRY_MS = 500 };
    teffi_timer *timer = &node.membership->beat.timer;
    bare_busy = NULL;
    bare_due_ns = 0;
    timer->fire(timer);
    teff_err err = run_task();
    assert_int_equal(bare_due_ns, bare_now_ns + RETRY_MS * 1000000ull);
    teffi_tasks_free_all(&node.home);
    return err;
}

/* With memory, the store refuses it. */
static void a_heartbeat_that_fails_is_tried_again(void **state)
{
    enum { BEAT_MS = 2000 };
    node.store = &refusing;
    node.home.lease.length_ms = 5 * BEAT_MS;
    bare_platform.wall_ns = bare_clock;
    teffi_membership_start_timers(node.membership);
    assert_int_equal(bare_due_ns, bare_now_ns + BEAT_MS * 1000000ull);
    assert_true(fault_sweep(beat, false) >= 1);
}

/* ---- the directory ---- */

static teff_err ask(uint32_t method, const ProtobufCMessage *body)
{
    unsigned n = sent.n;
    uint64_t dropped = node.dropped;
    teffi_msg *msg = request();
    if (!msg)
        return TEFF_E_NOMEM;
    msg->method_id = method;
    if (!teffi_node_pack_body(msg, body)) {
        teffi_msg_free(msg);
        return TEFF_E_NOMEM;
    }
    bare_busy = NULL;
    teffi_directory_handle_request(&node, msg);
    if (bare_busy) /* a task responds */
        (void)teffi_group_run(bare_busy, 10, 0);
    return outcome(n, dropped);
}

static teff_err end_loser(void)
{
    Teff__Cluster__DirectoryAsk body = TEFF__CLUSTER__DIRECTORY_ASK__INIT;
    body.key = (ProtobufCBinaryData){LONG_KEY, (uint8_t *)(uintptr_t)long_key};
    teff_err err = ask(TEFFI_METHOD_DEACTIVATE, &body.base);
    teffi_tasks_free_all(&node.home); /* the next one makes its task anew */
    return err;
}

static void a_loser_that_cannot_be_ended_is_reported(void **state)
{
    assert_true(fault_sweep(end_loser, true) >= 3);
}

static teff_err register_grain(void)
{
    Teff__Cluster__DirectoryAsk body = TEFF__CLUSTER__DIRECTORY_ASK__INIT;
    teffi_packed_pid packed;
    teffi_pid_pack(&packed, (teffi_pid){bare_other, 20, 1});
    body.view = 1;
    body.type = lab_turns_info.id;
    body.key = (ProtobufCBinaryData){LONG_KEY, (uint8_t *)(uintptr_t)long_key};
    body.pid = &packed.pid;
    teff_err err = ask(TEFFI_METHOD_REGISTER, &body.base);
    teffi_partitions_fini(grains.shards); /* forgets it */
    return err;
}

static void serve_all(void)
{
    uint8_t all[TEFFI_PARTITION_SET_BYTES];
    memset(all, 0xff, sizeof all);
    bare_view(1, (teffi_node_id[]){bare_self}, 1);
    teffi_partitions_start_serving(&grains, all, 1);
}

static void a_registration_that_cannot_be_kept_is_refused(void **state)
{
    serve_all();
    assert_true(fault_sweep(register_grain, true) >= 4);
}

enum { GRAINS = 30 };

static void begin_grains(void)
{
    for (uint8_t i = 0; i < GRAINS; i++) {
        const uint8_t key[] = {'k', (uint8_t)('a' + i)};
        teffi_ident ident = teffi_ident_of(&grains.secret, lab_turns_info.id, key, sizeof key);
        teffi_activation *act;
        assert_int_equal(teffi_shard_create_activation(&grains, &ident, true, NULL, &act), TEFF_OK);
    }
}

static teff_err list_grains(void)
{
    Teff__Cluster__Recover body = TEFF__CLUSTER__RECOVER__INIT;
    uint8_t all[TEFFI_PARTITION_SET_BYTES];
    memset(all, 0xff, sizeof all);
    body.view = 1;
    body.partitions = (ProtobufCBinaryData){sizeof all, all};
    teff_err err = ask(TEFFI_METHOD_RECOVER, &body.base);
    if (err)
        return err;
    Teff__Cluster__Recovered *r = teff__cluster__recovered__unpack(NULL, sent.raw_len, sent.raw);
    assert_non_null(r);
    assert_int_equal(r->n_entries, GRAINS);
    teff__cluster__recovered__free_unpacked(r, NULL);
    return TEFF_OK;
}

static void activations_are_listed_all_or_none(void **state)
{
    begin_grains();
    serve_all();
    assert_true(fault_sweep(list_grains, true) >= 4);
}

int main(void)
{
#define FAULTS(f) cmocka_unit_test_setup_teardown(f, bare_open, bare_close)
    const struct CMUnitTest tests[] = {
        FAULTS(a_type_is_made_or_a_sign_that_it_was_not),
        FAULTS(grains_are_installed_whole_or_not_at_all),
        FAULTS(an_activation_is_made_whole_or_not_at_all),
        FAULTS(a_request_that_cannot_be_set_aside_is_refused),
        FAULTS(a_request_that_cannot_be_located_is_refused),
        FAULTS(a_look_at_the_table_that_cannot_begin_is_no_look),
        FAULTS(a_view_whose_silos_cannot_all_be_added_is_not_adopted),
        FAULTS(a_recovery_that_cannot_begin_is_over),
        FAULTS(a_recovery_that_cannot_begin_begins_later),
        FAULTS(a_recovery_does_not_begin_later_if_the_silo_closes),
        FAULTS(a_recovery_that_fails_pauses_for_some_ms),
        FAULTS(a_heartbeat_that_fails_is_tried_again),
        FAULTS(a_loser_that_cannot_be_ended_is_reported),
        FAULTS(a_registration_that_cannot_be_kept_is_refused),
        FAULTS(activations_are_listed_all_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
