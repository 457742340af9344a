/* scene_group.c - groups under pushers, workers, a claimer; they rest, block, complete and are used
 * again: every item is handled or refused once, in order, by one worker at a time.
 * Way:     explore_main -> [scene] -> explored group.c; its executor is a plain queue, here
 * Threads: as explore.h. */
#include <string.h>
#include "base/queue.h"
#include "explore.h"
#include "sched/exec.h"

enum { GROUPS = 2, PUSHERS_MAX = 3, EACH_MAX = 4, ITEMS_MAX = PUSHERS_MAX * EACH_MAX };

typedef struct thing {
    teffi_item item;
    unsigned pusher, number;
    bool over; /* handled or refused */
} thing;

typedef struct place {
    teffi_group group;
    bool inside, queued, completed, over;
    unsigned lives;                    /* how often it may be used again */
    unsigned completes, ended;         /* over all its lives */
    unsigned next_number[PUSHERS_MAX]; /* of each pusher, at least this comes next */
} place;

typedef struct pusher {
    unsigned index, n;
} pusher;

static teffi_exec exec;
static place places[GROUPS];
static unsigned n_places;
static thing things[ITEMS_MAX];
static pusher pushers[PUSHERS_MAX];
static unsigned n_things, n_over, n_busy;
static unsigned items_max;
static uint32_t complete_of_64, claims;
static place *queue[GROUPS]; /* READY places, oldest first */
static unsigned n_queue;
static bool stop;

/* ---- the executor ---- */

static void ready(teffi_exec *self, teffi_group *group)
{
    place *p = teffi_container(group, place, group);
    (void)self;
    explore_point("scene", "ready");
    if (ex.current)
        explore_flush(ex.current); /* as every run queue does: what was written before is there */
    if (p->queued)
        explore_fail("a group is queued twice");
    p->queued = true;
    queue[n_queue++] = p;
    explore_notify(queue);
}

static const teffi_exec_ops exec_ops = {.ready = ready};

static place *next_place(void)
{
    explore_point("scene", "take");
    while (!n_queue && !stop)
        (void)explore_wait(queue, UINT64_MAX);
    if (!n_queue)
        return NULL;
    place *p = queue[0];
    n_queue--;
    memmove(queue, queue + 1, n_queue * sizeof *queue);
    p->queued = false;
    return p;
}

static void work(void *arg)
{
    place *p;
    (void)arg;
    while ((p = next_place()))
        if (teffi_group_run(&p->group, items_max, 0))
            ready(&exec, &p->group);
}

/* ---- what the groups do ---- */

static void over(thing *t)
{
    if (t->over)
        explore_fail("item %u of pusher %u comes twice", t->number, t->pusher);
    t->over = true;
    if (++n_over == n_things)
        explore_notify(&n_over);
}

static void enter(place *p)
{
    if (p->inside)
        explore_fail("two run a group at once");
    p->inside = true;
    n_busy++;
    explore_point("scene", "inside");
}

static void leave(place *p)
{
    explore_point("scene", "inside");
    p->inside = false;
    n_busy--;
    explore_notify(&n_over);
}

static void one(place *p, teffi_item *item)
{
    thing *t = teffi_container(item, thing, item);
    explore_note("  item %u of pusher %u", t->number, t->pusher);
    if (t->number < p->next_number[t->pusher])
        explore_fail("item %u of pusher %u comes too late", t->number, t->pusher);
    p->next_number[t->pusher] = t->number + 1;
    over(t);
}

static void maybe_complete(place *p)
{
    if (p->completed || explore_draw(64) >= complete_of_64)
        return;
    p->completed = true;
    p->completes++;
    teffi_group_complete(&p->group);
}

static void handle(teffi_group *group, teffi_item *item)
{
    place *p = teffi_container(group, place, group);
    enter(p);
    one(p, item);
    if (explore_draw(8) == 0 && (item = teffi_group_take_item(group)))
        one(p, item);
    maybe_complete(p);
    if (explore_draw(8) == 0 && (item = teffi_group_take_item(group)))
        one(p, item);
    group->blocked = explore_draw(2);
    leave(p);
}

