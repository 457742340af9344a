/* test_link_pair.c - the two connections between a pair of silos break together: a response on the
 * one may be lost to what was asked on the other. */
#include "net_test.h"

#include <sys/socket.h>
#include "link/link.h"
#include "raw_peer.h"

enum { SILO = 70 };

/* A link, and a silo made of sockets that it is connected to both ways. */
typedef struct pair {
    test_node *link;
    raw_peer *listener, *asks, *asked; /* asks: the silo dialled it; asked: the link did */
    teffi_greeting greeting;
} pair;

static void know(pair *p)
{
    char address[32];
    p->greeting = raw_greeting(SILO, 1, 1);
    p->listener = raw_listen(address);
    assert_int_equal(p->link->net->ops->peer_add(p->link->net, p->greeting.hello.node, address),
                     TEFF_OK);
}

static raw_peer *join(pair *p)
{
    raw_peer *asks = raw_connect(p->link->address);
    assert_true(raw_join(asks, &p->greeting));
    p->greeting.sequence++;
    return asks;
}

static bool send_request(pair *p)
{
    teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, 1, 1);
    bool sent = p->link->net->ops->send(p->link->net, p->greeting.hello.node, msg) == TEFF_OK;
    if (!sent)
        teffi_msg_free(msg);
    return sent;
}

static void be_asked(pair *p)
{
    /* refused until the link has seen the end of the connection before */
    for (uint64_t limit = test_deadline(); !send_request(p);)
        assert_true(test_now() < limit);
    p->asked = raw_accept(p->listener, &p->greeting);
    assert_non_null(p->asked);
    assert_int_equal(raw_read(p->asked), TEFFI_MSG_REQUEST);
}

static int set_up(void **state)
{
    static pair p;
    p = (pair){.link = test_node_start((test_options){0})};
    know(&p);
    p.asks = join(&p);
    test_wait(p.link, p.link->ups == 1);
    be_asked(&p);
    test_wait(p.link, p.link->ups == 2);
    *state = &p;
    return 0;
}

static int tear_down(void **state)
{
    pair *p = *state;
    raw_close(p->asks);
    raw_close(p->asked);
    raw_close(p->listener);
    test_node_stop(p->link);
    return 0;
}

static void both_break_when_the_one_with_responses_does(void **state)
{
    pair *p = *state;
    shutdown(p->asks->fd, SHUT_RDWR);
    assert_true(raw_ended(p->asked));
    test_wait(p->link, p->link->downs == 2);
    assert_int_equal(p->link->downs_clean, 0);
}

static void both_break_when_the_one_with_questions_does(void **state)
{
    pair *p = *state;
    shutdown(p->asked->fd, SHUT_RDWR);
    assert_true(raw_ended(p->asks));
    test_wait(p->link, p->link->downs == 2);
    assert_int_equal(p->link->downs_clean, 0);
}

/* The silo has noticed a break that the link has not. What is new stays. */
static void a_new_connection_for_an_old_one_breaks_both_old_ones(void **state)
{
    pair *p = *state;
    raw_peer *newer = join(p);
    assert_true(raw_ended(p->asks));
    assert_true(raw_ended(p->asked));
    test_wait(p->link, p->link->downs == 2);
    raw_close(p->asks);
    raw_close(p->asked);
    p->asks = newer;
    be_asked(p);
    test_wait(p->link, p->link->ups == 4);
    assert_int_equal(p->link->downs, 2);
}

static void say_goodbye(pair *p)
{
    assert_true(raw_send_frame(p->asks, TEFFI_FRAME_BYE, NULL, 0));
    assert_int_equal(raw_read(p->asked), TEFFI_FRAME_BYE_ACK);
    raw_close(p->asks);
}

static bool has_accepted(test_node *node)
{
    teffi_link *link = (teffi_link *)node->net;
    pthread_mutex_lock(&link->conns.lock);
    bool some = link->conns.silos_up > 0;
    pthread_mutex_unlock(&link->conns.lock);
    return some;
}

