/* test_borrowers.c - which members use this silo's store: those that wrote in the time of their
 * lease. The clock is moved by hand. */
#include <string.h>
#include "test.h"
#include "cluster/view.h"
#include "silo/silo.h"

enum { LEASE_MS = 1000 };

static const uint64_t ms = 1000000;
static const teffi_node_id one = {7, 5}, other = {8, 5}, stranger = {10, 5};

static uint64_t now_ns;
static teffi_node node;
static teffi_borrowers borrowers = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t read_clock(void *arg)
{
    return now_ns;
}

static const teffi_platform platform = {.mono_ns = read_clock};

static void adopt(uint64_t version, const teffi_node_id *members, size_t n)
{
    teffi_member list[2] = {{.node = {0}}};
    const teffi_view *old = node.view;
    for (size_t i = 0; i < n; i++)
        list[i] = (teffi_member){.node = members[i], .status = TEFFI_ACTIVE, .lease_ms = LEASE_MS};
    list[1].lease_ms *= 2;
    node.view = teffi_view_new(version, list, n);
    assert_non_null(node.view);
    teffi_view_unref(old);
}

static int setup(void **state)
{
    now_ns = 50 * ms;
    memset(&node, 0, sizeof node);
    node.platform = &platform;
    pthread_mutex_init(&node.lock, NULL);
    node.borrowers = &borrowers;
    memset(borrowers.of, 0, sizeof borrowers.of);
    return 0;
}

static int teardown(void **state)
{
    teffi_view_unref(node.view);
    pthread_mutex_destroy(&node.lock);
    return 0;
}

/* Each for its own lease. */
static void a_member_counts_while_it_writes(void **state)
{
    adopt(1, (const teffi_node_id[]){one, other}, 2);
    assert_int_equal(teffi_borrowers_count(&node), 0);
    teffi_borrowers_record_write(&node, one);
    teffi_borrowers_record_write(&node, one);
    assert_int_equal(teffi_borrowers_count(&node), 1);
    teffi_borrowers_record_write(&node, other);
    now_ns += LEASE_MS * ms;
    assert_int_equal(teffi_borrowers_count(&node), 2);
    now_ns++;
    assert_int_equal(teffi_borrowers_count(&node), 1);
    teffi_borrowers_record_write(&node, one);
    now_ns += LEASE_MS * ms;
    assert_int_equal(teffi_borrowers_count(&node), 1);
}

/* A silo writes before it is a member, and no more when it is none. */
static void only_members_count(void **state)
{
    teffi_borrowers_record_write(&node, stranger);
    assert_int_equal(teffi_borrowers_count(&node), 0); /* there is no view */
    adopt(1, &one, 1);
    assert_int_equal(teffi_borrowers_count(&node), 0);
    adopt(2, (const teffi_node_id[]){one, stranger}, 2);
    assert_int_equal(teffi_borrowers_count(&node), 1);
    adopt(3, &one, 1);
    assert_int_equal(teffi_borrowers_count(&node), 0);
}

static void the_oldest_writes_are_forgotten(void **state)
{
    adopt(1, (const teffi_node_id[]){one, other}, 2);
    teffi_borrowers_record_write(&node, one);
    now_ns++;
    teffi_borrowers_record_write(&node, other);
    now_ns++;
    for (uint32_t i = 0; i < TEFFI_BORROWERS_MAX - 1; i++)
        teffi_borrowers_record_write(&node, (teffi_node_id){100 + i, 1});
    assert_int_equal(teffi_borrowers_count(&node), 1); /* the other one */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_member_counts_while_it_writes, setup, teardown),
        cmocka_unit_test_setup_teardown(only_members_count, setup, teardown),
        cmocka_unit_test_setup_teardown(the_oldest_writes_are_forgotten, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
