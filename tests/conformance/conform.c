/* conform.c - the clusters of the four settings, and the grain types that they host. */
#include "conform.h"

#include <stdlib.h>

enum { SEEDS = 5, WORKERS = 2, STOP_MS = 20000 };

conform_world world;

typedef struct cell { /* a row in a setting */
    const conform_row *row;
    bool simulated;
    unsigned silos;
    conform c;
    uint64_t seed;
    char name[160];
} cell;

/* ---- grain types: each method runs the script of its step ---- */

static teff_err run_step(turn t)
{
    return ((script *)(uintptr_t)t.in->script)(&t);
}

static unsigned silo_of(const void *user)
{
    return (unsigned)(uintptr_t)user;
}

static teff_err begin_life(turn t)
{
    int alive = atomic_fetch_add(&world.alive, 1) + 1, most = atomic_load(&world.most_alive);
    while (most < alive && !atomic_compare_exchange_weak(&world.most_alive, &most, alive))
        ;
    atomic_fetch_add(&world.activated, 1);
    script *own = atomic_load(&world.on_activate);
    teff_err err = own ? own(&t) : TEFF_OK;
    int fails = atomic_load(&world.fails);
    if (!err && fails > 0) {
        atomic_store(&world.fails, fails - 1);
        err = teff_fail(t.ctx, TEFF_E_USER(5), "not today");
    }
    if (err)
        atomic_fetch_sub(&world.alive, 1);
    return err;
}

static teff_err end_life(turn t, teff_reason why)
{
    script *own = atomic_load(&world.on_deactivate);
    atomic_store(&world.reason, (int)why);
    teff_err err = own ? own(&t) : TEFF_OK;
    atomic_fetch_add(&world.deactivated, 1);
    atomic_fetch_sub(&world.alive, 1);
    return err;
}

#define TURN(self, step, result)                                                                   \
    ((turn){.ctx = (self)->ctx,                                                                    \
            .key = (self)->key,                                                                    \
            .silo = silo_of((self)->user),                                                         \
            .in = (step),                                                                          \
            .out = (result)})

#define TYPE(type)                                                                                 \
    static teff_err type##_run(actors_##type *self, const actors_step *in, actors_result *out)     \
    {                                                                                              \
        return run_step(TURN(self, in, out));                                                      \
    }                                                                                              \
    static teff_err type##_begins(actors_##type *self)                                             \
    {                                                                                              \
        return begin_life(TURN(self, NULL, NULL));                                                 \
    }                                                                                              \
    static teff_err type##_ends(actors_##type *self, teff_reason why)                              \
    {                                                                                              \
        return end_life(TURN(self, NULL, NULL), why);                                              \
    }

TYPE(plain)
TYPE(reentrant)
TYPE(fleeting)
TYPE(worker)
TYPE(narrow)
TYPE(near)
TYPE(hashed)

static teff_err keeper_run(actors_keeper *self, const actors_step *in, actors_result *out)
{
    turn t = TURN(self, in, out);
    t.keeper = self;
    return run_step(t);
}

static teff_err keeper_begins(actors_keeper *self)
{
    turn t = TURN(self, NULL, NULL);
    t.keeper = self;
    return begin_life(t);
}

static teff_err keeper_ends(actors_keeper *self, teff_reason why)
{
    turn t = TURN(self, NULL, NULL);
    t.keeper = self;
    return end_life(t, why);
}

static teff_err plain_tell(actors_plain *self, const actors_step *in)
{
    return run_step(TURN(self, in, NULL));
}

static teff_err reentrant_tell(actors_reentrant *self, const actors_step *in)
{
    return run_step(TURN(self, in, NULL));
}

static teff_err keeper_ticks(actors_keeper *self, const teff_tick *tick)
{
    script *own = atomic_load(&world.on_reminder);
    turn t = TURN(self, NULL, NULL);
    t.keeper = self;
    (void)tick;
    atomic_fetch_add(&world.ticks, 1);
    return own ? own(&t) : TEFF_OK;
}

