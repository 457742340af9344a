/* cluster.c - the testing kit: a cluster of silos and clients on the simulator's platform.
 * Way:     test -> [cluster] -> silo, client -> sim (clock, executor, net, store)
 * Threads: one. Functions that wait run the simulation on the test's stack (sim_pump).
 * Source:  Orleans TestCluster; FoundationDB's simulator */
#include <teff/testing.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "base/error.h"
#include "base/options.h"
#include "call/lease.h"
#include "silo/client.h"
#include "silo/silo.h"
#include "sim.h"

enum { FIRST_PORT = 7000, FIRST_CLIENT = 100, KILL_MS = 1, NAMES_MAX = 24, PER_MILLE = 1000 };

/* 146 years. A wait that ends later than the clock can show would end at once. */
static const uint64_t WAIT_MAX_MS = UINT64_MAX / 4 / SIM_MS;

typedef struct place { /* of one silo, which may start several times */
    unsigned no;
    sim_node node;
    char address[32];
    teff_silo *silo; /* NULL: it does not run */
    bool lost;       /* its lease */
    bool apart[TEFF_TESTING_SILOS_MAX];
} place;

struct teff_testing {
    sim s;
    uint64_t begin_ns;
    teff_testing_options opt;
    teff_silo_options silo_opt;
    char *name; /* silo_opt.cluster; NULL: the default */
    place places[TEFF_TESTING_SILOS_MAX];
    sim_node clients[TEFF_TESTING_CLIENTS_MAX];
    unsigned n_clients;
    teff_client *client;
    teff_ctx *ctx;  /* client's */
    uintptr_t wait; /* the number of the current wait, or of the last one; from 1 */
    bool due;       /* the time of the current wait is over */
};

/* A broken run cannot be freed: what runs of it is on this stack. */
static void report_broken_run(sim *s)
{
    sim_trace_tail(&s->trace);
    fprintf(stderr, "teff_testing: %s\nthe seed of this run: %llu\n", s->why,
            (unsigned long long)s->seed);
    abort();
}

/* A turn that let the cluster run would wait for itself. */
static void abort_if_on_fiber(const char *function)
{
    char rule[TEFF_TEXT_MAX];
    const teffi_fiber *fiber = teffi_fiber_current();
    if (!fiber)
        return;
    snprintf(rule, sizeof rule, "%s lets the cluster run; call it in the test, not in a turn",
             function);
    teffi_abort_for_broken_rule(teffi_fiber_get_label(fiber), rule);
}

/* ---- who reaches whom ---- */

static place *place_of_node(teff_testing *cluster, const sim_node *node)
{
    for (unsigned i = 0; i < TEFF_TESTING_SILOS_MAX; i++)
        if (&cluster->places[i].node == node)
            return &cluster->places[i];
    return NULL;
}

static bool pair_reaches(void *world, const sim_node *from, const sim_node *to)
{
    const place *a = place_of_node(world, from), *b = place_of_node(world, to);
    return !a || !b || !a->apart[b->no];
}

void teff_testing_cut(teff_testing *cluster, unsigned a, unsigned b)
{
    if (a >= TEFF_TESTING_SILOS_MAX || b >= TEFF_TESTING_SILOS_MAX || a == b)
        return;
    cluster->places[a].apart[b] = cluster->places[b].apart[a] = true;
    sim_net_cut_unreachable(&cluster->s);
}

void teff_testing_cut_store(teff_testing *cluster, unsigned no)
{
    if (no < TEFF_TESTING_SILOS_MAX)
        cluster->places[no].node.cut_until_ns = UINT64_MAX;
}

void teff_testing_pause(teff_testing *cluster, unsigned no, uint32_t ms)
{
    place *p = no < TEFF_TESTING_SILOS_MAX ? &cluster->places[no] : NULL;
    sim *s = &cluster->s;
    if (!p || !p->silo)
        return;
    p->node.paused_until_ns = s->now_ns + ms * SIM_MS;
    if (s->paused_until_ns < p->node.paused_until_ns)
        s->paused_until_ns = p->node.paused_until_ns;
    sim_net_pause(p->silo->node.home.net);
}

teff_err teff_testing_set_faults(teff_testing *cluster, const teff_testing_faults *given)
{
    teff_testing_faults f;
    sim_faults *to = &cluster->s.faults;
    if (!teffi_options_check_and_copy(&f, sizeof f, given, "teff_testing_faults", NULL) ||
        f.breaks > PER_MILLE || f.store_failed > PER_MILLE || f.store_unknown > PER_MILLE ||
        f.store_slow > PER_MILLE || f.delay_min_us > f.delay_max_us)
        return TEFF_E_INVALID;
    to->wire_breaks = f.breaks;
    to->wire_min_ns = f.delay_min_us * UINT64_C(1000);
    to->wire_max_ns = f.delay_max_us * UINT64_C(1000);
    to->store_failed = f.store_failed;
    to->store_unknown = f.store_unknown;
    to->store_slow = f.store_slow;
    return TEFF_OK;
}

