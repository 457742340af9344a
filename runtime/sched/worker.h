/* worker.h - the inside of the real executor: slots (what is ready) and workers (threads).
 * Way:     exec.c (ops) -> [worker.c -> find.c -> group_run -> idle.c park]; monitor.c beside it
 * Threads: a slot's deque and plain fields belong to the worker that holds it; who holds what is
 *          changed under idle_lock only. A worker may lose its slot while it blocks, and while it
 *          is inside a turn but outside of the scheduler.
 * Source:  Go's P and M; the scheduler seeds
 *
 * How a slot is retaken from a turn that takes too long. The turn need not co-operate and is not
 * interrupted; it may compute for ever or sit in a system call that nobody declared:
 *  - A worker is "inside" (its flag, a plain store) whenever it may use its slot: in its loop, and
 *    in a turn from teffi_enter to teffi_leave, around each call into the scheduler.
 *  - Who enters sets inside, then looks at retaken. Who retakes (the monitor, idle_lock held) sets
 *    retaken, lets a barrier pass on every thread (membarrier), then looks at inside. So at least
 *    one of the two sees the other's store, and the worker's side costs no barrier.
 *  - Inside was not set: whatever the worker does next sees retaken and leaves the slot alone; all
 *    it did before is visible (leave releases, the monitor acquires). The slot, with all that is
 *    queued and set on it, goes to an heir. Nothing is moved, so nothing can be lost.
 *  - Inside was set: the monitor takes retaken back and tries again at its next tick.
 *  - Who enters and sees retaken goes without a slot: what it makes READY goes to the global
 *    queue, its timers to any wheel. Should retaken be taken back meanwhile, no harm is done. At
 *    the end of its turn the worker waits for idle_lock first, and so learns the outcome. Then it
 *    takes a free slot or becomes a spare thread.
 * Where the kernel has no membarrier, enter uses an exchange (9 ns).
 * The hand-off of a worker that is in one turn for longer than a tick is taken out in the same way:
 * retaken is set, the next slot emptied into the global queue, and retaken taken back. */
#ifndef TEFFI_SCHED_WORKER_H
#define TEFFI_SCHED_WORKER_H

#include "base/local.h"
#include "fiber/fiber.h"
#include "platform/thread.h"
#include "sched/deque.h"
#include "sched/exec.h"
#include "sched/level.h"
#include "sched/prio.h"
#include "sched/runqueue.h"
#include "sched/timer.h"

enum { TEFFI_SLOTS_MAX = 1024 };
enum { TEFFI_THREADS_MIN = 2, TEFFI_THREADS_MAX = 10000 };

typedef struct teffi_real teffi_real;
typedef struct teffi_slot teffi_slot;
typedef struct teffi_worker teffi_worker;

/* What a slot's workers did; public as teff_sched_worker. The owner alone writes, but for wakes. */
typedef struct teffi_counts {
    _Atomic uint64_t local, global, stolen, steals, parks, requeues;
    _Atomic uint64_t wakes; /* idle_lock */
    _Atomic uint64_t level_ns[TEFF_SCHED_LEVELS];
} teffi_counts;

/* One writer at a time, so no need of an atomic addition; readers get a moment's value. */
static inline void teffi_count_add(_Atomic uint64_t *count, uint64_t n)
{
    uint64_t now = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, now + n, memory_order_relaxed);
}

/* Whether its stealing paid, see nap.c; the owner's. */
typedef struct teffi_pay {
    uint64_t since_ns; /* the first steal of what is looked at; 0: none */
    uint64_t before;   /* items that it and its victim had handled then */
    teffi_slot *victim;
    uint64_t alone; /* what a victim handled alone, in 2^20 ns, */
    uint64_t alone_at_ns;
    uint64_t nap_ns; /* the last nap; 0: it paid */
} teffi_pay;