/* The old connections end one after the other, and the silo connects again between them. */
static void a_connection_after_a_goodbye_stays(void **state)
{
    pair *p = *state;
    say_goodbye(p);
    test_wait(p->link, !has_accepted(p->link));
    p->asks = join(p);
    test_wait(p->link, p->link->ups == 3);
    raw_close(p->asked);
    be_asked(p);
    test_wait(p->link, p->link->ups == 4);
    say_goodbye(p); /* on the connection that came between them */
    assert_int_equal(p->link->downs, 0);
    p->asks = join(p);
}

static teff_err send_response(test_node *link, teffi_node_id to)
{
    teffi_msg *msg = test_message(TEFFI_MSG_RESPONSE, 1, 1);
    teff_err err = link->net->ops->send(link->net, to, msg);
    if (err)
        teffi_msg_free(msg);
    return err;
}

/* A requester must learn that no response will come: the connection of its request ends. */
static void a_requester_without_a_response_is_disconnected(void **state)
{
    char nobody[32];
    pair p = {.link = test_node_start((test_options){0}), .greeting = raw_greeting(SILO, 1, 1)};
    teffi_node_id silo = p.greeting.hello.node;
    raw_close(raw_listen(nobody));
    assert_int_equal(p.link->net->ops->peer_add(p.link->net, silo, nobody), TEFF_OK);
    p.asks = join(&p);
    test_wait(p.link, p.link->ups == 1);
    assert_int_equal(send_response(p.link, silo),
                     TEFF_OK); /* it waits for a connection to be dialled */
    assert_true(raw_ended(p.asks));
    test_wait(p.link, p.link->downs == 1 && p.link->unsent == 1);
    raw_close(p.asks);
    p.asks = join(&p);
    test_wait(p.link, p.link->ups == 2);
    (void)send_response(p.link, silo); /* the last dial failed; maybe there is another one by now */
    assert_true(raw_ended(p.asks));
    raw_close(p.asks);
    test_node_stop(p.link);
}

/* Also if the owner has not added the peer, or has removed it: it gets no response. */
static void a_requester_that_is_no_peer_is_disconnected(void **state)
{
    pair p = {.link = test_node_start((test_options){0}), .greeting = raw_greeting(SILO, 1, 1)};
    p.asks = join(&p);
    test_wait(p.link, p.link->ups == 1);
    assert_int_equal(send_response(p.link, p.greeting.hello.node), TEFF_E_CLOSED);
    assert_true(raw_ended(p.asks));
    test_wait(p.link, p.link->downs == 1);
    raw_close(p.asks);
    test_node_stop(p.link);
}

static _Atomic unsigned ups_at_down;

static void note_ups(test_node *node)
{
    ups_at_down = node->ups;
}

/* Who hears of the end later takes it for that of the new one. */
static void the_end_of_an_old_connection_is_told_before_the_new_one(void **state)
{
    teffi_greeting client = raw_greeting(77 | TEFFI_CLIENT_BIT, 1, 1);
    test_node *link = test_node_start((test_options){0});
    raw_peer *both[2];
    link->lost = note_ups;
    client.hello.role = TEFFI_ROLE_CLIENT;
    client.hello.address[0] = '\0';
    for (int i = 0; i < 2; i++, client.sequence++) {
        both[i] = raw_connect(link->address);
        assert_true(raw_join(both[i], &client));
        test_wait(link, link->ups == (unsigned)i + 1);
    }
    assert_true(raw_ended(both[0]));
    test_wait(link, link->downs == 1);
    assert_int_equal(ups_at_down, 1);
    raw_close(both[0]);
    raw_close(both[1]);
    test_wait(link, link->downs == 2);
    test_node_stop(link);
}

#define ROW(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(both_break_when_the_one_with_responses_does),
        ROW(both_break_when_the_one_with_questions_does),
        ROW(a_new_connection_for_an_old_one_breaks_both_old_ones),
        ROW(a_connection_after_a_goodbye_stays),
        cmocka_unit_test(the_end_of_an_old_connection_is_told_before_the_new_one),
        cmocka_unit_test(a_requester_without_a_response_is_disconnected),
        cmocka_unit_test(a_requester_that_is_no_peer_is_disconnected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
