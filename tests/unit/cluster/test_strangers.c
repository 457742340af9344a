/* test_strangers.c - a silo that speaks the protocol, but is not in the cluster's table: what it
 * may ask, and what happens when it joins, or was declared dead. */
#include "../link/net_test.h"

#include <stdio.h>
#include <string.h>
#include "cluster.pb-c.h"
#include "cluster/join.h"
#include "directory/client.h"
#include "directory/partition.h"
#include "lab.h"
#include "message/codec.h"

static lab *l;
static test_node *stranger;

/* The newest response; guarded by the stranger's lock. */
static struct {
    unsigned count;
    teff_err err;
    char text[TEFF_TEXT_MAX];
    size_t raw_len;
    uint8_t raw[4096]; /* its body */
} response;

/* The silo sends requests, too, once the stranger is in its view. */
static void note_response(test_node *node, const teffi_msg *msg)
{
    if (msg->item.kind != TEFFI_MSG_RESPONSE)
        return;
    response.count++;
    response.err = (teff_err)msg->err;
    snprintf(response.text, sizeof response.text, "%s", msg->text ? msg->text : "");
    response.raw_len = msg->raw_len < sizeof response.raw ? msg->raw_len : 0;
    if (response.raw_len)
        memcpy(response.raw, msg->raw, response.raw_len);
}

static int setup(void **state)
{
    l = lab_open(1);
    memset(&response, 0, sizeof response);
    stranger = test_node_start((test_options){.silo = 77, .incarnation = 5, .cluster = "dev"});
    stranger->look = note_response;
    return 0;
}

static int teardown(void **state)
{
    test_node_stop(stranger);
    lab_close(l);
    return 0;
}

static teffi_node *silo(void)
{
    return &l->silos[0]->node;
}

static void connect_stranger(void)
{
    assert_int_equal(stranger->net->ops->peer_add(stranger->net, silo()->id, l->silos[0]->bound),
                     TEFF_OK);
}

/* Sends a request with a packed body, and waits for the response. out: its error. */
static teff_err ask(uint32_t slot, uint32_t method, const ProtobufCMessage *body)
{
    teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, 7, 0);
    unsigned before = response.count;
    msg->src = stranger->id;
    msg->to = (teffi_pid){.node = silo()->id, .slot = slot};
    msg->type_id = 4711; /* no type has it */
    msg->key = (const uint8_t *)"k";
    msg->key_len = 1;
    msg->method_id = method;
    size_t len = body ? teffi_packed_size(body) : 0;
    uint8_t *raw = teff_arena_alloc(&msg->arena, len + 1);
    if (body)
        teffi_pack(body, len, raw);
    msg->raw = raw;
    msg->raw_len = len;
    assert_int_equal(stranger->net->ops->send(stranger->net, silo()->id, msg), TEFF_OK);
    test_wait(stranger, response.count == before + 1);
    return response.err;
}

static teff_err ask_grain(void)
{
    return ask(TEFFI_SLOT_GRAIN, 1, NULL);
}

/* Writes the stranger's row: that of a silo which leaves, since it does not do its part in the
 * directory. */
static void write_row(bool dead)
{
    teffi_rows rows;
    teffi_member_row row = {
        .member = {.node = stranger->id, .status = TEFFI_LEAVING, .lease_ms = TEFFI_LEASE_MS},
        .dead = dead,
        .dies = dead};
    snprintf(row.member.address, sizeof row.member.address, "%s", stranger->address);
    lab_ok(l->ctx[0], teffi_rows_read(l->ctx[0], &rows));
    const teffi_member_row *before = teffi_rows_find_silo(&rows, stranger->id.silo);
    row.etag = before ? before->etag : 0;
    lab_ok(l->ctx[0], teffi_rows_write(l->ctx[0], &rows, &row, 1));
}

/* ---- the store ---- */

static teffi_bytes key_in(const char *cluster, char mark, const char *rest)
{
    char *bytes = teff_alloc(l->ctx[0], 100);
    int n = snprintf(bytes, 100, "%s%c%s", cluster, mark, rest);
    return (teffi_bytes){bytes, (size_t)n};
}

/* The key of a silo's row in the tables of the membership. */
static teffi_bytes key_of(teffi_node_id of)
{
    char rest[16];
    snprintf(rest, sizeof rest, "m%08x", of.silo);
    return key_in("dev", 0, rest);
}

/* out: the error in the store's response. in, out: rows: their etags. */
static teff_err read_store_response(teffi_row *rows, size_t n)
{
    Teff__Cluster__StoreResponse *r =
        teff__cluster__store_response__unpack(NULL, response.raw_len, response.raw);
    assert_non_null(r);
    teff_err err = (teff_err)r->err;
    for (size_t i = 0; i < n && i < r->n_rows; i++)
        rows[i].etag = r->rows[i]->etag;
    teff__cluster__store_response__free_unpacked(r, NULL);
    return err;
}