/* What was brought and is run without help so far, see help.c; the owner's. */
typedef struct teffi_alone {
    bool brought;    /* something was, and the owner has not run dry since */
    unsigned slow;   /* looks in a row that found that turns take long */
    uint32_t open;   /* picks from now on, for which others are let in */
    uint32_t picks;  /* since the first of it */
    uint32_t looked; /* at the last look */
    uint64_t since_ns, looked_ns;
} teffi_alone;

struct teffi_slot {
    /* Hand-off: the owner's alone, inside, so that it takes no atomic step. The monitor takes it
     * out as it would retake the slot, see above. Others only look whether it is there. */
    _Alignas(64) teffi_group *_Atomic next;
    _Atomic uint64_t turns; /* groups run, from 1; read by thieves and the monitor */
    _Atomic uint64_t items; /* beyond one each; not where runs go through teffi_turn */
    _Atomic bool keeps;     /* nobody takes from deque, see help.c; set by the owner only */
    teffi_deque deque;
    teffi_wheel wheel;
    teffi_later *_Atomic laters; /* put off by the owner; see later.c */
    /* the owner's */
    uint64_t now_ns; /* a recent reading of the clock */
    uint64_t rng;
    uint32_t tick;     /* all picks */
    uint32_t handoffs; /* picks from next in a row, and turns in place meanwhile */
    uint32_t picks;    /* the others */
    uint32_t fairs;    /* picks of what waited longest */
    uint64_t later_ns; /* laters has not been empty since about then; 0: not known */
    uint32_t later_ms; /* teffi_warn_now when the first of them was put off */
    bool unannounced;  /* a used-up group went to the global queue and nobody was woken */
    teffi_alone alone; /* what peers brought; see help.c */
    teffi_pay pay;
    teffi_counts counts;
    /* guarded by idle_lock */
    teffi_worker *worker; /* NULL: free, its work is there for thieves */
    teffi_slot *next_free;
    /* the monitor's */
    uint64_t seen_turns;
    unsigned seen; /* so often in a row */
    bool told;     /* that its slice is over */
};

/* guarded by idle_lock */
typedef enum teffi_worker_state {
    TEFFI_WORKER_RUNNING = 0,
    TEFFI_WORKER_PARKED,  /* holds a slot; in the idle list */
    TEFFI_WORKER_BLOCKED, /* in a blocking region with its slot; in the idle list */
    TEFFI_WORKER_OUT,     /* in a blocking region, slot handed over */
    TEFFI_WORKER_LOST,    /* its turn took too long, slot retaken; in the lost list */
    TEFFI_WORKER_WAITING, /* wants a slot; in the waiting list */
    TEFFI_WORKER_SPARE    /* without a slot; in the spare list, or the visitor that is away */
} teffi_worker_state;

