/* test_msg.c - what a message holds counts in its budget until it is freed. */
#include <string.h>
#include "message/msg.h"

/* cmocka comes after these. */
#include "test.h"
#include "used.h"
#include "cluster.pb-c.h"

enum { N = 100000 };

static teffi_budget budget;

/* N numbers, of four bytes each, packed; they take as much again when they are unpacked. */
static teffi_msg *numbers(void)
{
    static uint32_t types[N];
    Teff__Cluster__Member member = TEFF__CLUSTER__MEMBER__INIT;
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST);
    assert_non_null(msg);
    for (int i = 0; i < N; i++)
        types[i] = 7;
    member.types = types;
    member.n_types = N;
    msg->body = &member.base;
    msg->borrows = true;
    assert_true(teffi_msg_copy_borrowed(msg));
    return msg;
}

static void what_it_borrows_is_copied_once(void **state)
{
    const char key[] = "key", text[] = "text";
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_RESPONSE);
    assert_non_null(msg);
    msg->key = (const uint8_t *)key;
    msg->key_len = 3;
    msg->text = text;
    msg->transaction = (const uint8_t *)text;
    msg->transaction_len = 4;
    msg->borrows = true;
    assert_true(teffi_msg_copy_borrowed(msg));
    assert_false(msg->borrows);
    assert_ptr_not_equal(msg->transaction, text);
    assert_memory_equal(msg->transaction, "text", 4);
    const uint8_t *own = msg->key;
    assert_ptr_not_equal(own, key);
    assert_ptr_not_equal(msg->text, text);
    assert_string_equal(own, "key");
    assert_string_equal(msg->text, "text");
    assert_true(teffi_msg_copy_borrowed(msg));
    assert_ptr_equal(msg->key, own);
    teffi_msg_free(msg);
}

/* The body is packed, and the key follows it, in one byte more than the arena's step of 16. */
static void a_borrowed_body_is_packed(void **state)
{
    static uint8_t key[] = {'k', 0, 'y'}, body_key[11];
    static const char text[] = "text";
    Teff__Cluster__Moved moved = TEFF__CLUSTER__MOVED__INIT;
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_RESPONSE);
    assert_non_null(msg);
    moved.key = (ProtobufCBinaryData){sizeof body_key, body_key};
    msg->body = &moved.base;
    msg->key = key;
    msg->key_len = sizeof key;
    msg->text = text;
    msg->borrows = true;
    memset(msg->arena.at, 0xff, 64); /* it is not zeroed */
    assert_true(teffi_msg_copy_borrowed(msg));
    assert_null(msg->body);
    assert_int_equal(msg->raw_len, 13);
    assert_memory_equal(msg->raw, "\x12\x0b\0\0\0\0\0\0\0\0\0\0\0", 13);
    assert_int_equal(msg->key_len, sizeof key);
    assert_memory_equal(msg->key, "k\0y", 4); /* with a zero behind */
    assert_string_equal(msg->text, text);
    teffi_msg_free(msg);
}

/* With room for neither, the packed body, and all but the text. */
static void without_memory_nothing_changes(void **state)
{
    static const uint8_t key[] = {'k'};
    for (size_t budget_bytes = 1; budget_bytes < 16; budget_bytes++) {
        Teff__Cluster__Moved moved = TEFF__CLUSTER__MOVED__INIT;
        teffi_msg *msg = teffi_msg_new(TEFFI_MSG_RESPONSE);
        assert_non_null(msg);
        moved.type = 7;
        msg->body = &moved.base;
        msg->key = key;
        msg->key_len = sizeof key;
        msg->text = "sixteen letters.";
        msg->borrows = true;
        msg->arena.budget_bytes = budget_bytes;
        assert_false(teffi_msg_copy_borrowed(msg));
        assert_true(msg->borrows);
        assert_ptr_equal(msg->body, &moved.base);
        assert_ptr_equal(msg->key, key);
        assert_string_equal(msg->text, "sixteen letters.");
        assert_null(msg->raw);
        teffi_msg_free(msg);
    }
}

static void packed_bytes_are_one_segment(void **state)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST);
    teffi_segment segment;
    uint8_t out[1];
    assert_non_null(msg);
    msg->raw = (const uint8_t *)"12345";
    msg->raw_len = 5;
    assert_false(teffi_msg_find_segment(msg, 6, &segment));
    assert_true(teffi_msg_find_segment(msg, 5, &segment));
    assert_ptr_equal(segment.bytes, msg->raw);
    assert_int_equal(segment.len, 5);
    assert_int_equal(teffi_msg_pack_without_segment(msg, 5, &segment, out), 0);
    teffi_msg_free(msg);
}

static void a_freed_message_is_used_again(void **state)
{
    teffi_msg *first = teffi_msg_new(TEFFI_MSG_REQUEST);
    uintptr_t place = (uintptr_t)first;
    teffi_msg_free(first);
    teffi_msg *second = teffi_msg_new(TEFFI_MSG_ONEWAY);
    assert_int_equal((uintptr_t)second, place);
    teffi_msg_free(second);
}

static void it_counts_until_it_is_freed(void **state)
{
    teffi_budget_init(&budget, SIZE_MAX);
    teffi_msg *msg = numbers();
    assert_int_equal(bytes_used(&budget), 0);
    teffi_msg_charge(msg, &budget);
    teffi_msg_charge(msg, &budget); /* it counts once */
    assert_in_range(bytes_used(&budget), 4 * N, 6 * N);
    teffi_msg_free(msg);
    assert_int_equal(bytes_used(&budget), 0);
}

static void what_it_unpacks_to_counts_too(void **state)
{
    teffi_budget_init(&budget, SIZE_MAX);
    teffi_msg *msg = numbers();
    teffi_msg_charge(msg, &budget);
    assert_int_equal(teffi_msg_unpack(msg, &teff__cluster__member__descriptor), TEFF_OK);
    assert_in_range(bytes_used(&budget), 8 * N, 14 * N);
    teffi_msg_free(msg);
    assert_int_equal(bytes_used(&budget), 0);
}

static void one_that_does_not_count_yet_does_not_by_unpacking(void **state)
{
    teffi_budget_init(&budget, SIZE_MAX);
    teffi_msg *msg = numbers();
    assert_int_equal(teffi_msg_unpack(msg, &teff__cluster__member__descriptor), TEFF_OK);
    assert_int_equal(bytes_used(&budget), 0);
    teffi_msg_charge(msg, &budget);
    assert_in_range(bytes_used(&budget), 8 * N, 14 * N);
    teffi_msg_free(msg);
    assert_int_equal(bytes_used(&budget), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_it_borrows_is_copied_once),
        cmocka_unit_test(a_borrowed_body_is_packed),
        cmocka_unit_test(without_memory_nothing_changes),
        cmocka_unit_test(packed_bytes_are_one_segment),
        cmocka_unit_test(a_freed_message_is_used_again),
        cmocka_unit_test(it_counts_until_it_is_freed),
        cmocka_unit_test(what_it_unpacks_to_counts_too),
        cmocka_unit_test(one_that_does_not_count_yet_does_not_by_unpacking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
