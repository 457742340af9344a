/* group.c - work-item group: one word for state and queue, drained in batches.
 * Way:     push -> the word -> (worker) take all, oldest first -> ops->handle
 * States:  see group.h; the low three bits of the word, above them the newest item's address
 * Source:  tests/model/group.pml */
#include "group/group.h"

#include <assert.h>
#include "base/bug.h"
#include "base/queue.h"
#include "group/exec.h"

enum {
    IDLE = TEFFI_GROUP_IDLE,
    READY = TEFFI_GROUP_READY,
    BLOCKED = TEFFI_GROUP_BLOCKED,
    COMPLETE = TEFFI_GROUP_COMPLETE,
    STATE_MASK = 7
};

enum { CLOCK_EVERY_MAX = 16 }; /* items between two loads of the coarse clock, at most */

static_assert(_Alignof(teffi_item) > STATE_MASK, "the state lives in an item's low address bits");

static unsigned word_state(uintptr_t word)
{
    return (unsigned)(word & STATE_MASK);
}

static teffi_item *word_items(uintptr_t word)
{
    return (teffi_item *)(word & ~(uintptr_t)STATE_MASK);
}

/* Is the group IDLE or BLOCKED? In these states the word holds no items. */
static bool word_is_idle_or_blocked(uintptr_t word)
{
    return word == IDLE || word == BLOCKED;
}

void teffi_group_init(teffi_group *group, struct teffi_exec *exec, const teffi_group_ops *ops)
{
    atomic_init(&group->word, IDLE);
    group->head = NULL;
    group->ops = ops;
    group->exec = exec;
    group->used = 0;
    atomic_init(&group->priority, 0);
    group->evicted = group->shares = group->blocked = false;
    group->system = false;
    atomic_init(&group->running, false);
}

/* Try once to change the group's word from *word to want; for teffi_group_push. out: false: *word
 * is now the present word, and the caller tries again.
 * The CAS is a release, because it publishes the item; pairs with group_take_all_and_set_state. It
 * is an acquire, because a pusher that makes the group READY owns head; pairs with
 * group_try_become_idle_or_blocked. It is seq_cst, because the pusher may afterwards load a flag
 * that says that the handler sleeps. The handler sets this flag before teffi_group_take_item loads
 * the word. So either the handler finds the item, or the pusher finds the flag set. */
static inline bool try_replace_word(teffi_group *group, uintptr_t *word, uintptr_t want)
{
    return atomic_compare_exchange_weak_explicit(&group->word, word, want, memory_order_seq_cst,
                                                 memory_order_relaxed);
}

bool teffi_group_push(teffi_group *group, teffi_item *item)
{
    uintptr_t word = atomic_load_explicit(&group->word, memory_order_relaxed);
    item->at_ms = teffi_coarse_ms(group->exec);
    for (;;) {
        if (word_is_idle_or_blocked(word)) {
            if (try_replace_word(group, &word, READY))
                break;
        } else if (word_state(word) == COMPLETE) {
            return false;
        } else {
            item->next = word_items(word);
            if (try_replace_word(group, &word, (uintptr_t)item | word_state(word)))
                return true;
        }
    }
    /* the group was IDLE or BLOCKED: this thread owns it now, until the executor has queued it */
    item->next = NULL;
    group->head = item;
    group->exec->ops->ready(group->exec, group);
    return true;
}

void teffi_group_set_ready_with_item(teffi_group *group, teffi_item *item)
{
    item->next = NULL;
    group->head = item;
    /* relaxed: the run queue orders this for the worker */
    atomic_store_explicit(&group->word, READY, memory_order_relaxed);
}

void teffi_group_set_initially_complete(teffi_group *group)
{
    atomic_store_explicit(&group->word, COMPLETE, memory_order_relaxed);
}

/* Take all items off the word, and set its state. Log a warning if there are more items than the
 * limit. out: the items, oldest first. acquire: pairs with try_replace_word and with the release of
 * the previous run. release: makes this run's effects visible to readers of the new state. */
static inline teffi_item *group_take_all_and_set_state(teffi_group *group, unsigned new_state)
{
    uintptr_t word =
        atomic_exchange_explicit(&group->word, (uintptr_t)new_state, memory_order_acq_rel);
    teffi_item *newest = word_items(word), *oldest = NULL;
    uint32_t n = 0;
    for (; newest; n++) {
        teffi_item *older = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = older;
    }
    uint32_t warn = group->exec->warn.queue_warn; /* 0: exec->warn is not initialized */
    if (n > warn && warn)
        teffi_warn_long_queue(group, n);
    return oldest;
}

