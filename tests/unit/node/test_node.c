/* test_node.c - which responses count: a silo on a real port, a silo that it asks, and peers that
 * respond in somebody else's name. */
#include "node/node.h"

#include <errno.h>
#include <sys/socket.h>
#include "../death.h"
#include "../link/net_test.h"
#include "../link/raw_peer.h"
#include "base/hash.h"
#include "call/call.h"
#include "cluster.pb-c.h"
#include "lab.h"
#include "call/ctx.h"
#include "silo/client.h"
#include "link/link.h"
#include "node/ask.h"

static struct {
    lab_record record;
    teff_silo *silo;
    teffi_node *node;
    teff_ctx *ctx;
    test_node *asked; /* gets the silo's request, and does not respond by itself */
    teffi_call *call; /* that request's */
} t;

static int setup(void **state)
{
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .cluster = "test", .workers = 2};
    char text[TEFF_TEXT_MAX] = "";
    memset(&t, 0, sizeof t);
    t.silo = lab_silo(&t.record, &opt);
    if (teff_silo_start(t.silo, text))
        fail_msg("start: %s", text);
    t.node = &t.silo->node;
    t.ctx = teff_silo_new_ctx(t.silo);
    t.asked = test_node_start((test_options){.heartbeat_ms = 1000});
    return 0;
}

static int teardown(void **state)
{
    teff_ctx_free(t.ctx);
    test_node_stop(t.asked);
    teff_silo_free(t.silo);
    return 0;
}

/* The silo asks the other one's store. */
static void ask(void)
{
    Teff__Cluster__StoreAsk body = TEFF__CLUSTER__STORE_ASK__INIT;
    assert_int_equal(
        t.node->home.net->ops->peer_add(t.node->home.net, t.asked->id, t.asked->address), 0);
    assert_int_equal(t.asked->net->ops->peer_add(t.asked->net, t.node->id, t.node->address), 0);
    t.call = teffi_ctx_start_rpc(t.ctx, t.asked->id, TEFFI_SLOT_STORE, 1, &body.base, 60000, NULL);
    assert_non_null(t.call);
    test_wait(t.asked, t.asked->messages == 1);
    assert_true(lab_pending(t.call));
}

/* A response to that request, as whoever has read it could make it. */
static teffi_msg *response_to(const teffi_msg *request)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_RESPONSE);
    assert_non_null(msg);
    msg->src = t.asked->id;
    msg->to.node = request->src;
    msg->call.slot = request->call.slot;
    msg->call.generation = request->call.generation;
    msg->call.cookie = request->call.cookie;
    return msg;
}

static void say(raw_peer *raw, teffi_msg *msg)
{
    uint8_t frame[256];
    size_t size, body;
    assert_int_equal(teffi_frame_compute_size_bound(msg, sizeof frame, &size, &body), TEFF_OK);
    size = teffi_frame_encode(msg, body, 0, frame);
    assert_true(raw_send(raw, frame, size));
    teffi_msg_free(msg);
}

