/* idle.c - who sleeps, who is woken, who holds which slot.
 * Way:     ready -> wake_one -> a parked worker; find (nothing) -> park; blocking -> hand over
 * States:  teffi_worker_state; lists and states under idle_lock
 * Threads: any.
 * Source:  tests/model/park.pml
 *
 * No wake-up is lost, since both sides write, then look (all seq_cst): a pusher makes work visible,
 * then reads idle_word; a worker announces itself in idle_word (one step: searching - 1, idle + 1),
 * then looks at every queue. A pusher that saw a searcher leaves the work to it: the last searcher
 * that stops with success looks at every queue once more and wakes the next. A deque that its slot
 * keeps (help.c) is no queue in this; who lets others in is a pusher. */
#include <stddef.h>
#include "base/bug.h"
#include "base/pool.h"
#include "sched/worker.h"

enum { SEARCHING = 1, IDLE = 1 << 16, SEARCHING_MASK = IDLE - 1 };

/* ---- lists, idle_lock held ---- */

static void add_first(teffi_worker_list *list, teffi_worker *w)
{
    w->prev = NULL;
    w->next = list->head;
    *(list->head ? &list->head->prev : &list->tail) = w;
    list->head = w;
}

static void add_last(teffi_worker_list *list, teffi_worker *w)
{
    w->next = NULL;
    w->prev = list->tail;
    *(list->tail ? &list->tail->next : &list->head) = w;
    list->tail = w;
}

static void take_out(teffi_worker_list *list, teffi_worker *w)
{
    *(w->prev ? &w->prev->next : &list->head) = w->next;
    *(w->next ? &w->next->prev : &list->tail) = w->prev;
    w->prev = w->next = NULL;
}

static void lock(teffi_real *real)
{
    pthread_mutex_lock(&real->idle_lock);
}

static void unlock(teffi_real *real)
{
    pthread_mutex_unlock(&real->idle_lock);
}

/* Into the idle list; parked ones first, since waking them costs less than a hand-over. */
static void idle_add(teffi_worker *w, teffi_worker_state state)
{
    teffi_real *real = w->real;
    w->state = state;
    if (state == TEFFI_WORKER_PARKED) {
        add_first(&real->idle, w);
        real->n_parked++;
    } else {
        add_last(&real->idle, w);
    }
    uint32_t change = IDLE - (w->searching ? SEARCHING : 0u);
    w->searching = false;
    atomic_fetch_add_explicit(&real->idle_word, change, memory_order_seq_cst);
}

static void monitor_wake(teffi_real *real)
{
    if (!real->monitor_asleep)
        return;
    real->monitor_asleep = false;
    teffi_warn_tick(real, teffi_now(real->exec.platform));
    teffi_parker_wake(&real->monitor_parker);
}

/* Out of the idle list, in another state; searching: as a searcher. */
static void idle_del(teffi_worker *w, teffi_worker_state state, bool searching)
{
    teffi_real *real = w->real;
    take_out(&real->idle, w);
    if (w->state == TEFFI_WORKER_PARKED)
        real->n_parked--;
    w->state = state;
    w->searching = searching;
    atomic_fetch_add_explicit(&real->idle_word, (searching ? SEARCHING : 0u) - IDLE,
                              memory_order_seq_cst);
    monitor_wake(real);
}

static void hold(teffi_worker *w, teffi_slot *slot)
{
    w->slot = slot;
    slot->worker = w;
    /* relaxed: its thread is parked, or is the caller */
    atomic_store_explicit(&w->retaken, 0, memory_order_relaxed);
}

static teffi_slot *let_go(teffi_worker *w)
{
    teffi_slot *slot = w->slot;
    w->slot = NULL;
    slot->worker = NULL;
    (void)teffi_keeps_not(slot);
    return slot;
}

static void no_more_waiting(teffi_real *real)
{
    if (!real->waiting.head)
        atomic_fetch_and_explicit(&real->attention, ~(uint32_t)TEFFI_ATTEND_WAITING,
                                  memory_order_relaxed);
}

static void to_spare(teffi_worker *w)
{
    w->state = TEFFI_WORKER_SPARE;
    add_first(&w->real->spare, w);
}

