/* test_notify.c - notifications: which messages are refused, to whom they go, and that what a turn
 * allocates for them is freed. */
#include "room.h"

static teff_err refused(chat_room *self, const chat_script *in, chat_number *out)
{
    static uint8_t load[TEFF_MESSAGE_MAX];
    const chat_line *large = chat_line(.load = {sizeof load, load});
    if (chat_listener_said_notify(self->ctx, NULL) != TEFF_E_INVALID ||
        chat_listener_said_notify_one(self->ctx, in->listener, NULL) != TEFF_E_INVALID ||
        chat_listener_said_notify(self->ctx, large) != TEFF_E_TOO_LARGE)
        return TEFF_E_FAILED;
    return chat_listener_said_notify_one(self->ctx, in->listener, large);
}

static void bad_messages_are_refused(void **state)
{
    run_with(subscribes, 0, far_ref(1));
    assert_int_equal(run_with(refused, 0, far_ref(1)), TEFF_E_TOO_LARGE);
    assert_int_equal(n_kept, 0);
}

static teff_err notifies_without_body(chat_room *self, const chat_script *in, chat_number *out)
{
    return chat_listener_emptied_notify(self->ctx);
}

static void a_notification_may_have_no_body(void **state)
{
    run_with(subscribes, 0, far_ref(1));
    assert_int_equal(run(notifies_without_body, 0), TEFF_OK);
    assert_int_equal(last_of(1)->raw_len, 0);
}

static teff_err notifies_one(chat_room *self, const chat_script *in, chat_number *out)
{
    return chat_listener_said_notify_one(self->ctx, in->listener, chat_line(.n = in->n));
}

/* It is in no set: slot 0 says that nobody wants a bounce. */
static void one_observer_is_notified(void **state)
{
    assert_int_equal(run_with(notifies_one, 3, far_ref(8)), TEFF_OK);
    teffi_notice_head head = head_of(last_of(1));
    assert_int_equal(head.observer, 8);
    assert_int_equal(head.slot | head.generation | head.index | head.subscription, 0);
    sent.refuse = TEFF_E_CLOSED;
    assert_int_equal(run_with(notifies_one, 3, far_ref(8)), TEFF_E_CLOSED);
    sent.refuse = TEFF_OK;
    assert_int_equal(run_with(notifies_one, 3, (ProtobufCBinaryData){2, (uint8_t *)"ab"}),
                     TEFF_E_INVALID);
}

/* The gateway is the silo itself: the notification goes to the client at once. */
static void a_client_of_this_silo_is_notified(void **state)
{
    assert_int_equal(run_with(subscribes, 0, client_ref(bare_self, some_client, 4)), TEFF_OK);
    run(notifies, 1);
    assert_true(teffi_node_equals(last_of(1)->to, some_client));
    sent.refuse = TEFF_E_CLOSED;
    run(notifies, 1);
    sent.refuse = TEFF_OK;
    assert_int_equal(count(), 0);
}

enum { FAR_TYPE = 4242 };

static ProtobufCBinaryData grain_of_type(uint32_t id)
{
    static uint8_t bytes[sizeof(teffi_grain_ref) + 3];
    const teffi_grain_ref ref = {
        .head = {TEFFI_REF_GRAIN, TEFF_KEY_STRING, {0, 0}, chat_listener_info.type.id}, .type = id};
    memcpy(bytes, &ref, sizeof ref);
    memcpy(bytes + sizeof ref, "key", 3);
    return (ProtobufCBinaryData){sizeof bytes, bytes};
}

/* A grain of a type that this silo does not host. */
static ProtobufCBinaryData far_grain(void)
{
    return grain_of_type(FAR_TYPE);
}

/* A client may make a reference to any grain. The type chat.Room does not observe, but one of its
 * methods has the id of the notification. */
static void a_type_that_does_not_observe_is_not_notified(void **state)
{
    const teff_method *alike =
        teffi_method_find(&chat_room_info, chat_listener_info.type.methods[1].id);
    assert_non_null(alike);
    assert_string_equal(alike->name, "chat.Room.Alike");
    assert_int_equal(run_with(notifies_one, 1, grain_of_type(chat_room_info.id)), TEFF_E_INVALID);
}

/* No silo hosts the type, so the message is dropped; the observer stays until it expires. */
static void a_grain_stays_in_the_set(void **state)
{
    assert_int_equal(run_with(subscribes, 50, far_grain()), TEFF_OK);
    assert_int_equal(run(notifies, 1), TEFF_OK);
    assert_int_equal(run_with(notifies_one, 1, far_grain()), TEFF_OK);
    assert_int_equal(count(), 1);
    pass_ms(50);
    assert_int_equal(count(), 0);
    assert_int_equal(n_kept, 0); /* a grain is not told */
}

static teff_err notifies_often(chat_room *self, const chat_script *in, chat_number *out)
{
    static uint8_t load[TEFF_MESSAGE_MAX / 2];
    teff_err err = TEFF_OK;
    for (int i = 0; i < 1000 && !err; i++)
        err = chat_listener_said_notify(self->ctx, chat_line(.load = {sizeof load, load}));
    return err;
}

static void the_memory_of_notifications_is_freed_at_once(void **state)
{
    assert_int_equal(run(notifies_often, 0), TEFF_OK); /* 500 MiB; a turn may have 128 MiB */
}

static teff_err names_itself(chat_room *self, const chat_script *in, chat_number *out)
{
    ProtobufCBinaryData ref;
    return chat_listener_of_grain(self->ctx, &ref);
}

static void a_grain_that_does_not_observe_has_no_reference(void **state)
{
    assert_int_equal(run(names_itself, 0), TEFF_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_room, close_room)
        CASE(bad_messages_are_refused),
        CASE(a_notification_may_have_no_body),
        CASE(one_observer_is_notified),
        CASE(a_client_of_this_silo_is_notified),
        CASE(a_grain_stays_in_the_set),
        CASE(a_type_that_does_not_observe_is_not_notified),
        CASE(the_memory_of_notifications_is_freed_at_once),
        CASE(a_grain_that_does_not_observe_has_no_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
