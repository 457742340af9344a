/* stress_exec.c - tokens wander over groups, by push, claim, timer, blocking region and groups of
 * one run, on more workers than cores; each hop counts once, no group runs twice at a time,
 * nobody hangs.
 * With `scale` the number of workers in use changes all the while; `multilevel` and `priority` are
 * policies of the run queue, the last with places evicted (and every item kept).
 * usage: stress_exec [seconds [workers [scale | multilevel | priority]...]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "base/queue.h"
#include "os/thread.h"
#include "sched/exec.h"

enum { GROUPS = 64, TOKENS = 200, HOPS = 3000, OUTSIDERS = 2 };
#define HANG_NS 180000000000u

typedef struct place {
    teffi_group group;
    _Atomic bool inside;
    uint64_t handled; /* plain on purpose: only the running worker may touch it */
} place;

typedef struct token token;

struct token {
    teffi_item item;
    teffi_timer timer;
    uint64_t rng;
    unsigned hops;
    place *next; /* where its timer will push it */
};

/* A group that is run once: it completes in that run and is freed when it has ended. */
typedef struct cabin {
    teffi_group group;
    token *guest;
} cabin;

static teffi_platform platform;
static teffi_exec *exec;
static place places[GROUPS];
static token tokens[TOKENS];
static _Atomic uint32_t arrived; /* tokens that made all their hops */
static _Atomic uint32_t errors;
static _Atomic int cabins; /* not yet freed */
static teffi_parker done;
static unsigned scale_max; /* 0: the number of workers stays */
static unsigned scalings;
static teff_sched_options sched;

static void go_to(token *t, place *p)
{
    if (!teffi_group_push(&p->group, &t->item))
        atomic_fetch_add(&errors, 1);
}

static void on_timer(teffi_timer *timer)
{
    token *t = teffi_container(timer, token, timer);
    go_to(t, t->next);
}

static void block_a_while(uint64_t draw)
{
    exec->ops->blocking_begin(exec);
    for (unsigned i = 0; i < draw % 8; i++)
        teffi_thread_yield();
    exec->ops->blocking_end(exec);
}

/* From timer_set on the token belongs to whoever fires it. */
static void sleep_then_go(token *t, place *to, uint64_t draw)
{
    t->next = to;
    exec->ops->timer_set(exec, &t->timer, teffi_now(&platform) + draw % 2000000);
}

static void enter(place *p)
{
    if (atomic_exchange_explicit(&p->inside, true, memory_order_relaxed))
        atomic_fetch_add(&errors, 1);
    p->handled++;
}

static void leave(place *p)
{
    atomic_store_explicit(&p->inside, false, memory_order_relaxed);
}

/* A hop made inline, if the place is idle. */
static void visit_by_claim(token *t, place *p)
{
    if (t->hops < 2 || !teffi_group_claim(&p->group))
        return;
    enter(p);
    t->hops--;
    leave(p);
    teffi_group_release_claim(&p->group);
}

static void hop(token *t);

static void in_cabin(teffi_group *group, teffi_item *item)
{
    cabin *c = teffi_container(group, cabin, group);
    (void)item;
    teffi_group_complete(group);
    hop(c->guest);
}

static void free_cabin(teffi_group *group)
{
    free(teffi_container(group, cabin, group));
    atomic_fetch_sub(&cabins, 1);
}

static const teffi_group_ops cabin_ops = {.handle = in_cabin, .ended = free_cabin};

static bool to_cabin(token *t)
{
    cabin *c = malloc(sizeof *c);
    if (!c)
        return false;
    atomic_fetch_add(&cabins, 1);
    c->guest = t;
    teffi_group_init(&c->group, exec, &cabin_ops);
    (void)teffi_group_push(&c->group, &t->item);
    return true;
}

static void hop(token *t)
{
    t->rng = teffi_mix64(t->rng + 1);
    uint64_t draw = t->rng;
    place *to = &places[draw % GROUPS];
    switch (draw >> 56) {
    case 0:
        sleep_then_go(t, to, draw >> 8);
        return;
    case 1:
        block_a_while(draw >> 8);
        break;
    case 2:
        if (to_cabin(t))
            return;
        break;
    case 3:
    case 4:
        visit_by_claim(t, &places[(draw >> 8) % GROUPS]);
        break;
    default:
        break;
    }
    go_to(t, to);
}

static void on_item(teffi_group *group, teffi_item *item)
{
    place *p = teffi_container(group, place, group);
    token *t = teffi_container(item, token, item);
    enter(p);
    if (t->hops-- > 1)
        hop(t); /* from here on the token is elsewhere */
    else if (atomic_fetch_add(&arrived, 1) + 1 == TOKENS)
        teffi_parker_wake(&done);
    leave(p);
}