/* A slot for the one that has waited longest. */
static teffi_worker *promote(teffi_real *real, teffi_slot *slot)
{
    teffi_worker *heir = real->waiting.head;
    take_out(&real->waiting, heir);
    no_more_waiting(real);
    heir->state = TEFFI_WORKER_RUNNING;
    hold(heir, slot);
    return heir;
}

/* A slot whose worker went into a blocking region gets another thread, as a searcher that is
 * counted already. Without one the slot is free: its work can be stolen. */
static teffi_worker *staff(teffi_real *real, teffi_slot *slot)
{
    teffi_worker *w = real->spare.head;
    if (w) {
        take_out(&real->spare, w);
        w->state = TEFFI_WORKER_RUNNING;
        w->searching = true;
        hold(w, slot);
        return w;
    }
    if (teffi_worker_start(real, slot, true))
        return NULL;
    if (teffi_slot_in_use(real, slot)) {
        slot->next_free = real->free_slots;
        real->free_slots = slot;
    }
    atomic_fetch_sub_explicit(&real->idle_word, SEARCHING, memory_order_seq_cst);
    return NULL;
}

/* ---- waking ---- */

static bool nobody_to_wake(uint32_t word)
{
    return (word & SEARCHING_MASK) != 0 || word < IDLE;
}

static void wake_slowly(teffi_real *real)
{
    lock(real);
    teffi_worker *w = real->idle.head;
    if (real->stopping ||
        nobody_to_wake(atomic_load_explicit(&real->idle_word, memory_order_seq_cst))) {
        unlock(real);
        return;
    }
    if (w->state == TEFFI_WORKER_PARKED) {
        idle_del(w, TEFFI_WORKER_RUNNING, true);
        teffi_count_add(&w->slot->counts.wakes, 1);
    } else {
        idle_del(w, TEFFI_WORKER_OUT, true);
        w->searching = false; /* the one that staffs the slot searches */
        w = staff(real, let_go(w));
    }
    unlock(real);
    if (w)
        teffi_parker_wake(&w->parker);
}

void teffi_wake_one(teffi_real *real)
{
    /* seq_cst: after the push that made work visible; pairs with idle_add and search_end */
    if (!nobody_to_wake(atomic_load_explicit(&real->idle_word, memory_order_seq_cst)))
        wake_slowly(real);
}

bool teffi_none_idle(teffi_real *real)
{
    return !atomic_load_explicit(&real->idle_word, memory_order_relaxed);
}

bool teffi_search_begin(teffi_worker *w)
{
    teffi_real *real = w->real;
    uint32_t word = atomic_load_explicit(&real->idle_word, memory_order_relaxed);
    uint32_t searchers_max = (atomic_load_explicit(&real->n_active, memory_order_relaxed) + 1) / 2;
    while (!w->searching && (word & SEARCHING_MASK) < searchers_max)
        w->searching = atomic_compare_exchange_weak_explicit(
            &real->idle_word, &word, word + SEARCHING, memory_order_seq_cst, memory_order_relaxed);
    return w->searching;
}

void teffi_search_end(teffi_worker *w)
{
    teffi_real *real = w->real;
    w->searching = false;
    /* seq_cst: a pusher that saw this searcher made its work visible before this step */
    uint32_t word = atomic_fetch_sub_explicit(&real->idle_word, SEARCHING, memory_order_seq_cst);
    if ((word & SEARCHING_MASK) == 1 && word >= IDLE && teffi_any_work(real))
        teffi_wake_one(real);
}

void teffi_slot_poke(teffi_real *real, teffi_slot *slot)
{
    lock(real);
    teffi_worker *w = slot->worker;
    if (w && (w->state == TEFFI_WORKER_PARKED ||
              atomic_load_explicit(&w->napping, memory_order_seq_cst)))
        teffi_parker_wake(&w->parker);
    unlock(real);
}

/* ---- parking ---- */

/* Sleep without a slot until one is given. false: the end. */
static bool wait_for_slot(teffi_worker *w)
{
    teffi_real *real = w->real;
    lock(real);
    while (w->state != TEFFI_WORKER_RUNNING && !real->stopping) {
        if (w->state == TEFFI_WORKER_PARKED) { /* by a visitor that went; now it is awake */
            idle_del(w, TEFFI_WORKER_RUNNING, false);
            break;
        }
        w->sleeps_until_ns = UINT64_MAX;
        unlock(real);
        teffi_parker_wait(&w->parker, UINT64_MAX);
        lock(real);
    }
    bool got = w->slot != NULL;
    unlock(real);
    return got;
}

