/* test_op_queue.c - what waits for an engine's thread: order, groups, limits, close. */
#include "setup.h"
#include "store/op_queue.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { KIB = 1024, MIB = 1024 * KIB };

static unsigned n_done;

static void count_done(teffi_store_op *op)
{
    (void)op;
    n_done++;
}

typedef struct fixture {
    teffi_op_queue queue;
    teffi_store_op *group[TEFFI_OP_QUEUE_GROUP_MAX];
} fixture;

static fixture f;

static int open_queue(void **state)
{
    (void)state;
    n_done = 0;
    teffi_op_queue_init(&f.queue, "test");
    return 0;
}

static int close_queue(void **state)
{
    (void)state;
    teffi_op_queue_fini(&f.queue);
    return 0;
}

/* A write of so many bytes; 0: a read. */
static void make_op(teffi_store_op *op, teffi_row *row, size_t bytes)
{
    *row = (teffi_row){.table = "words", .value = {"", bytes}};
    *op = (teffi_store_op){.kind = bytes ? TEFFI_STORE_WRITE : TEFFI_STORE_READ,
                           .rows = row,
                           .n_rows = 1,
                           .done = count_done};
}

static void groups_keep_the_order(void **state)
{
    enum { N = TEFFI_OP_QUEUE_GROUP_MAX + 5 };
    static teffi_store_op ops[N];
    static teffi_row rows[N];
    (void)state;
    for (size_t i = 0; i < N; i++) {
        make_op(&ops[i], &rows[i], 1);
        teffi_op_queue_submit(&f.queue, &ops[i]);
    }
    assert_int_equal(teffi_op_queue_take_ops(&f.queue, f.group, 0), TEFFI_OP_QUEUE_GROUP_MAX);
    for (size_t i = 0; i < TEFFI_OP_QUEUE_GROUP_MAX; i++)
        assert_ptr_equal(f.group[i], &ops[i]);
    assert_int_equal(teffi_op_queue_take_ops(&f.queue, f.group, 0), 5);
    assert_ptr_equal(f.group[4], &ops[N - 1]);
    assert_int_equal(teffi_op_queue_take_ops(&f.queue, f.group, 0), 0);
    assert_int_equal(n_done, 0);
    for (size_t i = 0; i < N; i++)
        teffi_op_queue_finish_op(&f.queue, &ops[i]);
    assert_int_equal(n_done, N);
}

static void a_group_has_a_limit_of_reads(void **state)
{
    enum { N = TEFFI_OP_QUEUE_GROUP_READS_MAX + 6 };
    static teffi_store_op ops[N];
    static teffi_row rows[N];
    (void)state;
    for (size_t i = 0; i < N; i++) {
        make_op(&ops[i], &rows[i], i == 1); /* one write */
        ops[i].kind = i == N - 3 ? TEFFI_STORE_SCAN : ops[i].kind;
        teffi_op_queue_submit(&f.queue, &ops[i]);
    }
    assert_int_equal(teffi_op_queue_take_ops(&f.queue, f.group, 0),
                     TEFFI_OP_QUEUE_GROUP_READS_MAX + 1);
    assert_int_equal(teffi_op_queue_take_ops(&f.queue, f.group, 0), 3); /* the scan is the last */
    assert_ptr_equal(f.group[2], &ops[N - 3]);
    assert_int_equal(teffi_op_queue_take_ops(&f.queue, f.group, 0), 2);
}

static void a_group_has_a_limit_of_bytes(void **state)
{
    enum { N = 4 };
    static const size_t mib[N] = {40, 10, 6, 1}; /* 40 alone; 10 and 6 are 16 */
    teffi_store_op ops[N];
    teffi_row rows[N];
    (void)state;
    for (size_t i = 0; i < N; i++) {
        make_op(&ops[i], &rows[i], mib[i] * MIB);
        teffi_op_queue_submit(&f.queue, &ops[i]);
    }
    assert_int_equal(teffi_op_queue_take_ops(&f.queue, f.group, 0), 1);
    assert_int_equal(teffi_op_queue_take_ops(&f.queue, f.group, 0), 2);
    assert_int_equal(teffi_op_queue_take_ops(&f.queue, f.group, 0), 1);
    assert_ptr_equal(f.group[0], &ops[3]);
}

/* A write of any size is accepted alone; reads do not count; a finished write gives its bytes
 * back. */
