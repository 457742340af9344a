/* timer.c - the timer wheel.
 * Way:     set -> bucket by distance -> (wheel_advance_to_due_timer) moved to lower levels -> fire
 * Threads: timer->fire runs without the lock, so that it may set its timer again. The static
 *          functions are called with the lock held. */
#include "sched/queue/timer.h"

#include <stddef.h>
#include "base/bug.h"

enum { BITS = 6, MASK = TEFFI_WHEEL_BUCKETS - 1 };
enum {
    FIRE_MAX = 1024
}; /* timers in one call: a timer that sets itself again may be due at once */

void teffi_wheel_init(teffi_wheel *wheel, uint32_t id, uint64_t now_ns)
{
    *wheel = (teffi_wheel){.id = id, .tick = now_ns / TEFFI_TICK_NS};
    atomic_init(&wheel->next_due_ns, UINT64_MAX);
}

/* A level's round is one pass over its 64 buckets, from bucket 0 on. out: the lowest level at which
 * `now` and `tick` are in the same round; the top level if there is no such level. */
static unsigned wheel_level_of(uint64_t now, uint64_t tick)
{
    uint64_t differ = (now ^ tick) | MASK;
    unsigned level = (63u - (unsigned)__builtin_clzll(differ)) / BITS;
    return level < TEFFI_WHEEL_LEVELS ? level : TEFFI_WHEEL_LEVELS - 1;
}

static unsigned bucket_at(uint64_t tick, unsigned level)
{
    return (unsigned)(tick >> (BITS * level)) & MASK;
}

static uint64_t due_tick(uint64_t due_ns)
{
    return due_ns / TEFFI_TICK_NS + (due_ns % TEFFI_TICK_NS != 0); /* rounded up: never early */
}

/* A past tick becomes now. A tick that is more than 63 top-level buckets ahead of now becomes the
 * tick that is 63 such buckets ahead; its timer is reinserted when that bucket begins. */
static uint64_t clamp_tick(uint64_t now, uint64_t tick)
{
    uint64_t farthest = (uint64_t)MASK << (BITS * (TEFFI_WHEEL_LEVELS - 1));
    if (tick < now)
        return now;
    return tick - now > farthest ? now + farthest : tick;
}

/* out: the first tick of the bucket that holds `tick` at this level, or wheel->tick if that bucket
 * has already begun. */
static uint64_t bucket_begin_tick(const teffi_wheel *wheel, uint64_t tick, unsigned level)
{
    uint64_t begin = tick >> (BITS * level) << (BITS * level);
    return begin > wheel->tick ? begin : wheel->tick;
}

/* Put the timer into its bucket. out: the tick at which that bucket begins. */
static uint64_t wheel_insert(teffi_wheel *wheel, teffi_timer *timer)
{
    uint64_t tick = clamp_tick(wheel->tick, due_tick(timer->due_ns));
    unsigned level = wheel_level_of(wheel->tick, tick), b = bucket_at(tick, level);
    timer->bucket = level * TEFFI_WHEEL_BUCKETS + b;
    LIST_INSERT_HEAD(&wheel->bucket[timer->bucket], timer, link);
    wheel->filled[level] |= (uint64_t)1 << b;
    return bucket_begin_tick(wheel, tick, level);
}

static void wheel_remove(teffi_wheel *wheel, teffi_timer *timer)
{
    LIST_REMOVE(timer, link);
    if (LIST_EMPTY(&wheel->bucket[timer->bucket]))
        wheel->filled[timer->bucket / TEFFI_WHEEL_BUCKETS] &=
            ~((uint64_t)1 << (timer->bucket & MASK));
}

/* The lock is held, so a load and a store replace an atomic addition. */
static void wheel_count_add(teffi_wheel *wheel, uint32_t change)
{
    uint32_t n = atomic_load_explicit(&wheel->count, memory_order_relaxed);
    atomic_store_explicit(&wheel->count, n + change, memory_order_relaxed);
}

