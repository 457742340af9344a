/* test_link_end.c - how connections end: goodbye, break, silence, and what is lost then. */
#include "net_test.h"

#include <sched.h>
#include <string.h>
#include <time.h>

/* One thread sends until the peer is closed to it, and counts what was taken. */
typedef struct sender {
    test_node *from, *to;
    unsigned taken;
    teff_err last;
} sender;

static void *send_until_closed(void *arg)
{
    sender *s = arg;
    uint32_t slot = 1;
    do {
        teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, slot, slot % 300);
        s->last = s->from->net->ops->send(s->from->net, s->to->id, msg);
        if (s->last == TEFF_OK)
            slot++;
        else
            teffi_msg_free(msg);
    } while (s->last == TEFF_OK || s->last == TEFF_E_OVERLOADED);
    s->taken = slot - 1;
    return NULL;
}

static void goodbye_loses_nothing_under_load(void **state)
{
    test_node *a = test_node_start((test_options){.queue_max_bytes = 1 << 20});
    test_node *b = test_node_start((test_options){.queue_max_bytes = 1 << 20});
    test_know(a, b);
    test_know(b, a);
    sender ab = {.from = a, .to = b}, ba = {.from = b, .to = a};
    pthread_t ta, tb;
    pthread_create(&ta, NULL, send_until_closed, &ab);
    pthread_create(&tb, NULL, send_until_closed, &ba);
    test_wait(a, a->messages > 1000);
    test_wait(b, b->messages > 1000);
    assert_int_equal(a->net->ops->shutdown(a->net, TEST_SHUTDOWN_MS), TEFF_OK);
    pthread_join(ta, NULL);
    pthread_join(tb, NULL);
    assert_int_equal(ab.last, TEFF_E_CLOSED);
    assert_int_equal(ba.last, TEFF_E_CLOSED);
    assert_int_equal(a->messages, ba.taken); /* all of it before shutdown returned */
    test_wait(b, b->downs == 1);
    assert_int_equal(b->messages, ab.taken);
    assert_int_equal(b->downs_clean, 1);
    assert_int_equal(a->downs, 1);
    assert_int_equal(a->downs_clean, 1);
    assert_int_equal(a->disorder + b->disorder, 0);
    test_node_stop(a);
    test_node_stop(b);
}

static void both_may_leave_at_once(void **state)
{
    test_node *a = test_node_start((test_options){0}), *b = test_node_start((test_options){0});
    test_know(a, b);
    test_know(b, a);
    for (uint32_t i = 1; i <= 1000; i++) {
        test_send(a, b, i, 50);
        test_send(b, a, i, 50);
    }
    pthread_t other;
    pthread_create(&other, NULL, test_shutdown, b);
    assert_int_equal(a->net->ops->shutdown(a->net, TEST_SHUTDOWN_MS), TEFF_OK);
    void *result;
    pthread_join(other, &result);
    assert_null(result);
    assert_int_equal(a->messages, 1000);
    assert_int_equal(b->messages, 1000);
    test_node_stop(a);
    test_node_stop(b);
}

static void removing_a_peer_cleanly_delivers_what_was_taken(void **state)
{
    test_node *a = test_node_start((test_options){0}), *b = test_node_start((test_options){0});
    test_know(a, b);
    for (uint32_t i = 1; i <= 5000; i++)
        test_send(a, b, i, 50);
    a->net->ops->peer_remove(a->net, b->id, true);
    teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, 1, 1);
    assert_int_equal(a->net->ops->send(a->net, b->id, msg), TEFF_E_CLOSED);
    test_wait(b, b->downs == 1);
    assert_int_equal(b->messages, 5000);
    assert_int_equal(b->downs_clean, 1);
    test_wait(a, a->downs == 1);
    test_know(a, b); /* and it may be known again */
    assert_int_equal(a->net->ops->send(a->net, b->id, msg), TEFF_OK);
    test_wait(b, b->messages == 5001);
    test_node_stop(a);
    test_node_stop(b);
}

static teff_err send_one(test_node *from, test_node *to, uint32_t kind, uint32_t slot)
{
    teffi_msg *msg = test_message(kind, 1, 1);
    msg->to.slot = slot;
    teff_err err = from->net->ops->send(from->net, to->id, msg);
    if (err)
        teffi_msg_free(msg);
    return err;
}

/* What a thread of a sends while another one of its threads learns that b has left. */
static void *ask_until_closed(void *arg)
{
    enum { TOO_MANY = 1000000 };
    sender *s = arg;
    do {
        s->last = send_one(s->from, s->to, TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN);
        s->taken += s->last == TEFF_OK;
    } while ((s->last == TEFF_OK && s->taken < TOO_MANY) || s->last == TEFF_E_OVERLOADED);
    return NULL;
}

