/* test_observers.c - the observers of an activation, millisecond by millisecond: who is in the set,
 * when observers expire, who is dropped and told. */
#include "room.h"

/* ---- subscribing ---- */

static teff_err unsubscribes(chat_room *self, const chat_script *in, chat_number *out)
{
    return chat_listener_unsubscribe(self->ctx, in->listener) ? TEFF_OK : TEFF_E_NOT_FOUND;
}

static void a_set_has_each_observer_once(void **state)
{
    assert_int_equal(run_with(subscribes, 0, far_ref(1)), TEFF_OK);
    assert_int_equal(run_with(subscribes, 0, far_ref(2)), TEFF_OK);
    assert_int_equal(run_with(subscribes, 0, far_ref(1)), TEFF_OK);
    assert_int_equal(count(), 2);
    assert_int_equal(run_with(unsubscribes, 0, far_ref(1)), TEFF_OK);
    assert_int_equal(run_with(unsubscribes, 0, far_ref(1)), TEFF_E_NOT_FOUND);
    assert_int_equal(count(), 1);
    assert_int_equal(run_with(unsubscribes, 0, far_ref(2)), TEFF_OK);
    assert_null(act->more); /* freed with its last observer */
    assert_int_equal(n_kept, 0);
}

static void a_notification_names_its_subscription(void **state)
{
    run_with(subscribes, 0, far_ref(11));
    run_with(subscribes, 0, far_ref(12));
    assert_int_equal(run(notifies, 77), TEFF_OK);
    assert_int_equal(n_kept, 2);
    for (int i = 0; i < 2; i++) {
        const kept_notice *k = &kept[i];
        teffi_notice_head head = head_of(k);
        chat_line *line = chat__line__unpack(NULL, k->raw_len, k->raw);
        assert_true(teffi_node_equals(k->to, bare_peer));
        assert_int_equal(k->slot, TEFFI_SLOT_OBSERVER);
        assert_int_equal(k->type_id, chat_listener_info.type.id);
        assert_false(k->system);
        assert_int_equal(line->n, 77);
        assert_int_equal(head.observer, 11 + i);
        assert_int_equal(head.notifier, teffi_node_to_word(bare_self));
        assert_int_equal(head.slot, act->slot);
        assert_int_equal(head.generation, act->generation);
        assert_int_equal(head.index, i);
        assert_int_equal(head.subscription, i + 1);
        chat__line__free_unpacked(line, NULL);
    }
}

static teff_err watches(chat_room *self, const chat_script *in, chat_number *out)
{
    teffi_client_ref ref;
    memcpy(&ref, in->listener.data, sizeof ref);
    ref.head.interface = chat_watcher_info.type.id;
    const ProtobufCBinaryData bytes = {sizeof ref, (uint8_t *)&ref};
    teff_err err = chat_watcher_subscribe(self->ctx, bytes, 0);
    if (!err && (chat_watcher_count(self->ctx) != 1 || chat_listener_count(self->ctx) != 2))
        err = TEFF_E_FAILED;
    if (!err && chat_listener_unsubscribe(self->ctx, bytes))
        err = TEFF_E_FAILED;
    return err ? err : chat_watcher_seen_notify(self->ctx, chat_line());
}

static void each_interface_has_its_set(void **state)
{
    run_with(subscribes, 0, far_ref(1));
    run_with(subscribes, 0, far_ref(2));
    assert_int_equal(run_with(watches, 0, far_ref(1)), TEFF_OK);
    assert_int_equal(last_of(1)->type_id, chat_watcher_info.type.id);
    run(notifies, 1);
    assert_int_equal(n_kept, 3);
}

/* ---- the limit ---- */

static teff_err subscribes_many(chat_room *self, const chat_script *in, chat_number *out)
{
    teff_err err = TEFF_OK;
    for (uint64_t i = 0; i < TEFF_OBSERVERS_MAX && !err; i++)
        err = chat_listener_subscribe(self->ctx, far_ref(i), i % 2 ? 0 : 10);
    return err;
}

