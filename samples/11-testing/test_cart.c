/* test_cart.c - tests of carts, on three silos in this process, with a fake bank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <teff/testing.h>
#include "cart.h"

enum { SILOS = 3, MINUTE_MS = 60 * 1000 };

/* ---- a fake: methods of the test, and what they record ---- */

typedef struct fake_bank {
    int charges;
    int64_t cents;
    int refuses; /* 1: each charge */
} fake_bank;

static teff_err fake_charge(shop_bank *self, const shop_total *in)
{
    fake_bank *fake = self->user;
    if (fake->refuses)
        return teff_fail(self->ctx, TEFF_E_USER(1), "no money");
    fake->charges++;
    fake->cents += in->cents;
    return TEFF_OK;
}

/* ---- a cluster for each test ---- */

static fake_bank bank;
static teff_testing *cluster;
static teff_ctx *ctx;

static teff_err host(void *arg, teff_silo *silo, unsigned no)
{
    static const shop_bank_methods fake_methods = {.charge = fake_charge};
    (void)no;
    teff_err err = teff_silo_host(silo, cart_type());
    return err ? err : teff_silo_host(silo, shop_bank_type(&fake_methods, arg));
}

static int open_shop(void **state)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_testing_options options = {
        .size = sizeof options, .silos = SILOS, .host = host, .arg = &bank};
    (void)state;
    bank = (fake_bank){0};
    if (teff_testing_new(&options, &cluster, text)) {
        print_error("%s\n", text);
        return 1;
    }
    ctx = teff_testing_ctx(cluster);
    return 0;
}

static int close_shop(void **state)
{
    (void)state;
    teff_testing_free(cluster);
    return 0;
}

static int64_t cents_in(const char *cart)
{
    shop_total *total;
    assert_int_equal(shop_cart_get(ctx, cart, &total), TEFF_OK);
    return total->cents;
}

static void fill(const char *cart)
{
    shop_total *total;
    const shop_item *coffee = shop_item(.name = "coffee", .cents = 450);
    const shop_item *bread = shop_item(.name = "bread", .cents = 300);
    assert_int_equal(shop_cart_add(ctx, cart, coffee, &total), TEFF_OK);
    assert_int_equal(shop_cart_add(ctx, cart, bread, &total), TEFF_OK);
    assert_int_equal(total->cents, 750);
}

/* ---- the tests ---- */

static void test_buying_charges_the_bank_once(void **state)
{
    shop_total *total;
    (void)state;
    fill("almaz");
    assert_int_equal(shop_cart_buy(ctx, "almaz", &total), TEFF_OK);
    assert_int_equal(bank.charges, 1);
    assert_int_equal(bank.cents, 750);
    assert_int_equal(cents_in("almaz"), 0);
}

static void test_a_cart_that_is_not_paid_stays(void **state)
{
    shop_total *total;
    (void)state;
    fill("almaz");
    bank.refuses = 1;
    assert_int_equal(shop_cart_buy(ctx, "almaz", &total), TEFF_E_USER(1));
    assert_string_equal(teff_error(ctx), "not paid: no money");
    assert_int_equal(cents_in("almaz"), 750);
}

/* Half an hour takes some milliseconds. */
static void test_an_abandoned_cart_is_emptied(void **state)
{
    (void)state;
    fill("almaz");
    teff_testing_advance(cluster, 29 * MINUTE_MS);
    assert_int_equal(cents_in("almaz"), 750);
    teff_testing_advance(cluster, 2 * MINUTE_MS);
    assert_int_equal(cents_in("almaz"), 0);
}

/* One silo after the other crashes, and starts again. The others need some seconds to declare a
 * silo dead; until then, calls of its carts may fail. */
static void test_a_cart_survives_crashes(void **state)
{
    (void)state;
    fill("almaz");
    for (unsigned no = 0; no < SILOS; no++) {
        teff_testing_kill(cluster, no);
        teff_testing_advance(cluster, MINUTE_MS / 2);
        assert_int_equal(cents_in("almaz"), 750);
        assert_int_equal(teff_testing_start(cluster, no, NULL), TEFF_OK);
    }
    teff_testing_advance(cluster, 30 * MINUTE_MS);
    assert_int_equal(cents_in("almaz"), 0); /* the reminder was not lost either */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_buying_charges_the_bank_once, open_shop, close_shop),
        cmocka_unit_test_setup_teardown(test_a_cart_that_is_not_paid_stays, open_shop, close_shop),
        cmocka_unit_test_setup_teardown(test_an_abandoned_cart_is_emptied, open_shop, close_shop),
        cmocka_unit_test_setup_teardown(test_a_cart_survives_crashes, open_shop, close_shop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