/* b's: what it had heard when the response came that a sent after it knew. */
static unsigned heard_before;

static void note_response(test_node *node, const teffi_msg *msg)
{
    if (msg->item.kind == TEFFI_MSG_RESPONSE)
        heard_before = node->messages;
}

static void a_peer_that_left_hears_no_request_behind_a_response(void **state)
{
    test_node *a = test_node_start((test_options){0}), *b = test_node_start((test_options){0});
    b->look = note_response;
    test_know(a, b);
    sender ab = {.from = a, .to = b};
    pthread_t asks;
    pthread_create(&asks, NULL, ask_until_closed, &ab);
    test_wait(b, b->messages > 100);
    a->net->ops->peer_left(a->net, b->id);
    assert_int_equal(send_one(a, b, TEFFI_MSG_RESPONSE, 0), TEFF_OK);
    pthread_join(asks, NULL);
    assert_int_equal(ab.last, TEFF_E_CLOSED);
    test_wait(b, b->messages == ab.taken + 1);
    assert_int_equal(heard_before, ab.taken + 1);
    assert_int_equal(send_one(a, b, TEFFI_MSG_ONEWAY, TEFFI_SLOT_GRAIN), TEFF_E_CLOSED);
    assert_int_equal(send_one(a, b, TEFFI_MSG_REQUEST, TEFFI_SLOT_STORE), TEFF_OK);
    test_wait(b, b->messages == ab.taken + 2);
    test_node_stop(a);
    test_node_stop(b);
}

/* Also on a connection that is made later. */
static void a_peer_that_left_is_not_asked_on_a_new_connection(void **state)
{
    test_node *a = test_node_start((test_options){0}), *b = test_node_start((test_options){0});
    test_know(a, b);
    a->net->ops->peer_left(a->net, b->id);
    assert_int_equal(send_one(a, b, TEFFI_MSG_RESPONSE, 0), TEFF_OK);
    test_wait(b, b->messages == 1);
    assert_int_equal(send_one(a, b, TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN), TEFF_E_CLOSED);
    test_node_stop(a);
    test_node_stop(b);
}

static void note_dial(void *arg, teff_err err, const teffi_hello *peer, const char *text)
{
    ((test_node *)arg)->dones++;
}

/* An address, not the peer, was dialled: whose it is shows later. */
static void a_peer_that_left_is_not_asked_on_a_dialled_address(void **state)
{
    test_node *a = test_node_start((test_options){0}), *b = test_node_start((test_options){0});
    test_know(a, b);
    a->net->ops->peer_left(a->net, b->id);
    a->net->ops->dial(a->net, b->address, note_dial, a);
    test_wait(a, a->dones == 1);
    assert_int_equal(send_one(a, b, TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN), TEFF_E_CLOSED);
    assert_int_equal(send_one(a, b, TEFFI_MSG_RESPONSE, 0), TEFF_OK);
    test_wait(b, b->messages == 1);
    test_node_stop(a);
    test_node_stop(b);
}

static void an_unknown_or_removed_peer_is_closed(void **state)
{
    test_node *a = test_node_start((test_options){0}), *b = test_node_start((test_options){0});
    teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, 1, 1);
    assert_int_equal(a->net->ops->send(a->net, b->id, msg), TEFF_E_CLOSED);
    test_know(a, b);
    test_send(a, b, 1, 1);
    test_wait(b, b->messages == 1);
    a->net->ops->peer_remove(a->net, b->id, false);
    assert_int_equal(a->net->ops->send(a->net, b->id, msg), TEFF_E_CLOSED);
    test_wait(b, b->downs == 1);
    assert_int_equal(b->downs_clean, 0);
    teffi_msg_free(msg);
    test_node_stop(a);
    test_node_stop(b);
}

static void a_peer_that_comes_back_is_dialled_again(void **state)
{
    test_node *a = test_node_start((test_options){0});
    test_node *b = test_node_start((test_options){.silo = 50, .incarnation = 1});
    char address[TEFFI_ADDRESS_MAX + 1];
    test_know(a, b);
    test_send(a, b, 1, 10);
    test_wait(b, b->messages == 1);
    strcpy(address, b->address);
    test_node_stop(b);
    test_wait(a, a->downs == 1);
    test_wait(a, test_counters(a->net).dial_failures >= 1);
    /* The same start at the same address, as after a network break. */
    b = test_node_start((test_options){.silo = 50, .incarnation = 1, .listen = address});
    test_send(a, b, 2, 10);
    test_wait(b, b->messages == 1);
    test_wait(a, a->ups == 2);
    assert_int_equal(a->sent, 2);
    test_node_stop(a);
    test_node_stop(b);
}

