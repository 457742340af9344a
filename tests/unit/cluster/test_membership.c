/* test_membership.c - silos are told apart by 31 bits of a hash of their address: of two addresses
 * with the same bits one is refused, and the other one goes on. */
#include "cluster/membership.h"
#include "cluster/join.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "cluster/rows.h"
#include "lab.h"
#include "call/ctx.h"

/* Found by a search; both are 7b5463e7. */
static const char *const same[2] = {"127.0.0.2:49623", "127.0.0.3:20159"};

typedef struct starting {
    lab_record record;
    teff_silo *silo;
    teff_err err;
    char text[TEFF_TEXT_MAX];
} starting;

static void prepare(starting *s, int which, const char *store, const char *seed)
{
    memset(s, 0, sizeof *s);
    teff_silo_options opt = {.size = sizeof opt,
                             .silent = 1,
                             .workers = 2,
                             .advertise = same[which],
                             .store = store,
                             .seeds = {seed}};
    s->silo = lab_silo(&s->record, &opt);
}

static void *start(void *arg)
{
    starting *s = arg;
    s->err = teff_silo_start(s->silo, s->text);
    return NULL;
}

static void was_refused(const starting *s)
{
    if (s->err != TEFF_E_REFUSED || !strstr(s->text, same[0]) || !strstr(s->text, same[1]))
        fail_msg("%s: %s", teff_err_name(s->err), s->text);
}

static void serves(const starting *s)
{
    teff_ctx *ctx = teff_silo_new_ctx(s->silo);
    assert_non_null(ctx);
    assert_int_equal(teffi_membership_refresh(ctx, 0), TEFF_OK); /* what the table says now */
    assert_false(teffi_lease_is_over(&s->silo->node.home.lease));
    assert_int_equal(teff_silo_members(s->silo), 1);
    teff_ctx_free(ctx);
}

static void the_second_on_a_store_is_refused(void **state)
{
    char store[512];
    starting a, b;
    lab_fresh_store(store);
    prepare(&a, 0, store, NULL);
    prepare(&b, 1, store, NULL);
    start(&a);
    assert_int_equal(a.err, TEFF_OK);
    start(&b);
    was_refused(&b);
    serves(&a);
    teff_silo_free(b.silo);
    teff_silo_free(a.silo);
    prepare(&b, 1, store, NULL); /* the other one has left: the id is free */
    start(&b);
    assert_int_equal(b.err, TEFF_OK);
    teff_silo_free(b.silo);
    lab_drop_store(store);
}

static void the_second_through_a_seed_is_refused(void **state)
{
    starting a, b;
    prepare(&a, 0, NULL, NULL);
    start(&a);
    assert_int_equal(a.err, TEFF_OK);
    prepare(&b, 1, NULL, a.silo->bound);
    b.silo->opt.listen = same[1]; /* the seed listens there */
    start(&b);
    was_refused(&b);
    serves(&a);
    teff_silo_free(b.silo);
    teff_silo_free(a.silo);
}

static void of_two_at_once_one_starts(void **state)
{
    char store[512];
    starting two[2];
    pthread_t thread;
    lab_fresh_store(store);
    prepare(&two[0], 0, store, NULL);
    prepare(&two[1], 1, store, NULL);
    assert_int_equal(pthread_create(&thread, NULL, start, &two[0]), 0);
    start(&two[1]);
    pthread_join(thread, NULL);
    int good = two[0].err == TEFF_OK ? 0 : 1;
    assert_int_equal(two[good].err, TEFF_OK);
    was_refused(&two[!good]);
    serves(&two[good]);
    for (int i = 0; i < 2; i++)
        teff_silo_free(two[i].silo);
    lab_drop_store(store);
}

/* As far as a silo comes that has looked at the table before the other one joined. */
static teff_ctx *identified(starting *s)
{
    assert_int_equal(teffi_silo_open(s->silo, s->text), TEFF_OK);
    teffi_node *node = &s->silo->node;
    assert_non_null(teffi_membership_new(node, NULL, NULL, 0));
    assert_int_equal(s->silo->platform.store_open(&s->silo->platform, s->silo->opt.store,
                                                  &s->silo->store, s->text),
                     TEFF_OK);
    node->store = s->silo->store;
    teff_ctx *ctx = teffi_ctx_new(&node->home);
    assert_int_equal(teffi_membership_choose_silo_id(ctx, same[1]), TEFF_OK);
    node->id.incarnation += 1000; /* not by chance that of the other one */
    return ctx;
}

static void who_loses_writes_nothing(void **state)
{
    char store[512];
    uint64_t figure;
    starting a, b;
    lab_fresh_store(store);
    prepare(&a, 0, store, NULL);
    prepare(&b, 1, store, NULL);
    teff_ctx *ctx = identified(&b);
    start(&a);
    assert_int_equal(a.err, TEFF_OK);
    b.err = teffi_membership_join(ctx);
    snprintf(b.text, sizeof b.text, "%s", teff_error(ctx));
    was_refused(&b);
    assert_int_equal(lab_read_alive(ctx, a.silo->node.id, &figure), TEFF_OK);
    assert_true(figure > 0);
    assert_false(b.silo->node.membership->listed);
    teff_ctx_free(ctx);
    assert_int_equal(teffi_silo_close(b.silo, 0), TEFF_OK); /* it was opened, never started */
    teff_silo_free(b.silo);
    teff_silo_free(a.silo);
    lab_drop_store(store);
}

static uint64_t wall_s;

static uint64_t chosen_wall(void *arg)
{
    return wall_s * 1000000000u;
}

static void set_clock(teff_silo *silo)
{
    silo->platform.wall_ns = chosen_wall;
}

/* Seconds since 2022 by its clock, or what comes first if the clock is not set. */
static void a_start_is_told_from_others_by_the_clock(void **state)
{
    enum { BEGIN_S = 1640995200 };
    static const uint32_t rows[][2] = {{BEGIN_S + 12345, 12345}, {BEGIN_S + 1, 1}, {0, 1}};
    for (unsigned i = 0; i < 3; i++) {
        wall_s = rows[i][0];
        lab *l = lab_open_more(1, set_clock);
        assert_int_equal(l->silos[0]->node.id.incarnation, rows[i][1]);
        lab_close(l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_on_a_store_is_refused),
        cmocka_unit_test(the_second_through_a_seed_is_refused),
        cmocka_unit_test(of_two_at_once_one_starts),
        cmocka_unit_test(who_loses_writes_nothing),
        cmocka_unit_test(a_start_is_told_from_others_by_the_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
