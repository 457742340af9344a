/* turn.c - a run of a group with what the default does without: hooks, a clock, eviction.
 * Way:     worker -> [turn] -> teffi_group_run_with
 * Threads: the worker's own.
 * Source:  yatp's Runner (start, handle, pause, resume, end) and its MultilevelRunner */
#include "base/queue.h"
#include "sched/worker.h"

#define LOOK_NS 100000000u /* of a worker's run time between two looks at the share of level 0 */

/* ---- run time by level ---- */

typedef struct teffi_clocked {
    teffi_meter meter;
    teffi_worker *worker;
    struct teffi_clocked *outer; /* this run is nested in that one's turn */
    uint64_t from_ns, nested_ns, all_ns;
} teffi_clocked;

/* What ran nested was its own group's. */
static void charge(teffi_meter *meter, teffi_group *group)
{
    teffi_clocked *c = teffi_container(meter, teffi_clocked, meter);
    uint64_t now = teffi_now(c->worker->real->exec.platform);
    uint64_t passed = now - c->from_ns;
    uint64_t own = passed > c->nested_ns ? passed - c->nested_ns : 0;
    group->used = teffi_used_add(group->used, now, own);
    c->from_ns = now;
    c->nested_ns = 0;
    c->all_ns += own;
}

static void look_at_share(teffi_real *real)
{
    uint64_t ns[TEFF_SCHED_LEVELS];
    for (unsigned l = 0; l < TEFF_SCHED_LEVELS; l++) {
        ns[l] = atomic_load_explicit(&real->levels->lost_ns[l], memory_order_relaxed);
        for (unsigned i = 0; i < real->n_slots; i++)
            ns[l] += atomic_load_explicit(&real->slots[i].counts.level_ns[l], memory_order_relaxed);
    }
    teffi_levels_adjust(real->levels, ns[0], ns[0] + ns[1] + ns[2]);
}

static void book(teffi_worker *w, unsigned level, uint64_t ns)
{
    teffi_real *real = w->real;
    uint32_t was = teffi_enter(w);
    teffi_slot *slot = teffi_slot_kept(w);
    if (slot)
        teffi_count_add(&slot->counts.level_ns[level], ns);
    teffi_leave(w, was);
    if (!slot)
        atomic_fetch_add_explicit(&real->levels->lost_ns[level], ns, memory_order_relaxed);
    w->clocked_ns += ns;
    if (w->clocked_ns < LOOK_NS)
        return;
    w->clocked_ns = 0;
    look_at_share(real);
}

static bool run_clocked(teffi_worker *w, teffi_group *group, unsigned items_max, uint64_t until_ns)
{
    unsigned level = teffi_level_of(w->real->levels, group->used);
    teffi_clocked c = {.meter = {charge}, .worker = w, .outer = w->clocked};
    uint64_t begun_ns = c.from_ns = teffi_now(w->real->exec.platform);
    w->clocked = &c;
    bool again = teffi_group_run_with(group, items_max, until_ns, &c.meter, false);
    w->clocked = c.outer;
    if (c.outer)
        c.outer->nested_ns += c.from_ns - begun_ns;
    book(w, level, c.all_ns);
    return again;
}

/* ---- the run ---- */

static bool run_evicted(teffi_group *group, unsigned items_max, uint64_t until_ns)
{
    group->evicted = false;
    return teffi_group_run_with(group, items_max, until_ns, NULL, true);
}

static bool run(teffi_worker *w, teffi_group *group, unsigned items_max, uint64_t until_ns)
{
    if (w->real->levels)
        return run_clocked(w, group, items_max, until_ns);
    if (group->evicted)
        return run_evicted(group, items_max, until_ns);
    return teffi_group_run(group, items_max, until_ns);
}

bool teffi_turn(teffi_worker *w, teffi_group *group, unsigned items_max, uint64_t until_ns)
{
    const teff_sched_hooks *hooks = &w->real->hooks;
    if (hooks->before)
        hooks->before(hooks->arg, w->number, group);
    bool again = run(w, group, items_max, until_ns);
    if (hooks->after)
        hooks->after(hooks->arg, w->number, group);
    return again;
}

static void tell(const teffi_worker *w, void (*hook)(void *arg, uint32_t thread))
{
    if (hook)
        hook(w->real->hooks.arg, w->number);
}

void teffi_thread_began(const teffi_worker *w)
{
    tell(w, w->real->hooks.start);
}

void teffi_thread_ends(const teffi_worker *w)
{
    tell(w, w->real->hooks.end);
}

void teffi_thread_pauses(const teffi_worker *w)
{
    tell(w, w->real->hooks.pause);
}

void teffi_thread_resumes(const teffi_worker *w)
{
    tell(w, w->real->hooks.resume);
}
