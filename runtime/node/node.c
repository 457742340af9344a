/* node.c - a node's parts, from init to fini, and its system targets. */
#include "node/node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "call/calls.h"
#include "call/ctx.h"
#include "call/task.h"
#include "call/wait.h"
#include "node/deliver.h"
#include "group/closure.h"
#include "os/thread.h"

/* Gives system groups a thread of their own, if the executor can. On an error the executor is
 * freed. */
static teff_err start_system_thread(teffi_node *node)
{
    teff_err err =
        node->home.exec->ops->system ? node->home.exec->ops->system(node->home.exec) : TEFF_OK;
    if (err) {
        node->home.exec->ops->free(node->home.exec);
        node->home.exec = NULL;
    }
    return err;
}

teff_err teffi_node_init(teffi_node *node, const teffi_platform *platform, uint32_t role,
                         const char *cluster, unsigned workers, const teff_sched_options *sched)
{
    memset(node, 0, sizeof *node);
    node->platform = platform;
    node->role = role;
    snprintf(node->cluster, sizeof node->cluster, "%s", cluster);
    pthread_mutex_init(&node->lock, NULL);
    node->home.node = node;
    teffi_calls_init(&node->home);
    pthread_mutex_init(&node->home.tasks.lock, NULL);
    node->home.calls.key.k0 = platform->random(platform->arg);
    node->home.calls.key.k1 = platform->random(platform->arg);
    node->budget = aligned_alloc(_Alignof(teffi_budget), sizeof *node->budget);
    if (node->budget)
        teffi_budget_init(node->budget, TEFFI_MESSAGE_BYTES_DEFAULT);
    node->grain_bytes_max = TEFFI_GRAIN_BYTES_DEFAULT;
    teff_err err = node->budget ? platform->exec_new(platform, workers, sched, &node->home.exec)
                                : TEFF_E_NOMEM;
    if (!err && role == TEFFI_ROLE_SILO)
        err = start_system_thread(node);
    if (err)
        teffi_node_fini(node);
    return err;
}

static void free_queued_items(teffi_target *target)
{
    teffi_item *item;
    while ((item = teffi_group_take_item(&target->group)))
        if (item->kind == TEFFI_ITEM_CLOSURE)
            teffi_closure_drop(item);
        else
            teffi_msg_free(teffi_container(item, teffi_msg, item));
}

static void cancel_calls(teffi_node *node)
{
    teffi_node_send_outcomes_and_free_relays(node, teffi_calls_cancel_all(&node->home));
}

/* Closes the node to users' threads, and waits until the threads inside it have left. Cancels all
 * calls every millisecond, since these threads may begin new calls. */
static void close_node_to_users(teffi_node *node)
{
    /* before `closed` is set, because teffi_ctx_new enters the node */
    teff_ctx *ctx = teffi_ctx_new(&node->home);
    atomic_store(&node->home.closed, true);
    while (atomic_load(&node->home.users) > 0) {
        cancel_calls(node);
        if (ctx)
            teffi_ctx_sleep(ctx, 1);
        else /* out of memory */
            teffi_thread_yield();
    }
    teff_ctx_free(ctx);
}

void teffi_node_stop(teffi_node *node)
{
    close_node_to_users(node);
    cancel_calls(node);
    /* The workers stop first, since they send through the transport. Queued items are freed last,
     * since the transport pushes them until it is freed. */
    if (node->home.exec->ops->stop)
        node->home.exec->ops->stop(node->home.exec);
    if (node->home.net)
        node->home.net->ops->free(node->home.net);
    node->home.net = NULL;
    for (unsigned i = 0; i < TEFFI_SLOT_SYSTEM_END; i++)
        if (node->targets[i].handle)
            free_queued_items(&node->targets[i]);
}

void teffi_node_free_exec_and_tasks(teffi_node *node)
{
    teffi_tasks_free_all(&node->home);
    node->home.exec->ops->free(node->home.exec);
    node->home.exec = NULL;
}

void teffi_node_fini(teffi_node *node)
{
    if (!node->platform)
        return;
    teffi_calls_fini(&node->home);
    pthread_mutex_destroy(&node->home.tasks.lock);
    free(node->budget);
    node->budget = NULL;
    pthread_mutex_destroy(&node->lock);
    node->platform = NULL;
}

/* ---- system targets ---- */

static void handle_target_item(teffi_group *group, teffi_item *item)
{
    teffi_target *target = teffi_container(group, teffi_target, group);
    if (item->kind == TEFFI_ITEM_CLOSURE)
        teffi_closure_run(item);
    else
        target->handle(target->node, teffi_container(item, teffi_msg, item));
}

static void describe_target(teffi_group *group, char *text, size_t size)
{
    const teffi_target *target = teffi_container(group, teffi_target, group);
    snprintf(text, size, "system target %s", teffi_target_name(target));
}

static const teffi_group_ops target_ops = {.handle = handle_target_item,
                                           .describe = describe_target};

const char *teffi_target_name(const teffi_target *target)
{
    static const char *const names[TEFFI_SLOT_SYSTEM_END] = {[TEFFI_SLOT_DIRECTORY] = "directory",
                                                             [TEFFI_SLOT_MEMBERSHIP] = "membership",
                                                             [TEFFI_SLOT_STORE] = "store",
                                                             [TEFFI_SLOT_DEADLOCK] = "deadlock",
                                                             [TEFFI_SLOT_REMINDER] = "reminder"};
    const char *name = names[target - target->node->targets];
    return name ? name : "of an unknown slot";
}

void teffi_node_set_target(teffi_node *node, unsigned slot, teffi_target_fn *handle)
{
    teffi_target *target = &node->targets[slot];
    teffi_bug_if(slot == TEFFI_SLOT_GRAIN || slot >= TEFFI_SLOT_SYSTEM_END || target->handle);
    teffi_group_init(&target->group, node->home.exec, &target_ops);
    teffi_group_set_system(&target->group);
    target->node = node;
    target->handle = handle;
}