static void a_set_has_a_limit_and_expired_observers_make_room(void **state)
{
    assert_int_equal(run(subscribes_many, 0), TEFF_OK);
    assert_int_equal(count(), TEFF_OBSERVERS_MAX);
    assert_int_equal(run_with(subscribes, 0, far_ref(TEFF_OBSERVERS_MAX)), TEFF_E_OVERLOADED);
    assert_int_equal(run_with(subscribes, 0, far_ref(1)), TEFF_OK); /* renewed */
    pass_ms(10);
    assert_int_equal(run_with(subscribes, 0, far_ref(TEFF_OBSERVERS_MAX)), TEFF_OK);
    assert_int_equal(count(), TEFF_OBSERVERS_MAX / 2 + 1);
    assert_int_equal(n_kept, TEFF_OBSERVERS_MAX / 2);
}

/* ---- expiry ---- */

static void an_observer_expires_to_the_millisecond_and_is_told(void **state)
{
    run_with(subscribes, 100, far_ref(1));
    pass_ms(99);
    run(notifies, 1);
    assert_int_equal(n_kept, 1);
    pass_ms(1);
    run(notifies, 2);
    is_drop(last_of(2), TEFF_DROPPED_EXPIRED);
    assert_int_equal(head_of(last_of(2)).observer, 1);
    assert_int_equal(count(), 0);
    assert_int_equal(run_with(unsubscribes, 0, far_ref(1)), TEFF_E_NOT_FOUND);
}

static void a_renewal_moves_the_expiry(void **state)
{
    run_with(subscribes, 100, far_ref(1));
    pass_ms(60);
    run_with(subscribes, 100, far_ref(1));
    pass_ms(60);
    assert_int_equal(count(), 1);
    run_with(subscribes, 10, far_ref(1)); /* it may also become shorter */
    pass_ms(10);
    assert_int_equal(count(), 0);
    is_drop(last_of(1), TEFF_DROPPED_EXPIRED);
}

static void the_default_expiry(void **state)
{
    run_with(subscribes, 0, far_ref(1));
    pass_ms(TEFF_OBSERVER_EXPIRY_MS - 1);
    assert_int_equal(count(), 1);
    pass_ms(1);
    assert_int_equal(run_with(unsubscribes, 0, far_ref(1)), TEFF_E_NOT_FOUND);
    assert_int_equal(n_kept, 0); /* who unsubscribes is not told */
}

/* ---- observers that cannot be reached ---- */

static void an_observer_that_is_gone_is_dropped_silently(void **state)
{
    run_with(subscribes, 0, far_ref(1));
    sent.refuse = TEFF_E_CLOSED;
    run(notifies, 1);
    sent.refuse = TEFF_OK;
    assert_int_equal(count(), 0);
    assert_int_equal(n_kept, 0);
}

/* Its client may be there: the message that tells it of the gap needs the gateway, too. */
static void an_observer_whose_gateway_is_unreachable_is_told_later(void **state)
{
    run_with(subscribes, 0, far_ref(1));
    sent.refuse = TEFF_E_UNREACHABLE;
    run(notifies, 1);
    assert_int_equal(n_kept, 0);
    sent.refuse = TEFF_OK;
    assert_int_equal(count(), 0);
    assert_int_equal(n_kept, 1);
    is_drop(last_of(1), TEFF_DROPPED_DISCONNECTED);
}

static void an_observer_without_room_is_dropped_and_told(void **state)
{
    static const teff_err full[] = {TEFF_E_OVERLOADED, TEFF_E_TOO_LARGE, TEFF_E_NOMEM};
    for (int i = 0; i < 3; i++) {
        run_with(subscribes, 0, far_ref(1));
        run_with(subscribes, 0, far_ref(2));
        n_kept = 0;
        sent.refuse_next = full[i]; /* the notification, not the drop */
        run(notifies, 1);
        assert_int_equal(n_kept, 2);
        is_drop(&kept[0], TEFF_DROPPED_SLOW);
        assert_int_equal(head_of(&kept[1]).observer, 2);
        assert_int_equal(count(), 1);
    }
}