struct teffi_worker {
    teffi_real *real; /* immutable */
    uint32_t number;  /* immutable: 0 .., the hooks' name for it */
    teffi_thread thread;
    teffi_parker parker;
    teffi_slot *slot; /* its thread reads it while inside; changed under idle_lock */
    /* Whose turn it runs, the innermost: the group's address, with the low bit when it can be
     * described, and so its memory stays; 0: nobody's. And the number of that run, the slot's
     * turns. Written by its own thread; read by the monitor and dumps. release and acquire: what
     * was set up before the group ran is seen by who describes it. */
    _Atomic uintptr_t running;
    _Atomic uint64_t run;     /* relaxed: values are compared */
    _Atomic uint64_t told;    /* the run that the monitor has told of */
    uint64_t inlined_in;      /* own thread: the run in which inlined counts */
    unsigned inlined;         /* own thread: closures inside one another */
    _Atomic bool napping;     /* own thread: see nap.c */
    _Atomic bool blocked;     /* in a blocking region; as blocking, for others to read */
    bool searching;           /* own thread, or whoever wakes it under idle_lock */
    unsigned nested;          /* own thread: turns under the one that helps */
    unsigned blocking;        /* own thread: depth of blocking regions */
    bool ends_pass;           /* own thread: nothing is put off any more */
    bool brings;              /* own thread: what becomes READY was brought, see help.c */
    uint64_t preempted;       /* own thread: teffi_thread_preempted, when help.c asked last */
    teffi_fiber *under;       /* own thread: the fiber that help was called on, or NULL */
    _Atomic uint32_t due;     /* set by the monitor: the turn's slice is over; own thread clears */
    uint64_t directs_in;      /* own thread: the run in which directs counts */
    uint32_t directs_from_ms; /* own thread: since when, by the coarse clock */
    unsigned directs, directs_deep; /* own thread: turns in place (direct.h): so far; now */
    unsigned directs_unseen;        /* own thread: of them, since the last pick of a group */
    teffi_group *first;       /* own thread: fork: to run next, before the turn that gives way */
    void (*after)(void *arg); /* own thread: to call when the turn's fiber was left */
    void *after_arg;
    _Atomic uint32_t in_region; /* own thread: its turn may be interrupted */
    _Atomic uint32_t inside;    /* written by its own thread; pairs with retaken */
    _Atomic uint32_t retaken; /* written by the monitor under idle_lock, cleared with a new slot */
    teffi_worker_state state;
    teffi_worker *prev, *next; /* of the list that state tells, under idle_lock */
    uint64_t sleeps_until_ns;  /* idle_lock: PARKED or SPARE: when its thread wakes up by itself */
    /* warn.c's, under idle_lock: the run that it sees and since when; the one it has told of */
    uint64_t seen_run, seen_ns, told_ns;
    char told_text[TEFFI_DESCRIBE_MAX];
    teffi_group *batch[TEFFI_STEAL_MAX]; /* own thread: between two queues */
    struct teffi_clocked *clocked;       /* own thread: the run under way, in turn.c */
    uint64_t clocked_ns;                 /* own thread: run time since it last saw the share */
};

typedef struct teffi_worker_list {
    teffi_worker *head, *tail;
} teffi_worker_list;

struct teffi_real {
    teffi_exec exec;
    /* immutable after init */
    unsigned n_slots;
    unsigned threads_max;
    bool special;      /* each run goes through teffi_turn */
    unsigned take_max; /* from the global queue in one go, beside the one to run */
    teff_sched_hooks hooks;
    teffi_exec_ops ops;   /* as the policy has them */
    teffi_levels *levels; /* multilevel; else NULL */
    teffi_ranks *ranks;   /* priority; else NULL */
    bool exchanges;       /* no membarrier: teffi_enter uses an exchange */
    teffi_slot *slots;
    /* atomic */
    _Alignas(64) _Atomic uint32_t idle_word;  /* searching workers | idle ones << 16; see idle.c */
    _Alignas(64) _Atomic uint32_t attention;  /* not 0: stopping, or a worker waits for a slot */
    _Alignas(64) _Atomic uint32_t next_wheel; /* for timers set from outside */
    _Atomic uint32_t nappers;                 /* workers that nap */
    _Atomic uint32_t threads;                 /* n_workers, for metrics */
    _Atomic uint32_t n_active;                /* slots in use: the first ones; idle_lock to write */
    teffi_runqueue queue;
    /* guarded by idle_lock */
    pthread_mutex_t idle_lock;
    teffi_worker_list idle, waiting, spare, lost;
    teffi_slot *free_slots;
    teffi_worker **workers;
    unsigned n_workers, workers_room, n_parked;
    bool stopping, monitor_asleep, told_limit;
    bool visited;                      /* the visitor is here */
    teffi_parker departed;             /* the visitor has gone while somebody wants to stop */
    _Alignas(64) teffi_worker visitor; /* whatever thread visits; see visit.c */
    /* the monitor */
    teffi_thread monitor;
    teffi_parker monitor_parker;
    bool trims;           /* there is more to give back */
    size_t trimmed_bytes; /* that the heap got and may still have */
};