/* relaxed: the flag is for reports only */
static inline void set_running(teffi_group *group, bool running)
{
    atomic_store_explicit(&group->running, running, memory_order_relaxed);
}

/* Move all pushed items from the group's word to head. Not inlined, because most runs begin with an
 * item in head. */
static __attribute__((noinline)) void take_first_batch(teffi_group *group)
{
    group->head = group_take_all_and_set_state(group, READY);
}

/* Begin a run of the group, which the caller owns. A COMPLETE group is run too, if it has items
 * left. out: false: there is nothing to handle. */
static inline bool group_begin_run(teffi_group *group)
{
    /* acquire: this run sees the effects of earlier runs; pairs with
     * group_try_become_idle_or_blocked */
    uintptr_t word = atomic_load_explicit(&group->word, memory_order_acquire);
    if (word_state(word) != READY)
        return word_state(word) == COMPLETE && group->head;
    /* If head is not empty, it has the item that made the group READY, or the rest of the last
     * batch. They come before the items of the word. */
    set_running(group, true);
    if (!group->head)
        take_first_batch(group);
    return true;
}

static inline teffi_item *group_pop(teffi_group *group)
{
    teffi_item *item = group->head;
    group->head = item->next;
    item->next = NULL;
    return item;
}

static void call_ops_ended(teffi_group *group)
{
    if (group->ops->ended)
        group->ops->ended(group);
}

/* RUNNING -> READY. out: always true, so that a caller can return it as "the group is READY". */
static inline bool group_stop_running(teffi_group *group)
{
    set_running(group, false);
    return true;
}

/* Try to change RUNNING to IDLE, or to BLOCKED if group->blocked is set. in: head is empty, or the
 * group is COMPLETE. out: false: the state has not changed, since an item was pushed meanwhile, or
 * the group is COMPLETE. */
static inline bool group_try_become_idle_or_blocked(teffi_group *group)
{
    uintptr_t word = READY;
    uintptr_t rest = group->blocked ? BLOCKED : IDLE;
    set_running(group, false); /* before the CAS; after it, another thread may own the group */
    /* release: publishes this run's effects; pairs with the acquire of the next push or claim */
    if (atomic_compare_exchange_strong_explicit(&group->word, &word, rest, memory_order_release,
                                                memory_order_relaxed))
        return true;
    set_running(group, true);
    return false;
}

static inline bool is_complete(const teffi_group *group)
{
    return word_state(atomic_load_explicit(&group->word, memory_order_relaxed)) == COMPLETE;
}

/* A run of a group: what it may still do, and how it ends. */
typedef struct group_run {
    unsigned items_max;
    uint64_t until_ns;
    unsigned done;    /* items handled */
    unsigned repolls; /* batches that group_take_next_batch_or_end has taken */
    unsigned look;    /* the value of done at the next look at the coarse clock */
    uint32_t coarse;  /* the coarse clock at the last look */
    bool again;       /* the group is still READY */
    teffi_meter *meter;
    bool evicted;
} group_run;

/* Charge the group for the run's time since the last charge, if the run has a meter. */
static inline void group_charge(teffi_group *group, const group_run *run)
{
    if (run->meter)
        run->meter->charge(run->meter, group);
}

/* Take the next batch, after group_try_become_idle_or_blocked has failed. out: false: the run ends,
 * for one of two reasons. The group is COMPLETE and all items were handled: ops->ended was called,
 * and the group may be gone. Or the run has taken as many batches as it may: the group is READY. */
static inline bool group_take_next_batch_or_end(teffi_group *group, group_run *run)
{
    if (is_complete(group)) {
        call_ops_ended(group);
        return false;
    }
    uint32_t repolls_max = group->exec->repolls_max;
    if (run->repolls++ == (repolls_max ? repolls_max : TEFFI_REPOLLS_MAX)) {
        run->again = group_stop_running(group);
        return false;
    }
    group->head = group_take_all_and_set_state(group, READY);
    return true;
}

/* Called when head is empty: charge the run, then make the group IDLE or BLOCKED, or take the items
 * that were pushed meanwhile. out: false: the run ends. */
