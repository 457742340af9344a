/* slow.c - README's example of filters: a silo that reports slow methods. */
#include <stdio.h>
#include <teff/filter.h>
#include <time.h>
#include "words.teff.h"

enum { SLOW_US = 10000 };

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static teff_err note_start(void *arg, teff_filter_call *call)
{
    (void)arg;
    call->state = (void *)(uintptr_t)now_us();
    return TEFF_OK;
}

static teff_err report_if_slow(void *arg, teff_filter_call *call, teff_err err)
{
    (void)arg;
    uint64_t us = now_us() - (uintptr_t)call->state;
    if (us > SLOW_US)
        fprintf(stderr, "%s took %.3f s: %s\n", call->method->name, (double)us / 1e6,
                teff_err_name(err));
    return err;
}

int main(int argc, char **argv)
{
    static const words_word_methods methods = {0};
    static const teff_filter incoming[] = {{note_start, report_if_slow, NULL}, {NULL, NULL, NULL}};
    static const teff_silo_options silo = {.size = sizeof silo, .incoming = incoming};
    const teff_silo_program program = {.size = sizeof program, .silo = &silo};
    return teff_silo_run(argc, argv, &program, words_word_type(&methods, NULL), NULL);
}
