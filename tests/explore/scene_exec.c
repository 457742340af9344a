/* scene_exec.c - the whole executor: workers, monitor, blocking regions, timers and two threads
 * outside; tokens hop from group to group until all have arrived. No work is left to itself while a
 * worker sleeps.
 * Way:     explore_main -> [scene] -> explored exec.c and all below it
 * Threads: as explore.h. */
#include <stdlib.h>
#include <string.h>
#include <teff/fork.h>
#include "base/bug.h"
#include "base/queue.h"
#include "explore.h"
#include "group/closure.h"
#include "fork/fork.h"
#include "group/direct.h"
#include "sched/borrow.h"
#include "sched/exec.h"
#include "sched/scheduler.h"
#include "sched/submit.h"

#define QUIET_NS 60000000u

enum { PLACES = 3, AIDS = 3, TOKENS_MAX = 6, OUTSIDERS = 2 };

typedef struct place {
    teffi_group group;
    bool inside;
    unsigned next_number[OUTSIDERS]; /* of each thread outside, at least this comes next */
} place;

typedef struct token {
    teffi_item item;
    teffi_timer timer;
    teffi_deferred deferred;
    teffi_inbound batch;     /* of this token alone */
    unsigned source, number; /* which thread outside pushed it first, as which of its own */
    unsigned hops;
    bool fresh;  /* not handled yet */
    bool anew;   /* put it off once more when it comes */
    place *next; /* where its timer, or deferred work, will push it */
} token;

typedef struct cabin { /* a group that is run once and freed when it has ended; maybe on a stack */
    teffi_group group;
    token *guest;
    teff_join join;
} cabin;

typedef struct aid { /* what a turn that is stuck waits for */
    teffi_group group;
    teffi_item item;
    bool done;
} aid;

typedef struct batch { /* tokens that come together; in a thread outside, then in a turn */
    teffi_group group;
    teffi_item item;
    unsigned n;
    token *member[TOKENS_MAX];
} batch;

static struct { /* a group whose turns run in place only */
    teffi_group group;
    teffi_yielded_turn gave;
    token *guest;
} room;

static teffi_exec *exec;
static place places[PLACES];
static token tokens[TOKENS_MAX];
static aid aids[AIDS];
static batch batches[OUTSIDERS];
static teffi_worker *keepers[PLACES]; /* who brought something to each slot last */
static unsigned open_aids;            /* of the first ones: others may take them */
static unsigned n_places, n_tokens, n_arrived, n_cabins, n_batches, n_submitted;
static uint32_t plain_of_16, visits_of_4, batches_of_4;
static bool stuck_used, threads_enough; /* there is one more whenever the executor wants one */
static teffi_parker all_arrived, aided;

static teffi_sched *sched(void)
{
    return teffi_sched_of(exec);
}

/* Evicted groups are run at once; here nothing is to be lost. */
static bool keep_it(teffi_group *group, teffi_item *item)
{
    (void)group;
    (void)item;
    return false;
}

/* ---- hops ---- */

static void go_to(token *t, place *p)
{
    if (!teffi_group_push(&p->group, &t->item))
        explore_fail("a push was refused");
}

static void on_timer(teffi_timer *timer)
{
    token *t = teffi_container(timer, token, timer);
    go_to(t, t->next);
}

static void on_deferred(teffi_deferred *work)
{
    token *t = teffi_container(work, token, deferred);
    if (!t->anew || !exec->ops->defer(exec, &t->deferred))
        go_to(t, t->next);
    t->anew = false;
}

static void enter(place *p)
{
    if (p->inside)
        explore_fail("two run a group at once");
    p->inside = true;
    explore_point("scene", "inside");
}

static void leave(place *p)
{
    explore_point("scene", "inside");
    p->inside = false;
}

static void block_a_while(void)
{
    bool public = explore_draw(2); /* asks this thread's worker for the executor */
    if (public)
        teff_blocking_begin();
    else
        exec->ops->blocking_begin(exec);
    for (uint32_t n = explore_draw(4); n > 0; n--)
        explore_back_off("scene");
    if (explore_draw(2))
        (void)explore_wait(&exec, ex.now_ns + explore_draw(3000000));
    if (public && explore_draw(3) == 0)
        teffi_blocking_end_all(); /* as a turn that ends here does */
    else if (public)
        teff_blocking_end();
    else
        exec->ops->blocking_end(exec);
    if (explore_draw(2)) /* with a slot that may have been another's */
        (void)explore_wait(&exec, ex.now_ns + explore_draw(30000000));
}

