/* test_inbound.c - received batches that wait for a worker: which are queued, who runs and who
 * releases them, and what a long wait changes. The test is the worker; the clock is set by hand. */
#include "test.h"
#include <string.h>
#include "base/queue.h"
#include "group/exec.h"
#include "group/inbound.h"

enum { LONG = TEFFI_INBOUND_SHORT + 1, MS = 1000000, OVERDUE_MS = 50, UNQUEUED_MS = 1000 };

typedef struct received {
    teffi_inbound batch;
    unsigned runs, releases;
    bool again; /* its run submits it once more */
} received;

static uint64_t now_ns;
static unsigned ready;
static teffi_inbound_queue queue;

static uint64_t on_clock(void *arg)
{
    return now_ns;
}

static void on_ready(teffi_exec *exec, teffi_group *group)
{
    ready++;
}

static const teffi_platform platform = {.mono_ns = on_clock};
static const teffi_exec_ops exec_ops = {.ready = on_ready};
static teffi_exec exec = {.ops = &exec_ops, .platform = &platform};

static void run_on_exec(teffi_exec *on, teffi_inbound *batch)
{
    assert_ptr_equal(on, &exec);
    batch->run(batch);
}

static void on_run(teffi_inbound *batch)
{
    received *r = teffi_container(batch, received, batch);
    r->runs++;
    if (r->again) {
        r->again = false;
        assert_true(teffi_inbound_queue_put(&queue, batch));
    }
}

static void on_release(teffi_inbound *batch)
{
    teffi_container(batch, received, batch)->releases++;
}

static int setup(void **state)
{
    now_ns = (uint64_t)1000000 * MS;
    ready = 0;
    memset(&queue, 0, sizeof queue);
    teffi_inbound_queue_init(&queue, &exec, run_on_exec);
    return 0;
}

static received new_batch(size_t bytes)
{
    return (received){.batch = {.run = on_run, .release = on_release, .bytes = bytes}};
}

static void put(received *r)
{
    assert_true(teffi_inbound_queue_put(&queue, &r->batch));
}

static void refused(received *r)
{
    unsigned releases = r->releases;
    assert_false(teffi_inbound_queue_put(&queue, &r->batch));
    assert_int_equal(r->releases, releases);
}

static void pass_ms(unsigned ms)
{
    now_ns += (uint64_t)ms * MS;
}

/* As a worker does with a group that is READY. */
static void work(const received *r)
{
    assert_false(teffi_group_run(r->batch.group, 100, 0));
}

static void done(const received *r, unsigned runs, unsigned releases)
{
    assert_int_equal(r->runs, runs);
    assert_int_equal(r->releases, releases);
}

/* ---- which are queued ---- */

static void a_short_batch_is_the_callers(void **state)
{
    received r = new_batch(TEFFI_INBOUND_SHORT);
    refused(&r);
    assert_int_equal(ready, 0);
    r.batch.bytes++;
    put(&r);
    assert_int_equal(ready, 1);
    work(&r);
}

static void a_worker_runs_it_once_and_then_releases_it(void **state)
{
    received r = new_batch(LONG);
    put(&r);
    done(&r, 0, 0);
    work(&r);
    done(&r, 1, 1);
}

static void it_is_queued_once_at_a_time(void **state)
{
    received r = new_batch(LONG);
    put(&r);
    refused(&r);
    work(&r);
    done(&r, 1, 1);
    put(&r);
    work(&r);
    done(&r, 2, 2);
}

static void its_run_may_submit_it_again(void **state)
{
    received r = new_batch(LONG);
    r.again = true;
    put(&r);
    work(&r);
    done(&r, 2, 2);
}

static void new_batches_take_turns_on_the_lanes_and_keep_theirs(void **state)
{
    received r[TEFFI_INBOUND_GROUPS + 1];
    for (unsigned i = 0; i <= TEFFI_INBOUND_GROUPS; i++) {
        r[i] = new_batch(LONG);
        put(&r[i]);
        for (unsigned k = 0; k < i; k++)
            assert_int_equal(r[k].batch.group == r[i].batch.group, i - k == TEFFI_INBOUND_GROUPS);
    }
    assert_int_equal(ready, TEFFI_INBOUND_GROUPS);
    for (unsigned i = 0; i < TEFFI_INBOUND_GROUPS; i++)
        work(&r[i]);
    const teffi_group *group = r[3].batch.group;
    put(&r[3]);
    assert_ptr_equal(r[3].batch.group, group);
    work(&r[3]);
    done(&r[3], 2, 2);
    done(&r[TEFFI_INBOUND_GROUPS], 1, 1);
}

/* ---- taken back ---- */

static void one_that_is_taken_back_is_only_released_by_the_worker(void **state)
{
    received r = new_batch(LONG);
    put(&r);
    assert_true(teffi_inbound_take_back(&r.batch, now_ns));
    assert_false(teffi_inbound_take_back(&r.batch, now_ns));
    done(&r, 0, 0);
    work(&r);
    done(&r, 0, 1);
}

