/* test_events.c - who may connect when, and what becomes of a message that comes or was not sent.
 * One node on an executor of the test; a transport that keeps what it is given last. */
#include "test.h"

#include <stdio.h>
#include <string.h>
#include "call/calls.h"
#include "call/ctx.h"
#include "node/deliver.h"

static const teffi_node_id self = {5, 1};
static const teffi_hello silo = {.role = TEFFI_ROLE_SILO, .node = {77, 1}},
                         other = {.role = TEFFI_ROLE_SILO, .node = {78, 1}},
                         client = {.role = TEFFI_ROLE_CLIENT, .node = {TEFFI_CLIENT_BIT | 5, 1}};
static const teffi_net_events *const on = &teffi_node_net_events;

static teffi_node node;
static char text[TEFF_TEXT_MAX];

static struct {
    unsigned n;
    teffi_node_id to;
    uint32_t err;
    char text[TEFF_TEXT_MAX];
} sent;

static teff_err on_send(teffi_net *net, teffi_node_id to, teffi_msg *msg)
{
    sent.n++;
    sent.to = to;
    sent.err = msg->err;
    snprintf(sent.text, sizeof sent.text, "%s", msg->text ? msg->text : "none");
    teffi_msg_free(msg);
    return TEFF_OK;
}

/* ---- the node ---- */

static uint64_t on_clock(void *arg)
{
    return 1000000000;
}

static uint64_t on_random(void *arg)
{
    return 0x9e3779b97f4a7c15u;
}

static teff_err give_exec(const teffi_platform *platform, unsigned workers,
                          const teff_sched_options *opt, teffi_exec **out)
{
    static const teffi_exec_ops ops;
    static teffi_exec exec = {.ops = &ops};
    exec.platform = platform;
    *out = &exec;
    return TEFF_OK;
}

static int setup(void **state)
{
    static const teffi_platform platform = {
        .mono_ns = on_clock, .random = on_random, .exec_new = give_exec};
    static const teffi_net_ops net_ops = {.send = on_send};
    static teffi_net net = {&net_ops};
    memset(&sent, 0, sizeof sent);
    text[0] = '\0';
    if (teffi_node_init(&node, &platform, TEFFI_ROLE_SILO, "test", 1, NULL))
        return 1;
    node.id = self;
    node.home.net = &net;
    node.open = true;
    return 0;
}

static int teardown(void **state)
{
    teffi_node_fini(&node);
    return 0;
}

/* ---- hello ---- */

static unsigned checked;

static teff_err refuse_silo(teffi_node *at, const teffi_hello *peer, char *why)
{
    assert_ptr_equal(at, &node);
    checked++;
    snprintf(why, TEFF_TEXT_MAX, "that address is taken");
    return TEFF_E_REFUSED;
}

static void all_may_connect_to_an_open_silo(void **state)
{
    assert_int_equal(on->hello(&node, &silo, text), TEFF_OK);
    assert_int_equal(on->hello(&node, &client, text), TEFF_OK);
}

static void only_silos_are_checked_by_the_membership(void **state)
{
    checked = 0;
    node.check_silo = refuse_silo;
    assert_int_equal(on->hello(&node, &client, text), TEFF_OK);
    assert_int_equal(checked, 0);
    assert_int_equal(on->hello(&node, &silo, text), TEFF_E_REFUSED);
    assert_int_equal(checked, 1);
    assert_string_equal(text, "that address is taken");
}

static void a_silo_that_starts_takes_its_seed_only(void **state)
{
    node.open = false;
    node.seed = teffi_node_to_word(silo.node);
    assert_int_equal(on->hello(&node, &silo, text), TEFF_OK);
    assert_int_equal(on->hello(&node, &other, text), TEFF_E_REFUSED);
    assert_string_equal(text, "this silo is starting");
    assert_int_equal(on->hello(&node, &client, text), TEFF_E_REFUSED);
    assert_int_equal(node.greeting, 0);
}

static void a_silo_that_leaves_refuses_clients_only(void **state)
{
    node.leaving = true;
    assert_int_equal(on->hello(&node, &silo, text), TEFF_OK);
    assert_int_equal(on->hello(&node, &client, text), TEFF_E_REFUSED);
    assert_string_equal(text, "this silo is leaving the cluster");
    assert_int_equal(node.greeting, 0);
}

static uint64_t heard;

static void note_heard(teffi_node *at, uint64_t version)
{
    assert_ptr_equal(at, &node);
    heard = version;
}

/* A node that is not open has no membership. */
static void an_open_node_hears_of_views(void **state)
{
    heard = 0;
    on->view(&node, &silo, 3);
    node.hear_view = note_heard;
    node.open = false;
    on->view(&node, &silo, 4);
    assert_int_equal(heard, 0);
    node.open = true;
    on->view(&node, &silo, 5);
    assert_int_equal(heard, 5);
}

static unsigned greeting_at_up;

static void note_up(teffi_node *at, const teffi_hello *peer)
{
    greeting_at_up = node.greeting;
}

