/* scale.c - what one change of the cluster costs as it grows: the real silos on the simulator's
 * clock, network and store. usage: scale SILOS GRAINS
 * A line a change (all but one silo start at once; one joins, leaves, is killed): a JSON object.
 *   seconds: of the cluster, until the last silo has the new view and serves its partitions
 *   messages: of the directory and of the membership, between silos; per_silo: of the busiest one
 *   store: operations of all silos on the store, heartbeats included
 *   moved: entries of the directory that silos sent to each other
 * Way:     main -> [scale] -> silo steps in tasks -> sim */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "activation/activation.h"
#include "call/task.h"
#include "call/wait.h"
#include "cluster.pb-c.h"
#include "cluster/membership.h"
#include "directory/partition.h"
#include "sim.h"
#include "sim_net.h"
#include "silo/silo.h"
#include "world.teff.h"

enum { SILOS_MAX = 1100, WAIT_S = 300, MESSAGES_EACH_MAX = 40 };

typedef struct place {
    sim_node node;
    unsigned no;
    char address[32];
    teff_silo *silo;
    bool serves, gone, filled;
    uint64_t sent;
} place;

static sim s;
static place places[SILOS_MAX];
static unsigned n_places, grains_each;
static uint64_t directory, membership, store_ops, moved;

static void must(bool holds, const char *what, const char *text)
{
    if (holds)
        return;
    fprintf(stderr, "scale: %s: %s\n", what, text);
    _exit(1);
}

static void report(sim *broken)
{
    must(false, "the simulation broke", broken->why);
}

/* ---- what is counted ---- */

static teffi_net_ops counting_net;
static const teffi_net_ops *real_net;

static teff_err count_send(teffi_net *net, teffi_node_id to, teffi_msg *msg)
{
    place *from = NULL;
    for (unsigned i = 0; i < n_places; i++)
        if (places[i].silo && places[i].silo->node.home.net == net)
            from = &places[i];
    bool is_directory = msg->to.slot == TEFFI_SLOT_DIRECTORY;
    directory += is_directory;
    membership += msg->to.slot == TEFFI_SLOT_MEMBERSHIP;
    if (from)
        from->sent++;
    return real_net->send(net, to, msg);
}

static void count_messages(teff_silo *silo)
{
    real_net = silo->node.home.net->ops;
    counting_net = *real_net;
    counting_net.send = count_send;
    silo->node.home.net->ops = &counting_net;
}

void __real_teffi_store_submit(teffi_store *store, teffi_store_op *op);
void __wrap_teffi_store_submit(teffi_store *store, teffi_store_op *op);

void __wrap_teffi_store_submit(teffi_store *store, teffi_store_op *op)
{
    store_ops++;
    __real_teffi_store_submit(store, op);
}

teff_err __real_teffi_partition_merge_activation(teffi_grains *grains, const teffi_ident *ident,
                                                 teffi_pid pid, uint64_t version, teffi_pid *loser);
teff_err __wrap_teffi_partition_merge_activation(teffi_grains *grains, const teffi_ident *ident,
                                                 teffi_pid pid, uint64_t version, teffi_pid *loser);

teff_err __wrap_teffi_partition_merge_activation(teffi_grains *grains, const teffi_ident *ident,
                                                 teffi_pid pid, uint64_t version, teffi_pid *loser)
{
    moved++;
    return __real_teffi_partition_merge_activation(grains, ident, pid, version, loser);
}

/* ---- silos ---- */

static teff_err pass(world_relay *self, const world_fan *in, world_sum *out)
{
    (void)self;
    (void)in;
    (void)out;
    return TEFF_OK;
}

static void join_main(teff_ctx *ctx, void *arg)
{
    place *p = arg;
    teff_err err = teffi_silo_join(ctx, p->silo);
    must(!err, "join", err ? teff_err_name(err) : "");
    p->serves = true;
}

static void start(place *p)
{
    static const world_relay_methods methods = {.pass = pass};
    char text[TEFF_TEXT_MAX] = "";
    teff_silo_options opt = {.size = sizeof opt, .listen = p->address};
    must(!teffi_silo_new_on_platform(&p->node.platform, &opt, &p->silo, text), "new", text);
    must(!teff_silo_host(p->silo, world_relay_type(&methods, NULL)), "host", "");
    p->silo->phase = TEFFI_SILO_STARTED;
    must(!teffi_silo_open(p->silo, text), "open", text);
    count_messages(p->silo);
    must(!teffi_task_start(&p->silo->node.home, join_main, p, "join", false), "task", "");
}

static void fill_main(teff_ctx *ctx, void *arg)
{
    place *p = arg;
    for (unsigned i = 0; i < grains_each; i++) {
        char key[32];
        teff_mark mark = teff_ctx_mark(ctx);
        snprintf(key, sizeof key, "%u-%u", p->no, i);
        must(!world_relay_pass(ctx, key, world_fan(), NULL), "a call", teff_error(ctx));
        teff_ctx_rewind(ctx, mark);
    }
    p->filled = true;
}

static void close_silo(sim *unused, void *arg, bool run)
{
    place *p = arg;
    (void)unused;
    (void)run;
    must(!teffi_silo_close(p->silo, WAIT_S * 1000), "close", "");
    teff_silo_free(p->silo);
    p->silo = NULL;
    p->gone = true;
}