static teff_err ask_store_to(teffi_store_kind kind, teffi_row *rows, size_t n, teffi_bytes to)
{
    Teff__Cluster__StoreAsk body = TEFF__CLUSTER__STORE_ASK__INIT;
    Teff__Cluster__StoreRow all[4], *list[4];
    assert_true(n <= 4);
    for (size_t i = 0; i < n; i++) {
        list[i] = &all[i];
        teff__cluster__store_row__init(list[i]);
        list[i]->table = (char *)(uintptr_t)rows[i].table;
        list[i]->key =
            (ProtobufCBinaryData){rows[i].key.len, (uint8_t *)(uintptr_t)rows[i].key.data};
        list[i]->value =
            (ProtobufCBinaryData){rows[i].value.len, (uint8_t *)(uintptr_t)rows[i].value.data};
        list[i]->etag = rows[i].etag;
        list[i]->remove = rows[i].remove;
        list[i]->any = rows[i].any;
        list[i]->check = rows[i].check;
    }
    body.kind = (uint32_t)kind;
    body.rows = list;
    body.n_rows = n;
    body.to = (ProtobufCBinaryData){to.len, (uint8_t *)(uintptr_t)to.data};
    body.limit = 10;
    teff_err err = ask(TEFFI_SLOT_STORE, 1, &body.base);
    return err ? err : read_store_response(rows, n);
}

static teff_err ask_store(teffi_store_kind kind, teffi_row row)
{
    return ask_store_to(kind, &row, 1, key_in("dev", 1, ""));
}

static teffi_row state_row(void)
{
    return (teffi_row){.table = "state", .key = {"k", 1}, .value = {"v", 1}, .any = true};
}

/* The rows by which the stranger joins: the next version, its member row, and two more. */
static void make_join(teffi_row rows[4])
{
    static uint8_t version_value[32], member_value[200];
    Teff__Cluster__VersionRow version = TEFF__CLUSTER__VERSION_ROW__INIT;
    Teff__Cluster__Member member = TEFF__CLUSTER__MEMBER__INIT;
    Teff__Cluster__Node node = TEFF__CLUSTER__NODE__INIT;
    teffi_rows read;
    lab_ok(l->ctx[0], teffi_rows_read(l->ctx[0], &read));
    version.version = read.version + 1;
    node.silo = stranger->id.silo;
    node.incarnation = stranger->id.incarnation;
    member.node = &node;
    member.address = stranger->address;
    member.status = TEFF__CLUSTER__STATUS__LEAVING; /* see write_row() */
    rows[0] = (teffi_row){
        .table = "membership",
        .key = key_in("dev", 0, "v"),
        .etag = read.version_etag,
        .value = {version_value, teff__cluster__version_row__pack(&version, version_value)}};
    rows[1] =
        (teffi_row){.table = "membership",
                    .key = key_of(stranger->id),
                    .value = {member_value, teff__cluster__member__pack(&member, member_value)}};
    rows[2] = (teffi_row){.table = "alive", .key = key_of(stranger->id), .any = true};
    rows[3] = (teffi_row){.table = "fence", .key = key_of(stranger->id), .any = true};
}

static void it_may_not_read_or_write_states(void **state)
{
    connect_stranger();
    for (teffi_store_kind kind = TEFFI_STORE_READ; kind <= TEFFI_STORE_SCAN; kind++) {
        assert_int_equal(ask_store(kind, state_row()), TEFF_E_REFUSED);
        assert_non_null(strstr(response.text, "it is not in its seed's view"));
    }
}

static void it_may_read_only_the_members_of_its_cluster(void **state)
{
    teffi_row all = {.table = "membership", .key = key_in("dev", 0, "")};
    teffi_row other = {.table = "membership", .key = key_in("dev2", 0, "v")};
    connect_stranger();
    assert_int_equal(ask_store(TEFFI_STORE_SCAN, all), TEFF_OK);
    assert_int_equal(ask_store_to(TEFFI_STORE_SCAN, &all, 1, (teffi_bytes){NULL, 0}),
                     TEFF_E_REFUSED);
    assert_int_equal(ask_store(TEFFI_STORE_READ, other), TEFF_E_REFUSED);
    other.any = true;
    assert_int_equal(ask_store(TEFFI_STORE_WRITE, other), TEFF_E_REFUSED);
}

