/* stress_deque.c - one owner, several thieves, every item accounted for exactly once.
 * usage: stress_deque [seconds [thieves [mutant]]]
 * Built a second time with the owner's pop of a plain Chase-Lev deque; that run ("mutant") succeeds
 * when it finds what was lost or doubled. */
#include <stdio.h>
#include <stdlib.h>
#include "base/hash.h"
#include "platform/platform.h"
#include "platform/thread.h"
#include "sched/deque.h"

enum { ROUND = 20000, THIEVES_MAX = 16, ROUNDS_OF_CLOCK = 16 };
#define PATIENCE_NS 60000000000u

typedef struct thief {
    teffi_thread thread;
    uint64_t rng, stolen, batches;
    _Atomic uint64_t raids; /* odd: one is under way, and what it claimed may not be taken yet */
} thief;

static teffi_platform platform;
static teffi_deque deque;
static _Atomic uint8_t taken[ROUND + 1]; /* how often item i was taken; items are 1..ROUND */
static _Atomic bool stop;

static void take(void *item)
{
    atomic_fetch_add_explicit(&taken[(uintptr_t)item], 1, memory_order_relaxed);
}

static void steal_on(void *arg)
{
    thief *t = arg;
    void *out[TEFFI_STEAL_MAX];
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        t->rng = teffi_mix64(t->rng + 1);
        /* relaxed: whoever sees the claim, a release, sees this */
        uint64_t raid = atomic_fetch_add_explicit(&t->raids, 1, memory_order_relaxed) + 1;
        unsigned n = teffi_deque_steal(&deque, out, 1 + (unsigned)(t->rng % TEFFI_STEAL_MAX));
        for (unsigned i = 0; i < n; i++)
            take(out[i]);
        /* release: what was taken; pairs with let_raid_end */
        atomic_store_explicit(&t->raids, raid + 1, memory_order_release);
        t->stolen += n;
        t->batches += n != 0;
        if (t->rng >> 60 == 0 || n == 0)
            teffi_thread_yield(); /* more threads than cores: let the owner on */
    }
}

static uint32_t pop_some(uint32_t n)
{
    void *item;
    uint32_t got = 0;
    while (got < n && (item = teffi_deque_pop(&deque))) {
        take(item);
        got++;
    }
    return got;
}

/* Push all items in bursts, popping in between; sizes hover near the near zone, at times grow. */
static uint64_t one_round(uint64_t seed)
{
    uint64_t popped = 0;
    for (uintptr_t next = 1; next <= ROUND;) {
        seed = teffi_mix64(seed + 1);
        uint32_t burst = (uint32_t)(seed % (seed >> 40 & 31 ? 60 : 2000)) + 1;
        for (uint32_t i = 0; i < burst && next <= ROUND; i++)
            if (teffi_deque_push(&deque, (void *)next))
                next++;
        popped += pop_some((uint32_t)(seed >> 32) % (burst + 8));
    }
    return popped + pop_some(ROUND);
}

/* The deque is empty; a thief may still hold what it claimed, and stand still with it for long. */
static void let_raid_end(const thief *t)
{
    uint64_t end_ns = teffi_now(&platform) + PATIENCE_NS;
    uint64_t seen = atomic_load_explicit(&t->raids, memory_order_acquire);
    while (seen % 2 && atomic_load_explicit(&t->raids, memory_order_acquire) == seen &&
           teffi_now(&platform) < end_ns)
        teffi_thread_yield();
}

/* out: how many items were lost or doubled. */
static uint32_t settle(const thief *thieves, unsigned n)
{
    uint32_t wrong = 0;
    (void)teffi_deque_count(&deque); /* acquire: the last claims, and with them their raids */
    for (unsigned i = 0; i < n; i++)
        let_raid_end(&thieves[i]);
    for (unsigned i = 1; i <= ROUND; i++)
        wrong += atomic_exchange_explicit(&taken[i], 0, memory_order_relaxed) != 1;
    return wrong;
}

static uint64_t start(thief *thieves, unsigned n, uint64_t seed)
{
    for (unsigned i = 0; i < n; i++) {
        thieves[i].rng = seed + i;
        if (teffi_thread_start(&thieves[i].thread, "thief", steal_on, &thieves[i]))
            exit(2);
    }
    return seed;
}

int main(int argc, char **argv)
{
    static thief thieves[THIEVES_MAX];
    double seconds = argc > 1 ? atof(argv[1]) : 2;
    unsigned n = argc > 2 ? (unsigned)atoi(argv[2]) : 3;
    uint64_t rounds = 0, popped = 0, stolen = 0, batches = 0;
    uint32_t wrong = 0;
    bool mutant = argc > 3;
    if (n == 0 || n > THIEVES_MAX || !teffi_deque_init(&deque))
        return 2;
    teffi_platform_real(&platform, TEFFI_INFO);
    uint64_t seed = start(thieves, n, platform.random(NULL));
    uint64_t end_ns = teffi_now(&platform) + (uint64_t)(seconds * 1e9);
    while (!wrong && (rounds % ROUNDS_OF_CLOCK || teffi_now(&platform) < end_ns)) {
        popped += one_round(seed + rounds++);
        wrong += settle(thieves, n);
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < n; i++) {
        teffi_thread_join(&thieves[i].thread);
        stolen += thieves[i].stolen;
        batches += thieves[i].batches;
    }
    printf("stress_deque: %s: seed %llu, %llu items, %llu popped, %llu stolen in %llu batches, "
           "%u lost or doubled\n",
           (wrong != 0) == mutant ? "ok" : "FAILED", (unsigned long long)seed,
           (unsigned long long)(rounds * ROUND), (unsigned long long)popped,
           (unsigned long long)stolen, (unsigned long long)batches, wrong);
    teffi_deque_fini(&deque);
    return (wrong != 0) == mutant ? 0 : 1;
}