/* idle_lock held. */
static uint64_t sleep_ns(teffi_worker *w)
{
    uint64_t due = teffi_wheel_next(&w->slot->wheel);
    w->sleeps_until_ns = due;
    if (due == UINT64_MAX)
        return UINT64_MAX;
    uint64_t now = teffi_now(w->real->exec.platform);
    return due > now ? due - now : 0;
}

/* Take back the announcement, unless somebody woke this worker or took its slot meanwhile. */
static teffi_worker_state unpark(teffi_worker *w, bool searching)
{
    lock(w->real);
    if (w->state == TEFFI_WORKER_PARKED)
        idle_del(w, TEFFI_WORKER_RUNNING, searching);
    teffi_worker_state state = w->state;
    unlock(w->real);
    return state;
}

void teffi_park(teffi_worker *w)
{
    teffi_real *real = w->real;
    lock(real);
    if (real->stopping || real->waiting.head || !teffi_slot_in_use(real, w->slot)) {
        unlock(real);
        if (w->searching)
            teffi_search_end(w);
        return; /* the loop attends, or leaves the slot */
    }
    idle_add(w, TEFFI_WORKER_PARKED);
    teffi_count_add(&w->slot->counts.parks, 1);
    uint64_t timeout_ns = sleep_ns(w); /* after announcing: a timer set later pokes */
    unlock(real);
    bool found = teffi_any_work(real);
    if (!found) {
        teffi_pool_idle();
        teffi_parker_wait(&w->parker, timeout_ns);
    }
    if (unpark(w, found) == TEFFI_WORKER_RUNNING)
        return;
    /* The slot is another's now. What was found may have been left to this worker. */
    if (found)
        teffi_wake_one(real);
    (void)wait_for_slot(w);
}

/* ---- blocking regions and slots ---- */

static teffi_slot *slot_of_idle(teffi_real *real)
{
    teffi_worker *w = real->idle.head;
    if (!w)
        return NULL;
    if (w->state == TEFFI_WORKER_PARKED) {
        idle_del(w, TEFFI_WORKER_SPARE, false);
        to_spare(w);
    } else {
        idle_del(w, TEFFI_WORKER_OUT, false);
    }
    return let_go(w);
}

void teffi_attend(teffi_worker *w)
{
    teffi_real *real = w->real;
    if (w->searching)
        teffi_search_end(w);
    lock(real);
    teffi_worker *heir = real->waiting.head;
    if (!heir || real->stopping) {
        unlock(real);
        return;
    }
    heir = promote(real, let_go(w));
    to_spare(w);
    unlock(real);
    teffi_parker_wake(&heir->parker);
    (void)wait_for_slot(w);
}

static teffi_worker *own_worker(teffi_exec *exec)
{
    teffi_worker *w = teffi_worker_self();
    return w && &w->real->exec == exec ? w : NULL;
}

static void give(teffi_real *real, teffi_group *group)
{
    if (group)
        teffi_runqueue_push(&real->queue, group);
}

/* inside, with a slot. */
static void block(teffi_worker *w)
{
    teffi_real *real = w->real;
    (void)teffi_laters_run(w->slot);
    /* The hand-off must be where others find it. */
    give(real, teffi_slot_take_next(w->slot));
    (void)teffi_keeps_not(w->slot);
    lock(real);
    /* At the end those that waited have gone on without a slot: none of them is to be given one. */
    if (real->stopping || !real->waiting.head)
        idle_add(w, TEFFI_WORKER_BLOCKED);
    else {
        teffi_worker *heir = promote(real, let_go(w));
        w->state = TEFFI_WORKER_OUT;
        teffi_parker_wake(&heir->parker);
    }
    unlock(real);
    if (teffi_any_work(real))
        teffi_wake_one(real);
}

