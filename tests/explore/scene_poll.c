/* scene_poll.c - the executor with a poller: tokens arrive from a network as events, or are pushed;
 * turns send them over the network again. No event stays unread, no push is left to itself.
 * Way:     explore_main -> [scene] -> explored poll.c, idle.c, run.c, monitor.c and all below them
 * Threads: as explore.h; two threads outside, and one that polls when asked to (neglected). */
#include <stdlib.h>
#include <string.h>
#include "base/queue.h"
#include "explore.h"
#include "group/deferred.h"
#include "sched/exec.h"
#include "sched/scheduler.h"

#define QUIET_NS 60000000u

enum { PLACES = 2, TOKENS_MAX = 4, OUTSIDERS = 2 };

typedef struct token {
    teffi_item item;
    teffi_timer timer;
    teffi_deferred write;
    teffi_inbound batch;
    unsigned hops, source;
    bool awaited;  /* a turn waits until this event is handled; it is no item */
    bool in_parts; /* the next event brings only a part of it */
} token;

typedef struct tokens {
    unsigned n;
    token *member[2 * TOKENS_MAX];
} tokens;

static struct { /* the poller, and the network behind it */
    teffi_poller poller;
    tokens arrived, kept;
    bool woken, is_used;
} net;

static teffi_exec *exec;
static teffi_group places[PLACES];
static token token_of[TOKENS_MAX], awaited;
static unsigned n_tokens, n_ended;
static bool await_used, asked, over;
static teffi_parker all_ended, handled, ticker;

static teffi_sched *sched(void)
{
    return teffi_sched_of(exec);
}

/* ---- the poller ---- */

static void arrive(token *t)
{
    explore_point("scene", "arrive");
    net.arrived.member[net.arrived.n++] = t;
    explore_notify(&net);
}

static void use_net(bool begins)
{
    if (begins && (net.is_used || !net.poller.claimed))
        explore_fail("two threads poll");
    net.is_used = begins;
}

static void net_wait(teffi_poller *poller, uint64_t timeout_ns)
{
    (void)poller;
    use_net(true);
    if (net.kept.n)
        explore_fail("events were kept, and not handled");
    explore_point("scene", "poll");
    if (!net.arrived.n && !net.woken && timeout_ns)
        (void)explore_wait(&net, timeout_ns == UINT64_MAX ? UINT64_MAX : ex.now_ns + timeout_ns);
    net.woken = false;
    net.kept = net.arrived;
    net.arrived.n = 0;
    use_net(false);
}

static void net_wake(teffi_poller *poller)
{
    (void)poller;
    net.woken = true;
    explore_notify(&net);
}

static void net_neglected(teffi_poller *poller)
{
    (void)poller;
    asked = true;
    teffi_parker_wake(&ticker);
}

static void go_on(token *t)
{
    if (!teffi_group_push(&places[explore_draw(PLACES)], &t->item))
        explore_fail("a push was refused");
}

static void on_event(token *t)
{
    explore_point("scene", "event");
    if (t->awaited) {
        t->awaited = false;
        teffi_parker_wake(&handled);
    } else if (t->in_parts) {
        t->in_parts = false;
        arrive(t);
    } else if (teffi_worker_self() && explore_draw(4) == 0) { /* else it would borrow */
        t->batch.bytes = 1;
        exec->ops->inbound(exec, &t->batch);
    } else if (explore_draw(4) == 0) {
        exec->ops->timer_set(exec, &t->timer, ex.now_ns + explore_draw(3000000));
    } else {
        go_on(t);
    }
}

static bool net_run(teffi_poller *poller)
{
    (void)poller;
    use_net(true);
    tokens kept = net.kept;
    net.kept.n = 0;
    for (unsigned i = 0; i < kept.n; i++)
        on_event(kept.member[i]);
    use_net(false);
    return kept.n;
}

/* As the link's ticker does. */
static void poll_when_asked(void *arg)
{
    (void)arg;
    while (!over) {
        teffi_parker_wait(&ticker, UINT64_MAX);
        if (!asked || over || !teffi_poller_claim(&net.poller))
            continue;
        asked = false;
        net.poller.wait(&net.poller, 0);
        (void)net.poller.run(&net.poller);
        teffi_poller_release(&net.poller);
    }
}

/* ---- turns ---- */

static void on_timer(teffi_timer *timer)
{
    go_on(teffi_container(timer, token, timer));
}

static void on_batch(teffi_inbound *batch)
{
    go_on(teffi_container(batch, token, batch));
}

static void on_release(teffi_inbound *batch)
{
    (void)batch;
}

static void on_write(teffi_deferred *work)
{
    arrive(teffi_container(work, token, write));
}

static void send_away(token *t)
{
    t->in_parts = explore_draw(4) == 0;
    if (explore_draw(2) || !exec->ops->defer(exec, &t->write))
        arrive(t);
}

static void block_a_while(void)
{
    exec->ops->blocking_begin(exec);
    (void)explore_wait(&exec, ex.now_ns + explore_draw(8000000));
    exec->ops->blocking_end(exec);
}

/* In a turn that stays until the event was handled, whoever does that. */
static void await_event(void)
{
    bool blocks = explore_draw(2);
    await_used = awaited.awaited = true;
    if (blocks)
        exec->ops->blocking_begin(exec);
    arrive(&awaited);
    while (awaited.awaited)
        teffi_parker_wait(&handled, UINT64_MAX);
    if (blocks)
        exec->ops->blocking_end(exec);
}

static void scale(void)
{
    if (teffi_exec_scale(exec, 1 + explore_draw(exec->workers)) == TEFF_E_INVALID)
        explore_fail("it does not scale");
}

