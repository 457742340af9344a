/* test_notices.c - a silo as a gateway of observers: what it passes on to clients, what it takes
 * from them, and that nobody can forge the rest. */
#include "room.h"

static const teffi_pid notifier = {{77, 1}, 20, 3}; /* of the peer */

static teffi_notice_head sealed_head(teffi_node_id client)
{
    teffi_notice_head head = {.observer = 5,
                              .notifier = teffi_node_to_word(notifier.node),
                              .slot = notifier.slot,
                              .generation = notifier.generation,
                              .index = 2,
                              .subscription = 9};
    assert_true(teffi_seal_make(grains.seal_key, client, head.seal));
    return head;
}

static void deliver(teffi_node_id from, const teffi_notice_head *head, uint32_t type_id,
                    uint32_t method_id)
{
    teffi_msg *msg =
        teffi_notice_new(from, bare_self, head, type_id, method_id, (const uint8_t *)"body", 4);
    assert_non_null(msg);
    teffi_node_deliver(&node, msg);
    run_groups();
}

static void notify(const teffi_notice_head *head)
{
    deliver(bare_peer, head, 44, 45);
}

static void is_bounce(const kept_notice *k, teff_drop_reason why)
{
    teffi_notice_head head = head_of(k);
    assert_true(teffi_node_equals(k->to, notifier.node));
    assert_int_equal(k->slot, TEFFI_SLOT_OBSERVER);
    assert_int_equal(k->type_id, 0);
    assert_int_equal(k->method_id, why);
    assert_int_equal(k->raw_len, 0);
    assert_int_equal(head.slot, notifier.slot);
    assert_int_equal(head.generation, notifier.generation);
    assert_int_equal(head.index, 2);
    assert_int_equal(head.subscription, 9);
}

/* ---- to the client ---- */

static void a_notification_goes_to_the_sealed_client(void **state)
{
    teffi_notice_head head = sealed_head(some_client);
    notify(&head);
    const kept_notice *k = last_of(1);
    teffi_notice_head tagged = head_of(k);
    assert_true(teffi_node_equals(k->to, some_client));
    assert_int_equal(k->slot, TEFFI_SLOT_OBSERVER);
    assert_int_equal(k->type_id, 44);
    assert_int_equal(k->method_id, 45);
    assert_int_equal(k->raw_len, 4);
    assert_false(k->system);
    assert_memory_not_equal(tagged.seal, head.seal, sizeof head.seal);
    memcpy(tagged.seal, head.seal, sizeof head.seal);
    assert_memory_equal(&tagged, &head, sizeof head);
    deliver(bare_peer, &head, 44, 0); /* a drop */
    assert_true(last_of(2)->system);
    assert_int_equal(node.dropped, 0);
}

static void a_notification_that_cannot_be_delivered_bounces(void **state)
{
    static const struct {
        teff_err err;
        teff_drop_reason why;
    } rows[] = {{TEFF_E_CLOSED, TEFF_DROPPED_GONE},
                {TEFF_E_UNREACHABLE, TEFF_DROPPED_GONE},
                {TEFF_E_OVERLOADED, TEFF_DROPPED_SLOW},
                {TEFF_E_TOO_LARGE, TEFF_DROPPED_SLOW},
                {TEFF_E_NOMEM, TEFF_DROPPED_SLOW}};
    teffi_notice_head head = sealed_head(some_client), no_set = head;
    for (int i = 0; i < 5; i++) {
        sent.refuse_next = rows[i].err;
        notify(&head);
        is_bounce(last_of(i + 1), rows[i].why);
    }
    no_set.slot = 0;
    sent.refuse_next = TEFF_E_CLOSED;
    notify(&no_set);
    sent.refuse_next = TEFF_E_CLOSED;
    deliver(bare_peer, &head, 44, 0); /* a drop */
    assert_int_equal(n_kept, 5);
    assert_int_equal(node.dropped, 7);
}

static void a_full_silo_passes_drops_but_no_notifications(void **state)
{
    teffi_notice_head head = sealed_head(some_client);
    int64_t most = (int64_t)node.budget->max_bytes + 1;
    teffi_budget_add(node.budget, most);
    notify(&head);
    is_bounce(last_of(1), TEFF_DROPPED_SLOW);
    deliver(bare_peer, &head, 44, 0);
    assert_true(teffi_node_equals(last_of(2)->to, some_client));
    teffi_budget_add(node.budget, -most);
}

static void seals_of_others_are_refused(void **state)
{
    teffi_notice_head head = sealed_head(some_client);
    head.seal[3] ^= 1;
    notify(&head);
    is_bounce(last_of(1), TEFF_DROPPED_GONE);
    head = sealed_head(bare_peer); /* no client */
    notify(&head);
    is_bounce(last_of(2), TEFF_DROPPED_GONE);
}

/* Only silos of the view and this silo itself notify. */
static void strangers_and_clients_do_not_notify(void **state)
{
    teffi_notice_head head = sealed_head(some_client);
    deliver(bare_other, &head, 44, 45);
    deliver(other_client, &head, 44, 45);
    assert_int_equal(n_kept, 0);
    assert_int_equal(node.dropped, 2);
    deliver(bare_self, &head, 44, 45);
    assert_int_equal(n_kept, 1);
}

