/* closure.c - work items that are functions; the group of those that belong to nobody.
 * Way:     push | do -> a group's queue -> arrived -> run
 * Threads: as closure.h says; the depth of closures in place is each worker's own. */
#include "sched/closure.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/bug.h"
#include "base/queue.h"
#include "sched/context.h"
#include "sched/worker.h"

static bool take(teffi_closure *closure)
{
    return !atomic_exchange_explicit(&closure->queued, true, memory_order_acq_rel);
}

static teffi_done push_taken(teffi_group *group, teffi_closure *closure)
{
    closure->item.kind = TEFFI_ITEM_CLOSURE;
    if (teffi_group_push(group, &closure->item))
        return TEFFI_QUEUED;
    atomic_store_explicit(&closure->queued, false, memory_order_release);
    return TEFFI_REFUSED;
}

teffi_done teffi_closure_push(teffi_group *group, teffi_closure *closure)
{
    return take(closure) ? push_taken(group, closure) : TEFFI_REFUSED;
}

/* How many run inside one another in this worker's run. A turn may give way in the middle of one
 * and go on elsewhere: each run of groups counts for itself. */
static unsigned depth(const teffi_worker *w)
{
    uint64_t run = atomic_load_explicit(&w->run, memory_order_relaxed);
    return w->inlined_in == run ? w->inlined : 0;
}

static void set_depth(teffi_worker *w, unsigned n)
{
    w->inlined_in = atomic_load_explicit(&w->run, memory_order_relaxed);
    w->inlined = n;
}

/* Before it runs, since it may be pushed again, or freed, in it. */
static void run(teffi_closure *closure)
{
    atomic_store_explicit(&closure->queued, false, memory_order_release);
    closure->run(closure);
}

teffi_done teffi_closure_do(teffi_group *group, teffi_closure *closure)
{
    if (!take(closure))
        return TEFFI_REFUSED;
    teffi_worker *w = teffi_worker_self();
    if (!w || teffi_context_current(group->exec).group != group || depth(w) == TEFFI_INLINE_MAX)
        return push_taken(group, closure);
    unsigned before = depth(w);
    set_depth(w, before + 1);
    run(closure);
    set_depth(teffi_worker_self(), before);
    return TEFFI_RAN;
}

void teffi_closure_arrived(teffi_item *item)
{
    teffi_bug_if(item->kind != TEFFI_ITEM_CLOSURE);
    run(teffi_container(item, teffi_closure, item));
}

void teffi_closure_drop(teffi_item *item)
{
    teffi_closure *closure = teffi_container(item, teffi_closure, item);
    atomic_store_explicit(&closure->queued, false, memory_order_release);
    if (closure->drop)
        closure->drop(closure);
}

/* ---- on the heap ---- */

typedef struct errand {
    teffi_closure closure;
    void (*fn)(void *arg);
    void *arg;
} errand;

static void run_errand(teffi_closure *closure)
{
    errand *e = teffi_container(closure, errand, closure);
    void (*fn)(void *arg) = e->fn;
    void *arg = e->arg;
    free(e);
    fn(arg);
}

static void free_errand(teffi_closure *closure)
{
    free(teffi_container(closure, errand, closure));
}

teffi_closure *teffi_closure_new(void (*fn)(void *arg), void *arg)
{
    errand *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->closure.run = run_errand;
    e->closure.drop = free_errand;
    e->fn = fn;
    e->arg = arg;
    return &e->closure;
}

/* ---- the null context ---- */

static void null_item(teffi_group *group, teffi_item *item)
{
    (void)group;
    teffi_closure_arrived(item);
}

static void null_describe(teffi_group *group, char *text, size_t size)
{
    (void)group;
    snprintf(text, size, "the null context");
}

static const teffi_group_ops null_ops = {.handle = null_item, .describe = null_describe};

void teffi_null_init(teffi_exec *exec)
{
    teffi_group_init(&exec->null, exec, &null_ops);
}

void teffi_null_fini(teffi_exec *exec)
{
    teffi_item *item;
    while ((item = teffi_group_drain(&exec->null)))
        teffi_closure_drop(item);
}
