/* clock.h - a grain with timers, on an executor and a clock that the test drives: its ticks are
 * known to the millisecond. Include it in one source of a program.
 * Threads: one. */
#pragma once

#include "activation/timers.h"
#include "activation/turn.h"
#include "bare.h"
#include "timers.teff.h"

typedef teff_err script(timers_clock *self, const timers_beat *in);

#define RUN(fn, ...) timers_beat(.script = (uintptr_t)(fn), __VA_ARGS__)

enum { TICKS_KEPT = 64 };

/* ---- a clock and an executor that the test drives ---- */

static struct {
    uint64_t now_ns;
    teffi_timer *set[TEFF_TIMERS_MAX + 8];
    size_t n_set;
    char line[1000]; /* the last line that was logged */
    unsigned lines;
} machine;

static inline uint64_t test_clock(void *arg)
{
    return machine.now_ns;
}

static inline void set_timer(teffi_exec *exec, teffi_timer *timer, uint64_t due_ns)
{
    timer->due_ns = due_ns;
    assert_true(machine.n_set < sizeof machine.set / sizeof *machine.set);
    machine.set[machine.n_set++] = timer;
}

static inline bool cancel_timer(teffi_exec *exec, teffi_timer *timer)
{
    for (size_t i = 0; i < machine.n_set; i++)
        if (machine.set[i] == timer) {
            memmove(&machine.set[i], &machine.set[i + 1],
                    (--machine.n_set - i) * sizeof *machine.set);
            return true;
        }
    return false;
}

/* The timer that is due first; of equal ones, the one that was set first. */
static inline teffi_timer *find_first(uint64_t until_ns)
{
    teffi_timer *first = NULL;
    for (size_t i = 0; i < machine.n_set; i++)
        if (machine.set[i]->due_ns <= until_ns &&
            (!first || machine.set[i]->due_ns < first->due_ns))
            first = machine.set[i];
    return first;
}

static inline void run_group(void)
{
    while (bare_busy) {
        teffi_group *group = bare_busy;
        bare_busy = NULL;
        while (teffi_group_run(group, 10, 0))
            ;
    }
}

static inline void fire(teffi_timer *timer)
{
    cancel_timer(&bare_exec, timer);
    timer->fire(timer);
}

static inline void pass_ms(uint64_t ms)
{
    uint64_t until_ns = machine.now_ns + ms * 1000000;
    run_group();
    for (teffi_timer *timer; (timer = find_first(until_ns));) {
        machine.now_ns = timer->due_ns > machine.now_ns ? timer->due_ns : machine.now_ns;
        atomic_store(&grains.coarse_ms, machine.now_ns / 1000000);
        fire(timer);
        run_group();
    }
    machine.now_ns = until_ns;
    atomic_store(&grains.coarse_ms, machine.now_ns / 1000000);
}

static inline uint64_t now_ms(void)
{
    return machine.now_ns / 1000000;
}

static inline void keep_line(void *arg, teff_log_level level, const char *line)
{
    machine.lines++;
    snprintf(machine.line, sizeof machine.line, "%s", line);
}

/* ---- the grain ---- */

static struct {
    int begun, inside, most;    /* ticks */
    uint64_t at_ms[TICKS_KEPT]; /* when they began, since the test's begin */
    int64_t n[TICKS_KEPT];      /* in->n of each */
    teff_err err;               /* what each returns */
    uint32_t takes_ms;          /* how long each sleeps */
    int asked;                  /* requests that have ended */
    int activated, deactivated;
    teff_reason why;
    script *on_activate, *on_deactivate, *in_tick;
    teff_timer timer; /* the newest */
    teff_timer_options options;
} world;

static teffi_activation *act;
static uint64_t begin_ms;

static inline teff_err run_tick(timers_clock *self, const timers_beat *in)
{
    if (world.begun < TICKS_KEPT) {
        world.at_ms[world.begun] = now_ms() - begin_ms;
        world.n[world.begun] = in->n;
    }
    world.begun++;
    world.most = ++world.inside > world.most ? world.inside : world.most;
    if (world.takes_ms)
        teff_sleep(self->ctx, world.takes_ms);
    teff_err err = world.in_tick ? world.in_tick(self, in) : TEFF_OK;
    world.inside--;
    return err ? err : world.err;
}

static inline teff_err tick(timers_clock *self, const timers_beat *in)
{
    return run_tick(self, in);
}

static inline teff_err bare_tick(timers_clock *self)
{
    return run_tick(self, timers_beat(.n = 99));
}

static inline teff_err ask(timers_clock *self, const timers_beat *in, timers_number *out)
{
    teff_err err = ((script *)(uintptr_t)in->script)(self, in);
    world.asked++;
    return err;
}

static inline teff_err on_activate(timers_clock *self)
{
    world.activated++;
    return world.on_activate ? world.on_activate(self, NULL) : TEFF_OK;
}

static inline teff_err on_deactivate(timers_clock *self, teff_reason why)
{
    world.deactivated++;
    world.why = why;
    return world.on_deactivate ? world.on_deactivate(self, NULL) : TEFF_OK;
}

static const timers_clock_methods methods = {.ask = ask,
                                             .get = ask,
                                             .peek = ask,
                                             .tick = tick,
                                             .look = tick,
                                             .dash = tick,
                                             .bare = bare_tick,
                                             .on_activate = on_activate,
                                             .on_deactivate = on_deactivate};

