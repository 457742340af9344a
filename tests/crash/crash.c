/* crash.c - kill -9 at random moments of a silo's join, saves, leave, transfers and reminders: each
 * state that was acknowledged is there afterwards, a call with an idempotency key has counted once,
 * a transfer between accounts has changed all its accounts or none, each reminder ticks, a new silo
 * serves at the same address in time, and the other silo goes on.
 * usage:   crash SILO_PROGRAM sqlite|postgres|redis|etcd [MOMENTS [SEED [TEST]]]; MOMENTS of each
 *          of the eleven tests, or of TEST; it prints SEED, which draws the same moments again.
 *          In the environment, CRASH_SCARCE=SCARCE_PROGRAM: no kills, but requests for memory fail,
 *          MOMENTS of them drawn from all those of each phase. CRASH_PLANTED=1: the silo program
 *          has a bug, which one of the tests must find.
 * Way:     [crash] -> silo_child -> crash_silo, a process; scratch, the engines' servers */
#include <arpa/inet.h>
#include <limits.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "../../grains/testing/sim_draw.h"
#include "../unit/store/scratch.h"
#include "silo_child.h"
#ifdef HAS_POSTGRES
#include "../unit/store/pg_server.h"
#endif
#ifdef HAS_REDIS
#include "../unit/store/redis_server.h"
#endif
#ifdef HAS_ETCD
#include "../unit/store/etcd_server.h"
#endif

enum {
    MOMENTS = 2, /* of each test, without an argument */
    SAVES_US = 30000,
    TRANSFERS_US = 150000,
    REMINDERS_US = 300000,
    SCARCE_TIMEOUT_MS = 5000, /* a call whose message lacks memory ends at its deadline */
    SHORT_LEASE_MS = 2000,    /* the other silo declares a killed one dead when its lease is over */
    PORT_MIN = 15000,         /* below those that systems give to clients */
    PORT_MAX = 30000,
    SKIPPED = 77
};

typedef struct engine {
    const char *name;
    bool (*open)(void); /* NULL: not built. out: false: it is not installed */
    void (*close)(void);
    void (*fresh)(char *address);
    void (*check)(const char *address); /* that nothing is damaged; NULL: none */
} engine;

/* What a test needs, its `state`. */
typedef struct setting {
    bool with_other, transfers, reminders;
    unsigned lease_ms;
} setting;

static const engine *on;
static unsigned long moments = MOMENTS, seed;
static sim_draw draw;
static const char *program, *scarce_program; /* the second: requests for memory fail */
static char store[512], addresses[2][SCRATCH_PATH_MAX + 8], log_path[SCRATCH_PATH_MAX];
static silo_child victim, other;
static uint64_t join_us, leave_us; /* how long the last ones took that were not killed */

/* ---- engines ---- */

static bool open_sqlite(void)
{
    return true;
}

static void close_nothing(void)
{
}

