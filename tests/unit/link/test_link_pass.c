/* test_link_pass.c - links with an executor: its workers put writes off to the end of their pass,
 * and take long reads apart. */
#include "net_test.h"

#include <time.h>
#include "sched/exec.h"
#include "link/link.h"

enum { N = 20000 };

/* A group whose turn sends. */
typedef struct sender {
    teffi_group group;
    teffi_item item;
    test_node *from, *to;
    uint32_t n;
    bool blocks;
    _Atomic bool sent, go_on, over;
} sender;

static void wait_for(_Atomic bool *flag)
{
    uint64_t limit = test_deadline();
    struct timespec t = {0, 1000000};
    while (!*flag && test_now() < limit)
        nanosleep(&t, NULL);
}

/* The turn goes on, with its thread, until it may end. */
static void send_all(teffi_group *group, teffi_item *item)
{
    sender *s = teffi_container(group, sender, group);
    for (uint32_t i = 1; i <= s->n; i++)
        test_send(s->from, s->to, i, 20);
    s->sent = true;
    if (s->blocks)
        group->exec->ops->blocking_begin(group->exec);
    wait_for(&s->go_on);
    if (s->blocks)
        group->exec->ops->blocking_end(group->exec);
    s->over = true;
}

static void begin(sender *s)
{
    static const teffi_group_ops ops = {.handle = send_all};
    teffi_group_init(&s->group, s->from->exec, &ops);
    assert_true(teffi_group_push(&s->group, &s->item));
}

static void end(sender *s)
{
    s->go_on = true;
    wait_for(&s->over);
    assert_true(s->over);
}

/* Two nodes whose connection is up; a has the executor, b if it reads with workers too. */
static void connect(test_node **a, test_node **b, unsigned readers)
{
    *a = test_node_start((test_options){.workers = 2});
    *b = test_node_start((test_options){.workers = readers});
    test_know(*a, *b);
    test_know(*b, *a);
    test_send(*b, *a, 1, 1);
    test_send(*a, *b, 1, 1);
    test_node *nb = *b, *na = *a;
    test_wait(nb, nb->messages == 1 && nb->ups == 2 && !(nb->last_slot = 0));
    test_wait(na, na->messages == 1 && na->ups == 2 && !(na->last_slot = 0));
}

static void disconnect(test_node *a, test_node *b)
{
    test_node_stop(a);
    test_node_stop(b);
}

static void one_pass_is_few_writes(void **state)
{
    test_node *a, *b;
    connect(&a, &b, 2);
    uint64_t before = test_counters(a->net).writes;
    sender s = {.from = a, .to = b, .n = N, .go_on = true};
    begin(&s);
    end(&s);
    test_wait(b, b->messages == N + 1);
    assert_int_equal(b->disorder, 0);
    assert_in_range(test_counters(a->net).writes - before, 1, N / 20);
    assert_int_equal(test_counters(a->net).frames_out, N + 1);
    assert_int_equal(test_counters(b->net).frames_in, N + 1);
    disconnect(a, b);
}

static void a_turn_that_goes_on_holds_nothing_back(void **state)
{
    test_node *a, *b;
    connect(&a, &b, 0);
    sender senders[2]; /* they live as long as a's workers */
    for (int blocks = 0; blocks < 2; blocks++) {
        sender *s = &senders[blocks];
        *s = (sender){.from = a, .to = b, .n = 3, .blocks = blocks};
        unsigned so_far = b->messages;
        begin(s);
        test_wait(b, b->messages == so_far + 3);
        assert_false(s->over);
        end(s);
    }
    disconnect(a, b);
}

enum { KEEPERS = 12, KEPT = 4 }; /* two slots, and as many that were retaken */

static _Atomic unsigned kept;
static _Atomic bool all_kept;

/* Keeps its worker; sends nothing. */
static void keep_worker(teffi_group *group, teffi_item *item)
{
    sender *s = teffi_container(group, sender, group);
    if (++kept == KEPT)
        all_kept = true;
    wait_for(&s->go_on);
    s->over = true;
}

/* All workers that there may be are in turns that do not end: what comes is taken apart elsewhere,
 * in its order, since a part of it may be what keeps the silo in its cluster. */
static void reads_do_not_wait_for_workers(void **state)
{
    static const teffi_group_ops ops = {.handle = keep_worker};
    static sender keepers[KEEPERS];
    test_node *a, *b;
    connect(&a, &b, 2);
    for (unsigned i = 0; i < KEEPERS; i++) {
        keepers[i] = (sender){0};
        teffi_group_init(&keepers[i].group, b->exec, &ops);
        assert_true(teffi_group_push(&keepers[i].group, &keepers[i].item));
    }
    wait_for(&all_kept);
    assert_true(all_kept);
    sender s = {.from = a, .to = b, .n = N, .go_on = true}, again = s;
    begin(&s);
    end(&s);
    test_wait(b, b->messages == N + 1);
    assert_int_equal(b->disorder, 0);
    for (unsigned i = 0; i < KEEPERS; i++)
        keepers[i].go_on = true;
    for (unsigned i = 0; i < KEEPERS; i++)
        end(&keepers[i]);
    begin(&again); /* and workers are used again */
    end(&again);
    test_wait(b, b->messages == 2 * N + 1);
    disconnect(a, b);
}

static _Atomic unsigned at_once;

static void send_in_region(teffi_group *group, teffi_item *item)
{
    sender *s = teffi_container(group, sender, group);
    group->exec->ops->blocking_begin(group->exec);
    for (uint32_t i = 1; i <= s->n; i++) {
        uint64_t before = test_counters(s->from->net).bytes_out;
        test_send(s->from, s->to, i, 20);
        at_once += test_counters(s->from->net).bytes_out > before;
    }
    group->exec->ops->blocking_end(group->exec);
    s->over = true;
}