/* Rotate right. A shift by 64 would be undefined. */
static uint64_t rotate_bits_right(uint64_t bits, unsigned by)
{
    return by ? bits >> by | bits << (64 - by) : bits;
}

/* The first tick of the nearest filled bucket of any level; UINT64_MAX: no timer is set. */
static uint64_t wheel_next_filled_tick(const teffi_wheel *wheel)
{
    uint64_t best = UINT64_MAX;
    for (unsigned level = 0; level < TEFFI_WHEEL_LEVELS; level++) {
        if (!wheel->filled[level])
            continue;
        uint64_t at = wheel->tick >> (BITS * level);
        uint64_t ahead = (uint64_t)__builtin_ctzll(
            rotate_bits_right(wheel->filled[level], (unsigned)(at & MASK)));
        uint64_t tick = bucket_begin_tick(wheel, (at + ahead) << (BITS * level), level);
        if (tick < best)
            best = tick;
    }
    return best;
}

/* Set next_due_ns to the time at which `tick` begins. in: tick: UINT64_MAX if no timer is set. */
static void wheel_set_next_due(teffi_wheel *wheel, uint64_t tick)
{
    uint64_t due = tick > UINT64_MAX / TEFFI_TICK_NS ? UINT64_MAX : tick * TEFFI_TICK_NS;
    atomic_store_explicit(&wheel->next_due_ns, due, memory_order_seq_cst);
}

/* If `tick` begins before next_due_ns, set next_due_ns to that time. in: tick: the first tick of
 * the bucket into which a timer was inserted. out: true: next_due_ns was lowered. */
static bool wheel_lower_next_due(teffi_wheel *wheel, uint64_t tick)
{
    uint64_t before = atomic_load_explicit(&wheel->next_due_ns, memory_order_relaxed);
    bool earlier = tick < before / TEFFI_TICK_NS;
    if (earlier) /* rare; this store doubles the cost of teffi_wheel_set_timer */
        wheel_set_next_due(wheel, tick);
    return earlier;
}

bool teffi_wheel_set_timer(teffi_wheel *wheel, teffi_timer *timer, uint64_t due_ns)
{
    teffi_spinlock_lock(&wheel->lock);
    teffi_bug_if(atomic_load_explicit(&timer->where, memory_order_relaxed) != 0);
    timer->due_ns = due_ns;
    uint64_t tick = wheel_insert(wheel, timer);
    wheel_count_add(wheel, 1);
    /* release: pairs with cancel's acquire */
    atomic_store_explicit(&timer->where, wheel->id, memory_order_release);
    bool earlier = wheel_lower_next_due(wheel, tick);
    teffi_spinlock_unlock(&wheel->lock);
    return earlier;
}

/* Move a bucket's timers to the wheel `to`. The caller holds both wheels' locks, and updates both
 * counts and the old wheel's `filled`. out: true: `to` has a new earliest timer. */
static bool move_bucket(teffi_timers *bucket, teffi_wheel *to)
{
    bool earlier = false;
    for (teffi_timer *timer; (timer = LIST_FIRST(bucket));) {
        LIST_REMOVE(timer, link);
        earlier |= wheel_lower_next_due(to, wheel_insert(to, timer));
        /* release: pairs with cancel's acquire */
        atomic_store_explicit(&timer->where, to->id, memory_order_release);
    }
    return earlier;
}

bool teffi_wheel_move_timers(teffi_wheel *from, teffi_wheel *to)
{
    teffi_wheel *first = from->id < to->id ? from : to, *second = first == from ? to : from;
    bool earlier = false;
    teffi_spinlock_lock(&first->lock);
    teffi_spinlock_lock(&second->lock);
    for (unsigned level = 0; level < TEFFI_WHEEL_LEVELS; level++) {
        for (; from->filled[level]; from->filled[level] &= from->filled[level] - 1) {
            unsigned b = (unsigned)__builtin_ctzll(from->filled[level]);
            earlier |= move_bucket(&from->bucket[level * TEFFI_WHEEL_BUCKETS + b], to);
        }
    }
    uint32_t moved = atomic_load_explicit(&from->count, memory_order_relaxed);
    wheel_count_add(to, moved);
    wheel_count_add(from, 0 - moved);
    wheel_set_next_due(from, wheel_next_filled_tick(from));
    teffi_spinlock_unlock(&second->lock);
    teffi_spinlock_unlock(&first->lock);
    return earlier;
}