/* The token is elsewhere afterwards. */
static void hop(token *t)
{
    switch (explore_draw(8)) {
    case 0:
        go_on(t);
        break;
    case 1:
        scale();
        send_away(t);
        break;
    case 2:
        if (!await_used)
            await_event();
        send_away(t);
        break;
    case 3: /* a long turn, or a system call that nobody declared */
        (void)explore_wait(t, ex.now_ns + explore_draw(30000000));
        send_away(t);
        break;
    case 4:
        t->in_parts = false;
        arrive(t);
        ex.now_ns += explore_draw(5000000);
        break;
    default:
        send_away(t);
    }
}

static void on_item(teffi_group *group, teffi_item *item)
{
    token *t = teffi_container(item, token, item);
    (void)group;
    explore_point("scene", "turn");
    if (explore_draw(8) == 0)
        block_a_while();
    if (t->hops-- > 1)
        hop(t);
    else if (++n_ended == n_tokens)
        teffi_parker_wake(&all_ended);
}

static const teffi_group_ops place_ops = {.handle = on_item};

/* ---- the threads outside ---- */

static void come_from_outside(token *t)
{
    switch (explore_draw(4)) {
    case 0:
        go_on(t);
        break;
    case 1:
        t->batch.bytes = explore_draw(2) ? TEFFI_INBOUND_SHORT + 1 : 1;
        exec->ops->inbound(exec, &t->batch); /* maybe on a borrowed processor */
        break;
    default:
        t->in_parts = explore_draw(2);
        arrive(t);
    }
}

static void rest(void)
{
    (void)explore_wait(&n_tokens, ex.now_ns + QUIET_NS); /* until the monitor sleeps, perhaps */
}

static void come(void *arg)
{
    unsigned source = *(const unsigned *)arg;
    for (unsigned i = 0; i < n_tokens; i++) {
        if (token_of[i].source != source)
            continue;
        if (explore_draw(8) == 0)
            scale();
        if (explore_draw(8) == 0)
            rest();
        come_from_outside(&token_of[i]);
    }
}

/* Called when nobody runs: an event that is unread now would stay so if the monitor slept. */
static void look_for_lost(void)
{
    if (!exec || sched()->stopping)
        return;
    bool parked = teffi_worker_latest_in_state(sched(), TEFFI_WORKER_PARKED);
    if (net.arrived.n && sched()->monitor_asleep)
        explore_fail("an event is unread while the monitor sleeps");
    if (sched()->monitor_asleep && sched()->poller && !sched()->polling)
        explore_fail("the monitor sleeps, and nobody polls");
    if (parked && teffi_runqueue_count(&sched()->queue) && !explore_limit_is_reached(sched()))
        explore_fail("lost wake-up: a worker sleeps beside work");
}

static void set_up(void)
{
    memset(&net, 0, sizeof net);
    memset(token_of, 0, sizeof token_of);
    memset(&awaited, 0, sizeof awaited);
    memset(&all_ended, 0, sizeof all_ended);
    memset(&handled, 0, sizeof handled);
    memset(&ticker, 0, sizeof ticker);
    net.poller = (teffi_poller){
        .wait = net_wait, .run = net_run, .wake = net_wake, .neglected = net_neglected};
    n_ended = 0;
    await_used = asked = over = false;
    n_tokens = 1 + explore_draw(TOKENS_MAX);
    for (unsigned i = 0; i < n_tokens; i++)
        token_of[i] = (token){.hops = 1 + explore_draw(4),
                              .source = explore_draw(OUTSIDERS),
                              .timer.fire = on_timer,
                              .write.run = on_write,
                              .batch = {.run = on_batch, .release = on_release}};
}

static void start_exec(void)
{
    unsigned workers = 1 + explore_draw(3);
    teffi_exec *made = NULL;
    if (teffi_exec_real_new(&explore_platform, workers, NULL, &made))
        explore_fail("the executor does not start");
    exec = made;
    for (unsigned i = 0; i < PLACES; i++)
        teffi_group_init(&places[i], exec, &place_ops);
    for (unsigned i = 0; i < workers; i++) /* near a look, and one at the clock */
        sched()->processors[i].tick = explore_draw(16);
    explore_limit_begin(sched());
    if (explore_draw(8) == 0)
        rest();
    exec->ops->poll(exec, &net.poller);
}

static void wait_for_end(explore_thread *thread)
{
    while (thread->state != EXPLORE_ENDED)
        (void)explore_wait(thread, UINT64_MAX);
}

static void live(void *arg)
{
    static unsigned which[OUTSIDERS] = {0, 1};
    explore_thread *outsiders[OUTSIDERS];
    (void)arg;
    start_exec();
    explore_thread *polls = &ex.thread[explore_start("ticker", poll_when_asked, NULL)];
    for (unsigned i = 0; i < OUTSIDERS; i++)
        outsiders[i] = &ex.thread[explore_start(i ? "outside 2" : "outside 1", come, &which[i])];
    while (n_ended < n_tokens)
        teffi_parker_wait(&all_ended, UINT64_MAX);
    for (unsigned i = 0; i < OUTSIDERS; i++)
        wait_for_end(outsiders[i]);
    teffi_exec *old = exec;
    exec->ops->stop(exec);
    over = true;
    teffi_parker_wake(&ticker);
    wait_for_end(polls);
    exec = NULL;
    if (net.poller.claimed || net.kept.n)
        explore_fail("the poller was not released");
    old->ops->free(old);
}

static void play(void)
{
    exec = NULL;
    set_up();
    ex.when_all_wait = look_for_lost;
    explore_start("main", live, NULL);
    explore_run();
    if (n_ended != n_tokens)
        explore_fail("%u of %u tokens ended", n_ended, n_tokens);
}

const explore_scene explore_poll = {"poll", 2048, play};
