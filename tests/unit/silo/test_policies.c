/* test_policies.c - ARCHITECTURE's table of policies, cell by cell: when does an item of each kind
 * run, beside a process that is lazy or long and one that is urgent or short?
 *
 * A silo with one worker, whose monitor and clock stand. While a grain's turn holds the worker, the
 * first process becomes READY, then the item, then the second process. Then the turn ends. */
#include <stdio.h>
#include <string.h>
#include <teff/engine.h>
#include <teff/fork.h>
#include "../sched/held_monitor.h"
#include "direct.teff.h"
#include "lab.h"
#include "sched/scheduler.h"
#include "silo/silo.h"

#define MS UINT64_C(1000000)

enum { NOTE = 1, WARM, COMPUTE, SET_TIMER }; /* what an item does: its tag */
enum { LONG_MS = 40, TIMER_MS = 20 };
enum { HOLDER = 1, ITEM = 2 }; /* keys of grains */

static struct world {
    teffi_platform platform;
    uint64_t (*real_ns)(void *arg);
    uint64_t stood_ns;
    _Atomic uint64_t passed_ns;
    _Atomic bool stands;
    teff_silo *silos[2]; /* the one that is watched; another one, which only sends to it */
    teff_process_system *systems[2];
    teff_engine *engine;
    teff_ctx *ctx;
    teff_pid first, item, second;
    teff_call call, holder_call;
    char notes[8];
    _Atomic unsigned n_notes, done;
    _Atomic int stage; /* of the turn that holds the worker */
    _Atomic bool forks;
} t;

/* ---- what runs ---- */

static uint64_t standing_clock(void *arg)
{
    return (t.stands ? t.stood_ns : t.real_ns(arg)) + t.passed_ns;
}

static void act(char name, int64_t what)
{
    if (what == NOTE) {
        t.notes[t.n_notes % (sizeof t.notes - 1)] = name;
        t.n_notes++;
        return;
    }
    t.passed_ns += what == COMPUTE ? LONG_MS * MS : 0;
    t.done++;
}

static teff_err step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == TEFF_EVENT_CANCEL)
            return teff_step_done(out);
        if (events[i].kind == TEFF_EVENT_MESSAGE && events[i].tag == SET_TIMER) {
            assert_int_equal(teff_process_set_timer(teff_step_process(out), TIMER_MS, NOTE),
                             TEFF_OK);
            t.done++;
        } else {
            act(*(const char *)self, (int64_t)events[i].tag);
        }
    }
    return teff_step_idle(out);
}

static const teff_process_ops lazy = {.name = "first", .step = step, .priority = -100},
                              middle = {.name = "item", .step = step},
                              urgent = {.name = "second", .step = step, .priority = 100};

static void run_task(teff_component *w, void *task, void *const *data)
{
    act('X', *(const int64_t *)task);
}

static const teff_task_type task = {.name = "task", .size = sizeof(int64_t), .run = run_task};
static const teff_task_type *const tasks[] = {&task};
static const teff_component_type component = {.name = "component", .tasks = tasks, .n_tasks = 1};

static void wait_for_stage(int stage)
{
    while (t.stage < stage)
        teffi_thread_yield();
}

static void note_part(void *arg)
{
    act('X', NOTE);
}

static void hold_worker(void)
{
    teff_join join = {{0}};
    t.stage = 1;
    wait_for_stage(2);
    if (t.forks)
        teff_fork(&join, TEFF_STEAL_CHILD, note_part, NULL);
    t.stage = 3;
    wait_for_stage(4);
    teff_join_wait(&join);
    t.stage = 5;
}

static teff_err obey(direct_actor *self, const direct_act *in, direct_number *out)
{
    if (self->key == HOLDER && in->n == NOTE)
        hold_worker();
    else
        act('X', in->n);
    return TEFF_OK;
}

static const direct_actor_methods actor = {.obey = obey};

static void ask(int64_t key, int64_t what, teff_call *call)
{
    lab_ok(t.ctx, direct_actor_obey_async(t.ctx, key, direct_act(.n = what), NULL, call));
}

static void send(int from, teff_pid to, uint64_t what)
{
    assert_int_equal(teff_process_send(t.systems[from], to, &(teff_event){.tag = what}), TEFF_OK);
}

/* ---- the kinds of items: what makes one compute, and what makes one READY ---- */

static void ask_grain(int64_t what)
{
    ask(ITEM, what, &t.call);
}

static void send_first(int64_t what)
{
    send(0, t.first, (uint64_t)what);
}

static void send_second(int64_t what)
{
    send(0, t.second, (uint64_t)what);
}

