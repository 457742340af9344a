/* test_continuations.c - what a process starts (commands, timers, messages, pauses) goes on in the
 * group of that process. */
#include "../sched/hand_clock.h"
#include "process/send.h"

static _Atomic unsigned wrong;
static teff_process_system *system_;
static _Atomic unsigned ended;

static void at_home_process(teff_process *me)
{
    teffi_exec *exec = me->system->exec;
    if (exec->ops->current(exec) != &me->group)
        atomic_fetch_add(&wrong, 1);
}

static void on_command(void *arg, const teff_command *command)
{
    (void)arg; /* in the turn of the process that yielded */
    teff_process *p = teffi_process_at(system_, command->from.slot);
    at_home_process(p);
    (void)teff_command_complete(command->completion, TEFF_OK, NULL, 0);
}

static teff_err wander(void *self, teff_process *me)
{
    teff_event event;
    for (int i = 0; i < 50; i++) {
        at_home_process(me);
        teff_err err = teff_process_ask(me, 1, NULL, 0, NULL);
        at_home_process(me);
        err = err ? err : teff_process_send(system_, teff_process_pid(me), &(teff_event){.tag = 1});
        err = err ? err : teff_process_receive(me, &event);
        at_home_process(me);
        err = err ? err : teff_process_sleep(me, (uint32_t)i % 2);
        at_home_process(me);
        err = err ? err : teff_process_yield(me);
        at_home_process(me);
        if (err)
            return err;
    }
    return TEFF_OK;
}

static void on_end(void *arg, teff_pid pid, teff_err err)
{
    if (err)
        atomic_fetch_add(&wrong, 1);
    atomic_fetch_add(&ended, 1);
}

static void every_continuation_of_a_process_is_at_home(void **state)
{
    enum { PROCESSES = 60 };
    static const teff_process_ops on_fiber = {
        .name = "wanderer", .flags = TEFF_PROCESS_FIBER, .run = wander};
    teff_process_options opt = {.size = sizeof opt, .workers = 4, .ended = on_end};
    wrong = 0;
    assert_int_equal(teff_process_system_new(&opt, &system_), TEFF_OK);
    assert_int_equal(teff_process_set_handler(system_, 1, on_command, NULL), TEFF_OK);
    for (unsigned i = 0; i < PROCESSES; i++)
        assert_int_equal(teff_process_spawn(system_, &on_fiber, NULL, NULL, NULL, 0, NULL),
                         TEFF_OK);
    until(atomic_load(&ended) == PROCESSES);
    assert_int_equal(atomic_load(&wrong), 0);
    teff_process_system_free(system_);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_continuation_of_a_process_is_at_home),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
