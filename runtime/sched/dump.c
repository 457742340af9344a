/* dump.c - what a scheduler does right now, in lines: workers, slots, queues, timers.
 * Way:     teff_silo_dump, teff_process_system_dump -> exec op -> [dump] -> the taker of lines
 * Threads: any, while everything runs. idle_lock is held while figures are copied, never while a
 *          line is taken; a group is described by its atomics. Each line is a moment's reading.
 * Source:  Go's schedtrace; Orleans' DumpSchedulerStatus */
#include <stdio.h>
#include <stdlib.h>
#include "base/line.h"
#include "sched/worker.h"

typedef struct seat { /* one worker, copied */
    teffi_worker *worker;
    int slot; /* -1: none */
    teffi_worker_state state;
    uintptr_t running;    /* as worker.running */
    uint64_t run, ran_ns; /* ran_ns: at least */
} seat;

typedef struct picture {
    seat *seats;
    unsigned n, room;
    unsigned threads, by_state[TEFFI_WORKER_SPARE + 1];
} picture;

/* idle_lock held. */
static seat copy(teffi_worker *w, uint64_t now_ns)
{
    seat s = {.worker = w, .slot = w->slot ? (int)(w->slot - w->real->slots) : -1};
    s.state = w->state;
    /* acquire: pairs with teffi_run_begin */
    s.running = atomic_load_explicit(&w->running, memory_order_acquire);
    s.run = atomic_load_explicit(&w->run, memory_order_relaxed);
    s.ran_ns = w->seen_run == s.run && now_ns > w->seen_ns ? now_ns - w->seen_ns : 0;
    return s;
}

/* Workers that neither run nor hold a slot are counted only. */
static void add(picture *p, seat s)
{
    p->by_state[s.state]++;
    if ((s.running || s.slot >= 0) && p->n < p->room)
        p->seats[p->n++] = s;
}

static void look(teffi_real *real, picture *p, uint64_t now_ns)
{
    pthread_mutex_lock(&real->idle_lock);
    p->threads = real->n_workers + real->visited;
    for (unsigned i = 0; i < real->n_workers; i++)
        add(p, copy(real->workers[i], now_ns));
    if (real->visited)
        add(p, copy(&real->visitor, now_ns));
    pthread_mutex_unlock(&real->idle_lock);
}

static const char *state_name(teffi_worker_state state)
{
    static const char *const names[] = {
        [TEFFI_WORKER_RUNNING] = "running",
        [TEFFI_WORKER_PARKED] = "parked",
        [TEFFI_WORKER_BLOCKED] = "in a blocking call",
        [TEFFI_WORKER_OUT] = "in a blocking call, slot handed over",
        [TEFFI_WORKER_LOST] = "slot retaken",
        [TEFFI_WORKER_WAITING] = "waiting for a slot",
        [TEFFI_WORKER_SPARE] = "spare",
    };
    return names[state];
}

/* A description is another run's when that began meanwhile: it is not given out as this one's. */
static bool still(const seat *s)
{
    /* acquire: the description was read before */
    uintptr_t running = atomic_load_explicit(&s->worker->running, memory_order_acquire);
    return running == s->running &&
           atomic_load_explicit(&s->worker->run, memory_order_relaxed) == s->run;
}

static void say_seat(const teffi_lines *to, const seat *s, unsigned no)
{
    char text[TEFFI_DESCRIBE_MAX], slot[24] = "no slot";
    if (s->slot >= 0)
        snprintf(slot, sizeof slot, "slot %d", s->slot);
    if (!s->running) {
        teffi_line(to, "worker %u: %s, %s", no, slot, state_name(s->state));
        return;
    }
    teffi_warn_running(s->running, text);
    if (still(s))
        teffi_line(to, "worker %u: %s, %s, a turn of %s, for %llu ms or a little more", no, slot,
                   state_name(s->state), text, (unsigned long long)(s->ran_ns / 1000000u));
    else
        teffi_line(to, "worker %u: %s, a turn that has just ended", no, slot);
}

static void say_slot(const teffi_lines *to, teffi_slot *slot, unsigned no)
{
    bool handoff = atomic_load_explicit(&slot->next, memory_order_relaxed) != NULL;
    teffi_line(to, "slot %u: %u groups in its deque, %s hand-off, %u timers, %llu runs", no,
               teffi_deque_count(&slot->deque), handoff ? "a" : "no",
               teffi_wheel_count(&slot->wheel),
               (unsigned long long)atomic_load_explicit(&slot->turns, memory_order_relaxed) - 1);
}

void teffi_exec_dump(teffi_exec *exec, teff_line_fn *fn, void *arg)
{
    teffi_real *real = (teffi_real *)(void *)exec;
    const teffi_lines to = {fn, arg};
    enum { SEATS_MORE = 256 }; /* turns in blocking calls, beyond one worker a slot */
    picture p = {.room = real->n_slots + SEATS_MORE};
    p.seats = calloc(p.room, sizeof *p.seats);
    if (!p.seats)
        p.room = 0;
    look(real, &p, teffi_now(exec->platform));
    /* relaxed: a figure; those that are not in use are empty */
    unsigned active = atomic_load_explicit(&real->n_active, memory_order_relaxed);
    teffi_line(
        &to,
        "scheduler: %u slots, %u in use, %u threads: %u running, %u parked, %u in blocking calls, "
        "%u waiting for a slot, %u spare; %u groups in the global queue; null context %s",
        real->n_slots, active, p.threads, p.by_state[TEFFI_WORKER_RUNNING],
        p.by_state[TEFFI_WORKER_PARKED],
        p.by_state[TEFFI_WORKER_BLOCKED] + p.by_state[TEFFI_WORKER_OUT],
        p.by_state[TEFFI_WORKER_WAITING], p.by_state[TEFFI_WORKER_SPARE],
        teffi_runqueue_count(&real->queue),
        teffi_group_state_name(teffi_group_state_of(&exec->null)));
    for (unsigned i = 0; i < p.n; i++)
        say_seat(&to, &p.seats[i], i);
    for (unsigned i = 0; i < active; i++)
        say_slot(&to, &real->slots[i], i);
    free(p.seats);
}