static inline bool group_become_idle_or_refill(teffi_group *group, group_run *run)
{
    group_charge(group, run);
    return !group_try_become_idle_or_blocked(group) && group_take_next_batch_or_end(group, run);
}

/* Has the run handled items_max items, or used its quantum? This function reads the coarse clock
 * only after 2, 4, 8 and 16 items, and then after every 16 items. It reads the platform's clock,
 * which takes 40 ns, only if the coarse clock has advanced or is not known. Between two checks the
 * number of handled items at most doubles: so a run of equally long items, each shorter than the
 * quantum, takes about two quanta at most. */
static inline bool run_is_over_budget(teffi_group *group, group_run *run)
{
    if (run->done >= run->items_max)
        return true;
    if (!run->until_ns || run->done < run->look)
        return false;
    run->look += run->look < CLOCK_EVERY_MAX ? run->look : CLOCK_EVERY_MAX;
    uint32_t now = teffi_coarse_ms(group->exec);
    if (now && now == run->coarse)
        return false;
    run->coarse = now;
    return teffi_now(group->exec->platform) >= run->until_ns;
}

void teffi_group_prepend_yielded_turn(teffi_group *group, teffi_yielded_turn *turn)
{
    turn->item.kind = TEFFI_ITEM_YIELDED;
    turn->item.next = group->head;
    group->head = &turn->item;
}

/* Resume the turn that has yielded, which is the group's first item. */
static inline void group_resume_yielded_turn(teffi_group *group)
{
    group->ops->resume(group, teffi_container(group_pop(group), teffi_yielded_turn, item)->fiber);
}

/* Called when the turn of a run, or of a claim, has yielded; that turn is the group's first item.
 * Make the group READY, unless the turn's `stays` is set. out: true: the group is READY. false: it
 * stays RUNNING until teffi_group_make_ready. */
static inline bool group_stop_running_unless_turn_stays(teffi_group *group)
{
    return !teffi_container(group->head, teffi_yielded_turn, item)->stays &&
           group_stop_running(group);
}

void teffi_group_make_ready(teffi_group *group)
{
    (void)group_stop_running(group); /* always true */
    group->exec->ops->ready(group->exec, group);
}

static inline void group_handle_item(teffi_group *group, teffi_item *item)
{
    teffi_exec_warn_if_item_late(group, item);
    group->ops->handle(group, item);
}

/* Handle the next item; in an evicted run, only if ops->evict does not drop it. This function and
 * group_drain_run are always inlined. So do_rest_of_run contains no code for meters and for
 * evicted runs: its own run has no meter and is not evicted. */
static inline __attribute__((always_inline)) void group_handle_or_drop_next(teffi_group *group,
                                                                            group_run *run)
{
    teffi_item *item = group_pop(group);
    if (!run->evicted || !group->ops->evict(group, item))
        group_handle_item(group, item);
    run->done++;
}

/* Handle items until none is left, the budget is used, or a turn yields. out: as
 * teffi_group_run_and_count. */
static inline __attribute__((always_inline)) unsigned group_drain_run(teffi_group *group,
                                                                      group_run *run)
{
    for (;; group_handle_or_drop_next(group, run)) {
        if (teffi_group_has_yielded_turn(group)) {
            group_charge(group, run);
            return run->done << 1 | group_stop_running_unless_turn_stays(group);
        }
        if (!group->head && !group_become_idle_or_refill(group, run))
            return run->done << 1 | run->again;
        if (run->done && run_is_over_budget(group, run)) {
            group_charge(group, run);
            return run->done << 1 | group_stop_running(group);
        }
    }
}

/* Do a whole run. If the group's turn has yielded, resume it first. out: as
 * teffi_group_run_and_count. */
static __attribute__((noinline)) unsigned do_whole_run(teffi_group *group, unsigned items_max,
                                                       uint64_t until_ns, teffi_meter *meter,
                                                       bool evicted)
{
    group_run run = {.items_max = items_max,
                     .until_ns = until_ns,
                     .look = 2,
                     .coarse = teffi_coarse_ms(group->exec),
                     .meter = meter,
                     .evicted = evicted};
    if (!group_begin_run(group))
        return 0;
    if (teffi_group_has_yielded_turn(group))
        group_resume_yielded_turn(group);
    return group_drain_run(group, &run);
}

