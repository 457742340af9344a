/* program.c - README's silo program with an option, a thread and a log of its own. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <syslog.h>
#include <unistd.h>
#include "words.teff.h"

static teff_err add(words_word *self, const words_seen *in, words_total *out)
{
    self->state->count += in->times;
    out->count = self->state->count;
    return TEFF_OK;
}

struct feeder {
    unsigned every_ms; /* --every */
    pthread_t thread;
    teff_ctx *ctx;
    atomic_bool ends;
};

static teff_err take_every(void *arg, const char *value, char *text)
{
    struct feeder *feeder = arg;
    feeder->every_ms = (unsigned)strtoul(value, NULL, 10);
    if (feeder->every_ms > 0)
        return TEFF_OK;
    snprintf(text, TEFF_TEXT_MAX, "'%.50s'; expected milliseconds", value);
    return TEFF_E_INVALID;
}

static void *feed(void *arg)
{
    struct feeder *feeder = arg;
    while (!feeder->ends) {
        if (words_word_add(feeder->ctx, "tick", words_seen(.times = 1), NULL))
            fprintf(stderr, "%s\n", teff_error(feeder->ctx));
        teff_ctx_reset(feeder->ctx);
        usleep(feeder->every_ms * 1000);
    }
    return NULL;
}

static teff_err start(void *arg, teff_silo *silo, char *text)
{
    struct feeder *feeder = arg;
    feeder->ctx = teff_silo_new_ctx(silo);
    if (feeder->ctx && pthread_create(&feeder->thread, NULL, feed, feeder) == 0)
        return TEFF_OK;
    teff_ctx_free(feeder->ctx);
    snprintf(text, TEFF_TEXT_MAX, "no thread to feed with");
    return TEFF_E_NOMEM;
}

static void stop(void *arg, teff_silo *silo)
{
    struct feeder *feeder = arg;
    (void)silo;
    feeder->ends = true;
    pthread_join(feeder->thread, NULL);
    teff_ctx_free(feeder->ctx);
}

static void log_line(void *arg, teff_log_level level, const char *line)
{
    (void)arg;
    syslog(level == TEFF_LOG_ERROR  ? LOG_ERR
           : level == TEFF_LOG_WARN ? LOG_WARNING
                                    : LOG_INFO,
           "%s", line);
}

int main(int argc, char **argv)
{
    static const teff_log_handler to_syslog = {log_line, NULL};
    static const words_word_methods methods = {.add = add};
    static const teff_sched_options sched = {
        .size = sizeof sched, .policy = TEFF_SCHED_PRIORITY, .waiting_max = 100000};
    static const teff_silo_options silo = {.size = sizeof silo, .sched = &sched};
    teff_grain_type *type = words_word_type(&methods, NULL);
    teff_grain_type_priority(type, 10);
    static const teff_silo_option options[] = {
        {"every", "MS", "count a tick this often (1000)", take_every},
        {NULL, NULL, NULL, NULL},
    };
    static struct feeder feeder = {.every_ms = 1000};
    const teff_silo_program program = {.size = sizeof program,
                                       .options = options,
                                       .start = start,
                                       .stop = stop,
                                       .arg = &feeder,
                                       .silo = &silo};
    teff_log_to(&to_syslog);
    return teff_silo_run(argc, argv, &program, type, NULL);
}
