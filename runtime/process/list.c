/* list.c - reads the counters, lists the processes, and writes both as lines of text.
 * Counters are read one by one while they change. */
#include "process/process.h"

#include <string.h>
#include "base/log.h"
#include "process/send.h"

/* Reads the state and counters of a process. out: false: it is not alive. */
static bool read_process_info(teff_process *p, teff_process_info *info)
{
    /* acquire: pairs with publish_process(). If the process ends now and its slot is used again,
     * the other values may be those of the next process. */
    uint32_t generation = atomic_load_explicit(&p->generation, memory_order_acquire);
    if (generation % 2 == 0)
        return false;
    uint64_t load = teffi_mailbox_get_load(p);
    *info = (teff_process_info){
        .pid = teffi_process_pid_of(p, generation),
        .name = atomic_load_explicit(&p->ops, memory_order_relaxed)->name,
        .state = (teff_process_state)teffi_group_state_of(&p->group),
        .waiting = (uint32_t)(load >> TEFFI_MAILBOX_SHIFT),
        .waiting_bytes = load & (((uint64_t)1 << TEFFI_MAILBOX_SHIFT) - 1),
        .turns = atomic_load_explicit(&p->turns, memory_order_relaxed),
        .events = atomic_load_explicit(&p->events, memory_order_relaxed),
        .run_ns = atomic_load_explicit(&p->run_ns, memory_order_relaxed),
    };
    return true;
}

size_t teff_process_list(teff_process_system *system, teff_process_info *infos, size_t max)
{
    size_t n = 0;
    teff_process *p;
    for (uint32_t i = 0; n < max && (p = teffi_process_at(system, i | TEFFI_PROCESS_BIT)); i++)
        if (read_process_info(p, &infos[n]))
            n++;
    return n;
}

void teff_process_stats_get(teff_process_system *system, teff_process_stats *stats)
{
    uint64_t spawned = 0, ended = 0;
    for (uint32_t i = 0; i < system->n_cells; i++) {
        ended += atomic_load_explicit(&system->cells[i].ended, memory_order_relaxed);
        /* Each spawn adds TEFFI_SPAWNED; while it is in progress, it adds 1 more, which the
         * division drops. */
        spawned +=
            atomic_load_explicit(&system->cells[i].spawned, memory_order_relaxed) / TEFFI_SPAWNED;
    }
    *stats = (teff_process_stats){
        .alive = teffi_processes_count_alive(system),
        .spawned = spawned,
        .ended = ended,
        .refused = atomic_load_explicit(&system->refused, memory_order_relaxed),
        .evicted = atomic_load_explicit(&system->evicted, memory_order_relaxed),
        .dropped = atomic_load_explicit(&system->dropped, memory_order_relaxed),
        .workers = system->n_cells,
    };
}

/* Copies the processors' counters to counts, at most max elements. counts[0] is for the threads
 * that hold no processor. out: the number of elements written. */
size_t teff_process_worker_counts(teff_process_system *system, teff_process_count *counts,
                                  size_t max)
{
    size_t n = max < system->n_cells ? max : system->n_cells;
    for (size_t i = 0; i < n; i++)
        counts[i] = (teff_process_count){
            .turns = atomic_load_explicit(&system->cells[i].turns, memory_order_relaxed),
            .events = atomic_load_explicit(&system->cells[i].events, memory_order_relaxed),
            .run_ns = atomic_load_explicit(&system->cells[i].run_ns, memory_order_relaxed),
        };
    return n;
}

/* Reads the counters of the scheduler that runs the system, and of at most max of its workers.
 * out: the number of elements of workers that were written. */
size_t teff_process_sched_metrics(teff_process_system *system, teff_sched_metrics *all,
                                  teff_sched_worker *workers, size_t max)
{
    return teffi_exec_metrics(system->exec, all, workers, max);
}

teff_err teff_process_system_scale(teff_process_system *system, uint32_t n)
{
    return teffi_exec_scale(system->exec, n);
}

/* ---- the state as lines of text; no lock is held while a line is written ---- */

enum { TOP = 16 };

typedef struct survey {
    uint64_t in_state[TEFF_PROCESS_COMPLETE + 1], waiting;
    unsigned n_top;
    teff_process_info top[TOP]; /* highest get_dump_rank first */
} survey;

/* out: the rank of a process in a dump, which lists the highest rank first. More waiting messages
 * make the rank higher; with the same number of them, a process that is not idle ranks above an
 * idle one. 0: an idle process without messages. */
static uint64_t get_dump_rank(const teff_process_info *info)
{
    return info->waiting * (uint64_t)2 + (info->state != TEFF_PROCESS_IDLE);
}

/* Counts a process and, if its rank is high enough, inserts it into s->top. in: idle_too: true if a
 * process that is idle and has no messages may be inserted, too. */
static void add_process_to_survey(survey *s, const teff_process_info *info, bool idle_too)
{
    s->in_state[info->state]++;
    s->waiting += info->waiting;
    unsigned at = s->n_top;
    while (at > 0 && get_dump_rank(&s->top[at - 1]) < get_dump_rank(info))
        at--;
    if (at == TOP || (!get_dump_rank(info) && !idle_too))
        return;
    s->n_top += s->n_top < TOP;
    memmove(&s->top[at + 1], &s->top[at], (s->n_top - 1 - at) * sizeof *s->top);
    s->top[at] = *info;
}

static void survey_all_processes(teff_process_system *system, survey *s)
{
    teff_process_info info;
    teff_process *p;
    for (uint32_t i = 0; (p = teffi_process_at(system, i | TEFFI_PROCESS_BIT)); i++)
        if (read_process_info(p, &info))
            add_process_to_survey(s, &info, system->words->idle_too);
}

void teffi_processes_print(teff_process_system *system, const teffi_lines *to)
{
    teff_process_stats stats;
    survey s = {0};
    teff_process_stats_get(system, &stats);
    survey_all_processes(system, &s);
    teffi_lines_write_line(
        to,
        "%s: %u alive: %llu idle, %llu blocked, %llu ready, %llu running; %llu messages wait; "
        "%llu spawned, %llu ended, %llu messages refused, %llu events dropped",
        system->words->many, stats.alive, (unsigned long long)s.in_state[TEFF_PROCESS_IDLE],
        (unsigned long long)s.in_state[TEFF_PROCESS_BLOCKED],
        (unsigned long long)s.in_state[TEFF_PROCESS_READY],
        (unsigned long long)s.in_state[TEFF_PROCESS_RUNNING], (unsigned long long)s.waiting,
        (unsigned long long)stats.spawned, (unsigned long long)stats.ended,
        (unsigned long long)stats.refused, (unsigned long long)stats.dropped);
    for (unsigned i = 0; i < s.n_top; i++)
        teffi_lines_write_line(to, "%s %s (%u.%u): %s, %u messages wait (%llu bytes)",
                               system->words->one, s.top[i].name ? s.top[i].name : "without a name",
                               s.top[i].pid.slot & ~TEFFI_PROCESS_BIT, s.top[i].pid.generation,
                               teffi_group_state_name((teffi_group_state)s.top[i].state),
                               s.top[i].waiting, (unsigned long long)s.top[i].waiting_bytes);
}

void teff_process_system_dump(teff_process_system *system, teff_line_fn *fn, void *arg)
{
    const teffi_lines to = {fn, arg};
    if (system->exec->ops->dump)
        system->exec->ops->dump(system->exec, fn, arg);
    teffi_processes_print(system, &to);
}
