/* explore.c - which virtual thread runs next, as the seed says.
 * Way:     explore_run <-> (fibers) a thread -> explore_point -> [choose] -> another thread
 * Threads: one; see explore.h. */
#include "explore.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/bug.h"
#include "base/hash.h"
#include "fiber/fiber.h"

enum { STEP_NS = 20 };
enum {
    STEPS_MAX = 400000,          /* a schedule that takes this long does not end */
    STEPS_UNFAIR = STEPS_MAX / 2 /* the steps before it becomes fair */
};

explore ex;

static teffi_fiber_pool *pool;
static explore_thread *chosen; /* by a point, for explore_run */

/* The explored sources' thread-locals; absent when none of them has one. */
extern char __start_explore_locals[] __attribute__((weak));
extern char __stop_explore_locals[] __attribute__((weak));

/* ---- drawing ---- */

static uint32_t draw32(void) /* xorshift64* */
{
    ex.rng ^= ex.rng >> 12;
    ex.rng ^= ex.rng << 25;
    ex.rng ^= ex.rng >> 27;
    return (uint32_t)(ex.rng * 0x2545f4914f6cdd1du >> 32);
}

uint32_t explore_draw(uint32_t below)
{
    return (uint32_t)((uint64_t)draw32() * below >> 32);
}

static uint32_t one_of(const uint32_t *values, uint32_t n)
{
    return values[explore_draw(n)];
}

static void draw_manner(uint32_t steps)
{
    static const uint32_t stays[] = {0, 64, 128, 192, 224, 240, 248, 252};
    static const uint32_t drains[] = {128, 32, 8, 1, 0};
    static const uint32_t timeouts[] = {0, 0, 64, 1024, 8192};
    static const uint32_t spurious[] = {0, 0, 16, 128};
    explore_manner *m = &ex.manner;
    m->priorities = explore_draw(2);
    m->stay = one_of(stays, 8);
    m->n_changes = explore_draw(8);
    for (unsigned i = 0; i < m->n_changes; i++)
        m->change[i] = explore_draw(steps);
    m->buffers = explore_draw(4);
    m->drain = one_of(drains, 5);
    m->timeout = one_of(timeouts, 5);
    m->spurious = one_of(spurious, 4);
    m->after = ex.seed % 4 == 3;
}

void explore_begin(uint64_t seed, uint32_t steps)
{
    ex.seed = seed;
    ex.rng = teffi_mix64(seed + 0x9e3779b97f4a7c15u) | 1;
    ex.now_ns = 1000000000u;
    ex.steps = ex.hash = 0;
    ex.n_threads = 0;
    ex.ready = ex.buffered = ex.timed = 0;
    ex.lowest = UINT32_MAX / 2;
    ex.when_all_wait = NULL;
    ex.refuse = 0;
    ex.current = NULL;
    draw_manner(steps);
}

/* ---- threads ---- */

static uint32_t bit(const explore_thread *t)
{
    return (uint32_t)1 << (t - ex.thread);
}

static void set_ready(explore_thread *t, bool timed_out)
{
    t->state = EXPLORE_READY;
    t->timed_out = timed_out;
    ex.ready |= bit(t);
    ex.timed &= ~bit(t);
}

static void body(void *arg)
{
    explore_thread *t = arg;
    t->fn(t->arg);
    explore_point("end", "end");
    explore_flush(t);
    t->state = EXPLORE_ENDED;
    ex.ready &= ~bit(t);
    explore_notify(t);
}

