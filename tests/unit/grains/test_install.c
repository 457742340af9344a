/* test_install.c - when the collector looks at activations: a quarter of the shortest idle time
 * after the round before, and a slice of them at a time. The clock stands. */
#include "bare.h"

#include "hosting/install.h"

enum { TYPES = 2 };

static teffi_node hosting;
static teff_type_info infos[TYPES];
static teff_grain_type *types[TYPES];

static void start_hosting(const uint32_t idle_ms[TYPES])
{
    char text[TEFF_TEXT_MAX] = "";
    hosting = (teffi_node){.platform = &bare_platform, .home.exec = &bare_exec};
    for (uint32_t i = 0; i < TYPES; i++) {
        infos[i] = lab_turns_info;
        infos[i].id += i;
        infos[i].idle_ms = idle_ms[i];
        types[i] = teff_grain_type_new(&infos[i], NULL, NULL);
    }
    assert_int_equal(teffi_grains_install(&hosting, types, TYPES, text), TEFF_OK);
    teffi_grains_start(&hosting);
}

static void free_hosting(void)
{
    teffi_grains_stop(&hosting);
    bare_due_ns = 0;
    bare_timer->fire(bare_timer);
    assert_int_equal(bare_due_ns, 0); /* it is not set again */
    assert_false(hosting.grains->accepting);
    teffi_grains_free(&hosting);
    for (uint32_t i = 0; i < TYPES; i++)
        teff_grain_type_free(types[i]);
}

static uint64_t next_look_ms(void)
{
    return (bare_due_ns - bare_now_ns) / 1000000;
}

static void a_round_comes_each_quarter_of_the_shortest_idle_time(void **state)
{
    static const struct {
        uint32_t idle_ms[TYPES];
        uint32_t every_ms;
    } rows[] = {{{0, 0}, 60000},
                {{0, 50}, 12},
                {{50, 0}, 12},
                {{1000, 400}, 100},
                {{400, 1000}, 100},
                {{20, 20}, 10},
                {{3600000, 3600000}, 60000}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        start_hosting(rows[i].idle_ms);
        assert_int_equal(next_look_ms(), rows[i].every_ms);
        bare_due_ns = 0;
        bare_timer->fire(bare_timer);
        assert_int_equal(next_look_ms(), rows[i].every_ms);
        free_hosting();
    }
}

static void many_are_looked_at_in_slices(void **state)
{
    enum { GRAINS = 3000, SLICES = 3, EVERY_MS = 1000, SLICE_MS = 1 };
    start_hosting((uint32_t[TYPES]){4 * EVERY_MS, 0});
    for (int i = 0; i < GRAINS; i++) {
        char key[8];
        int len = snprintf(key, sizeof key, "%d", i);
        teffi_ident ident = teffi_ident_of(&hosting.grains->secret, infos[0].id,
                                           (const uint8_t *)key, (uint32_t)len);
        teffi_activation *act;
        assert_int_equal(teffi_shard_create_activation(hosting.grains, &ident, true, NULL, &act),
                         TEFF_OK);
    }
    for (unsigned round = 0; round < 2; round++)
        for (unsigned slice = 1; slice <= SLICES; slice++) {
            bare_timer->fire(bare_timer);
            assert_int_equal(next_look_ms(), slice < SLICES ? SLICE_MS : EVERY_MS);
        }
    assert_int_equal(hosting.grains->shards->activations, GRAINS); /* none was idle for so long */
    free_hosting();
}

int main(void)
{
#define BARE(f) cmocka_unit_test_setup_teardown(f, bare_open, bare_close)
    const struct CMUnitTest tests[] = {
        BARE(a_round_comes_each_quarter_of_the_shortest_idle_time),
        BARE(many_are_looked_at_in_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
