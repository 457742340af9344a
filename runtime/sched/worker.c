/* worker.c - a thread that runs groups: find, run, requeue; timers on the way.
 * Way:     exec.c starts it -> [worker] -> teffi_group_run -> a group's handle -> teffi_slot_ready
 * Threads: each worker its own; see worker.h. */
#include "sched/worker.h"

#include <stdlib.h>
#include "base/bug.h"
#include "base/local.h"
#include "base/log.h"
#include "fiber/fiber.h"

enum { NESTED_MAX = 32 };     /* turns on one stack: each may need some KiB */
enum { ITEMS_MAX = 256 };     /* of one group in one go */
enum { CLOCK_EVERY = 16 };    /* passes between two looks at the clock */
#define QUANTUM_NS 100000000u /* Orleans' activation quantum, 100 ms */

TEFFI_LOCAL teffi_worker *teffi_own_worker;

__attribute__((noinline)) teffi_worker *teffi_worker_self(void)
{
    return teffi_own_worker;
}

__attribute__((noinline)) void teffi_worker_become(teffi_worker *w)
{
    teffi_own_worker = w;
}

void teffi_slot_ready(teffi_worker *w, teffi_slot *slot, teffi_group *group)
{
    /* relaxed: the owner's alone. This worker runs it next, or the monitor gives it to others. */
    teffi_group *older = atomic_load_explicit(&slot->next, memory_order_relaxed);
    atomic_store_explicit(&slot->next, group, memory_order_relaxed);
    if (!older)
        return;
    bool own = teffi_deque_push(&slot->deque, older);
    if (own && w->brings) {
        teffi_help_later(w);
        return;
    }
    if (!own)
        teffi_runqueue_push(&w->real->queue, older);
    (void)teffi_keeps_not(slot);
    teffi_wake_one(w->real);
}

void teffi_worker_timers(teffi_worker *w)
{
    teffi_slot *slot = w->slot;
    slot->now_ns = teffi_now(w->real->exec.platform);
    if (slot->now_ns >= teffi_wheel_next(&slot->wheel))
        (void)teffi_wheel_fire(&slot->wheel, slot->now_ns);
}

bool teffi_worker_looks(teffi_worker *w)
{
    if (w->slot->tick % CLOCK_EVERY != 0)
        return false;
    teffi_worker_timers(w);
    teffi_laters_age(w->slot);
    return true;
}

static bool has_local(teffi_slot *slot)
{
    return atomic_load_explicit(&slot->next, memory_order_relaxed) ||
           teffi_deque_count(&slot->deque);
}

/* A used-up group goes behind everything else. If it is all there is, this worker takes it back at
 * once and nobody need be woken. */
static void requeue(teffi_worker *w, teffi_group *group)
{
    teffi_real *real = w->real;
    teffi_runqueue_push(&real->queue, group);
    if (w->slot)
        teffi_count_add(&w->slot->counts.requeues, 1);
    if (w->slot && !has_local(w->slot) && teffi_runqueue_count(&real->queue) == 1)
        w->slot->unannounced = true;
    else
        teffi_wake_one(real);
}

/* What nobody was woken for is not taken back at once after all. */
static void announce(teffi_worker *w)
{
    if (!w->slot || !w->slot->unannounced)
        return;
    w->slot->unannounced = false;
    if (teffi_runqueue_count(&w->real->queue))
        teffi_wake_one(w->real);
}

/* A turn has ended or a call into the scheduler needs to know for sure: is w->slot there? */
void teffi_worker_enters(teffi_worker *w)
{
    (void)teffi_enter(w);
    if (!teffi_slot_kept(w))
        teffi_slot_settle(w);
}

void teffi_offer(teffi_worker *w, teffi_group *group)
{
    uint32_t was = teffi_enter(w);
    teffi_slot *slot = teffi_slot_kept(w);
    if (!slot || !teffi_deque_push(&slot->deque, group))
        teffi_runqueue_push(&w->real->queue, group);
    if (slot)
        (void)teffi_keeps_not(slot);
    teffi_leave(w, was);
    teffi_wake_one(w->real);
}

/* What a turn that gave way wants to be done now that its fiber was left. out: what to run next. */
static teffi_group *gave_way(teffi_worker *w, teffi_group *group)
{
    teffi_group *first = w->first;
    if (!first) {
        requeue(w, group);
        return NULL;
    }
    w->first = NULL;
    teffi_offer(w, group);
    if (w->slot)
        return first;
    teffi_offer(w, first);
    return NULL;
}

static void left_alone(teffi_worker *w)
{
    void (*after)(void *arg) = w->after;
    w->after = NULL;
    after(w->after_arg);
}

static teffi_group *run_one(teffi_worker *w, teffi_group *group)
{
    teffi_slot *slot = w->slot;
    announce(w);
    /* Only the owner counts; relaxed: the monitor and thieves compare values only. */
    uint64_t turns = atomic_load_explicit(&slot->turns, memory_order_relaxed) + 1;
    atomic_store_explicit(&slot->turns, turns, memory_order_relaxed);
    uint64_t until_ns = slot->now_ns + QUANTUM_NS;
    teffi_run_begin(w, group, turns);
    atomic_store_explicit(&w->due, 0, memory_order_relaxed);
    teffi_leave(w, 0);
    unsigned ran = w->real->special ? teffi_turn(w, group, ITEMS_MAX, until_ns)
                                    : teffi_group_run_counted(group, ITEMS_MAX, until_ns);
    teffi_worker_enters(w);
    if (ran > 3 && w->slot) /* the first item of each run is counted by turns */
        teffi_count_add(&w->slot->items, ran / 2 - 1);
    teffi_bug_if(w->blocking != 0); /* it ended, or waits, between blocking_begin and _end */
    teffi_run_end(w, turns);
    if (w->after)
        left_alone(w);
    return ran & 1 ? gave_way(w, group) : NULL;
}

