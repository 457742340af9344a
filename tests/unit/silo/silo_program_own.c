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

typedef struct own {
    const char *name, *fail;
    bool hold, done, log;
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
    {"mute", NULL, NULL, take_mute},
    {NULL, NULL, NULL, NULL},
};

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
    fflush(stdout);
    if (o->hold)
        while (read(STDIN_FILENO, &c, 1) > 0)
            ;
    if (o->fail) {
        snprintf(text, TEFF_TEXT_MAX, "%s", o->fail);
        return TEFF_E_FAILED;
    }
    o->ctx = teff_silo_ctx(silo);
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
    own o = {.name = "nobody"};
    teff_silo_program program = {sizeof program, options, start, stop, &o};
    if (argc > 1 && strcmp(argv[1], "--taken") == 0)
        program.options = taken;
    if (argc > 1 && strcmp(argv[1], "--sizeless") == 0)
        program.size = 0;
    return teff_silo_run(argc, argv, &program, lab_hashed_type(&hashed, NULL), NULL);
}
