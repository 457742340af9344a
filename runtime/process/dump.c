/* dump.c - what a system of processes does right now, in lines.
 * Way:     a program -> [dump] -> the scheduler, the slots' counters
 * Threads: any, while everything runs; no lock is held while a line is taken. */
#include <string.h>
#include "base/line.h"
#include "process/process.h"

enum { TOP = 16 };

typedef struct survey {
    uint64_t in_state[TEFF_PROCESS_COMPLETE + 1], waiting;
    unsigned n_top;
    teff_process_info top[TOP]; /* fullest mailboxes first */
} survey;

static void visit(survey *s, const teff_process_info *info)
{
    s->in_state[info->state]++;
    s->waiting += info->waiting;
    unsigned at = s->n_top;
    while (at > 0 && s->top[at - 1].waiting < info->waiting)
        at--;
    if (at == TOP || (!info->waiting && info->state == TEFF_PROCESS_IDLE))
        return;
    s->n_top += s->n_top < TOP;
    memmove(&s->top[at + 1], &s->top[at], (s->n_top - 1 - at) * sizeof *s->top);
    s->top[at] = *info;
}

static void survey_all(teff_process_system *system, survey *s)
{
    teff_process_info info;
    /* acquire: pairs with teffi_slot_take */
    uint32_t slots = atomic_load_explicit(&system->n_slots, memory_order_acquire);
    for (uint32_t i = 0; i < slots; i++)
        if (teffi_process_describe(teffi_process_at(system, i | TEFFI_PROCESS_BIT), &info))
            visit(s, &info);
}

void teff_process_system_dump(teff_process_system *system, teff_line_fn *fn, void *arg)
{
    const teffi_lines to = {fn, arg};
    teff_process_stats stats;
    survey s = {0};
    teff_process_stats_get(system, &stats);
    survey_all(system, &s);
    teffi_line(
        &to,
        "processes: %u alive: %llu idle, %llu blocked, %llu ready, %llu running; %llu "
        "messages wait; %llu spawned, %llu ended, %llu messages refused, %llu events dropped",
        stats.alive, (unsigned long long)s.in_state[TEFF_PROCESS_IDLE],
        (unsigned long long)s.in_state[TEFF_PROCESS_BLOCKED],
        (unsigned long long)s.in_state[TEFF_PROCESS_READY],
        (unsigned long long)s.in_state[TEFF_PROCESS_RUNNING], (unsigned long long)s.waiting,
        (unsigned long long)stats.spawned, (unsigned long long)stats.ended,
        (unsigned long long)stats.refused, (unsigned long long)stats.dropped);
    if (system->exec->ops->dump)
        system->exec->ops->dump(system->exec, fn, arg);
    for (unsigned i = 0; i < s.n_top; i++)
        teffi_line(&to, "process %s (%u.%u): %s, %u messages wait (%llu bytes)",
                   s.top[i].name ? s.top[i].name : "without a name",
                   s.top[i].pid.slot & ~TEFFI_PROCESS_BIT, s.top[i].pid.generation,
                   teffi_group_state_name((teffi_group_state)s.top[i].state), s.top[i].waiting,
                   (unsigned long long)s.top[i].waiting_bytes);
}
