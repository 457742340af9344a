/* test_msg.c - what a message holds counts in its budget until it is freed. */
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
    assert_true(teffi_msg_own(msg));
    return msg;
}

static void what_it_borrows_is_copied_once(void **state)
{
    const char key[] = "key", text[] = "text";
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST);
    assert_non_null(msg);
    msg->key = (const uint8_t *)key;
    msg->key_len = 3;
    msg->text = text;
    msg->borrows = true;
    assert_true(teffi_msg_own(msg));
    assert_false(msg->borrows);
    const uint8_t *own = msg->key;
    assert_ptr_not_equal(own, key);
    assert_ptr_not_equal(msg->text, text);
    assert_string_equal(own, "key");
    assert_string_equal(msg->text, "text");
    assert_true(teffi_msg_own(msg));
    assert_ptr_equal(msg->key, own);
    teffi_msg_free(msg);
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
        cmocka_unit_test(it_counts_until_it_is_freed),
        cmocka_unit_test(what_it_unpacks_to_counts_too),
        cmocka_unit_test(one_that_does_not_count_yet_does_not_by_unpacking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