static void ended(teffi_group *group)
{
    place *p = teffi_container(group, place, group);
    if (!p->completed || p->inside || group->head)
        explore_fail("a group ended while it was in use");
    if (++p->ended != p->completes)
        explore_fail("a group ended twice");
    if (p->lives-- == 0) {
        p->over = true;
        return;
    }
    p->completed = false;
    if (explore_draw(2))
        explore_point("scene", "before reuse");
    teffi_group_reuse(group);
}

static const teffi_group_ops group_ops = {.handle = handle, .ended = ended};

/* ---- the others ---- */

static void push_all(void *arg)
{
    pusher *me = arg;
    for (unsigned i = 0; i < me->n; i++) {
        thing *t = &things[me->index * EACH_MAX + i];
        place *p = &places[explore_draw(n_places)];
        if (!teffi_group_push(&p->group, &t->item)) {
            explore_note("  refused");
            over(t);
        }
    }
}

static void claim(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < claims; i++) {
        place *p = &places[explore_draw(n_places)];
        if (!teffi_group_claim(&p->group))
            continue;
        enter(p);
        maybe_complete(p);
        leave(p);
        teffi_group_release_claim(&p->group);
    }
}

/* Workers wait while there may be more; this one says when there is not. */
static void wait_for_all(void *arg)
{
    explore_thread **others = arg;
    for (unsigned i = 0; others[i]; i++)
        while (others[i]->state != EXPLORE_ENDED)
            (void)explore_wait(others[i], UINT64_MAX);
    while (n_over < n_things || n_busy)
        (void)explore_wait(&n_over, UINT64_MAX);
    stop = true;
    explore_notify(queue);
}

static void set_up(void)
{
    static const unsigned budgets[] = {1, 1, 2, 3, 256};
    static const uint32_t completes[] = {0, 4, 16, 48};
    memset(places, 0, sizeof places);
    memset(things, 0, sizeof things);
    n_things = n_over = n_busy = n_queue = 0;
    stop = false;
    items_max = budgets[explore_draw(5)];
    complete_of_64 = completes[explore_draw(4)];
    claims = explore_draw(4);
    exec.ops = &exec_ops;
    exec.warn.queue_warn = UINT32_MAX; /* nobody to tell */
    n_places = 1 + explore_draw(GROUPS);
    for (unsigned i = 0; i < n_places; i++) {
        teffi_group_init(&places[i].group, &exec, &group_ops);
        if (explore_draw(4) == 0) { /* as memory that is used for the first time */
            teffi_group_set_initially_complete(&places[i].group);
            teffi_group_reuse(&places[i].group);
        }
        places[i].lives = explore_draw(4);
    }
}

static void check(void)
{
    for (unsigned i = 0; i < n_places; i++) {
        place *p = &places[i];
        teffi_group_state state = teffi_group_state_of(&p->group);
        if (p->queued || p->group.head || p->group.word > TEFFI_GROUP_COMPLETE)
            explore_fail("something is left in a group");
        if (p->ended != p->completes)
            explore_fail("a group completed %u times and ended %u times", p->completes, p->ended);
        if (p->over ? state != TEFFI_GROUP_COMPLETE
                    : state != TEFFI_GROUP_IDLE && state != TEFFI_GROUP_BLOCKED)
            explore_fail("a group was left in state %d", (int)state);
    }
}

static void play(void)
{
    static const char *const worker_names[] = {"worker 1", "worker 2", "worker 3"};
    static const char *const pusher_names[] = {"pusher 1", "pusher 2", "pusher 3"};
    explore_thread *others[PUSHERS_MAX + 2] = {NULL};
    unsigned n_pushers = 1 + explore_draw(PUSHERS_MAX), workers = 2 + explore_draw(2);
    set_up();
    for (unsigned i = 0; i < n_pushers; i++) {
        pushers[i] = (pusher){i, 1 + explore_draw(EACH_MAX)};
        for (unsigned k = 0; k < pushers[i].n; k++)
            things[i * EACH_MAX + k] = (thing){.pusher = i, .number = k};
        n_things += pushers[i].n;
        others[i] = &ex.thread[explore_start(pusher_names[i], push_all, &pushers[i])];
    }
    others[n_pushers] = &ex.thread[explore_start("claimer", claim, NULL)];
    for (unsigned i = 0; i < workers; i++)
        explore_start(worker_names[i], work, NULL);
    explore_start("main", wait_for_all, others);
    explore_run();
    check();
}

const explore_scene explore_group = {"group", 256, play};
