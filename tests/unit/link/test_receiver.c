/* test_receiver.c - what a client may send, and what of it is believed. */
#include "link/conn/receiver.h"

#include "test.h"

static const struct {
    const char *what;
    uint32_t kind, slot;
    teffi_admission admission;
} rows[] = {
    {"a request to a grain", TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN, TEFFI_ADMITTED},
    {"a one-way to a grain", TEFFI_MSG_ONEWAY, TEFFI_SLOT_GRAIN, TEFFI_ADMITTED},
    {"a cancel", TEFFI_MSG_ONEWAY, TEFFI_SLOT_CANCEL, TEFFI_ADMITTED},
    {"a cancel with a response", TEFFI_MSG_REQUEST, TEFFI_SLOT_CANCEL, TEFFI_ADMIT_REFUSED},
    {"a request to the store", TEFFI_MSG_REQUEST, TEFFI_SLOT_STORE, TEFFI_ADMIT_REFUSED},
    {"a one-way to a process", TEFFI_MSG_ONEWAY, TEFFI_PROCESS_BIT, TEFFI_ADMIT_REFUSED},
    {"a response", TEFFI_MSG_RESPONSE, TEFFI_SLOT_GRAIN, TEFFI_ADMIT_BROKEN},
};

static void a_client_is_what_its_connection_says(void **state)
{
    const teffi_node_id client = {7 | TEFFI_CLIENT_BIT, 1};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        teffi_msg msg = {.item.kind = rows[i].kind, .to.slot = rows[i].slot};
        msg.src = (teffi_node_id){8, 2};
        msg.flags = 0xffff;
        msg.hops = 5;
        if (teffi_admit_client(&msg, client) != rows[i].admission)
            fail_msg("%s", rows[i].what);
        assert_true(teffi_node_is(msg.src, client));
        assert_int_equal(msg.flags, 0xffff & ~TEFFI_MSG_PLACED);
        assert_int_equal(msg.hops, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_is_what_its_connection_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
