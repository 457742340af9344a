/* lab.c - silos and clients for tests, started and stopped.
 * Way:     tests -> [lab] -> teff_silo_*, teff_client_* */
#include "lab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "call/relay.h"
#include "cluster/promise.h"

enum { PAUSE_NS = 500000 };

static const uint64_t patience_ns = 60000000000u;

bool lab_pause(uint64_t *spent)
{
    struct timespec pause = {.tv_nsec = PAUSE_NS}, now;
    nanosleep(&pause, NULL);
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (!*spent)
        *spent = ns;
    return ns - *spent < patience_ns;
}

void lab_fresh_store(char *address)
{
    const char *tmp = getenv("TMPDIR");
    char path[400];
    snprintf(path, sizeof path, "%.300s/teff-lab-XXXXXX", tmp ? tmp : P_tmpdir);
    if (!mkdtemp(path))
        fail_msg("no temporary directory");
    snprintf(address, 512, "sqlite:%s/store.db", path);
}

void lab_drop_store(const char *address)
{
    static const char *const more[] = {"", "-wal", "-shm", "-journal"};
    char path[520];
    if (strncmp(address, "sqlite:", 7) != 0)
        return;
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        snprintf(path, sizeof path, "%s%s", address + 7, more[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s", address + 7);
    *strrchr(path, '/') = '\0';
    rmdir(path);
}

teff_silo *lab_silo(lab_record *record, const teff_silo_options *opt)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_silo *silo;
    if (teff_silo_new(opt, &silo, text) != TEFF_OK)
        fail_msg("teff_silo_new: %s", text);
    lab_host_all(silo, record);
    return silo;
}

static int start_silo(lab *l, const teff_silo_options *opt)
{
    char text[TEFF_TEXT_MAX] = "";
    int i = 0;
    while (l->silos[i])
        i++;
    l->silos[i] = lab_silo(&l->record, opt);
    if (l->more)
        l->more(l->silos[i]);
    teff_err err = teff_silo_start(l->silos[i], text);
    if (err)
        fail_msg("silo %d: %s: %s", i, teff_err_name(err), text);
    l->ctx[i] = teff_silo_new_ctx(l->silos[i]);
    assert_non_null(l->ctx[i]);
    l->n = i + 1 > l->n ? i + 1 : l->n;
    return i;
}

static teff_transport transport_of(const lab *l, bool reactor)
{
    if (!l->mixes)
        return TEFF_TRANSPORT_DEFAULT;
    return reactor ? TEFF_TRANSPORT_REACTOR : TEFF_TRANSPORT_NNG;
}

static int add_silo(lab *l, uint32_t workers, const teff_sched_options *sched)
{
    teff_silo_options opt = {
        .size = sizeof opt, .silent = 1, .store = l->store, .workers = workers, .sched = sched};
    opt.transport = transport_of(l, l->n % 2);
    if (strcmp(l->store, "seed") == 0) {
        opt.store = NULL;
        opt.seeds[0] = teff_silo_address(l->silos[0]);
    }
    return start_silo(l, &opt);
}

int lab_add(lab *l)
{
    return add_silo(l, 2, NULL);
}

static bool all_see(const lab *l, uint32_t n)
{
    for (int i = 0; i < l->n; i++)
        if (l->silos[i] && teff_silo_members(l->silos[i]) != n)
            return false;
    return true;
}

static void wait_all_see(const lab *l)
{
    lab_until(all_see(l, (uint32_t)l->n));
}

static lab *open_lab(int n, void (*more)(teff_silo *silo), bool mixes)
{
    lab *l = calloc(1, sizeof *l);
    assert_non_null(l);
    l->more = more;
    l->mixes = mixes;
    if (n > 1)
        lab_fresh_store(l->store);
    else
        snprintf(l->store, sizeof l->store, "memory");
    for (int i = 0; i < n; i++)
        lab_add(l);
    wait_all_see(l);
    return l;
}

lab *lab_open_more(int n, void (*more)(teff_silo *silo))
{
    return open_lab(n, more, false);
}

lab *lab_open_mixed(int n)
{
    return open_lab(n, NULL, true);
}

lab *lab_open(int n)
{
    return open_lab(n, NULL, false);
}

int lab_add_evicting(lab *l)
{
    static const teff_sched_options sched = {
        .size = sizeof sched, .policy = TEFF_SCHED_PRIORITY, .waiting_max = 4};
    int i = add_silo(l, 1, &sched);
    wait_all_see(l);
    return i;
}

lab *lab_open_seeded(int n)
{
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .workers = 2};
    lab *l = calloc(1, sizeof *l);
    assert_non_null(l);
    start_silo(l, &opt);
    snprintf(l->store, sizeof l->store, "seed");
    for (int i = 1; i < n; i++)
        lab_add(l);
    wait_all_see(l);
    return l;
}

teff_err lab_remove(lab *l, int i)
{
    teff_ctx_free(l->ctx[i]);
    teff_err err = teff_silo_stop(l->silos[i], 0);
    teff_silo_free(l->silos[i]);
    l->silos[i] = NULL;
    l->ctx[i] = NULL;
    return err;
}

/* A seed is the last one to go. A silo without its lease drops everything. */
void lab_close(lab *l)
{
    l->record.gate = true;
    for (int i = LAB_SILOS_MAX - 1; i >= 0; i--) {
        bool lost = l->silos[i] && teffi_lease_is_over(&l->silos[i]->node.home.lease);
        if (l->silos[i] && lab_remove(l, i) != TEFF_OK && !lost)
            fail_msg("silo %d had to drop something when it stopped", i);
    }
    lab_drop_store(l->store);
    free(l);
}

teff_client *lab_client(lab *l, const int *gateways)
{
    teff_client_options opt = {.size = sizeof opt,
                               .transport = transport_of(l, gateways[0] % 2 == 0)};
    char text[TEFF_TEXT_MAX] = "";
    teff_client *client;
    for (int i = 0; gateways[i] >= 0; i++)
        opt.gateways[i] = teff_silo_address(l->silos[gateways[i]]);
    if (teff_client_connect(&opt, &client, text) != TEFF_OK)
        fail_msg("teff_client_connect: %s", text);
    return client;
}

teff_err lab_beat(teff_ctx *ctx)
{
    teffi_own_beat beat;
    teffi_promise_prepare_next_beat(ctx->node->membership, &beat);
    return teffi_heartbeat_write_and_renew_lease(ctx, &beat, NULL, 0);
}

teff_err lab_read_alive(teff_ctx *ctx, teffi_node_id silo, uint64_t *etag)
{
    teffi_alive alive;
    teff_err err = teffi_heartbeat_read(ctx, silo, &alive);
    *etag = alive.etag;
    return err;
}
