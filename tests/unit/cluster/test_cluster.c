/* test_cluster.c - several silos: single activation, joining, leaving, clients, types on
 * some only. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lab.h"

static lab *l;

static int close_lab(void **state)
{
    lab_close(l);
    return 0;
}

static void calls_work_from_each(void)
{
    char key[40];
    lab_number *out;
    for (int round = 1; round <= 3; round++)
        for (int i = 0; i < 30; i++) {
            teff_ctx *ctx = l->ctx[(i + round) % l->n];
            snprintf(key, sizeof key, "each-%d", i);
            lab_ok(ctx, lab_account_add(ctx, key, lab_number(.n = 1), &out));
            assert_int_equal(out->n, round);
        }
}

static void one_silo_serves(void **state)
{
    l = lab_open(1);
    calls_work_from_each();
}

static void two_silos_around_a_file_serve(void **state)
{
    l = lab_open(2);
    calls_work_from_each();
}

static void three_silos_around_a_file_serve(void **state)
{
    l = lab_open(3);
    calls_work_from_each();
}

static void three_silos_by_seed_serve(void **state)
{
    l = lab_open_seeded(3);
    calls_work_from_each();
}

static void silos_on_ipv6_serve(void **state)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .listen = "[::1]:0", .workers = 2};
    lab_number *out;
    l = calloc(1, sizeof *l);
    assert_non_null(l);
    lab_fresh_store(l->store);
    opt.store = l->store;
    for (l->n = 0; l->n < 2; l->n++) {
        l->silos[l->n] = lab_silo(&l->record, &opt);
        if (teff_silo_start(l->silos[l->n], text))
            fail_msg("%s", text);
        assert_int_equal(strncmp(teff_silo_address(l->silos[l->n]), "[::1]:", 6), 0);
        l->ctx[l->n] = teff_silo_new_ctx(l->silos[l->n]);
    }
    calls_work_from_each();
    teff_client *client = lab_client(l, (const int[]){1, 0, -1});
    teff_ctx *ctx = teff_client_new_ctx(client);
    lab_ok(ctx, lab_account_add(ctx, "six", lab_number(.n = 6), &out));
    teff_ctx_free(ctx);
    teff_client_free(client);
}

/* ---- single activation ---- */

enum { KEYS = 1000, CALLERS = 6 };

typedef struct caller {
    pthread_t thread;
    teff_ctx *ctx;
    int first; /* key */
    teff_err err;
    char text[TEFF_TEXT_MAX];
} caller;

/* All callers walk the same keys, started together: each key's first calls meet. */
static void *add_to_each(void *arg)
{
    caller *c = arg;
    teff_call calls[50];
    for (int i = 0; i < KEYS && !c->err; i += 50) {
        for (int k = 0; k < 50 && !c->err; k++)
            c->err =
                lab_single_add_async(c->ctx, c->first + i + k, lab_number(.n = 1), NULL, &calls[k]);
        if (!c->err)
            c->err = teff_await_all(c->ctx, calls, 50);
        if (c->err)
            snprintf(c->text, sizeof c->text, "%s", teff_error(c->ctx));
        teff_ctx_reset(c->ctx);
    }
    return NULL;
}