/* Do the rest of a run, after its first item. The run has no meter and is not evicted. in: if head
 * is empty, group_try_become_idle_or_blocked has failed. out: as teffi_group_run_and_count. */
static __attribute__((noinline)) unsigned do_rest_of_run(teffi_group *group, unsigned items_max,
                                                         uint64_t until_ns)
{
    group_run run = {.items_max = items_max,
                     .until_ns = until_ns,
                     .done = 1,
                     .look = 2,
                     .coarse = teffi_coarse_ms(group->exec)};
    if (!group->head && !group_take_next_batch_or_end(group, &run))
        return run.done << 1 | run.again;
    return group_drain_run(group, &run);
}

/* out: twice the number of items handled, plus 1 if the caller must queue the group again. Most
 * runs handle one item, and then the group is IDLE or BLOCKED. The code for other runs is in
 * functions that are not inlined, so that this function pushes few registers onto the stack. */
unsigned teffi_group_run_and_count(teffi_group *group, unsigned items_max, uint64_t until_ns)
{
    if (!group_begin_run(group))
        return 0;
    if (teffi_group_has_yielded_turn(group))
        return do_whole_run(group, items_max, until_ns, NULL, false);
    group_handle_item(group, group_pop(group));
    if (!group->head && group_try_become_idle_or_blocked(group))
        return 1 << 1; /* one item; the group is not READY */
    return do_rest_of_run(group, items_max, until_ns);
}

unsigned teffi_group_run_with_meter(teffi_group *group, unsigned items_max, uint64_t until_ns,
                                    teffi_meter *meter, bool evicted)
{
    return do_whole_run(group, items_max, until_ns, meter, evicted);
}

bool teffi_group_claim(teffi_group *group)
{
    uintptr_t word = IDLE;
    /* acquire: pairs with the release of the previous run or claim */
    if (!atomic_compare_exchange_strong_explicit(&group->word, &word, READY, memory_order_acquire,
                                                 memory_order_relaxed))
        return false;
    set_running(group, true);
    return true;
}

void teffi_group_release_claim(teffi_group *group)
{
    if (group_try_become_idle_or_blocked(group))
        return;
    if (is_complete(group) && !group->head) {
        call_ops_ended(group);
        return;
    }
    /* Items were pushed meanwhile; those of a COMPLETE group are handled as well. */
    (void)group_stop_running(group);
    group->exec->ops->ready(group->exec, group);
}

bool teffi_group_release_yielded_claim(teffi_group *group)
{
    return group_stop_running_unless_turn_stays(group);
}

void teffi_group_complete(teffi_group *group)
{
    teffi_bug_if(word_state(atomic_load_explicit(&group->word, memory_order_relaxed)) != READY ||
                 !atomic_load_explicit(&group->running, memory_order_relaxed));
    teffi_item *pushed = group_take_all_and_set_state(group, COMPLETE);
    teffi_item **at = &group->head;
    while (*at)
        at = &(*at)->next;
    *at = pushed;
}

teffi_item *teffi_group_take_item(teffi_group *group)
{
    if (teffi_group_has_yielded_turn(group)) /* drop it: the turn will not resume any more */
        (void)group_pop(group);
    if (!group->head) {
        /* seq_cst: this load comes after the caller's store to a flag that says that the handler
         * sleeps, see try_replace_word. The state cannot change, since the caller owns the
         * group. */
        uintptr_t word = atomic_load_explicit(&group->word, memory_order_seq_cst);
        if (!word_items(word))
            return NULL;
        group->head = group_take_all_and_set_state(group, word_state(word));
    }
    return group->head ? group_pop(group) : NULL;
}

void teffi_group_reuse(teffi_group *group)
{
    set_running(group, false);
    /* release: publishes all earlier stores; pairs with the acquire of the first push or claim */
    atomic_store_explicit(&group->word, IDLE, memory_order_release);
}

const char *teffi_group_state_name(teffi_group_state state)
{
    static const char *const names[] = {"IDLE", "READY", "RUNNING", "BLOCKED", "COMPLETE"};
    return names[state];
}

teffi_group_state teffi_group_state_of(teffi_group *group)
{
    /* acquire: pairs with the release of each change of state */
    unsigned state = word_state(atomic_load_explicit(&group->word, memory_order_acquire));
    bool running = atomic_load_explicit(&group->running, memory_order_relaxed);
    return state == READY && running ? TEFFI_GROUP_RUNNING : (teffi_group_state)state;
}
