/* sim_trace.c - the hash of a run and its last lines. */
#include "sim_trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/hash.h"

static void print_line(FILE *to, const sim_trace_line *l)
{
    fprintf(to, "%12.6f %-10s %-9s", (double)l->now_ns / 1e9, l->node, l->what);
    if (l->text[0])
        fprintf(to, " %s\n", l->text);
    else
        fprintf(to, " %" PRIu64 " %" PRIu64 "\n", l->a, l->b);
}

static void hash_mix(sim_trace *t, uint64_t x)
{
    t->hash = teffi_mix64(t->hash ^ x) + 0x9e3779b97f4a7c15u;
}

static void mix_text(sim_trace *t, const char *text)
{
    hash_mix(t, teffi_hash64(text, strlen(text), 1));
}

static sim_trace_line *next_line(sim_trace *t, uint64_t now_ns, const char *node, const char *what)
{
    sim_trace_line *l = &t->kept[t->count++ % SIM_TRACE_KEPT];
    l->now_ns = now_ns;
    l->node = node;
    l->what = what;
    l->a = l->b = 0;
    l->text[0] = '\0';
    hash_mix(t, now_ns);
    mix_text(t, what);
    mix_text(t, node);
    return l;
}

void sim_trace_add(sim_trace *t, uint64_t now_ns, const char *node, const char *what, uint64_t a,
                   uint64_t b)
{
    sim_trace_line *l = next_line(t, now_ns, node, what);
    l->a = a;
    l->b = b;
    hash_mix(t, a);
    hash_mix(t, b);
    if (t->print)
        print_line(stdout, l);
}

void sim_trace_text(sim_trace *t, uint64_t now_ns, const char *node, const char *what,
                    const char *text)
{
    sim_trace_line *l = next_line(t, now_ns, node, what);
    snprintf(l->text, sizeof l->text, "%s", text);
    mix_text(t, text);
    if (t->print)
        print_line(stdout, l);
}

void sim_trace_tail(const sim_trace *t)
{
    uint64_t n = t->count < SIM_TRACE_KEPT ? t->count : SIM_TRACE_KEPT;
    for (uint64_t i = t->count - n; i < t->count; i++)
        print_line(stderr, &t->kept[i % SIM_TRACE_KEPT]);
}
