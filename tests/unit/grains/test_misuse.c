/* test_misuse.c - a program that breaks a rule of the headers ends with a line that names the turn
 * and the rule, and soon. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <teff/fork.h>
#include <teff/process.h>
#include <unistd.h>
#include "acts.h"
#include "call/wait.h"
#include "fiber/sanitize.h"

enum { PATIENCE_S = 9 }; /* less than the time that stopping a system of processes may take */

/* ---- what turns of grains do ---- */

static teff_err waits_in_blocking(teff_ctx *turn, int64_t key, const direct_act *in,
                                  direct_number *out)
{
    teff_blocking_begin();
    return sleeps(turn, key, in, out);
}

static teff_err returns_in_blocking(teff_ctx *turn, int64_t key, const direct_act *in,
                                    direct_number *out)
{
    teff_blocking_begin();
    return responds(turn, key, in, out);
}

static teff_err waits_in_region(teff_ctx *turn, int64_t key, const direct_act *in,
                                direct_number *out)
{
    teff_preemptible region = teff_preemptible_begin();
    teff_err err = sleeps(turn, key, in, out);
    teff_preemptible_end(region);
    return err;
}

static teff_err returns_in_region(teff_ctx *turn, int64_t key, const direct_act *in,
                                  direct_number *out)
{
    (void)teff_preemptible_begin();
    return responds(turn, key, in, out);
}

static teff_err stops_the_silo(teff_ctx *turn, int64_t key, const direct_act *in,
                               direct_number *out)
{
    (void)teff_silo_stop(l->silos[0], 1);
    return responds(turn, key, in, out);
}

static void part(void *arg)
{
    while (!world.gate)
        (void)teff_yield_if_due();
}

static teff_err joins_in_blocking(teff_ctx *turn, int64_t key, const direct_act *in,
                                  direct_number *out)
{
    teff_join join = {{0}};
    teff_fork(&join, TEFF_STEAL_CHILD, part, NULL);
    teff_blocking_begin();
    teff_join_wait(&join);
    return responds(turn, key, in, out);
}

/* A part must not wait for what only its turn can wait for. */
static void asks_for_its_turn(void *turn)
{
    direct_number *got;
    (void)!direct_actor_obey(turn, FIRST, RUN(responds), &got);
}

static teff_err forks_an_asker(teff_ctx *turn, int64_t key, const direct_act *in,
                               direct_number *out)
{
    teff_join join = {{0}};
    teff_fork(&join, TEFF_STEAL_CHILD, asks_for_its_turn, turn);
    teff_join_wait(&join);
    return responds(turn, key, in, out);
}

static void awaits_for_its_turn(void *turn)
{
    teffi_ctx_sleep(turn, 1);
}

static teff_err forks_a_waiter(teff_ctx *turn, int64_t key, const direct_act *in,
                               direct_number *out)
{
    teff_join join = {{0}};
    teff_fork(&join, TEFF_STEAL_CHILD, awaits_for_its_turn, turn);
    teff_join_wait(&join);
    return responds(turn, key, in, out);
}

static void sleeps_for_its_turn(void *turn)
{
    teff_sleep(turn, 1);
}

static teff_err forks_a_sleeper(teff_ctx *turn, int64_t key, const direct_act *in,
                                direct_number *out)
{
    teff_join join = {{0}};
    teff_fork(&join, TEFF_STEAL_CHILD, sleeps_for_its_turn, turn);
    teff_join_wait(&join);
    return responds(turn, key, in, out);
}

static void starts_timer_for_its_turn(void *turn)
{
    (void)!direct_actor_tell_timer(turn, direct_act(), NULL, NULL);
}

static teff_err forks_a_timer(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    teff_join join = {{0}};
    teff_fork(&join, TEFF_STEAL_CHILD, starts_timer_for_its_turn, turn);
    teff_join_wait(&join);
    return responds(turn, key, in, out);
}

static void as_grain(script *what)
{
    direct_number *got;
    acts_open((teff_silo_options){.silent = 1, .store = "memory", .workers = 2});
    (void)!direct_actor_obey(ctx, 1, RUN(what), &got);
}

/* A turn in place, inside another's. */
static script *inner;

static teff_err asks_inner(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    return direct_actor_obey(turn, key + FIRST, RUN(inner), &got);
}

static void in_place(script *what)
{
    direct_number *got;
    acts_open((teff_silo_options){.silent = 1, .store = "memory", .workers = 1});
    lab_ok(ctx, direct_actor_obey(ctx, 1 + FIRST, RUN(responds), &got));
    inner = what;
    (void)!direct_actor_obey(ctx, 1, RUN(asks_inner), &got);
}

/* ---- what processes do ---- */

static teff_process_system *processes;

static teff_err frees_its_system(void *self, teff_process *me)
{
    teff_process_system_free(processes);
    return TEFF_OK;
}

static teff_err stops_its_system(void *self, teff_process *me)
{
    return teff_process_system_stop(processes, 0, NULL);
}

