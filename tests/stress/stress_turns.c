/* stress_turns.c - turns on fibers that do all a turn may do in its middle: yield, block, be
 * stopped by a signal, lose their worker's place, fork and join; while others are pushed. Each
 * turn that was pushed ends once, no two of one group run at a time, every result is right.
 * usage: stress_turns [seconds [workers [multilevel]]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <teff/fork.h>
#include "base/queue.h"
#include "fiber/fiber.h"
#include "os/thread.h"
#include "sched/exec.h"
#include "sched/scheduler.h"

enum { ACTORS = 24, ACTS = 8, LONG_ONE_IN = 64 };
#define HANG_NS 180000000000u
#define LONG_NS 15000000u

typedef struct actor {
    teffi_group group;
    teffi_item item;
    teffi_fiber *fiber;
    uint64_t rng;
    _Atomic bool queued, inside;
    uint64_t turns; /* plain on purpose: only its own turn may touch it */
} actor;

static teffi_platform platform;
static teffi_exec *exec;
static actor actors[ACTORS];
static _Atomic bool stop;
static _Atomic uint64_t pushed, ended, errors;
static _Atomic uint64_t yields, retaken, forks;

static void check(bool ok)
{
    atomic_fetch_add_explicit(&errors, !ok, memory_order_relaxed);
}

static uint64_t draw(uint64_t *rng) /* xorshift64 */
{
    *rng ^= *rng << 13;
    *rng ^= *rng >> 7;
    *rng ^= *rng << 17;
    return *rng;
}

static void push(actor *a)
{
    if (atomic_load(&stop) || atomic_exchange(&a->queued, true))
        return;
    atomic_fetch_add(&pushed, 1);
    check(teffi_group_push(&a->group, &a->item));
}

/* ---- what a turn does ---- */

static uint64_t lcg(uint64_t from, unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++)
        from = from * 6364136223846793005u + 1442695040888963407u;
    return from;
}

/* The same twice, in a region: what a signal leaves in the middle must go on unharmed. */
static void compute(bool is_long)
{
    unsigned rounds = is_long ? 6000000 : 2000;
    teff_preemptible region = teff_preemptible_begin();
    uint64_t one = lcg(1, rounds), two = lcg(1, rounds);
    teff_preemptible_end(region);
    check(one == two);
}

static void yield_when_due(bool is_long)
{
    uint64_t until = teffi_now(&platform) + (is_long ? LONG_NS : 0);
    do
        atomic_fetch_add_explicit(&yields, teff_yield_if_due(), memory_order_relaxed);
    while (teffi_now(&platform) < until);
}

static void hog(bool is_long)
{
    uint64_t until = teffi_now(&platform) + (is_long ? LONG_NS : 0);
    while (teffi_now(&platform) < until)
        ;
    atomic_fetch_add_explicit(&retaken, exec->ops->worker(exec) == 0, memory_order_relaxed);
}

static void block(bool is_long)
{
    teff_blocking_begin();
    if (is_long)
        hog(true);
    else
        teffi_thread_yield();
    teff_blocking_end();
}

typedef struct count {
    teff_steal how;
    unsigned depth;
    unsigned leaves;
} count;

static void count_leaves(void *arg)
{
    count *c = arg;
    if (c->depth == 0) {
        c->leaves = 1;
        return;
    }
    count left = {c->how, c->depth - 1, 0}, right = left;
    teff_join join = {{0}};
    teff_fork(&join, c->how, count_leaves, &left);
    count_leaves(&right);
    teff_join_wait(&join);
    c->leaves = left.leaves + right.leaves;
}

