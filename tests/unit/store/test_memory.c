/* test_memory.c - the end of a store in memory waits for what still reports its outcome. */
#include <stdatomic.h>
#include "ask.h"
#include "setup.h"
#include "os/thread.h"

static teffi_store *store;
static _Atomic bool reports, goes_on, closed;

static void report_slowly(teffi_store_op *op)
{
    reports = true;
    while (!goes_on)
        teffi_thread_yield();
}

static void submit_one(void *arg)
{
    teffi_store_submit(store, arg);
}

static void close_store(void *arg)
{
    store->ops->close(store);
    closed = true;
}

static void a_close_waits_for_an_operation_that_reports(void **state)
{
    teffi_thread submits, closes;
    char text[TEFF_TEXT_MAX];
    teffi_row row = {.table = "t", .key = {"key", 3}};
    teffi_store_op op = {
        .kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1, .done = report_slowly};
    uint64_t etag = 0;
    assert_int_equal(teffi_store_open("memory", &store, text), TEFF_OK);
    assert_int_equal(teffi_thread_start(&submits, "submits", submit_one, &op), TEFF_OK);
    while (!reports)
        teffi_thread_yield();
    assert_int_equal(teffi_thread_start(&closes, "closes", close_store, NULL), TEFF_OK);
    teff_err err; /* until the close has begun to wait: it holds the lock before */
    while ((err = ask_put(store, "t", ask_str("other"), ask_str(""), &etag)) == TEFF_OK)
        teffi_thread_yield();
    assert_int_equal(err, TEFF_E_CLOSED);
    assert_false(closed);
    goes_on = true;
    teffi_thread_join(&submits);
    teffi_thread_join(&closes);
    assert_true(closed);
    assert_int_equal(op.err, TEFF_OK);
    store->ops->free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_close_waits_for_an_operation_that_reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
