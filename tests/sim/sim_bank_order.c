/* sim_bank_order.c - is there one order of all transactions and plain reads that count, in which
 * each sees what those before it wrote, and none is before one that had ended when it began?
 * Way:     bank -> [bank order]: a graph of runs; a cycle means that there is no order
 * Source:  Adya, Liskov, O'Neil, "Generalized isolation level definitions" (2000): edges of writes
 *          (ww), reads (wr), anti-dependencies (rw); real time as in "strict serializability" */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "sim_bank.h"

/* What a run has done with one account. */
typedef struct visit {
    uint64_t run, from, to; /* versions; from == to: it has only read */
    uint64_t writer;        /* of from */
} visit;

/* A node is a run, or (over n_runs) the time at which the k-th answer came. */
typedef struct graph {
    uint64_t n_nodes;
    uint32_t (*edges)[2]; /* from, to */
    size_t n_edges, edges_max;
    uint32_t *before; /* edges to each node, from nodes that are left */
    bool *gone;
} graph;

static void add_edge(graph *g, uint64_t from, uint64_t to)
{
    if (from == to)
        return;
    if (g->n_edges == g->edges_max) {
        g->edges_max = g->edges_max ? 2 * g->edges_max : 256;
        g->edges = realloc(g->edges, g->edges_max * sizeof *g->edges);
        teffi_bug_if(!g->edges);
    }
    g->edges[g->n_edges][0] = (uint32_t)from;
    g->edges[g->n_edges++][1] = (uint32_t)to;
    g->before[to]++;
}

/* ---- by account ---- */

/* out: false: the run has not met the account. */
static bool visit_of(const sim_run *r, uint64_t run, unsigned account, visit *v)
{
    bool met = false;
    for (unsigned i = 0; i < r->n; i++) {
        const sim_access *a = &r->access[i];
        if (a->account != account)
            continue;
        if (!met)
            *v = (visit){run, a->version, a->version, a->writer};
        v->to = a->version + a->writes;
        met = true;
    }
    return met;
}

/* By the version that was seen, readers of it before its writer. */
static int compare_visits(const void *a, const void *b)
{
    const visit *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    if ((x->to == x->from) != (y->to == y->from))
        return x->to == x->from ? -1 : 1;
    return x->run < y->run ? -1 : x->run > y->run;
}

static size_t list_visits(const sim_bank *bank, unsigned account, visit *list)
{
    size_t n = 0;
    for (uint64_t run = 1; run <= bank->n_runs; run++)
        if (bank->runs[run].counts && visit_of(&bank->runs[run], run, account, &list[n]))
            n++;
    qsort(list, n, sizeof *list, compare_visits);
    return n;
}

/* Follows the versions of an account, each from its writer to its readers and the next writer. */
static void order_account(sim_world *w, graph *g, unsigned account, visit *list)
{
    size_t n = list_visits(w->bank, account, list), readers = 0;
    uint64_t version = 0, writer = 0;
    for (size_t i = 0; i < n; i++) {
        const visit *v = &list[i];
        if (v->from != version || v->writer != writer) {
            sim_fail(&w->s,
                     "run %" PRIu64 " saw account %u at %" PRIu64 " of run %" PRIu64
                     ", where it was at %" PRIu64 " of run %" PRIu64,
                     v->run, account, v->from, v->writer, version, writer);
            return;
        }
        if (writer)
            add_edge(g, writer, v->run);
        if (v->to == v->from)
            continue;
        for (; readers < i; readers++)
            add_edge(g, list[readers].run, v->run);
        readers = i + 1;
        version = v->to;
        writer = v->run;
    }
}

/* ---- by time ---- */

typedef struct answer {
    uint64_t end_ns, run;
} answer;

static int compare_answers(const void *a, const void *b)
{
    const answer *x = a, *y = b;
    if (x->end_ns != y->end_ns)
        return x->end_ns < y->end_ns ? -1 : 1;
    return x->run < y->run ? -1 : x->run > y->run;
}