/* A run begins; and ends, leaving nothing: what it is nested in puts itself back. */
static inline void teffi_run_begin(teffi_worker *w, teffi_group *group, uint64_t run)
{
    uintptr_t stays = group->ops->describe != NULL;
    atomic_store_explicit(&w->run, run, memory_order_relaxed);
    atomic_store_explicit(&w->running, (uintptr_t)group | stays, memory_order_release);
}

static inline void teffi_run_end(teffi_worker *w, uint64_t run)
{
    atomic_store_explicit(&w->running, 0, memory_order_relaxed);
    if (atomic_load_explicit(&w->told, memory_order_relaxed) == run)
        teffi_warn_ended(w);
}

/* teffi_run_group - of worker.running. teffi_run_own - of this thread's own turn, NULL: none. */
static inline teffi_group *teffi_run_group(uintptr_t running)
{
    return (teffi_group *)(running & ~(uintptr_t)1);
}

static inline teffi_group *teffi_run_own(teffi_worker *w)
{
    return teffi_run_group(atomic_load_explicit(&w->running, memory_order_relaxed));
}

/* bits of attention */
enum { TEFFI_ATTEND_STOP = 1, TEFFI_ATTEND_WAITING = 2 };

/* teffi_enter - from a turn into the scheduler, on w's own thread. out: for teffi_leave. */
static inline uint32_t teffi_enter(teffi_worker *w)
{
    uint32_t was = atomic_load_explicit(&w->inside, memory_order_relaxed);
    if (__builtin_expect(w->real->exchanges, 0)) {
        /* seq_cst: before the look at retaken; pairs with retake() in idle.c */
        atomic_exchange_explicit(&w->inside, 1, memory_order_seq_cst);
        return was;
    }
    atomic_store_explicit(&w->inside, 1, memory_order_relaxed);
    /* The compiler keeps the order; on the other cores retake()'s membarrier does. */
    atomic_signal_fence(memory_order_seq_cst);
    return was;
}

static inline void teffi_leave(teffi_worker *w, uint32_t was)
{
    /* release: what was done with the slot; pairs with retake() */
    atomic_store_explicit(&w->inside, was, memory_order_release);
}

/* teffi_slot_kept - after teffi_enter: the slot this worker may use; NULL: none (any more). */
static inline teffi_slot *teffi_slot_kept(teffi_worker *w)
{
    /* acquire: pairs with a retake that was taken back */
    return atomic_load_explicit(&w->retaken, memory_order_acquire) ? NULL : w->slot;
}

/* teffi_slot_take_next - the hand-off, NULL: none. runs: who has the slot to himself: inside, or as
 * the monitor. relaxed: the way to the slot orders it. */
static inline teffi_group *teffi_slot_take_next(teffi_slot *slot)
{
    teffi_group *group = atomic_load_explicit(&slot->next, memory_order_relaxed);
    if (group)
        atomic_store_explicit(&slot->next, NULL, memory_order_relaxed);
    return group;
}

/* ---- worker.c ---- */

/* teffi_worker_self - the worker that this thread is, NULL outside. Never inlined: a turn that
 * moved to another thread must not use the old answer. teffi_own_worker - the same, for functions
 * that are never inlined, and look at it before they do what may suspend. */
teffi_worker *teffi_worker_self(void);
TEFFI_LOCAL_EXTERN teffi_worker *teffi_own_worker;

/* teffi_worker_become - this thread is w from now on; NULL: it is no worker any more. */
void teffi_worker_become(teffi_worker *w);

/* teffi_worker_run - a group, and what is to run next at once. runs: inside, with a slot. */
void teffi_worker_run(teffi_worker *w, teffi_group *group);

/* teffi_worker_enters - the thread comes back from what may have lost the slot: w->slot is as it
 * really is. */
void teffi_worker_enters(teffi_worker *w);

/* teffi_worker_timers - read the clock for the slot, and fire what is due. */
void teffi_worker_timers(teffi_worker *w);

/* teffi_worker_looks - every few picks: timers, and what was put off for too long. out: it did. */
bool teffi_worker_looks(teffi_worker *w);

