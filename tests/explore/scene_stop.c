/* scene_stop.c - an executor that stops while transports go on: each batch of received messages
 * that is submitted to it is run once and released once, before the executor is freed. The number
 * of runs never falls meanwhile.
 * Way:     explore_main -> [scene] -> explored exec.c, borrow.c, group/inbound.c
 * Threads: as explore.h; up to two transports, and the one that stops. */
#include <string.h>
#include "base/queue.h"
#include "explore.h"
#include "group/exec.h"
#include "group/inbound.h"
#include "os/thread.h"
#include "sched/exec.h"

enum { TRANSPORTS = 2, BATCHES = 3 };

typedef struct received {
    teffi_inbound batch;
    unsigned ran, released, submitted;
    bool again; /* its run submits it once more, as the read that follows */
} received;

static teffi_exec *exec;
static received all[TRANSPORTS][BATCHES];

static void submit(received *r)
{
    r->submitted++;
    exec->ops->inbound(exec, &r->batch);
}

static void on_run(teffi_inbound *batch)
{
    received *r = teffi_container(batch, received, batch);
    explore_point("scene", "inside");
    r->ran++;
    if (r->again) {
        r->again = false;
        submit(r);
    }
}

static void on_release(teffi_inbound *batch)
{
    teffi_container(batch, received, batch)->released++;
}

static void receive(void *arg)
{
    received *mine = arg;
    uint64_t runs = 0;
    for (unsigned i = 0; i < BATCHES; i++) {
        uint64_t before = runs;
        submit(&mine[i]);
        runs = exec->ops->runs(exec);
        if (runs < before)
            explore_fail("%llu runs, before %llu", (unsigned long long)runs,
                         (unsigned long long)before);
    }
}

static void live(void *arg)
{
    explore_thread *transports[TRANSPORTS];
    (void)arg;
    if (teffi_exec_real_new(&explore_platform, 1 + explore_draw(2), &(teff_sched_options){0},
                            &exec))
        explore_fail("the executor does not start");
    for (unsigned i = 0; i < TRANSPORTS; i++)
        transports[i] = &ex.thread[explore_start("transport", receive, all[i])];
    for (uint32_t n = explore_draw(4); n > 0; n--)
        explore_back_off("scene");
    exec->ops->stop(exec);
    for (unsigned i = 0; i < TRANSPORTS; i++)
        while (transports[i]->state != EXPLORE_ENDED)
            (void)explore_wait(transports[i], UINT64_MAX);
    exec->ops->free(exec);
}

static void play(void)
{
    memset(all, 0, sizeof all);
    for (unsigned i = 0; i < TRANSPORTS * BATCHES; i++) {
        received *r = &all[i / BATCHES][i % BATCHES];
        r->batch.run = on_run;
        r->batch.release = on_release;
        r->batch.bytes = explore_draw(4) ? TEFFI_INBOUND_SHORT + 1 : 1;
        r->again = explore_draw(2);
    }
    explore_start("main", live, NULL);
    explore_run();
    for (unsigned i = 0; i < TRANSPORTS * BATCHES; i++) {
        received *r = &all[i / BATCHES][i % BATCHES];
        if (r->ran != r->submitted || r->released != r->submitted)
            explore_fail("a batch was submitted %u times, run %u, released %u times", r->submitted,
                         r->ran, r->released);
    }
}

const explore_scene explore_stop = {"stop", 1024, play};