/* out: how many answers came before that time. */
static size_t count_answers(const answer *list, size_t n, uint64_t before_ns)
{
    size_t low = 0;
    while (low < n) {
        size_t middle = (low + n) / 2;
        if (list[middle].end_ns < before_ns)
            low = middle + 1;
        else
            n = middle;
    }
    return low;
}

/* The k-th answer is node n_runs + k. */
static void order_times(const sim_bank *bank, graph *g, answer *list)
{
    size_t n = 0;
    for (uint64_t run = 1; run <= bank->n_runs; run++) {
        const sim_deal *deal = &bank->calls[bank->runs[run].call];
        if (bank->runs[run].counts && deal->outcome == SIM_OUTCOME_ANSWERED)
            list[n++] = (answer){deal->end_ns, run};
    }
    qsort(list, n, sizeof *list, compare_answers);
    for (size_t k = 1; k <= n; k++) {
        add_edge(g, list[k - 1].run, bank->n_runs + k);
        if (k > 1)
            add_edge(g, bank->n_runs + k - 1, bank->n_runs + k);
    }
    for (uint64_t run = 1; run <= bank->n_runs; run++) {
        size_t k = bank->runs[run].counts ? count_answers(list, n, bank->runs[run].begin_ns) : 0;
        if (k)
            add_edge(g, bank->n_runs + k, run);
    }
}

/* ---- cycles ---- */

/* Takes away nodes without edges to them until there are none. out: how many nodes are left. */
static uint64_t take_ordered(graph *g)
{
    uint64_t left = g->n_nodes;
    for (bool more = true; more;) {
        more = false;
        for (uint64_t node = 1; node <= g->n_nodes; node++) {
            if (g->gone[node] || g->before[node])
                continue;
            g->gone[node] = more = true;
            left--;
            for (size_t i = 0; i < g->n_edges; i++)
                g->before[g->edges[i][1]] -= g->edges[i][0] == node;
        }
    }
    return left;
}

static uint64_t node_before(const graph *g, uint64_t node)
{
    for (size_t i = 0; i < g->n_edges; i++)
        if (g->edges[i][1] == node && !g->gone[g->edges[i][0]])
            return g->edges[i][0];
    return 0;
}

/* Goes back from a node that is left until it meets a node again. */
static void report_cycle(sim_world *w, const graph *g)
{
    char text[300] = "";
    size_t len = 0;
    uint64_t node = 1;
    while (g->gone[node])
        node++;
    for (uint64_t i = 0; i < g->n_nodes; i++)
        node = node_before(g, node);
    uint64_t first = node;
    do {
        if (len < sizeof text - 30 && node <= w->bank->n_runs)
            len += (size_t)sprintf(text + len, " <- %" PRIu64, node);
        else if (len < sizeof text - 30)
            len += (size_t)sprintf(text + len, " <- time");
        node = node_before(g, node);
    } while (node != first);
    sim_fail(&w->s, "there is no order of the runs%s", text);
}

void sim_bank_order_check(sim_world *w)
{
    const sim_bank *bank = w->bank;
    graph g = {.n_nodes = 2 * bank->n_runs};
    visit *visits = calloc(bank->n_runs + 1, sizeof *visits);
    answer *answers = calloc(bank->n_runs + 1, sizeof *answers);
    g.before = calloc(g.n_nodes + 1, sizeof *g.before);
    g.gone = calloc(g.n_nodes + 1, sizeof *g.gone);
    teffi_bug_if(!visits || !answers || !g.before || !g.gone);
    for (unsigned account = 0; account < SIM_KEYS && !w->s.broken; account++)
        order_account(w, &g, account, visits);
    if (!w->s.broken)
        order_times(bank, &g, answers);
    if (!w->s.broken && take_ordered(&g))
        report_cycle(w, &g);
    free(g.edges);
    free(g.before);
    free(g.gone);
    free(visits);
    free(answers);
}
