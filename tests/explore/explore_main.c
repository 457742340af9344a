/* explore_main.c - runs schedules: of each seed one, in the scene that the seed names.
 *     explore [--schedules N] [--first SEED] [--scene NAME] [--trace] [--planted]
 * A schedule that shows a bug ends the run, says its seed, and runs again by --first SEED
 * --schedules 1. With --planted (a copy of the sources with a bug) finding it is what succeeds. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "explore.h"

/* Set by plant.py when a bug's place is not in the source any more. */
extern const char explore_not_planted[] __attribute__((weak));

/* By seed: the more often a scene stands here, the more of the schedules are its. */
static const explore_scene *const scenes[] = {
    &explore_deque, &explore_exec,  &explore_group,   &explore_exec,    &explore_deque,
    &explore_exec,  &explore_group, &explore_exec,    &explore_deque,   &explore_exec,
    &explore_group, &explore_exec,  &explore_deque,   &explore_group,   &explore_exec,
    &explore_group, &explore_timer, &explore_process, &explore_process, &explore_process,
    &explore_poll,  &explore_poll,  &explore_poll,    &explore_client,  &explore_stop};

enum { N_SCENES = sizeof scenes / sizeof *scenes };
enum {
    TWICE_EVERY = 61
}; /* seeds, one runs twice and must do so alike; a prime meets all scenes */

static const char *only; /* the scene asked for */

static const explore_scene *scene_of(uint64_t seed)
{
    for (unsigned i = 0; only && i < N_SCENES; i++)
        if (!strcmp(scenes[i]->name, only))
            return scenes[i];
    return scenes[seed % N_SCENES];
}

/* out: the hash of who ran when. */
static uint64_t run(uint64_t seed)
{
    const explore_scene *scene = scene_of(seed);
    explore_begin(seed, scene->steps);
    ex.scene = scene->name;
    scene->play();
    return ex.hash;
}

/* What a seed shows can be shown again. */
static void run_twice(uint64_t seed)
{
    if (run(seed) != run(seed))
        explore_fail("its two runs differ");
}

static void crashed(int sig)
{
    signal(sig, SIG_DFL);
    explore_fail("the program crashed: %s", sig == SIGSEGV ? "SIGSEGV" : "SIGABRT");
}

static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* in: argv[*i] names the option; its value follows. */
static const char *value(char **argv, int *i)
{
    if (argv[*i + 1])
        return argv[++*i];
    fprintf(stderr, "explore: %s wants a value\n", argv[*i]);
    exit(2);
}

static void parse(char **argv, uint64_t *first, uint64_t *n)
{
    for (int i = 1; argv[i]; i++) {
        if (!strcmp(argv[i], "--schedules"))
            *n = strtoull(value(argv, &i), NULL, 10);
        else if (!strcmp(argv[i], "--first"))
            *first = strtoull(value(argv, &i), NULL, 10);
        else if (!strcmp(argv[i], "--scene"))
            only = value(argv, &i);
        else if (!strcmp(argv[i], "--trace"))
            ex.trace = true;
        else if (!strcmp(argv[i], "--planted"))
            ex.planted = true;
        else {
            fprintf(stderr, "explore: what is %s?\n", argv[i]);
            exit(2);
        }
    }
    if (only && strcmp(scene_of(0)->name, only)) {
        fprintf(stderr, "explore: there is no scene %s\n", only);
        exit(2);
    }
}

static void catch_crashes(void)
{
    static char stack[65536];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = crashed, .sa_flags = SA_ONSTACK};
    sigaltstack(&alternate, NULL);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGABRT, &action, NULL);
}

int main(int argc, char **argv)
{
    uint64_t first = 1, n = 10000, steps = 0;
    (void)argc;
    parse(argv, &first, &n);
    if (explore_not_planted) {
        printf("explore: FAILED: %s\n", explore_not_planted);
        return 1;
    }
    catch_crashes();
    double begin = now_s();
    for (uint64_t seed = first; seed < first + n; seed++) {
        if (seed % TWICE_EVERY)
            (void)run(seed);
        else
            run_twice(seed);
        steps += ex.steps;
    }
    double seconds = now_s() - begin;
    printf("explore: %s: %" PRIu64 " schedules from seed %" PRIu64 " in %.1f s, %" PRIu64
           " steps, %" PRIu64 " switches, %" PRIu64 " late stores, %" PRIu64 " times time passed\n",
           ex.planted ? "FAILED: the planted bug was not found" : "ok", n, first, seconds, steps,
           ex.switches, ex.late_stores, ex.timeouts);
    return ex.planted ? 1 : 0;
}