/* teffi_worker_start - one more thread. in: slot, may be NULL. idle_lock held.
 * out: NULL: at the limit of threads, or the system refused; text was logged. */
teffi_worker *teffi_worker_start(teffi_real *real, teffi_slot *slot, bool searching);

/* teffi_help - exec op: one other group, nested in the turn that runs. */
bool teffi_help(teffi_exec *exec);

/* teffi_offer - a READY group where thieves find it, newest of the worker's deque.
 * runs: in a turn of w, on its thread. */
void teffi_offer(teffi_worker *w, teffi_group *group);

/* teffi_slot_ready - a group became READY in a turn of w, which holds slot. runs: inside. */
void teffi_slot_ready(teffi_worker *w, teffi_slot *slot, teffi_group *group);

/* ---- help.c ---- */

/* teffi_keeps - may nobody take from the slot's deque? Any thread. */
static inline bool teffi_keeps(const teffi_slot *slot)
{
    /* seq_cst: whoever is about to sleep has announced it before; pairs with keeps_not */
    return atomic_load_explicit(&slot->keeps, memory_order_seq_cst);
}

/* teffi_keeps_not - others may, from now on; teffi_wake_one is to follow when there is something.
 * out: false: they could already. runs: the slot's owner, inside; with idle_lock held; or the
 * monitor. */
static inline bool teffi_keeps_not(teffi_slot *slot)
{
    /* relaxed: only the owner sets it */
    bool kept = atomic_load_explicit(&slot->keeps, memory_order_relaxed);
    if (kept) /* seq_cst: before the look at who sleeps */
        atomic_store_explicit(&slot->keeps, false, memory_order_seq_cst);
    return kept;
}

/* teffi_help_over - the owner's deque is empty: what was brought has run. runs: inside. */
static inline void teffi_help_over(teffi_slot *slot)
{
    if (!slot->alone.brought)
        return;
    slot->alone.brought = false;
    (void)teffi_keeps_not(slot);
}

/* teffi_bring - exec op. */
void teffi_bring(teffi_exec *exec, void (*fn)(void *arg), void *arg);

/* teffi_help_later - what was brought lies in w's deque. runs: inside, with a slot. */
void teffi_help_later(teffi_worker *w);

/* teffi_help_look - some of it was run: is it time for help? runs: inside, with a slot. */
void teffi_help_look(teffi_worker *w);

/* ---- turn.c ---- */

/* teffi_turn - as teffi_group_run, with what the default does without: hooks around it, the clock
 * for its level, its items refused when it was evicted. */
bool teffi_turn(teffi_worker *worker, teffi_group *group, unsigned items_max, uint64_t until_ns);

/* teffi_thread_began, _ends, _pauses, _resumes - the hooks of a worker's thread. */
void teffi_thread_began(const teffi_worker *worker);
void teffi_thread_ends(const teffi_worker *worker);
void teffi_thread_pauses(const teffi_worker *worker);
void teffi_thread_resumes(const teffi_worker *worker);

/* ---- scale.c ---- */

/* teffi_scale - exec op. */
teff_err teffi_scale(teffi_exec *exec, unsigned n);

/* teffi_slot_in_use - is it one of the first n_active? May change at any moment. */
static inline bool teffi_slot_in_use(const teffi_real *real, const teffi_slot *slot)
{
    return (size_t)(slot - real->slots) <
           atomic_load_explicit(&real->n_active, memory_order_relaxed);
}

/* teffi_slot_move_timers - if the slot is not used: after setting a timer on its wheel. */
void teffi_slot_move_timers(teffi_real *real, teffi_slot *slot);

/* teffi_slot_clear - what an unused slot still holds goes where it is found: groups to the queue of
 * all workers, timers to a wheel in use. Any thread, no lock held. */
void teffi_slot_clear(teffi_real *real, teffi_slot *slot);

/* ---- slice.c ---- */

