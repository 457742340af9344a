/* main.c - teff_silo_main: parse options, start a silo, wait for a signal, leave.
 * Way:     user's main -> [main] -> args, silo
 * Exit status: 0 stopped cleanly, 1 failed at run time, 2 wrong usage. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/options.h"
#include "cluster/membership.h"
#include "silo/args.h"
#include "silo/silo.h"

/* out: true: SIGTERM or SIGINT; false: the cluster has declared the silo dead. */
static bool wait_for_signal(teff_silo *silo, const sigset_t *signals)
{
    struct timespec second = {.tv_sec = 1};
    for (;;) {
        int got = sigtimedwait(signals, NULL, &second);
        if (got == SIGUSR1)
            teff_silo_dump(silo, teff_line_print, stderr);
        else if (got > 0)
            return true;
        if (silo->node.membership->ousted) {
            fprintf(stderr, "silo %s was declared dead by its cluster\n", teff_silo_address(silo));
            return false;
        }
    }
}

static bool start_program(teff_silo *silo, const teff_silo_program *program, char *text)
{
    if (teff_silo_start(silo, text)) {
        fprintf(stderr, "silo cannot start: %s\n", text);
        return false;
    }
    *text = '\0';
    teff_err err = program->start ? program->start(program->arg, silo, text) : TEFF_OK;
    if (err)
        fprintf(stderr, "silo %s leaves, its program cannot start: %s\n", teff_silo_address(silo),
                *text ? text : teff_err_name(err));
    return !err;
}

static int serve_until_signal(teff_silo *silo, const teff_silo_program *program, char *text,
                              const sigset_t *signals)
{
    if (!start_program(silo, program, text))
        return 1;
    printf("ready %s\n", teff_silo_address(silo));
    if (fflush(stdout) != 0)
        fprintf(stderr, "silo %s is ready; standard output is closed\n", teff_silo_address(silo));
    bool asked = wait_for_signal(silo, signals);
    if (program->stop)
        program->stop(program->arg, silo);
    return asked && teff_silo_stop(silo, 0) == TEFF_OK ? 0 : 1;
}

/* Give all types to the silo. Owns them: frees those that the silo refuses, all if silo is NULL. */
static bool host_types(teff_silo *silo, teff_grain_type *type, va_list more)
{
    bool ok = type != NULL;
    if (silo && !ok)
        fprintf(stderr, "there is no grain type to host\n");
    for (; type; type = va_arg(more, teff_grain_type *)) {
        char text[TEFF_TEXT_MAX];
        teff_err err = silo && ok ? teffi_silo_host(silo, type, text) : TEFF_E_CANCELLED;
        if (!err)
            continue;
        if (silo && ok)
            fprintf(stderr, "%s: %s\n", teff_err_name(err), text);
        teff_grain_type_free(type);
        ok = false;
    }
    return ok;
}

/* Called before any thread is made: all threads inherit the mask; wait_for_signal() gets them. */
static void block_signals(sigset_t *signals)
{
    sigemptyset(signals);
    sigaddset(signals, SIGTERM);
    sigaddset(signals, SIGINT);
    sigaddset(signals, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, signals, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static int run_silo(int argc, char **argv, const teff_silo_program *given, teff_grain_type *type,
                    va_list more)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_silo_program program;
    teffi_silo_args args;
    teff_silo *silo = NULL;
    sigset_t signals;
    bool taken = teffi_options_take(&program, sizeof program, given, "teff_silo_program", text);
    int status = taken ? teffi_args_parse(argc, argv, &program, &args) : 2;
    if (!taken || (status < 0 && teff_silo_new(&args.silo, &silo, text))) {
        fprintf(stderr, "%s\n", text);
        status = 2;
    }
    bool hosted = host_types(silo, type, more);
    if (!silo)
        return status;
    block_signals(&signals);
    status = hosted ? serve_until_signal(silo, &program, text, &signals) : 1;
    teff_silo_free(silo);
    return status;
}

int teff_silo_run(int argc, char **argv, const teff_silo_program *program, teff_grain_type *type,
                  ...)
{
    va_list more;
    va_start(more, type);
    int status = run_silo(argc, argv, program, type, more);
    va_end(more);
    return status;
}

int teff_silo_main(int argc, char **argv, teff_grain_type *type, ...)
{
    va_list more;
    va_start(more, type);
    int status = run_silo(argc, argv, NULL, type, more);
    va_end(more);
    return status;
}