static void check_sqlite(const char *address)
{
    sqlite3 *db;
    sqlite3_stmt *ask;
    assert_int_equal(sqlite3_open(address + strlen("sqlite:"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &ask, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(ask), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(ask, 0), "ok");
    sqlite3_finalize(ask);
    sqlite3_close(db);
}

#ifdef HAS_REDIS
static bool open_redis(void)
{
    return redis_server_start("yes");
}
#endif

#ifdef HAS_ETCD
static bool open_etcd(void)
{
    return etcd_server_start(1);
}
#endif

static const engine engines[] = {
    {"sqlite", open_sqlite, close_nothing, scratch_fresh, check_sqlite},
#ifdef HAS_POSTGRES
    {"postgres", pg_server_open, pg_server_close, pg_server_fresh, NULL},
#endif
#ifdef HAS_REDIS
    {"redis", open_redis, redis_server_stop, redis_server_fresh, NULL},
#endif
#ifdef HAS_ETCD
    {"etcd", open_etcd, etcd_server_stop, etcd_server_fresh, NULL},
#endif
};

/* ---- silos ---- */

/* A port that is free, and stays so while the silo is down: no client gets it by chance. */
static unsigned free_port(void)
{
    for (;;) {
        unsigned port = (unsigned)sim_draw_between(&draw, PORT_MIN, PORT_MAX);
        struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        bool is_free = bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
        close(fd);
        if (is_free)
            return port;
    }
}

static const char *draw_transport(void)
{
    return sim_draw_chance(&draw, 500) ? "nng" : "reactor";
}

static void start_victim(void)
{
    child_start(&victim, store, addresses[0], draw_transport(), NULL);
}

static silo_child *beside(void)
{
    return other.pid ? &other : NULL;
}

/* A whole life: it serves, has each acknowledged number, saves, and leaves. */
static void live_and_leave(void)
{
    uint64_t from = child_now_us();
    start_victim();
    child_until_read(&victim, beside());
    join_us = child_now_us() - from;
    child_until_saves(&victim, beside());
    if (beside())
        child_until_saves(&other, NULL);
    if (victim.transfers)
        child_until_audited(&victim, beside());
    if (victim.reminders)
        child_until_ticked(&victim, beside());
    from = child_now_us();
    assert_int_equal(child_end(&victim, beside(), SIGTERM), 0);
    leave_us = child_now_us() - from;
}

static void kill_within(uint64_t range_us)
{
    uint64_t after_us = sim_draw_below(&draw, range_us);
    child_read(&victim, beside(), after_us);
    (void)child_end(&victim, beside(), SIGKILL);
}

/* ---- tests ---- */

static int set_up(void **state)
{
    const setting *s = *state;
    child_abandon(&victim);
    child_abandon(&other);
    victim.numbers = (silo_numbers){.name = 'a'};
    other.numbers = (silo_numbers){.name = 'b'};
    victim.transfers = other.transfers = s->transfers;
    victim.reminders = other.reminders = s->reminders;
    victim.lease_ms = other.lease_ms = s->lease_ms;
    victim.timeout_ms = other.timeout_ms = scarce_program ? SCARCE_TIMEOUT_MS : 0;
    on->fresh(store);
    if (s->with_other) {
        child_start(&other, store, addresses[1], draw_transport(), NULL);
        child_until_read(&other, NULL);
    }
    live_and_leave();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (other.pid)
        assert_int_equal(child_end(&other, NULL, SIGTERM), 0);
    if (on->check)
        on->check(store);
    return 0;
}

static setting saves_alone = {.lease_ms = CHILD_LEASE_MS},
               saves_beside = {.with_other = true, .lease_ms = CHILD_LEASE_MS},
               transfers_alone = {.transfers = true, .lease_ms = CHILD_LEASE_MS},
               transfers_beside = {.with_other = true,
                                   .transfers = true,
                                   .lease_ms = CHILD_LEASE_MS},
               transfers_left = {.with_other = true, .transfers = true, .lease_ms = SHORT_LEASE_MS},
               reminders_alone = {.reminders = true, .lease_ms = CHILD_LEASE_MS},
               reminders_beside = {
                   .with_other = true, .reminders = true, .lease_ms = CHILD_LEASE_MS};

#define WITH(setting, f) cmocka_unit_test_prestate_setup_teardown(f, set_up, tear_down, &setting)
#define BESIDE(setting, f)                                                                         \
    {                                                                                              \
#f " beside another", f, set_up, tear_down, &setting                                       \
    }

static void kills_while_it_joins(void **state)
{
    (void)state;
    for (unsigned long i = 0; i < moments; i++) {
        start_victim();
        kill_within(join_us * 5 / 4);
        live_and_leave();
    }
}

static void kills_while_it_saves(void **state)
{
    (void)state;
    for (unsigned long i = 0; i < moments; i++) {
        start_victim();
        child_until_read(&victim, beside());
        kill_within(SAVES_US);
        live_and_leave();
    }
}

static void kills_while_it_leaves(void **state)
{
    (void)state;
    for (unsigned long i = 0; i < moments; i++) {
        start_victim();
        child_until_read(&victim, beside());
        kill(victim.pid, SIGTERM);
        kill_within(leave_us * 5 / 4);
        live_and_leave();
    }
}

static void kills_while_it_transfers(void **state)
{
    (void)state;
    for (unsigned long i = 0; i < moments; i++) {
        start_victim();
        child_until_read(&victim, beside());
        kill_within(TRANSFERS_US);
        live_and_leave();
    }
}

/* Half of the kills are while it joins, and ticks what was due meanwhile. */
static void kills_while_it_reminds(void **state)
{
    (void)state;
    for (unsigned long i = 0; i < moments; i++) {
        start_victim();
        bool joins = sim_draw_chance(&draw, 500);
        if (!joins)
            child_until_read(&victim, beside());
        kill_within(joins ? join_us * 5 / 4 : REMINDERS_US);
        live_and_leave();
    }
}

/* The other silo serves all accounts before the killed one starts again. */
static void another_transfers_after_a_kill(void **state)
{
    (void)state;
    for (unsigned long i = 0; i < moments; i++) {
        start_victim();
        child_until_read(&victim, beside());
        kill_within(TRANSFERS_US);
        child_until_saves(&other, NULL);
        child_until_audited(&other, NULL);
        child_check_audited(&other, &victim);
    }
    live_and_leave();
}

/* ---- requests for memory that fail ---- */

/* out: false: it ended with an error. */
static bool live_scarcely(const char *phase, long n)
{
    char number[24];
    const char *const more[] = {"--fail", number, "--fail-in", phase, NULL};
    snprintf(number, sizeof number, "%ld", n);
    victim.program = scarce_program;
    child_start(&victim, store, addresses[0], draw_transport(), more);
    victim.program = program;
    child_until_read_or_end(&victim, beside());
    if (!victim.ended)
        child_read(&victim, beside(), SAVES_US);
    return child_end_scarce(&victim, beside());
}

/* One of all requests of the phase fails in each life; they are counted in a life in which none
 * does. */
static void fail_requests_of(const char *phase)
{
    unsigned errors = 0;
    assert_true(live_scarcely(phase, LONG_MAX));
    uint64_t requests = (uint64_t)victim.requests;
    assert_true(requests > 10);
    for (uint64_t i = 0; i < moments; i++) {
        uint64_t n = 1 + (i * requests + sim_draw_below(&draw, requests)) / moments;
        errors += !live_scarcely(phase, (long)n);
        live_and_leave();
    }
    printf("%s: %lu requests; when one of them failed, %lu of %lu silos ended with an error\n",
           phase, (unsigned long)requests, (unsigned long)errors, moments);
}

static void lacks_memory_while_it_joins(void **state)
{
    (void)state;
    fail_requests_of("join");
}

static void lacks_memory_while_it_saves(void **state)
{
    (void)state;
    fail_requests_of("save");
}

static void lacks_memory_while_it_leaves(void **state)
{
    (void)state;
    fail_requests_of("leave");
}

static void lacks_memory_while_it_transfers(void **state)
{
    (void)state;
    fail_requests_of("save");
}

static int run_lacking(void)
{
    const struct CMUnitTest tests[] = {
        WITH(saves_alone, lacks_memory_while_it_joins),
        WITH(saves_alone, lacks_memory_while_it_saves),
        WITH(saves_alone, lacks_memory_while_it_leaves),
        WITH(transfers_alone, lacks_memory_while_it_transfers),
        BESIDE(saves_beside, lacks_memory_while_it_joins),
        BESIDE(saves_beside, lacks_memory_while_it_saves),
        BESIDE(saves_beside, lacks_memory_while_it_leaves),
        BESIDE(transfers_beside, lacks_memory_while_it_transfers),
    };
    return cmocka_run_group_tests_name(on->name, tests, NULL, NULL);
}

static int kill_silos(void)
{
    const struct CMUnitTest tests[] = {
        WITH(saves_alone, kills_while_it_joins),
        WITH(saves_alone, kills_while_it_saves),
        WITH(saves_alone, kills_while_it_leaves),
        WITH(transfers_alone, kills_while_it_transfers),
        BESIDE(saves_beside, kills_while_it_joins),
        BESIDE(saves_beside, kills_while_it_saves),
        BESIDE(saves_beside, kills_while_it_leaves),
        BESIDE(transfers_beside, kills_while_it_transfers),
        WITH(reminders_alone, kills_while_it_reminds),
        BESIDE(reminders_beside, kills_while_it_reminds),
        WITH(transfers_left, another_transfers_after_a_kill),
    };
    return cmocka_run_group_tests_name(on->name, tests, NULL, NULL);
}

static bool read_arguments(int argc, char **argv)
{
    for (size_t i = 0; argc > 2 && i < sizeof engines / sizeof engines[0]; i++)
        if (strcmp(engines[i].name, argv[2]) == 0)
            on = &engines[i];
    moments = argc > 3 ? strtoul(argv[3], NULL, 10) : MOMENTS;
    seed = argc > 4 ? strtoul(argv[4], NULL, 10) : (unsigned long)(child_now_us() % 1000000000u);
    if (argc > 5)
        cmocka_set_test_filter(argv[5]);
    victim.program = other.program = program = argc > 1 ? argv[1] : NULL;
    scarce_program = getenv("CRASH_SCARCE");
    victim.log = other.log = log_path;
    return on && moments > 0;
}

/* The one that is killed has a socket with a path, which stays; or a port. */
static void choose_addresses(void)
{
    char path[SCRATCH_PATH_MAX];
    scratch_path(log_path, "log");
    scratch_path(path, "silo");
    if (sim_draw_chance(&draw, 500))
        snprintf(addresses[0], sizeof addresses[0], "unix:%s", path);
    else
        snprintf(addresses[0], sizeof addresses[0], "127.0.0.1:%u", free_port());
    snprintf(addresses[1], sizeof addresses[1], "127.0.0.1:%u", free_port());
}

int main(int argc, char **argv)
{
    if (!read_arguments(argc, argv)) {
        fputs("usage: crash SILO_PROGRAM sqlite|postgres|redis|etcd [MOMENTS [SEED [TEST]]]\n",
              stderr);
        return 2;
    }
    printf("%s: again: %lu moments of each test, seed %lu\n", on->name, moments, seed);
    fflush(stdout);
    draw = sim_draw_of(seed, 0);
    if (scratch_open() != 0)
        return 1;
    choose_addresses();
    int failed = SKIPPED;
    if (on->open()) {
        failed = scarce_program ? run_lacking() : kill_silos();
        on->close();
        printf("%s: calls with a key made again: %lu after a start, %lu with an unknown outcome\n",
               on->name, victim.again + other.again, victim.repeats + other.repeats);
    }
    scratch_close();
    if (failed != SKIPPED && getenv("CRASH_PLANTED")) {
        printf("the planted bug was %s\n", failed ? "found" : "not found");
        return failed == 0;
    }
    return failed;
}
