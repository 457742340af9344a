/* sched_fair.c - 5,000 pairs play ping-pong, alone or beside an actor that never yields: how long
 * do they take, and the slowest hundredth of the round trips? */
#include <stdio.h>
#include <stdlib.h>
#include "sched_actor.h"

enum { PAIRS = 5000 };

typedef struct player {
    actor actor;
    actor *other;
    float *trips, *end; /* us */
    uint64_t sent_ns;
} player;

static _Atomic bool stop;
static _Atomic bool hog_runs;

static void hog(actor *self, const message *m)
{
    (void)m;
    atomic_store_explicit(&hog_runs, true, memory_order_relaxed);
    while (!atomic_load_explicit(&stop, memory_order_relaxed))
        ;
    actor_quit(self);
    row_done();
}

static void pong(actor *self, const message *m)
{
    actor_send(m->from, self, 0, 0);
}

static void ping(actor *self, const message *m)
{
    player *p = (player *)(void *)self;
    uint64_t now = teffi_now(&bench_platform);
    if (m->from)
        *p->trips++ = (float)(now - p->sent_ns) / 1e3f;
    if (p->trips == p->end) {
        row_done();
        return;
    }
    p->sent_ns = now;
    actor_send(p->other, self, 0, 0);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void start_players(float *trips, int64_t each)
{
    row_begin(PAIRS);
    for (int i = 0; i < PAIRS; i++) {
        player *p = actor_spawn(sizeof *p, ping);
        p->trips = trips + i * each;
        p->end = p->trips + each;
        p->other = actor_spawn(sizeof(actor), pong);
        actor_send(&p->actor, NULL, 0, 0);
    }
}

static result fair(int64_t n)
{
    int64_t each = n / PAIRS, ops = each * PAIRS;
    float *trips = malloc((size_t)ops * sizeof *trips);
    if (!trips) {
        fprintf(stderr, "sched: memory is out\n");
        exit(1);
    }
    uint64_t begin = teffi_now(&bench_platform);
    start_players(trips, each);
    row_wait();
    result r = {.ops = ops, .seconds = (double)(teffi_now(&bench_platform) - begin) / 1e9};
    qsort(trips, (size_t)ops, sizeof *trips, by_value);
    r.p99_us = (double)trips[ops * 99 / 100];
    free(trips);
    return r;
}

result row_fair(int64_t n)
{
    return fair(n);
}

/* The hog holds its worker before the pairs start. */
result row_hog(int64_t n)
{
    actor_send(actor_spawn(sizeof(actor), hog), NULL, 0, 0);
    while (!atomic_load_explicit(&hog_runs, memory_order_relaxed))
        ;
    result r = fair(n);
    row_begin(1);
    atomic_store_explicit(&stop, true, memory_order_relaxed);
    row_wait();
    atomic_store_explicit(&stop, false, memory_order_relaxed);
    atomic_store_explicit(&hog_runs, false, memory_order_relaxed);
    return r;
}
