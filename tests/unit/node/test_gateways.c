/* test_gateways.c - which gateway a grain's calls take: always the same one, each its share, and
 * when one comes or goes, only its own grains move. */
#include <string.h>
#include "test.h"

#include "base/hash.h"
#include "node/gateways.h"

enum { GRAINS = 10000, NODES = TEFFI_GATEWAYS_MAX };

static teffi_node_id node_of(unsigned i)
{
    return (teffi_node_id){100 + i, 1};
}

static teffi_node_id choose(const teffi_gateways *g, uint64_t grain)
{
    return teffi_gateways_choose(g, teffi_mix64(grain));
}

static void without_a_connection_there_is_none(void **state)
{
    teffi_gateways g = {{0}};
    assert_true(teffi_node_is_none(choose(&g, 1)));
    teffi_gateways_set(&g, 3, node_of(3));
    assert_true(teffi_node_equals(choose(&g, 1), node_of(3)));
    assert_true(teffi_node_equals(teffi_gateways_get(&g, 3), node_of(3)));
    teffi_gateways_set(&g, 3, (teffi_node_id){0});
    assert_true(teffi_node_is_none(choose(&g, 1)));
}

/* Whatever the order of their addresses. */
static void each_client_chooses_the_same_one(void **state)
{
    teffi_gateways a = {{0}}, b = {{0}};
    for (unsigned i = 0; i < NODES; i++) {
        teffi_gateways_set(&a, i, node_of(i));
        teffi_gateways_set(&b, NODES - 1 - i, node_of(i));
    }
    for (unsigned grain = 0; grain < GRAINS; grain++)
        assert_true(teffi_node_equals(choose(&a, grain), choose(&b, grain)));
}

static void each_has_its_share(void **state)
{
    teffi_gateways g = {{0}};
    unsigned share[NODES] = {0};
    for (unsigned i = 0; i < NODES; i++)
        teffi_gateways_set(&g, i, node_of(i));
    for (unsigned grain = 0; grain < GRAINS; grain++)
        share[choose(&g, grain).silo - 100]++;
    for (unsigned i = 0; i < NODES; i++)
        assert_in_range(share[i], GRAINS / NODES * 9 / 10, GRAINS / NODES * 11 / 10);
}

static void only_the_grains_of_one_that_goes_move(void **state)
{
    teffi_gateways before = {{0}}, after;
    for (unsigned i = 0; i < NODES; i++)
        teffi_gateways_set(&before, i, node_of(i));
    for (unsigned gone = 0; gone < NODES; gone++) {
        memcpy(&after, &before, sizeof after);
        teffi_gateways_set(&after, gone, (teffi_node_id){0});
        for (unsigned grain = 0; grain < GRAINS; grain++) {
            teffi_node_id was = choose(&before, grain), is = choose(&after, grain);
            assert_true(teffi_node_equals(was, node_of(gone)) ? !teffi_node_equals(is, was)
                                                              : teffi_node_equals(is, was));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_connection_there_is_none),
        cmocka_unit_test(each_client_chooses_the_same_one),
        cmocka_unit_test(each_has_its_share),
        cmocka_unit_test(only_the_grains_of_one_that_goes_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