static void it_may_not_change_the_rows_of_other_silos(void **state)
{
    static const char *const tables[] = {"membership", "alive", "fence"};
    uint64_t etag = 0;
    connect_stranger();
    for (size_t i = 0; i < 3; i++) {
        teffi_row rows[4], row = {.table = tables[i], .key = key_of(silo()->id), .any = true};
        for (int removes = 0; removes < 2; removes++) {
            row.remove = removes;
            assert_int_equal(ask_store(TEFFI_STORE_WRITE, row), TEFF_E_REFUSED);
            make_join(rows);
            rows[3] = row;
            assert_int_equal(ask_store_to(TEFFI_STORE_BATCH, rows, 4, (teffi_bytes){NULL, 0}),
                             TEFF_E_REFUSED);
        }
    }
    lab_ok(l->ctx[0], lab_read_alive(l->ctx[0], silo()->id, &etag));
    assert_true(etag > 0);
    lab_ok(l->ctx[0], lab_beat(l->ctx[0])); /* its fence is there */
}

/* Asks until the silo has adopted the view in which the stranger is a member, as remote_store.c
 * does. */
static teff_err ask_store_as_member(teffi_store_kind kind, teffi_row row)
{
    uint64_t spent = 0;
    teff_err err = ask_store(kind, row);
    while (err == TEFF_E_REFUSED && lab_pause(&spent))
        err = ask_store(kind, row);
    return err;
}

/* It does not ask the silo to adopt the view: the silo reads the table by itself. */
static void it_may_join_and_then_use_all_tables(void **state)
{
    teffi_row rows[4], other = {.table = "membership", .key = key_in("dev2", 0, "v")};
    connect_stranger();
    make_join(rows);
    assert_int_equal(ask_store_to(TEFFI_STORE_BATCH, rows, 4, (teffi_bytes){NULL, 0}), TEFF_OK);
    assert_true(rows[3].etag > 0);
    assert_int_equal(ask_store_as_member(TEFFI_STORE_WRITE, state_row()), TEFF_OK);
    assert_true(teffi_view_current_has_member(silo(), stranger->id));
    for (teffi_store_kind kind = TEFFI_STORE_READ; kind <= TEFFI_STORE_BATCH; kind++)
        assert_int_equal(ask_store(kind, state_row()), TEFF_OK);
    assert_int_equal(ask_store(TEFFI_STORE_READ, other), TEFF_OK);
}

/* The table has changed since the stranger has read it, or since the silo has. */
static void its_join_may_conflict(void **state)
{
    teffi_row rows[4];
    teffi_rows read;
    uint64_t spent = 0;
    connect_stranger();
    make_join(rows);
    rows[0].etag += 100;
    assert_int_equal(ask_store_to(TEFFI_STORE_BATCH, rows, 4, (teffi_bytes){NULL, 0}),
                     TEFF_E_CONFLICT);
    lab_ok(l->ctx[0], teffi_rows_read(l->ctx[0], &read));
    lab_ok(l->ctx[0], teffi_rows_write(l->ctx[0], &read, NULL, 0));
    do {
        make_join(rows);
    } while (ask_store_to(TEFFI_STORE_BATCH, rows, 4, (teffi_bytes){NULL, 0}) == TEFF_E_CONFLICT &&
             lab_pause(&spent));
    assert_true(rows[3].etag > 0);
}

/* ---- grains and processes ---- */

static void it_may_not_call_grains_or_processes(void **state)
{
    connect_stranger();
    assert_int_equal(ask_grain(), TEFF_E_UNAVAILABLE);
    assert_non_null(strstr(response.text, "not in the view"));
    assert_int_equal(ask(TEFFI_PROCESS_BIT | 1, 1, NULL), TEFF_E_UNAVAILABLE);
}

/* Its view is as new as the silo's: the rows that it sees do not list it. */
static void it_may_not_change_the_directory(void **state)
{
    Teff__Cluster__DirectoryAsk change = TEFF__CLUSTER__DIRECTORY_ASK__INIT;
    Teff__Cluster__Recover recover = TEFF__CLUSTER__RECOVER__INIT;
    Teff__Cluster__Node node = TEFF__CLUSTER__NODE__INIT;
    Teff__Cluster__Pid pid = TEFF__CLUSTER__PID__INIT;
    node.silo = stranger->id.silo;
    node.incarnation = stranger->id.incarnation;
    pid.node = &node;
    pid.slot = 20;
    change.view = recover.view = teffi_membership_version(silo());
    change.pid = &pid;
    change.key = (ProtobufCBinaryData){1, (uint8_t[]){'k'}};
    connect_stranger();
    for (uint32_t method = TEFFI_METHOD_REGISTER; method <= TEFFI_METHOD_UNREGISTER; method++)
        assert_int_equal(ask(TEFFI_SLOT_DIRECTORY, method, &change.base), TEFF_E_REFUSED);
    assert_int_equal(ask(TEFFI_SLOT_DIRECTORY, TEFFI_METHOD_DEACTIVATE, &change.base),
                     TEFF_E_REFUSED);
    assert_int_equal(ask(TEFFI_SLOT_DIRECTORY, TEFFI_METHOD_RECOVER, &recover.base),
                     TEFF_E_REFUSED);
}