/* A blocking region has no loop iteration whose end could send deferred writes. A round does not
 * count in which the ticker was writing a heartbeat, and then wrote what was sent meanwhile. */
static void a_blocking_region_writes_at_once(void **state)
{
    static const teffi_group_ops ops = {.handle = send_in_region};
    for (int round = 0; round < 20 && at_once != 100; round++) {
        test_node *a, *b;
        connect(&a, &b, 0);
        sender s = {.from = a, .to = b, .n = 100};
        teffi_group_init(&s.group, a->exec, &ops);
        at_once = 0;
        assert_true(teffi_group_push(&s.group, &s.item));
        test_wait(b, b->messages == 101);
        wait_for(&s.over);
        disconnect(a, b);
    }
    assert_int_equal(at_once, 100);
}

static void deferred_writes_of_a_stopped_executor_are_sent(void **state)
{
    for (int round = 0; round < 20; round++) {
        test_node *a, *b;
        connect(&a, &b, 0);
        sender s = {.from = a, .to = b, .n = 3, .go_on = true};
        begin(&s);
        wait_for(&s.sent);
        a->exec->ops->stop(a->exec);
        test_wait(b, b->messages == 4);
        assert_int_equal(b->disorder, 0);
        disconnect(a, b);
    }
}

static void workers_respond_in_order(void **state)
{
    test_node *a, *b;
    connect(&a, &b, 2);
    b->echo = true;
    sender s = {.from = a, .to = b, .n = N, .go_on = true};
    begin(&s);
    end(&s);
    test_wait(b, b->messages == N + 1);
    test_wait(a, a->messages == N + 1);
    assert_int_equal(b->disorder, 0);
    assert_int_equal(a->last_slot, N);
    disconnect(a, b);
}

/* What was handed to workers and not begun when they stopped must not keep the link. */
static void a_link_ends_with_reads_under_way(void **state)
{
    for (int round = 0; round < 20; round++) {
        test_node *a, *b;
        connect(&a, &b, 1);
        b->hold = true;
        sender s = {.from = a, .to = b, .n = N / 10, .go_on = true};
        begin(&s);
        end(&s);
        disconnect(b, a);
    }
}

static const teffi_exec_ops *usual;
static void (*usual_run)(teffi_inbound *batch);
static _Thread_local bool in_batch;
static _Atomic unsigned batches, told_else;

static void run_and_note(teffi_inbound *batch)
{
    bool outer = in_batch;
    in_batch = true;
    usual_run(batch);
    in_batch = outer;
}

static void submit_and_note(teffi_exec *exec, teffi_inbound *batch)
{
    batches++;
    if (batch->run != run_and_note)
        usual_run = batch->run;
    batch->run = run_and_note;
    usual->inbound(exec, batch);
}

static void look_where_it_is_told(test_node *node, const teffi_msg *msg)
{
    told_else += !in_batch && node->exec->ops->worker(node->exec);
}

/* Little and much: the executor chooses who hands it on, and a worker always does so in a batch. */
static void what_is_received_is_submitted(void **state)
{
    enum { EACH = 50, LONG = 4 * LINK_READ_SHORT };
    test_node *a = test_node_start((test_options){0});
    test_node *b = test_node_start((test_options){.workers = 2});
    usual = b->exec->ops;
    teffi_exec_ops noting = *usual;
    noting.inbound = submit_and_note;
    b->exec->ops = &noting;
    b->look = look_where_it_is_told;
    test_know(a, b);
    for (uint32_t i = 1; i <= EACH; i++) {
        test_send(a, b, i, i % 2 ? LONG : 20);
        test_wait(b, b->messages == i);
    }
    assert_true(batches > 0);
    if (!((teffi_link *)b->net)->conns.polling.poller) /* what a worker polls is a batch anyway */
        assert_int_equal(told_else, 0);
    test_node_stop(a);
    test_node_stop(b);
}

/* A client asks what it may not, behind the executor's end: what the link says to it, on the thread
 * that frees it and with no message to tell, must not keep the link either. */
static void a_link_ends_with_refusals_under_way(void **state)
{
    enum { ASKED = 40, BODY = 64 };
    test_node *b = test_node_start((test_options){.workers = 1});
    test_node *a = test_node_start((test_options){.role = TEFFI_ROLE_CLIENT});
    test_know(a, b);
    test_send(a, b, 1, 1);
    test_wait(b, b->messages + test_counters(b->net).refused_system == 1);
    b->exec->ops->stop(b->exec);
    uint64_t before = test_counters(b->net).bytes_in;
    for (uint32_t i = 2; i < 2 + ASKED; i++) {
        teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, i, BODY);
        msg->src = a->id;
        msg->to = (teffi_pid){.node = b->id, .slot = 1};
        assert_int_equal(a->net->ops->send(a->net, b->id, msg), TEFF_OK);
    }
    test_flush(a);
    test_wait(b, test_counters(b->net).bytes_in - before > (uint64_t)ASKED * BODY);
    test_node_stop(b);
    test_node_stop(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_pass_is_few_writes),
        cmocka_unit_test(a_turn_that_goes_on_holds_nothing_back),
        cmocka_unit_test(reads_do_not_wait_for_workers),
        cmocka_unit_test(a_blocking_region_writes_at_once),
        cmocka_unit_test(deferred_writes_of_a_stopped_executor_are_sent),
        cmocka_unit_test(workers_respond_in_order),
        cmocka_unit_test(a_link_ends_with_reads_under_way),
        cmocka_unit_test(what_is_received_is_submitted),
        cmocka_unit_test(a_link_ends_with_refusals_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
