/* turn.c - a run of a group with what the default does without: the hooks of the options.
 * Way:     worker -> [turn] -> teffi_group_run
 * Threads: the worker's own.
 * Source:  yatp's Runner: start, handle, pause, resume, end */
#include "sched/worker.h"

bool teffi_turn(teffi_worker *w, teffi_group *group, unsigned items_max, uint64_t until_ns)
{
    const teff_sched_hooks *hooks = &w->real->hooks;
    if (hooks->before)
        hooks->before(hooks->arg, w->number, group);
    bool again = teffi_group_run(group, items_max, until_ns);
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