/* Its item is still in the group. */
static void one_that_is_taken_back_is_not_queued_before_it_was_released(void **state)
{
    received r = new_batch(LONG);
    put(&r);
    assert_true(teffi_inbound_take_back(&r.batch, now_ns));
    refused(&r);
    assert_false(teffi_inbound_take_back(&r.batch, now_ns));
    work(&r);
    put(&r);
    work(&r);
    done(&r, 1, 2);
}

static void one_that_is_not_queued_cannot_be_taken_back(void **state)
{
    received r = new_batch(LONG);
    assert_false(teffi_inbound_take_back(&r.batch, now_ns));
    put(&r);
    work(&r);
    assert_false(teffi_inbound_take_back(&r.batch, now_ns));
}

/* ---- long waits ---- */

static void it_is_overdue_after_50_ms_in_the_queue(void **state)
{
    received r = new_batch(LONG);
    assert_false(teffi_inbound_is_overdue(&r.batch, now_ns));
    put(&r);
    assert_false(teffi_inbound_is_overdue(&r.batch, now_ns - MS)); /* a clock read before */
    pass_ms(OVERDUE_MS);
    assert_false(teffi_inbound_is_overdue(&r.batch, now_ns));
    assert_true(teffi_inbound_is_overdue(&r.batch, now_ns + 1));
    assert_true(teffi_inbound_take_back(&r.batch, now_ns));
    assert_false(teffi_inbound_is_overdue(&r.batch, now_ns + MS));
    work(&r);
    assert_false(teffi_inbound_is_overdue(&r.batch, now_ns + MS));
}

static void unqueued_for_a_second(received *r)
{
    refused(r);
    pass_ms(UNQUEUED_MS - 1);
    refused(r);
    pass_ms(1);
    put(r);
    work(r);
}

static void after_a_long_wait_for_a_worker_it_is_not_queued_for_a_second(void **state)
{
    received r = new_batch(LONG);
    put(&r);
    pass_ms(OVERDUE_MS + 1);
    work(&r);
    done(&r, 1, 1);
    unqueued_for_a_second(&r);
}

static void the_same_after_a_long_wait_until_it_was_taken_back(void **state)
{
    received r = new_batch(LONG);
    put(&r);
    pass_ms(OVERDUE_MS + 1);
    assert_true(teffi_inbound_take_back(&r.batch, now_ns));
    work(&r);
    done(&r, 0, 1);
    unqueued_for_a_second(&r);
}

static void a_wait_within_the_limit_changes_nothing(void **state)
{
    received r = new_batch(LONG);
    put(&r);
    pass_ms(OVERDUE_MS);
    work(&r);
    put(&r);
    assert_true(teffi_inbound_take_back(&r.batch, now_ns - MS)); /* a clock read before */
    work(&r);
    put(&r);
    work(&r);
    done(&r, 2, 3);
}

/* ---- the end ---- */

static void stop_runs_what_is_queued_and_nothing_is_queued_after(void **state)
{
    received queued[2] = {new_batch(LONG), new_batch(LONG)}, back = new_batch(LONG),
             late = new_batch(LONG);
    put(&queued[0]);
    put(&queued[1]);
    put(&back);
    assert_true(teffi_inbound_take_back(&back.batch, now_ns));
    teffi_inbound_queue_drain_and_stop(&queue);
    done(&queued[0], 1, 1);
    done(&queued[1], 1, 1);
    done(&back, 0, 1);
    refused(&late);
    assert_false(teffi_inbound_take_back(&late.batch, now_ns)); /* its caller runs it */
    refused(&queued[0]);
    teffi_inbound_queue_drain_and_stop(&queue);
    done(&late, 0, 0);
}

static void its_groups_are_described(void **state)
{
    char text[TEFFI_DESCRIBE_MAX];
    teffi_group_describe(&queue.groups[0].group, text);
    assert_string_equal(text, "received messages");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_short_batch_is_the_callers, setup),
        cmocka_unit_test_setup(a_worker_runs_it_once_and_then_releases_it, setup),
        cmocka_unit_test_setup(it_is_queued_once_at_a_time, setup),
        cmocka_unit_test_setup(its_run_may_submit_it_again, setup),
        cmocka_unit_test_setup(new_batches_take_turns_on_the_lanes_and_keep_theirs, setup),
        cmocka_unit_test_setup(one_that_is_taken_back_is_only_released_by_the_worker, setup),
        cmocka_unit_test_setup(one_that_is_taken_back_is_not_queued_before_it_was_released, setup),
        cmocka_unit_test_setup(one_that_is_not_queued_cannot_be_taken_back, setup),
        cmocka_unit_test_setup(it_is_overdue_after_50_ms_in_the_queue, setup),
        cmocka_unit_test_setup(after_a_long_wait_for_a_worker_it_is_not_queued_for_a_second, setup),
        cmocka_unit_test_setup(the_same_after_a_long_wait_until_it_was_taken_back, setup),
        cmocka_unit_test_setup(a_wait_within_the_limit_changes_nothing, setup),
        cmocka_unit_test_setup(stop_runs_what_is_queued_and_nothing_is_queued_after, setup),
        cmocka_unit_test_setup(its_groups_are_described, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
