/* test_reach.c - of silos that do not reach each other, but reach the store, the fewest go; and a
 * silo that does not reach another one does not join. */
#include "cluster/reach.h"

#include <stdio.h>
#include <string.h>
#include "directory/partition.h"
#include "lab.h"

/* ---- who must go ---- */

enum { GRAPH_MAX = 6 };

/* Silo i has incarnation i + 1: later ones are younger. cuts: pairs of digits, "01" = silo 0 lists
 * silo 1. loses: the digits of those that must go. */
static void check_losers(size_t n, const char *cuts, const char *expected)
{
    teffi_node_id silos[GRAPH_MAX];
    size_t counts[GRAPH_MAX];
    bool matrix[GRAPH_MAX * GRAPH_MAX] = {false}, loses[GRAPH_MAX];
    char got[GRAPH_MAX + 1] = "";
    for (size_t i = 0; i < n; i++)
        silos[i] = (teffi_node_id){100 - (uint32_t)i, (uint32_t)i + 1};
    for (size_t i = 0; cuts[i]; i += 2)
        matrix[(size_t)(cuts[i] - '0') * n + (size_t)(cuts[i + 1] - '0')] = true;
    teffi_reach_find_losers(silos, n, matrix, counts, loses);
    for (size_t i = 0, k = 0; i < n; i++)
        if (loses[i])
            got[k++] = (char)('0' + i);
    assert_string_equal(got, expected);
}

static void the_fewest_go(void **state)
{
    check_losers(3, "", "");
    check_losers(3, "00", "");
    check_losers(2, "01", "1");
    check_losers(2, "10", "1");
    check_losers(2, "0110", "1");
    check_losers(3, "1220", "2");          /* 2 has two cuts */
    check_losers(3, "0102", "0");          /* so has 0, though it is the oldest */
    check_losers(4, "0123", "13");         /* two pairs */
    check_losers(5, "01020304", "0");      /* nobody reaches 0 */
    check_losers(5, "10203040", "0");      /* the same, as 0 lists nobody itself */
    check_losers(4, "02031213", "23");     /* two halves: the younger one goes, and all of it */
    check_losers(5, "202130314041", "01"); /* two against three */
}

static void of_equally_young_silos_the_one_with_the_higher_id_goes(void **state)
{
    const teffi_node_id silos[] = {{7, 1}, {9, 1}, {8, 1}};
    const bool cuts[9] = {false, true, true, false, false, true, false, false, false};
    size_t counts[3];
    bool loses[3];
    teffi_reach_find_losers(silos, 3, cuts, counts, loses);
    assert_false(loses[0]);
    assert_true(loses[1] && loses[2]);
}

/* ---- silos ---- */

enum { LEASE_MS = 2000, KEYS = 40 }; /* on a busy machine a silo may stand still for a second */

static lab *l;
static _Atomic bool apart;        /* silos 0 and 1 do not reach each other */
static _Atomic bool joiner_apart; /* a silo that joins does not reach silo 1 */
static teffi_net_ops real_ops, cut_ops;
static teff_err (*real_net_new)(const teffi_platform *platform, const teffi_net_options *opt,
                                teffi_net **net, char *text);
static _Atomic int lost;

static int find_silo_of_net(const teffi_net *net)
{
    for (int i = 0; i < l->n; i++)
        if (l->silos[i]->node.home.net == net)
            return i;
    return l->n; /* it joins */
}

static bool is_silo(int silo, teffi_node_id id)
{
    return teffi_node_equals(l->silos[silo]->node.id, id);
}

static teff_err send_unless_apart(teffi_net *net, teffi_node_id to, teffi_msg *msg)
{
    if (!apart && !joiner_apart)
        return real_ops.send(net, to, msg);
    int from = find_silo_of_net(net);
    bool cut = apart && ((from == 0 && is_silo(1, to)) || (from == 1 && is_silo(0, to)));
    cut |= joiner_apart && from == l->n && is_silo(1, to);
    return cut ? TEFF_E_UNREACHABLE : real_ops.send(net, to, msg);
}

static teff_err make_cut_net(const teffi_platform *platform, const teffi_net_options *opt,
                             teffi_net **net, char *text)
{
    teff_err err = real_net_new(platform, opt, net, text);
    if (err)
        return err;
    if (!cut_ops.send) { /* the first net; the others have the same */
        real_ops = *(*net)->ops;
        cut_ops = real_ops;
        cut_ops.send = send_unless_apart;
    }
    (*net)->ops = &cut_ops;
    return TEFF_OK;
}

static void note_lost(void *arg, const char *why)
{
    assert_non_null(strstr(why, "reach") ? why : strstr(why, "declared it dead"));
    lost++;
}