static void first_calls_from_everywhere(int first)
{
    caller callers[CALLERS] = {0};
    for (int i = 0; i < CALLERS; i++) {
        callers[i].ctx = teff_silo_new_ctx(l->silos[i % l->n]);
        callers[i].first = first;
        assert_int_equal(pthread_create(&callers[i].thread, NULL, add_to_each, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++)
        pthread_join(callers[i].thread, NULL);
    for (int i = 0; i < CALLERS; i++) {
        if (callers[i].err)
            fail_msg("%s: %s", teff_err_name(callers[i].err), callers[i].text);
        teff_ctx_free(callers[i].ctx);
    }
}

static void concurrent_first_calls_make_one_activation(void **state)
{
    enum { ROUNDS = 4 };
    l = lab_open(3);
    for (int round = 0; round < ROUNDS; round++)
        first_calls_from_everywhere(round * KEYS);
    assert_int_equal(l->record.single_sum, ROUNDS * KEYS * CALLERS);
    assert_int_equal(l->record.duplicates, 0);
    assert_int_equal(l->record.activated, ROUNDS * KEYS);
}

/* ---- placement ---- */

static void placements_do_what_they_say(void **state)
{
    int here[3] = {0};
    lab_text *out;
    char key[40], first[300];
    l = lab_open(3);
    for (int i = 0; i < 60; i++) {
        teff_ctx *ctx = l->ctx[i % 3];
        snprintf(key, sizeof key, "near-%d", i);
        lab_ok(ctx, lab_near_where(ctx, key, &out));
        assert_string_equal(out->text, teff_silo_address(l->silos[i % 3]));
        snprintf(key, sizeof key, "hash-%d", i);
        lab_ok(ctx, lab_hashed_where(ctx, key, &out));
        snprintf(first, sizeof first, "%s", out->text);
        for (int s = 0; s < 3; s++)
            here[s] += strcmp(first, teff_silo_address(l->silos[s])) == 0;
    }
    for (int s = 0; s < 3; s++)
        assert_true(here[s] >= 3); /* 20 each on the average; fewer: a chance of 4 in 10^8 */
}

static teff_silo *rare_silo(lab_record *record, const char *store)
{
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .store = store};
    char text[TEFF_TEXT_MAX] = "";
    teff_silo *silo;
    assert_int_equal(teff_silo_new(&opt, &silo, text), TEFF_OK);
    lab_host_rare(silo, record);
    if (teff_silo_start(silo, text))
        fail_msg("%s", text);
    return silo;
}

/* A type that one silo hosts is reached from all, and that one hosts nothing else. */
static void types_may_live_on_some_silos_only(void **state)
{
    lab_text *out;
    lab_number *n;
    char key[40];
    l = lab_open(2);
    lab_fails(l->ctx[0], lab_rare_where(l->ctx[0], "r", &out), TEFF_E_NOT_FOUND);
    teff_silo *only = rare_silo(&l->record, l->store);
    teff_ctx *ctx = teff_silo_new_ctx(only);
    for (int i = 0; i < 30; i++) {
        snprintf(key, sizeof key, "rare-%d", i);
        lab_ok(l->ctx[i % 2], lab_rare_where(l->ctx[i % 2], key, &out));
        assert_string_equal(out->text, teff_silo_address(only));
        lab_ok(ctx, lab_account_add(ctx, key, lab_number(.n = 1), &n));
        lab_ok(ctx, lab_rare_where(ctx, key, &out));
    }
    teff_ctx_free(ctx);
    teff_silo_free(only);
    lab_fails(l->ctx[0], lab_rare_where(l->ctx[0], "rare-1", &out), TEFF_E_NOT_FOUND);
}

/* ---- joining and leaving under load ---- */

typedef struct load {
    pthread_t thread;
    teff_ctx *ctx;
    _Atomic bool *stop;
    int no;
    int64_t calls;
    teff_err err;
    char text[TEFF_TEXT_MAX];
} load;

enum { LOAD_KEYS = 200 };

static void *keep_calling(void *arg)
{
    load *p = arg;
    lab_number *out;
    unsigned seed = (unsigned)p->no + 1;
    while (!*p->stop && !p->err) {
        p->err = lab_single_add(p->ctx, rand_r(&seed) % LOAD_KEYS, lab_number(.n = 1), &out);
        if (p->err)
            snprintf(p->text, sizeof p->text, "%s", teff_error(p->ctx));
        else if (++p->calls % 100 == 0)
            teff_ctx_reset(p->ctx);
    }
    return NULL;
}

static void start_load(load *p, int no, teff_ctx *ctx, _Atomic bool *stop)
{
    *p = (load){.ctx = ctx, .no = no, .stop = stop};
    assert_non_null(ctx);
    assert_int_equal(pthread_create(&p->thread, NULL, keep_calling, p), 0);
}

static int64_t end_load(load *p)
{
    pthread_join(p->thread, NULL);
    if (p->err)
        fail_msg("caller %d: after %lld calls: %s: %s", p->no, (long long)p->calls,
                 teff_err_name(p->err), p->text);
    teff_ctx_free(p->ctx);
    return p->calls;
}

/* Every call is answered, each ran once, no grain was active twice. */
static void come_and_go_under_load(lab *with, int times)
{
    _Atomic bool stop = false;
    load loads[5];
    int64_t calls = 0;
    l = with;
    teff_client *client = lab_client(l, (const int[]){0, 1, 2, -1});
    for (int i = 0; i < 3; i++)
        start_load(&loads[i], i, teff_silo_new_ctx(l->silos[i]), &stop);
    for (int i = 3; i < 5; i++)
        start_load(&loads[i], i, teff_client_new_ctx(client), &stop);
    for (int i = 0; i < times; i++) {
        int joined = lab_add(l);
        int64_t before = l->record.single_sum;
        lab_until(l->record.single_sum > before + 300 || loads[0].err);
        assert_int_equal(lab_remove(l, joined), TEFF_OK);
    }
    stop = true;
    for (int i = 0; i < 5; i++)
        calls += end_load(&loads[i]);
    teff_client_free(client);
    assert_int_equal(l->record.single_sum, calls);
    assert_int_equal(l->record.duplicates, 0);
}

static void joining_and_leaving_lose_no_call(void **state)
{
    come_and_go_under_load(lab_open(3), 20);
}

static void joining_and_leaving_by_seed_lose_no_call(void **state)
{
    come_and_go_under_load(lab_open_seeded(3), 10);
}

/* The client's gateway leaves while it calls: it goes on through the other. */
static void a_client_changes_its_gateway(void **state)
{
    _Atomic bool stop = false;
    load loads[2];
    int64_t calls = 0;
    l = lab_open(3);
    teff_client *client = lab_client(l, (const int[]){1, 2, -1});
    for (int i = 0; i < 2; i++)
        start_load(&loads[i], i, teff_client_new_ctx(client), &stop);
    lab_until(l->record.single_sum > 100);
    assert_int_equal(lab_remove(l, 1), TEFF_OK);
    int64_t then = l->record.single_sum;
    lab_until(l->record.single_sum > then + 100 || loads[0].err || loads[1].err);
    stop = true;
    for (int i = 0; i < 2; i++)
        calls += end_load(&loads[i]);
    assert_int_equal(l->record.single_sum, calls);
    teff_client_free(client);
}

/* ---- identity ---- */

static teff_err start_on(const teff_silo_options *opt, teff_silo **silo, char *text)
{
    assert_int_equal(teff_silo_new(opt, silo, text), TEFF_OK);
    lab_host_all(*silo, &l->record);
    return teff_silo_start(*silo, text);
}

static void a_restart_on_the_same_address_is_another_incarnation(void **state)
{
    char text[TEFF_TEXT_MAX] = "", address[300];
    teff_silo *silo;
    uint32_t last = 0;
    lab_number *out;
    l = lab_open(2);
    snprintf(address, sizeof address, "%s", teff_silo_address(l->silos[1]));
    last = l->silos[1]->node.id.incarnation;
    assert_int_equal(lab_remove(l, 1), TEFF_OK);
    for (int i = 0; i < 5; i++) {
        teff_silo_options opt = {
            .size = sizeof opt, .silent = 1, .store = l->store, .listen = address};
        if (start_on(&opt, &silo, text))
            fail_msg("restart %d: %s", i, text);
        assert_true(silo->node.id.incarnation > last);
        last = silo->node.id.incarnation;
        lab_until(teff_silo_members(l->silos[0]) == 2);
        for (int k = 0; k < 20; k++)
            lab_ok(l->ctx[0], lab_single_add(l->ctx[0], k, lab_number(.n = 1), &out));
        assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
        teff_silo_free(silo);
    }
    assert_int_equal(l->record.duplicates, 0);
}

static void another_cluster_is_refused(void **state)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .cluster = "other"};
    teff_client_options client_opt = {.size = sizeof client_opt, .cluster = "other"};
    teff_silo *silo;
    teff_client *client;
    l = lab_open(1);
    opt.seeds[0] = client_opt.gateways[0] = teff_silo_address(l->silos[0]);
    assert_int_equal(start_on(&opt, &silo, text), TEFF_E_REFUSED);
    assert_non_null(strstr(text, "cluster"));
    teff_silo_free(silo);
    assert_int_equal(teff_client_connect(&client_opt, &client, text), TEFF_E_REFUSED);
    assert_null(client);
    assert_non_null(strstr(text, "cluster"));
}