static bool is_closed(const raw_peer *raw)
{
    uint8_t bytes[256];
    ssize_t got;
    do
        got = recv(raw->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    while (got > 0);
    return got == 0 || errno == ECONNRESET;
}

static raw_peer *joined(uint32_t id, uint32_t role)
{
    teffi_greeting g = raw_greeting(id, 1, 1);
    raw_peer *raw = raw_connect(t.node->address);
    g.hello.role = role;
    if (role == TEFFI_ROLE_CLIENT)
        g.hello.address[0] = '\0';
    assert_true(raw_join(raw, &g));
    return raw;
}

static void a_client_cannot_respond_to_a_silo(void **state)
{
    ask();
    raw_peer *raw = joined(77 | TEFFI_CLIENT_BIT, TEFFI_ROLE_CLIENT);
    say(raw, response_to(t.asked->last));
    lab_until(is_closed(raw) || !lab_pending(t.call));
    assert_true(lab_pending(t.call));
    raw_close(raw);
}

static void a_client_cannot_respond_to_another_client(void **state)
{
    raw_peer *victim = joined(78 | TEFFI_CLIENT_BIT, TEFFI_ROLE_CLIENT);
    raw_peer *raw = joined(77 | TEFFI_CLIENT_BIT, TEFFI_ROLE_CLIENT);
    teffi_msg *request = teffi_msg_new(TEFFI_MSG_REQUEST), *response;
    request->src = (teffi_node_id){78 | TEFFI_CLIENT_BIT, 1};
    request->to.slot = TEFFI_SLOT_STORE; /* refused: that is what it reads, and nothing before */
    request->call.slot = 5;
    request->call.generation = 6;
    say(raw, response_to(request));
    uint8_t kind = 0;
    uint64_t spent = 0;
    while (!is_closed(raw) && recv(victim->fd, &kind, 1, MSG_PEEK | MSG_DONTWAIT) < 1)
        assert_true(lab_pause(&spent));
    say(victim, request);
    assert_int_equal(raw_read(victim), TEFFI_MSG_RESPONSE);
    teffi_frame frame = {victim->frame[0], victim->frame, victim->frame_len};
    assert_int_equal(teffi_frame_decode(&frame, NULL, 0, &response), TEFF_OK);
    assert_int_equal(response->err, TEFF_E_REFUSED);
    teffi_msg_free(response);
    raw_close(raw);
    raw_close(victim);
}

static size_t clients_known(void)
{
    teffi_link *link = (teffi_link *)t.node->home.net;
    pthread_mutex_lock(&t.silo->lock);
    size_t n = t.silo->n_clients;
    pthread_mutex_unlock(&t.silo->lock);
    pthread_mutex_lock(&link->conns.lock);
    n += link->peers.n > 1 ? link->peers.n - 1 : 0; /* but for another silo */
    pthread_mutex_unlock(&link->conns.lock);
    return n;
}

/* out: x, of x * odd == y. */
static uint64_t divided(uint64_t y, uint64_t odd)
{
    uint64_t inverse = odd;
    for (int i = 0; i < 5; i++) /* each doubles the bits that are right */
        inverse *= 2 - odd * inverse;
    return y * inverse;
}

static uint64_t unshifted(uint64_t y, unsigned n)
{
    uint64_t x = y;
    for (unsigned i = n; i < 64; i += n)
        x = y ^ x >> n;
    return x;
}

/* teffi_mix64 backwards. */
static uint64_t unmixed(uint64_t y)
{
    y = divided(unshifted(y, 31), 0x94d049bb133111ebu);
    y = divided(unshifted(y, 27), 0xbf58476d1ce4e5b9u);
    return unshifted(y, 30);
}

/* A client whose id is as the silo's in all bits that a pending call keeps of it. */
static uint32_t colliding_node(teffi_node_id silo, uint32_t *incarnation)
{
    uint64_t low = teffi_mix64(teffi_node_to_word(silo)) & UINT32_MAX, word = 0;
    for (uint64_t high = 1; !(word >> 63); high++)
        word = unmixed(high << 32 | low);
    assert_true((teffi_mix64(word) & UINT32_MAX) == low);
    *incarnation = (uint32_t)word;
    return (uint32_t)(word >> 32);
}

static void a_client_that_goes_takes_no_calls_to_silos_along(void **state)
{
    ask();
    teffi_greeting g = raw_greeting(0, 0, 1);
    raw_peer *raw = raw_connect(t.node->address);
    g.hello.role = TEFFI_ROLE_CLIENT;
    g.hello.address[0] = '\0';
    g.hello.node.silo = colliding_node(t.asked->id, &g.hello.node.incarnation);
    assert_true(raw_join(raw, &g));
    lab_until(clients_known() > 0);
    raw_close(raw);
    lab_until(clients_known() == 0);
    assert_true(lab_pending(t.call));
}

static void a_silo_that_was_not_asked_cannot_respond(void **state)
{
    ask();
    raw_peer *raw = joined(901, TEFFI_ROLE_SILO);
    uint64_t dropped = t.node->dropped;
    say(raw, response_to(t.asked->last));
    lab_until(t.node->dropped > dropped || !lab_pending(t.call));
    assert_true(lab_pending(t.call));
    raw_close(raw);
}

static void the_silo_that_was_asked_responds(void **state)
{
    ask();
    teffi_msg *response = response_to(t.asked->last);
    assert_int_equal(t.asked->net->ops->send(t.asked->net, t.node->id, response), TEFF_OK);
    assert_int_equal(teffi_ctx_await_call(t.ctx, t.call, NULL), TEFF_OK);
}

static void a_response_without_the_cookie_does_not_count(void **state)
{
    ask();
    uint64_t dropped = t.node->dropped;
    teffi_msg *response = response_to(t.asked->last);
    for (unsigned bit = 0; bit <= 64; bit++) {
        teffi_msg *guess = response_to(t.asked->last);
        guess->call.cookie = bit < 64 ? guess->call.cookie ^ 1ull << bit : 0;
        assert_int_equal(t.asked->net->ops->send(t.asked->net, t.node->id, guess), TEFF_OK);
    }
    lab_until(t.node->dropped == dropped + 65 || !lab_pending(t.call));
    assert_true(lab_pending(t.call));
    assert_int_equal(t.asked->net->ops->send(t.asked->net, t.node->id, response), TEFF_OK);
    assert_int_equal(teffi_ctx_await_call(t.ctx, t.call, NULL), TEFF_OK);
}

static const teffi_node_id other = {903, 1};

/* A call of a grain, as if a node had sent it to another one. out: a response to it. */
static teffi_msg *response_of_grain(teff_ctx *ctx, teffi_node_id to, teffi_call **call)
{
    teffi_node *node = ctx->node;
    teffi_msg *request = teffi_msg_new(TEFFI_MSG_REQUEST);
    *call = teffi_ctx_call_new(ctx, teffi_now(node->platform) + 60000 * 1000000ull);
    request->src = node->id;
    request->call.slot = (*call)->slot;
    request->call.generation = (*call)->generation;
    teffi_call_sign_request(&node->home, request);
    teffi_call_set_sent_to(&node->home, request->call.slot, request->call.generation, to);
    teffi_msg *response = response_to(request);
    teffi_msg_free(request);
    return response;
}

static void a_silo_that_was_not_asked_cannot_respond_for_a_grain(void **state)
{
    raw_peer *raw = joined(other.silo, TEFFI_ROLE_SILO);
    uint64_t dropped = t.node->dropped;
    say(raw, response_of_grain(t.ctx, t.asked->id, &t.call));
    lab_until(t.node->dropped > dropped || !lab_pending(t.call));
    assert_true(lab_pending(t.call));
    raw_close(raw);
}

/* Though it brings a call's cookie: nobody ends that call but who was asked. */
static void a_request_is_of_who_sends_it(void **state)
{
    raw_peer *raw = joined(other.silo, TEFFI_ROLE_SILO);
    teffi_msg *response = response_of_grain(t.ctx, t.asked->id, &t.call);
    teffi_msg *request = teffi_msg_new(TEFFI_MSG_REQUEST);
    request->src = t.node->id;
    request->type_id = 77; /* hosted nowhere: the silo would end the call itself */
    request->key = (const uint8_t *)"k";
    request->key_len = 1;
    request->call.slot = response->call.slot;
    request->call.generation = response->call.generation;
    request->call.cookie = response->call.cookie;
    teffi_msg_free(response);
    uint64_t dropped = t.node->dropped; /* the response finds nobody at the peer's address */
    say(raw, request);
    lab_until(t.node->dropped > dropped || !lab_pending(t.call));
    assert_true(lab_pending(t.call));
    raw_close(raw);
}

/* The gateway could not wait for all that it was asked. */
static void a_goodbye_ends_what_the_gateway_has_not_responded_to(void **state)
{
    teff_client_options opt = {
        .size = sizeof opt, .cluster = "test", .gateways = {t.asked->address}};
    teff_client *client;
    assert_int_equal(teff_client_connect(&opt, &client, NULL), TEFF_OK);
    teff_ctx *ctx = teff_client_new_ctx(client);
    teffi_call *call;
    teffi_msg_free(response_of_grain(ctx, t.asked->id, &call));
    assert_null(test_shutdown(t.asked));
    lab_fails(ctx, teffi_ctx_await_call(ctx, call, NULL), TEFF_E_UNREACHABLE);
    teff_ctx_free(ctx);
    teff_client_free(client);
}

static void only_its_gateway_responds_to_a_client(void **state)
{
    teff_client_options opt = {
        .size = sizeof opt, .cluster = "test", .gateways = {t.node->address}};
    teff_client *client;
    assert_int_equal(teff_client_connect(&opt, &client, NULL), TEFF_OK);
    teff_ctx *ctx = teff_client_new_ctx(client);
    teffi_call *call, *second;
    teffi_msg *response = response_of_grain(ctx, t.node->id, &call);
    teffi_msg *again = response_of_grain(ctx, t.node->id, &second);
    teffi_hello stranger = {.node = other, .role = TEFFI_ROLE_SILO};
    teffi_hello gateway = {.node = t.node->id, .role = TEFFI_ROLE_SILO};
    teffi_node_net_events.message(&client->node, &stranger, response);
    teffi_node_net_events.message(&client->node, &gateway, again);
    assert_true(lab_pending(call));
    assert_int_equal(teffi_ctx_await_call(ctx, second, NULL), TEFF_OK);
    teff_ctx_free(ctx);
    teff_client_free(client);
}

static void a_silo_with_the_id_of_another_address_is_refused(void **state)
{
    teffi_greeting g = raw_greeting(t.node->id.silo, t.node->id.incarnation + 1, 1);
    raw_peer *raw = raw_connect(t.node->address);
    assert_false(raw_join(raw, &g));
    assert_true(raw_refused(raw, g.hello.address));
    assert_true(raw_refused(raw, t.node->address));
    raw_close(raw);
}

static void nothing_is_kept_of_clients_that_are_gone(void **state)
{
    for (uint32_t i = 0; i < 300; i++) {
        raw_peer *raw = joined((1000 + i) | TEFFI_CLIENT_BIT, TEFFI_ROLE_CLIENT);
        teffi_msg *request = teffi_msg_new(TEFFI_MSG_REQUEST);
        request->type_id = 77;
        request->key = (const uint8_t *)"k";
        request->key_len = 1;
        request->call.slot = 1;
        say(raw, request);
        assert_int_equal(raw_read(raw), TEFFI_MSG_RESPONSE);
        raw_close(raw);
    }
    lab_until(clients_known() == 0);
}

/* ---- system targets ---- */

static teffi_node fresh;

static void handle_nothing(teffi_node *node, teffi_msg *msg)
{
}

static void take_the_slot_of_grains(void)
{
    teffi_node_set_target(&fresh, TEFFI_SLOT_GRAIN, handle_nothing);
}

static void take_a_slot_that_is_none(void)
{
    teffi_node_set_target(&fresh, TEFFI_SLOT_SYSTEM_END, handle_nothing);
}

static void take_a_slot_twice(void)
{
    fresh.targets[TEFFI_SLOT_STORE].handle = handle_nothing;
    teffi_node_set_target(&fresh, TEFFI_SLOT_STORE, handle_nothing);
}

static void a_target_has_a_slot_of_its_own(void **state)
{
    assert_true(dies_with(take_the_slot_of_grains, "node.c"));
    assert_true(dies_with(take_a_slot_that_is_none, "node.c"));
    assert_true(dies_with(take_a_slot_twice, "node.c"));
}

#define ROW(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_target_has_a_slot_of_its_own), /* first: it forks */
        ROW(a_client_cannot_respond_to_a_silo),
        ROW(a_client_cannot_respond_to_another_client),
        ROW(a_client_that_goes_takes_no_calls_to_silos_along),
        ROW(a_silo_that_was_not_asked_cannot_respond),
        ROW(the_silo_that_was_asked_responds),
        ROW(a_response_without_the_cookie_does_not_count),
        ROW(a_silo_that_was_not_asked_cannot_respond_for_a_grain),
        ROW(a_request_is_of_who_sends_it),
        ROW(a_goodbye_ends_what_the_gateway_has_not_responded_to),
        ROW(only_its_gateway_responds_to_a_client),
        ROW(nothing_is_kept_of_clients_that_are_gone),
        ROW(a_silo_with_the_id_of_another_address_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
