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
} response;

/* The silo sends requests, too, once the stranger is in its view. */
static void note_response(test_node *node, const teffi_msg *msg)
{
    if (msg->item.kind != TEFFI_MSG_RESPONSE)
        return;
    response.count++;
    response.err = (teff_err)msg->err;
    snprintf(response.text, sizeof response.text, "%s", msg->text ? msg->text : "");
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
    change.view = recover.view = teffi_membership_version(silo());
    change.pid = &pid;
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