static void bounce(teffi_notice_head head, teff_drop_reason why)
{
    teffi_msg *msg = teffi_notice_new(bare_peer, bare_self, &head, 0, why, NULL, 0);
    assert_non_null(msg);
    teffi_node_deliver(&node, msg);
    run_groups();
}

static void a_bounce_drops_its_subscription_only(void **state)
{
    run_with(subscribes, 0, far_ref(1));
    run_with(subscribes, 0, far_ref(2));
    run(notifies, 1);
    teffi_notice_head first = head_of(&kept[0]), other = first;
    other.generation++;
    bounce(other, TEFF_DROPPED_SLOW);
    other = first;
    other.index = 7;
    bounce(other, TEFF_DROPPED_SLOW);
    other = first;
    other.subscription++;
    bounce(other, TEFF_DROPPED_SLOW);
    assert_int_equal(count(), 2);
    assert_int_equal(n_kept, 2);
    bounce(first, TEFF_DROPPED_SLOW);
    is_drop(last_of(3), TEFF_DROPPED_SLOW);
    assert_int_equal(head_of(last_of(3)).observer, 1);
    assert_int_equal(count(), 1);
    run_with(subscribes, 0, far_ref(1)); /* in the same place */
    bounce(first, TEFF_DROPPED_SLOW);
    assert_int_equal(count(), 2);
    run(notifies, 1);
    assert_int_equal(head_of(&kept[3]).index, 0);
    bounce(head_of(&kept[3]), TEFF_DROPPED_GONE);
    assert_int_equal(count(), 1);
    assert_int_equal(n_kept, 5); /* who is gone is not told */
}

/* A connection to the gateway broke after a notification was sent: it may be lost. */
static void a_gap_is_told_when_the_set_is_used(void **state)
{
    run_with(subscribes, 0, far_ref(1));
    teffi_observers_record_break(&grains, bare_peer); /* nothing was sent */
    run(notifies, 1);
    assert_true(last_of(1)->method_id != 0);
    teffi_observers_record_break(&grains, bare_other); /* another one */
    run(notifies, 2);
    assert_int_equal(n_kept, 2);
    teffi_observers_record_break(&grains, bare_peer);
    run(notifies, 3);
    is_drop(last_of(3), TEFF_DROPPED_DISCONNECTED);
    assert_int_equal(count(), 0);
    run_with(subscribes, 0, far_ref(1));
    run(notifies, 4);
    teffi_observers_record_break(&grains, bare_peer);
    run_with(subscribes, 0, far_ref(1)); /* the renewal tells, and subscribes */
    is_drop(last_of(5), TEFF_DROPPED_DISCONNECTED);
    assert_int_equal(count(), 1);
}

/* ---- the end ---- */

static void the_end_is_told_to_clients(void **state)
{
    run_with(subscribes, 0, far_ref(1));
    run_with(subscribes, 0, far_ref(2));
    on_deactivate_script = notifies;
    end_room();
    assert_int_equal(n_kept, 4); /* two notifications by on_deactivate */
    for (int i = 2; i < 4; i++) {
        is_drop(&kept[i], TEFF_DROPPED_ENDED);
        assert_int_equal(head_of(&kept[i]).observer, i - 1);
    }
}

static teff_err late_err;

static teff_err subscribes_late(chat_room *self, const chat_script *in, chat_number *out)
{
    late_err = chat_listener_subscribe(self->ctx, far_ref(1), 0);
    return TEFF_OK;
}

static void on_deactivate_takes_no_observers(void **state)
{
    on_deactivate_script = subscribes_late;
    end_room();
    assert_int_equal(late_err, TEFF_E_CLOSED);
}

