/* scale.c - how many slots are in use, changed while they work.
 * Way:     a program -> exec ops -> [scale] -> idle.c: slots vacated or staffed; worker loop: left
 * Threads: any. The first n_active slots are in use. An unused one is cleared at once, and again
 *          when its worker has left it after its turn. Who sets a timer late finds that out: the
 *          wheel's lock orders that after the move, and so after the smaller n_active.
 * Source:  yatp's scale_workers and its bug of threads that went on working (tikv/yatp 90) */
#include "sched/worker.h"

void teffi_slot_move_timers(teffi_real *real, teffi_slot *slot)
{
    for (;;) {
        size_t at = (size_t)(slot - real->slots);
        uint32_t active = atomic_load_explicit(&real->n_active, memory_order_relaxed);
        if (at < active)
            return;
        teffi_slot *to = &real->slots[at % active];
        if (teffi_wheel_move(&slot->wheel, &to->wheel))
            teffi_slot_poke(real, to);
        slot = to; /* unless that is not used any more by now */
    }
}

static void move_groups(teffi_real *real, teffi_slot *slot)
{
    void *out[TEFFI_STEAL_MAX];
    /* Taken as thieves do, so that it does no harm should the slot be in use again by now. A worker
     * that still has it has the hand-off too, and gives that away when it leaves. */
    while (!teffi_slot_in_use(real, slot) && teffi_deque_count(&slot->deque)) {
        unsigned n = teffi_deque_steal(&slot->deque, out, TEFFI_STEAL_MAX);
        for (unsigned i = 0; i < n; i++)
            teffi_runqueue_push(&real->queue, out[i]);
    }
}

void teffi_slot_clear(teffi_real *real, teffi_slot *slot)
{
    move_groups(real, slot);
    teffi_slot_move_timers(real, slot);
    if (teffi_any_work(real))
        teffi_wake_one(real);
}

/* As n_active says now: another thread may change it meanwhile. Should its worker be in a long
 * turn, what is there now need not wait for the turn's end. */
static void close_slot(teffi_real *real, teffi_slot *slot)
{
    pthread_mutex_lock(&real->idle_lock);
    bool unused = !teffi_slot_in_use(real, slot);
    if (unused)
        teffi_slot_vacate(real, slot);
    pthread_mutex_unlock(&real->idle_lock);
    if (unused)
        teffi_slot_clear(real, slot);
}

static bool open_slot(teffi_real *real, teffi_slot *slot)
{
    teffi_worker *w = NULL;
    pthread_mutex_lock(&real->idle_lock);
    /* Held still: its worker had not left yet, and keeps it. */
    if (!real->stopping && teffi_slot_in_use(real, slot) && !slot->worker)
        w = teffi_slot_staff(real, slot);
    bool ok = real->stopping || slot->worker || !teffi_slot_in_use(real, slot);
    pthread_mutex_unlock(&real->idle_lock);
    if (w)
        teffi_parker_wake(&w->parker);
    return ok;
}

teff_err teffi_scale(teffi_exec *exec, unsigned n)
{
    teffi_real *real = (teffi_real *)(void *)exec;
    if (n == 0 || n > real->n_slots)
        return TEFF_E_INVALID;
    pthread_mutex_lock(&real->idle_lock);
    bool stopping = real->stopping;
    if (!stopping)
        atomic_store_explicit(&real->n_active, n, memory_order_relaxed);
    pthread_mutex_unlock(&real->idle_lock);
    bool ok = true;
    for (unsigned i = 0; !stopping && i < n; i++)
        ok &= open_slot(real, &real->slots[i]);
    for (unsigned i = n; !stopping && i < real->n_slots; i++)
        close_slot(real, &real->slots[i]);
    return stopping ? TEFF_E_CLOSED : ok ? TEFF_OK : TEFF_E_IO;
}

teff_err teffi_exec_scale(teffi_exec *exec, uint32_t n)
{
    return exec->ops->scale ? exec->ops->scale(exec, n) : TEFF_E_INVALID;
}