/* In place of this turn, when that may be. */
static void visit_by_claim(place *p)
{
    bool direct = teffi_direct_may_run_in_place(exec, explore_draw(2));
    if (!teffi_group_claim(&p->group))
        return;
    teffi_group *outer = direct ? teffi_direct_enter(exec, &p->group) : NULL;
    enter(p);
    leave(p);
    if (direct) {
        teffi_direct_leave(exec, outer);
        teffi_direct_end_claim(exec, &p->group);
    } else {
        teffi_group_release_claim(&p->group);
    }
}

/* A turn in place that yields in its middle: its guest goes on when it does. */
static bool wait_in_room(token *t)
{
    if (!teffi_direct_may_run_in_place(exec, false) || !teffi_group_claim(&room.group))
        return false;
    teffi_group *outer = teffi_direct_enter(exec, &room.group);
    if (exec->ops->current(exec) != &room.group || room.guest)
        explore_fail("two turns of a room at once");
    room.guest = t;
    explore_point("scene", "room");
    teffi_group_prepend_yielded_turn(&room.group, &room.gave);
    teffi_direct_leave(exec, outer);
    teffi_direct_end_claim(exec, &room.group);
    return true;
}

static void room_goes_on(teffi_group *group, struct teffi_fiber *fiber)
{
    token *t = room.guest;
    (void)group;
    (void)fiber;
    if (!t)
        explore_fail("a room goes on twice");
    room.guest = NULL;
    go_to(t, &places[explore_draw(n_places)]);
}

static void nothing_comes(teffi_group *group, teffi_item *item)
{
    (void)group;
    (void)item;
    explore_fail("an item of nobody's");
}

static const teffi_group_ops room_ops = {.handle = nothing_comes, .resume = room_goes_on};

static void on_aid(teffi_group *group, teffi_item *item)
{
    (void)item;
    explore_point("scene", "aid");
    teffi_container(group, aid, group)->done = true;
    teffi_parker_wake(&aided);
}

static const teffi_group_ops aid_ops = {.handle = on_aid};

typedef struct some_aids {
    unsigned from, to;
} some_aids;

static void push_aids(void *arg)
{
    const some_aids *some = arg;
    for (unsigned i = some->from; i < some->to; i++)
        (void)teffi_group_push(&aids[i].group, &aids[i].item);
}

/* What this turn makes READY is kept by its worker for a while. */
static void note_keeper(void)
{
    teffi_worker *w = teffi_worker_self();
    if (w && w->processor) /* it may be about to be retaken, or be kept after all */
        keepers[w->processor - sched()->processors] = w;
}

static void bring(void (*fn)(void *arg), void *arg)
{
    note_keeper();
    teffi_call_adding_to_batch(exec, fn, arg);
}

/* The turn waits, on its worker's stack, for groups that it made READY itself: the first lie in
 * the worker's deque then, the last in its next slot. Others must take them: the monitor sees to it
 * where they were brought. */
static void get_stuck(void)
{
    unsigned n = 1 + explore_draw(AIDS), for_which = explore_draw(n);
    bool helps = explore_draw(2);
    some_aids plain = {0, explore_draw(3) ? 1 + explore_draw(n) : 0}, rest = {plain.to, n};
    stuck_used = true;
    push_aids(&plain);
    open_aids = plain.to ? plain.to - 1 : 0;
    bring(push_aids, &rest);
    while (!aids[for_which].done)
        if (!helps || !exec->ops->run_nested(exec))
            teffi_parker_wait(&aided, UINT64_MAX);
}

static void hop(token *t);
static void scale(void);

static void in_cabin(teffi_group *group, teffi_item *item)
{
    cabin *c = teffi_container(group, cabin, group);
    (void)item;
    teffi_group_complete(group);
    hop(c->guest);
}

/* ---- turns with a stack of their own ---- */

/* By itself, or as if the monitor had seen this turn for long. */
static void give_way(void)
{
    teffi_worker *w = teffi_worker_self();
    if (explore_draw(4) == 0) {
        (void)teff_yield();
        return;
    }
    explore_flush(ex.current);
    w->preempt = 1;
    (void)teff_yield_if_due();
}

static void in_part(void *arg)
{
    (void)arg;
    explore_point("scene", "part");
    if (explore_draw(4) == 0)
        give_way();
}

