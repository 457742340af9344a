/* sched_many.c - rows where many actors talk at once: fork-join throughput, big, chameneos. */
#include "sched_actor.h"

enum { GO, PING, PONG, END };

/* ---- fork-join throughput: one feeds sixty ---- */

enum { JOINERS = 60, BURST = 2 };

typedef struct joiner {
    actor actor;
    int64_t left;
} joiner;

typedef struct forker {
    actor actor;
    joiner **to;
    int64_t left;
} forker;

static void join(actor *self, const message *m)
{
    (void)m;
    if (--((joiner *)self)->left == 0)
        row_done();
}

static void fork_out(actor *self, const message *m)
{
    forker *f = (forker *)self;
    (void)m;
    for (int i = 0; i < BURST && f->left > 0; i++, f->left--)
        for (int k = 0; k < JOINERS; k++)
            actor_send(&f->to[k]->actor, self, PING, i);
    if (f->left > 0)
        actor_send(self, self, GO, 0);
}

result row_fork_join_throughput(int64_t n)
{
    joiner *all[JOINERS];
    forker *f = actor_spawn(sizeof *f, fork_out);
    for (int i = 0; i < JOINERS; i++) {
        all[i] = actor_spawn(sizeof *all[i], join);
        all[i]->left = n / JOINERS;
    }
    f->to = all;
    f->left = n / JOINERS;
    row_begin(JOINERS);
    actor_send(&f->actor, NULL, GO, 0);
    row_wait();
    return (result){.ops = n / JOINERS * JOINERS};
}

/* ---- big: each asks random others, one question at a time ---- */

enum { BIG = 120 };

typedef struct asker {
    actor actor;
    int64_t left;
    int64_t draw;
} asker;

static asker *askers[BIG];

static void ask(asker *a)
{
    if (a->left-- == 0) {
        row_done();
        return;
    }
    a->draw = a->draw * 16807 % 2147483647;
    actor_send(&askers[(a->draw >> 8) % BIG]->actor, &a->actor, PING, 0);
}

static void asked(actor *self, const message *m)
{
    if (m->item.kind == PING)
        actor_send(m->from, self, PONG, 0);
    else
        ask((asker *)self);
}

result row_big(int64_t n)
{
    for (int i = 0; i < BIG; i++) {
        askers[i] = actor_spawn(sizeof *askers[i], asked);
        askers[i]->left = n / BIG;
        askers[i]->draw = i * 7919 + 1;
    }
    row_begin(BIG);
    for (int i = 0; i < BIG; i++)
        actor_send(&askers[i]->actor, NULL, PONG, 0);
    row_wait();
    return (result){.ops = n / BIG * BIG};
}

/* ---- chameneos: a hundred creatures meet two by two in one mall ---- */

enum { CREATURES = 100 };

typedef struct mall {
    actor actor;
    actor *waits;
    int64_t colour;
    int64_t left;
} mall;

typedef struct creature {
    actor actor;
    actor *mall;
    int64_t colour;
} creature;

static void meet(actor *self, const message *m)
{
    mall *place = (mall *)(void *)self;
    if (place->left == 0) {
        row_done();
        return;
    }
    if (!place->waits) {
        place->waits = m->from;
        place->colour = m->value;
        return;
    }
    actor_send(place->waits, self, PONG, m->value);
    actor_send(m->from, self, PONG, place->colour);
    place->waits = NULL;
    place->left--;
}

static void change(actor *self, const message *m)
{
    creature *c = (creature *)self;
    if (m->item.kind == PONG && m->value != c->colour)
        c->colour = 3 - c->colour - m->value;
    actor_send(c->mall, self, PING, c->colour);
}

/* Ends when each creature asked for a meeting in vain. */
result row_chameneos(int64_t n)
{
    mall *place = actor_spawn(sizeof *place, meet);
    place->left = n;
    row_begin(CREATURES);
    for (int i = 0; i < CREATURES; i++) {
        creature *c = actor_spawn(sizeof *c, change);
        c->mall = &place->actor;
        c->colour = i % 3;
        actor_send(&c->actor, NULL, GO, 0);
    }
    row_wait();
    return (result){.ops = n};
}
