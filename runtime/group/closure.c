/* closure.c - work items that are function calls, and the null group, which runs those that belong
 * to no other group. */
#include "group/closure.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/bug.h"
#include "base/queue.h"

typedef struct closure {
    teffi_item item;
    void (*fn)(void *arg);
    void *arg;
} closure;

teff_err teffi_closure_push(teffi_group *group, void (*fn)(void *arg), void *arg)
{
    closure *c = calloc(1, sizeof *c);
    if (!c)
        return TEFF_E_NOMEM;
    *c = (closure){.item.kind = TEFFI_ITEM_CLOSURE, .fn = fn, .arg = arg};
    if (teffi_group_push(group, &c->item))
        return TEFF_OK;
    free(c);
    return TEFF_E_CLOSED;
}

void teffi_closure_run(teffi_item *item)
{
    teffi_bug_if(item->kind != TEFFI_ITEM_CLOSURE);
    closure c = *teffi_container(item, closure, item);
    teffi_closure_drop(item);
    c.fn(c.arg);
}

void teffi_closure_drop(teffi_item *item)
{
    free(teffi_container(item, closure, item));
}

/* ---- the null group ---- */

static void handle_null_group_item(teffi_group *group, teffi_item *item)
{
    (void)group;
    teffi_closure_run(item);
}

static void describe_null_group(teffi_group *group, char *text, size_t size)
{
    (void)group;
    snprintf(text, size, "the null group");
}

static const teffi_group_ops null_group_ops = {.handle = handle_null_group_item,
                                               .describe = describe_null_group};

void teffi_null_group_init(teffi_exec *exec)
{
    teffi_group_init(&exec->null_group, exec, &null_group_ops);
}

void teffi_null_group_fini(teffi_exec *exec)
{
    teffi_item *item;
    while ((item = teffi_group_take_item(&exec->null_group)))
        teffi_closure_drop(item);
}
