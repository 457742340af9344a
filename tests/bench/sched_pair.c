/* sched_pair.c - rows where one message moves, or one actor feeds another: ping-pong, thread ring,
 * counting. */
#include "sched_actor.h"

enum { GO, PING, PONG, NUMBER, END };

/* ---- ping-pong ---- */

typedef struct pinger {
    actor actor;
    int64_t left;
} pinger;

static void pong(actor *self, const message *m)
{
    actor_send(m->from, self, PONG, m->value);
}

static void ping(actor *self, const message *m)
{
    pinger *p = (pinger *)self;
    if (p->left-- > 0)
        actor_send(m->from, self, PING, p->left);
    else
        row_done();
}

result row_ping_pong(int64_t n)
{
    pinger *p = actor_spawn(sizeof *p, ping);
    p->left = n;
    row_begin(1);
    actor_send(&p->actor, actor_spawn(sizeof(actor), pong), PONG, 0);
    row_wait();
    return (result){.ops = n};
}

/* ---- thread ring ---- */

enum { RING = 503 };

typedef struct member {
    actor actor;
    struct member *next;
} member;

static void hop(actor *self, const message *m)
{
    if (m->value == 0)
        row_done();
    else
        actor_send(&((member *)self)->next->actor, self, PING, m->value - 1);
}

result row_ring(int64_t n)
{
    member *all[RING];
    for (int i = 0; i < RING; i++)
        all[i] = actor_spawn(sizeof *all[i], hop);
    for (int i = 0; i < RING; i++)
        all[i]->next = all[(i + 1) % RING];
    row_begin(1);
    actor_send(&all[0]->actor, NULL, PING, n);
    row_wait();
    return (result){.ops = n};
}

/* ---- counting ---- */

enum { BURST = 256 }; /* in flight at most: the counter asks for more, as a channel does */

typedef struct counter {
    actor actor;
    int64_t sum;
    int burst;
} counter;

typedef struct feeder {
    actor actor;
    counter *to;
    int64_t left;
} feeder;

static void count(actor *self, const message *m)
{
    counter *c = (counter *)self;
    if (m->item.kind == END) {
        row_done();
        return;
    }
    c->sum += m->value;
    if (++c->burst == BURST) {
        c->burst = 0;
        actor_send(m->from, self, GO, 0);
    }
}

static void feed(actor *self, const message *m)
{
    feeder *f = (feeder *)self;
    (void)m;
    for (int i = 0; i < BURST && f->left > 0; i++, f->left--)
        actor_send(&f->to->actor, self, NUMBER, 1);
    if (f->left == 0) {
        actor_send(&f->to->actor, self, END, 0);
        f->left = -1;
    }
}

result row_counting(int64_t n)
{
    feeder *f = actor_spawn(sizeof *f, feed);
    f->to = actor_spawn(sizeof *f->to, count);
    f->left = n;
    row_begin(1);
    actor_send(&f->actor, NULL, GO, 0);
    row_wait();
    return (result){.ops = f->to->sum};
}