void teffi_blocking_begin(teffi_exec *exec)
{
    teffi_worker *w = own_worker(exec);
    if (!w || w->blocking++)
        return;
    /* relaxed: the monitor may see it late */
    atomic_store_explicit(&w->blocked, true, memory_order_relaxed);
    uint32_t was = teffi_enter(w);
    if (!teffi_slot_kept(w))
        teffi_slot_settle(w);
    if (w->slot)
        block(w);
    teffi_leave(w, was);
}

static teffi_slot *free_slot(teffi_real *real)
{
    teffi_slot *slot = real->free_slots;
    if (slot)
        real->free_slots = slot->next_free;
    return slot;
}

/* No longer OUT or LOST. */
static void have_slot(teffi_worker *w, teffi_slot *slot)
{
    if (w->state == TEFFI_WORKER_LOST)
        take_out(&w->real->lost, w);
    w->state = TEFFI_WORKER_RUNNING;
    hold(w, slot);
}

static bool take_slot(teffi_worker *w)
{
    teffi_slot *slot = free_slot(w->real);
    if (!slot)
        slot = slot_of_idle(w->real);
    if (!slot)
        return false;
    have_slot(w, slot);
    return true;
}

static bool without_slot(const teffi_worker *w)
{
    return w->state == TEFFI_WORKER_OUT || w->state == TEFFI_WORKER_LOST;
}

/* out: false: there is no slot for it, and its turn had better give way. */
static bool unblock(teffi_worker *w)
{
    teffi_real *real = w->real;
    lock(real);
    bool have = true;
    if (w->state == TEFFI_WORKER_BLOCKED) {
        idle_del(w, TEFFI_WORKER_RUNNING, false);
    } else if (without_slot(w) && !real->stopping && !take_slot(w)) {
        have = false;
        if (teffi_may_give_way(w)) {
            unlock(real);
            return false;
        }
        if (w->state == TEFFI_WORKER_LOST)
            take_out(&real->lost, w);
        w->state = TEFFI_WORKER_WAITING;
        add_last(&real->waiting, w);
        atomic_fetch_or_explicit(&real->attention, TEFFI_ATTEND_WAITING, memory_order_relaxed);
    }
    unlock(real);
    if (!have) {
        teffi_nap_end(real);
        (void)wait_for_slot(w);
    }
    return true;
}

void teffi_blocking_end(teffi_exec *exec)
{
    teffi_worker *w = own_worker(exec);
    if (!w || !w->blocking || --w->blocking)
        return;
    /* While it waits too: a slot that it is given may not be retaken before it has woken up. */
    uint32_t was = teffi_enter(w);
    bool have = unblock(w);
    atomic_store_explicit(&w->blocked, false, memory_order_relaxed);
    teffi_leave(w, was); /* before it gives way: it may go on with another worker */
    if (!have)
        (void)teffi_give_way(w, false); /* to the global queue; this thread is spare then */
}

void teff_blocking_begin(void)
{
    teffi_worker *w = teffi_worker_self();
    if (w)
        teffi_blocking_begin(&w->real->exec);
}

void teff_blocking_end(void)
{
    teffi_worker *w = teffi_worker_self();
    if (w)
        teffi_blocking_end(&w->real->exec);
}

/* ---- turns that take too long ---- */

bool teffi_slot_due(teffi_real *real, teffi_slot *slot)
{
    lock(real);
    teffi_worker *w = slot->worker;
    bool runs = w && w->state == TEFFI_WORKER_RUNNING;
    if (runs) {
        atomic_store_explicit(&w->due, 1, memory_order_relaxed);
        teffi_preempt(w);
    }
    unlock(real);
    return runs;
}

void teffi_lost_due(teffi_real *real)
{
    lock(real);
    for (teffi_worker *w = real->lost.head; w && !real->stopping; w = w->next)
        teffi_preempt(w);
    unlock(real);
}

void teffi_slot_settle(teffi_worker *w)
{
    /* The monitor decides under this lock. */
    lock(w->real);
    unlock(w->real);
}

/* A thread for a slot that is about to be retaken: one that waits for a slot, a spare one, a new
 * one. NULL: none is to be had; the slot still says who held it. */
