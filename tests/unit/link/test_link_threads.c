/* test_link_threads.c - how many threads does a link take? As many for few connections as for many.
 * Way:     raw clients -> a silo's port; messages to each of them */
#include "net_test.h"

#include "raw_peer.h"

enum { FEW = 4, MANY = 200, SPARE = 4 }; /* workers that another one needed meanwhile */

static raw_peer *joins(test_node *silo, uint32_t who)
{
    teffi_greeting greeting = raw_greeting(TEFFI_CLIENT_BIT | who, 1, 1);
    raw_peer *client = raw_connect(silo->address);
    greeting.hello.role = TEFFI_ROLE_CLIENT;
    greeting.hello.address[0] = '\0';
    assert_true(raw_join(client, &greeting));
    return client;
}

static void is_sent_to(test_node *silo, uint32_t who)
{
    teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, 1, 20);
    teffi_node_id to = {TEFFI_CLIENT_BIT | who, 1};
    assert_int_equal(silo->net->ops->send(silo->net, to, msg), TEFF_OK);
}

/* Then each of them has a message on its way. */
static void grow(test_node *silo, raw_peer **clients, unsigned n, unsigned to)
{
    for (uint32_t i = n; i < to; i++)
        clients[i] = joins(silo, i + 1);
    test_wait(silo, silo->ups == to);
    for (uint32_t i = 0; i < to; i++)
        is_sent_to(silo, i + 1);
    for (uint32_t i = 0; i < to; i++)
        assert_int_equal(raw_read(clients[i]), TEFFI_MSG_REQUEST);
    assert_int_equal(silo->downs, 0);
}

static void threads_do_not_grow_with_connections(void **state)
{
    test_node *silo = test_node_start((test_options){.workers = 1});
    raw_peer *clients[MANY];
    grow(silo, clients, 0, FEW);
    unsigned threads = test_threads();
    grow(silo, clients, FEW, MANY);
    assert_true(test_threads() <= threads + SPARE);
    for (int i = 0; i < MANY; i++)
        raw_close(clients[i]);
    test_wait(silo, silo->downs == MANY);
    test_node_stop(silo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_do_not_grow_with_connections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
