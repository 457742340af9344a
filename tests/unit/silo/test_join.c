/* test_join.c - a silo that cannot finish joining leaves again, and closes whatever it does. */
#include <arpa/inet.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "call/ctx.h"
#include "cluster/membership.h"
#include "lab.h"
#include "store/engine.h"
#include "store/store.h"

/* ---- one store in memory behind all silos; that of one may fail ---- */

static teffi_store *rows;

typedef struct door {
    teffi_store base;
    _Atomic int failing; /* reads and scans that fail, once it has written a batch */
    _Atomic bool wrote;
    bool blind;             /* no heartbeat can be read */
    _Atomic unsigned beats; /* that it did not read */
} door;

static bool is_heartbeat(const teffi_store_op *op)
{
    return op->kind == TEFFI_STORE_READ && strcmp(op->rows[0].table, "alive") == 0;
}

static void end_with_error(teffi_store_op *op)
{
    teffi_store_op_set_error(op, TEFF_E_IO, "the disk is gone");
    op->done(op);
}

static void submit(teffi_store *store, teffi_store_op *op)
{
    door *d = (door *)store;
    bool reads = op->kind == TEFFI_STORE_READ || op->kind == TEFFI_STORE_SCAN;
    if (reads && d->wrote && atomic_fetch_sub(&d->failing, 1) > 0) {
        end_with_error(op);
        return;
    }
    if (d->blind && is_heartbeat(op)) {
        d->beats++;
        end_with_error(op);
        return;
    }
    d->wrote |= op->kind == TEFFI_STORE_BATCH;
    rows->ops->submit(rows, op);
}

static void close_door(teffi_store *store)
{
}

static void free_door(teffi_store *store)
{
    free(store);
}

static int failing; /* of the silo that is started next */
static bool blind;  /* as failing */
static door *newest;

static teff_err open_door(const teffi_platform *platform, const char *address, teffi_store **store,
                          char *text)
{
    static const teffi_store_ops ops = {submit, close_door, free_door};
    door *d = calloc(1, sizeof *d);
    assert_non_null(d);
    d->base.ops = &ops;
    d->failing = failing;
    d->blind = blind;
    *store = &d->base;
    newest = d;
    return TEFF_OK;
}

static teff_silo *new_silo(void)
{
    static lab_record record;
    teffi_platform platform;
    teff_silo_options opt = {.size = sizeof opt, .workers = 1};
    teff_silo *silo;
    teffi_silo_init_platform(&platform, TEFF_LOG_ERROR);
    platform.store_open = open_door;
    assert_int_equal(teffi_silo_new_on_platform(&platform, &opt, &silo, NULL), TEFF_OK);
    lab_host_all(silo, &record);
    return silo;
}

static int open_rows(void **state)
{
    return teffi_store_open("memory", &rows, NULL) != TEFF_OK;
}

static int close_rows(void **state)
{
    teffi_store_close(rows);
    return 0;
}

/* ---- tests ---- */

static void a_silo_that_is_in_the_table_and_cannot_join_leaves(void **state)
{
    teff_silo *a = new_silo(), *b = new_silo();
    char text[TEFF_TEXT_MAX] = "";
    assert_int_equal(teff_silo_start(a, NULL), TEFF_OK);
    failing = 3;
    assert_int_equal(teff_silo_start(b, text), TEFF_E_IO);
    failing = 0;
    assert_non_null(strstr(text, "the disk is gone"));
    teff_ctx *ctx = teff_silo_new_ctx(a);
    assert_int_equal(teffi_membership_refresh(ctx, 0), TEFF_OK);
    assert_int_equal(teff_silo_members(a), 1);
    teff_ctx_free(ctx);
    teff_silo_free(b);
    teff_silo_free(a);
}

static _Atomic int closed;

static void *close_silo(void *arg)
{
    enum { CLOSE_MS = 1000 };
    (void)!teffi_silo_close(arg, CLOSE_MS);
    closed++;
    return NULL;
}

static void close_without_leaving(teff_silo *silo)
{
    pthread_t thread;
    int before = closed;
    assert_int_equal(pthread_create(&thread, NULL, close_silo, silo), 0);
    lab_until(closed > before);
    pthread_join(thread, NULL);
    teff_silo_free(silo);
}

/* It asks for what the directory held on the one that went, and no store tells it that this one is
 * dead. */
static void a_silo_closes_though_it_cannot_recover_its_partitions(void **state)
{
    enum { SILOS = 3 };
    teff_silo *silos[SILOS];
    closed = 0;
    for (int i = 0; i < SILOS; i++) {
        silos[i] = new_silo();
        assert_int_equal(teff_silo_start(silos[i], NULL), TEFF_OK);
        if (i == 1)
            close_without_leaving(silos[0]);
    }
    newest->failing = INT_MAX;
    close_without_leaving(silos[2]);
    close_without_leaving(silos[1]);
}

static void a_silo_that_cannot_read_heartbeats_declares_nobody_dead(void **state)
{
    teff_silo *a = new_silo();
    assert_int_equal(teff_silo_start(a, NULL), TEFF_OK);
    blind = true;
    teff_silo *b = new_silo();
    assert_int_equal(teff_silo_start(b, NULL), TEFF_OK);
    blind = false;
    assert_int_equal(teff_silo_members(b), 2);
    lab_until(newest->beats >= 2); /* the first heartbeat was evaluated */
    assert_int_equal(teff_silo_members(b), 2);
    assert_false(teffi_lease_is_over(&a->node.home.lease));
    teff_silo_free(b);
    teff_silo_free(a);
}

