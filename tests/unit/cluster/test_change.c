/* test_change.c - a change of the membership table that conflicts with others is tried again for a
 * long time, after pauses that double: hundreds of silos may start at once. Pauses are recorded and
 * take no time.
 * Way:     [test] -> teffi_membership_change -> rows -> store */
#include "cluster/join.h"
#include "lab.h"

enum { PAUSES_MAX = 1000, FIRST_MS = 16, MOST_MS = 4096, LONG_MS = 30000 };

static lab *l;
static uint32_t pauses[PAUSES_MAX];
static unsigned n_pauses;
static bool records;

void __real_teffi_ctx_sleep(teff_ctx *ctx, uint32_t ms);
void __wrap_teffi_ctx_sleep(teff_ctx *ctx, uint32_t ms);

void __wrap_teffi_ctx_sleep(teff_ctx *ctx, uint32_t ms)
{
    if (records && ctx == l->ctx[0] && n_pauses < PAUSES_MAX)
        pauses[n_pauses++] = ms;
    else
        __real_teffi_ctx_sleep(ctx, ms);
}

static int setup(void **state)
{
    n_pauses = 0;
    l = lab_open(1);
    records = true;
    return 0;
}

static int teardown(void **state)
{
    records = false;
    lab_close(l);
    return 0;
}

static unsigned conflicts;

/* A teffi_change_fn: writes this silo's row; conflicts so many times. */
static size_t change_own_row(teff_ctx *ctx, const teffi_rows *rows, teffi_member_row *changed,
                             const void *arg)
{
    changed[0] = rows->rows[0];
    if (conflicts > 0) {
        conflicts--;
        changed[0].etag++;
    }
    return 1;
}

static void a_change_gives_up_only_after_a_long_time(void **state)
{
    uint64_t sum = 0;
    conflicts = PAUSES_MAX;
    assert_int_equal(teffi_membership_change(l->ctx[0], change_own_row, NULL), TEFF_E_TIMEOUT);
    for (unsigned i = 0; i < n_pauses; i++) {
        assert_in_range(pauses[i], 1, i < 8 ? FIRST_MS << i : MOST_MS);
        sum += pauses[i];
    }
    assert_true(sum > LONG_MS);
}

static void a_change_that_gets_through_is_adopted(void **state)
{
    uint64_t before = teffi_membership_version(&l->silos[0]->node);
    conflicts = 20;
    lab_ok(l->ctx[0], teffi_membership_change(l->ctx[0], change_own_row, NULL));
    assert_int_equal(n_pauses, 20);
    assert_int_equal(teffi_membership_version(&l->silos[0]->node), before + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_change_gives_up_only_after_a_long_time, setup, teardown),
        cmocka_unit_test_setup_teardown(a_change_that_gets_through_is_adopted, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
