/* sim_shrink.c - leaves out faults of a failed run, as long as it still fails.
 * Way:     main -> [shrink] -> fork, exec of the simulator with --try -> sim_shrink_report
 * Source:  Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input": halves are
 *          left out first, then quarters, at last single faults until none can be left out. */
#include "sim_shrink.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A try takes 50 ms, most often. TRY_S: a run that takes longer hangs. */
enum { TRIES_MAX = 400, SHRINK_S = 20, TRY_S = 10, ARGS_MAX = 16 };

typedef struct outcome {
    char why[sizeof((sim *)NULL)->why];
    sim_fault_list list;
} outcome;

/* Too large for a fiber's stack. best: the run with the fewest faults that has failed. */
static outcome best, tried;
static sim_kept kept;
static char numbers[SIM_NUMBERS_MAX], seed_text[24];
static const char *program;
static const char *const *run_args;
static unsigned tries;
static time_t began_s;

static time_t monotonic_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec;
}

static bool out_of_tries(void)
{
    return tries >= TRIES_MAX || monotonic_s() - began_s >= SHRINK_S;
}

static void write_outcome_part(const void *part, size_t len)
{
    for (const char *at = part; len;) {
        ssize_t n = write(STDOUT_FILENO, at, len);
        if (n <= 0)
            _exit(2);
        at += n;
        len -= (size_t)n;
    }
}

void sim_shrink_report(const sim *s)
{
    write_outcome_part(s->why, sizeof s->why);
    write_outcome_part(&s->list, sizeof s->list);
}

/* In the child: replaces it by a run with the faults of `numbers`. */
static _Noreturn void exec_try(int to)
{
    const char *args[ARGS_MAX] = {"sim", "--try", "--seed", seed_text, "--faults", numbers};
    for (unsigned i = 0, n = 6; run_args[i] && n + 1 < ARGS_MAX; i++)
        args[n++] = run_args[i];
    int null = open("/dev/null", O_WRONLY);
    unsetenv("TEFF_SEED");
    unsetenv("TEFF_FAULTS");
    if (null < 0 || dup2(to, STDOUT_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0)
        _exit(2);
    alarm(TRY_S);
    execv("/proc/self/exe", (char *const *)(uintptr_t)args);
    _exit(2);
}

/* out: true: the whole outcome of a failed run was read. */
static bool read_outcome(int from)
{
    size_t len = 0;
    for (ssize_t n = 1; n > 0 && len < sizeof tried; len += (size_t)n) {
        n = read(from, (char *)&tried + len, sizeof tried - len);
        if (n < 0)
            return false;
    }
    return len == sizeof tried;
}

/* out: a run with the faults of `kept` fails; then `tried` is its outcome. */
static bool fails_with_kept(void)
{
    int ends[2], status;
    size_t len = 0;
    for (unsigned no = 1; no <= SIM_FAULTS_MAX; no++)
        if (kept.no[no])
            len +=
                (size_t)snprintf(numbers + len, sizeof numbers - len, "%s%u", len ? "," : "", no);
    if (!len)
        snprintf(numbers, sizeof numbers, "none");
    tries++;
    if (pipe2(ends, O_CLOEXEC))
        return false;
    pid_t child = fork();
    if (child == 0)
        exec_try(ends[1]);
    close(ends[1]);
    bool failed = child > 0 && read_outcome(ends[0]);
    close(ends[0]);
    return child > 0 && waitpid(child, &status, 0) == child && failed;
}

/* Keeps the faults of the best run, but for `n` of them from the index `at`. */
static void keep_all_but(unsigned at, unsigned n)
{
    unsigned index = 0;
    kept = (sim_kept){.chosen = true};
    for (unsigned i = 0; i < best.list.n; i++)
        if (best.list.of[i].happened) {
            kept.no[best.list.of[i].no] = index < at || index - at >= n;
            index++;
        }
}

/* out: some faults were left out. */
static bool leave_out_each(unsigned n)
{
    bool any = false;
    for (unsigned at = 0; at < sim_fault_list_count(&best.list) && !out_of_tries();) {
        keep_all_but(at, n);
        if (fails_with_kept()) {
            best = tried;
            any = true;
        } else {
            at += n;
        }
    }
    return any;
}

static void leave_out_faults(void)
{
    keep_all_but(0, SIM_FAULTS_MAX);
    if (fails_with_kept()) {
        best = tried;
        return;
    }
    for (unsigned n = sim_fault_list_count(&best.list) / 2; n > 1; n /= 2)
        (void)leave_out_each(n);
    while (sim_fault_list_count(&best.list) > 1 && leave_out_each(1) && !out_of_tries()) {
    }
}

static void print_again(const sim *s)
{
    sim_fault_list_numbers(&best.list, numbers);
    fprintf(stderr, "with these faults: TEFF_SEED=%" PRIu64 " TEFF_FAULTS=%s %s --trace", s->seed,
            numbers, program);
    for (unsigned i = 0; run_args[i]; i++)
        fprintf(stderr, " %s", run_args[i]);
    fprintf(stderr, "\n");
}

void sim_shrink(const sim *s, const char *as, const char *const args[])
{
    unsigned drawn = sim_fault_list_count(&s->list);
    program = as;
    run_args = args;
    began_s = monotonic_s();
    snprintf(seed_text, sizeof seed_text, "%" PRIu64, s->seed);
    memcpy(best.why, s->why, sizeof best.why);
    best.list = s->list;
    keep_all_but(0, 0);
    if (!fails_with_kept()) {
        fprintf(stderr, "it does not fail again in a process of its own; its faults:\n");
        sim_fault_list_print(&s->list, stderr);
        return;
    }
    best = tried;
    leave_out_faults();
    fprintf(stderr, "it needs %u of its %u faults (%u tries%s)\n", sim_fault_list_count(&best.list),
            drawn, tries, out_of_tries() ? "; the limit was reached: perhaps fewer" : "");
    sim_fault_list_print(&best.list, stderr);
    print_again(s);
    if (strcmp(best.why, s->why) != 0)
        fprintf(stderr, "it then fails with: %s\n", best.why);
}