/* ---- rows of silos that were killed long ago ---- */

enum { KILLED = 250, SHORT_MS = 500 };

static teffi_member_row active(uint32_t silo, uint32_t lease_ms, const char *address)
{
    teffi_member_row row = {
        .member = {.node = {silo, 1}, .status = TEFFI_ACTIVE, .lease_ms = lease_ms}};
    snprintf(row.member.address, sizeof row.member.address, "%s", address);
    return row;
}

static void write_rows(teff_ctx *ctx, const teffi_member_row *row, size_t n)
{
    teffi_rows before;
    lab_ok(ctx, teffi_rows_read(ctx, &before));
    lab_ok(ctx, teffi_rows_write(ctx, &before, row, n));
}

/* out: how many silos of the rows, up to this one, are not declared dead. */
static unsigned unburied(teff_ctx *ctx, uint32_t last)
{
    teffi_rows now;
    unsigned n = 0;
    lab_ok(ctx, teffi_rows_read(ctx, &now));
    for (size_t i = 0; i < now.n; i++)
        n += now.rows[i].member.node.silo <= last && !now.rows[i].dead;
    return n;
}

/* A node that has the store, and is no silo. */
static teff_ctx *outsider(teff_silo *silo)
{
    assert_int_equal(teffi_silo_open(silo, NULL), TEFF_OK);
    assert_int_equal(open_door(NULL, NULL, &silo->store, NULL), TEFF_OK);
    silo->node.store = silo->store;
    teff_ctx *ctx = teffi_ctx_new(&silo->node.home);
    assert_non_null(ctx);
    return ctx;
}

/* Nobody listens there: it waits for their leases, not for longer, and not for each in turn. */
static void all_of_a_killed_cluster_are_declared_dead(void **state)
{
    teff_silo *none = new_silo(), *a = new_silo();
    teff_ctx *ctx = outsider(none);
    static teffi_member_row killed[KILLED];
    for (uint32_t i = 0; i < KILLED; i++)
        killed[i] = active(i + 1, SHORT_MS, "127.0.0.1:1");
    write_rows(ctx, killed, KILLED);
    assert_int_equal(unburied(ctx, KILLED), KILLED);
    a->opt.lease_ms = 10 * SHORT_MS; /* the machine may be slow */
    assert_int_equal(teff_silo_start(a, NULL), TEFF_OK);
    lab_until(unburied(ctx, KILLED) == 0);
    teff_ctx_free(ctx);
    teff_silo_free(a);
    assert_int_equal(teffi_silo_close(none, 0), TEFF_OK);
    teff_silo_free(none);
}

/* out: a port that connects, and then says nothing. */
static int listen_mutely(char *address, size_t room)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    snprintf(address, room, "127.0.0.1:%u", ntohs(at.sin_port));
    return fd;
}

/* Views are pushed to it for 5 s: when the silo joins, and when it declares another dead. */
static void a_silo_that_says_nothing_costs_nobody_the_lease(void **state)
{
    enum { LEASE_MS = 4000, LONG_MS = 60000 };
    teff_silo *none = new_silo(), *a = new_silo();
    teff_ctx *ctx = outsider(none);
    char address[TEFFI_ADDRESS_MAX + 1];
    int fd = listen_mutely(address, sizeof address);
    const teffi_member_row others[] = {active(1, LEASE_MS, "127.0.0.1:1"),
                                       active(2, LONG_MS, address)};
    write_rows(ctx, others, 2);
    a->opt.lease_ms = LEASE_MS;
    assert_int_equal(teff_silo_start(a, NULL), TEFF_OK);
    lab_until(unburied(ctx, 1) == 0);
    teffi_ctx_sleep(ctx, LEASE_MS + LEASE_MS / 4);
    assert_false(teffi_lease_is_over(&a->node.home.lease));
    teff_ctx_free(ctx);
    teff_silo_free(a);
    close(fd);
    assert_int_equal(teffi_silo_close(none, 0), TEFF_OK);
    teff_silo_free(none);
}

/* Through a seed, whose table is read before this silo can know who it is. */
static void a_silo_starts_again_and_again_within_a_second(void **state)
{
    enum { STARTS = 12 };
    lab *l = lab_open_seeded(1);
    char address[TEFFI_ADDRESS_MAX + 1] = "127.0.0.1:0", text[TEFF_TEXT_MAX] = "";
    for (int i = 0; i < STARTS; i++) {
        teff_silo_options opt = {.size = sizeof opt, .silent = 1, .workers = 1, .listen = address};
        opt.seeds[0] = teff_silo_address(l->silos[0]);
        teff_silo *silo = lab_silo(&l->record, &opt);
        if (teff_silo_start(silo, text))
            fail_msg("start %d: %s", i, text);
        strcpy(address, teff_silo_address(silo));
        assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
        teff_silo_free(silo);
    }
    lab_close(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_silo_that_is_in_the_table_and_cannot_join_leaves,
                                        open_rows, close_rows),
        cmocka_unit_test_setup_teardown(a_silo_closes_though_it_cannot_recover_its_partitions,
                                        open_rows, close_rows),
        cmocka_unit_test_setup_teardown(a_silo_that_cannot_read_heartbeats_declares_nobody_dead,
                                        open_rows, close_rows),
        cmocka_unit_test_setup_teardown(all_of_a_killed_cluster_are_declared_dead, open_rows,
                                        close_rows),
        cmocka_unit_test_setup_teardown(a_silo_that_says_nothing_costs_nobody_the_lease, open_rows,
                                        close_rows),
        cmocka_unit_test(a_silo_starts_again_and_again_within_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