static void leave_main(teff_ctx *ctx, void *arg)
{
    place *p = arg;
    must(!teffi_silo_leave(ctx, p->silo, s.now_ns + WAIT_S * SIM_SECOND), "leave", teff_error(ctx));
    sim_at(&s, 0, close_silo, p);
}

/* ---- waiting ---- */

static bool is_settled(unsigned members)
{
    for (unsigned i = 0; i < n_places; i++) {
        place *p = &places[i];
        if (p->gone)
            continue;
        if (!p->serves || teff_silo_members(p->silo) != members ||
            teffi_partitions_begin_recovery_round(p->silo->node.grains, NULL))
            return false;
    }
    return true;
}

static void explain(unsigned members)
{
    for (unsigned i = 0; i < n_places; i++) {
        const place *p = &places[i];
        if (!p->gone)
            fprintf(stderr, "%s: serves %d, %u members of %u, locked %d\n", p->address, p->serves,
                    teff_silo_members(p->silo), members,
                    p->silo->node.grains &&
                        teffi_partitions_begin_recovery_round(p->silo->node.grains, NULL));
    }
    sim_trace_tail(&s.trace);
    must(false, "settle", "it takes too long");
}

static void step_until_settled(unsigned members)
{
    uint64_t until = s.now_ns + WAIT_S * SIM_SECOND, next = s.now_ns;
    for (;;) {
        if (s.now_ns >= next) {
            if (is_settled(members))
                return;
            next = s.now_ns + SIM_MS;
        }
        if (!sim_step(&s) || s.now_ns >= until)
            explain(members);
    }
}

typedef struct measure {
    const char *what;
    uint64_t ns, directory, membership, store, moved;
} measure;

static measure begin(const char *what)
{
    for (unsigned i = 0; i < n_places; i++)
        places[i].sent = 0;
    return (measure){what, s.now_ns, directory, membership, store_ops, moved};
}

static void print(const measure *m, unsigned silos, unsigned grains)
{
    uint64_t most = 0;
    for (unsigned i = 0; i < n_places; i++)
        most = places[i].sent > most ? places[i].sent : most;
    printf("{\"name\":\"scale-%s\",\"parameters\":{\"silos\":%u,\"grains\":%u},\"seconds\":%.3f,"
           "\"directory\":%llu,\"membership\":%llu,\"per_silo\":%llu,\"store\":%llu,"
           "\"moved\":%llu}\n",
           m->what, silos, grains, (double)(s.now_ns - m->ns) / 1e9,
           (unsigned long long)(directory - m->directory),
           (unsigned long long)(membership - m->membership), (unsigned long long)most,
           (unsigned long long)(store_ops - m->store), (unsigned long long)(moved - m->moved));
    fflush(stdout);
}

/* A change costs each silo some messages, however many grains there are. */
static void check_cost(const measure *m, unsigned silos)
{
    uint64_t messages = directory - m->directory + membership - m->membership;
    must(messages <= (uint64_t)MESSAGES_EACH_MAX * silos, m->what, "takes too many messages");
}

/* ---- the run ---- */

static place *add(void)
{
    char name[24];
    place *p = &places[n_places];
    p->no = n_places++;
    snprintf(name, sizeof name, "silo%u", p->no);
    snprintf(p->address, sizeof p->address, "127.0.0.1:%u", 7000 + p->no);
    sim_platform_init(&p->node, &s, p->no, name);
    start(p);
    return p;
}

static void fill(void)
{
    for (unsigned i = 0; i < n_places; i++)
        must(!teffi_task_start(&places[i].silo->node.home, fill_main, &places[i], "fill", false),
             "task", "");
    for (unsigned i = 0; i < n_places; i++)
        while (!places[i].filled)
            must(sim_step(&s), "fill", "nothing is left to do");
}

int main(int argc, char **argv)
{
    unsigned silos = argc > 2 ? (unsigned)atoi(argv[1]) : 0;
    unsigned grains = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
    must(silos >= 2 && silos < SILOS_MAX, "usage", "scale SILOS GRAINS");
    sim_init(&s, 1, SIM_PLANT_NONE);
    s.report = report;
    s.run_cost_max_ns /= silos; /* each silo has a core */
    s.late_ns = UINT64_MAX;
    (void)add();
    step_until_settled(1);
    measure storm = begin("start");
    for (unsigned i = 1; i < silos; i++)
        (void)add();
    step_until_settled(silos);
    print(&storm, silos, 0);
    grains_each = grains / silos;
    fill();
    measure join = begin("join");
    (void)add();
    step_until_settled(silos + 1);
    print(&join, silos, grains);
    check_cost(&join, silos);
    measure leave = begin("leave");
    place *leaver = &places[silos / 2];
    must(!teffi_task_start(&leaver->silo->node.home, leave_main, leaver, "leave", false), "task",
         "");
    while (!leaver->gone)
        must(sim_step(&s), "leave", s.why);
    step_until_settled(silos);
    print(&leave, silos, grains);
    check_cost(&leave, silos);
    measure kill = begin("kill");
    place *killed = &places[0];
    killed->gone = killed->node.dead = true;
    sim_net_kill(killed->silo->node.home.net);
    step_until_settled(silos - 1);
    print(&kill, silos, grains);
    check_cost(&kill, silos);
    fflush(stdout);
    _exit(0);
}
