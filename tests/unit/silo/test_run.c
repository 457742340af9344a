/* test_run.c - a silo program with options, a thread and a context of its own, from outside.
 * argv[1] is the program under test. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "child.h"
#include "lab.h"

static void comes_before(const char *text, const char *first, const char *second)
{
    const char *a = strstr(text, first), *b = strstr(text, second);
    if (!a || !b || a > b)
        fail_msg("expected '%s' before '%s' in '%s'", first, second, text);
}

/* Ends it when it is ready. out: in c->text what it wrote from ready on. */
static child ended(const char *const *args)
{
    child c = child_run(args, false);
    child_read(&c, c.out, "ready 127.0.0.1:");
    assert_int_equal(kill(c.pid, SIGTERM), 0);
    return c;
}

static void threads_run_while_it_serves(void **state)
{
    child c = child_run(ARGS("--quiet", "--name", "somebody"), false);
    child_read(&c, c.out, "ready 127.0.0.1:");
    comes_before(c.text, "starts at 127.0.0.1:", "ready ");
    assert_int_equal(kill(c.pid, SIGTERM), 0);
    child_read(&c, c.out, "stops at 127.0.0.1:");
    assert_non_null(strstr(c.text, ", 0 calls failed"));
    assert_int_equal(child_status(&c), 0);
}

static void it_may_end_itself(void **state)
{
    child c = child_run(ARGS("--quiet", "--done"), false);
    child_read(&c, c.out, NULL);
    comes_before(c.text, "ready ", "stops at ");
    assert_int_equal(child_status(&c), 0);
}

static void a_signal_while_it_starts_counts_afterwards(void **state)
{
    static const int signals[] = {SIGTERM, SIGINT};
    for (int i = 0; i < 2; i++) {
        child c = child_run(ARGS("--quiet", "--hold-the-start-until-input-ends"), false);
        child_read(&c, c.out, "starts at ");
        assert_int_equal(kill(c.pid, SIGUSR1), 0);
        assert_int_equal(kill(c.pid, signals[i]), 0);
        close(c.in);
        c.in = -1;
        child_read(&c, c.out, NULL);
        comes_before(c.text, "ready ", "stops at ");
        assert_int_equal(child_status(&c), 0);
    }
}

static void a_failed_start_ends_it_with_its_text(void **state)
{
    child c = child_run(ARGS("--quiet", "--fail", "no such printer"), false);
    child_read(&c, c.err, NULL);
    assert_non_null(strstr(c.text, "no such printer"));
    child_read(&c, c.out, NULL);
    assert_non_null(strstr(c.text, "starts at "));
    assert_null(strstr(c.text, "ready"));
    assert_null(strstr(c.text, "stops"));
    assert_int_equal(child_status(&c), 1);
    c = child_run(ARGS("--quiet", "--fail", ""), false);
    child_read(&c, c.err, NULL);
    assert_non_null(strstr(c.text, "TEFF_E_FAILED"));
    assert_int_equal(child_status(&c), 1);
}

static void a_silo_that_cannot_start_does_not_start_the_program(void **state)
{
    child c = child_run(ARGS("--quiet", "--seed", "127.0.0.1:1"), false);
    child_read(&c, c.err, NULL);
    assert_non_null(strstr(c.text, "silo cannot start: "));
    child_read(&c, c.out, NULL);
    assert_string_equal(c.text, "");
    assert_int_equal(child_status(&c), 1);
}

static void wrong_usage_ends_with_2(void **state)
{
    child_refuses(ARGS("--nome", "x"), "unknown option: '--nome'");
    child_refuses(ARGS("--cluster", "a", "-xy"), "unknown option: '-x'");
    child_refuses(ARGS("--name"), "a value is missing: '--name'");
    child_refuses(ARGS("--name", ""), "--name: ''; expected a name");
    child_refuses(ARGS("--done=1"), "--done=1");
    child_refuses(ARGS("--mute"), "--mute: TEFF_E_UNIMPLEMENTED");
    child_refuses(ARGS("--quiet", "--quiet"), "twice");
    child_refuses(ARGS("--listen", "nowhere"), "nowhere");
    child_refuses(ARGS("--taken"), "--seed: an option of teff's and of the program's");
    child_refuses(ARGS("--sizeless-silo"), "teff_silo_options.size is 0: set it to");
    child_refuses(ARGS("--sizeless"), "teff_silo_program.size is 0: set it to sizeof(teff_silo_p");
}