static teff_err sleeps_in_blocking(void *self, teff_process *me)
{
    teff_blocking_begin();
    return teff_process_sleep(me, 1);
}

static void as_process(uint32_t flags, teff_err (*run)(void *self, teff_process *me))
{
    static teff_process_ops ops;
    const teff_process_options opt = {.size = sizeof opt, .workers = 2};
    ops = (teff_process_ops){.name = "miller", .flags = flags, .run = run};
    assert_int_equal(teff_process_system_new(&opt, &processes), TEFF_OK);
    assert_int_equal(teff_process_spawn(processes, &ops, NULL, NULL, NULL, 0, NULL), TEFF_OK);
}

static const struct rule {
    const char *name;
    script *grain, *inner;
    uint32_t flags;
    teff_err (*process)(void *self, teff_process *me);
    const char *turn, *rule;
    bool region; /* of which there are none under ThreadSanitizer */
} rules[] = {
    {"waits in blocking", waits_in_blocking, NULL, 0, NULL, "direct.Actor.Obey",
     "teff_blocking_begin without teff_blocking_end", false},
    {"returns in blocking", returns_in_blocking, NULL, 0, NULL, "direct.Actor.Obey",
     "teff_blocking_begin without teff_blocking_end", false},
    {"in place, waits in blocking", NULL, waits_in_blocking, 0, NULL, "direct.Actor.Obey",
     "teff_blocking_begin without teff_blocking_end", false},
    {"in place, returns in blocking", NULL, returns_in_blocking, 0, NULL, "direct.Actor.Obey",
     "teff_blocking_begin without teff_blocking_end", false},
    {"joins in blocking", joins_in_blocking, NULL, 0, NULL, "direct.Actor.Obey",
     "teff_join_wait between teff_blocking_begin", false},
    {"a part asks", forks_an_asker, NULL, 0, NULL, "direct.Actor.Obey",
     "only the turn itself, not a part", false},
    {"a part waits", forks_a_waiter, NULL, 0, NULL, "direct.Actor.Obey",
     "only the turn itself, not a part", false},
    {"a part sleeps", forks_a_sleeper, NULL, 0, NULL, "direct.Actor.Obey",
     "only the turn itself, not a part", false},
    {"a part starts a timer", forks_a_timer, NULL, 0, NULL, "direct.Actor.Obey",
     "only the turn itself, not a part", false},
    {"process sleeps in blocking", NULL, NULL, TEFF_PROCESS_FIBER, sleeps_in_blocking,
     "process miller", "teff_blocking_begin without teff_blocking_end", false},
    {"waits in region", waits_in_region, NULL, 0, NULL, "direct.Actor.Obey",
     "it waits between teff_preemptible_begin and teff_preemptible_end", true},
    {"returns in region", returns_in_region, NULL, 0, NULL, "direct.Actor.Obey",
     "it returned after teff_preemptible_begin without teff_preemptible_end", true},
    {"process frees its system", NULL, NULL, 0, frees_its_system, "process miller",
     "teff_process_system_free waits for the end of all turns", false},
    {"fiber frees its system", NULL, NULL, TEFF_PROCESS_FIBER, frees_its_system, "process miller",
     "teff_process_system_free waits for the end of all turns", false},
    {"process stops its system", NULL, NULL, 0, stops_its_system, "process miller",
     "teff_process_system_stop waits for the end of all turns", false},
    {"grain stops its silo", stops_the_silo, NULL, 0, NULL, "direct.Actor.Obey",
     "teff_silo_stop waits for the end of all turns", false},
};

enum { RULES = sizeof rules / sizeof rules[0] };

static int break_rule(const char *name)
{
    alarm(PATIENCE_S);
    for (int i = 0; i < RULES; i++) {
        if (strcmp(rules[i].name, name) != 0)
            continue;
        if (rules[i].grain)
            as_grain(rules[i].grain);
        else if (rules[i].inner)
            in_place(rules[i].inner);
        else
            as_process(rules[i].flags, rules[i].process);
        for (;;) /* a response may come before the end */
            pause();
    }
    return 0;
}

/* out: the wait status; what the program said. */
static int run(const char *name, char *text, size_t size)
{
    int fd[2], status = 0;
    size_t got = 0;
    ssize_t n;
    assert_int_equal(pipe(fd), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(fd[1], STDERR_FILENO);
        execl("/proc/self/exe", "test_misuse", name, (char *)NULL);
        _exit(0);
    }
    close(fd[1]);
    while (got < size - 1 && (n = read(fd[0], text + got, size - 1 - got)) > 0)
        got += (size_t)n;
    text[got] = '\0';
    close(fd[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_each_rule(void **state)
{
    static char text[20000];
    for (int i = 0; i < RULES; i++) {
#ifdef TEFFI_TSAN
        if (rules[i].region)
            continue;
#endif
        int status = run(rules[i].name, text, sizeof text);
        const char *line = strstr(text, "teff: ");
        if (!line || !strstr(line, rules[i].turn) || !strstr(line, rules[i].rule))
            fail_msg("%s: status %d, '%s'", rules[i].name, status, text);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return break_rule(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