/* Two clusters in one file know nothing of each other. */
static void clusters_may_share_a_file(void **state)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_silo *silo;
    lab_number *out;
    l = lab_open(2);
    teff_silo_options opt = {
        .size = sizeof opt, .silent = 1, .cluster = "other", .store = l->store};
    if (start_on(&opt, &silo, text))
        fail_msg("%s", text);
    teff_ctx *ctx = teff_silo_new_ctx(silo);
    assert_int_equal(teff_silo_members(silo), 1);
    assert_int_equal(teff_silo_members(l->silos[0]), 2);
    lab_ok(l->ctx[0], lab_account_add(l->ctx[0], "a", lab_number(.n = 5), &out));
    lab_ok(ctx, lab_account_add(ctx, "a", lab_number(.n = 1), &out));
    assert_int_equal(out->n, 1);
    teff_ctx_free(ctx);
    teff_silo_free(silo);
}

static void a_client_without_a_gateway_says_so(void **state)
{
    teff_client_options opt = {.size = sizeof opt, .gateways = {"127.0.0.1:1"}};
    char text[TEFF_TEXT_MAX] = "";
    teff_client *client;
    l = lab_open(1);
    assert_int_equal(teff_client_connect(&opt, &client, text), TEFF_E_UNREACHABLE);
    assert_null(client);
    assert_non_null(strstr(text, "127.0.0.1:1"));
}

int main(void)
{
#define CLUSTER(f) cmocka_unit_test_teardown(f, close_lab)
    const struct CMUnitTest tests[] = {
        CLUSTER(one_silo_serves),
        CLUSTER(two_silos_around_a_file_serve),
        CLUSTER(three_silos_around_a_file_serve),
        CLUSTER(three_silos_by_seed_serve),
        CLUSTER(silos_on_ipv6_serve),
        CLUSTER(concurrent_first_calls_make_one_activation),
        CLUSTER(placements_do_what_they_say),
        CLUSTER(types_may_live_on_some_silos_only),
        CLUSTER(joining_and_leaving_lose_no_call),
        CLUSTER(joining_and_leaving_by_seed_lose_no_call),
        CLUSTER(a_client_changes_its_gateway),
        CLUSTER(a_restart_on_the_same_address_is_another_incarnation),
        CLUSTER(another_cluster_is_refused),
        CLUSTER(clusters_may_share_a_file),
        CLUSTER(a_client_without_a_gateway_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
