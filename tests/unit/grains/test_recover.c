/* test_recover.c - recovery: a silo lists for the view that it is in only, what was asked for an
 * earlier one is not taken, and of two that hold a grain one is left before it is served. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cluster.pb-c.h"
#include "cluster/membership.h"
#include "directory/partition.h"
#include "call/ctx.h"
#include "node/ask.h"
#include "directory/client.h"
#include "directory/server.h"
#include "lab.h"
#include "used.h"

static lab *l;

static int close_lab(void **state)
{
    lab_close(l);
    return 0;
}

static teffi_ident ident_of(int silo, const int64_t *key)
{
    return teffi_ident_of(&l->silos[silo]->node.grains->secret, lab_single_info.id,
                          (const uint8_t *)key, sizeof *key);
}

static int owner_of(int64_t key)
{
    for (int i = 0; i < l->n; i++) {
        teffi_node *node = l->silos[i] ? &l->silos[i]->node : NULL;
        const teffi_view *view = node ? teffi_view_ref_current(node) : NULL;
        unsigned partition = node ? teffi_partition_of_hash(ident_of(i, &key).hash) : 0;
        bool is = view && teffi_node_equals(teffi_view_owner(view, partition), node->id);
        teffi_view_unref(view);
        if (is)
            return i;
    }
    return -1;
}

/* Of the activation on a silo, if it has one: its pid. */
static bool held_by(int silo, int64_t key, teffi_pid *pid)
{
    teffi_grains *grains = l->silos[silo]->node.grains;
    teffi_ident ident = ident_of(silo, &key);
    pthread_mutex_t *lock = &grains->shards->at[teffi_partition_of_hash(ident.hash)].lock;
    pthread_mutex_lock(lock);
    teffi_activation *act = teffi_shard_find_activation_locked(grains, &ident);
    if (act)
        *pid = teffi_activation_pid(act);
    pthread_mutex_unlock(lock);
    return act != NULL;
}

static void call(int silo, int64_t key)
{
    lab_number *out;
    lab_ok(l->ctx[silo], lab_single_add(l->ctx[silo], key, lab_number(.n = 1), &out));
}

/* ---- two hold one grain ---- */

enum { KEYS = 600 }; /* about one in eight comes to be held twice */

/* What no protocol of ours does: the owner forgets an activation that lives on another silo. Its
 * next caller may be given a second one. */
static void forget(int64_t key)
{
    teffi_pid pid;
    for (int i = 0; i < l->n; i++) {
        teffi_ident ident = ident_of(i, &key);
        if (i != owner_of(key) && held_by(i, key, &pid))
            lab_ok(l->ctx[i], teffi_directory_unregister(l->ctx[i], &ident, pid));
    }
}

static int doubled(int owner[KEYS])
{
    int n = 0;
    for (int64_t key = 0; key < KEYS; key++) {
        owner[key] = -1;
        call((int)key % l->n, key);
        forget(key);
        call(owner_of(key), key);
        if (l->record.single_live[key] > 1) {
            owner[key] = owner_of(key);
            n++;
        }
    }
    return n;
}

/* Soon after a grain's new owner serves, there is one of it: if the view changes during a recovery,
 * the new owner may serve before the activation that lost has ended. out: how many changed their
 * owner. */
static int settled(const int owner[KEYS], int asked)
{
    int n = 0;
    for (int64_t key = 0; key < KEYS; key++) {
        if (owner[key] < 0 || owner_of(key) == owner[key])
            continue;
        call(asked, key);
        lab_until(l->record.single_live[key] == 1);
        n++;
    }
    return n;
}

static void two_holders_end_with_one_when_a_silo_joins(void **state)
{
    int owner[KEYS];
    l = lab_open(2);
    assert_true(doubled(owner) > 10);
    int added = lab_add(l);
    assert_true(settled(owner, added) > 0);
}