#define METHODS(type) .run = type##_run, .on_activate = type##_begins, .on_deactivate = type##_ends

static const actors_plain_methods plain = {METHODS(plain), .read = plain_run, .peek = plain_run,
                                           .tell = plain_tell};
static const actors_reentrant_methods reentrant = {METHODS(reentrant), .tell = reentrant_tell};
static const actors_keeper_methods keeper = {METHODS(keeper), .on_reminder = keeper_ticks};
static const actors_fleeting_methods fleeting = {METHODS(fleeting)};
static const actors_worker_methods worker = {METHODS(worker)};
static const actors_narrow_methods narrow = {METHODS(narrow)};
static const actors_near_methods near = {METHODS(near)};
static const actors_hashed_methods hashed = {METHODS(hashed)};

static teff_err host_types(void *arg, teff_silo *silo, unsigned no)
{
    void *user = (void *)(uintptr_t)no;
    teff_grain_type *types[] = {
        actors_plain_type(&plain, user),   actors_reentrant_type(&reentrant, user),
        actors_keeper_type(&keeper, user), actors_fleeting_type(&fleeting, user),
        actors_worker_type(&worker, user), actors_narrow_type(&narrow, user),
        actors_near_type(&near, user),     actors_hashed_type(&hashed, user),
    };
    teff_err err = TEFF_OK;
    for (size_t i = 0; i < sizeof types / sizeof types[0] && !err; i++)
        err = teff_silo_host(silo, types[i]);
    return err;
}

/* ---- scripts for all ---- */

teff_err nothing(turn *t)
{
    if (t->out)
        t->out->n = t->in->n;
    return TEFF_OK;
}

teff_err holds(turn *t)
{
    world_enter();
    for (int ms = 0; !atomic_load(&world.gate) && ms < 20000; ms++)
        teff_sleep(t->ctx, 1);
    world_leave();
    return nothing(t);
}

teff_err where(turn *t)
{
    t->out->n = t->silo;
    return TEFF_OK;
}

teff_err quits(turn *t)
{
    teff_deactivate(t->ctx);
    return nothing(t);
}

/* ---- clusters ---- */

static const teff_silo_options common = {
    .size = sizeof common, .silent = 1, .reminder_period_min_ms = 1};

static void open_simulated(conform *c, uint64_t seed)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_testing_options options = {.size = sizeof options,
                                    .silos = c->silos,
                                    .seed = seed,
                                    .host = host_types,
                                    .silo = &common};
    if (teff_testing_new(&options, &c->cluster, text))
        fail_msg("no cluster: %s", text);
    c->ctx = teff_testing_ctx(c->cluster);
}

static void start_on_threads(conform *c, unsigned no)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_silo_options options = common;
    options.workers = WORKERS;
    options.seeds[0] = no ? teff_silo_address(c->silo[0]) : NULL;
    if (teff_silo_new(&options, &c->silo[no], text) || host_types(NULL, c->silo[no], no) ||
        teff_silo_start(c->silo[no], text))
        fail_msg("silo %u does not start: %s", no, text);
}

static void open_on_threads(conform *c)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_client_options options = {.size = sizeof options};
    for (unsigned i = 0; i < c->silos; i++) {
        start_on_threads(c, i);
        options.gateways[i] = teff_silo_address(c->silo[i]);
    }
    if (teff_client_connect(&options, &c->client, text))
        fail_msg("no client: %s", text);
    c->ctx = teff_client_new_ctx(c->client);
    assert_non_null(c->ctx);
}

static void close_cluster(conform *c)
{
    atomic_store(&world.gate, true);
    if (c->simulated) {
        teff_testing_free(c->cluster);
    } else {
        teff_ctx_free(c->ctx);
        teff_client_free(c->client);
        for (unsigned i = CONFORM_SILOS_MAX; i-- > 0;)
            teff_silo_free(c->silo[i]);
    }
    memset(c, 0, sizeof *c);
}