static void fork_and_join(cabin *c)
{
    for (uint32_t n = 1 + explore_draw(3); n > 0; n--)
        teff_fork(&c->join, explore_draw(2) ? TEFF_STEAL_CHILD : TEFF_STEAL_CONTINUATION, in_part,
                  c);
    if (explore_draw(4) == 0)
        give_way();
    if (explore_draw(4) == 0)
        teffi_joins_wait(); /* as a turn that ends here does */
    teff_join_wait(&c->join);
}

/* As many turns in place as one run may have: then it yields, if it can. */
static void visit_often(place *p)
{
    teffi_worker *w = teffi_worker_self();
    (void)teffi_direct_may_run_in_place(exec, false); /* this run's count begins */
    w->direct.count = TEFFI_DIRECT_MAX - explore_draw(2);
    visit_by_claim(p);
    visit_by_claim(p);
}

static void on_stack(void *arg)
{
    cabin *c = arg;
    switch (explore_draw(6)) {
    case 0:
        give_way();
        break;
    case 1:
        fork_and_join(c);
        break;
    case 2:
        block_a_while();
        break;
    case 3: {
        teff_preemptible region = teff_preemptible_begin();
        explore_point("scene", "region");
        if (explore_draw(2))
            (void)explore_wait(c, ex.now_ns + explore_draw(30000000));
        teff_preemptible_end(region);
        break;
    }
    case 4:
        visit_often(&places[explore_draw(n_places)]);
        break;
    default:
        break;
    }
    hop(c->guest);
}

static void stack_goes_on(teffi_group *group, teffi_fiber *fiber)
{
    if (explore_stack_resume((explore_stack *)(void *)fiber))
        teffi_group_complete(group);
}

static void in_cabin_on_stack(teffi_group *group, teffi_item *item)
{
    cabin *c = teffi_container(group, cabin, group);
    (void)item;
    stack_goes_on(group, (teffi_fiber *)(void *)explore_stack_new(on_stack, c));
}

static void free_cabin(teffi_group *group)
{
    n_cabins--;
    explore_free(teffi_container(group, cabin, group));
}

static const teffi_group_ops cabin_ops = {.handle = in_cabin, .ended = free_cabin};
static const teffi_group_ops stack_ops = {
    .handle = in_cabin_on_stack, .ended = free_cabin, .resume = stack_goes_on};

static void go_to_cabin(token *t)
{
    cabin *c = calloc(1, sizeof *c);
    teffi_bug_if(!c);
    n_cabins++;
    c->guest = t;
    teffi_group_init(&c->group, exec, explore_draw(2) ? &cabin_ops : &stack_ops);
    (void)teffi_group_push(&c->group, &t->item);
}

/* ---- closures ---- */

static void on_closure(void *arg)
{
    token *t = arg;
    if (exec->ops->current(exec) != &exec->null_group)
        explore_fail("a closure runs in another group");
    go_to(t, &places[explore_draw(n_places)]);
}

static void go_by_closure(token *t)
{
    if (teffi_closure_push(&exec->null_group, on_closure, t))
        explore_fail("a closure was refused");
}

/* ---- looking ---- */

static void on_line(void *arg, const char *line)
{
    (void)arg;
    explore_note("%s", line);
}

static void look_around(void)
{
    teff_sched_metrics all;
    teff_sched_worker one[PLACES];
    exec->ops->dump(exec, on_line, NULL);
    if (teffi_exec_metrics(exec, &all, one, PLACES) != exec->workers)
        explore_fail("not all workers are counted");
    if (exec->ops->worker(exec) > exec->workers)
        explore_fail("there is no such worker");
}

static void scale(void)
{
    if (teffi_exec_scale(exec, 1 + explore_draw(exec->workers)) == TEFF_E_INVALID)
        explore_fail("it does not scale");
}

/* out: false: it fires, or has fired. */
static bool sets_and_cancels(token *t)
{
    exec->ops->timer_set(exec, &t->timer, ex.now_ns + explore_draw(3000000));
    return explore_draw(4) == 0 && exec->ops->timer_cancel(exec, &t->timer);
}

