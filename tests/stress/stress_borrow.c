/* stress_borrow.c - few tokens, so that workers sleep most of the time, and threads outside that
 * bring every other hop in as received batches, mostly with a borrowed processor. In turns: timers,
 * blocking regions, turns so long that the processor is retaken, other numbers of workers; and the
 * executor is stopped and made anew all the time. Each hop counts once, no group runs twice at a
 * time, nobody hangs, some batches run with a borrowed processor.
 * usage: stress_borrow [seconds [workers]] */
#include <stdio.h>
#include <stdlib.h>
#include "base/hash.h"
#include "base/queue.h"
#include "os/thread.h"
#include "sched/borrow.h"
#include "sched/exec.h"
#include "sched/scheduler.h"

enum { GROUPS = 6, TOKENS = 5, HOPS = 2000, OUTSIDERS = 3 };
#define HANG_NS 180000000000u

typedef struct place {
    teffi_group group;
    _Atomic bool inside;
    uint64_t handled; /* plain on purpose: only the running worker may touch it */
} place;

typedef struct token {
    teffi_item item;
    teffi_timer timer;
    teffi_inbound batch; /* of this token alone */
    uint64_t rng;
    unsigned hops;
    place *next; /* where its timer, or a borrower, will push it */
} token;

typedef struct outsider {
    teffi_thread thread;
    teffi_parker parker;
    token *_Atomic box; /* to be brought in */
} outsider;

static teffi_platform platform;
static teffi_exec *exec;
static place places[GROUPS];
static token tokens[TOKENS];
static outsider outside[OUTSIDERS];
static _Atomic uint32_t arrived, errors, borrows, refused;
static _Atomic bool over;
static teffi_parker done;
static unsigned workers_max;

static void go_to(token *t)
{
    if (!teffi_group_push(&t->next->group, &t->item))
        atomic_fetch_add(&errors, 1);
}

static void on_timer(teffi_timer *timer)
{
    go_to(teffi_container(timer, token, timer));
}

static void bring(void *arg)
{
    go_to(arg);
}

static void run_batch(teffi_inbound *batch)
{
    atomic_fetch_add(exec->ops->worker(exec) ? &borrows : &refused, 1);
    go_to(teffi_container(batch, token, batch));
}

static void release_batch(teffi_inbound *batch)
{
    (void)batch;
}

static void outsider_main(void *arg)
{
    outsider *o = arg;
    while (!atomic_load(&over)) {
        teffi_parker_wait(&o->parker, 1000000);
        token *t = atomic_exchange(&o->box, NULL);
        if (!t)
            continue;
        t->batch.bytes = t->rng % (2 * TEFFI_INBOUND_SHORT);
        exec->ops->inbound(exec, &t->batch);
    }
}

/* out: false: that one is busy. */
static bool send_out(token *t, uint64_t draw)
{
    outsider *o = &outside[draw % OUTSIDERS];
    token *none = NULL;
    if (!atomic_compare_exchange_strong(&o->box, &none, t))
        return false;
    teffi_parker_wake(&o->parker);
    return true;
}

static void block_a_while(uint64_t draw)
{
    exec->ops->blocking_begin(exec);
    for (unsigned i = 0; i < draw % 8; i++)
        teffi_thread_yield();
    exec->ops->blocking_end(exec);
}

static void compute(uint64_t ns)
{
    uint64_t end_ns = teffi_now(&platform) + ns;
    while (teffi_now(&platform) < end_ns)
        teffi_cpu_relax();
}

static void hop(token *t)
{
    t->rng = teffi_mix64(t->rng + 1);
    uint64_t draw = t->rng;
    t->next = &places[draw % GROUPS];
    switch (draw >> 59) {
    case 0:
        exec->ops->timer_set(exec, &t->timer, teffi_now(&platform) + draw % 500000);
        return;
    case 1:
        block_a_while(draw >> 8);
        break;
    case 2:
        if (exec->ops->scale(exec, 1 + (unsigned)(draw >> 8) % workers_max))
            atomic_fetch_add(&errors, 1);
        break;
    case 3:
        if ((draw >> 8) % 128 == 0)
            compute(20000000);
        break;
    default:
        if (draw >> 63 && send_out(t, draw >> 8))
            return;
        break;
    }
    go_to(t);
}

