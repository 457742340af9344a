/* monitor.c - a thread that looks after what a busy worker cannot: its hand-off, its timers, and
 * its slot when one turn takes too long.
 * Way:     every 2.5 ms while some worker runs -> [monitor] -> wake_one, wheel_fire, slot_retake
 * Threads: one; sleeps for good once all workers have been parked for a while and what a peak left
 *          behind is given back (trim.c), until one wakes.
 * Source:  Go's sysmon */
#include "sched/worker.h"

#define TICK_NS 2500000u
#define OVERDUE_NS 1500000u /* a worker fires its own timers within about a tick of the wheel */

/* A turn of 10 to 12.5 ms has been seen so often in a row: now it is told to give way. If it has
 * not by the next tick, its slot is retaken. */
enum { DUE_TICKS = 5 };
enum { QUIET_TICKS = 4 }; /* before sleeping for good: waking the monitor costs the waker 5 us */

/* The same turn as at the last tick: others get the hand-off, and what the slot keeps. out: there
 * was something. */
static bool open_next(teffi_real *real, teffi_slot *slot)
{
    uint64_t turns = atomic_load_explicit(&slot->turns, memory_order_relaxed);
    if (turns != slot->seen_turns) {
        slot->seen_turns = turns;
        slot->seen = 1;
        slot->told = false;
        return false;
    }
    slot->seen += slot->seen < DUE_TICKS;
    bool kept = teffi_keeps_not(slot);
    /* relaxed: looked at once more */
    bool next = atomic_load_explicit(&slot->next, memory_order_relaxed);
    return (next && teffi_slot_open(real, slot, turns)) || kept;
}

/* Work that no worker is free to take, or a worker that waits for a slot. */
static bool others_wait(teffi_real *real)
{
    if (atomic_load_explicit(&real->attention, memory_order_relaxed) & TEFFI_ATTEND_WAITING)
        return true;
    if (!teffi_any_work(real))
        return false;
    /* Where there are idle workers none should be needed, but a wake costs nothing. */
    teffi_wake_one(real);
    return teffi_none_idle(real);
}

static void end_slices(teffi_real *real)
{
    bool looked = false;
    for (unsigned i = 0; i < real->n_slots; i++) {
        teffi_slot *slot = &real->slots[i];
        if (slot->seen < DUE_TICKS || !teffi_slot_in_use(real, slot))
            continue;
        if (!looked && !others_wait(real))
            return;
        looked = true;
        if (!slot->told)
            slot->told = teffi_slot_due(real, slot);
        else if (teffi_slot_retake(real, slot, slot->seen_turns))
            slot->seen = 0, slot->told = false;
    }
}

static void tick(teffi_real *real)
{
    uint64_t now = teffi_now(real->exec.platform);
    bool opened = false;
    teffi_warn_tick(real, now);
    for (unsigned i = 0; i < real->n_slots; i++) {
        teffi_slot *slot = &real->slots[i];
        opened |= open_next(real, slot);
        if (slot->seen > 1)
            (void)teffi_laters_run(slot); /* its worker is in one turn for long */
        uint64_t due = teffi_wheel_next(&slot->wheel);
        if (due < now && now - due > OVERDUE_NS)
            (void)teffi_wheel_fire(&slot->wheel, now);
    }
    if (opened) {
        teffi_wake_one(real);
        teffi_nap_end(real);
    }
    end_slices(real);
    teffi_lost_due(real);
    teffi_warn_turns(real, now);
    real->trims = teffi_trim(real, now);
}

/* Nobody runs, and nothing that is in use is left alone. idle_lock held. */
static bool all_parked(const teffi_real *real)
{
    for (unsigned i = 0; i < real->n_slots; i++) {
        const teffi_slot *slot = &real->slots[i];
        if (slot->worker ? slot->worker->state != TEFFI_WORKER_PARKED
                         : teffi_slot_in_use(real, slot))
            return false;
    }
    return true;
}

/* true: all workers are parked and have been for a while; the next to wake wakes the monitor. */
static bool fall_asleep(teffi_real *real, unsigned *quiet)
{
    pthread_mutex_lock(&real->idle_lock);
    *quiet = all_parked(real) && !real->trims ? *quiet + 1 : 0;
    real->monitor_asleep = *quiet > QUIET_TICKS && !real->stopping;
    bool asleep = real->monitor_asleep;
    if (asleep)
        teffi_warn_sleep(real);
    pthread_mutex_unlock(&real->idle_lock);
    return asleep;
}

static bool stopping(teffi_real *real)
{
    return atomic_load_explicit(&real->attention, memory_order_relaxed) & TEFFI_ATTEND_STOP;
}

void teffi_monitor_main(void *arg)
{
    teffi_real *real = arg;
    unsigned quiet = 0;
    while (!stopping(real)) {
        bool asleep = fall_asleep(real, &quiet);
        if (asleep)
            quiet = 0;
        teffi_parker_wait(&real->monitor_parker, asleep ? UINT64_MAX : TICK_NS);
        tick(real);
    }
}