/* Some new owners hold one of the two themselves. */
static void two_holders_end_with_one_when_a_silo_leaves(void **state)
{
    int owner[KEYS];
    l = lab_open(3);
    assert_true(doubled(owner) > 10);
    lab_ok(l->ctx[0], lab_remove(l, 2));
    assert_true(settled(owner, 0) > 0);
}

/* A turn of it runs: so the response does not come in time. */
static void a_holder_that_lost_has_ended_when_its_silo_says_so(void **state)
{
    enum { SOON_MS = 100, LATER_MS = 60000 };
    static const char key[] = "held";
    teff_call call;
    teffi_pid pid;
    lab_number *out;
    l = lab_open(2);
    lab_ok(l->ctx[1], lab_turns_write_async(l->ctx[1], key, lab_step(.hold = true), NULL, &call));
    lab_until(l->record.held == 1);
    teffi_ident ident = teffi_ident_of(&l->silos[0]->node.grains->secret, lab_turns_info.id,
                                       (const uint8_t *)key, sizeof key - 1);
    lab_ok(l->ctx[0], teffi_directory_lookup(l->ctx[0], &ident, NULL, &pid));
    int holder = teffi_node_equals(pid.node, l->silos[1]->node.id);
    teff_ctx *other = l->ctx[!holder];
    assert_int_equal(teffi_directory_deactivate_loser(other, &ident, pid, 1, SOON_MS),
                     TEFF_E_TIMEOUT);
    l->record.gate = true;
    lab_ok(other, teffi_directory_deactivate_loser(other, &ident, pid, 1, LATER_MS));
    lab_ok(l->ctx[1], lab_turns_write_await(l->ctx[1], call, &out));
}

/* ---- views ---- */

static size_t listed(int from, int to, uint64_t view, uint64_t *answered)
{
    uint8_t all[TEFFI_PARTITIONS / 8];
    Teff__Cluster__Recover ask = TEFF__CLUSTER__RECOVER__INIT;
    ProtobufCMessage *reply;
    memset(all, 0xff, sizeof all);
    ask.view = view;
    ask.partitions = (ProtobufCBinaryData){sizeof all, all};
    lab_ok(l->ctx[from], teffi_ctx_run_rpc(l->ctx[from], l->silos[to]->node.id,
                                           TEFFI_SLOT_DIRECTORY, TEFFI_METHOD_RECOVER, &ask.base,
                                           5000, &teff__cluster__recovered__descriptor, &reply));
    *answered = ((Teff__Cluster__Recovered *)reply)->view;
    return ((Teff__Cluster__Recovered *)reply)->n_entries;
}

static void a_silo_lists_for_its_own_view_only(void **state)
{
    uint64_t answered;
    l = lab_open(2);
    for (int64_t key = 0; key < 40; key++)
        call(1, key);
    uint64_t now = l->silos[1]->node.grains->shards->version;
    assert_true(listed(0, 1, now, &answered) > 0);
    assert_int_equal(answered, now);
    assert_int_equal(listed(0, 1, now - 1, &answered), 0);
    assert_int_equal(answered, now);
}

static void follow_view(teffi_node *node, uint64_t version, teffi_node_id member)
{
    teffi_member m = {.node = member, .status = TEFFI_ACTIVE, .address = "h:1"};
    teffi_view *view = teffi_view_new(version, &m, 1);
    teffi_partitions_adopt_view(node->grains, view);
    teffi_view_unref(view);
}

static teff_err peek(const teffi_ident *ident, teffi_pid *holder)
{
    return teffi_partition_execute_directory_method(l->silos[0]->node.grains, TEFFI_METHOD_LOOKUP,
                                                    ident, (teffi_pid){0}, holder, NULL);
}