void teff_testing_heal(teff_testing *cluster)
{
    (void)!teff_testing_set_faults(cluster, NULL);
    for (unsigned i = 0; i < TEFF_TESTING_SILOS_MAX; i++) {
        place *p = &cluster->places[i];
        memset(p->apart, 0, sizeof p->apart);
        p->node.cut_until_ns = 0;
    }
}

/* ---- silos ---- */

static void cut_off_lost_silo(sim *s, void *arg, bool run)
{
    const place *p = arg;
    (void)s;
    if (run && p->lost)
        sim_net_kill(p->silo->node.home.net);
}

/* The silo has ended, and reaches nobody. It is freed by the next start, stop or kill. */
static void mark_lease_lost(void *arg, const char *why)
{
    place *p = arg;
    (void)why;
    p->lost = p->node.dead = true;
    sim_at(p->node.sim, 0, cut_off_lost_silo, p);
}

static void free_place(place *p)
{
    teff_silo_free(p->silo);
    p->silo = NULL;
    p->node.lease = NULL;
    p->lost = false;
}

static teff_silo_options make_silo_options(const teff_testing *cluster, place *p)
{
    teff_silo_options opt = cluster->silo_opt;
    opt.listen = p->address;
    opt.lost = mark_lease_lost;
    opt.lost_arg = p;
    return opt;
}

static teff_err start_place(teff_testing *cluster, place *p, char *text)
{
    teff_silo_options opt = make_silo_options(cluster, p);
    p->node.dead = false;
    p->node.paused_until_ns = 0;
    teff_err err = teffi_silo_new_on_platform(&p->node.platform, &opt, &p->silo, text);
    if (!err)
        err = cluster->opt.host(cluster->opt.arg, p->silo, p->no);
    if (err) {
        char why[TEFF_TEXT_MAX];
        snprintf(why, sizeof why, "%s", text[0] ? text : "host has failed");
        (void)teffi_fail(text, err, "silo %u: %s", p->no, why);
    } else {
        p->node.lease = &p->silo->node.home.lease;
        err = teff_silo_start(p->silo, text);
    }
    if (err)
        free_place(p);
    return err;
}

teff_silo *teff_testing_silo(teff_testing *cluster, unsigned no)
{
    const place *p = no < TEFF_TESTING_SILOS_MAX ? &cluster->places[no] : NULL;
    return p && !p->lost ? p->silo : NULL;
}

teff_err teff_testing_start(teff_testing *cluster, unsigned no, char *text)
{
    char scratch[TEFF_TEXT_MAX] = "";
    abort_if_on_fiber("teff_testing_start");
    text = text ? text : scratch;
    if (no >= TEFF_TESTING_SILOS_MAX || teff_testing_silo(cluster, no))
        return teffi_fail(text, TEFF_E_INVALID, "silo %u serves, or there is no such number", no);
    place *p = &cluster->places[no];
    free_place(p);
    return start_place(cluster, p, text);
}

teff_err teff_testing_stop(teff_testing *cluster, unsigned no, uint32_t timeout_ms)
{
    place *p = no < TEFF_TESTING_SILOS_MAX ? &cluster->places[no] : NULL;
    abort_if_on_fiber("teff_testing_stop");
    teff_err err = p && p->silo ? teff_silo_stop(p->silo, timeout_ms) : TEFF_OK;
    if (p)
        free_place(p);
    return err;
}

/* Without a lease, no turn begins or goes on, and no hook runs. */
void teff_testing_kill(teff_testing *cluster, unsigned no)
{
    place *p = no < TEFF_TESTING_SILOS_MAX ? &cluster->places[no] : NULL;
    abort_if_on_fiber("teff_testing_kill");
    if (!p || !p->silo)
        return;
    p->node.dead = true;
    p->node.paused_until_ns = 0;
    (void)teffi_lease_end(&p->silo->node.home.lease);
    sim_net_kill(p->silo->node.home.net);
    (void)teff_silo_stop(p->silo, KILL_MS);
    free_place(p);
}

/* ---- clients ---- */

static teff_err connect_client_to_gateways(teff_client *client, char *text)
{
    teff_ctx *ctx = teff_client_new_ctx(client);
    teff_err err = ctx ? teffi_gateways_connect(ctx, client) : TEFF_E_NOMEM;
    if (err)
        (void)teffi_fail(text, err, "%s", ctx ? teff_error(ctx) : "out of memory");
    teff_ctx_free(ctx);
    return err;
}

