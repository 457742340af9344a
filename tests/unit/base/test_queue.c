/* test_queue.c - the plain FIFO. */
#include "base/queue.h"

/* cmocka comes after these. */
#include "test.h"

typedef struct item {
    int number;
    teffi_qnode node;
} item;

static int pop_number(teffi_queue *q)
{
    teffi_qnode *node = teffi_queue_pop(q);
    return node ? teffi_container(node, item, node)->number : -1;
}

static void push_all(teffi_queue *q, item *items, int first, int n)
{
    for (int i = 0; i < n; i++) {
        items[i].number = first + i;
        teffi_queue_push(q, &items[i].node);
    }
}

static void first_in_first_out(void **state)
{
    teffi_queue q = {0};
    item items[5];
    for (int round = 0; round < 3; round++) {
        assert_null(teffi_queue_pop(&q));
        push_all(&q, items, 0, 5);
        assert_int_equal(q.count, 5);
        for (int i = 0; i < 5; i++)
            assert_int_equal(pop_number(&q), i);
        assert_int_equal(q.count, 0);
        assert_null(q.tail);
    }
}

static void popped_nodes_can_go_back(void **state)
{
    teffi_queue q = {0};
    item items[3];
    push_all(&q, items, 0, 3);
    for (int i = 0; i < 10; i++) {
        teffi_qnode *node = teffi_queue_pop(&q);
        assert_null(node->next);
        teffi_queue_push(&q, node);
    }
    assert_int_equal(q.count, 3);
    assert_int_equal(pop_number(&q), 1);
    assert_int_equal(pop_number(&q), 2);
    assert_int_equal(pop_number(&q), 0);
}

/* Removes each node of three, and pushes it again: the head, the middle one, the tail. */
static void any_node_can_be_removed(void **state)
{
    for (int at = 0; at < 3; at++) {
        teffi_queue q = {0};
        item items[3];
        push_all(&q, items, 0, 3);
        teffi_qnode *before = at ? &items[at - 1].node : NULL;
        assert_ptr_equal(teffi_queue_after(&q, before), &items[at].node);
        teffi_queue_remove_after(&q, before);
        assert_null(items[at].node.next);
        assert_int_equal(q.count, 2);
        teffi_queue_push(&q, &items[at].node);
        assert_int_equal(pop_number(&q), at == 0);
        assert_int_equal(pop_number(&q), at == 2 ? 1 : 2);
        assert_int_equal(pop_number(&q), at);
        assert_null(teffi_queue_after(&q, NULL));
    }
}

static void move_appends(void **state)
{
    teffi_queue a = {0}, b = {0};
    item items[6];
    teffi_queue_move(&a, &b);
    assert_null(a.head);
    push_all(&b, items, 0, 2);
    teffi_queue_move(&a, &b);
    push_all(&b, items + 2, 2, 3);
    teffi_queue_move(&a, &b);
    teffi_queue_move(&a, &b);
    assert_int_equal(b.count, 0);
    assert_null(b.head);
    assert_int_equal(a.count, 5);
    push_all(&a, items + 5, 5, 1);
    for (int i = 0; i < 6; i++)
        assert_int_equal(pop_number(&a), i);
    assert_int_equal(pop_number(&a), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_in_first_out),
        cmocka_unit_test(popped_nodes_can_go_back),
        cmocka_unit_test(any_node_can_be_removed),
        cmocka_unit_test(move_appends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
