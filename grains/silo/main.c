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

/* LOOK_MS: how often the lease is checked. AGAIN_MS: pause between two attempts to start again. */
enum { LOOK_MS = 200, AGAIN_MS = 1000 };

/* Waits at most `ms` milliseconds for a signal. out: the signal; -1: none came. */
static int wait_for_signal_with_timeout(const sigset_t *signals, long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    return sigtimedwait(signals, NULL, &time);
}

/* Waits until SIGTERM or SIGINT comes or the lease is lost; writes a dump at each SIGUSR1. out:
 * true: SIGTERM or SIGINT came; false: the lease is lost. */
static bool wait_for_stop_signal_or_lost_lease(teff_silo *silo, const sigset_t *signals)
{
    for (;;) {
        int got = wait_for_signal_with_timeout(signals, LOOK_MS);
        if (got == SIGUSR1)
            teff_silo_dump(silo, teff_line_print, stderr);
        else if (got > 0)
            return true;
        if (teffi_lease_is_over(&silo->node.home.lease))
            return false;
    }
}

/* Calls the program's `start`. out: false: it failed; the error was printed. */
static bool call_program_start(teff_silo *silo, const teff_silo_program *program, char *text)
{
    *text = '\0';
    teff_err err = program->start ? program->start(program->arg, silo, text) : TEFF_OK;
    if (err)
        fprintf(stderr, "silo %s leaves, its program cannot start: %s\n", teff_silo_address(silo),
                *text ? text : teff_err_name(err));
    return !err;
}

/* Ends the process if the workers are stuck: teff_silo_stop() would wait for their turns, and the
 * program's `stop` might. */
static void end_process_if_stuck(teff_silo *silo)
{
    if (!teffi_stuck_was_found(silo->node.membership))
        return;
    teff_silo_dump(silo, teff_line_print, stderr);
    fprintf(stderr, "silo %s ends: its workers are stuck\n", teff_silo_address(silo));
    _Exit(1);
}

/* The silo's stop_hangs: ends the process, as nothing else ends the turns that the log names. */
static void end_process_if_stop_hangs(teff_silo *silo, const char *why)
{
    fprintf(stderr, "silo %s ends: %s\n", teff_silo_address(silo), why);
    _Exit(1);
}

/* Prints "ready" and serves until SIGTERM or SIGINT comes or the lease is lost. In both cases calls
 * the program's `stop` before it returns. out: true: a signal came; false: the lease is lost. */
static bool serve_until_signal_or_lost_lease(teff_silo *silo, const teff_silo_program *program,
                                             const sigset_t *signals)
{
    const char *gateway = teff_silo_gateway(silo);
    printf("ready %s%s%s\n", teff_silo_address(silo), *gateway ? " gateway " : "", gateway);
    if (fflush(stdout) != 0)
        fprintf(stderr, "silo %s is ready; standard output is closed\n", teff_silo_address(silo));
    bool asked = wait_for_stop_signal_or_lost_lease(silo, signals);
    if (!asked)
        end_process_if_stuck(silo);
    if (program->stop)
        program->stop(program->arg, silo);
    return asked;
}

/* Restarts a silo that has lost its lease, as a new incarnation. If the start fails, tries again
 * once a second. out: true: the silo has started; false: SIGTERM or SIGINT came before that. */
static bool restart_silo(teff_silo *silo, char *text, const sigset_t *signals)
{
    while (teff_silo_start(silo, text)) {
        fprintf(stderr, "silo cannot start again, it tries once a second: %s\n", text);
        int got = wait_for_signal_with_timeout(signals, AGAIN_MS);
        if (got > 0 && got != SIGUSR1)
            return false;
    }
    return true;
}

/* Starts the silo and serves; starts the silo again when the lease is lost. out: the exit status.
 * If the status is 1, the silo may still serve; the caller's teff_silo_free() stops it. */
static int start_and_serve_until_signal(teff_silo *silo, const teff_silo_program *program,
                                        char *text, const sigset_t *signals)
{
    if (teff_silo_start(silo, text)) {
        fprintf(stderr, "silo cannot start: %s\n", text);
        return 1;
    }
    do {
        if (!call_program_start(silo, program, text))
            return 1;
        bool asked = serve_until_signal_or_lost_lease(silo, program, signals);
        teff_err err = teff_silo_stop(silo, 0);
        if (asked)
            return err ? 1 : 0;
    } while (restart_silo(silo, text, signals));
    return 0;
}

/* Gives the types to the silo until the silo refuses one. Takes ownership of all types: frees the
 * refused type and the types after it, or all types if silo is NULL. out: true if there is at least
 * one type and the silo hosts all of them. */
static bool host_types(teff_silo *silo, teff_grain_type *type, va_list more)
{
    bool ok = type != NULL;
    if (silo && !ok)
        fprintf(stderr, "there is no grain type to host\n");
    for (; type; type = va_arg(more, teff_grain_type *)) {
        char text[TEFF_TEXT_MAX];
        teff_err err = silo && ok ? teffi_silo_host_type(silo, type, text) : TEFF_E_CANCELLED;
        if (!err)
            continue;
        if (silo && ok)
            fprintf(stderr, "%s: %s\n", teff_err_name(err), text);
        teff_grain_type_free(type);
        ok = false;
    }
    return ok;
}

/* Blocks the signals that wait_for_stop_signal_or_lost_lease() waits for, and ignores SIGPIPE. Must
 * be called before any thread is made, as threads inherit the mask. */
static void block_signals_and_ignore_sigpipe(sigset_t *signals)
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
    bool taken =
        teffi_options_check_and_copy(&program, sizeof program, given, "teff_silo_program", text);
    int status = taken ? teffi_args_parse(argc, argv, &program, &args) : 2;
    if (!taken || (status < 0 && teff_silo_new(&args.silo, &silo, text))) {
        fprintf(stderr, "%s\n", text);
        status = 2;
    }
    bool hosted = host_types(silo, type, more);
    if (!silo)
        return status;
    silo->stop_hangs = end_process_if_stop_hangs;
    block_signals_and_ignore_sigpipe(&signals);
    status = hosted ? start_and_serve_until_signal(silo, &program, text, &signals) : 1;
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
