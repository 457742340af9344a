/* sched_spawn.c - rows that make actors: fork-join create, skynet, bytes of an idle one. */
#include <stdio.h>
#include <stdlib.h>
#include "resident.h"
#include "sched_actor.h"

enum { GO, SUM };

/* ---- fork-join create ---- */

enum { BURST = 64 };

typedef struct creator {
    actor actor;
    int64_t left;
} creator;

static _Atomic int64_t unborn;

static void live_once(actor *self, const message *m)
{
    (void)m;
    actor_quit(self);
    if (atomic_fetch_sub_explicit(&unborn, 1, memory_order_relaxed) == 1)
        row_done();
}

static void create(actor *self, const message *m)
{
    creator *c = (creator *)self;
    (void)m;
    for (int i = 0; i < BURST && c->left > 0; i++, c->left--)
        actor_send(actor_spawn(sizeof(actor), live_once), self, GO, 0);
    if (c->left > 0)
        actor_send(self, self, GO, 0);
}

result row_fork_join_create(int64_t n)
{
    creator *c = actor_spawn(sizeof *c, create);
    c->left = n;
    atomic_store_explicit(&unborn, n, memory_order_relaxed);
    row_begin(1);
    actor_send(&c->actor, NULL, GO, 0);
    row_wait();
    return (result){.ops = n};
}

/* ---- skynet: a tree of ten children each, whose leaves are summed up ---- */

enum { CHILDREN = 10 };

typedef struct sky {
    actor actor;
    actor *parent; /* NULL: the root */
    int64_t number, size, sum;
    int answers;
} sky;

static int64_t sky_total;

static void sky_answer(sky *s, int64_t sum)
{
    if (s->parent) {
        actor_send(s->parent, &s->actor, SUM, sum);
    } else {
        sky_total = sum;
        row_done();
    }
    actor_quit(&s->actor);
}

static void sky_receive(actor *self, const message *m);

static sky *sky_new(actor *parent, int64_t number, int64_t size)
{
    sky *s = actor_spawn(sizeof *s, sky_receive);
    s->parent = parent;
    s->number = number;
    s->size = size;
    return s;
}

static void sky_receive(actor *self, const message *m)
{
    sky *s = (sky *)(void *)self;
    if (m->item.kind == SUM) {
        s->sum += m->value;
        if (++s->answers == CHILDREN)
            sky_answer(s, s->sum);
        return;
    }
    if (s->size == 1) {
        sky_answer(s, s->number);
        return;
    }
    int64_t part = s->size / CHILDREN;
    for (int i = 0; i < CHILDREN; i++)
        actor_send(&sky_new(self, s->number + i * part, part)->actor, self, GO, 0);
}

result row_skynet(int64_t n)
{
    row_begin(1);
    actor_send(&sky_new(NULL, 0, n)->actor, NULL, GO, 0);
    row_wait();
    if (sky_total != n * (n - 1) / 2) {
        fprintf(stderr, "sched: skynet: a wrong sum\n");
        exit(1);
    }
    return (result){.ops = n};
}

/* ---- bytes of an idle actor that has run once ---- */

static void run_once(actor *self, const message *m)
{
    (void)self;
    (void)m;
    row_done();
}

result row_idle_bytes(int64_t n)
{
    double before = bench_resident_bytes();
    for (int64_t i = 0; i < n; i++) {
        row_begin(1);
        actor_send(actor_spawn(sizeof(actor), run_once), NULL, GO, 0);
        if (i % BURST == 0)
            row_wait();
    }
    row_wait();
    return (result){.bytes = (bench_resident_bytes() - before) / (double)n};
}