/* A silo that leaves waits for them. */
static void clients_count_until_they_are_connected_or_gone(void **state)
{
    node.net_up = note_up;
    assert_int_equal(on->hello(&node, &silo, text), TEFF_OK);
    assert_int_equal(node.greeting, 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(on->hello(&node, &client, text), TEFF_OK);
    assert_int_equal(node.greeting, 2);
    on->up(&node, &client);
    assert_int_equal(greeting_at_up, 2);
    on->up(&node, &silo);
    assert_int_equal(node.greeting, 1);
    on->gone(&node, &silo);
    on->gone(&node, &client);
    assert_int_equal(node.greeting, 0);
}

/* ---- messages ---- */

static teffi_msg *message(uint32_t kind, uint32_t slot)
{
    teffi_msg *msg = teffi_msg_new(kind);
    assert_non_null(msg);
    msg->src = silo.node;
    msg->to = (teffi_pid){.node = self, .slot = slot};
    return msg;
}

static teffi_msg *taken;
static teffi_node_id not_reached;

static void take_request(teffi_node *at, teffi_msg *msg)
{
    taken = msg;
}

static void take_unsent(teffi_node *at, teffi_node_id to, teffi_msg *msg)
{
    taken = msg;
    not_reached = to;
}

static void a_request_is_its_connections(void **state)
{
    teffi_msg *msg = message(TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN);
    node.upcalls.request = take_request;
    on->message(&node, &other, msg);
    assert_ptr_equal(taken, msg);
    assert_true(teffi_node_equals(msg->src, other.node));
    teffi_msg_free(msg);
}

static void a_silo_that_starts_takes_no_requests(void **state)
{
    node.open = false;
    on->message(&node, &silo, message(TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN));
    assert_int_equal(sent.n, 1);
    assert_int_equal(sent.err, TEFF_E_UNAVAILABLE);
    assert_string_equal(sent.text, "this silo is starting");
}

static void a_response_that_was_not_asked_for_is_dropped(void **state)
{
    on->message(&node, &silo, message(TEFFI_MSG_RESPONSE, 0));
    assert_int_equal(node.dropped, 1);
}

/* ---- what was not sent ---- */

static void a_message_to_a_grain_is_routed_again(void **state)
{
    teffi_msg *msg = message(TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN);
    node.upcalls.unsent = take_unsent;
    on->unsent(&node, &other, msg);
    assert_ptr_equal(taken, msg);
    assert_true(teffi_node_equals(not_reached, other.node));
    teffi_msg_free(msg);
}

static void was_told(unsigned n, teff_err err)
{
    assert_int_equal(sent.n, n);
    assert_int_equal(sent.err, err);
    assert_string_equal(sent.text, "the silo cannot be reached");
}

static void the_sender_of_another_message_is_told(void **state)
{
    on->unsent(&node, &other, message(TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN)); /* nobody routes */
    was_told(1, TEFF_E_UNREACHABLE);
    node.upcalls.unsent = take_unsent;
    on->unsent(&node, &other, message(TEFFI_MSG_REQUEST, TEFFI_SLOT_DIRECTORY));
    was_told(2, TEFF_E_UNREACHABLE);
    on->unsent(&node, &other,
               message(TEFFI_MSG_REQUEST, TEFFI_PROCESS_BIT | 3)); /* it has not run */
    was_told(3, TEFF_E_UNAVAILABLE);
    on->unsent(&node, &other, message(TEFFI_MSG_REQUEST, TEFFI_SLOT_STORE)); /* the same */
    was_told(4, TEFF_E_UNAVAILABLE);
    on->unsent(&node, &other, message(TEFFI_MSG_RESPONSE, 0));
    assert_int_equal(sent.n, 4);
    assert_int_equal(node.dropped, 1);
}

/* ---- connections that end ---- */

static unsigned downs;
static bool was_clean;

static void note_down(teffi_node *at, const teffi_hello *peer, bool clean)
{
    downs++;
    was_clean = clean;
}

static teff_err relay_for(teffi_node_id origin)
{
    teffi_msg *msg = message(TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN);
    msg->src = origin;
    teff_err err = teffi_node_become_sender(&node, msg);
    teffi_msg_free(msg);
    return err;
}

/* Its relays end with it; a client's id is not taken for a silo's. */
static void a_peer_that_goes_takes_its_relays_along(void **state)
{
    node.net_down = note_down;
    assert_int_equal(relay_for(silo.node), TEFF_OK);
    assert_int_equal(relay_for(client.node), TEFF_OK);
    on->down(&node, &client, true);
    assert_true(was_clean);
    assert_int_equal(teffi_calls_relay_count(&node.home), 1);
    on->down(&node, &silo, false);
    assert_false(was_clean);
    assert_int_equal(teffi_calls_relay_count(&node.home), 0);
    assert_int_equal(downs, 2);
    node.net_down = NULL; /* of a node that does not care */
    on->down(&node, &silo, false);
    assert_int_equal(downs, 2);
}

int main(void)
{
#define EVENTS(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        EVENTS(all_may_connect_to_an_open_silo),
        EVENTS(only_silos_are_checked_by_the_membership),
        EVENTS(a_silo_that_starts_takes_its_seed_only),
        EVENTS(a_silo_that_leaves_refuses_clients_only),
        EVENTS(an_open_node_hears_of_views),
        EVENTS(clients_count_until_they_are_connected_or_gone),
        EVENTS(a_request_is_its_connections),
        EVENTS(a_silo_that_starts_takes_no_requests),
        EVENTS(a_response_that_was_not_asked_for_is_dropped),
        EVENTS(a_message_to_a_grain_is_routed_again),
        EVENTS(the_sender_of_another_message_is_told),
        EVENTS(a_peer_that_goes_takes_its_relays_along),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