void teffi_worker_run(teffi_worker *w, teffi_group *group)
{
    while (group)
        group = run_one(w, group);
}

/* inside, with a slot. */
static bool help_one(teffi_worker *w)
{
    /* What is fired and looked for here is not the waiting turn's. */
    uintptr_t outer = atomic_exchange_explicit(&w->running, 0, memory_order_relaxed);
    uint64_t run = atomic_load_explicit(&w->run, memory_order_relaxed);
    bool brings = w->brings;
    w->brings = false;
    teffi_worker_timers(w);
    teffi_group *group = teffi_find(w, false);
    if (!group && w->searching)
        teffi_search_end(w);
    if (group) {
        teffi_fiber *under = w->under;
        w->under = teffi_fiber_current();
        w->nested++;
        teffi_worker_run(w, group);
        w->nested--;
        w->under = under;
        announce(w);
    }
    w->brings = brings;
    atomic_store_explicit(&w->run, run, memory_order_relaxed);
    atomic_store_explicit(&w->running, outer, memory_order_release);
    return group != NULL;
}

bool teffi_help(teffi_exec *exec)
{
    teffi_worker *w = teffi_own_worker;
    if (!w || &w->real->exec != exec || w->blocking || w->nested == NESTED_MAX)
        return false;
    /* Somebody waits for a slot, or the end comes: the turn that waits had better sleep. */
    if (atomic_load_explicit(&w->real->attention, memory_order_relaxed))
        return false;
    uint32_t was = teffi_enter(w);
    bool helped = teffi_slot_kept(w) && help_one(w);
    teffi_leave(w, was);
    return helped;
}

static bool regain(teffi_worker *w)
{
    teffi_thread_pauses(w);
    bool have = teffi_slot_regain(w);
    teffi_thread_resumes(w);
    return have;
}

/* Nothing to do, or no slot to do it with. */
static void rest(teffi_worker *w)
{
    teffi_thread_pauses(w);
    if (!teffi_slot_leave(w))
        teffi_park(w);
    teffi_thread_resumes(w);
}

static void leave(teffi_worker *w)
{
    teffi_thread_pauses(w);
    (void)teffi_slot_leave(w);
    teffi_thread_resumes(w);
}

static void loop(teffi_worker *w)
{
    while (w->slot || regain(w)) {
        if (atomic_load_explicit(&w->real->attention, memory_order_relaxed)) {
            if (atomic_load_explicit(&w->real->attention, memory_order_relaxed) & TEFFI_ATTEND_STOP)
                return;
            teffi_thread_pauses(w);
            teffi_attend(w);
            teffi_thread_resumes(w);
            continue;
        }
        if (teffi_worker_looks(w) && !teffi_slot_in_use(w->real, w->slot)) {
            teffi_laters_end(w);
            leave(w);
            continue;
        }
        teffi_group *group = teffi_find(w, true);
        if (group) {
            teffi_worker_run(w, group);
            continue;
        }
        if (w->slot && teffi_laters_any(w->slot))
            continue;
        rest(w);
        if (w->slot)
            teffi_worker_timers(w);
    }
}

static void worker_main(void *arg)
{
    teffi_worker *w = arg;
    teffi_worker_become(w);
    teffi_fiber_thread_enter(w->real->exec.fibers);
    teffi_preempt_allow();
    teffi_thread_began(w);
    loop(w);
    teffi_thread_ends(w);
    teffi_fiber_thread_leave();
    teffi_worker_become(NULL);
}

static bool room_for_one(teffi_real *real)
{
    if (real->n_workers < real->workers_room)
        return true;
    unsigned room = real->workers_room ? real->workers_room * 2 : 16;
    teffi_worker **more = realloc(real->workers, room * sizeof *more);
    if (!more)
        return false;
    real->workers = more;
    real->workers_room = room;
    return true;
}

static teffi_worker *refuse(teffi_real *real, const char *why)
{
    if (!real->told_limit)
        teffi_logf(&real->exec.platform->log, TEFFI_ERROR,
                   "no thread for work that waits beside blocking calls: %s (%u threads run)", why,
                   real->n_workers);
    real->told_limit = true;
    return NULL;
}

teffi_worker *teffi_worker_start(teffi_real *real, teffi_slot *slot, bool searching)
{
    if (real->n_workers == real->threads_max)
        return refuse(real, "the limit, teff_sched_options.threads_max, is reached");
    if (!room_for_one(real))
        return refuse(real, "memory is out");
    teffi_worker *w = calloc(1, sizeof *w);
    if (!w)
        return refuse(real, "memory is out");
    w->real = real;
    w->number = real->n_workers;
    w->searching = searching;
    atomic_init(&w->inside, 1);
    w->slot = slot;
    slot->worker = w;
    if (teffi_thread_start(&w->thread, "teff-worker", worker_main, w)) {
        slot->worker = NULL;
        free(w);
        return refuse(real, "the system refused to start one");
    }
    real->workers[real->n_workers++] = w;
    atomic_store_explicit(&real->threads, real->n_workers, memory_order_relaxed);
    return w;
}
