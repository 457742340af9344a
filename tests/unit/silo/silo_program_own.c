/* silo_program_own.c - a silo program with options, a thread and a context of its own: test_run.c
 * starts it and looks at it from outside. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "lab.h"
#include "silo/silo.h"

typedef struct own {
    const char *name, *fail;
    bool hold, done, show;
    pthread_t thread;
    teff_ctx *ctx;
    _Atomic bool ends;
    _Atomic unsigned calls, bad;
} own;

static teff_err take_name(void *arg, const char *value, char *text)
{
    own *o = arg;
    if (!*value) {
        snprintf(text, TEFF_TEXT_MAX, "'%s'; expected a name", value);
        return TEFF_E_INVALID;
    }
    o->name = value;
    return TEFF_OK;
}

static teff_err take_fail(void *arg, const char *value, char *text)
{
    ((own *)arg)->fail = value;
    return TEFF_OK;
}

static teff_err take_hold(void *arg, const char *value, char *text)
{
    ((own *)arg)->hold = !value;
    return TEFF_OK;
}

static teff_err take_done(void *arg, const char *value, char *text)
{
    ((own *)arg)->done = !value;
    return TEFF_OK;
}

static teff_err take_show(void *arg, const char *value, char *text)
{
    ((own *)arg)->show = !value;
    return TEFF_OK;
}

static void log_line(void *arg, teff_log_level level, const char *line)
{
    fprintf(stdout, "log %d: %s\n", level, line);
    fflush(stdout);
}

static const teff_log_handler to_stdout = {log_line, NULL};

static teff_err take_log(void *arg, const char *value, char *text)
{
    teff_log_to(&to_stdout);
    return TEFF_OK;
}

static teff_err take_mute(void *arg, const char *value, char *text)
{
    return TEFF_E_UNIMPLEMENTED;
}

static const teff_silo_option options[] = {
    {"name", "NAME", "whom to ask", take_name},
    {"fail", "TEXT", "fail with this text", take_fail},
    {"hold-the-start-until-input-ends", NULL, "a long name", take_hold},
    {"done", NULL, "end when the first call is done", take_done},
    {"log", NULL, "the log goes to standard output", take_log},
    {"show", NULL, "print the silo's options", take_show},
    {"show-flags", NULL, "the same, without options of a struct", take_show},
    {"mute", NULL, NULL, take_mute},
    {NULL, NULL, NULL, NULL},
};

static void show(const teff_silo *silo)
{
    const teff_silo_options *opt = &silo->opt;
    const teff_sched_options *s = &silo->sched;
    printf("cluster %s, seed %s, store %s, workers %u, silent %d, message %llu, grain %u, "
           "connection %u, activations %u, memory %u\n",
           opt->cluster, opt->seeds[0] ? opt->seeds[0] : "none", opt->store ? opt->store : "none",
           opt->workers, opt->silent, (unsigned long long)opt->message_bytes_max,
           opt->grain_bytes_max, opt->connection_bytes_max, opt->activations_max,
           opt->memory_percent);
    printf("threads %u, stacks %u of %zu, workers up to %u, policy %d, levels %u %u, share %u, "
           "waiting %u, warn %u %u %u, slice %u, repolls %u, hooks %d\n",
           s->threads_max, s->stacks_max, s->stack_bytes, s->workers_max, (int)s->policy,
           s->level_us[0], s->level_us[1], s->level0_percent, s->waiting_max, s->turn_warn_ms,
           s->delay_warn_ms, s->queue_warn, s->slice_ms, s->repolls_max, s->hooks->start != NULL);
}

static void ask(own *o)
{
    lab_text *response;
    teff_err err = lab_hashed_where(o->ctx, o->name, &response);
    if (err) {
        printf("%s: %s\n", teff_err_name(err), teff_error(o->ctx));
        o->bad++;
    }
    teff_ctx_reset(o->ctx);
    o->calls++;
}

static void *run(void *arg)
{
    own *o = arg;
    do {
        ask(o);
        if (o->done)
            kill(getpid(), SIGTERM);
    } while (!o->ends);
    return NULL;
}

static teff_err start(void *arg, teff_silo *silo, char *text)
{
    own *o = arg;
    char c;
    printf("starts at %s\n", teff_silo_address(silo));
    if (o->show)
        show(silo);
    fflush(stdout);
    if (o->hold)
        while (read(STDIN_FILENO, &c, 1) > 0)
            ;
    if (o->fail) {
        snprintf(text, TEFF_TEXT_MAX, "%s", o->fail);
        return TEFF_E_FAILED;
    }
    o->ctx = teff_silo_new_ctx(silo);
    if (!o->ctx)
        return TEFF_E_NOMEM;
    return pthread_create(&o->thread, NULL, run, o) ? TEFF_E_IO : TEFF_OK;
}

static void stop(void *arg, teff_silo *silo)
{
    own *o = arg;
    o->ends = true;
    pthread_join(o->thread, NULL);
    ask(o); /* it still serves */
    printf("stops at %s, %u calls failed\n", teff_silo_address(silo), o->bad);
    fflush(stdout);
    teff_ctx_free(o->ctx);
}

static void on_thread(void *arg, uint32_t thread)
{
}

static teff_err where(lab_hashed *self, lab_text *out)
{
    out->text = teff_strdup(self->ctx, self->ctx->node->address);
    return TEFF_OK;
}

int main(int argc, char **argv)
{
    static const lab_hashed_methods hashed = {.where = where};
    static const teff_silo_option taken[] = {{"seed", "N", "of a random number", take_name},
                                             {NULL, NULL, NULL, NULL}};
    static const teff_sched_hooks hooks = {.size = sizeof hooks, .start = on_thread};
    static const teff_sched_options sched = {.size = sizeof sched,
                                             .policy = TEFF_SCHED_MULTILEVEL,
                                             .level_us = {1000, 2000},
                                             .slice_ms = 20,
                                             .hooks = &hooks};
    static const teff_silo_options silo = {.size = sizeof silo,
                                           .cluster = "struct",
                                           .seeds = {"127.0.0.1:1"},
                                           .workers = 3,
                                           .sched = &sched},
                                   sizeless = {.workers = 1};
    own o = {.name = "nobody"};
    teff_silo_program program = {
        .size = sizeof program, .options = options, .start = start, .stop = stop, .arg = &o};
    if (argc > 1 && strcmp(argv[1], "--taken") == 0)
        program.options = taken;
    if (argc > 1 && strcmp(argv[1], "--sizeless") == 0)
        program.size = 0;
    if (argc > 1 && strcmp(argv[1], "--sizeless-silo") == 0)
        program.silo = &sizeless;
    if (argc > 1 && strcmp(argv[1], "--show") == 0)
        program.silo = &silo;
    return teff_silo_run(argc, argv, &program, lab_hashed_type(&hashed, NULL), NULL);
}
