/* crunch.c - a grain that forks: a sum and a quicksort, whose parts run on all workers while the
 * turn waits. crunch [N]: of N numbers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <teff/fork.h>
#include "crunch.teff.h"

enum { N_DEFAULT = 4000000, N_MAX = 100000000, PART_MIN = 4096 /* smaller parts do not fork */ };

typedef struct part { /* of the numbers */
    int32_t *at;
    size_t n;
    Crunch__How how;
    int64_t sum;
} part;

/* Without a fork: fn(arg), a plain call. */
static void fork_or_call(teff_join *join, Crunch__How how, void (*fn)(void *arg), part *arg)
{
    if (how == CRUNCH__HOW__SEQUENTIAL)
        fn(arg);
    else if (how == CRUNCH__HOW__STEAL_CHILD)
        teff_fork(join, TEFF_STEAL_CHILD, fn, arg);
    else
        teff_fork(join, TEFF_STEAL_CONTINUATION, fn, arg);
}

/* ---- the sum: one half is forked, the other computed here ---- */

static void sum_part(void *arg)
{
    part *p = arg;
    if (p->n <= PART_MIN) {
        for (size_t i = 0; i < p->n; i++)
            p->sum += p->at[i];
        return;
    }
    size_t half = p->n / 2;
    part left = {p->at, half, p->how, 0}, right = {p->at + half, p->n - half, p->how, 0};
    teff_join join = {0};
    fork_or_call(&join, p->how, sum_part, &left);
    sum_part(&right);
    teff_join_wait(&join);
    p->sum = left.sum + right.sum;
}

/* ---- quicksort: both sides of the pivot ---- */

static void swap_numbers(int32_t *a, int32_t *b)
{
    int32_t was = *a;
    *a = *b;
    *b = was;
}

/* out: no number before it is above the pivot, none from it on below. Neither side is empty. */
static size_t partition_numbers(int32_t *at, size_t n)
{
    int32_t pivot = at[(n - 1) / 2];
    size_t i = 0, k = n - 1;
    for (;;) {
        while (at[i] < pivot)
            i++;
        while (at[k] > pivot)
            k--;
        if (i >= k)
            return k + 1;
        swap_numbers(&at[i++], &at[k--]);
    }
}

static void sort_part(void *arg)
{
    part *p = arg;
    if (p->n < 2)
        return;
    size_t middle = partition_numbers(p->at, p->n);
    Crunch__How how = p->n > PART_MIN ? p->how : CRUNCH__HOW__SEQUENTIAL;
    part left = {p->at, middle, how, 0}, right = {p->at + middle, p->n - middle, how, 0};
    teff_join join = {0};
    fork_or_call(&join, how, sort_part, &left);
    sort_part(&right);
    teff_join_wait(&join);
}

/* ---- the grain ---- */

typedef struct numbers {
    int32_t *all, *copy; /* the copy is sorted */
    size_t n;
} numbers;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static teff_err sum(crunch_cruncher *self, const crunch_order *in, crunch_result *out)
{
    const numbers *x = self->user;
    part whole = {x->all, x->n, in->how, 0};
    double begin = now_ms();
    sum_part(&whole);
    out->ms = now_ms() - begin;
    out->value = whole.sum;
    return TEFF_OK;
}

static int64_t count_unordered(const int32_t *at, size_t n)
{
    int64_t count = 0;
    for (size_t i = 1; i < n; i++)
        count += at[i - 1] > at[i];
    return count;
}

static teff_err sort(crunch_cruncher *self, const crunch_order *in, crunch_result *out)
{
    const numbers *x = self->user;
    part whole = {x->copy, x->n, in->how, 0};
    memcpy(x->copy, x->all, x->n * sizeof *x->all);
    double begin = now_ms();
    sort_part(&whole);
    out->ms = now_ms() - begin;
    out->value = count_unordered(x->copy, x->n);
    return TEFF_OK;
}

/* ---- main: each in three ways ---- */

static const char *const ways[] = {"sequential", "steal continuations", "steal children"};

static teff_err crunch_three_ways(teff_ctx *ctx)
{
    crunch_result *summed, *sorted;
    teff_err err = TEFF_OK;
    for (int how = 0; how < 3 && !err; how++) {
        err = crunch_cruncher_sum(ctx, "one", crunch_order(.how = (Crunch__How)how), &summed);
        if (!err)
            err = crunch_cruncher_sort(ctx, "one", crunch_order(.how = (Crunch__How)how), &sorted);
        if (!err)
            printf("%-20s sum %ld in %.1f ms, sorted in %.1f ms (%ld out of order)\n", ways[how],
                   summed->value, summed->ms, sorted->ms, sorted->value);
    }
    if (err)
        fprintf(stderr, "%s\n", teff_error(ctx));
    return err;
}

static teff_err run_all(teff_silo *silo, const numbers *x)
{
    teff_sched_metrics all;
    teff_ctx *ctx = teff_silo_new_ctx(silo);
    if (!ctx)
        return TEFF_E_NOMEM;
    (void)teff_silo_sched_metrics(silo, &all, NULL, 0);
    printf("%zu numbers, %u workers\n", x->n, all.active);
    teff_err err = crunch_three_ways(ctx);
    teff_ctx_free(ctx);
    return err;
}

static teff_err serve(const numbers *x, char *text)
{
    static const crunch_cruncher_methods methods = {.sum = sum, .sort = sort};
    teff_silo_options options = {.size = sizeof options, .silent = 1};
    teff_silo *silo;
    teff_err err = teff_silo_new(&options, &silo, text);
    if (!err)
        err = teff_silo_host(silo, crunch_cruncher_type(&methods, (void *)(uintptr_t)x));
    if (!err)
        err = teff_silo_start(silo, text);
    if (!err)
        err = run_all(silo, x);
    teff_silo_free(silo);
    return err;
}

/* The same numbers in each run. */
static void draw_numbers(const numbers *x)
{
    uint32_t seed = 1;
    for (size_t i = 0; i < x->n; i++) {
        seed = seed * 1664525 + 1013904223;
        x->all[i] = (int32_t)(seed >> 8) % 1000000;
    }
}

int main(int argc, char **argv)
{
    char text[TEFF_TEXT_MAX] = "";
    size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : N_DEFAULT;
    if (n < 1 || n > N_MAX) {
        fprintf(stderr, "usage: %s [N], numbers: 1 to %d\n", argv[0], N_MAX);
        return 2;
    }
    numbers x = {malloc(n * sizeof *x.all), malloc(n * sizeof *x.copy), n};
    teff_err err = x.all && x.copy ? TEFF_OK : TEFF_E_NOMEM;
    if (!err) {
        draw_numbers(&x);
        err = serve(&x, text);
    }
    if (err)
        fprintf(stderr, "%s: %s\n", teff_err_name(err), text);
    free(x.all);
    free(x.copy);
    return err ? 1 : 0;
}