/* Nothing of them was sent: the owner gets them back, and hears of no connection that broke. */
static void messages_for_a_peer_that_is_not_there_come_back(void **state)
{
    test_node *a = test_node_start((test_options){0}), *b = test_node_start((test_options){0});
    test_know(a, b);
    teffi_node_id gone = b->id;
    test_node_stop(b);
    pthread_mutex_lock(&a->lock); /* what fails may be told after the last was taken only */
    static const uint32_t kinds[] = {TEFFI_MSG_REQUEST, TEFFI_MSG_ONEWAY, TEFFI_MSG_RESPONSE};
    unsigned taken = 0;
    for (uint32_t i = 0; i < 30; i++) {
        teffi_msg *msg = test_message(kinds[i % 3], i + 1, i == 7 ? 100000 : i);
        teff_err err = a->net->ops->send(a->net, gone, msg);
        taken += !err;
        assert_true(!err || err == TEFF_E_UNREACHABLE); /* the dial has failed already */
        if (err)
            teffi_msg_free(msg);
    }
    pthread_mutex_unlock(&a->lock);
    assert_true(taken >= 1);
    test_wait(a, a->unsent >= taken);
    assert_int_equal(a->checked_unsent, a->unsent);
    assert_int_equal(a->ups + a->downs + a->sent, 0);
    assert_true(teffi_node_equals(test_last_peer(a).node, gone));
    teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, 2, 1);
    teff_err err = a->net->ops->send(a->net, gone, msg);
    assert_true(err == TEFF_E_UNREACHABLE || err == TEFF_OK); /* OK while a redial is under way */
    if (err)
        teffi_msg_free(msg);
    test_node_stop(a);
}

static void a_full_queue_refuses_requests_before_responses(void **state)
{
    test_node *a = test_node_start((test_options){.queue_max_bytes = 100000});
    test_node *b = test_node_start((test_options){0});
    unsigned taken = 0;
    teff_err err;
    test_know(a, b);
    b->hold = true;
    do {
        teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, ++taken, 10000);
        err = a->net->ops->send(a->net, b->id, msg);
        if (err)
            teffi_msg_free(msg);
    } while (!err && taken < 100000);
    assert_int_equal(err, TEFF_E_OVERLOADED);
    teffi_msg *response = test_message(TEFFI_MSG_RESPONSE, taken, 10000);
    assert_int_equal(a->net->ops->send(a->net, b->id, response), TEFF_OK);
    pthread_mutex_lock(&b->lock);
    b->hold = false;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    test_wait(b, b->messages == taken);
    assert_int_equal(b->disorder, 0);
    test_node_stop(a);
    test_node_stop(b);
}

/* out: how many messages were taken until one was refused. */
static unsigned fill(test_node *a, test_node *b, uint32_t kind, bool system, uint32_t *slot)
{
    unsigned taken = 0;
    for (teff_err err = TEFF_OK; !err; taken++) {
        teffi_msg *msg = test_message(kind, ++*slot, 10000);
        msg->system = system;
        err = a->net->ops->send(a->net, b->id, msg);
        assert_true(!err || err == TEFF_E_OVERLOADED);
        if (err)
            teffi_msg_free(msg);
    }
    --*slot;
    return taken - 1;
}

/* Whatever users have waiting for a silo: its cluster's own messages are taken, up to a limit. */
static void a_full_queue_takes_what_the_cluster_says(void **state)
{
    test_node *a = test_node_start((test_options){.queue_max_bytes = 100000});
    test_node *b = test_node_start((test_options){0});
    uint32_t slot = 0;
    test_know(a, b);
    b->hold = true;
    /* The kernel may take bytes out of the queue between two fills, until its buffers are full. */
    do
        (void)fill(a, b, TEFFI_MSG_REQUEST, false, &slot);
    while (fill(a, b, TEFFI_MSG_RESPONSE, false, &slot));
    assert_true(fill(a, b, TEFFI_MSG_REQUEST, true, &slot) >= 10);
    while (fill(a, b, TEFFI_MSG_RESPONSE, false, &slot))
        (void)fill(a, b, TEFFI_MSG_REQUEST, true, &slot);
    pthread_mutex_lock(&b->lock);
    b->hold = false;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    test_wait(b, b->messages == slot);
    assert_int_equal(b->disorder, 0);
    test_node_stop(a);
    test_node_stop(b);
}

static void big_messages_pass_up_to_the_limit(void **state)
{
    test_node *a = test_node_start((test_options){.frame_max_bytes = 300000});
    test_node *b = test_node_start((test_options){.frame_max_bytes = 300000});
    test_know(a, b);
    for (uint32_t i = 1; i <= 50; i++)
        test_send(a, b, i, i % 3 ? 299000 : 10);
    test_wait(b, b->messages == 50);
    assert_int_equal(b->disorder, 0);
    teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, 1, 300000);
    assert_int_equal(a->net->ops->send(a->net, b->id, msg), TEFF_E_TOO_LARGE);
    teffi_msg_free(msg);
    test_node_stop(a);
    test_node_stop(b);
}

