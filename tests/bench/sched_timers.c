/* sched_timers.c - timer churn: a thousand actors set a timer of a second, let others run, and
 * cancel it. */
#include <stdio.h>
#include <stdlib.h>
#include "base/queue.h"
#include "sched_actor.h"

enum { CHURNERS = 1000 };
#define SECOND_NS 1000000000u

typedef struct churner {
    actor actor;
    teffi_timer timer;
    int64_t left;
} churner;

/* A real one would push an item; here each is cancelled long before. */
static void late(teffi_timer *timer)
{
    fprintf(stderr, "sched: timers: one fired early, due at %llu\n",
            (unsigned long long)timer->due_ns);
    exit(1);
}

static void churn(actor *self, const message *m)
{
    churner *c = (churner *)(void *)self;
    (void)m;
    (void)bench_exec->ops->timer_cancel(bench_exec, &c->timer);
    if (c->left-- == 0) {
        row_done();
        return;
    }
    bench_exec->ops->timer_set(bench_exec, &c->timer, teffi_now(&bench_platform) + SECOND_NS);
    actor_send(self, self, 0, 0);
}

result row_timers(int64_t n)
{
    row_begin(CHURNERS);
    for (int i = 0; i < CHURNERS; i++) {
        churner *c = actor_spawn(sizeof *c, churn);
        c->timer.fire = late;
        c->left = n / CHURNERS;
        actor_send(&c->actor, NULL, 0, 0);
    }
    row_wait();
    return (result){.ops = n / CHURNERS * CHURNERS};
}