static void fork_and_join(uint64_t drawn)
{
    count c = {drawn & 1 ? TEFF_STEAL_CHILD : TEFF_STEAL_CONTINUATION, drawn >> 1 & 3, 0};
    unsigned depth = c.depth;
    count_leaves(&c);
    check(c.leaves == 1u << depth);
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void act(actor *a)
{
    uint64_t drawn = draw(&a->rng);
    bool is_long = (drawn >> 8) % LONG_ONE_IN == 0;
    switch (drawn % 6) {
    case 0:
        compute(is_long);
        break;
    case 1:
        yield_when_due(is_long);
        break;
    case 2:
        hog(is_long);
        break;
    case 3:
        block(is_long);
        break;
    case 4:
        fork_and_join(drawn >> 16);
        break;
    default:
        push(&actors[(drawn >> 16) % ACTORS]);
        break;
    }
}

/* ---- turns ---- */

static void turn(void *arg)
{
    actor *a = arg;
    check(!atomic_exchange(&a->inside, true));
    atomic_store(&a->queued, false);
    a->turns++;
    for (unsigned i = 0; i < ACTS; i++)
        act(a);
    push(&actors[draw(&a->rng) % ACTORS]);
    atomic_store(&a->inside, false);
    atomic_fetch_add(&ended, 1);
}

static void resume(teffi_group *group, teffi_fiber *fiber)
{
    (void)group;
    (void)teffi_fiber_resume(fiber);
}

static void handle(teffi_group *group, teffi_item *item)
{
    actor *a = teffi_container(group, actor, group);
    (void)item;
    a->fiber = teffi_fiber_new(exec->fibers, turn, a);
    check(a->fiber != NULL);
    if (a->fiber)
        (void)teffi_fiber_resume(a->fiber);
}

static const teffi_group_ops ops = {.handle = handle, .resume = resume};

/* ---- the run ---- */

/* Few pushes meet in one, so that some must come from outside. */
static void feed(uint64_t until)
{
    static teffi_parker parker;
    while (teffi_now(&platform) < until && !atomic_load(&errors)) {
        for (unsigned i = 0; i < ACTORS; i++)
            push(&actors[i]);
        teffi_parker_wait(&parker, 2000000);
    }
    atomic_store(&stop, true);
}

static bool all_ended(void)
{
    static teffi_parker parker;
    uint64_t until = teffi_now(&platform) + HANG_NS;
    while (atomic_load(&ended) < atomic_load(&pushed) && teffi_now(&platform) < until)
        teffi_parker_wait(&parker, 1000000);
    return atomic_load(&ended) == atomic_load(&pushed);
}

static uint64_t turns_seen(void)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < ACTORS; i++)
        sum += actors[i].turns;
    return sum;
}

int main(int argc, char **argv)
{
    unsigned seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
    unsigned workers = argc > 2 ? (unsigned)atoi(argv[2]) : 3;
    teff_sched_options opt = {.policy = argc > 3 && strcmp(argv[3], "multilevel") == 0
                                            ? TEFF_SCHED_MULTILEVEL
                                            : (teff_sched_policy)0};
    teffi_platform_init_real(&platform, TEFF_LOG_ERROR);
    if (teffi_exec_real_new(&platform, workers, &opt, &exec) != TEFF_OK)
        return 1;
    uint64_t seed = platform.random(platform.arg) | 1;
    for (unsigned i = 0; i < ACTORS; i++) {
        actors[i].rng = seed * (2 * i + 1) | 1;
        teffi_group_init(&actors[i].group, exec, &ops);
    }
    feed(teffi_now(&platform) + seconds * 1000000000ull);
    bool whole = all_ended();
    if (!whole)
        fprintf(stderr, "stress_turns: hangs\n");
    exec->ops->free(exec);
    uint64_t wrong = atomic_load(&errors) + (turns_seen() != atomic_load(&pushed));
    printf("stress_turns: %s: seed %llu, %llu turns, %llu yielded, %llu without a processor, %llu "
           "forks, %llu errors\n",
           whole && !wrong ? "ok" : "FAILED", (unsigned long long)seed,
           (unsigned long long)atomic_load(&ended), (unsigned long long)atomic_load(&yields),
           (unsigned long long)atomic_load(&retaken), (unsigned long long)atomic_load(&forks),
           (unsigned long long)wrong);
    return !whole || wrong;
}