static void on_item(teffi_group *group, teffi_item *item)
{
    place *p = teffi_container(group, place, group);
    token *t = teffi_container(item, token, item);
    if (atomic_exchange_explicit(&p->inside, true, memory_order_relaxed))
        atomic_fetch_add(&errors, 1);
    p->handled++;
    if (t->hops-- > 1)
        hop(t); /* from here on the token is elsewhere */
    else if (atomic_fetch_add(&arrived, 1) + 1 == TOKENS)
        teffi_parker_wake(&done);
    atomic_store_explicit(&p->inside, false, memory_order_relaxed);
}

static const teffi_group_ops ops = {.handle = on_item};

static void prepare(uint64_t seed)
{
    atomic_store(&arrived, 0);
    atomic_store(&over, false);
    for (unsigned i = 0; i < GROUPS; i++) {
        places[i] = (place){.handled = 0};
        teffi_group_init(&places[i].group, exec, &ops);
    }
    for (unsigned i = 0; i < TOKENS; i++)
        tokens[i] = (token){.timer.fire = on_timer,
                            .batch = {.run = run_batch, .release = release_batch},
                            .rng = teffi_mix64(seed + i),
                            .hops = HOPS,
                            .next = &places[i % GROUPS]};
}

static void wait_for_all(uint64_t seed)
{
    uint64_t end_ns = teffi_now(&platform) + HANG_NS;
    while (atomic_load(&arrived) < TOKENS && teffi_now(&platform) < end_ns)
        teffi_parker_wait(&done, HANG_NS);
    if (atomic_load(&arrived) == TOKENS)
        return;
    printf("stress_borrow: FAILED: hangs with %u of %d tokens arrived, seed %llu\n",
           atomic_load(&arrived), TOKENS, (unsigned long long)seed);
    abort(); /* leaves the hung state to look at */
}

/* With nothing to do the workers sleep soon. Later, on a busy machine, none may ever do when an
 * outsider comes. */
static void borrow_surely(token *t)
{
    uint64_t end_ns = teffi_now(&platform) + HANG_NS;
    bool did;
    while (!(did = teffi_borrow_processor_and_run(exec, bring, t)) && teffi_now(&platform) < end_ns)
        teffi_thread_yield();
    if (did)
        atomic_fetch_add(&borrows, 1);
    else
        go_to(t);
}

/* out: false: something was lost or doubled. */
static bool one_round(uint64_t seed)
{
    uint64_t handled = 0;
    if (teffi_exec_real_new(&platform, workers_max, NULL, &exec))
        return false;
    prepare(seed);
    for (unsigned i = 0; i < OUTSIDERS; i++)
        if (teffi_thread_start(&outside[i].thread, "outsider", outsider_main, &outside[i]))
            exit(2);
    borrow_surely(&tokens[0]);
    for (unsigned i = 1; i < TOKENS; i++)
        go_to(&tokens[i]);
    wait_for_all(seed);
    exec->ops->stop(exec); /* beside a borrower that has not gone yet, perhaps */
    atomic_store(&over, true);
    for (unsigned i = 0; i < OUTSIDERS; i++)
        teffi_thread_join(&outside[i].thread);
    exec->ops->free(exec);
    for (unsigned i = 0; i < GROUPS; i++)
        handled += places[i].handled;
    return handled == (uint64_t)TOKENS * HOPS && !atomic_load(&errors);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 2;
    unsigned rounds = 0;
    bool ok = true;
    workers_max = argc > 2 ? (unsigned)atoi(argv[2]) : 3;
    teffi_platform_init_real(&platform, TEFF_LOG_INFO);
    uint64_t seed = platform.random(NULL);
    uint64_t end_ns = teffi_now(&platform) + (uint64_t)(seconds * 1e9);
    do
        ok = one_round(seed + rounds++);
    while (ok && teffi_now(&platform) < end_ns);
    ok = ok && atomic_load(&borrows) >= rounds;
    printf(
        "stress_borrow: %s: seed %llu, %u rounds of %d hops, %u workers, %u borrows, %u refused, "
        "%u errors\n",
        ok ? "ok" : "FAILED", (unsigned long long)seed, rounds, TOKENS * HOPS, workers_max,
        atomic_load(&borrows), atomic_load(&refused), atomic_load(&errors));
    return ok ? 0 : 1;
}