/* It is asked for in one view; in the next the partition is another silo's, then ours again. */
static void what_was_asked_before_a_partition_was_lost_is_not_taken(void **state)
{
    static const int64_t key = 7;
    const teffi_pid other = {{77, 1}, 20, 1}, third = {{78, 1}, 20, 1};
    uint8_t all[TEFFI_PARTITIONS / 8], set[TEFFI_PARTITIONS / 8];
    teffi_pid pid;
    l = lab_open(1);
    teffi_ident ident = ident_of(0, &key);
    memset(all, 0xff, sizeof all);
    teffi_node *node = &l->silos[0]->node;
    teffi_grains *grains = node->grains;
    uint64_t v = grains->shards->version;
    lab_until(!grains->shards->recovering);
    grains->shards->recovering = true; /* the test does what its task would do */
    follow_view(node, v + 1, other.node);
    follow_view(node, v + 2, node->id);
    assert_int_equal(teffi_partition_merge_activation(grains, &ident, other, v, &pid),
                     TEFF_E_CLOSED);
    teffi_partitions_start_serving(grains, all, v);
    assert_int_equal(peek(&ident, &pid), TEFF_E_UNAVAILABLE);
    /* A round for a later view takes what is listed for it, and nothing of the one before. */
    assert_int_equal(teffi_partition_merge_activation(grains, &ident, other, v + 2, &pid), TEFF_OK);
    assert_true(teffi_partitions_begin_recovery_round(grains, set)); /* a new round */
    assert_int_equal(teffi_partition_merge_activation(grains, &ident, third, v + 3, &pid), TEFF_OK);
    /* Two of them: the same one wins whichever comes first. */
    assert_int_equal(teffi_partition_merge_activation(grains, &ident, other, v + 3, &pid),
                     TEFF_E_EXISTS);
    assert_true(teffi_pid_equals(pid, third));
    assert_int_equal(teffi_partition_merge_activation(grains, &ident, third, v + 3, &pid),
                     TEFF_E_EXISTS);
    assert_true(teffi_pid_equals(pid, third));
    assert_true(teffi_partitions_begin_recovery_round(grains, set)); /* a new round */
    teffi_partitions_start_serving(grains, all, v + 3);
    assert_int_equal(peek(&ident, &pid), TEFF_E_NOT_FOUND);
    grains->shards->recovering = false;
}

static _Atomic unsigned tried_again; /* lines in the log */

static void count_tries(void *arg, teff_log_level level, const char *line)
{
    if (strstr(line, "is tried again"))
        atomic_fetch_add(&tried_again, 1);
}

static void log_to_test(teff_silo *silo)
{
    silo->platform.log.write = count_tries;
}

static void what_succeeds_is_not_tried_again(void **state)
{
    atomic_store(&tried_again, 0);
    l = lab_open_more(1, log_to_test);
    lab_until(!l->silos[0]->node.grains->shards->recovering);
    assert_int_equal(tried_again, 0);
}

/* ---- limits ---- */

/* So many wait for a partition that is locked, and no more. */
static void requests_that_wait_are_limited(void **state)
{
    enum { ASKS = TEFFI_PARKED_MAX + 50 };
    static const int64_t key = 7;
    Teff__Cluster__DirectoryAsk ask = TEFF__CLUSTER__DIRECTORY_ASK__INIT;
    teffi_call **calls = calloc(ASKS, sizeof *calls);
    uint8_t all[TEFFI_PARTITIONS / 8];
    int refused = 0;
    l = lab_open(2);
    assert_non_null(calls);
    teffi_node *node = &l->silos[0]->node;
    teffi_grains *grains = node->grains;
    lab_until(!grains->shards->recovering);
    uint64_t v = grains->shards->version;
    grains->shards->recovering = true;
    follow_view(node, v + 1, l->silos[1]->node.id);
    follow_view(node, v + 2, node->id);
    ask.view = v;
    ask.type = lab_single_info.id;
    ask.key = (ProtobufCBinaryData){sizeof key, (uint8_t *)(uintptr_t)&key};
    for (int i = 0; i < ASKS; i++)
        calls[i] =
            teffi_ctx_start_rpc(l->ctx[1], node->id, TEFFI_SLOT_DIRECTORY, TEFFI_METHOD_LOOKUP,
                                &ask.base, 30000, &teff__cluster__directory_response__descriptor);
    for (int i = TEFFI_PARKED_MAX; i < ASKS; i++)
        refused += teffi_ctx_await_call(l->ctx[1], calls[i], NULL) == TEFF_E_OVERLOADED;
    assert_int_equal(refused, ASKS - TEFFI_PARKED_MAX);
    assert_int_equal(grains->shards->parked.count, TEFFI_PARKED_MAX);
    assert_true(grains->shards->parked_bytes > 0);
    memset(all, 0xff, sizeof all);
    teffi_partitions_start_serving(grains, all, v + 2);
    for (int i = 0; i < TEFFI_PARKED_MAX; i++)
        lab_ok(l->ctx[1], teffi_ctx_await_call(l->ctx[1], calls[i], NULL));
    assert_int_equal(grains->shards->parked.count, 0);
    assert_int_equal(grains->shards->parked_bytes, 0);
    grains->shards->recovering = false;
    free(calls);
}

