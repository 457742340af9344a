/* group.c - work-item group: one word for state and queue, drained in batches.
 * Way:     push -> the word -> (worker) take all, oldest first -> ops->handle
 * States:  see group.h; the low three bits of the word, above them the newest item's address
 * Threads: the word is atomic; head belongs to whoever moved the state to RUNNING
 * Source:  Orleans WorkItemGroup; tests/model/group.pml */
#include "sched/group.h"

#include <assert.h>
#include <stddef.h>
#include "base/bug.h"
#include "base/queue.h"
#include "platform/platform.h"
#include "sched/exec.h"

enum {
    IDLE = TEFFI_GROUP_IDLE,
    READY = TEFFI_GROUP_READY,
    BLOCKED = TEFFI_GROUP_BLOCKED,
    COMPLETE = TEFFI_GROUP_COMPLETE,
    STATE_MASK = 7
};

enum { REPOLLS_MAX = 5 };      /* a chatty pair must not keep others off its worker for ever */
enum { CLOCK_EVERY_MAX = 16 }; /* items between two looks at the clock (about 25 ns each) */

static_assert(_Alignof(teffi_item) > STATE_MASK, "the state lives in an item's low address bits");

static unsigned state_of(uintptr_t word)
{
    return (unsigned)(word & STATE_MASK);
}

static teffi_item *items_of(uintptr_t word)
{
    return (teffi_item *)(word & ~(uintptr_t)STATE_MASK);
}

static bool rests(uintptr_t word)
{
    return state_of(word) == IDLE || state_of(word) == BLOCKED;
}

void teffi_group_init(teffi_group *group, struct teffi_exec *exec, const teffi_group_ops *ops)
{
    atomic_init(&group->word, IDLE);
    group->head = NULL;
    group->ops = ops;
    group->exec = exec;
    group->next = NULL;
    group->used = 0;
    atomic_init(&group->priority, 0);
    group->evicted = false;
    atomic_init(&group->running, false);
}

bool teffi_group_push(teffi_group *group, teffi_item *item)
{
    uintptr_t word = atomic_load_explicit(&group->word, memory_order_relaxed);
    uintptr_t want;
    item->at_ms = teffi_warn_now(&group->exec->warn);
    do {
        if (state_of(word) == COMPLETE)
            return false;
        item->next = items_of(word);
        want = rests(word) ? READY : (uintptr_t)item | state_of(word);
        /* release: the item's content, pairs with take_all's acquire; acquire: from IDLE on the
         * pusher has the group, its head and link, pairs with to_idle's release;
         * seq_cst: a pusher may look for a handler that sleeps inside its turn, which has
         * announced that before it looks for items: pairs with teffi_group_drain */
    } while (!atomic_compare_exchange_weak_explicit(&group->word, &word, want, memory_order_seq_cst,
                                                    memory_order_relaxed));
    if (rests(word)) {
        group->head = item; /* a resting word holds no items, so item->next is NULL */
        group->exec->ops->ready(group->exec, group);
    }
    return true;
}

void teffi_group_init_ready(teffi_group *group, teffi_item *item)
{
    item->next = NULL;
    group->head = item;
    /* relaxed: whoever runs it gets it through a queue */
    atomic_store_explicit(&group->word, READY, memory_order_relaxed);
}

void teffi_group_init_complete(teffi_group *group)
{
    atomic_store_explicit(&group->word, COMPLETE, memory_order_relaxed);
}

/* Swap the word for one without items. acquire: pairs with push's release of each item and with
 * the release of the run before; release: this run's effects, for who reads the new state. */
static inline teffi_item *take_all(teffi_group *group, unsigned new_state)
{
    uintptr_t word =
        atomic_exchange_explicit(&group->word, (uintptr_t)new_state, memory_order_acq_rel);
    teffi_item *newest = items_of(word), *oldest = NULL;
    uint32_t n = 0;
    for (; newest; n++) {
        teffi_item *older = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = older;
    }
    uint32_t warn = group->exec->warn.queue_warn; /* 0: an executor that warns of nothing */
    if (n > warn && warn)
        teffi_warn_long(group, n);
    return oldest;
}

