/* dump.c - what a silo does right now, in lines.
 * Way:     a program, SIGUSR1 in teff_silo_main -> [dump] -> calls, scheduler, targets, grains
 * Threads: any, while everything runs; a closing silo waits until it is over. Locks are held while
 *          figures are copied, never while a line is taken. */
#include "base/line.h"
#include "cluster/membership.h"
#include "silo/layer.h"
#include "silo/silo.h"

static unsigned members(teffi_node *node)
{
    const teffi_view *view = teffi_view_get(node);
    unsigned n = view ? (unsigned)view->n_active : 0;
    teffi_view_unref(view);
    return n;
}

static void say_silo(teff_silo *silo, const teffi_lines *to)
{
    teffi_node *node = &silo->node;
    pthread_mutex_lock(&silo->lock);
    size_t clients = silo->n_clients;
    pthread_mutex_unlock(&silo->lock);
    /* relaxed: figures */
    teffi_line(to,
               "silo %s of cluster %s%s: %u members, %zu clients, %llu calls pending, %llu tasks, "
               "%llu messages dropped",
               node->address, node->cluster, node->leaving ? ", leaving" : "", members(node),
               clients, (unsigned long long)teffi_calls_pending(&node->calls),
               (unsigned long long)atomic_load_explicit(&node->tasks, memory_order_relaxed),
               (unsigned long long)atomic_load_explicit(&node->dropped, memory_order_relaxed));
}

static void say_targets(teffi_node *node, const teffi_lines *to)
{
    for (unsigned i = 0; i < TEFFI_SLOT_SYSTEM_END; i++) {
        teffi_target *target = &node->targets[i];
        if (target->handle)
            teffi_line(to, "system target %s: %s", teffi_target_name(target),
                       teffi_group_state_name(teffi_group_state_of(&target->group)));
    }
}

static bool serving(teff_silo *silo)
{
    pthread_mutex_lock(&silo->lock);
    bool yes = silo->phase == TEFFI_SILO_SERVING;
    pthread_mutex_unlock(&silo->lock);
    return yes;
}

void teff_silo_dump(teff_silo *silo, teff_line_fn *fn, void *arg)
{
    teffi_node *node = &silo->node;
    const teffi_lines to = {fn, arg};
    if (!teffi_node_enter(node)) {
        teffi_line(&to, "silo: closed");
        return;
    }
    /* Entered first: a silo that serves now is not closed before the exit. */
    if (serving(silo)) {
        say_silo(silo, &to);
        if (node->exec->ops->dump)
            node->exec->ops->dump(node->exec, fn, arg);
        say_targets(node, &to);
        teffi_grains_layer.dump(node, &to);
    } else {
        teffi_line(&to, "silo: not serving");
    }
    teffi_node_exit(node);
}
