/* test_lease.c - a silo that cannot renew its lease, or was declared dead, stops; the store refuses
 * what it writes; it comes back as a new incarnation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cluster/join.h"
#include "directory/shard.h"
#include "lab.h"
#include "node/ask.h"
#include "store/engine.h"

/* Silo 0 stays well. Silo 1 has a clock of its own and a store that may be cut off. */
enum { WELL, CUT, SILOS, LEASE_MS = TEFFI_LEASE_MS, STEP_MS = 1000 };

static lab *l;
static int made;
static uint64_t (*real_ns)(void *arg);
static teff_err (*real_open)(const teffi_platform *platform, const char *address,
                             teffi_store **store, char *text);
static _Atomic uint64_t ahead_ns[SILOS];
static _Atomic bool cut, blind; /* blind: it cannot read the membership */
static _Atomic int lost[SILOS];
static _Atomic int beats; /* of silo CUT */
static _Atomic bool holds_look;
static teffi_store_op *_Atomic held_look;

/* ---- clocks ---- */

static uint64_t well_ns(void *arg)
{
    return real_ns(arg) + ahead_ns[WELL];
}

static uint64_t cut_ns(void *arg)
{
    return real_ns(arg) + ahead_ns[CUT];
}

static void advance(int silo, uint64_t ms)
{
    ahead_ns[silo] += ms * 1000000u;
}

/* ---- a store that may be cut off ---- */

typedef struct door {
    teffi_store base;
    teffi_store *inner;
} door;

/* Counts the heartbeats. Holds a read of another silo's if the test says so. out: true: held. */
static bool hold_look(teffi_store_op *op)
{
    bool alive = strcmp(op->rows[0].table, TEFFI_TABLE_ALIVE) == 0;
    beats += alive && op->kind == TEFFI_STORE_BATCH;
    if (!alive || op->kind != TEFFI_STORE_READ || !atomic_exchange(&holds_look, false))
        return false;
    held_look = op;
    return true;
}

static void submit(teffi_store *store, teffi_store_op *op)
{
    bool reads = op->kind == TEFFI_STORE_READ || op->kind == TEFFI_STORE_SCAN;
    if (hold_look(op))
        return;
    if (!cut && !(blind && reads && strcmp(op->rows[0].table, TEFFI_TABLE_MEMBERSHIP) == 0)) {
        teffi_store_submit(((door *)store)->inner, op);
        return;
    }
    teffi_store_op_set_error(op, TEFF_E_IO, "the store cannot be reached");
    op->done(op);
}

static void close_door(teffi_store *store)
{
    ((door *)store)->inner->ops->close(((door *)store)->inner);
}

static void free_door(teffi_store *store)
{
    ((door *)store)->inner->ops->free(((door *)store)->inner);
    free(store);
}

static teff_err open_door(const teffi_platform *platform, const char *address, teffi_store **store,
                          char *text)
{
    static const teffi_store_ops ops = {submit, close_door, free_door};
    door *d = calloc(1, sizeof *d);
    assert_non_null(d);
    d->base.ops = &ops;
    teff_err err = real_open(platform, address, &d->inner, text);
    *store = err ? NULL : &d->base;
    return err;
}

/* ---- silos ---- */

