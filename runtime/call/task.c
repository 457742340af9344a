/* task.c - the runtime's own fibers, each on a group of its own. */
#include "call/task.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/bug.h"
#include "group/closure.h"

enum { ITEM_START = 1 };

typedef struct teffi_task teffi_task;

struct teffi_task {
    teffi_group group;
    teffi_item start;
    teff_ctx ctx;
    void (*fn)(teff_ctx *ctx, void *arg);
    void *arg;
    const char *_Atomic label; /* relaxed: a constant string, read by describe_task */
    bool running;
    teffi_task *next_free, *next_of_all;
};

static void run_task_fn(void *arg)
{
    teffi_task *t = arg;
    t->fn(&t->ctx, t->arg);
}

static void put_free_task(teffi_tasks *tasks, teffi_task *t)
{
    pthread_mutex_lock(&tasks->lock);
    t->next_free = tasks->free[t->group.system];
    tasks->free[t->group.system] = t;
    pthread_mutex_unlock(&tasks->lock);
}

/* The fiber has ended. The task is kept for reuse, but its group is not reset, since a thread that
 * signals late may still use it. */
static void finish_task(teffi_task *t)
{
    teffi_tasks *tasks = &t->ctx.home->tasks;
    teffi_bug_if(t->ctx.waiting != 0);
    teffi_ctx_fini(&t->ctx);
    t->running = false;
    put_free_task(tasks, t);
    /* release: pairs with teffi_tasks_count_running */
    atomic_fetch_sub_explicit(&tasks->running, 1, memory_order_release);
}

static void run_task_item(teffi_group *group, teffi_item *item)
{
    teffi_task *t = teffi_container(group, teffi_task, group);
    teff_ctx *ctx;
    bool ended;
    if (item->kind == ITEM_START) {
        teffi_fiber_set_label(t->ctx.fiber, atomic_load_explicit(&t->label, memory_order_relaxed));
        ended = teffi_fiber_resume(t->ctx.fiber);
    } else if (item->kind == TEFFI_ITEM_CLOSURE) {
        teffi_closure_run(item);
        return;
    } else {
        ended = teffi_wait_mark_done_and_resume(item, &ctx);
    }
    if (ended)
        finish_task(t);
}

static void resume_task(teffi_group *group, teffi_fiber *fiber)
{
    if (teffi_fiber_resume(fiber))
        finish_task(teffi_container(group, teffi_task, group));
}

static void describe_task(teffi_group *group, char *text, size_t size)
{
    teffi_task *t = teffi_container(group, teffi_task, group);
    const char *label = atomic_load_explicit(&t->label, memory_order_relaxed);
    snprintf(text, size, "task %s", label ? label : "without a name");
}

static const teffi_group_ops task_ops = {
    .handle = run_task_item, .resume = resume_task, .describe = describe_task};

/* Takes a free task, or makes one. out: NULL: no memory. */
static teffi_task *get_free_or_new_task(teffi_home *home, bool system)
{
    teffi_tasks *tasks = &home->tasks;
    pthread_mutex_lock(&tasks->lock);
    teffi_task *t = tasks->free[system];
    if (t)
        tasks->free[system] = t->next_free;
    pthread_mutex_unlock(&tasks->lock);
    if (t)
        return t;
    t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    teffi_group_init(&t->group, home->exec, &task_ops);
    if (system) /* never changed back: a late signaller may still use the group */
        teffi_group_set_system(&t->group);
    pthread_mutex_lock(&tasks->lock);
    t->next_of_all = tasks->all;
    tasks->all = t;
    pthread_mutex_unlock(&tasks->lock);
    return t;
}

teff_err teffi_task_start(teffi_home *home, void (*fn)(teff_ctx *ctx, void *arg), void *arg,
                          const char *label, bool system)
{
    teffi_task *t = get_free_or_new_task(home, system);
    if (!t)
        return TEFF_E_NOMEM;
    teffi_ctx_init(&t->ctx, home, &t->group);
    t->start.kind = ITEM_START;
    t->fn = fn;
    t->arg = arg;
    atomic_store_explicit(&t->label, label, memory_order_relaxed);
    struct teffi_fiber_pool *reserved = t->group.system ? home->exec->system_fibers : NULL;
    t->ctx.fiber = teffi_fiber_new(reserved ? reserved : home->exec->fibers, run_task_fn, t);
    if (!t->ctx.fiber) {
        put_free_task(&home->tasks, t);
        return TEFF_E_NOMEM;
    }
    t->running = true;
    atomic_fetch_add_explicit(&home->tasks.running, 1, memory_order_relaxed);
    (void)teffi_group_push(&t->group, &t->start); /* a task's group never ends */
    return TEFF_OK;
}

uint64_t teffi_tasks_count_running(teffi_home *home)
{
    /* acquire: pairs with finish_task */
    return atomic_load_explicit(&home->tasks.running, memory_order_acquire);
}

void teffi_tasks_free_all(teffi_home *home)
{
    teffi_tasks *tasks = &home->tasks;
    tasks->free[0] = tasks->free[1] = NULL;
    while (tasks->all) {
        teffi_task *t = tasks->all;
        tasks->all = t->next_of_all;
        teffi_item *item; /* waits and t->start are not heap blocks: only closures are freed */
        while ((item = teffi_group_take_item(&t->group)))
            if (item->kind == TEFFI_ITEM_CLOSURE)
                teffi_closure_drop(item);
        if (t->running)
            teffi_ctx_fini(&t->ctx);
        free(t);
    }
}