teff_err teff_testing_connect(teff_testing *cluster, int silo, teff_client **client, char *text)
{
    char scratch[TEFF_TEXT_MAX] = "", name[NAMES_MAX];
    teff_client_options opt = {.size = sizeof opt, .cluster = cluster->silo_opt.cluster};
    unsigned n = 0;
    abort_if_on_fiber("teff_testing_connect");
    text = text ? text : scratch;
    *client = NULL;
    if (cluster->n_clients == TEFF_TESTING_CLIENTS_MAX)
        return teffi_fail(text, TEFF_E_OVERLOADED, "too many clients");
    for (unsigned i = 0; i < TEFF_TESTING_SILOS_MAX; i++)
        if (silo < 0 ? i < cluster->opt.silos || teff_testing_silo(cluster, i)
                     : i == (unsigned)silo)
            opt.gateways[n++] = cluster->places[i].address;
    sim_node *node = &cluster->clients[cluster->n_clients];
    snprintf(name, sizeof name, "client%u", cluster->n_clients);
    sim_platform_init(node, &cluster->s, FIRST_CLIENT + cluster->n_clients++, name);
    node->polled = sim_draw_chance(&cluster->s.poll, PER_MILLE / 2);
    teff_err err = teffi_client_new_unconnected(&node->platform, &opt, client, text);
    if (err)
        return err;
    err = connect_client_to_gateways(*client, text);
    if (err) {
        teff_client_free(*client);
        *client = NULL;
    }
    return err;
}

teff_ctx *teff_testing_ctx(teff_testing *cluster)
{
    return cluster->ctx;
}

/* ---- time ---- */

/* arg: the number of a wait. A wait that fn left by longjmp is no longer the current one. */
static void set_wait_due(sim *s, void *arg, bool run)
{
    teff_testing *cluster = s->world;
    if (run && (uintptr_t)arg == cluster->wait)
        cluster->due = true;
}

static void abort_if_not_current(const teff_testing *cluster, uintptr_t wait)
{
    if (cluster->wait != wait)
        teffi_abort_for_broken_rule("the test", "fn of teff_testing_run_until let the cluster run");
}

/* Runs the simulation until done(arg), or for ms. The event of the wait is there even if nothing
 * else can happen. out: done(arg). */
static bool run_until_done(teff_testing *cluster, bool (*done)(void *arg), void *arg, uint64_t ms)
{
    abort_if_on_fiber("teff_testing_advance or teff_testing_run_until");
    uintptr_t wait = ++cluster->wait;
    bool found = done && done(arg);
    abort_if_not_current(cluster, wait);
    cluster->due = false;
    sim_at(&cluster->s, (ms < WAIT_MAX_MS ? ms : WAIT_MAX_MS) * SIM_MS, set_wait_due, (void *)wait);
    while (!cluster->due && !found) {
        sim_pump(&cluster->s, "the test");
        found = done && done(arg);
        abort_if_not_current(cluster, wait);
    }
    return found;
}

void teff_testing_advance(teff_testing *cluster, uint64_t ms)
{
    (void)run_until_done(cluster, NULL, NULL, ms);
}

bool teff_testing_run_until(teff_testing *cluster, bool (*fn)(void *arg), void *arg,
                            uint64_t timeout_ms)
{
    return run_until_done(cluster, fn, arg, timeout_ms);
}

/* Is it more than a timer, or the end of a wait? A worker that is about to leave a poller is. What
 * is left of a silo that has lost its lease does not count. */
static bool is_under_way(const sim_event *e)
{
    if (e->node && e->node->dead)
        return false;
    return e->timer ? e->timer == &e->exec->leaves : e->fn != set_wait_due;
}

static bool cluster_is_idle(void *arg)
{
    const sim *s = &((teff_testing *)arg)->s;
    for (size_t i = 0; i < s->n_events; i++)
        if (is_under_way(&s->events[i]))
            return false;
    return s->n_ready == 0;
}

bool teff_testing_run_until_idle(teff_testing *cluster, uint64_t timeout_ms)
{
    return run_until_done(cluster, cluster_is_idle, cluster, timeout_ms);
}

uint64_t teff_testing_now_ms(const teff_testing *cluster)
{
    return (cluster->s.now_ns - cluster->begin_ns) / SIM_MS;
}

/* ---- the run ---- */

uint64_t teff_testing_seed(const teff_testing *cluster)
{
    return cluster->s.seed;
}

uint64_t teff_testing_hash(const teff_testing *cluster)
{
    return cluster->s.trace.hash;
}

void teff_testing_print(const teff_testing *cluster)
{
    sim_trace_tail(&cluster->s.trace);
}