static void send_here(int64_t what)
{
    send(0, t.item, (uint64_t)what);
}

static void ask_holder(int64_t what)
{
    ask(HOLDER, what, &t.holder_call);
}

static void broadcast(int64_t what)
{
    assert_int_equal(teff_engine_broadcast(t.engine, &task, &what), TEFF_OK);
}

/* The part is forked by the turn that holds the worker. */
static void fork_part(int64_t what)
{
    if (what != NOTE)
        ask_holder(what);
}

/* The timer was set before; it fires when the worker looks at its clock next. */
static void fire_timer(int64_t what)
{
    if (what != NOTE)
        send_here(what);
    else
        t.passed_ns += 2 * TIMER_MS * MS;
}

static bool item_waits(void)
{
    teff_process_info infos[8];
    size_t n = teff_process_list(t.systems[0], infos, 8);
    for (size_t i = 0; i < n; i++)
        if (teff_pid_equals(infos[i].pid, t.item) && infos[i].waiting)
            return true;
    return false;
}

static void send_from_other_silo(int64_t what)
{
    if (what != NOTE) {
        send_here(what);
        return;
    }
    send(1, t.item, (uint64_t)what);
    lab_until(item_waits());
}

/* The first process is 'l', the item 'X', the second process 'h'. Multilevel: l has run long, h has
 * not, and X as the column says. Priority: l -100, X 0, h 100. */
enum { SINGLE, SHORT, LONG, PRIORITY, EVICTED, COLUMNS };

static const struct kind {
    const char *name;
    void (*begin)(int64_t what);
    const char *order[COLUMNS];
} kinds[] = {
    {"grain", ask_grain, {"lXh", "Xhl", "hlX", "hXl", "h"}},
    {"process", send_here, {"lXh", "Xhl", "hlX", "hXl", "h"}},
    {"engine task", broadcast, {"lXh", "Xhl", "hlX", "hXl", "h"}},
    {"fork part", fork_part, {"Xlh", "Xhl", "hlX", "hXl", "Xh"}},
    {"timer", fire_timer, {"Xlh", "Xhl", "hlX", "hXl", "Xh"}},
    {"message from another silo", send_from_other_silo, {"lXh", "Xhl", "hlX", "hXl", "h"}},
};

/* ---- two silos ---- */

static teff_silo *silo_of(const teffi_platform *platform, teff_silo_options opt)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_silo *silo;
    opt.size = sizeof opt;
    opt.silent = 1;
    opt.workers = 1;
    opt.transport = TEFF_TRANSPORT_NNG; /* who else reads while the only worker is held? */
    if (teffi_silo_new_on_platform(platform, &opt, &silo, text))
        fail_msg("%s", text);
    assert_int_equal(teff_silo_host(silo, direct_actor_type(&actor, NULL)), TEFF_OK);
    if (teff_silo_start(silo, text))
        fail_msg("%s", text);
    return silo;
}

static teffi_sched *sched_of_silo(void)
{
    return teffi_sched_of(t.silos[0]->node.home.exec);
}

static void let_worker_park(void)
{
    lab_until(sched_of_silo()->idle_word >= TEFFI_IDLE);
}

static void do_before(void (*begin)(int64_t what), int64_t what)
{
    unsigned before = t.done;
    begin(what);
    lab_until(t.done > before);
    let_worker_park();
}

static teff_pid spawn(const teff_process_ops *ops, const char *name)
{
    teff_pid pid;
    assert_int_equal(
        teff_process_spawn(t.systems[0], ops, (void *)(uintptr_t)name, NULL, NULL, 0, &pid),
        TEFF_OK);
    let_worker_park();
    return pid;
}

static void stop_clock(void)
{
    t.stood_ns = t.real_ns(t.platform.arg);
    t.stands = true;
    pthread_mutex_lock(&monitor.lock);
    monitor.held = true;
    pthread_mutex_unlock(&monitor.lock);
}