/* The token is elsewhere afterwards. */
static void hop(token *t)
{
    place *to = &places[explore_draw(n_places)];
    switch (explore_draw(16) < plain_of_16 ? 0 : explore_draw(12)) {
    case 1:
        t->next = to;
        if (!sets_and_cancels(t))
            return;
        break;
    case 10:
        go_by_closure(t);
        return;
    case 11:
        if (explore_draw(4) == 0)
            look_around();
        break;
    case 2:
        block_a_while();
        break;
    case 3: /* twice, and the quantum is used up; very long: a share of levels is looked at */
        ex.now_ns += explore_draw(8) ? 60000000 : 1200000000;
        break;
    case 4:
        go_to_cabin(t);
        return;
    case 5:
        if (explore_draw(4) == 0 && wait_in_room(t))
            return;
        visit_by_claim(&places[explore_draw(n_places)]);
        break;
    case 7:
        scale();
        break;
    case 6:
        if (!stuck_used && (exec->workers > 1 || threads_enough))
            get_stuck();
        break;
    case 8: /* a system call that nobody declared */
        (void)explore_wait(t, ex.now_ns + explore_draw(30000000));
        break;
    case 9:
        t->next = to;
        t->anew = explore_draw(2); /* before: who does it may be the monitor, at once */
        if (exec->ops->defer(exec, &t->deferred))
            return;
        break;
    default:
        break;
    }
    go_to(t, to);
}

static void throw_out(void *arg)
{
    batch *b = arg;
    for (unsigned i = 0; i < b->n; i++)
        go_to(b->member[i], &places[explore_draw(n_places)]);
}

/* As a transport's turn does: some tokens at once. What it does then is the batch's bad luck. */
static void on_batch(teffi_group *group, teffi_item *item)
{
    batch *b = teffi_container(group, batch, group);
    (void)item;
    explore_point("scene", "batch");
    bring(throw_out, b);
    switch (explore_draw(8)) {
    case 1:
        block_a_while();
        break;
    case 2:
        (void)explore_wait(b, ex.now_ns + explore_draw(30000000));
        break;
    case 3:
        scale();
        break;
    case 4:
        if (!stuck_used && (exec->workers > 1 || threads_enough))
            get_stuck();
        break;
    case 5:
        ex.now_ns += 60000000;
        break;
    default:
        break;
    }
    n_batches--;
    teffi_parker_wake(&all_arrived);
}

static const teffi_group_ops batch_ops = {.handle = on_batch, .evict = keep_it};

static void in_order(place *p, token *t)
{
    if (!t->fresh)
        return;
    t->fresh = false;
    if (t->number < p->next_number[t->source])
        explore_fail("token %u of outsider %u comes too late", t->number, t->source);
    p->next_number[t->source] = t->number + 1;
}

static void on_item(teffi_group *group, teffi_item *item)
{
    place *p = teffi_container(group, place, group);
    token *t = teffi_container(item, token, item);
    enter(p);
    in_order(p, t);
    if (t->hops-- > 1)
        hop(t);
    else if (++n_arrived == n_tokens)
        teffi_parker_wake(&all_arrived);
    leave(p);
}

static const teffi_group_ops place_ops = {.handle = on_item, .evict = keep_it};

/* ---- the threads outside ---- */

/* A timer set outside falls to some slot, whose worker may sleep. */
static void by_timer(token *t, place *to)
{
    t->fresh = false; /* timers have an order of their own */
    t->next = to;
    exec->ops->timer_set(exec, &t->timer, ex.now_ns + explore_draw(3000000));
}

static void throw_one(teffi_inbound *batch)
{
    note_keeper();
    go_to(teffi_container(batch, token, batch), &places[explore_draw(n_places)]);
}

static void count_release(teffi_inbound *batch)
{
    n_submitted -= batch != NULL;
}

/* As a transport does; and nobody comes for it in time, perhaps. */
static void by_inbound(token *t)
{
    t->batch.bytes = explore_draw(2) ? TEFFI_INBOUND_SHORT + 1 : 1;
    t->fresh &= t->batch.bytes == 1; /* others may pass it where it is queued */
    n_submitted++;
    exec->ops->inbound(exec, &t->batch);
    uint64_t late_ns = ex.now_ns + 60000000;
    if (explore_draw(4) == 0 && teffi_inbound_is_overdue(&t->batch, late_ns) &&
        teffi_inbound_take_back(&t->batch, late_ns))
        throw_one(&t->batch);
}

/* All that this thread has left, from the i-th token on, come together. */
static void by_batch(unsigned mine, unsigned i)
{
    batch *b = &batches[mine];
    n_batches++;
    for (; i < n_tokens; i++) {
        if (tokens[i].source != mine)
            continue;
        tokens[i].fresh = false; /* others of its are on their way to the same place */
        b->member[b->n++] = &tokens[i];
    }
    if (!teffi_group_push(&b->group, &b->item))
        explore_fail("a batch was refused");
}