/* teffi_give_way - suspend the turn that runs, in its middle.
 * in:   stays: until teffi_group_go_on; else it goes behind all others at once.
 * out:  false: it cannot (it has no fiber of its own, or is in a blocking region). When true, this
 *       may be another thread. */
bool teffi_give_way(teffi_worker *w, bool stays);

/* teffi_may_give_way - would it? */
bool teffi_may_give_way(const teffi_worker *w);

/* ---- preempt.c ---- */

/* teffi_preempt_start - once in a process is enough. teffi_preempt_allow - on a worker's thread. */
void teffi_preempt_start(void);
void teffi_preempt_allow(void);

/* teffi_preempt - interrupt the worker's turn if that is in a preemptible region.
 * runs: the monitor, idle_lock held. */
void teffi_preempt(teffi_worker *w);

/* ---- metrics.c ---- */

/* teffi_metrics - exec op. */
size_t teffi_metrics(teffi_exec *exec, teff_sched_metrics *all, teff_sched_worker *workers,
                     size_t max);

/* ---- later.c ---- */

/* teffi_put_off - exec op. */
bool teffi_put_off(teffi_exec *exec, teffi_later *later);

/* teffi_laters_do - do what was put off. runs: the slot's owner, inside; the monitor; or nobody
 * else any more. */
void teffi_laters_do(teffi_slot *slot);

/* teffi_laters_any - is there something to do? In: the slot's owner. */
static inline bool teffi_laters_any(const teffi_slot *slot)
{
    /* relaxed: the owner put them there */
    return atomic_load_explicit(&slot->laters, memory_order_relaxed) != NULL;
}

/* teffi_laters_run - as do. out: there were any; they may have made groups READY, and have been put
 * off anew. */
static inline bool teffi_laters_run(teffi_slot *slot)
{
    bool any = teffi_laters_any(slot);
    if (any)
        teffi_laters_do(slot);
    return any;
}

/* teffi_laters_due - as run, if the monitor has ticked since they were put off. */
static inline void teffi_laters_due(teffi_worker *w)
{
    if (teffi_laters_any(w->slot) && w->slot->later_ms != teffi_warn_now(&w->real->exec.warn))
        teffi_laters_do(w->slot);
}

/* teffi_laters_end - as run, and nothing is put off anew: the worker goes from its slot. */
void teffi_laters_end(teffi_worker *worker);

/* teffi_laters_age - in a long pass, now_ns has just been read: do what has waited for too long. */
void teffi_laters_age(teffi_slot *slot);

/* ---- visit.c ---- */

/* teffi_visit - exec op. */
bool teffi_visit(teffi_exec *exec, void (*fn)(void *arg), void *arg);

/* teffi_visit_init, _stop - before the first; and after stopping was set: until nobody visits. */
void teffi_visit_init(teffi_real *real);
void teffi_visit_stop(teffi_real *real);

/* ---- find.c ---- */

/* teffi_find_near - own queues, and the global one; only with something put off also others'. Does
 * what was put off before it finds nothing; that may have been put off anew. */
teffi_group *teffi_find_near(teffi_worker *worker);

/* teffi_find - the next group for this worker. NULL: none; then park, unless something was put off
 * anew. A searching worker that finds one stops searching and sees to it that another goes on.
 * in:   patient: it may nap first. */
teffi_group *teffi_find(teffi_worker *worker, bool patient);

/* teffi_any_work - is there something a searching worker could take? Ordered after a change of
 * idle_word. */
bool teffi_any_work(teffi_real *real);

/* ---- nap.c ---- */

/* teffi_nap_stole - this worker has stolen from that slot. */
void teffi_nap_stole(teffi_worker *worker, teffi_slot *victim);

/* teffi_nap - it has run dry: if what it stole did not pay, sleep for up to 2 ms. */
void teffi_nap(teffi_worker *worker);

/* teffi_nap_end - wake who naps: there is work that no busy worker will get to soon. Any thread. */
void teffi_nap_end(teffi_real *real);

/* ---- idle.c ---- */