bool teffi_wheel_cancel_timer(teffi_wheel *wheels, size_t stride, teffi_timer *timer)
{
    for (;;) {
        /* acquire: pairs with the releases of set, move and fire */
        uint32_t id = atomic_load_explicit(&timer->where, memory_order_acquire);
        if (!id)
            return false;
        teffi_wheel *wheel = (teffi_wheel *)(void *)((char *)wheels + stride * (id - 1));
        teffi_spinlock_lock(&wheel->lock);
        bool here = atomic_load_explicit(&timer->where, memory_order_relaxed) == id;
        if (here) { /* else it was fired, or moved to another wheel, meanwhile */
            wheel_remove(wheel, timer);
            wheel_count_add(wheel, (uint32_t)-1);
            atomic_store_explicit(&timer->where, 0, memory_order_relaxed);
        }
        teffi_spinlock_unlock(&wheel->lock);
        if (here)
            return true;
    }
}

/* After wheel->tick has advanced: reinsert the timers of each higher-level bucket that begins at
 * this tick. They go to lower levels, except those that clamp_tick leaves in the top level. The
 * caller calls wheel_set_next_due. */
static void wheel_cascade(teffi_wheel *wheel)
{
    for (unsigned level = TEFFI_WHEEL_LEVELS - 1; level > 0; level--) {
        if (wheel->tick & (((uint64_t)1 << (BITS * level)) - 1))
            continue;
        unsigned b = bucket_at(wheel->tick, level);
        teffi_timers *bucket = &wheel->bucket[level * TEFFI_WHEEL_BUCKETS + b];
        teffi_timer *timer = LIST_FIRST(bucket);
        LIST_INIT(bucket);
        wheel->filled[level] &= ~((uint64_t)1 << b);
        for (teffi_timer *next; timer; timer = next) {
            next = LIST_NEXT(timer, link);
            (void)wheel_insert(wheel, timer);
        }
    }
}

/* Advance wheel->tick to the first due timer. out: that timer; NULL: no timer is due at tick
 * `now`. */
static teffi_timer *wheel_advance_to_due_timer(teffi_wheel *wheel, uint64_t now)
{
    for (;;) {
        teffi_timer *timer = LIST_FIRST(&wheel->bucket[wheel->tick & MASK]);
        if (timer && due_tick(timer->due_ns) <= now)
            return timer;
        /* Either that bucket is empty, or `now` is before wheel->tick, because another thread has
         * advanced the wheel to a later time. In the latter case `now` is before `next`, too. */
        uint64_t next = wheel_next_filled_tick(wheel);
        if (next > now)
            return NULL;
        wheel->tick = next;
        wheel_cascade(wheel);
    }
}

void teffi_wheel_fire_due_timers(teffi_wheel *wheel, uint64_t now_ns)
{
    for (unsigned fired = 0; fired < FIRE_MAX && now_ns >= teffi_wheel_next_due(wheel); fired++) {
        teffi_spinlock_lock(&wheel->lock);
        teffi_timer *timer = wheel_advance_to_due_timer(wheel, now_ns / TEFFI_TICK_NS);
        if (timer) {
            wheel_remove(wheel, timer);
            wheel_count_add(wheel, (uint32_t)-1);
            /* release: pairs with cancel's acquire. After this store the timer may be set on
             * another wheel. */
            atomic_store_explicit(&timer->where, 0, memory_order_release);
        }
        wheel_set_next_due(wheel, wheel_next_filled_tick(wheel));
        teffi_spinlock_unlock(&wheel->lock);
        if (!timer)
            break;
        timer->fire(timer);
    }
}
