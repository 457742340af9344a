/* task.c - the runtime's own fibers, each on a group of its own.
 * Way:     membership, directory, lifecycle -> [task] -> ctx */
#include "node/task.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/bug.h"
#include "sched/closure.h"

enum { ITEM_START = 1 };

struct teffi_task {
    teffi_group group;
    teffi_item start;
    teff_ctx ctx;
    void (*fn)(teff_ctx *ctx, void *arg);
    void *arg;
    const char *_Atomic label; /* relaxed: a constant string, read by whoever describes the task */
    bool running;
    teffi_task *next_free, *next_of_all;
};

static void body(void *arg)
{
    teffi_task *t = arg;
    t->fn(&t->ctx, t->arg);
}

static void give_back(teffi_node *node, teffi_task *t)
{
    pthread_mutex_lock(&node->lock);
    t->next_free = node->free_tasks;
    node->free_tasks = t;
    pthread_mutex_unlock(&node->lock);
}

/* After the fiber ended: the task is kept for the next one. Its group is never taken apart, since a
 * signaller may still be about to wake it. */
static void finish(teffi_task *t)
{
    teffi_node *node = t->ctx.node;
    teffi_bug_if(t->ctx.waiting != 0);
    teffi_ctx_fini(&t->ctx);
    t->running = false;
    give_back(node, t);
    /* release, pairs with the acquire of who waits for tasks to end */
    atomic_fetch_sub_explicit(&node->tasks, 1, memory_order_release);
}

static void handle(teffi_group *group, teffi_item *item)
{
    teffi_task *t = teffi_container(group, teffi_task, group);
    teff_ctx *ctx;
    bool ended;
    if (item->kind == ITEM_START) {
        teffi_fiber_label(t->ctx.fiber, atomic_load_explicit(&t->label, memory_order_relaxed));
        ended = teffi_fiber_resume(t->ctx.fiber);
    } else if (item->kind == TEFFI_ITEM_CLOSURE) {
        teffi_closure_arrived(item);
        return;
    } else {
        ended = teffi_wait_arrived(item, &ctx);
    }
    if (ended)
        finish(t);
}

static void resume(teffi_group *group, teffi_fiber *fiber)
{
    if (teffi_fiber_resume(fiber))
        finish(teffi_container(group, teffi_task, group));
}

static void describe(teffi_group *group, char *text, size_t size)
{
    teffi_task *t = teffi_container(group, teffi_task, group);
    const char *label = atomic_load_explicit(&t->label, memory_order_relaxed);
    snprintf(text, size, "task %s", label ? label : "without a name");
}

static const teffi_group_ops ops = {
    .handle = handle, .resume = resume, .describe = describe, .kind = TEFFI_CONTEXT_TASK};

static teffi_task *take_task(teffi_node *node)
{
    pthread_mutex_lock(&node->lock);
    teffi_task *t = node->free_tasks;
    if (t)
        node->free_tasks = t->next_free;
    pthread_mutex_unlock(&node->lock);
    if (t)
        return t;
    t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    teffi_group_init(&t->group, node->exec, &ops);
    pthread_mutex_lock(&node->lock);
    t->next_of_all = node->all_tasks;
    node->all_tasks = t;
    pthread_mutex_unlock(&node->lock);
    return t;
}

teff_err teffi_task_start(teffi_node *node, void (*fn)(teff_ctx *ctx, void *arg), void *arg,
                          const char *label)
{
    teffi_task *t = take_task(node);
    if (!t)
        return TEFF_E_NOMEM;
    teffi_ctx_init(&t->ctx, node, &t->group);
    t->start.kind = ITEM_START;
    t->fn = fn;
    t->arg = arg;
    atomic_store_explicit(&t->label, label, memory_order_relaxed);
    t->ctx.fiber = teffi_fiber_new(node->exec->fibers, body, t);
    if (!t->ctx.fiber) {
        give_back(node, t);
        return TEFF_E_NOMEM;
    }
    t->running = true;
    atomic_fetch_add_explicit(&node->tasks, 1, memory_order_relaxed);
    (void)teffi_group_push(&t->group, &t->start);
    return TEFF_OK;
}

void teffi_tasks_fini(teffi_node *node)
{
    node->free_tasks = NULL;
    while (node->all_tasks) {
        teffi_task *t = node->all_tasks;
        node->all_tasks = t->next_of_all;
        teffi_item *item; /* waits, and the start, are not ours to free */
        while ((item = teffi_group_drain(&t->group)))
            if (item->kind == TEFFI_ITEM_CLOSURE)
                teffi_closure_drop(item);
        if (t->running)
            teffi_ctx_fini(&t->ctx);
        free(t);
    }
}
