/* test_runqueue.c - first in, first out, one or a batch at a time. */
#include "test.h"

#include <string.h>
#include "sched/queue/runqueue.h"

static void test_order_and_count(void **state)
{
    teffi_runqueue queue;
    teffi_group group[20], *out[20];
    teffi_runqueue_init(&queue);
    assert_int_equal(teffi_runqueue_pop(&queue, out, 20), 0);
    for (unsigned i = 0; i < 20; i++)
        teffi_runqueue_push(&queue, &group[i]);
    assert_int_equal(teffi_runqueue_count(&queue), 20);
    assert_int_equal(teffi_runqueue_pop(&queue, out, 1), 1);
    assert_ptr_equal(out[0], &group[0]);
    assert_int_equal(teffi_runqueue_pop(&queue, out, 16), 16);
    for (unsigned i = 0; i < 16; i++)
        assert_ptr_equal(out[i], &group[i + 1]);
    teffi_runqueue_push(&queue, &group[0]);
    assert_int_equal(teffi_runqueue_pop(&queue, out, 20), 4);
    assert_ptr_equal(out[0], &group[17]);
    assert_ptr_equal(out[3], &group[0]);
    assert_int_equal(teffi_runqueue_count(&queue), 0);
    teffi_runqueue_fini(&queue);
}

/* Whatever its memory held before. */
static void test_it_begins_in_order_of_arrival(void **state)
{
    teffi_runqueue queue;
    teffi_group group, *out;
    memset(&queue, 0xff, sizeof queue);
    teffi_runqueue_init(&queue);
    assert_null(queue.order);
    assert_int_equal(teffi_runqueue_count(&queue), 0);
    teffi_runqueue_push(&queue, &group);
    assert_int_equal(teffi_runqueue_pop(&queue, &out, 1), 1);
    assert_ptr_equal(out, &group);
    teffi_runqueue_fini(&queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_count),
        cmocka_unit_test(test_it_begins_in_order_of_arrival),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
