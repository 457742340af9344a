/* test_pid_evict.c - a silo whose run queue is full evicts processes and grains to which another
 * silo has sent: messages return, requests end with an error at once. */
#include <stdio.h>
#include <teff/pid.h>
#include "../process/processes.h"
#include "lab.h"

enum { SINKS = 64, ROUNDS_MAX = 1000, ENOUGH = 20 };

static struct {
    lab *lab;
    int evicting; /* the silo */
    teff_process_system *systems[2];
    teff_pid sinks[SINKS];
    latch over; /* messages: received or returned */
    _Atomic unsigned got, returned, wrong;
} t;

static teff_process_system *processes_of(int silo)
{
    teff_process_system *system;
    assert_int_equal(teff_silo_processes(t.lab->silos[silo], NULL, &system), TEFF_OK);
    return system;
}

static void begin(void)
{
    memset(&t, 0, sizeof t);
    t.lab = lab_open_seeded(1);
    t.evicting = lab_add_evicting(t.lab);
    t.systems[0] = processes_of(0);
    t.systems[1] = processes_of(t.evicting);
}

static int end(void **state)
{
    lab_close(t.lab);
    return 0;
}

/* ---- messages ---- */

static teff_err sink_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == TEFF_EVENT_CANCEL)
            return teff_step_done(out);
        if (events[i].kind == TEFF_EVENT_REQUEST) {
            (void)teff_pid_respond(teff_process_system_of(teff_step_process(out)), &events[i],
                                   TEFF_OK, NULL, 0);
        } else {
            atomic_fetch_add(&t.got, 1);
            latch_hit(&t.over);
        }
    }
    return teff_step_idle(out);
}

static const teff_process_ops sink = {.name = "sink", .step = sink_step};

/* One by one, so that none is evicted before it has begun. */
static void spawn_sinks(void)
{
    for (unsigned i = 0; i < SINKS; i++) {
        t.sinks[i] = spawn(t.systems[1], &sink, NULL);
        until_state(t.systems[1], t.sinks[i], TEFF_PROCESS_IDLE);
    }
}

static void take_back(const teff_event *event)
{
    bool right = event->err == TEFF_E_OVERLOADED && event->tag < SINKS && event->len == 3 &&
                 memcmp(event->data, "abc", 3) == 0 &&
                 teff_pid_equals(event->from, t.sinks[event->tag]);
    atomic_fetch_add(&t.wrong, !right);
    atomic_fetch_add(&t.returned, 1);
    latch_hit(&t.over);
}

static void send_all(teff_process *me)
{
    for (unsigned i = 0; i < SINKS; i++) {
        teff_event message = {.tag = i, .data = "abc", .len = 3, .from = teff_process_pid(me)};
        atomic_fetch_add(&t.wrong, teff_process_send(t.systems[0], t.sinks[i], &message) != 0);
    }
}

static teff_err sender_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == TEFF_EVENT_CANCEL)
            return teff_step_done(out);
        if (events[i].kind == TEFF_EVENT_RETURNED)
            take_back(&events[i]);
        else
            send_all(teff_step_process(out));
    }
    return teff_step_idle(out);
}

static const teff_process_ops sender_ops = {.name = "sender", .step = sender_step};

/* Again, until enough returned: another thread may run what waits meanwhile. */
static void messages_return_to_a_sender_of_another_silo(void **state)
{
    begin();
    spawn_sinks();
    teff_pid sender = spawn(t.systems[0], &sender_ops, NULL);
    for (unsigned i = 1; i <= ROUNDS_MAX && atomic_load(&t.returned) < ENOUGH; i++) {
        assert_int_equal(send_tag(t.systems[0], sender, i), TEFF_OK);
        latch_wait(&t.over, i * SINKS);
    }
    assert_true(atomic_load(&t.returned) >= ENOUGH);
    assert_int_equal(atomic_load(&t.wrong), 0);
    teff_process_stats stats;
    teff_process_stats_get(t.systems[1], &stats);
    assert_int_equal(stats.evicted, atomic_load(&t.returned));
    assert_int_equal(stats.dropped, 0);
}

/* ---- requests ---- */

static void ask_sink(teff_ctx *ctx, unsigned i, teff_call *call)
{
    lab_ok(ctx, teff_pid_ask_async(ctx, t.sinks[i], 0, NULL, 0, NULL, call));
}

static teff_err await_sink(teff_ctx *ctx, teff_call *call)
{
    return teff_pid_ask_await(ctx, call, NULL);
}

static void ask_grain(teff_ctx *ctx, unsigned i, teff_call *call)
{
    char key[20];
    snprintf(key, sizeof key, "grain %u", i);
    lab_ok(ctx, lab_near_where_async(ctx, key, NULL, call));
}

static teff_err await_grain(teff_ctx *ctx, teff_call *call)
{
    lab_text *out;
    return lab_near_where_await(ctx, *call, &out);
}

/* Their activations are in the silo that evicts. */
static void make_grains(void)
{
    teff_call call;
    for (unsigned i = 0; i < SINKS; i++) {
        ask_grain(t.lab->ctx[t.evicting], i, &call);
        lab_ok(t.lab->ctx[t.evicting], await_grain(t.lab->ctx[t.evicting], &call));
    }
}

/* Each ends well, or as evicted, long before its deadline. */
static void requests_are_refused(void (*ask)(teff_ctx *, unsigned, teff_call *),
                                 teff_err (*await)(teff_ctx *, teff_call *))
{
    static teff_call calls[SINKS];
    teff_ctx *ctx = t.lab->ctx[0];
    unsigned refused = 0;
    for (unsigned round = 0; round < ROUNDS_MAX && refused < ENOUGH; round++) {
        for (unsigned i = 0; i < SINKS; i++)
            ask(ctx, i, &calls[i]);
        for (unsigned i = 0; i < SINKS; i++) {
            teff_err err = await(ctx, &calls[i]);
            if (err && (err != TEFF_E_OVERLOADED || !strstr(teff_error(ctx), "evicted")))
                fail_msg("%s: %s", teff_err_name(err), teff_error(ctx));
            refused += err != TEFF_OK;
        }
        teff_ctx_reset(ctx);
    }
    assert_true(refused >= ENOUGH);
}

static void requests_of_another_silo_to_processes_get_a_response(void **state)
{
    begin();
    spawn_sinks();
    requests_are_refused(ask_sink, await_sink);
}

static void requests_of_another_silo_to_grains_get_a_response(void **state)
{
    begin();
    make_grains();
    requests_are_refused(ask_grain, await_grain);
}

#define ROW(f) cmocka_unit_test_teardown(f, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(messages_return_to_a_sender_of_another_silo),
        ROW(requests_of_another_silo_to_processes_get_a_response),
        ROW(requests_of_another_silo_to_grains_get_a_response),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
