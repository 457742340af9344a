/* dump.c - writes the current state of a silo as lines.
 * Way:     a program, SIGUSR1 in teff_silo_main -> [dump] -> calls, scheduler, targets, shards,
 *          processes, engines
 * Threads: any, while the silo runs; a close waits until the dump has ended. Locks are held while
 *          counters are copied, never while fn is called. A shard's lock guards the identity of its
 *          activations; their other fields read here are atomic. */
#include "activation/load_limit.h"
#include "activation/waits.h"
#include "base/log.h"
#include "call/calls.h"
#include "call/task.h"
#include "request/route.h"
#include "silo/silo.h"

static void print_silo(teff_silo *silo, const teffi_lines *to)
{
    teffi_node *node = &silo->node;
    const teffi_waits *waits = node->grains->waits;
    pthread_mutex_lock(&silo->lock);
    size_t clients = silo->n_clients;
    pthread_mutex_unlock(&silo->lock);
    /* relaxed: counters */
    teffi_lines_write_line(
        to,
        "silo %s of cluster %s%s: %u members, %zu clients, %llu calls pending, %llu tasks, "
        "%llu messages dropped, %llu deadlocks ended, %llu probes for deadlocks",
        node->address, node->cluster, node->leaving ? ", leaving" : "", teff_silo_members(silo),
        clients, (unsigned long long)teffi_calls_count_pending(&node->home),
        (unsigned long long)teffi_tasks_count_running(&node->home),
        (unsigned long long)atomic_load_explicit(&node->dropped, memory_order_relaxed),
        (unsigned long long)atomic_load_explicit(&waits->reports, memory_order_relaxed),
        (unsigned long long)atomic_load_explicit(&waits->probes, memory_order_relaxed));
}

static void print_system_targets(teffi_node *node, const teffi_lines *to)
{
    for (unsigned i = 0; i < TEFFI_SLOT_SYSTEM_END; i++) {
        teffi_target *target = &node->targets[i];
        if (target->handle)
            teffi_lines_write_line(to, "system target %s: %s", teffi_target_name(target),
                                   teffi_group_state_name(teffi_group_state_of(&target->group)));
    }
}

/* ---- the activations, and those with the longest queues ---- */

enum { TOP = 16 };

typedef struct top_entry {
    uint32_t queued, slot;
    teffi_group_state state;
    const char *type, *doing; /* constant strings */
    char key[TEFFI_KEY_TEXT_MAX];
} top_entry;

typedef struct survey {
    uint64_t n, queued, in_state[TEFFI_GROUP_COMPLETE + 1];
    unsigned n_top;
    top_entry top[TOP]; /* those with the longest queues, longest first */
} survey;

static void fill_top_entry(top_entry *e, teffi_activation *act, uint32_t queued,
                           teffi_group_state state)
{
    const char *doing = atomic_load_explicit(&act->doing, memory_order_relaxed);
    *e = (top_entry){.queued = queued,
                     .slot = act->slot,
                     .state = state,
                     .type = act->type->info->name,
                     .doing = doing ? doing : "nothing yet"};
    teff_key key;
    teffi_activation_get_key(act, &key);
    teffi_key_format(&key, e->key);
}

/* Inserts act into s->top, which lists the TOP activations with the longest queues, longest first.
 * If the list is full, inserts act only if its queue is longer than that of the last entry, and
 * drops the last entry. */
static void insert_by_queue_length(survey *s, teffi_activation *act, uint32_t queued,
                                   teffi_group_state state)
{
    unsigned at = s->n_top;
    for (; at > 0 && s->top[at - 1].queued < queued; at--)
        if (at < TOP)
            s->top[at] = s->top[at - 1];
    if (at == TOP)
        return;
    s->n_top += s->n_top < TOP;
    fill_top_entry(&s->top[at], act, queued, state);
}

static bool add_activation_to_survey(void *arg, teffi_activation *act)
{
    survey *s = arg;
    uint32_t queued = atomic_load_explicit(&act->queued, memory_order_relaxed);
    queued = (int32_t)queued < 0 ? 0 : queued; /* may be below 0: see activation.h */
    teffi_group_state state = teffi_group_state_of(&act->group);
    s->n++;
    s->queued += queued;
    s->in_state[state]++;
    if (queued || state != TEFFI_GROUP_IDLE)
        insert_by_queue_length(s, act, queued, state);
    return true;
}

static void print_grains(teffi_node *node, const teffi_lines *to)
{
    survey s = {0};
    uint64_t cursor = 0;
    (void)teffi_shards_walk_activations(node->grains, NULL, &cursor, add_activation_to_survey, &s);
    teffi_lines_write_line(
        to,
        "grains: %llu activations: %llu idle, %llu ready, %llu running; %llu requests wait; "
        "look-ups under way: %s",
        (unsigned long long)s.n, (unsigned long long)s.in_state[TEFFI_GROUP_IDLE],
        (unsigned long long)s.in_state[TEFFI_GROUP_READY],
        (unsigned long long)s.in_state[TEFFI_GROUP_RUNNING], (unsigned long long)s.queued,
        teffi_lookups_are_pending(node->grains) ? "yes" : "no");
    teffi_load_limit *loads = node->grains->load_limit;
    pthread_mutex_lock(&loads->lock);
    uint32_t running = loads->running, limit = loads->limit, waiting = loads->n_waiting;
    pthread_mutex_unlock(&loads->lock);
    teffi_lines_write_line(
        to, "states: %u are read from the store, at most %u at once; %u activations wait", running,
        limit, waiting);
    for (unsigned i = 0; i < s.n_top; i++)
        teffi_lines_write_line(to, "grain %s %s (slot %u): %s, %u requests wait; last turn: %s",
                               s.top[i].type, s.top[i].key, s.top[i].slot,
                               teffi_group_state_name(s.top[i].state), s.top[i].queued,
                               s.top[i].doing);
}

/* ---- the whole dump ---- */

void teff_silo_dump(teff_silo *silo, teff_line_fn *fn, void *arg)
{
    teffi_node *node = &silo->node;
    const teffi_lines to = {fn, arg};
    if (!teffi_home_enter(&node->home)) {
        teffi_lines_write_line(&to, "silo: closed");
        return;
    }
    /* silo->phase must be read after teffi_home_enter(): a silo that serves at that time is not
     * closed before teffi_home_exit(). */
    if (silo->phase == TEFFI_SILO_SERVING) {
        print_silo(silo, &to);
        if (node->home.exec->ops->dump)
            node->home.exec->ops->dump(node->home.exec, fn, arg);
        print_system_targets(node, &to);
        print_grains(node, &to);
        teffi_silo_print_engines_and_processes(silo, &to);
    } else {
        teffi_lines_write_line(&to, "silo: not serving");
    }
    teffi_home_exit(&node->home);
}