static inline teffi_ident clock_ident(void)
{
    return teffi_ident_of(&grains.secret, timers_clock_info.id, (const uint8_t *)"a", 1);
}

/* The grain "a" is activated, if it is not. */
static inline void activate(void)
{
    teffi_ident ident = clock_ident();
    assert_int_equal(teffi_shard_create_activation(&grains, &ident, true, NULL, &act), TEFF_OK);
    teffi_activation_nudge(act);
    run_group();
}

static const teff_method *method_named(const char *name)
{
    for (size_t i = 0; i < timers_clock_info.n_methods; i++)
        if (!strcmp(strrchr(timers_clock_info.methods[i].name, '.') + 1, name))
            return &timers_clock_info.methods[i];
    fail_msg("no method %s", name);
    return NULL;
}

/* A request of this method, which runs fn. */
static inline void request(const char *method, script *fn, int64_t n)
{
    uint32_t deep;
    teffi_msg *msg = bare_message(TEFFI_MSG_REQUEST);
    msg->type_id = timers_clock_info.id;
    msg->method_id = method_named(method)->id;
    msg->body = (ProtobufCMessage *)timers_beat_copy(&msg->arena, RUN(fn, .n = n));
    assert_int_equal(teffi_activation_push(act, act->type, msg, &deep), TEFF_OK);
    run_group();
}

static inline void run(script *fn, int64_t n)
{
    int asked = world.asked;
    request("Ask", fn, n);
    assert_int_equal(world.asked, asked + 1);
}

static inline int open_clock(void **state)
{
    static bool ready;
    static teffi_exec_ops ops;
    if (!ready) {
        ops = bare_exec_ops;
        ops.timer_set = set_timer;
        ops.timer_cancel = cancel_timer;
        ready = true;
    }
    memset(&machine, 0, sizeof machine);
    memset(&world, 0, sizeof world);
    machine.now_ns = bare_now_ns;
    bare_busy = NULL;
    bare_exec.ops = &ops;
    bare_platform.mono_ns = test_clock;
    bare_platform.log = (teffi_log){keep_line, NULL, TEFF_LOG_WARN};
    if (bare_open(state))
        return 1;
    teff_grain_type_free(type);
    type = timers_clock_type(&methods, NULL);
    node.home.exit_turn = teffi_life_exit_turn;
    grains.coarse_ms = now_ms();
    bare_view(1, &bare_self, 1);
    teffi_ident ident = clock_ident();
    teffi_shard_of(&grains, ident.hash)->phase = TEFFI_SERVING;
    begin_ms = now_ms();
    world.options.size = sizeof world.options;
    return 0;
}

static inline int open_active(void **state)
{
    if (open_clock(state))
        return 1;
    activate();
    return act->phase != TEFFI_VALID;
}

/* No timer is left when the activation has ended. */
static inline int close_clock(void **state)
{
    if (grains.shards->activations) {
        teffi_activation_ask_to_end(act, TEFF_REASON_STOPPING);
        pass_ms(100000);
    }
    return grains.shards->activations || machine.n_set || bare_close(state);
}

/* ---- scripts ---- */

static inline teff_err sleeps(timers_clock *self, const timers_beat *in)
{
    teff_sleep(self->ctx, (uint32_t)in->n);
    return TEFF_OK;
}

static inline teff_err starts(timers_clock *self, const timers_beat *in)
{
    return timers_clock_tick_timer(self->ctx, timers_beat(.n = in ? in->n : 0), &world.options,
                                   &world.timer);
}

static inline teff_err starts_look(timers_clock *self, const timers_beat *in)
{
    return timers_clock_look_timer(self->ctx, in, &world.options, &world.timer);
}

static inline teff_err starts_dash(timers_clock *self, const timers_beat *in)
{
    return timers_clock_dash_timer(self->ctx, in, &world.options, &world.timer);
}

/* Both pointers may be NULL. */
static inline teff_err starts_bare(timers_clock *self, const timers_beat *in)
{
    return timers_clock_bare_timer(self->ctx, NULL, NULL);
}

static inline teff_err stops(timers_clock *self, const timers_beat *in)
{
    bool stopped = teff_timer_stop(self->ctx, world.timer);
    assert_int_equal(stopped, in->n);
    return TEFF_OK;
}

/* Due after n % 1000 ms, then each n / 1000 ms. */
static inline teff_err changes(timers_clock *self, const timers_beat *in)
{
    uint32_t n = (uint32_t)in->n;
    assert_true(teff_timer_change(self->ctx, world.timer, n % 1000, n / 1000));
    return TEFF_OK;
}

static inline teff_err quits(timers_clock *self, const timers_beat *in)
{
    teff_deactivate(self->ctx);
    return TEFF_OK;
}

/* Starts a timer with one of the scripts above. */
static inline void start(script *fn, uint32_t due_ms, uint32_t period_ms)
{
    world.options.due_ms = due_ms;
    world.options.period_ms = period_ms;
    run(fn, 0);
}

/* The ticks so far began at these times. */
static inline void check_ticks(const uint64_t *at_ms, int n)
{
    for (int i = 0; i < n && i < world.begun; i++)
        if (world.at_ms[i] != at_ms[i])
            fail_msg("tick %d at %d ms, not at %d", i, (int)world.at_ms[i], (int)at_ms[i]);
    assert_int_equal(world.begun, n);
}

#define TICKED(...)                                                                                \
    check_ticks((const uint64_t[]){__VA_ARGS__},                                                   \
                sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))