static void throw_in(void *arg)
{
    unsigned mine = *(unsigned *)arg;
    for (unsigned i = 0; i < n_tokens; i++) {
        place *to = &places[explore_draw(n_places)];
        if (tokens[i].source != mine)
            continue;
        if (explore_draw(4) < batches_of_4) {
            by_batch(mine, i);
            return;
        }
        if (visits_of_4 && explore_draw(4) < visits_of_4)
            by_inbound(&tokens[i]);
        else if (explore_draw(16) < plain_of_16)
            go_to(&tokens[i], to);
        else
            by_timer(&tokens[i], to);
    }
}

/* In a turn that is stuck: the monitor comes by. Nobody keeps what another one has brought, nor
 * what others were told of. */
static bool is_kept(const teffi_processor *p)
{
    if (!p->no_steal || !p->worker || p->worker->state != TEFFI_WORKER_RUNNING)
        return false;
    for (unsigned i = 0; i < open_aids; i++)
        if (!aids[i].done && teffi_group_state_of(&aids[i].group) == TEFFI_GROUP_READY)
            return false;
    return p->worker == keepers[p - sched()->processors];
}

/* Called when nobody runs: what is READY now would stay so. The hand-off of a turn that is stuck is
 * another matter: the monitor comes by and opens it. */
static void look_for_lost(void)
{
    if (!exec || sched()->stopping)
        return;
    bool work = !sched()->system.running && teffi_runqueue_count(&sched()->system_queue);
    bool parked = teffi_worker_latest_in_state(sched(), TEFFI_WORKER_PARKED);
    bool wakes = parked && !explore_limit_is_reached(sched());
    work |= wakes && teffi_runqueue_count(&sched()->queue);
    for (unsigned i = 0; parked && i < sched()->n_processors; i++) {
        teffi_processor *p = &sched()->processors[i];
        work |= wakes && teffi_deque_count(&p->deque) != 0 && !is_kept(p);
        work |= p->deferral.list && (!p->worker || p->worker->state == TEFFI_WORKER_PARKED);
        work |= p->lifo && p->worker && p->worker->state == TEFFI_WORKER_PARKED;
    }
    if (work)
        explore_fail("lost wake-up: a worker sleeps beside work");
}

static void set_up_groups(void)
{
    memset(places, 0, sizeof places);
    memset(aids, 0, sizeof aids);
    memset(batches, 0, sizeof batches);
    memset(&room, 0, sizeof room);
    teffi_group_init(&room.group, exec, &room_ops);
    for (unsigned i = 0; i < n_places; i++) {
        teffi_group_init(&places[i].group, exec, &place_ops);
        places[i].group.system = explore_draw(4) == 0;
    }
    for (unsigned i = 0; i < OUTSIDERS; i++)
        teffi_group_init(&batches[i].group, exec, &batch_ops);
    for (unsigned i = 0; i < AIDS; i++)
        teffi_group_init(&aids[i].group, exec, &aid_ops);
}

static void set_up_tokens(void)
{
    unsigned numbers[OUTSIDERS] = {0};
    memset(tokens, 0, sizeof tokens);
    for (unsigned i = 0; i < n_tokens; i++) {
        token *t = &tokens[i];
        t->source = explore_draw(OUTSIDERS);
        t->number = numbers[t->source]++;
        t->hops = 1 + explore_draw(4);
        t->timer.fire = on_timer;
        t->deferred.run = on_deferred;
        t->batch.run = throw_one;
        t->batch.release = count_release;
        t->fresh = true;
    }
}

static const void *running[2][TEFFI_DIRECT_DEPTH + 34]; /* of the borrower; of the first worker */
static unsigned n_running[2];

static void on_before(void *arg, uint32_t thread, const void *group)
{
    (void)arg;
    if (thread == 0 || thread == TEFF_THREAD_BORROWED)
        running[thread == 0][n_running[thread == 0]++] = group;
}

static void on_after(void *arg, uint32_t thread, const void *group)
{
    (void)arg;
    if ((thread == 0 || thread == TEFF_THREAD_BORROWED) &&
        running[thread == 0][--n_running[thread == 0]] != group)
        explore_fail("hooks of thread %u do not nest", thread);
}