static void shorten_lease_and_cut_net(teff_silo *silo)
{
    real_net_new = silo->platform.net_new;
    silo->platform.net_new = make_cut_net;
    silo->opt.lease_ms = LEASE_MS;
    silo->opt.lost = note_lost;
}

static int setup(void **state)
{
    apart = joiner_apart = false;
    lost = 0;
    l = lab_open_more(2, shorten_lease_and_cut_net);
    return 0;
}

static int teardown(void **state)
{
    apart = joiner_apart = false;
    lab_close(l);
    return 0;
}

static bool is_over(int silo)
{
    return teffi_lease_is_over(&l->silos[silo]->node.home.lease);
}

static int find_younger(void)
{
    teffi_node_id a = l->silos[0]->node.id, b = l->silos[1]->node.id;
    bool first = a.incarnation != b.incarnation ? a.incarnation > b.incarnation : a.silo > b.silo;
    return first ? 0 : 1;
}

/* The link of the test is not cut; a real one would report that the connection broke. */
static void notice_cut(int silo)
{
    teffi_membership_record_connection_state(l->silos[silo]->node.membership,
                                             l->silos[1 - silo]->node.id, false);
}

static void activate_grains(int from)
{
    char key[20];
    lab_number *out;
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "cut-%d", i);
        lab_ok(l->ctx[from], lab_account_add(l->ctx[from], key, lab_number(.n = 1), &out));
    }
}

/* Waits until the silo has lost its lease and was declared dead; then the other one serves every
 * grain. */
static void await_end_of(int loser)
{
    lab_until(is_over(loser));
    lab_until(teff_silo_members(l->silos[1 - loser]) == 1);
    assert_false(is_over(1 - loser));
    assert_int_equal(lost, 1);
    activate_grains(1 - loser);
    assert_false(teffi_partitions_begin_recovery_round(l->silos[1 - loser]->node.grains, NULL));
}

static void of_two_silos_that_are_cut_one_goes(void **state)
{
    activate_grains(0);
    apart = true;
    notice_cut(0);
    notice_cut(1);
    await_end_of(find_younger());
}

/* The younger one does not look for the other one, and so it does not judge. */
static void a_silo_that_does_not_know_of_the_cut_loses_its_fence(void **state)
{
    int younger = find_younger();
    apart = true;
    notice_cut(1 - younger);
    await_end_of(younger);
}

static void a_cut_that_ends_soon_costs_nobody_its_lease(void **state)
{
    apart = true;
    notice_cut(0);
    notice_cut(1);
    lab_until(teffi_reach_is_unreached(l->silos[0]->node.membership, l->silos[1]->node.id));
    apart = false;
    lab_until(!teffi_reach_is_suspected(l->silos[0]->node.membership, l->silos[1]->node.id));
    assert_false(is_over(0) || is_over(1));
}

static teff_err start_one_more(char *text)
{
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .store = l->store, .workers = 1};
    teff_silo *silo = lab_silo(&l->record, &opt);
    shorten_lease_and_cut_net(silo);
    teff_err err = teff_silo_start(silo, text);
    teff_silo_free(silo);
    return err;
}

static void a_silo_that_does_not_reach_another_one_does_not_join(void **state)
{
    char text[TEFF_TEXT_MAX] = "";
    joiner_apart = true;
    assert_int_equal(start_one_more(text), TEFF_E_UNREACHABLE);
    assert_non_null(strstr(text, "is alive, but this silo does not reach it"));
    assert_non_null(strstr(text, teff_silo_address(l->silos[1])));
    assert_int_equal(teff_silo_members(l->silos[0]), 2);
}

/* The heartbeat of a dead silo stands still. */
static void a_silo_joins_though_it_does_not_reach_a_dead_one(void **state)
{
    char text[TEFF_TEXT_MAX] = "";
    teffi_membership_lose_lease(l->silos[1]->node.membership, "the test cannot reach it");
    joiner_apart = true;
    teff_err err = start_one_more(text);
    assert_int_equal(err, TEFF_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fewest_go),
        cmocka_unit_test(of_equally_young_silos_the_one_with_the_higher_id_goes),
        cmocka_unit_test_setup_teardown(of_two_silos_that_are_cut_one_goes, setup, teardown),
        cmocka_unit_test_setup_teardown(a_silo_that_does_not_know_of_the_cut_loses_its_fence, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_cut_that_ends_soon_costs_nobody_its_lease, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_silo_that_does_not_reach_another_one_does_not_join, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_silo_joins_though_it_does_not_reach_a_dead_one, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