static teffi_worker *heir_for(teffi_real *real, teffi_slot *slot)
{
    if (real->waiting.head)
        return promote(real, slot);
    atomic_fetch_add_explicit(&real->idle_word, SEARCHING, memory_order_seq_cst);
    teffi_worker *w = real->spare.head;
    if (!w) {
        w = teffi_worker_start(real, slot, true);
        if (!w)
            atomic_fetch_sub_explicit(&real->idle_word, SEARCHING, memory_order_seq_cst);
        return w;
    }
    take_out(&real->spare, w);
    w->state = TEFFI_WORKER_RUNNING;
    w->searching = true;
    hold(w, slot);
    return w;
}

/* out: w's thread leaves its slot alone from here on, until retaken is cleared. */
static bool retake(teffi_worker *w, uint64_t turn)
{
    /* seq_cst: then the barrier, then the look at inside; see worker.h */
    atomic_store_explicit(&w->retaken, 1, memory_order_seq_cst);
    if (!w->real->exchanges)
        teffi_barrier_all();
    /* seq_cst, acquire: pairs with teffi_enter's exchange; all it did with the slot before leave */
    return !atomic_load_explicit(&w->inside, memory_order_seq_cst) &&
           atomic_load_explicit(&w->slot->turns, memory_order_relaxed) == turn;
}

bool teffi_slot_retake(teffi_real *real, teffi_slot *slot, uint64_t turn)
{
    teffi_worker *heir = NULL;
    lock(real);
    teffi_worker *w = slot->worker;
    if (w && w->state == TEFFI_WORKER_RUNNING && !real->stopping) {
        if (retake(w, turn)) {
            (void)teffi_keeps_not(slot); /* the heir may be in a turn that takes long as well */
            heir = heir_for(real, slot);
        }
        if (heir) {
            w->slot = NULL;
            atomic_store_explicit(&w->due, 1, memory_order_relaxed);
            w->state = TEFFI_WORKER_LOST;
            add_last(&real->lost, w);
        } else {
            slot->worker = w;
            /* release: pairs with teffi_slot_kept */
            atomic_store_explicit(&w->retaken, 0, memory_order_release);
        }
    }
    unlock(real);
    if (heir)
        teffi_parker_wake(&heir->parker);
    return heir != NULL;
}

bool teffi_slot_open(teffi_real *real, teffi_slot *slot, uint64_t turn)
{
    teffi_group *next = NULL;
    lock(real);
    teffi_worker *w = slot->worker;
    if (w && w->state == TEFFI_WORKER_RUNNING && !real->stopping) {
        if (retake(w, turn))
            next = teffi_slot_take_next(slot);
        /* release: the emptied hand-off; pairs with teffi_slot_kept */
        atomic_store_explicit(&w->retaken, 0, memory_order_release);
    }
    unlock(real);
    give(real, next);
    return next;
}

bool teffi_slot_regain(teffi_worker *w)
{
    teffi_real *real = w->real;
    lock(real);
    teffi_slot *slot = real->stopping ? NULL : free_slot(real);
    if (slot) {
        have_slot(w, slot);
    } else if (!real->stopping) {
        if (w->state == TEFFI_WORKER_LOST)
            take_out(&real->lost, w);
        to_spare(w);
    }
    unlock(real);
    return slot || wait_for_slot(w);
}

/* ---- a visitor (visit.c) ---- */

bool teffi_slot_borrow(teffi_worker *visitor)
{
    teffi_real *real = visitor->real;
    lock(real);
    teffi_worker *host = real->idle.head;
    bool may = !real->stopping && !real->visited && host && host->state == TEFFI_WORKER_PARKED;
    if (may) {
        real->visited = true;
        idle_del(host, TEFFI_WORKER_SPARE, false);
        to_spare(host);
        visitor->state = TEFFI_WORKER_RUNNING;
        visitor->thread.id = pthread_self();
        hold(visitor, let_go(host));
    }
    unlock(real);
    return may;
}

static bool has_work(teffi_slot *slot)
{
    return atomic_load_explicit(&slot->next, memory_order_relaxed) ||
           teffi_deque_count(&slot->deque) ||
           atomic_load_explicit(&slot->laters, memory_order_relaxed);
}