static void malformed_messages_are_dropped(void **state)
{
    teffi_notice_head head = sealed_head(some_client);
    for (uint32_t len = 0; len < 80; len++) {
        teffi_msg *msg = teffi_notice_new(bare_peer, bare_self, &head, 44, 45, NULL, 0);
        uint8_t key[80] = {0};
        memcpy(key, &head, sizeof head);
        msg->key = key;
        msg->key_len = len;
        if (len != sizeof head)
            teffi_node_deliver(&node, msg);
        else
            teffi_msg_free(msg);
    }
    head.zero = 1;
    notify(&head);
    deliver(some_client, &head, 0, TEFF_DROPPED_SLOW);
    assert_int_equal(n_kept, 0);
    assert_int_equal(node.dropped, 81);
}

/* ---- seals ---- */

static void ask_for_seal(teffi_node_id from, uint32_t method_id)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST);
    msg->src = from;
    msg->to = (teffi_pid){.node = bare_self, .slot = TEFFI_SLOT_OBSERVER};
    msg->method_id = method_id;
    teffi_node_deliver(&node, msg);
}

static void a_client_gets_a_seal_of_its_own_id(void **state)
{
    teffi_node_id opened;
    ask_for_seal(some_client, TEFFI_SEAL);
    assert_int_equal(sent.err, TEFF_OK);
    assert_true(teffi_node_equals(sent.to, some_client));
    Teff__Cluster__Sealed *r = teff__cluster__sealed__unpack(NULL, sent.raw_len, sent.raw);
    assert_non_null(r);
    assert_int_equal(r->seal.len, TEFFI_SEAL_BYTES);
    assert_true(teffi_seal_open(grains.seal_key, r->seal.data, &opened));
    assert_true(teffi_node_equals(opened, some_client));
    teff__cluster__sealed__free_unpacked(r, NULL);
    ask_for_seal(bare_peer, TEFFI_SEAL);
    assert_int_equal(sent.err, TEFF_E_NOT_FOUND);
    ask_for_seal(some_client, TEFFI_SEAL + 1);
    assert_int_equal(sent.err, TEFF_E_NOT_FOUND);
}

/* ---- bounces ---- */

/* out: the head as the client has received it. */
static teffi_notice_head received_head(void)
{
    teffi_notice_head head = sealed_head(some_client);
    n_kept = 0;
    notify(&head);
    return head_of(last_of(1));
}

static void a_client_bounces_what_it_has_received(void **state)
{
    teffi_notice_head head = received_head();
    deliver(some_client, &head, 0, TEFF_DROPPED_SLOW);
    const kept_notice *k = last_of(2);
    assert_true(teffi_node_equals(k->to, notifier.node));
    assert_int_equal(k->method_id, TEFF_DROPPED_SLOW);
    assert_int_equal(head_of(k).subscription, 9);
}

/* Another client, and each byte of the head. */
static void a_client_cannot_forge_bounces(void **state)
{
    teffi_notice_head head = received_head();
    uint64_t dropped = node.dropped;
    deliver(other_client, &head, 0, TEFF_DROPPED_GONE);
    for (size_t i = 0; i < sizeof head; i++) {
        teffi_notice_head forged = head;
        ((uint8_t *)&forged)[i] ^= 0x10;
        deliver(some_client, &forged, 0, TEFF_DROPPED_GONE);
    }
    assert_int_equal(n_kept, 1);
    assert_int_equal(node.dropped - dropped, 1 + sizeof head);
}

static void a_bounce_never_goes_to_a_client(void **state)
{
    teffi_notice_head head = sealed_head(some_client);
    head.notifier = teffi_node_to_word(other_client);
    notify(&head);
    head = head_of(last_of(1));
    deliver(some_client, &head, 0, TEFF_DROPPED_GONE);
    assert_int_equal(n_kept, 1);
}

/* A silo's bounce is for an activation here; slots that nobody has do no harm. */
static void bounces_of_silos_are_for_this_silo(void **state)
{
    static const uint32_t slots[] = {1, 15, 16, 17, 1000, 0x7fffffff, 0x80000010, UINT32_MAX};
    teffi_notice_head head = sealed_head(some_client);
    deliver(bare_peer, &head, 0, TEFF_DROPPED_SLOW);
    assert_int_equal(node.dropped, 1);
    head.notifier = teffi_node_to_word(bare_self);
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        head.slot = slots[i];
        deliver(bare_peer, &head, 0, TEFF_DROPPED_SLOW);
    }
    assert_int_equal(n_kept, 0);
}

/* ---- not sent ---- */

static void what_was_not_sent_bounces(void **state)
{
    teffi_notice_head head = sealed_head(some_client);
    assert_int_equal(run_with(subscribes, 0, far_ref(1)), TEFF_OK);
    run(notifies, 1);
    head = head_of(last_of(1));
    teffi_msg *msg = teffi_notice_new(bare_self, bare_peer, &head, 44, 45, NULL, 0);
    teffi_notices_handle(&node, msg, true);
    run_groups();
    assert_int_equal(count(), 0);
    msg = teffi_notice_new(bare_self, bare_peer, &head, 0, TEFF_DROPPED_SLOW, NULL, 0);
    teffi_notices_handle(&node, msg, true);
    assert_int_equal(n_kept, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_room, close_room)
        CASE(a_notification_goes_to_the_sealed_client),
        CASE(a_notification_that_cannot_be_delivered_bounces),
        CASE(a_full_silo_passes_drops_but_no_notifications),
        CASE(seals_of_others_are_refused),
        CASE(strangers_and_clients_do_not_notify),
        CASE(malformed_messages_are_dropped),
        CASE(a_client_gets_a_seal_of_its_own_id),
        CASE(a_client_bounces_what_it_has_received),
        CASE(a_client_cannot_forge_bounces),
        CASE(a_bounce_never_goes_to_a_client),
        CASE(bounces_of_silos_are_for_this_silo),
        CASE(what_was_not_sent_bounces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
