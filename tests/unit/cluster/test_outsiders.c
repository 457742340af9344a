/* test_outsiders.c - connected silos outside the view: strangers, those that left, dead ones. */
#include "cluster/membership.h"

#include <string.h>
#include "cluster/join.h"
#include "test.h"

enum { MEMBER = 7, LEFT = 8, DEAD = 9, STRANGER = 10 };

static teffi_node node;
static teffi_membership membership;
static teffi_node_id removed[TEFFI_OUTSIDERS_MAX];
static size_t n_removed;

static void peer_dead(teffi_net *net, teffi_node_id id)
{
    removed[n_removed++] = id;
}

static uint64_t mono_ns(void *arg)
{
    return 1;
}

static teffi_node_id first_start(uint32_t silo)
{
    return (teffi_node_id){silo, 5};
}

/* Replaces the node's view, as follow.c does. */
static void adopt(const teffi_member *members, size_t n)
{
    static uint64_t version;
    const teffi_view *old = node.view;
    node.view = teffi_view_new(++version, members, n);
    assert_non_null(node.view);
    teffi_view_unref(old);
    teffi_outsiders_apply_view_and_drop_dead(&membership, node.view);
}

static void adopt_usual(void)
{
    const teffi_member members[] = {{.node = {MEMBER, 5}, .status = TEFFI_ACTIVE},
                                    {.node = {LEFT, 5}, .status = TEFFI_LEFT},
                                    {.node = {DEAD, 5}, .status = TEFFI_DEAD}};
    adopt(members, 3);
}

static int setup(void **state)
{
    static const teffi_platform platform = {.mono_ns = mono_ns};
    static const teffi_net_ops net_ops = {.peer_dead = peer_dead};
    static teffi_net net = {.ops = &net_ops};
    memset(&node, 0, sizeof node);
    memset(&membership, 0, sizeof membership);
    n_removed = 0;
    pthread_mutex_init(&node.lock, NULL);
    pthread_mutex_init(&membership.outsiders.lock, NULL);
    node.platform = &platform;
    node.home.net = &net;
    node.membership = &membership;
    membership.node = &node;
    adopt_usual();
    return 0;
}

static int teardown(void **state)
{
    teffi_view_unref(node.view);
    pthread_mutex_destroy(&membership.outsiders.lock);
    pthread_mutex_destroy(&node.lock);
    return 0;
}

static void a_view_tells_the_standing(void **state)
{
    assert_int_equal(teffi_view_standing(node.view, first_start(MEMBER)), TEFFI_STANDING_MEMBER);
    assert_int_equal(teffi_view_standing(node.view, first_start(LEFT)), TEFFI_STANDING_LEFT);
    assert_int_equal(teffi_view_standing(node.view, first_start(DEAD)), TEFFI_STANDING_DEAD);
    assert_int_equal(teffi_view_standing(node.view, first_start(STRANGER)),
                     TEFFI_STANDING_STRANGER);
    assert_int_equal(teffi_view_standing(NULL, first_start(MEMBER)), TEFFI_STANDING_STRANGER);
    assert_int_equal(node.view->n_members, 1);
}

/* A later start of a silo ends the earlier ones; it is itself a stranger until it is a member. */
static void each_start_of_a_silo_has_its_standing(void **state)
{
    for (uint32_t silo = MEMBER; silo <= DEAD; silo++) {
        teffi_node_id earlier = {silo, 4}, later = {silo, 6};
        assert_int_equal(teffi_view_standing(node.view, earlier), TEFFI_STANDING_DEAD);
        assert_int_equal(teffi_view_standing(node.view, later), TEFFI_STANDING_STRANGER);
    }
}

static void only_dead_silos_are_refused(void **state)
{
    assert_null(teffi_outsiders_check_may_connect(&membership, first_start(MEMBER)));
    assert_null(teffi_outsiders_check_may_connect(&membership, first_start(LEFT)));
    assert_null(teffi_outsiders_check_may_connect(&membership, first_start(STRANGER)));
    assert_non_null(strstr(teffi_outsiders_check_may_connect(&membership, first_start(DEAD)),
                           "declared this silo dead"));
}

static void connect_silo(uint32_t silo, teffi_standing expected)
{
    assert_int_equal(teffi_outsiders_add_connection(&membership, first_start(silo)), expected);
}