teff_silo *conform_silo(conform *c, unsigned no)
{
    teff_silo *silo = c->simulated ? teff_testing_silo(c->cluster, no) : c->silo[no];
    assert_non_null(silo);
    return silo;
}

void conform_start(conform *c, unsigned no)
{
    char text[TEFF_TEXT_MAX] = "";
    if (!c->simulated)
        start_on_threads(c, no);
    else if (teff_testing_start(c->cluster, no, text))
        fail_msg("silo %u does not start: %s", no, text);
}

void conform_stop(conform *c, unsigned no)
{
    if (c->simulated) {
        assert_int_equal(teff_testing_stop(c->cluster, no, STOP_MS), TEFF_OK);
        return;
    }
    assert_int_not_equal(no, 0);
    assert_int_equal(teff_silo_stop(c->silo[no], STOP_MS), TEFF_OK);
    teff_silo_free(c->silo[no]);
    c->silo[no] = NULL;
}

unsigned conform_key_away(conform *c, char key[16])
{
    assert_true(c->silos > 1);
    for (int i = 0;; i++) {
        snprintf(key, 16, "away%d", i);
        unsigned silo = (unsigned)RUN(c, plain, key, where);
        if (silo > 0)
            return silo;
    }
}

/* ---- rows in their settings ---- */

static void run_once(cell *of, uint64_t seed)
{
    memset(&world, 0, sizeof world);
    of->seed = seed;
    of->c = (conform){.simulated = of->simulated, .silos = of->silos};
    if (of->simulated)
        open_simulated(&of->c, seed);
    else
        open_on_threads(&of->c);
    of->row->body(&of->c);
    close_cluster(&of->c);
    of->seed = 0;
}

static uint64_t number_in_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void run_cell(void **state)
{
    cell *of = *state;
    uint64_t one = number_in_environment("TEFF_SEED", 0);
    uint64_t seeds = of->simulated && !one ? number_in_environment("TEFF_SEEDS", SEEDS) : 1;
    for (uint64_t i = 1; i <= seeds; i++)
        run_once(of, one ? one : i);
}

/* After a body that has failed, its cluster still runs. */
static int close_cell(void **state)
{
    cell *of = *state;
    if (of->seed && of->simulated)
        print_error("%s: again: TEFF_SEED=%llu\n", of->name, (unsigned long long)of->seed);
    if (of->seed)
        close_cluster(&of->c);
    return 0;
}

static size_t add_cells(const conform_row *row, cell *cells)
{
    size_t n = 0;
    bool many = getenv("TEFF_SEEDS");
    for (int threads = 0; threads < (many ? 1 : 2); threads++)
        for (unsigned silos = 1; silos <= 3; silos += 2) {
            unsigned needs =
                (threads ? ON_THREADS : SIMULATED) | (silos > 1 ? THREE_SILOS : ONE_SILO);
            if ((row->settings & needs) != needs)
                continue;
            cell *of = &cells[n++];
            of->row = row;
            of->simulated = !threads;
            of->silos = silos;
            snprintf(of->name, sizeof of->name, "%s, %s, %u silo%s", row->name,
                     threads ? "on threads" : "simulated", silos, silos > 1 ? "s" : "");
        }
    return n;
}

int conform_run(const conform_row *rows, size_t n)
{
    size_t cells_n = 0;
    cell *cells = calloc(4 * n, sizeof *cells);
    struct CMUnitTest *tests = calloc(4 * n, sizeof *tests);
    if (!cells || !tests)
        return 1;
    for (size_t i = 0; i < n; i++)
        cells_n += add_cells(&rows[i], cells + cells_n);
    for (size_t i = 0; i < cells_n; i++)
        tests[i] = (struct CMUnitTest){cells[i].name, run_cell, NULL, close_cell, &cells[i]};
    int failed = _cmocka_run_group_tests("conformance", tests, cells_n, NULL, NULL);
    free(cells);
    free(tests);
    return failed;
}