/* relaxed: it is only looked at */
static inline void set_running(teffi_group *group, bool running)
{
    atomic_store_explicit(&group->running, running, memory_order_relaxed);
}

static inline bool start(teffi_group *group)
{
    uintptr_t word = atomic_load_explicit(&group->word, memory_order_acquire);
    if (state_of(word) == COMPLETE)
        return group->head != NULL;
    if (state_of(word) != READY)
        return false;
    /* Only one run queue holds a READY group, so nobody else moves it on from here. The item that
     * made it READY, or what is left of the last batch, goes first; what came after it stays in the
     * word until then. */
    set_running(group, true);
    if (!group->head)
        group->head = take_all(group, READY);
    return true;
}

static inline teffi_item *pop(teffi_group *group)
{
    teffi_item *item = group->head;
    group->head = item->next;
    item->next = NULL;
    return item;
}

static void end(teffi_group *group)
{
    if (group->ops->ended)
        group->ops->ended(group);
}

static inline bool requeue(teffi_group *group)
{
    set_running(group, false);
    return true;
}

/* RUNNING -> IDLE or BLOCKED when nothing is queued; false: an item is there. */
static inline bool to_idle(teffi_group *group)
{
    uintptr_t word = READY;
    uintptr_t rest = group->ops->blocked && group->ops->blocked(group) ? BLOCKED : IDLE;
    set_running(group, false);
    /* release: this run's effects, pairs with the acquire of the next push or claim */
    if (atomic_compare_exchange_strong_explicit(&group->word, &word, rest, memory_order_release,
                                                memory_order_relaxed))
        return true;
    set_running(group, true);
    return false;
}

static inline bool completed(const teffi_group *group)
{
    return state_of(atomic_load_explicit(&group->word, memory_order_relaxed)) == COMPLETE;
}

/* head is empty: what next? true: go on with a fresh batch in head. *again: the run's result. */
static inline bool refill(teffi_group *group, unsigned *repolls, bool *again, teffi_meter *meter)
{
    if (meter)
        meter->charge(meter, group);
    if (to_idle(group))
        return false;
    if (completed(group)) {
        end(group);
        return false;
    }
    if ((*repolls)++ == REPOLLS_MAX) {
        *again = requeue(group);
        return false;
    }
    group->head = take_all(group, READY);
    return true;
}

/* Both limits are checked between two items only. The executor's coarse clock is looked at after 2,
 * 4, 8, 16 items, then every 16, and the real one (40 ns) when that has gone on or is not known: a
 * run overshoots its quantum by at most what it had used when it last looked, and a tick. */
static inline bool budget_used(teffi_group *group, unsigned done, unsigned items_max,
                               uint64_t until_ns, unsigned *look, uint32_t *coarse)
{
    if (done >= items_max)
        return true;
    if (!until_ns || done < *look)
        return false;
    *look += *look < CLOCK_EVERY_MAX ? *look : CLOCK_EVERY_MAX;
    uint32_t now = teffi_warn_now(&group->exec->warn);
    if (now && now == *coarse)
        return false;
    *coarse = now;
    return teffi_now(group->exec->platform) >= until_ns;
}

void teffi_group_yield(teffi_group *group, teffi_gave_way *gave)
{
    gave->item.kind = TEFFI_ITEM_GAVE_WAY;
    gave->item.next = group->head;
    group->head = &gave->item;
}

/* out: false: it gave way again. */
static inline bool go_on(teffi_group *group)
{
    group->ops->resume(group, teffi_container(pop(group), teffi_gave_way, item)->fiber);
    return !teffi_group_yielded(group);
}

static inline bool charged_requeue(teffi_group *group, teffi_meter *meter)
{
    if (meter)
        meter->charge(meter, group);
    return requeue(group);
}

/* To the tail of the global queue, or left alone until teffi_group_go_on: then it stays RUNNING, so
 * that a push only appends. */
static inline bool gave_way(teffi_group *group, teffi_meter *meter)
{
    return teffi_container(group->head, teffi_gave_way, item)->stays
               ? false
               : charged_requeue(group, meter);
}

void teffi_group_go_on(teffi_group *group)
{
    (void)requeue(group);
    group->exec->ops->ready(group->exec, group);
}

