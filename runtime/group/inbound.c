/* inbound.c - received batches that wait for a worker, each as an item of one of a few groups.
 * Threads: the thread whose atomic step moves a batch out of QUEUED runs it. */
#include "group/inbound.h"

#include <stdio.h>
#include "base/bug.h"
#include "base/queue.h"
#include "group/exec.h"
#include "os/thread.h"

enum {
    OVERDUE_NS = 50000000,    /* a longer wait means that all workers are in long turns */
    UNQUEUED_NS = 1000000000, /* after that wait: batches may hold system messages */
};

enum { STOPPED = 1 << 30 }; /* flag in teffi_inbound_group.puts */

/* Called when a batch leaves the queue. If it has waited longer than OVERDUE_NS, it is not
 * queued again until UNQUEUED_NS have passed. Until then, the submitting thread runs it. */
static void stop_queueing_if_overdue(teffi_inbound *batch, uint64_t now_ns)
{
    if (now_ns > batch->queued_ns && now_ns - batch->queued_ns > OVERDUE_NS)
        batch->unqueued_until_ns = now_ns + UNQUEUED_NS;
}

/* Handle a queued batch: run it, unless it was taken back, and release it in either case. */
static void run_and_release_queued_batch(teffi_group *group, teffi_item *item)
{
    teffi_inbound_group *own = teffi_container(group, teffi_inbound_group, group);
    teffi_inbound *batch = teffi_container(item, teffi_inbound, item);
    /* acquire: makes the submitter's stores visible. release: this thread has finished with
     * batch->item, which another thread may now queue again. */
    teffi_inbound_state was =
        atomic_exchange_explicit(&batch->state, TEFFI_INBOUND_IDLE, memory_order_acq_rel);
    if (was == TEFFI_INBOUND_QUEUED) {
        stop_queueing_if_overdue(batch, teffi_now(group->exec->platform));
        own->run(group->exec, batch);
    }
    batch->release(batch);
}

static void describe_inbound(teffi_group *group, char *text, size_t size)
{
    (void)group;
    snprintf(text, size, "received messages");
}

void teffi_inbound_queue_init(teffi_inbound_queue *queue, teffi_exec *exec,
                              void (*run)(teffi_exec *exec, teffi_inbound *batch))
{
    static const teffi_group_ops ops = {.handle = run_and_release_queued_batch,
                                        .describe = describe_inbound};
    for (unsigned i = 0; i < TEFFI_INBOUND_GROUPS; i++) {
        teffi_group_init(&queue->groups[i].group, exec, &ops);
        atomic_init(&queue->groups[i].puts, 0);
        queue->groups[i].run = run;
    }
}

/* Begin a put, unless the queue has stopped. out: false: it has stopped. */
static bool begin_put(teffi_inbound_group *own)
{
    /* relaxed: a put that comes after the stop touches nothing */
    if (!(atomic_fetch_add_explicit(&own->puts, 1, memory_order_relaxed) & STOPPED))
        return true;
    atomic_fetch_sub_explicit(&own->puts, 1, memory_order_relaxed);
    return false;
}

static void end_put(teffi_inbound_group *own)
{
    /* release: pairs with stop_puts */
    atomic_fetch_sub_explicit(&own->puts, 1, memory_order_release);
}

/* Refuse new puts, and wait until those under way have ended. Only then may this thread run the
 * group: a put makes it READY before it stores the batch in head. */
static void stop_puts(teffi_inbound_group *own)
{
    atomic_fetch_or_explicit(&own->puts, STOPPED, memory_order_relaxed);
    /* acquire: makes what the puts pushed visible; pairs with end_put */
    while (atomic_load_explicit(&own->puts, memory_order_acquire) != STOPPED)
        teffi_thread_yield();
}

bool teffi_inbound_queue_put(teffi_inbound_queue *queue, teffi_inbound *batch)
{
    if (batch->bytes <= TEFFI_INBOUND_SHORT || batch->state != TEFFI_INBOUND_IDLE)
        return false;
    if (!batch->group) { /* relaxed: only a round robin */
        uint32_t n = atomic_fetch_add_explicit(&queue->next, 1, memory_order_relaxed);
        batch->group = &queue->groups[n % TEFFI_INBOUND_GROUPS].group;
    }
    uint64_t now_ns = teffi_now(batch->group->exec->platform);
    teffi_inbound_group *own = teffi_container(batch->group, teffi_inbound_group, group);
    if (now_ns < batch->unqueued_until_ns || !begin_put(own))
        return false;
    batch->queued_ns = now_ns;
    /* release: publishes this thread's stores to the thread that moves the batch out of QUEUED */
    atomic_store_explicit(&batch->state, TEFFI_INBOUND_QUEUED, memory_order_release);
    teffi_bug_if(!teffi_group_push(batch->group, &batch->item));
    end_put(own);
    return true;
}

void teffi_inbound_queue_drain_and_stop(teffi_inbound_queue *queue)
{
    for (unsigned i = 0; i < TEFFI_INBOUND_GROUPS; i++) {
        teffi_inbound_group *own = &queue->groups[i];
        stop_puts(own);
        while (teffi_group_run(&own->group, UINT32_MAX, 0)) /* until it is IDLE */
            ;
    }
}

bool teffi_inbound_is_overdue(const teffi_inbound *batch, uint64_t now_ns)
{
    return batch->state == TEFFI_INBOUND_QUEUED && now_ns > batch->queued_ns &&
           now_ns - batch->queued_ns > OVERDUE_NS;
}

bool teffi_inbound_take_back(teffi_inbound *batch, uint64_t now_ns)
{
    teffi_inbound_state queued = TEFFI_INBOUND_QUEUED;
    /* acquire: makes the stores of the thread that queued the batch visible */
    if (!atomic_compare_exchange_strong_explicit(&batch->state, &queued, TEFFI_INBOUND_TAKEN_BACK,
                                                 memory_order_acquire, memory_order_relaxed))
        return false;
    stop_queueing_if_overdue(batch, now_ns);
    return true;
}
