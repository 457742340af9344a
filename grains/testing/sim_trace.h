/* sim_trace.h - all events of a run as one hash; the last lines are kept as text.
 * Two runs of a seed must give the same hash: nothing in it may be an address. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { SIM_TRACE_KEPT = 160, SIM_TRACE_TEXT = 240 };

typedef struct sim_trace_line {
    uint64_t now_ns, a, b;
    const char *what; /* static */
    const char *node; /* lives as long as the run */
    char text[SIM_TRACE_TEXT];
} sim_trace_line;

typedef struct sim_trace {
    uint64_t hash, count;
    bool print; /* all lines, as they come */
    sim_trace_line kept[SIM_TRACE_KEPT];
} sim_trace;

/* sim_trace_add - what, static and distinct by its text; node, whose; two figures. */
void sim_trace_add(sim_trace *t, uint64_t now_ns, const char *node, const char *what, uint64_t a,
                   uint64_t b);

/* sim_trace_text - the same with a line of text instead of figures. */
void sim_trace_text(sim_trace *t, uint64_t now_ns, const char *node, const char *what,
                    const char *text);

/* sim_trace_tail - the kept lines, to stderr. */
void sim_trace_tail(const sim_trace *t);