static inline void handle(teffi_group *group, teffi_item *item)
{
    teffi_warn_item(group, item);
    group->ops->handle(group, item);
}

/* Inlined, so that the plain run has nothing of the rest. out: as teffi_group_run_counted. */
static inline __attribute__((always_inline)) unsigned
run(teffi_group *group, unsigned items_max, uint64_t until_ns, teffi_meter *meter, bool evicted)
{
    unsigned done = 0, repolls = 0, look = 2;
    uint32_t coarse = teffi_warn_now(&group->exec->warn);
    bool again = false;
    if (!start(group))
        return false;
    if (teffi_group_yielded(group) && !go_on(group))
        return gave_way(group, meter);
    while (group->head || refill(group, &repolls, &again, meter)) {
        if (done && budget_used(group, done, items_max, until_ns, &look, &coarse))
            return done << 1 | charged_requeue(group, meter);
        teffi_item *item = pop(group);
        if (!evicted || !group->ops->evict(group, item))
            handle(group, item);
        done++;
        if (teffi_group_yielded(group))
            return done << 1 | gave_way(group, meter);
    }
    return done << 1 | again;
}

bool teffi_group_run(teffi_group *group, unsigned items_max, uint64_t until_ns)
{
    return run(group, items_max, until_ns, NULL, false) & 1;
}

unsigned teffi_group_run_counted(teffi_group *group, unsigned items_max, uint64_t until_ns)
{
    return run(group, items_max, until_ns, NULL, false);
}

bool teffi_group_run_with(teffi_group *group, unsigned items_max, uint64_t until_ns,
                          teffi_meter *meter, bool evicted)
{
    return run(group, items_max, until_ns, meter, evicted) & 1;
}

bool teffi_group_claim(teffi_group *group)
{
    uintptr_t word = IDLE;
    /* acquire: pairs with the release of the run or claim before */
    if (!atomic_compare_exchange_strong_explicit(&group->word, &word, READY, memory_order_acquire,
                                                 memory_order_relaxed))
        return false;
    set_running(group, true);
    return true;
}

void teffi_group_release(teffi_group *group)
{
    if (to_idle(group))
        return;
    if (completed(group) && !group->head) {
        end(group);
        return;
    }
    (void)requeue(group);
    group->exec->ops->ready(group->exec, group);
}

bool teffi_group_left(teffi_group *group)
{
    return gave_way(group, NULL);
}

void teffi_group_complete(teffi_group *group)
{
    teffi_bug_if(state_of(atomic_load_explicit(&group->word, memory_order_relaxed)) != READY ||
                 !atomic_load_explicit(&group->running, memory_order_relaxed));
    teffi_item *rest = take_all(group, COMPLETE);
    teffi_item **at = &group->head;
    while (*at)
        at = &(*at)->next;
    *at = rest;
}

teffi_item *teffi_group_drain(teffi_group *group)
{
    if (teffi_group_yielded(group)) /* a turn that will never go on */
        (void)pop(group);
    if (!group->head) {
        /* seq_cst: see teffi_group_push. The state stays: only the caller could change it. */
        uintptr_t word = atomic_load_explicit(&group->word, memory_order_seq_cst);
        if (!items_of(word))
            return NULL;
        group->head = take_all(group, state_of(word));
    }
    return group->head ? pop(group) : NULL;
}

void teffi_group_reuse(teffi_group *group)
{
    set_running(group, false);
    /* release: the next life's set-up sees the end of the last one's */
    atomic_store_explicit(&group->word, IDLE, memory_order_release);
}

const char *teffi_group_state_name(teffi_group_state state)
{
    static const char *const names[] = {"IDLE", "READY", "RUNNING", "BLOCKED", "COMPLETE"};
    return names[state];
}

teffi_group_state teffi_group_state_of(teffi_group *group)
{
    /* acquire: pairs with the releases of whoever brought the group into this state */
    unsigned state = state_of(atomic_load_explicit(&group->word, memory_order_acquire));
    bool running = atomic_load_explicit(&group->running, memory_order_relaxed);
    return state == READY && running ? TEFFI_GROUP_RUNNING : (teffi_group_state)state;
}