static bool keep(teffi_group *group, teffi_item *item)
{
    (void)group;
    (void)item;
    return false;
}

static const teffi_group_ops ops = {.handle = on_item, .evict = keep};

static void throw_in(void *arg)
{
    unsigned mine = *(unsigned *)arg;
    for (unsigned i = mine; i < TOKENS; i += OUTSIDERS)
        go_to(&tokens[i], &places[i % GROUPS]);
}

static void prepare(uint64_t seed)
{
    atomic_store(&arrived, 0);
    for (unsigned i = 0; i < GROUPS; i++) {
        places[i] = (place){.handled = 0};
        teffi_group_init(&places[i].group, exec, &ops);
        atomic_store(&places[i].group.priority, (int8_t)(i % 5));
    }
    for (unsigned i = 0; i < TOKENS; i++)
        tokens[i] = (token){.timer.fire = on_timer, .rng = teffi_mix64(seed + i), .hops = HOPS};
}

static bool wait_for_all(void)
{
    uint64_t end_ns = teffi_now(&platform) + HANG_NS;
    while (atomic_load(&arrived) < TOKENS && teffi_now(&platform) < end_ns)
        teffi_parker_wait(&done, HANG_NS);
    return atomic_load(&arrived) == TOKENS;
}

/* Up and down at random, with pauses of up to 1 ms; back to all of them once everybody is there. */
static void scale_until_all(uint64_t seed)
{
    uint64_t end_ns = teffi_now(&platform) + HANG_NS;
    while (atomic_load(&arrived) < TOKENS && teffi_now(&platform) < end_ns) {
        seed = teffi_mix64(seed + 1);
        if (exec->ops->scale(exec, 1 + (unsigned)(seed % scale_max)))
            atomic_fetch_add(&errors, 1);
        scalings++;
        teffi_parker_wait(&done, (seed >> 32) % 1000000);
    }
}

/* out: false: something was lost, doubled, or hangs. */
static bool one_round(uint64_t seed, unsigned workers)
{
    static unsigned which[OUTSIDERS] = {0, 1};
    teffi_thread outsider[OUTSIDERS];
    uint64_t handled = 0;
    if (teffi_exec_real_new(&platform, workers, &sched, &exec))
        return false;
    prepare(seed);
    for (unsigned i = 0; i < OUTSIDERS; i++)
        if (teffi_thread_start(&outsider[i], "outsider", throw_in, &which[i]))
            exit(2);
    for (unsigned i = 0; i < OUTSIDERS; i++)
        teffi_thread_join(&outsider[i]);
    if (scale_max)
        scale_until_all(seed);
    bool all = wait_for_all();
    if (!all) {
        printf("stress_exec: FAILED: hangs with %u of %d tokens arrived, seed %llu\n",
               atomic_load(&arrived), TOKENS, (unsigned long long)seed);
        abort(); /* leaves the hung state to look at */
    }
    exec->ops->free(exec);
    for (unsigned i = 0; i < GROUPS; i++)
        handled += places[i].handled;
    return handled == (uint64_t)TOKENS * HOPS && !atomic_load(&errors) && !atomic_load(&cabins);
}

static void configure(const char *word, unsigned workers)
{
    if (strcmp(word, "scale") == 0)
        scale_max = workers;
    if (strcmp(word, "multilevel") == 0) {
        sched.policy = TEFF_SCHED_MULTILEVEL;
        sched.level_us[0] = 200; /* so that places are on all of them */
        sched.level_us[1] = 1000;
    }
    if (strcmp(word, "priority") == 0) {
        sched.policy = TEFF_SCHED_PRIORITY;
        sched.waiting_max = 8;
    }
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 2;
    unsigned workers = argc > 2 ? (unsigned)atoi(argv[2]) : 5;
    unsigned rounds = 0;
    bool ok = true;
    for (int i = 3; i < argc; i++)
        configure(argv[i], workers);
    teffi_platform_init_real(&platform, TEFF_LOG_INFO);
    uint64_t seed = platform.random(NULL);
    uint64_t end_ns = teffi_now(&platform) + (uint64_t)(seconds * 1e9);
    do
        ok = one_round(seed + rounds++, workers);
    while (ok && teffi_now(&platform) < end_ns);
    printf("stress_exec: %s: seed %llu, %u rounds of %d hops, %u workers, %u scalings, "
           "%u errors\n",
           ok ? "ok" : "FAILED", (unsigned long long)seed, rounds, TOKENS * HOPS, workers, scalings,
           atomic_load(&errors));
    return ok ? 0 : 1;
}