/* Their memory too, with body and key. */
static void bytes_of_requests_that_wait_are_limited(void **state)
{
    enum { BODY = 1000, KEY = 2000 };
    static teffi_shards shards;
    size_t one = sizeof(teffi_msg) + TEFFI_MSG_INLINE + BODY + KEY, n = 0;
    assert_int_equal(pthread_mutex_init(&shards.parked_lock, NULL), 0);
    teffi_msg *msg;
    for (;; n++) {
        msg = teffi_msg_new(TEFFI_MSG_REQUEST);
        assert_non_null(msg);
        msg->raw_len = BODY; /* of bytes that are not there */
        msg->key_len = KEY;
        if (!teffi_partitions_park_request(&shards, msg))
            break;
        assert_int_equal(shards.parked_bytes, (n + 1) * one);
    }
    assert_int_equal(n, TEFFI_PARKED_BYTES_MAX / one);
    teffi_msg_free(msg);
    for (teffi_qnode *at; (at = teffi_queue_pop(&shards.parked));)
        teffi_msg_free(teffi_container(at, teffi_msg, link));
    pthread_mutex_destroy(&shards.parked_lock);
}

/* ---- memory ---- */

static lab_record record;
static _Atomic int64_t most;
static _Atomic bool over;

/* The most that the messages of a silo take at once. */
static void *watch(void *arg)
{
    const teffi_budget *budget = arg;
    while (!over) {
        int64_t used = bytes_used(budget);
        most = used > most ? used : most;
    }
    return NULL;
}

static bool serves_all(teff_silo *silo)
{
    teffi_grains *grains = silo->node.grains;
    bool all = !grains->shards->recovering;
    for (unsigned i = 0; i < TEFFI_PARTITIONS; i++) {
        pthread_mutex_lock(&grains->shards->at[i].lock);
        all &= grains->shards->at[i].phase != TEFFI_LOCKED;
        pthread_mutex_unlock(&grains->shards->at[i].lock);
    }
    return all;
}

/* A response lists 4,000 activations at the most, in about half a megabyte. Here are ten of them,
 * and one is dropped before the next is asked for. */
static void recovery_holds_one_response_at_a_time(void **state)
{
    enum { GRAINS = 40000, RESPONSE_BYTES = 1024 * 1024 };
    char key[40], text[TEFF_TEXT_MAX] = "";
    lab_text *out;
    pthread_t thread;
    l = lab_open(1);
    for (int i = 0; i < GRAINS; i++) {
        snprintf(key, sizeof key, "a grain with the number %d", i);
        lab_ok(l->ctx[0], lab_near_where(l->ctx[0], key, &out));
        teff_ctx_reset(l->ctx[0]);
    }
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .seeds = {l->silos[0]->node.address}};
    l->silos[1] = lab_silo(&record, &opt);
    l->n = 2;
    over = false;
    most = 0;
    if (teff_silo_start(l->silos[1], text))
        fail_msg("%s", text);
    assert_int_equal(pthread_create(&thread, NULL, watch, l->silos[1]->node.budget), 0);
    lab_until(l->silos[1]->node.grains->shards->version > 1 && serves_all(l->silos[1]));
    over = true;
    pthread_join(thread, NULL);
    assert_true(most < 2 * RESPONSE_BYTES);
}