static void draw_policy(teff_sched_options *opt)
{
    static const teff_sched_hooks hooks = {.before = on_before, .after = on_after};
    uint32_t draw = explore_draw(8);
    opt->turn_warn_ms = opt->delay_warn_ms = opt->queue_warn = explore_draw(4) == 0;
    if (draw == 0) {
        *opt = (teff_sched_options){.threads_max = opt->threads_max,
                                    .policy = TEFF_SCHED_PRIORITY,
                                    .waiting_max = 1 + explore_draw(3)};
    } else if (draw == 1) {
        *opt = (teff_sched_options){.threads_max = opt->threads_max,
                                    .policy = TEFF_SCHED_MULTILEVEL,
                                    .level_us = {1 + explore_draw(100), 200}};
    }
    opt->hooks = explore_draw(8) ? NULL : &hooks;
}

static void start_exec(void)
{
    static const uint32_t more[] = {0, 0, 1, 2}; /* threads beside one a slot */
    unsigned workers = 1 + explore_draw(3);
    uint32_t extra = more[explore_draw(4)];
    teff_sched_options opt = {.threads_max = extra ? (workers > 2 ? workers : 2) + extra - 1 : 0};
    teffi_exec *made = NULL;
    draw_policy(&opt);
    if (teffi_exec_real_new(&explore_platform, workers, &opt, &made) ||
        (explore_draw(4) && made->ops->system(made)))
        explore_fail("the executor does not start");
    exec = made;
    ex.refuse = explore_draw(4) ? 0 : 8;
    threads_enough = !ex.refuse && !extra;
    /* Near the picks at which a worker looks elsewhere first, and at the clock. */
    for (unsigned i = 0; i < workers; i++) {
        sched()->processors[i].tick = explore_draw(16);
        sched()->processors[i].picks = 61 - explore_draw(12);
        sched()->processors[i].lifo_picks = 256 - explore_draw(16);
    }
    explore_limit_begin(sched());
}

static void never(void *arg)
{
    (void)arg;
    explore_fail("a closure ran that came when the executor had stopped");
}

static void live(void *arg)
{
    static unsigned which[OUTSIDERS] = {0, 1};
    explore_thread *outsiders[OUTSIDERS];
    (void)arg;
    start_exec();
    set_up_groups();
    if (explore_draw(16) == 0) /* until the monitor sleeps for good, perhaps */
        (void)explore_wait(&all_arrived, ex.now_ns + QUIET_NS);
    for (unsigned i = 0; i < OUTSIDERS; i++)
        outsiders[i] =
            &ex.thread[explore_start(i ? "outside 2" : "outside 1", throw_in, &which[i])];
    while (n_arrived < n_tokens || n_batches)
        teffi_parker_wait(&all_arrived, UINT64_MAX);
    for (unsigned i = 0; i < OUTSIDERS; i++)
        while (outsiders[i]->state != EXPLORE_ENDED)
            (void)explore_wait(outsiders[i], UINT64_MAX);
    teffi_exec *old = exec;
    exec->ops->stop(exec);
    if (explore_draw(16) == 0 &&
        teffi_closure_push(&exec->null_group, never, NULL)) /* it is dropped */
        explore_fail("a closure was refused");
    if (explore_draw(16) == 0) { /* it runs here, and goes nowhere */
        tokens[0].batch.bytes = TEFFI_INBOUND_SHORT + 1;
        tokens[0].batch.run = count_release;
        n_submitted += 2;
        exec->ops->inbound(exec, &tokens[0].batch);
    }
    exec = NULL;
    old->ops->free(old);
    if (n_submitted)
        explore_fail("%u batches were not released", n_submitted);
}

static void play(void)
{
    exec = NULL;
    n_arrived = n_cabins = n_batches = n_submitted = open_aids = 0;
    stuck_used = false;
    memset(keepers, 0, sizeof keepers);
    memset(n_running, 0, sizeof n_running);
    memset(&all_arrived, 0, sizeof all_arrived);
    memset(&aided, 0, sizeof aided);
    n_places = 1 + explore_draw(PLACES);
    n_tokens = 1 + explore_draw(TOKENS_MAX);
    plain_of_16 = explore_draw(17);
    visits_of_4 = explore_draw(5);
    batches_of_4 = explore_draw(2) ? explore_draw(5) : 0;
    set_up_tokens();
    ex.when_all_wait = look_for_lost;
    explore_start("main", live, NULL);
    explore_run();
    if (n_arrived != n_tokens || n_cabins)
        explore_fail("%u of %u tokens arrived, %u groups did not end", n_arrived, n_tokens,
                     n_cabins);
    for (unsigned i = 0; i < n_tokens; i++)
        if (tokens[i].hops)
            explore_fail("token %u still has hops", i);
}

const explore_scene explore_exec = {"exec", 2048, play};