static void a_busy_owner_is_no_silent_peer(void **state)
{
    enum { BEAT_MS = 100, BEATS = 8 }; /* a silent one is borne for five */
    test_clock_hold();
    test_node *a = test_node_start((test_options){.heartbeat_ms = BEAT_MS});
    test_node *b = test_node_start((test_options){.heartbeat_ms = BEAT_MS, .workers = 2});
    test_know(a, b);
    test_send(a, b, 1, 1);
    test_wait(b, b->messages == 1);
    b->hold = true;
    test_send(a, b, 2, 1);
    for (int i = 0; i < BEATS; i++) {
        uint64_t seen = test_counters(a->net).bytes_in;
        test_clock_move(BEAT_MS * 3 / 2);
        test_wait(a, test_counters(a->net).bytes_in > seen); /* b's beat */
    }
    pthread_mutex_lock(&b->lock);
    b->hold = false;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    test_wait(b, b->messages == 2);
    assert_int_equal(a->downs + b->downs, 0);
    test_clock_release();
    test_node_stop(a);
    test_node_stop(b);
}

/* Far more time than a silent peer is borne passes at once, as when the machine was suspended; the
 * beats of both sides come afterwards. */
static void a_stall_of_all_breaks_nothing(void **state)
{
    enum { BEAT_MS = 100 };
    static const uint32_t moves[] = {BEAT_MS * 20, BEAT_MS * 3 / 2, BEAT_MS * 100, BEAT_MS * 3 / 2};
    test_clock_hold();
    test_node *a = test_node_start((test_options){.heartbeat_ms = BEAT_MS});
    test_node *b = test_node_start((test_options){.heartbeat_ms = BEAT_MS});
    test_know(a, b);
    test_send(a, b, 1, 1);
    test_wait(b, b->messages == 1);
    for (size_t i = 0; i < sizeof moves / sizeof moves[0]; i++) {
        uint64_t seen_a = test_counters(a->net).bytes_in, seen_b = test_counters(b->net).bytes_in;
        test_clock_move(moves[i]);
        test_wait(a, test_counters(a->net).bytes_in > seen_a);
        test_wait(b, test_counters(b->net).bytes_in > seen_b);
    }
    assert_int_equal(a->downs + b->downs, 0);
    test_clock_release();
    test_node_stop(a);
    test_node_stop(b);
}

/* nng's reaper closes what is freed on a thread of its own, and a thread that was joined may take
 * a moment to be gone; out: false: not within a minute. */
static bool falls_to(unsigned (*count)(void), unsigned most)
{
    time_t deadline = time(NULL) + 60;
    while (count() > most && time(NULL) < deadline)
        sched_yield();
    return count() <= most;
}

static void a_thousand_links_leave_nothing_behind(void **state)
{
    unsigned fds = 0, threads = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        test_node *a = test_node_start((test_options){0}), *b = test_node_start((test_options){0});
        test_know(a, b);
        test_send(a, b, 1, 10);
        if (i % 3 == 0)
            test_wait(b, b->messages == 1);
        if (i % 3 == 1)
            assert_int_equal(a->net->ops->shutdown(a->net, TEST_SHUTDOWN_MS), TEFF_OK);
        test_node_stop(i % 2 ? a : b);
        test_node_stop(i % 2 ? b : a);
        if (i == 10) {
            fds = test_fds();
            threads = test_threads();
        }
    }
    assert_true(falls_to(test_fds, fds + 2));
    assert_true(falls_to(test_threads, threads));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goodbye_loses_nothing_under_load),
        cmocka_unit_test(both_may_leave_at_once),
        cmocka_unit_test(removing_a_peer_cleanly_delivers_what_was_taken),
        cmocka_unit_test(a_peer_that_left_hears_no_request_behind_a_response),
        cmocka_unit_test(a_peer_that_left_is_not_asked_on_a_new_connection),
        cmocka_unit_test(a_peer_that_left_is_not_asked_on_a_dialled_address),
        cmocka_unit_test(an_unknown_or_removed_peer_is_closed),
        cmocka_unit_test(a_peer_that_comes_back_is_dialled_again),
        cmocka_unit_test(messages_for_a_peer_that_is_not_there_come_back),
        cmocka_unit_test(a_full_queue_refuses_requests_before_responses),
        cmocka_unit_test(a_full_queue_takes_what_the_cluster_says),
        cmocka_unit_test(big_messages_pass_up_to_the_limit),
        cmocka_unit_test(a_busy_owner_is_no_silent_peer),
        cmocka_unit_test(a_stall_of_all_breaks_nothing),
        cmocka_unit_test(a_thousand_links_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