/* ---- the cluster ---- */

static bool has_own_place(const teff_silo_options *opt)
{
    return opt->listen || opt->advertise || opt->gateway || opt->store || opt->seeds[0] ||
           opt->sched || opt->transport || opt->tls_cert || opt->tls_ca || opt->tls_client_ca ||
           opt->secret_file || opt->client_secret_file || opt->lost;
}

/* The one string of silos that a test may set: each start of a silo, and each client, needs it. */
static teff_err copy_cluster_name(teff_testing *cluster, char *text)
{
    const char *given = cluster->silo_opt.cluster;
    cluster->name = given ? strdup(given) : NULL;
    cluster->silo_opt.cluster = cluster->name;
    return given && !cluster->name ? teffi_fail(text, TEFF_E_NOMEM, "out of memory") : TEFF_OK;
}

static teff_err copy_cluster_options(teff_testing *cluster, const teff_testing_options *given,
                                     char *text)
{
    teff_testing_options *opt = &cluster->opt;
    if (!teffi_options_check_and_copy(opt, sizeof *opt, given, "teff_testing_options", text) ||
        !teffi_options_check_and_copy(&cluster->silo_opt, sizeof cluster->silo_opt, opt->silo,
                                      "teff_silo_options", text))
        return TEFF_E_INVALID;
    if (!opt->host || opt->silos > TEFF_TESTING_SILOS_MAX)
        return teffi_fail(text, TEFF_E_INVALID, "host is not set, or there are too many silos");
    if (has_own_place(&cluster->silo_opt))
        return teffi_fail(text, TEFF_E_INVALID, "an option of silos that the cluster sets itself");
    opt->seed = opt->seed ? opt->seed : 1;
    opt->silos = opt->silos ? opt->silos : 1;
    return copy_cluster_name(cluster, text);
}

static void init_places(teff_testing *cluster)
{
    char name[NAMES_MAX];
    for (unsigned i = 0; i < TEFF_TESTING_SILOS_MAX; i++) {
        place *p = &cluster->places[i];
        p->no = i;
        snprintf(p->address, sizeof p->address, "127.0.0.1:%u", FIRST_PORT + i);
        snprintf(name, sizeof name, "silo%u", i);
        sim_platform_init(&p->node, &cluster->s, i, name);
        p->node.polled = sim_draw_chance(&cluster->s.poll, PER_MILLE / 2);
    }
}

/* The coarse clock runs, as in the product: it may show that a lease is over (sim_exec.c). */
static void init_simulation(teff_testing *cluster)
{
    sim *s = &cluster->s;
    sim_init(s, cluster->opt.seed, SIM_PLANT_NONE);
    s->report = report_broken_run;
    s->reaches = pair_reaches;
    s->world = cluster;
    s->trace.print = cluster->opt.print;
    s->faults.pauses = 1;
    cluster->begin_ns = s->now_ns;
    init_places(cluster);
}

static teff_err start_all(teff_testing *cluster, char *text)
{
    teff_err err = TEFF_OK;
    for (unsigned i = 0; i < cluster->opt.silos && !err; i++)
        err = start_place(cluster, &cluster->places[i], text);
    if (!err)
        err = teff_testing_connect(cluster, -1, &cluster->client, text);
    cluster->ctx = err ? NULL : teff_client_new_ctx(cluster->client);
    return err ? err : cluster->ctx ? TEFF_OK : teffi_fail(text, TEFF_E_NOMEM, "out of memory");
}

teff_err teff_testing_new(const teff_testing_options *options, teff_testing **out, char *text)
{
    char scratch[TEFF_TEXT_MAX] = "";
    abort_if_on_fiber("teff_testing_new");
    teff_testing *cluster = calloc(1, sizeof *cluster);
    text = text ? text : scratch;
    *out = NULL;
    if (!cluster)
        return teffi_fail(text, TEFF_E_NOMEM, "out of memory");
    teff_err err = copy_cluster_options(cluster, options, text);
    if (err) {
        free(cluster);
        return err;
    }
    init_simulation(cluster);
    err = start_all(cluster, text);
    if (err)
        teff_testing_free(cluster);
    else
        *out = cluster;
    return err;
}

void teff_testing_free(teff_testing *cluster)
{
    if (!cluster)
        return;
    abort_if_on_fiber("teff_testing_free");
    teff_testing_heal(cluster);
    teff_ctx_free(cluster->ctx);
    teff_client_free(cluster->client);
    for (unsigned i = TEFF_TESTING_SILOS_MAX; i-- > 0;)
        free_place(&cluster->places[i]);
    sim_fini(&cluster->s);
    free(cluster->name);
    free(cluster);
}