int explore_start(const char *name, void (*fn)(void *arg), void *arg)
{
    if (ex.n_threads == EXPLORE_THREADS_MAX)
        return -1;
    if (!pool)
        pool = teffi_fiber_pool_new(0, 0);
    explore_thread *t = &ex.thread[ex.n_threads++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->fn = fn;
    t->arg = arg;
    t->fiber = teffi_fiber_new(pool, body, t);
    teffi_bug_if(!t->fiber);
    t->top = NULL;
    t->n_locks = t->n_stores = 0;
    t->priority = UINT32_MAX / 2 + draw32() / 4;
    memset(t->locals, 0, sizeof t->locals);
    set_ready(t, false);
    return (int)(t - ex.thread);
}

/* ---- choosing ---- */

/* The n-th thread of a set. */
static explore_thread *nth(uint32_t set, unsigned n)
{
    while (n--)
        set &= set - 1;
    return &ex.thread[__builtin_ctz(set)];
}

static explore_thread *any(uint32_t set)
{
    return nth(set, explore_draw((uint32_t)__builtin_popcount(set)));
}

static explore_thread *highest(void)
{
    explore_thread *best = NULL;
    for (uint32_t set = ex.ready; set; set &= set - 1) {
        explore_thread *t = &ex.thread[__builtin_ctz(set)];
        if (!best || t->priority > best->priority)
            best = t;
    }
    return best;
}

static bool change_is_due(void)
{
    for (unsigned i = 0; i < ex.manner.n_changes; i++)
        if (ex.manner.change[i] == ex.steps)
            return true;
    return false;
}

/* At least one is ready. */
static explore_thread *choose(void)
{
    explore_thread *now = ex.current;
    if (ex.manner.priorities) {
        if (now && change_is_due())
            now->priority = --ex.lowest;
        return highest();
    }
    if (now && now->state == EXPLORE_READY && explore_draw(256) < ex.manner.stay)
        return now;
    return any(ex.ready);
}

static void end_wait(explore_thread *t)
{
    if (t->due_ns > ex.now_ns)
        ex.now_ns = t->due_ns;
    ex.timeouts++;
    explore_note("%s: its time has come, %" PRIu64 " us", t->name, ex.now_ns / 1000);
    set_ready(t, true);
}

/* What happens by itself: buffered stores become visible, time passes. */
static void elapse(void)
{
    if (ex.buffered && explore_draw(256) < ex.manner.drain)
        explore_drain_one(any(ex.buffered));
    if (ex.timed && explore_draw(65536) < ex.manner.timeout)
        end_wait(any(ex.timed));
}

static uint32_t all_waits(void)
{
    uint32_t waits = 0;
    for (unsigned i = 0; i < ex.n_threads; i++)
        if (ex.thread[i].state == EXPLORE_WAITS)
            waits |= (uint32_t)1 << i;
    return waits;
}

static explore_thread *earliest(void)
{
    explore_thread *best = NULL;
    for (uint32_t set = ex.timed; set; set &= set - 1) {
        explore_thread *t = &ex.thread[__builtin_ctz(set)];
        if (!best || t->due_ns < best->due_ns)
            best = t;
    }
    return best;
}

/* Nobody is ready: late stores first, then only time can help. false: all have ended. */
static bool unstick(void)
{
    while (!ex.ready && ex.buffered)
        explore_drain_one(any(ex.buffered));
    if (ex.ready)
        return true;
    if (!all_waits())
        return false;
    if (ex.when_all_wait)
        ex.when_all_wait();
    if (!ex.timed)
        explore_fail("deadlock: all threads wait");
    end_wait(earliest());
    return true;
}

/* ---- running ---- */

static void swap_locals(explore_thread *t, bool in)
{
    size_t n = (size_t)(__stop_explore_locals - __start_explore_locals);
    if (!__start_explore_locals)
        return;
    teffi_bug_if(n > sizeof t->locals);
    memcpy(in ? __start_explore_locals : t->locals, in ? t->locals : __start_explore_locals, n);
}

void explore_run(void)
{
    while (ex.ready || unstick()) {
        explore_thread *t = chosen ? chosen : choose();
        chosen = NULL;
        ex.current = t;
        ex.switches++;
        ex.hash = teffi_mix64(ex.hash ^ (ex.steps << 8 | (uint64_t)(t - ex.thread)));
        swap_locals(t, true);
        (void)teffi_fiber_resume(t->top ? t->top->fiber : t->fiber);
        swap_locals(t, false);
        ex.current = NULL;
    }
}

static void leave(void)
{
    explore_thread *t = ex.current;
    teffi_fiber_suspend(t->top ? t->top->fiber : t->fiber);
}

/* ---- stacks of turns ---- */

/* The stack that is left is the caller's: the thread itself goes on, on top. */
static void switch_to(explore_stack *top)
{
    explore_thread *t = ex.current;
    teffi_fiber *left = t->top ? t->top->fiber : t->fiber;
    t->top = top;
    chosen = t;
    teffi_fiber_suspend(left);
}

static void stack_main(void *arg)
{
    explore_stack *s = arg;
    s->fn(s->arg);
    explore_thread *t = ex.current; /* maybe another one than began it */
    s->ended = true;
    t->top = s->outer;
    chosen = t;
}

explore_stack *explore_stack_new(void (*fn)(void *arg), void *arg)
{
    explore_stack *s = calloc(1, sizeof *s);
    teffi_bug_if(!s);
    *s = (explore_stack){.fiber = teffi_fiber_new(pool, stack_main, s), .fn = fn, .arg = arg};
    teffi_bug_if(!s->fiber);
    return s;
}

bool explore_stack_resume(explore_stack *s)
{
    s->outer = ex.current->top;
    switch_to(s);
    bool ended = s->ended;
    if (ended)
        free(s);
    return ended;
}

void explore_may_suspend(const char *at)
{
    if (ex.current && ex.current->n_locks)
        explore_fail("%s: a lock is held where the turn may be suspended", at);
}

void explore_stack_suspend(explore_stack *s)
{
    if (s != ex.current->top)
        explore_fail("a stack is suspended that does not run here");
    switch_to(s->outer);
}

explore_stack *explore_stack_current(void)
{
    return ex.current ? ex.current->top : NULL;
}

/* From now on each thread runs again and again, and time passes only when all wait. Until then a
 * thread of low priority may never run, and the monitor may tick at each step of another thread:
 * a schedule without an end would not show that the code has none. */
static void become_fair(void)
{
    ex.manner.priorities = false;
    ex.manner.stay = ex.manner.timeout = 0;
}

void explore_point(const char *at, const char *what)
{
    if (!ex.current)
        return;
    ex.steps++;
    ex.now_ns += STEP_NS;
    if (ex.steps == STEPS_UNFAIR)
        become_fair();
    if (ex.steps > STEPS_MAX)
        explore_fail("no end after %d steps", STEPS_MAX);
    elapse();
    explore_thread *me = ex.current, *next = choose();
    if (next != me) {
        chosen = next;
        leave();
    }
    explore_note("%-9s %-20s %s", me->name, what, at);
}

bool explore_wait(const void *on, uint64_t due_ns)
{
    explore_thread *t = ex.current;
    t->state = EXPLORE_WAITS;
    t->on = on;
    t->due_ns = due_ns;
    t->since_ns = ex.now_ns;
    ex.ready &= ~bit(t);
    if (due_ns != UINT64_MAX)
        ex.timed |= bit(t);
    leave();
    return !t->timed_out;
}

void explore_notify(const void *on)
{
    for (unsigned i = 0; i < ex.n_threads; i++) {
        explore_thread *t = &ex.thread[i];
        if (t->state == EXPLORE_WAITS && t->on == on)
            set_ready(t, false);
    }
}

/* A thread that alone is ready may spin for a store that another has made: then it arrives. */
void explore_back_off(const char *at)
{
    if (ex.current && ex.buffered && ex.ready == bit(ex.current))
        explore_drain_one(any(ex.buffered));
    if (ex.current && ex.manner.priorities)
        ex.current->priority = --ex.lowest;
    explore_point(at, "back off");
}

/* ---- saying ---- */

void explore_note(const char *fmt, ...)
{
    va_list args;
    if (!ex.trace)
        return;
    printf("%6" PRIu64 " %2d ", ex.steps, ex.current ? (int)(ex.current - ex.thread) : -1);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    putchar('\n');
}

static void print_threads(void)
{
    static const char *const states[] = {"ready", "waits", "ended"};
    for (unsigned i = 0; i < ex.n_threads; i++) {
        explore_thread *t = &ex.thread[i];
        printf("    %-9s %s%s, %u late stores\n", t->name, states[t->state],
               t->state == EXPLORE_WAITS && t->due_ns != UINT64_MAX ? " for a time" : "",
               t->n_stores);
    }
}

void explore_fail(const char *fmt, ...)
{
    va_list args;
    printf("explore: %s: seed %" PRIu64 ", step %" PRIu64 ": ",
           ex.planted ? "found as it should be" : "FAILED", ex.seed, ex.steps);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    putchar('\n');
    print_threads();
    printf("again: explore --scene %s --first %" PRIu64 " --schedules 1 --trace\n", ex.scene,
           ex.seed);
    fflush(stdout);
    _exit(ex.planted ? 0 : 1);
}