/* A silo that closes in the middle frees the sets; see close_room(). */
static void a_set_is_freed_with_the_silo(void **state)
{
    assert_int_equal(run(subscribes_many, 0), TEFF_OK);
}

/* ---- bytes that are no references ---- */

static ProtobufCBinaryData grain_ref(uint8_t kind, const void *key, size_t len)
{
    static uint8_t bytes[sizeof(teffi_grain_ref) + TEFFI_KEY_BYTES_MAX + 8];
    const teffi_grain_ref ref = {
        .head = {TEFFI_REF_GRAIN, kind, {0, 0}, chat_listener_info.type.id}, .type = 5};
    memcpy(bytes, &ref, sizeof ref);
    memset(bytes + sizeof ref, 'x', sizeof bytes - sizeof ref);
    if (key)
        memcpy(bytes + sizeof ref, key, len);
    return (ProtobufCBinaryData){sizeof ref + len, bytes};
}

static void references_to_grains_are_checked(void **state)
{
    assert_int_equal(run_with(subscribes, 0, grain_ref(TEFF_KEY_STRING, "key", 3)), TEFF_OK);
    assert_int_equal(run_with(subscribes, 0, grain_ref(TEFF_KEY_INT64, "12345678", 8)), TEFF_OK);
    assert_int_equal(run_with(subscribes, 0, grain_ref(TEFF_KEY_STRING, NULL, TEFF_KEY_MAX)),
                     TEFF_OK);
    assert_int_equal(count(), 3);
    const ProtobufCBinaryData bad[] = {
        grain_ref(TEFF_KEY_STRING, "", 0), {0, NULL}, {3, (uint8_t *)"abc"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(run_with(subscribes, 0, bad[i]), TEFF_E_INVALID);
    assert_int_equal(run_with(subscribes, 0, grain_ref(TEFF_KEY_STRING, "\xff", 1)),
                     TEFF_E_INVALID);
    assert_int_equal(run_with(subscribes, 0, grain_ref(TEFF_KEY_STRING, "a\0b", 3)),
                     TEFF_E_INVALID);
    assert_int_equal(run_with(subscribes, 0, grain_ref(TEFF_KEY_INT64, "1234567", 7)),
                     TEFF_E_INVALID);
    assert_int_equal(run_with(subscribes, 0, grain_ref(0, "k", 1)), TEFF_E_INVALID);
    assert_int_equal(run_with(subscribes, 0, grain_ref(6, "k", 1)), TEFF_E_INVALID);
    assert_int_equal(run_with(subscribes, 0, grain_ref(TEFF_KEY_STRING, NULL, TEFF_KEY_MAX + 1)),
                     TEFF_E_INVALID);
    assert_int_equal(
        run_with(subscribes, 0, grain_ref(TEFF_KEY_STRING, NULL, TEFFI_KEY_BYTES_MAX + 1)),
        TEFF_E_INVALID);
    assert_int_equal(run_with(subscribes, 0, client_ref(some_client, some_client, 1)),
                     TEFF_E_INVALID);
    assert_int_equal(count(), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_room, close_room)
        CASE(a_set_has_each_observer_once),
        CASE(a_notification_names_its_subscription),
        CASE(each_interface_has_its_set),
        CASE(a_set_has_a_limit_and_expired_observers_make_room),
        CASE(an_observer_expires_to_the_millisecond_and_is_told),
        CASE(a_renewal_moves_the_expiry),
        CASE(the_default_expiry),
        CASE(an_observer_that_is_gone_is_dropped_silently),
        CASE(an_observer_whose_gateway_is_unreachable_is_told_later),
        CASE(an_observer_without_room_is_dropped_and_told),
        CASE(a_bounce_drops_its_subscription_only),
        CASE(a_gap_is_told_when_the_set_is_used),
        CASE(the_end_is_told_to_clients),
        CASE(on_deactivate_takes_no_observers),
        CASE(a_set_is_freed_with_the_silo),
        CASE(references_to_grains_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