/* With --show the program has options of a struct, and prints those of the silo. */
static void shows(const char *const *args, const char *silo, const char *sched)
{
    child c = ended(args);
    comes_before(c.text, silo, "ready ");
    comes_before(c.text, sched, "ready ");
    assert_int_equal(child_status(&c), 0);
}

static void the_command_line_changes_what_it_names(void **state)
{
    lab *l = lab_open(1);
    const char *seed = teff_silo_address(l->silos[0]);
    shows(ARGS("--show", "--quiet", "--cluster", "dev", "--seed", seed),
          ", store none, workers 3, silent 1, message 0, grain 0, connection 0, activations 0, "
          "memory 0\n",
          "threads 0, stacks 0 of 0, workers up to 0, policy 1, levels 1000 2000, share 0, "
          "waiting 0, warn 0 0 0, slice 20, repolls 0, hooks 1\n");
    lab_close(l);
}

static void each_option_of_the_scheduler_is_a_flag(void **state)
{
    shows(ARGS("--quiet", "--show-flags", "--workers", "2", "--message-mib", "9", "--grain-mib",
               "8", "--connection-mib", "7", "--threads-max", "99", "--stacks", "88", "--stack-kib",
               "128", "--workers-max", "4", "--turn-warn-ms", "1", "--delay-warn-ms", "86400000",
               "--queue-warn", "3", "--slice-ms", "5", "--repolls-max", "6", "--policy", "priority",
               "--waiting-max", "10000", "--activations-max", "12345", "--memory-percent", "85"),
          "workers 2, silent 1, message 9437184, grain 8388608, connection 7340032, "
          "activations 12345, memory 85\n",
          "threads 99, stacks 88 of 131072, workers up to 4, policy 2, levels 0 0, share 0, "
          "waiting 10000, warn 1 86400000 3, slice 5, repolls 6, hooks 0\n");
    shows(ARGS("--quiet", "--show-flags", "--policy", "multilevel", "--level1-us", "7",
               "--level2-us", "8", "--level0-percent", "50"),
          "cluster dev, seed none", "policy 1, levels 7 8, share 50, waiting 0");
    shows(ARGS("--quiet", "--show-flags", "--policy", "single"), "cluster dev", "policy 0, ");
}

static void help_lists_the_options_of_both(void **state)
{
    child c = child_run(ARGS("--help"), false);
    child_read(&c, c.out, NULL);
    assert_non_null(strstr(c.text, "  --listen HOST:PORT     where"));
    assert_non_null(strstr(c.text, "\n  --name NAME            whom to ask\n"));
    assert_non_null(strstr(c.text, "\n  --hold-the-start-until-input-ends  a long name\n"));
    assert_non_null(strstr(c.text, "\n  --mute "));
    comes_before(c.text, "--mute", "Prints 'ready");
    assert_int_equal(child_status(&c), 0);
}

/* An option may be given more often: the program decides. */
static void the_last_one_counts(void **state)
{
    child c = ended(ARGS("--quiet", "--name=a", "--name", "b"));
    assert_int_equal(child_status(&c), 0);
}

static void its_log_takes_the_lines(void **state)
{
    child c = ended(ARGS("--log"));
    comes_before(c.text, "log 3: silo 127.0.0.1:", "ready ");
    child_read(&c, c.err, NULL);
    assert_string_equal(c.text, "");
    assert_int_equal(child_status(&c), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_run_while_it_serves),
        cmocka_unit_test(it_may_end_itself),
        cmocka_unit_test(a_signal_while_it_starts_counts_afterwards),
        cmocka_unit_test(a_failed_start_ends_it_with_its_text),
        cmocka_unit_test(a_silo_that_cannot_start_does_not_start_the_program),
        cmocka_unit_test(wrong_usage_ends_with_2),
        cmocka_unit_test(the_command_line_changes_what_it_names),
        cmocka_unit_test(each_option_of_the_scheduler_is_a_flag),
        cmocka_unit_test(help_lists_the_options_of_both),
        cmocka_unit_test(the_last_one_counts),
        cmocka_unit_test(its_log_takes_the_lines),
    };
    if (argc < 2)
        return 2;
    child_program = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
