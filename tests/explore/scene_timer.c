/* scene_timer.c - timers of groups that run on any worker: set, cancelled and set anew by their
 * groups' turns, while they fire and while workers come and go, and their timers move. Each setting
 * ends once: it fires, not early, or its cancel says that it will not.
 * Way:     explore_main -> [scene] -> explored exec.c and all below it
 * Threads: as explore.h. */
#include <string.h>
#include "base/queue.h"
#include "explore.h"
#include "group/exec.h"
#include "os/thread.h"
#include "sched/exec.h"

enum { OWNERS = 3, TURNS_MAX = 6, SCALES_MAX = 5 };

typedef struct owner {
    teffi_group group;
    teffi_item turn, fired;
    teffi_timer timer;
    bool inside, set, firing;
    uint64_t due_ns;
    unsigned turns; /* left */
} owner;

static teffi_exec *exec;
static owner owners[OWNERS];
static unsigned n_owners, n_over;
static teffi_parker all_over;

static void on_timer(teffi_timer *timer)
{
    owner *o = teffi_container(timer, owner, timer);
    if (!o->set || o->firing)
        explore_fail("a timer fires that is not set");
    if (ex.now_ns < o->due_ns)
        explore_fail("a timer fires early");
    o->firing = true;
    if (!teffi_group_push(&o->group, &o->fired))
        explore_fail("a push was refused");
}

static void set_timer(owner *o)
{
    o->set = true;
    o->due_ns = ex.now_ns + explore_draw(5000000);
    exec->ops->timer_set(exec, &o->timer, o->due_ns);
}

static void cancel_timer(owner *o)
{
    if (!exec->ops->timer_cancel(exec, &o->timer)) {
        if (ex.now_ns < o->due_ns)
            explore_fail("a timer that is set cannot be cancelled");
        return;
    }
    if (o->firing)
        explore_fail("a timer is cancelled that has fired");
    o->set = false;
}

static void scale(void)
{
    if (teffi_exec_scale(exec, 1 + explore_draw(exec->workers)) == TEFF_E_INVALID)
        explore_fail("it does not scale");
}

static void take_turn(owner *o)
{
    o->turns--;
    if (o->set)
        cancel_timer(o);
    if (!o->set && explore_draw(4))
        set_timer(o);
    if (explore_draw(8) == 0)
        scale();
    if (o->turns)
        (void)teffi_group_push(&o->group, &o->turn);
}

static void on_item(teffi_group *group, teffi_item *item)
{
    owner *o = teffi_container(group, owner, group);
    if (o->inside)
        explore_fail("two run a group at once");
    o->inside = true;
    explore_point("scene", "inside");
    if (item == &o->fired)
        o->set = o->firing = false;
    else
        take_turn(o);
    o->inside = false;
    if (!o->turns && !o->set && ++n_over == n_owners)
        teffi_parker_wake(&all_over);
}

static const teffi_group_ops owner_ops = {.handle = on_item};

static void scale_often(void *arg)
{
    (void)arg;
    for (uint32_t n = explore_draw(SCALES_MAX + 1); n > 0; n--)
        scale();
}

static void live(void *arg)
{
    (void)arg;
    if (teffi_exec_real_new(&explore_platform, 1 + explore_draw(3), &(teff_sched_options){0},
                            &exec))
        explore_fail("the executor does not start");
    for (unsigned i = 0; i < n_owners; i++)
        teffi_group_init(&owners[i].group, exec, &owner_ops);
    explore_thread *outside = &ex.thread[explore_start("outside", scale_often, NULL)];
    for (unsigned i = 0; i < n_owners; i++)
        (void)teffi_group_push(&owners[i].group, &owners[i].turn);
    while (n_over < n_owners)
        teffi_parker_wait(&all_over, UINT64_MAX);
    while (outside->state != EXPLORE_ENDED)
        (void)explore_wait(outside, UINT64_MAX);
    exec->ops->free(exec);
}

static void play(void)
{
    memset(owners, 0, sizeof owners);
    memset(&all_over, 0, sizeof all_over);
    n_over = 0;
    n_owners = 1 + explore_draw(OWNERS);
    for (unsigned i = 0; i < n_owners; i++) {
        owners[i].timer.fire = on_timer;
        owners[i].turns = 1 + explore_draw(TURNS_MAX);
    }
    explore_start("main", live, NULL);
    explore_run();
}

const explore_scene explore_timer = {"timer", 1024, play};