static void bytes_over_the_limit_are_refused(void **state)
{
    teffi_store_op first, second, read, system;
    teffi_row rows[4];
    (void)state;
    make_op(&first, &rows[0], TEFFI_OP_QUEUE_BYTES_MAX);
    make_op(&second, &rows[1], 1);
    make_op(&read, &rows[2], 0);
    make_op(&system, &rows[3], 1);
    system.system = true;
    teffi_op_queue_submit(&f.queue, &first);
    teffi_op_queue_submit(&f.queue, &second);
    assert_int_equal(second.err, TEFF_E_OVERLOADED);
    assert_string_equal(second.text, "test: 65536 operations, or 67108864 bytes, wait");
    assert_int_equal(n_done, 1);
    teffi_op_queue_submit(&f.queue, &read);
    teffi_op_queue_submit(&f.queue, &system);
    assert_int_equal(n_done, 1);
    assert_int_equal(teffi_op_queue_take_ops(&f.queue, f.group, 0), 1);
    teffi_op_queue_finish_op(&f.queue, &first);
    make_op(&second, &rows[1], TEFFI_OP_QUEUE_BYTES_MAX - 1); /* and the 1 of system */
    teffi_op_queue_submit(&f.queue, &second);
    assert_int_equal(n_done, 2);
    assert_int_equal(teffi_op_queue_take_ops(&f.queue, f.group, 0), 2);
    assert_int_equal(teffi_op_queue_take_ops(&f.queue, f.group, 0), 1);
}

static void operations_over_the_limit_are_refused(void **state)
{
    static teffi_store_op ops[TEFFI_OP_QUEUE_OPS_MAX + 1];
    static teffi_row row;
    (void)state;
    for (size_t i = 0; i <= TEFFI_OP_QUEUE_OPS_MAX; i++) {
        make_op(&ops[i], &row, 0);
        teffi_op_queue_submit(&f.queue, &ops[i]);
    }
    assert_int_equal(n_done, 1);
    assert_int_equal(ops[TEFFI_OP_QUEUE_OPS_MAX].err, TEFF_E_OVERLOADED);
    assert_int_equal(ops[TEFFI_OP_QUEUE_OPS_MAX - 1].err, TEFF_OK);
}

static void what_was_submitted_is_taken_after_close(void **state)
{
    teffi_store_op op, late;
    teffi_row rows[2];
    (void)state;
    make_op(&op, &rows[0], 1);
    make_op(&late, &rows[1], 1);
    teffi_op_queue_submit(&f.queue, &op);
    assert_false(teffi_op_queue_is_closed(&f.queue));
    assert_true(teffi_op_queue_close(&f.queue));
    assert_true(teffi_op_queue_is_closed(&f.queue));
    assert_false(teffi_op_queue_close(&f.queue));
    teffi_op_queue_submit(&f.queue, &late);
    assert_int_equal(late.err, TEFF_E_CLOSED);
    assert_string_equal(late.text, "test: the store is closed");
    assert_int_equal(teffi_op_queue_take_ops(&f.queue, f.group, UINT64_MAX), 1);
    assert_int_equal(teffi_op_queue_take_ops(&f.queue, f.group, UINT64_MAX), 0);
}

static void *take_until_closed(void *arg)
{
    size_t *taken = arg, n;
    while ((n = teffi_op_queue_take_ops(&f.queue, f.group, UINT64_MAX)) > 0) {
        *taken += n;
        for (size_t i = 0; i < n; i++)
            teffi_op_queue_finish_op(&f.queue, f.group[i]);
    }
    return NULL;
}

static void a_waiting_thread_is_woken(void **state)
{
    enum { N = 20000 };
    static teffi_store_op ops[N];
    static teffi_row row;
    pthread_t thread;
    size_t taken = 0;
    (void)state;
    pthread_create(&thread, NULL, take_until_closed, &taken);
    for (size_t i = 0; i < N; i++) {
        make_op(&ops[i], &row, 0);
        teffi_op_queue_submit(&f.queue, &ops[i]);
    }
    (void)teffi_op_queue_close(&f.queue);
    pthread_join(thread, NULL);
    assert_int_equal(taken, N);
    assert_int_equal(n_done, N);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(groups_keep_the_order, open_queue, close_queue),
        cmocka_unit_test_setup_teardown(a_group_has_a_limit_of_reads, open_queue, close_queue),
        cmocka_unit_test_setup_teardown(a_group_has_a_limit_of_bytes, open_queue, close_queue),
        cmocka_unit_test_setup_teardown(bytes_over_the_limit_are_refused, open_queue, close_queue),
        cmocka_unit_test_setup_teardown(operations_over_the_limit_are_refused, open_queue,
                                        close_queue),
        cmocka_unit_test_setup_teardown(what_was_submitted_is_taken_after_close, open_queue,
                                        close_queue),
        cmocka_unit_test_setup_teardown(a_waiting_thread_is_woken, open_queue, close_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