static void it_may_tell_that_the_table_has_changed(void **state)
{
    Teff__Cluster__ViewAtLeast body = TEFF__CLUSTER__VIEW_AT_LEAST__INIT;
    body.version = teffi_membership_version(silo()) + 1;
    connect_stranger();
    write_row(false);
    assert_int_equal(ask(TEFFI_SLOT_MEMBERSHIP, TEFFI_METHOD_VIEW_AT_LEAST, &body.base), TEFF_OK);
    assert_int_equal(teffi_membership_version(silo()), body.version);
    assert_int_equal(ask_grain(), TEFF_E_NOT_FOUND); /* the type */
}

/* The silo has not read the table since: it does so before it refuses a message. */
static void its_messages_wait_until_the_table_is_read(void **state)
{
    connect_stranger();
    assert_int_equal(ask_grain(), TEFF_E_UNAVAILABLE);
    write_row(false);
    assert_int_equal(ask_grain(), TEFF_E_NOT_FOUND);
    lab_until(silo()->strangers == 0); /* once the message is delivered */
}

/* Does a task deliver what is kept? */
static bool is_served(teffi_membership *m)
{
    pthread_mutex_lock(&m->outsiders.lock);
    bool served = m->outsiders.served;
    pthread_mutex_unlock(&m->outsiders.lock);
    return served;
}

/* What is kept may become calls to other silos, whose responses the sender awaits. */
static void a_silo_that_leaves_waits_for_what_it_keeps(void **state)
{
    enum { WAIT_MS = 200 };
    teffi_membership *m = silo()->membership;
    const teffi_platform *platform = silo()->platform;
    teffi_msg *msg = test_message(TEFFI_MSG_ONEWAY, 7, 0);
    bool first = false;
    connect_stranger();
    assert_int_equal(ask_grain(), TEFF_E_UNAVAILABLE); /* it is connected */
    lab_until(!is_served(m));
    msg->src = stranger->id;
    assert_int_equal(teffi_outsiders_hold_msg_if_needed(m, msg, &first), TEFF_OK);
    assert_true(first);
    assert_int_equal(
        teffi_silo_leave(l->ctx[0], l->silos[0], teffi_now(platform) + WAIT_MS * UINT64_C(1000000)),
        TEFF_E_TIMEOUT);
    assert_non_null(strstr(teff_error(l->ctx[0]), "calls did not end"));
    teffi_queue held = teffi_outsiders_take_held_messages(m);
    assert_int_equal(held.count, 1);
    teffi_msg_free(msg);
    teffi_outsiders_decrement_held_count(m, stranger->id);
    lab_ok(l->ctx[0],
           teffi_silo_leave(l->ctx[0], l->silos[0], teffi_now(platform) + UINT64_C(60000000000)));
}

static void a_dead_silo_is_disconnected_and_may_not_connect(void **state)
{
    connect_stranger();
    assert_int_equal(ask_grain(), TEFF_E_UNAVAILABLE);
    write_row(false);
    assert_int_equal(ask_grain(), TEFF_E_NOT_FOUND);
    write_row(true);
    lab_ok(l->ctx[0], teffi_membership_refresh(l->ctx[0], 0));
    test_wait(stranger, stranger->downs > 0);
    teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, 8, 0);
    uint64_t spent = 0;
    while (stranger->net->ops->send(stranger->net, silo()->id, msg))
        if (!lab_pause(&spent))
            fail_msg("the silo cannot be dialled");
    test_wait(stranger, test_logged(stranger, "dial", "declared this silo dead"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_may_not_read_or_write_states, setup, teardown),
        cmocka_unit_test_setup_teardown(it_may_read_only_the_members_of_its_cluster, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(it_may_not_change_the_rows_of_other_silos, setup, teardown),
        cmocka_unit_test_setup_teardown(it_may_join_and_then_use_all_tables, setup, teardown),
        cmocka_unit_test_setup_teardown(its_join_may_conflict, setup, teardown),
        cmocka_unit_test_setup_teardown(it_may_not_call_grains_or_processes, setup, teardown),
        cmocka_unit_test_setup_teardown(it_may_not_change_the_directory, setup, teardown),
        cmocka_unit_test_setup_teardown(it_may_tell_that_the_table_has_changed, setup, teardown),
        cmocka_unit_test_setup_teardown(its_messages_wait_until_the_table_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(a_silo_that_leaves_waits_for_what_it_keeps, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_dead_silo_is_disconnected_and_may_not_connect, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