static void open_silos(teff_sched_options sched)
{
    teffi_platform real;
    memset(&t, 0, sizeof t);
    sched.size = sizeof sched;
    teffi_silo_init_platform(&real, TEFF_LOG_WARN);
    t.platform = real;
    t.real_ns = real.mono_ns;
    t.platform.mono_ns = standing_clock;
    monitor_hold(&t.platform);
    monitor_release();
    t.silos[0] = silo_of(&t.platform, (teff_silo_options){.store = "memory", .sched = &sched});
    t.silos[1] = silo_of(&real, (teff_silo_options){.seeds = {teff_silo_address(t.silos[0])}});
    lab_until(teff_silo_members(t.silos[0]) == 2 && teff_silo_members(t.silos[1]) == 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(teff_silo_processes(t.silos[i], NULL, &t.systems[i]), TEFF_OK);
    t.ctx = teff_silo_new_ctx(t.silos[0]);
    stop_clock();
    const teff_engine_options opt = {.size = sizeof opt};
    assert_int_equal(teff_silo_make_engine(t.silos[0], &opt, &t.engine), TEFF_OK);
    let_worker_park();
}

static void close_silos(void)
{
    monitor_release();
    t.stands = false;
    teff_ctx_free(t.ctx);
    for (int i = 1; i >= 0; i--)
        teff_silo_free(t.silos[i]);
}

/* ---- a cell ---- */

/* The worker is held: nothing else uses its processor. It looks at its clock at its next pick, and
 * does not begin with the oldest work; of level 0 first. */
static void prepare_next_picks(void)
{
    teffi_sched *sched = sched_of_silo();
    teffi_processor *p = &sched->processors[0];
    p->tick = p->picks = p->lifo_picks = 0;
    p->fair_ms = teffi_coarse_ms(&sched->exec);
    if (sched->levels)
        sched->levels->chance = TEFFI_CHANCE_ONE;
}

static void run_beside_others(const struct kind *kind, bool with_first)
{
    t.forks = kind->begin == fork_part;
    ask_holder(NOTE);
    lab_until(t.stage == 1);
    prepare_next_picks();
    if (with_first)
        send_first(NOTE);
    t.stage = 2;
    lab_until(t.stage == 3);
    kind->begin(NOTE);
    send_second(NOTE);
    t.stage = 4;
}

/* One after another, so that none is evicted. */
static void warm_up(const struct kind *kind, bool is_long)
{
    teff_component_id id;
    t.first = spawn(&lazy, "l");
    do_before(send_first, COMPUTE);
    t.second = spawn(&urgent, "h");
    do_before(send_second, WARM);
    t.item = spawn(&middle, "X");
    do_before(send_here, WARM);
    if (kind->begin == broadcast)
        assert_int_equal(teff_engine_add(t.engine, 0, &component, NULL, &id), TEFF_OK);
    let_worker_park();
    do_before(ask_holder, WARM);
    do_before(kind->begin, is_long ? COMPUTE : WARM);
    if (kind->begin == fire_timer)
        do_before(send_here, SET_TIMER);
}

static void check_refused(const struct kind *kind)
{
    teff_process_stats stats;
    teff_engine_stats copies;
    direct_number *got;
    if (kind->begin == ask_grain)
        lab_fails(t.ctx, direct_actor_obey_await(t.ctx, t.call, &got), TEFF_E_OVERLOADED);
    teff_process_stats_get(t.systems[0], &stats);
    teff_engine_stats_get(t.engine, &copies);
    assert_int_equal(stats.evicted, kind->begin != ask_grain && kind->begin != broadcast);
    assert_int_equal(copies.evicted, kind->begin == broadcast);
}

static void check_cell(const struct kind *kind, int column)
{
    const char *order = kind->order[column];
    warm_up(kind, column == LONG);
    run_beside_others(kind, column != EVICTED);
    lab_until(t.stage == 5 && t.n_notes >= strlen(order));
    if (strcmp(t.notes, order) != 0)
        fail_msg("%s, column %d: ran as %s, expected %s", kind->name, column, t.notes, order);
    if (!strchr(order, 'X'))
        check_refused(kind);
}

static void check_column(int column, teff_sched_options sched)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        open_silos(sched);
        check_cell(&kinds[i], column);
        close_silos();
    }
}

static void in_a_single_queue(void **state)
{
    check_column(SINGLE, (teff_sched_options){.policy = TEFF_SCHED_SINGLE});
}

static void by_level_while_short(void **state)
{
    check_column(SHORT, (teff_sched_options){.policy = TEFF_SCHED_MULTILEVEL});
}

static void by_level_when_long(void **state)
{
    check_column(LONG, (teff_sched_options){.policy = TEFF_SCHED_MULTILEVEL});
}

static void by_priority(void **state)
{
    check_column(PRIORITY, (teff_sched_options){.policy = TEFF_SCHED_PRIORITY});
}

/* One group may wait: the item, or the second process. What cannot be refused runs at once. */
static void evicted_over_the_limit(void **state)
{
    check_column(EVICTED, (teff_sched_options){.policy = TEFF_SCHED_PRIORITY, .waiting_max = 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_a_single_queue),      cmocka_unit_test(by_level_while_short),
        cmocka_unit_test(by_level_when_long),     cmocka_unit_test(by_priority),
        cmocka_unit_test(evicted_over_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
