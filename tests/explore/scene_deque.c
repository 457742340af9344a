/* scene_deque.c - an owner that pushes and pops, two or three thieves: every item is taken once.
 * Beside model/deque.pml: the code itself, with growth, index wrap and stores that are seen late.
 * Way:     explore_main -> [scene] -> explored deque.c
 * Threads: as explore.h. */
#include <string.h>
#include "base/bug.h"
#include "explore.h"
#include "sched/queue/deque.h"

enum { ITEMS_MAX = 512, THIEVES_MAX = 3 };

typedef struct thief {
    unsigned tries, max;
} thief;

static teffi_deque deque;
static uint8_t taken[ITEMS_MAX]; /* by item, from 1 */
static uintptr_t made;
static unsigned owner_steps;
static thief thieves[THIEVES_MAX];

static void take(void *item)
{
    uintptr_t i = (uintptr_t)item;
    if (i == 0 || i > made)
        explore_fail("item %zu was never pushed (%zu were)", (size_t)i, (size_t)made);
    explore_note("  item %zu", (size_t)i);
    if (taken[i]++)
        explore_fail("item %zu is taken twice", (size_t)i);
}

static void push(void)
{
    if (made + 1 < ITEMS_MAX && teffi_deque_push(&deque, (void *)(made + 1)))
        made++;
}

static void steal(unsigned max)
{
    void *out[TEFFI_STEAL_MAX];
    unsigned n = teffi_deque_steal(&deque, out, max);
    for (unsigned i = 0; i < n; i++) {
        if (i && (uintptr_t)out[i] <= (uintptr_t)out[i - 1])
            explore_fail("a batch is not oldest first");
        take(out[i]);
    }
}

static void pop(void)
{
    void *item = teffi_deque_pop(&deque);
    if (item)
        take(item);
}

static void own(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < owner_steps; i++) {
        uint32_t what = explore_draw(16);
        if (what == 0)
            steal(1);
        else if (what < 6)
            push();
        else
            pop();
    }
}

static void thieve(void *arg)
{
    const thief *t = arg;
    for (unsigned i = 0; i < t->tries; i++)
        steal(t->max);
}

/* How many lie there at the beginning: none, around the zone in which pops need the CAS, twice
 * that, around the ring's first size. */
static unsigned prefill(void)
{
    static const unsigned from[] = {0, 0, 1, 1, 2, 3, 30, 34, 62, 66};
    uint32_t draw = explore_draw(64);
    if (draw == 0)
        return 252 + explore_draw(6);
    return from[draw % 10] + explore_draw(3);
}

static void set_up(void)
{
    static const uint32_t begins[] = {0, 0, UINT32_MAX - 1, UINT32_MAX / 2 - 1};
    teffi_bug_if(!teffi_deque_init(&deque));
    /* Indices and tags wrap; a deque may stand anywhere. */
    uint32_t begin = begins[explore_draw(4)], tag = begins[explore_draw(4)];
    atomic_store_explicit(&deque.bottom, begin, memory_order_relaxed);
    atomic_store_explicit(&deque.top, (uint64_t)begin << 32 | tag, memory_order_relaxed);
    memset(taken, 0, sizeof taken);
    made = 0;
    for (unsigned n = prefill(); n > 0; n--)
        push();
}

static void play(void)
{
    static const unsigned batches[] = {1, 2, TEFFI_STEAL_MAX, TEFFI_STEAL_MAX};
    unsigned n = 2 + explore_draw(2);
    set_up();
    owner_steps = 1 + explore_draw(8);
    explore_start("owner", own, NULL);
    for (unsigned i = 0; i < n; i++) {
        thieves[i].tries = 1 + explore_draw(6);
        thieves[i].max = batches[explore_draw(4)];
        explore_start(i ? i == 1 ? "thief 2" : "thief 3" : "thief 1", thieve, &thieves[i]);
    }
    explore_run();
    for (unsigned left = teffi_deque_count(&deque); left > 0; left--) {
        void *item = teffi_deque_pop(&deque);
        if (!item)
            explore_fail("%u items are counted and not there", left);
        take(item);
    }
    for (uintptr_t i = 1; i <= made; i++)
        if (!taken[i])
            explore_fail("item %zu is lost", (size_t)i);
    teffi_deque_fini(&deque);
}

const explore_scene explore_deque = {"deque", 128, play};