/* A store that measures the arenas of the contexts that read the membership's version. */
typedef struct meter {
    teffi_store base;
    teffi_store *inner;
} meter;

static teff_err (*real_open)(const teffi_platform *platform, const char *address,
                             teffi_store **store, char *text);
static _Atomic size_t reads, most_used;

static void submit_measured(teffi_store *store, teffi_store_op *op)
{
    if (op->kind == TEFFI_STORE_READ && !strcmp(op->rows[0].table, TEFFI_TABLE_MEMBERSHIP)) {
        if (op->arena->used_bytes > most_used)
            most_used = op->arena->used_bytes;
        reads++;
    }
    teffi_store_submit(((meter *)store)->inner, op);
}

static void close_meter(teffi_store *store)
{
    ((meter *)store)->inner->ops->close(((meter *)store)->inner);
}

static void free_meter(teffi_store *store)
{
    ((meter *)store)->inner->ops->free(((meter *)store)->inner);
    free(store);
}

static teff_err open_meter(const teffi_platform *platform, const char *address, teffi_store **store,
                           char *text)
{
    static const teffi_store_ops ops = {submit_measured, close_meter, free_meter};
    meter *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->base.ops = &ops;
    *store = &m->base;
    return real_open(platform, address, &m->inner, text);
}

static void measure_arenas(teff_silo *silo)
{
    real_open = silo->platform.store_open;
    silo->platform.store_open = open_meter;
}

/* As if a new view had made this silo the owner of its partitions. */
static void lock_served_partitions(teffi_shards *shards)
{
    for (unsigned i = 0; i < TEFFI_PARTITIONS; i++) {
        pthread_mutex_lock(&shards->at[i].lock);
        if (shards->at[i].phase == TEFFI_SERVING)
            shards->at[i].phase = TEFFI_LOCKED;
        pthread_mutex_unlock(&shards->at[i].lock);
    }
}

/* out: the most that the arena of a context held, when silo 0 has read the version `more` times. */
static size_t most_used_after_reads(size_t more)
{
    size_t enough = reads + more;
    /* after a change, the next round begins at once */
    lab_until((teffi_membership_signal_change(l->silos[0]->node.membership), reads >= enough));
    return most_used;
}

/* Silo 1 responds for another view. Each round that fails reads the version of the membership. */
static void rounds_that_fail_keep_no_memory(void **state)
{
    l = lab_open_more(2, measure_arenas);
    teffi_grains *grains = l->silos[0]->node.grains;
    teffi_shards *other = l->silos[1]->node.grains->shards;
    lab_until(grains->shards->version == other->version && serves_all(l->silos[0]) &&
              serves_all(l->silos[1]));
    uint64_t version = other->version;
    other->version = version + 1;
    lock_served_partitions(grains->shards);
    most_used = 0;
    teffi_recover_start(grains);
    size_t before = most_used_after_reads(20);
    assert_in_range(most_used_after_reads(200), before, before + before / 2);
    other->version = version;
    lab_until(serves_all(l->silos[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(two_holders_end_with_one_when_a_silo_joins, close_lab),
        cmocka_unit_test_teardown(two_holders_end_with_one_when_a_silo_leaves, close_lab),
        cmocka_unit_test_teardown(a_holder_that_lost_has_ended_when_its_silo_says_so, close_lab),
        cmocka_unit_test_teardown(a_silo_lists_for_its_own_view_only, close_lab),
        cmocka_unit_test_teardown(what_was_asked_before_a_partition_was_lost_is_not_taken,
                                  close_lab),
        cmocka_unit_test_teardown(what_succeeds_is_not_tried_again, close_lab),
        cmocka_unit_test_teardown(requests_that_wait_are_limited, close_lab),
        cmocka_unit_test(bytes_of_requests_that_wait_are_limited),
        cmocka_unit_test_teardown(recovery_holds_one_response_at_a_time, close_lab),
        cmocka_unit_test_teardown(rounds_that_fail_keep_no_memory, close_lab),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
