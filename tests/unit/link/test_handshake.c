/* test_handshake.c - who may connect at which address: a silo with a gateway accepts clients only
 * there, and silos only at its other address. */
#include "net_test.h"

#include <stdio.h>
#include <string.h>
#include "raw_peer.h"

static const char only_silos[] = "only silos connect to this address";
static const char only_clients[] = "only clients connect to this address";

static test_node *start_silo(bool gateway)
{
    return test_node_start((test_options){.gateway = gateway ? "127.0.0.1:0" : NULL});
}

static teffi_greeting greeting_of(uint32_t role, uint32_t id)
{
    bool client = role == TEFFI_ROLE_CLIENT;
    teffi_greeting g = raw_greeting(client ? id | TEFFI_CLIENT_BIT : id, 1, 1);
    g.hello.role = role;
    if (client)
        g.hello.address[0] = '\0';
    return g;
}

typedef struct door_row {
    bool gateway;    /* the silo has one */
    bool at_gateway; /* the peer connects there */
    uint32_t role;   /* of the peer, as its hello says */
    const char *why; /* it is refused; NULL: it is not */
} door_row;

static const door_row door_rows[] = {
    {false, false, TEFFI_ROLE_SILO, NULL},       {false, false, TEFFI_ROLE_CLIENT, NULL},
    {true, false, TEFFI_ROLE_SILO, NULL},        {true, false, TEFFI_ROLE_CLIENT, only_silos},
    {true, true, TEFFI_ROLE_SILO, only_clients}, {true, true, TEFFI_ROLE_CLIENT, NULL},
    {true, true, 3, "does not fit its role"},
};

static void connect_at_door(const door_row *row)
{
    test_node *silo = start_silo(row->gateway);
    raw_peer *raw = raw_connect(row->at_gateway ? silo->gateway : silo->address);
    teffi_greeting g = greeting_of(row->role, 900);
    assert_int_equal(raw_join(raw, &g), !row->why);
    if (row->why) {
        assert_true(raw_refused(raw, row->why));
        assert_true(raw_ended(raw));
        assert_int_equal(test_counters(silo->net).refused_identity, 1);
        test_wait(silo, test_logged(silo, "refused", row->why));
        assert_int_equal(silo->asked, 0);
        assert_int_equal(silo->ups, 0);
    } else {
        test_wait(silo, silo->ups == 1);
        assert_int_equal(test_last_peer(silo).role, row->role);
    }
    raw_close(raw);
    test_node_stop(silo);
}

static void each_role_has_its_address(void **state)
{
    for (size_t i = 0; i < sizeof door_rows / sizeof door_rows[0]; i++)
        connect_at_door(&door_rows[i]);
}

/* A silo's id with a client's role, and a client's id with a silo's: at neither address. */
static void an_id_must_fit_its_role_everywhere(void **state)
{
    test_node *silo = start_silo(true);
    for (unsigned i = 0; i < 4; i++) {
        uint32_t role = i % 2 ? TEFFI_ROLE_CLIENT : TEFFI_ROLE_SILO;
        teffi_greeting g = greeting_of(role, 901);
        g.hello.node.silo ^= TEFFI_CLIENT_BIT;
        raw_peer *raw = raw_connect(i < 2 ? silo->address : silo->gateway);
        assert_false(raw_join(raw, &g));
        assert_true(raw_refused(raw, "does not fit its role"));
        raw_close(raw);
    }
    assert_int_equal(silo->asked, 0);
    test_node_stop(silo);
}

static void dial(test_node *from, const char *address, test_dialled *d)
{
    *d = (test_dialled){0};
    from->net->ops->dial(from->net, address, test_note_dialled, d);
    test_wait(from, d->done);
}

/* What the operator of a client reads who gave it the silos' address, and the other way round. */
static void the_wrong_address_is_named_to_who_dials_it(void **state)
{
    test_dialled d;
    test_node *silo = start_silo(true), *other = start_silo(false);
    test_node *client = test_node_start((test_options){.role = TEFFI_ROLE_CLIENT});
    dial(client, silo->address, &d);
    assert_int_equal(d.err, TEFF_E_REFUSED);
    assert_non_null(strstr(d.text, only_silos));
    dial(other, silo->gateway, &d);
    assert_int_equal(d.err, TEFF_E_REFUSED);
    assert_non_null(strstr(d.text, only_clients));
    dial(client, silo->gateway, &d);
    assert_int_equal(d.err, TEFF_OK);
    dial(other, silo->address, &d);
    assert_int_equal(d.err, TEFF_OK);
    test_node_stop(client);
    test_node_stop(other);
    test_node_stop(silo);
}

/* A client that lost its gateway dials the address again that it has dialled: what the silo
 * advertises accepts silos only. */
static void a_client_dials_the_gateway_again(void **state)
{
    test_dialled d;
    test_node *silo = start_silo(true);
    test_node *client = test_node_start((test_options){.role = TEFFI_ROLE_CLIENT});
    dial(client, silo->gateway, &d);
    assert_int_equal(d.err, TEFF_OK);
    test_wait(silo, silo->ups == 1);
    silo->net->ops->peer_remove(silo->net, client->id, false); /* its connection breaks */
    test_wait(client, client->downs == 1);
    test_send(client, silo, 1, 10);
    test_wait(silo, silo->messages == 1);
    assert_int_equal(test_counters(silo->net).refused_identity, 0);
    test_node_stop(client);
    test_node_stop(silo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_role_has_its_address),
        cmocka_unit_test(an_id_must_fit_its_role_everywhere),
        cmocka_unit_test(the_wrong_address_is_named_to_who_dials_it),
        cmocka_unit_test(a_client_dials_the_gateway_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
