/* sched_process.c - rows on teff's processes, as a user would write them: ping-pong, thread ring,
 * counting, fork-join create, bytes of an idle one.
 * Threads: init and step on the process's worker; row_* outside. */
#include <stdio.h>
#include <stdlib.h>
#include <teff/process.h>
#include "resident.h"
#include "sched_actor.h"

enum { BURST = 256, RING = 503 };
enum { BIRTHS = 64 }; /* in one step of the creator; tokio's program yields as often */

static teff_process_system *processes;

static void must(teff_err err)
{
    if (!err)
        return;
    fprintf(stderr, "sched: %s\n", teff_err_name(err));
    exit(1);
}

void row_processes_open(unsigned workers)
{
    teff_process_options opt = {.size = sizeof opt, .workers = workers};
    must(teff_process_system_new(&opt, &processes));
}

void row_processes_close(void)
{
    teff_process_system_free(processes);
}

static void tell(teff_pid to, teff_pid from, uint64_t tag)
{
    must(teff_process_send(processes, to, &(teff_event){.tag = tag, .from = from}));
}

static teff_pid spawn(const teff_process_ops *ops, void *self)
{
    teff_pid pid;
    must(teff_process_spawn(processes, ops, self, NULL, NULL, 0, &pid));
    return pid;
}

/* ---- ping-pong: a tag counts down; whoever gets it sends it back ---- */

static teff_err bounce(void *self, const teff_event *events, size_t n, teff_step *out)
{
    (void)self;
    if (n == 0)
        return TEFF_OK;
    if (events[0].kind == TEFF_EVENT_CANCEL)
        return teff_step_done(out);
    if (events[0].tag == 0) {
        row_done();
        return teff_step_done(out);
    }
    tell(events[0].from, teff_process_pid(teff_step_process(out)), events[0].tag - 1);
    return TEFF_OK;
}

static const teff_process_ops bouncer = {.name = "bouncer", .step = bounce};

result row_process_ping_pong(int64_t n)
{
    teff_pid ping = spawn(&bouncer, NULL), pong = spawn(&bouncer, NULL);
    row_begin(1);
    tell(pong, ping, 2 * (uint64_t)n);
    row_wait();
    (void)teff_process_cancel(processes, ping);
    (void)teff_process_cancel(processes, pong);
    return (result){.ops = n};
}

/* ---- thread ring ---- */

static teff_err hop(void *self, const teff_event *events, size_t n, teff_step *out)
{
    const teff_pid *next = self;
    if (n == 0)
        return TEFF_OK;
    if (events[0].kind == TEFF_EVENT_CANCEL)
        return teff_step_done(out);
    if (events[0].tag == 0)
        row_done();
    else
        tell(*next, (teff_pid){0}, events[0].tag - 1);
    return TEFF_OK;
}

static const teff_process_ops member = {.name = "member", .step = hop};

result row_process_ring(int64_t n)
{
    teff_pid all[RING + 1];
    for (int i = 0; i < RING; i++)
        all[i] = spawn(&member, &all[i + 1]);
    all[RING] = all[0];
    row_begin(1);
    tell(all[0], (teff_pid){0}, (uint64_t)n);
    row_wait();
    for (int i = 0; i < RING; i++)
        (void)teff_process_cancel(processes, all[i]);
    return (result){.ops = n};
}

/* ---- counting ---- */

typedef struct counting {
    teff_pid counter, feeder;
    int64_t left, n, sum, asked;
} counting;

static teff_err count(void *self, const teff_event *events, size_t n, teff_step *out)
{
    counting *c = self;
    for (size_t i = 0; i < n; i++)
        c->sum += (int64_t)events[i].tag;
    for (; c->sum >= c->asked + BURST && c->asked + BURST < c->n; c->asked += BURST)
        tell(c->feeder, (teff_pid){0}, 0);
    if (c->sum < c->n)
        return TEFF_OK;
    row_done();
    return teff_step_done(out);
}

static teff_err feed(void *self, const teff_event *events, size_t n, teff_step *out)
{
    counting *c = self;
    (void)events;
    if (n == 0) /* not asked yet */
        return TEFF_OK;
    for (int i = 0; i < BURST && c->left > 0; i++, c->left--)
        tell(c->counter, (teff_pid){0}, 1);
    if (c->left > 0)
        return TEFF_OK;
    row_done();
    return teff_step_done(out);
}

static const teff_process_ops counter = {.name = "counter", .step = count};
static const teff_process_ops feeder = {.name = "feeder", .step = feed};

result row_process_counting(int64_t n)
{
    counting c = {.left = n, .n = n};
    row_begin(2); /* both are through with it */
    c.counter = spawn(&counter, &c);
    c.feeder = spawn(&feeder, &c);
    tell(c.feeder, (teff_pid){0}, 0);
    row_wait();
    return (result){.ops = c.sum};
}

/* ---- fork-join create ---- */

static _Atomic int64_t unborn;

static teff_err live_once(void *self, const teff_event *events, size_t n, teff_step *out)
{
    (void)self;
    (void)events;
    if (n == 0)
        return TEFF_OK;
    if (atomic_fetch_sub_explicit(&unborn, 1, memory_order_relaxed) == 1)
        row_done();
    return teff_step_done(out);
}

static const teff_process_ops child = {.name = "child", .step = live_once};

static teff_err create(void *self, const teff_event *events, size_t n, teff_step *out)
{
    int64_t *left = self;
    (void)events;
    (void)n;
    for (int i = 0; i < BIRTHS && left[0] > 0; i++, left[0]--) {
        teff_pid pid;
        teff_err err = teff_process_spawn(processes, &child, NULL, NULL, NULL, 0, &pid);
        if (err == TEFF_E_OVERLOADED) /* a million live: again when some had their turn */
            break;
        must(err);
        tell(pid, (teff_pid){0}, 0);
    }
    return left[0] > 0 ? teff_step_continue(out) : teff_step_done(out);
}

static const teff_process_ops creator = {.name = "creator", .step = create};

result row_process_create(int64_t n)
{
    int64_t left = n;
    atomic_store_explicit(&unborn, n, memory_order_relaxed);
    row_begin(1);
    (void)spawn(&creator, &left);
    row_wait();
    return (result){.ops = n};
}

/* ---- bytes of an idle process ---- */

static teff_err rest(void *self, const teff_event *events, size_t n, teff_step *out)
{
    (void)self;
    (void)events;
    if (n > 0)
        return teff_step_done(out); /* cancelled */
    row_done();
    return TEFF_OK;
}

static const teff_process_ops idler = {.name = "idler", .step = rest};

result row_process_idle_bytes(int64_t n)
{
    double before = bench_resident_bytes();
    for (int64_t i = 0; i < n; i++) {
        row_begin(1);
        (void)spawn(&idler, NULL);
        row_wait();
    }
    return (result){.bytes = (bench_resident_bytes() - before) / (double)n};
}