static void only_unknown_silos_are_strangers(void **state)
{
    connect_silo(MEMBER, TEFFI_STANDING_MEMBER);
    connect_silo(LEFT, TEFFI_STANDING_LEFT);
    assert_int_equal(node.strangers, 0);
    connect_silo(STRANGER, TEFFI_STANDING_STRANGER);
    assert_int_equal(node.strangers, 1);
    for (uint32_t silo = MEMBER; silo <= STRANGER; silo++)
        assert_int_equal(teffi_outsiders_have_stranger(&membership, first_start(silo)),
                         silo == STRANGER);
}

/* The hello was accepted by an older view. */
static void a_silo_that_died_meanwhile_must_go(void **state)
{
    connect_silo(DEAD, TEFFI_STANDING_DEAD);
    assert_int_equal(node.strangers, 0);
}

static void it_stays_a_stranger_until_its_last_connection_ends(void **state)
{
    connect_silo(STRANGER, TEFFI_STANDING_STRANGER);
    connect_silo(STRANGER, TEFFI_STANDING_STRANGER);
    teffi_outsiders_remove_connection(&membership, first_start(STRANGER));
    assert_int_equal(node.strangers, 1);
    teffi_outsiders_remove_connection(&membership, first_start(STRANGER));
    assert_int_equal(node.strangers, 0);
    assert_false(teffi_outsiders_have_stranger(&membership, first_start(STRANGER)));
    teffi_outsiders_remove_connection(&membership, first_start(STRANGER)); /* it is none any more */
}

static void a_view_makes_it_a_member(void **state)
{
    const teffi_member members[] = {{.node = {STRANGER, 5}, .status = TEFFI_ACTIVE}};
    connect_silo(STRANGER, TEFFI_STANDING_STRANGER);
    adopt(members, 1);
    assert_int_equal(node.strangers, 0);
    assert_int_equal(n_removed, 0);
    assert_int_equal(membership.outsiders.n, 0);
}

/* It died while it joined: this silo has never seen it as a member. */
static void a_view_disconnects_the_dead(void **state)
{
    const teffi_member members[] = {{.node = {STRANGER, 5}, .status = TEFFI_DEAD},
                                    {.node = {LEFT, 6}, .status = TEFFI_ACTIVE}};
    connect_silo(STRANGER, TEFFI_STANDING_STRANGER);
    connect_silo(LEFT, TEFFI_STANDING_LEFT);
    adopt(members, 2);
    assert_int_equal(n_removed, 2);
    assert_int_equal(node.strangers, 0);
    assert_int_equal(membership.outsiders.n, 0);
}

static void only_so_many_may_be_connected(void **state)
{
    enum { FIRST = 100, LAST = FIRST + TEFFI_OUTSIDERS_MAX };
    for (uint32_t silo = FIRST; silo < LAST; silo++)
        connect_silo(silo, TEFFI_STANDING_STRANGER);
    assert_non_null(
        strstr(teffi_outsiders_check_may_connect(&membership, first_start(LAST)), "too many"));
    connect_silo(LAST, TEFFI_STANDING_DEAD);
    assert_int_equal(node.strangers, TEFFI_OUTSIDERS_MAX);
    assert_null(teffi_outsiders_check_may_connect(&membership, first_start(FIRST)));
    assert_null(teffi_outsiders_check_may_connect(&membership, first_start(MEMBER)));
    connect_silo(FIRST, TEFFI_STANDING_STRANGER);
    for (int i = 0; i < 2; i++)
        teffi_outsiders_remove_connection(&membership, first_start(FIRST));
    connect_silo(LAST, TEFFI_STANDING_STRANGER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_view_tells_the_standing, setup, teardown),
        cmocka_unit_test_setup_teardown(each_start_of_a_silo_has_its_standing, setup, teardown),
        cmocka_unit_test_setup_teardown(only_dead_silos_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(only_unknown_silos_are_strangers, setup, teardown),
        cmocka_unit_test_setup_teardown(a_silo_that_died_meanwhile_must_go, setup, teardown),
        cmocka_unit_test_setup_teardown(it_stays_a_stranger_until_its_last_connection_ends, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_view_makes_it_a_member, setup, teardown),
        cmocka_unit_test_setup_teardown(a_view_disconnects_the_dead, setup, teardown),
        cmocka_unit_test_setup_teardown(only_so_many_may_be_connected, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