static void note_lost(void *arg, const char *why)
{
    assert_true(why[0] != '\0');
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static void change_platform(teff_silo *silo)
{
    int which = made++;
    if (which == WELL) { /* silo 0's threads read them from now on */
        real_ns = silo->platform.mono_ns;
        real_open = silo->platform.store_open;
    }
    silo->platform.mono_ns = which == WELL ? well_ns : cut_ns;
    silo->platform.store_open = which == WELL ? real_open : open_door;
    silo->opt.lost = note_lost;
    silo->opt.lost_arg = &lost[which];
}

static int setup(void **state)
{
    made = 0;
    cut = blind = holds_look = false;
    held_look = NULL;
    for (int i = 0; i < SILOS; i++) {
        ahead_ns[i] = 0;
        lost[i] = 0;
    }
    l = lab_open_more(SILOS, change_platform);
    return 0;
}

static bool is_over(int silo)
{
    return teffi_lease_is_over(&l->silos[silo]->node.home.lease);
}

/* A grain with a state that lives on silo CUT. out: its key, in a static buffer. */
static const char *key_there(void)
{
    static char key[20];
    for (int i = 0;; i++) {
        lab_number *out;
        int before = l->record.activated;
        snprintf(key, sizeof key, "there-%d", i);
        lab_ok(l->ctx[CUT], lab_account_add(l->ctx[CUT], key, lab_number(.n = 1), &out));
        assert_int_equal(l->record.activated, before + 1);
        teffi_ident ident = teffi_ident_of(&l->silos[CUT]->node.grains->secret, lab_account_info.id,
                                           (const uint8_t *)key, (uint32_t)strlen(key));
        bool certain;
        if (teffi_shard_find_activation_without_lock(l->silos[CUT]->node.grains, &ident, &certain))
            return key;
    }
}

/* out: true: it has failed, and may have run. */
static bool add_is_unknown(int from, const char *key)
{
    lab_number *out;
    return teff_call_may_have_run(lab_account_add(l->ctx[from], key, lab_number(.n = 1), &out));
}

static void add_fails(int from, const char *key, teff_err expected)
{
    lab_number *out;
    lab_fails(l->ctx[from], lab_account_add(l->ctx[from], key, lab_number(.n = 1), &out), expected);
}

/* Until it is declared dead, by the other one's clock. */
static void let_other_declare_it_dead(void)
{
    for (int i = 0; i < 40 && teff_silo_members(l->silos[WELL]) == SILOS; i++) {
        uint64_t before, now;
        teffi_node_id id = l->silos[WELL]->node.id;
        lab_ok(l->ctx[WELL], lab_read_alive(l->ctx[WELL], id, &before));
        advance(WELL, STEP_MS);
        do
            lab_ok(l->ctx[WELL], lab_read_alive(l->ctx[WELL], id, &now));
        while (now == before && teff_silo_members(l->silos[WELL]) == SILOS);
        teff_ctx_reset(l->ctx[WELL]);
    }
    assert_int_equal(teff_silo_members(l->silos[WELL]), SILOS - 1);
}

static int teardown(void **state)
{
    cut = blind = false;
    if (is_over(CUT))
        let_other_declare_it_dead();
    lab_close(l);
    return 0;
}

/* ---- tests ---- */

static void cut_off_from_its_store_it_stops(void **state)
{
    const char *key = key_there();
    lab_number *out;
    cut = true;
    advance(CUT, LEASE_MS / 2);
    lab_ok(l->ctx[CUT], lab_account_get(l->ctx[CUT], key, &(lab_box *){0}));
    assert_int_equal(lost[CUT], 0);
    advance(CUT, LEASE_MS);
    lab_until(lost[CUT] == 1);
    assert_true(is_over(CUT));
    add_fails(CUT, key, TEFF_E_UNAVAILABLE);
    /* The other one gets no response, and holds the grain only when the lease has run out for it,
     * too. */
    assert_int_equal(teff_silo_members(l->silos[WELL]), SILOS);
    let_other_declare_it_dead();
    lab_ok(l->ctx[WELL], lab_account_add(l->ctx[WELL], key, lab_number(.n = 1), &out));
    assert_int_equal(out->n, 2);
    assert_int_equal(lost[WELL], 0);
}

/* No timer has fired yet: a process that was stopped answers nothing when it goes on. */
static void without_a_lease_nothing_leaves(void **state)
{
    const char *key = key_there();
    teffi_node *node = &l->silos[CUT]->node;
    cut = true;
    teffi_membership_stop_timers(node->membership); /* and with it the timer of the lease */
    advance(CUT, LEASE_MS + STEP_MS);
    assert_false(is_over(CUT));
    teff_ctx_set_timeout(l->ctx[WELL], 500);
    assert_true(add_is_unknown(WELL, key));
    assert_int_equal(teff_silo_members(l->silos[WELL]), SILOS);
    /* Not begun; or begun, if the coarse clock is late, and not saved. */
    teff_err err = lab_account_keep(l->ctx[CUT], key);
    assert_true(err == TEFF_E_UNAVAILABLE || err == TEFF_E_CLOSED);
}

/* The etag of its grain's row is as it was when it is declared dead. */
static void the_store_refuses_what_a_dead_silo_writes(void **state)
{
    const char *key = key_there();
    lab_number *out;
    blind = true;
    teffi_membership_stop_timers(l->silos[CUT]->node.membership);
    teffi_lease *lease = &l->silos[CUT]->node.home.lease;
    teffi_lease_begin(lease, teffi_lease_until_ns(lease) + 600 * 1000000000ull); /* a wrong clock */
    let_other_declare_it_dead();
    assert_int_equal(lost[CUT], 0); /* it does not know, and believes in its lease */
    lab_fails(l->ctx[CUT], lab_account_keep(l->ctx[CUT], key), TEFF_E_CONFLICT);
    blind = false;
    lab_ok(l->ctx[CUT], teffi_membership_refresh(l->ctx[CUT], 0));
    lab_until(lost[CUT] == 1);
    lab_ok(l->ctx[WELL], lab_account_add(l->ctx[WELL], key, lab_number(.n = 1), &out));
    assert_int_equal(out->n, 2);
}

static void a_dead_silo_cannot_renew(void **state)
{
    teff_ctx *ctx = l->ctx[CUT];
    teffi_membership_stop_timers(l->silos[CUT]->node.membership);
    uint64_t until_ns = teffi_lease_until_ns(&ctx->home->lease);
    let_other_declare_it_dead();
    lab_fails(ctx, lab_beat(ctx), TEFF_E_CONFLICT);
    assert_int_equal(teffi_lease_until_ns(&ctx->home->lease), until_ns);
}

static size_t change_to_dead(teff_ctx *ctx, const teffi_rows *rows, teffi_member_row *changed,
                             const void *arg)
{
    const teffi_member_row *row = teffi_rows_find_silo(rows, l->silos[CUT]->node.id.silo);
    (void)ctx;
    if (row->dead)
        return 0;
    changed[0] = *row;
    changed[0].dead = changed[0].dies = true;
    changed[0].alive_etag = *(const uint64_t *)arg;
    return 1;
}

/* Between the last look at it and the change. */
static void a_heartbeat_saves_it(void **state)
{
    teff_ctx *ctx = l->ctx[WELL];
    teffi_rows rows;
    teffi_member_row changed[SILOS];
    uint64_t etag;
    lab_ok(ctx, lab_read_alive(ctx, l->silos[CUT]->node.id, &etag));
    lab_ok(l->ctx[CUT], lab_beat(l->ctx[CUT]));
    lab_ok(ctx, teffi_rows_read(ctx, &rows));
    assert_int_equal(change_to_dead(ctx, &rows, changed, &etag), 1);
    assert_int_equal(teffi_rows_write(ctx, &rows, changed, 1), TEFF_E_CONFLICT);
    lab_ok(ctx, teffi_membership_refresh(ctx, 0));
    assert_int_equal(teff_silo_members(l->silos[WELL]), SILOS);
}

/* It began while the lease held. */
static void a_turn_that_waits_ends(void **state)
{
    static const char *last[] = {"last-of-the-way"};
    teff_ctx *ctx = l->ctx[CUT];
    teff_call call;
    lab_number *out;
    teffi_ident ident;
    bool certain;
    char key[20];
    for (int i = 0;; i++) { /* one that is activated there */
        snprintf(key, sizeof key, "way-%d", i);
        lab_ok(ctx, lab_relay_go(ctx, key, lab_path(.n_keys = 0), &out));
        ident = teffi_ident_of(&l->silos[CUT]->node.grains->secret, lab_relay_info.id,
                               (const uint8_t *)key, (uint32_t)strlen(key));
        if (teffi_shard_find_activation_without_lock(l->silos[CUT]->node.grains, &ident, &certain))
            break;
    }
    int before = l->record.went;
    lab_ok(ctx, lab_relay_go_async(ctx, key, lab_path(.n_keys = 1, .keys = last, .hold = true),
                                   NULL, &call));
    lab_until(l->record.went > before);
    int ended = l->record.went_err;
    cut = true;
    advance(CUT, LEASE_MS + STEP_MS);
    lab_until(lost[CUT] == 1);
    l->record.gate = true;
    teff_err err = lab_relay_go_await(ctx, call, &out);
    assert_true(err == TEFF_E_UNREACHABLE || err == TEFF_E_UNAVAILABLE);
    assert_int_equal(l->record.went_err, ended); /* the method did not go on */
}

static void it_comes_back_as_a_new_incarnation(void **state)
{
    const char *key = key_there();
    char text[TEFF_TEXT_MAX] = "", address[TEFFI_ADDRESS_MAX + 1];
    teff_silo *silo = l->silos[CUT];
    teffi_node_id before = silo->node.id;
    lab_number *out;
    snprintf(address, sizeof address, "%s", teff_silo_address(silo));
    cut = true;
    advance(CUT, LEASE_MS + STEP_MS);
    lab_until(lost[CUT] == 1);
    teff_ctx_free(l->ctx[CUT]);
    l->ctx[CUT] = NULL;
    assert_int_equal(teff_silo_stop(silo, 0), TEFF_E_TIMEOUT);
    assert_int_equal(teff_silo_start(silo, text), TEFF_E_IO); /* not while the store is away */
    assert_non_null(strstr(text, "cannot be reached"));
    cut = false;
    if (teff_silo_start(silo, text))
        fail_msg("%s", text);
    assert_string_equal(teff_silo_address(silo), address);
    assert_int_equal(silo->node.id.silo, before.silo);
    assert_true(silo->node.id.incarnation > before.incarnation);
    l->ctx[CUT] = teff_silo_new_ctx(silo);
    lab_until(teff_silo_members(l->silos[WELL]) == SILOS);
    for (int from = 0; from < SILOS; from++)
        lab_ok(l->ctx[from], lab_account_add(l->ctx[from], key, lab_number(.n = 1), &out));
    assert_int_equal(out->n, 3);
    assert_int_equal(lost[CUT], 1);
}

/* A silo that was declared dead while it left, too. */
static void what_is_over_stays_over(void **state)
{
    teffi_lease lease = {.length_ms = LEASE_MS};
    assert_true(teffi_lease_holds(&lease, UINT64_MAX)); /* none yet */
    teffi_lease_begin(&lease, 5);
    assert_true(teffi_lease_holds(&lease, 5));
    assert_false(teffi_lease_holds(&lease, 5 + LEASE_MS * 1000000ull));
    teffi_lease_renew(&lease, 7);
    assert_true(teffi_lease_holds(&lease, 5 + LEASE_MS * 1000000ull));
    teffi_lease_renew(&lease, 6); /* an earlier one, confirmed later */
    assert_int_equal(teffi_lease_until_ns(&lease), 7 + LEASE_MS * 1000000ull);
    teffi_lease_renew(&lease, 7 + LEASE_MS * 1000000ull); /* sent when it had run out */
    assert_int_equal(teffi_lease_until_ns(&lease), 7 + LEASE_MS * 1000000ull);
    assert_true(teffi_lease_end(&lease));
    assert_false(teffi_lease_end(&lease));
    teffi_lease_renew(&lease, 8);
    teffi_lease_release(&lease);
    assert_true(teffi_lease_is_over(&lease));
    assert_false(teffi_lease_holds(&lease, 5));
}

static void a_silo_that_has_left_has_none(void **state)
{
    teffi_lease lease = {.length_ms = LEASE_MS};
    teffi_lease_begin(&lease, 5);
    teffi_lease_release(&lease);
    teffi_lease_renew(&lease, 6); /* of a heartbeat that was under way */
    assert_true(teffi_lease_holds(&lease, UINT64_MAX));
}

static void lengths_out_of_range_are_refused(void **state)
{
    static const uint32_t wrong[] = {1, TEFFI_LEASE_MIN_MS - 1, TEFFI_LEASE_MAX_MS + 1, UINT32_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char text[TEFF_TEXT_MAX] = "";
        teff_silo_options opt = {.size = sizeof opt, .lease_ms = wrong[i]};
        teff_silo *silo;
        assert_int_equal(teff_silo_new(&opt, &silo, text), TEFF_E_INVALID);
        assert_non_null(strstr(text, "500 to 600000"));
    }
}

/* A store that reads slowly, or many silos to look at: the lease is renewed meanwhile. */
static void a_look_at_others_delays_no_heartbeat(void **state)
{
    enum { BEAT_MS = LEASE_MS / 5 };
    holds_look = true;
    advance(CUT, BEAT_MS);
    lab_until(held_look != NULL);
    for (int ms = 0; ms < 2 * LEASE_MS; ms += BEAT_MS) {
        int before = beats;
        advance(CUT, BEAT_MS);
        lab_until(beats > before || is_over(CUT));
    }
    assert_false(is_over(CUT));
    teffi_store_op_set_error(held_look, TEFF_E_IO, "held");
    held_look->done(held_look);
    assert_int_equal(lost[CUT], 0);
}

int main(void)
{
#define LEASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        LEASE(cut_off_from_its_store_it_stops),
        LEASE(without_a_lease_nothing_leaves),
        LEASE(the_store_refuses_what_a_dead_silo_writes),
        LEASE(a_dead_silo_cannot_renew),
        LEASE(a_heartbeat_saves_it),
        LEASE(a_look_at_others_delays_no_heartbeat),
        LEASE(a_turn_that_waits_ends),
        LEASE(it_comes_back_as_a_new_incarnation),
        cmocka_unit_test(what_is_over_stays_over),
        cmocka_unit_test(a_silo_that_has_left_has_none),
        cmocka_unit_test(lengths_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