/* teffi_wake_one - after making work visible: wake a worker unless one is searching already. */
void teffi_wake_one(teffi_real *real);

/* teffi_none_idle - no worker sleeps or looks for work. */
bool teffi_none_idle(teffi_real *real);

/* teffi_search_begin, _end - count this worker as searching; begin may refuse, end on success. */
bool teffi_search_begin(teffi_worker *worker);
void teffi_search_end(teffi_worker *worker);

/* teffi_park - sleep until there may be work, a timer is due, or the end. */
void teffi_park(teffi_worker *worker);

/* teffi_slot_borrow - the slot of a worker that sleeps, for the visitor. out: false: none sleeps,
 * somebody visits already, or the end has come. */
bool teffi_slot_borrow(teffi_worker *visitor);

/* teffi_slot_return - the visitor goes: its slot, if it still has one, to a worker that sleeps on
 * with it, or is woken when there is work left. */
void teffi_slot_return(teffi_worker *visitor);

/* teffi_attend - give the slot to a waiting worker, if there is one. */
void teffi_attend(teffi_worker *worker);

/* teffi_slot_retake - the worker of this slot has been in one turn for too long: its slot goes to
 * another thread, if one is to be had. runs: the monitor. out: false: not this time. */
bool teffi_slot_retake(teffi_real *real, teffi_slot *slot, uint64_t turn);

/* teffi_slot_open - the worker of this slot is still in that turn: its hand-off goes to the queue
 * of all. runs: the monitor. out: true: there was one, and somebody should be woken. */
bool teffi_slot_open(teffi_real *real, teffi_slot *slot, uint64_t turn);

/* teffi_slot_due - tell the turn of this slot's worker that its slice is over. out: false: the
 * slot is nobody's, or its worker is in no turn. */
bool teffi_slot_due(teffi_real *real, teffi_slot *slot);

/* teffi_lost_due - interrupt the turns that go on without a slot, where they allow it. */
void teffi_lost_due(teffi_real *real);

/* teffi_slot_settle - after teffi_enter that found retaken set: w->slot is as it really is. */
void teffi_slot_settle(teffi_worker *w);

/* teffi_slot_regain - a worker without a slot is between two turns: until it has one again.
 * out:  false: the end. */
bool teffi_slot_regain(teffi_worker *w);

/* teffi_slot_poke - the slot's wheel has an earlier timer: a parked worker is to look. */
void teffi_slot_poke(teffi_real *real, teffi_slot *slot);

/* teffi_slot_vacate - a slot is not to be used any more: nobody holds it then, unless its worker
 * runs and will teffi_slot_leave it. idle_lock held. */
void teffi_slot_vacate(teffi_real *real, teffi_slot *slot);

/* teffi_slot_leave - this worker gives its slot up, if that is not to be used any more, and sleeps
 * until it gets another. out: false: it may keep it. */
bool teffi_slot_leave(teffi_worker *worker);

/* teffi_slot_staff - a thread for a slot that nobody holds. idle_lock held.
 * out:  a worker to be woken once the lock is free; NULL: none needs to be. */
teffi_worker *teffi_slot_staff(teffi_real *real, teffi_slot *slot);

/* teffi_blocking_begin, _end - exec ops. */
void teffi_blocking_begin(teffi_exec *exec);
void teffi_blocking_end(teffi_exec *exec);

/* teffi_idle_stop - begin stopping: wake everybody who sleeps. */
void teffi_idle_stop(teffi_real *real);

/* ---- dump.c ---- */

/* teffi_exec_dump - exec op. */
void teffi_exec_dump(teffi_exec *exec, teff_line_fn *fn, void *arg);

/* ---- monitor.c ---- */

void teffi_monitor_main(void *arg);

/* ---- trim.c ---- */

/* teffi_trim - give a slice of what nobody has needed for a while back to the system. runs: the
 * monitor. out: true: there is more than is kept for good: call again soon. */
bool teffi_trim(teffi_real *real, uint64_t now_ns);

#endif