/* idle_lock held. out: who is to be woken, NULL: nobody. *asleep: a worker sleeps with it. */
static teffi_worker *pass_on(teffi_real *real, teffi_slot *slot, bool *asleep)
{
    teffi_worker *w = real->spare.head;
    if (real->waiting.head)
        return promote(real, slot);
    if (!w) { /* all others are in turns that take long, without a slot */
        atomic_fetch_add_explicit(&real->idle_word, SEARCHING, memory_order_seq_cst);
        return staff(real, slot);
    }
    take_out(&real->spare, w);
    hold(w, slot);
    if (has_work(slot)) {
        w->state = TEFFI_WORKER_RUNNING;
        return w;
    }
    *asleep = true;
    idle_add(w, TEFFI_WORKER_PARKED);
    /* after announcing: a timer set later pokes */
    return teffi_wheel_next(&slot->wheel) < w->sleeps_until_ns ? w : NULL;
}

void teffi_slot_return(teffi_worker *visitor)
{
    teffi_real *real = visitor->real;
    teffi_worker *heir = NULL;
    bool asleep = false;
    lock(real);
    if (visitor->state == TEFFI_WORKER_LOST)
        take_out(&real->lost, visitor);
    teffi_slot *slot = visitor->slot ? let_go(visitor) : NULL;
    visitor->state = TEFFI_WORKER_SPARE;
    real->visited = false;
    bool in_use = slot && teffi_slot_in_use(real, slot);
    teffi_group *next = slot && !in_use ? teffi_slot_take_next(slot) : NULL;
    if (in_use && !real->stopping)
        heir = pass_on(real, slot, &asleep);
    /* A slot that nobody holds now may have kept something. */
    bool look = asleep || (in_use && !slot->worker && !real->stopping);
    if (real->stopping)
        teffi_parker_wake(&real->departed);
    unlock(real);
    if (heir)
        teffi_parker_wake(&heir->parker);
    give(real, next);
    if (slot && !in_use)
        teffi_slot_clear(real, slot);
    if (look && teffi_any_work(real))
        teffi_wake_one(real);
}

/* ---- slots that are used no more, or again (scale.c) ---- */

static void out_of_free(teffi_real *real, const teffi_slot *slot)
{
    teffi_slot **at = &real->free_slots;
    while (*at && *at != slot)
        at = &(*at)->next_free;
    if (*at)
        *at = slot->next_free;
}

void teffi_slot_vacate(teffi_real *real, teffi_slot *slot)
{
    teffi_worker *w = slot->worker;
    if (!w) {
        out_of_free(real, slot);
    } else if (w->state == TEFFI_WORKER_PARKED) {
        idle_del(w, TEFFI_WORKER_SPARE, false);
        to_spare(w);
        (void)let_go(w);
    } else if (w->state == TEFFI_WORKER_BLOCKED) {
        idle_del(w, TEFFI_WORKER_OUT, false);
        (void)let_go(w);
    }
}

bool teffi_slot_leave(teffi_worker *w)
{
    teffi_real *real = w->real;
    if (teffi_slot_in_use(real, w->slot))
        return false;
    if (w->searching)
        teffi_search_end(w);
    lock(real);
    if (real->stopping || teffi_slot_in_use(real, w->slot)) {
        unlock(real);
        return false;
    }
    teffi_group *next = teffi_slot_take_next(w->slot);
    teffi_slot *slot = let_go(w);
    to_spare(w);
    unlock(real);
    give(real, next);
    teffi_slot_clear(real, slot);
    (void)wait_for_slot(w);
    return true;
}

teffi_worker *teffi_slot_staff(teffi_real *real, teffi_slot *slot)
{
    out_of_free(real, slot);
    monitor_wake(real);
    atomic_fetch_add_explicit(&real->idle_word, SEARCHING, memory_order_seq_cst);
    return staff(real, slot);
}

void teffi_idle_stop(teffi_real *real)
{
    lock(real);
    real->stopping = true;
    atomic_fetch_or_explicit(&real->attention, TEFFI_ATTEND_STOP, memory_order_relaxed);
    for (unsigned i = 0; i < real->n_workers; i++)
        teffi_parker_wake(&real->workers[i]->parker);
    teffi_parker_wake(&real->visitor.parker);
    teffi_parker_wake(&real->monitor_parker);
    unlock(real);
}
