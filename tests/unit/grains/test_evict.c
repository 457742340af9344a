/* test_evict.c - a silo whose run queue is by priority and limited: requests for the least urgent
 * grains are refused, each is answered once, and turns under way go on. */
#include <stdio.h>
#include <string.h>
#include "activation/activation.h"
#include "lab.h"
#include "sched/exec.h"

static teff_silo *silo_of(lab_record *record, const teff_silo_options *opt)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_silo *silo = lab_silo(record, opt);
    if (teff_silo_start(silo, text))
        fail_msg("start: %s", text);
    return silo;
}

/* A turn that asks 200 grains at once: on one worker they all become READY in it, and eight may
 * wait. Should another thread take some of them meanwhile: again, until some were refused. */
static void test_requests_are_refused(void **state)
{
    static lab_record record;
    const teff_sched_options sched = {
        .size = sizeof sched, .policy = TEFF_SCHED_PRIORITY, .waiting_max = 8};
    const teff_silo_options opt = {.size = sizeof opt, .silent = 1, .workers = 1, .sched = &sched};
    teff_sched_metrics all;
    lab_number *out;
    teff_silo *silo = silo_of(&record, &opt);
    teff_ctx *ctx = teff_silo_new_ctx(silo);
    for (int i = 0; i < 200; i++) { /* activated one by one, so that none of that is refused */
        char key[40];
        snprintf(key, sizeof key, "few-%d", i);
        lab_ok(ctx, lab_account_add(ctx, key, lab_number(.n = 1), &out));
    }
    teff_err err = TEFF_OK;
    for (int i = 0; i < 1000 && !err; i++)
        err = lab_relay_fan(ctx, "fan", lab_plan(.n = 200, .prefix = (char *)"few"), &out);
    assert_int_equal(err, TEFF_E_OVERLOADED);
    assert_non_null(strstr(teff_error(ctx), "evicted"));
    (void)teff_silo_sched_metrics(silo, &all, NULL, 0);
    assert_true(all.evicted > 0);
    /* Those that were not refused have counted, and the grains are as before. */
    lab_ok(ctx, lab_account_add(ctx, "few-0", lab_number(.n = 0), &out));
    lab_ok(ctx, lab_relay_fan(ctx, "fan", lab_plan(.n = 1, .prefix = (char *)"few"), &out));
    teff_ctx_free(ctx);
    assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
    teff_silo_free(silo);
}

static void nothing(teffi_exec *exec, teffi_group *group)
{
}

/* The type's priority is that of its activations' groups, from birth on. */
static void test_priority_of_a_type(void **state)
{
    static const teff_type_info info = {.name = "x.X", .id = 1, .key_kind = TEFF_KEY_INT64};
    static const teffi_exec_ops ops = {.ready = nothing};
    static teffi_exec exec = {.ops = &ops};
    static teffi_node node = {.home.exec = &exec};
    static teffi_grains grains = {.node = &node};
    static teffi_activation act;
    const teff_key number = {.kind = TEFF_KEY_INT64, .number = 5};
    uint8_t key[TEFFI_KEY_BYTES_MAX];
    const char *why;
    teff_grain_type *type = teff_grain_type_new(&info, NULL, NULL);
    assert_non_null(type);
    teff_grain_type_priority(type, -7);
    teffi_ident ident = teffi_ident_of(&grains.secret, info.id, key,
                                       teffi_key_encode(TEFF_KEY_INT64, &number, key, &why));
    teffi_activation_init(&act, &grains);
    assert_int_equal(atomic_load(&act.group.priority), 0);
    assert_int_equal(teffi_activation_give_identity(&act, type, &ident), TEFF_OK);
    assert_int_equal(atomic_load(&act.group.priority), -7);
    teff_grain_type_free(type);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_are_refused),
        cmocka_unit_test(test_priority_of_a_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
