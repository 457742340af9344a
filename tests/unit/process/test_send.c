/* test_send.c - the seams of processes towards a silo: events from elsewhere are delivered, PIDs of
 * elsewhere take the route, and memory of ended lives refuses what comes late. */
#include "processes.h"
#include "process/send.h"
#include "process/process.h"

static struct {
    latch got, ended;
    teff_event last;
    unsigned cancels;
} t;

static teff_err step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    for (size_t i = 0; i < n; i++) {
        t.last = events[i];
        t.cancels += events[i].kind == TEFF_EVENT_CANCEL;
        latch_hit(&t.got);
    }
    return t.cancels ? teff_step_done(out) : teff_step_idle(out);
}

static const teff_process_ops ops = {.name = "sink", .step = step};

static struct {
    teff_pid to;
    uint64_t tag;
} routed;

static teff_err route_send(void *arg, teff_pid to, const teff_event *message)
{
    assert_ptr_equal(arg, &routed);
    routed.to = to;
    routed.tag = message->tag;
    return TEFF_E_UNREACHABLE;
}

static struct {
    unsigned n;
    teff_err err;
} responses;

static teff_err route_respond(void *arg, const teff_event *request, teff_err err, const void *data,
                              size_t len)
{
    assert_int_equal(request->kind, TEFF_EVENT_REQUEST);
    responses.n++;
    responses.err = err;
    return TEFF_OK;
}

static int setup(void **state)
{
    static const teffi_pid_route route = {
        .send = route_send, .arg = &routed, .silo = 7, .incarnation = 8};
    memset(&t, 0, sizeof t);
    teff_process_system *system =
        system_of((teff_process_options){.workers = 1, .ended = count_end, .arg = &t.ended});
    system->route = route;
    *state = system;
    return 0;
}

static int teardown(void **state)
{
    teff_process_system_free(*state);
    return 0;
}

static void test_own_pids_carry_the_silo(void **state)
{
    teff_pid pid = spawn(*state, &ops, NULL);
    assert_int_equal(pid.silo, 7);
    assert_int_equal(pid.incarnation, 8);
    assert_int_equal(send_tag(*state, pid, 3), TEFF_OK);
    latch_wait(&t.got, 1);
    assert_int_equal(t.last.tag, 3);
}

static void test_other_silos_take_the_route(void **state)
{
    teff_pid other = {.silo = 7, .incarnation = 9, .slot = 1, .generation = 1};
    assert_int_equal(send_tag(*state, other, 5), TEFF_E_UNREACHABLE);
    assert_true(teff_pid_equals(routed.to, other));
    assert_int_equal(routed.tag, 5);
}

static void test_only_requests_get_a_response_and_by_the_route(void **state)
{
    const teff_event request = {.kind = TEFF_EVENT_REQUEST}, message = {0};
    teff_process_system *system = *state;
    responses.n = 0;
    assert_int_equal(teff_pid_respond(system, &request, TEFF_OK, NULL, 0), TEFF_E_INVALID);
    system->route.respond = route_respond;
    assert_int_equal(teff_pid_respond(system, &message, TEFF_OK, NULL, 0), TEFF_E_INVALID);
    assert_int_equal(responses.n, 0);
    assert_int_equal(teff_pid_respond(system, &request, TEFF_E_CONFLICT, NULL, 0), TEFF_OK);
    assert_int_equal(responses.err, TEFF_E_CONFLICT);
    assert_int_equal(teff_pid_respond(system, &request, (teff_err)-1, NULL, 0), TEFF_OK);
    assert_int_equal(responses.err, TEFF_E_FAILED); /* no error has that number */
    assert_int_equal(responses.n, 2);
}

static void test_deliver_takes_messages_and_cancels_only(void **state)
{
    teff_pid pid = spawn(*state, &ops, NULL);
    teff_event event = {.kind = TEFF_EVENT_MESSAGE, .tag = 9, .from = {1, 2, 3, 4}};
    assert_int_equal(teffi_process_deliver(*state, pid, &event), TEFF_OK);
    latch_wait(&t.got, 1);
    assert_int_equal(t.last.from.slot, 3);
    event.kind = TEFF_EVENT_COMPLETE;
    assert_int_equal(teffi_process_deliver(*state, pid, &event), TEFF_E_INVALID);
    event.kind = TEFF_EVENT_TIMER;
    assert_int_equal(teffi_process_deliver(*state, pid, &event), TEFF_E_INVALID);
    event.kind = TEFF_EVENT_CANCEL;
    assert_int_equal(teffi_process_deliver(*state, pid, &event), TEFF_OK);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.cancels, 1);
    event.kind = TEFF_EVENT_MESSAGE;
    assert_int_equal(teffi_process_deliver(*state, pid, &event), TEFF_E_CLOSED);
    assert_int_equal(teffi_process_deliver(*state, pid, &(teff_event){.kind = TEFF_EVENT_CANCEL}),
                     TEFF_E_CLOSED);
}

/* Ends with the message 9. */
static teff_err outlive_cancels(void *self, const teff_event *events, size_t n, teff_step *out)
{
    (void)step(self, events, n, out);
    return n && t.last.tag == 9 ? teff_step_done(out) : teff_step_idle(out);
}

static void test_a_second_cancel_is_ignored(void **state)
{
    static const teff_process_ops ops_outliving = {.name = "outliving", .step = outlive_cancels};
    teff_pid pid = spawn(*state, &ops_outliving, NULL);
    assert_int_equal(teff_process_cancel(*state, pid), TEFF_OK);
    latch_wait(&t.got, 1);
    assert_int_equal(teff_process_cancel(*state, pid), TEFF_OK);
    assert_int_equal(send_tag(*state, pid, 9), TEFF_OK);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.cancels, 1);
    assert_int_equal(atomic_load(&t.got.count), 2);
}

static void test_a_slot_that_was_never_used_is_nobody(void **state)
{
    teff_process_system *system = *state;
    /* volatile: the compiler warns of segments that no slot of a slab has */
    volatile uint32_t never[] = {0, 0x7fffffffu, TEFFI_PROCESS_BIT, 0xffffffffu};
    for (unsigned i = 0; i < sizeof never / sizeof *never; i++)
        assert_null(teffi_process_at(system, never[i]));
    (void)spawn(system, &ops, NULL);
    assert_non_null(teffi_process_at(system, TEFFI_PROCESS_BIT));
    assert_null(teffi_process_at(system, TEFFI_PROCESS_BIT + TEFFI_SLAB_BLOCK));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(test_own_pids_carry_the_silo),
        T(test_other_silos_take_the_route),
        T(test_only_requests_get_a_response_and_by_the_route),
        T(test_deliver_takes_messages_and_cancels_only),
        T(test_a_second_cancel_is_ignored),
        T(test_a_slot_that_was_never_used_is_nobody),
    };
    return cmocka_run_group_tests_name("process/send", tests, NULL, NULL);
}
