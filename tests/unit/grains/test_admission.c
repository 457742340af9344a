/* test_admission.c - the table of admission.h, every cell, and against mixed company. */
#include <string.h>
#include "activation/admission.h"
#include "lab.h"

static void pairs(void **state)
{
    static const bool may[3][3] = {
        /* beside: EXCLUSIVE, READ_ONLY, FREELY */
        [TEFFI_EXCLUSIVE] = {false, false, true},
        [TEFFI_READ_ONLY] = {false, true, true},
        [TEFFI_FREELY] = {true, true, true},
    };
    for (int c = 0; c < 3; c++) {
        for (int beside = 0; beside < 3; beside++) {
            uint32_t running[3] = {0};
            assert_true(teffi_class_may_start(running, (teffi_class)c));
            running[beside] = 1;
            assert_int_equal(teffi_class_may_start(running, (teffi_class)c), may[c][beside]);
            running[beside] = 5;
            assert_int_equal(teffi_class_may_start(running, (teffi_class)c), may[c][beside]);
        }
    }
}

/* No running turn may be overlooked for another: one reader among many that interleave. */
static void every_running_turn_counts(void **state)
{
    uint32_t running[3] = {[TEFFI_READ_ONLY] = 1, [TEFFI_FREELY] = 9};
    assert_false(teffi_class_may_start(running, TEFFI_EXCLUSIVE));
    assert_true(teffi_class_may_start(running, TEFFI_READ_ONLY));
    running[TEFFI_READ_ONLY] = 0;
    assert_true(teffi_class_may_start(running, TEFFI_EXCLUSIVE));
    running[TEFFI_EXCLUSIVE] = 1;
    assert_false(teffi_class_may_start(running, TEFFI_READ_ONLY));
}

static teffi_class class_of(const teff_type_info *info, const char *method)
{
    for (size_t i = 0; i < info->n_methods; i++)
        if (strcmp(info->methods[i].name, method) == 0)
            return teffi_class_of_method(info, &info->methods[i]);
    fail_msg("no method %s", method);
    return TEFFI_EXCLUSIVE;
}

static void options_make_classes(void **state)
{
    assert_int_equal(class_of(&lab_turns_info, "lab.Turns.Write"), TEFFI_EXCLUSIVE);
    assert_int_equal(class_of(&lab_turns_info, "lab.Turns.Note"), TEFFI_EXCLUSIVE);
    assert_int_equal(class_of(&lab_turns_info, "lab.Turns.Read"), TEFFI_READ_ONLY);
    assert_int_equal(class_of(&lab_turns_info, "lab.Turns.Peek"), TEFFI_FREELY);
    assert_int_equal(class_of(&lab_free_info, "lab.Free.Ask"), TEFFI_FREELY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs),
        cmocka_unit_test(every_running_turn_counts),
        cmocka_unit_test(options_make_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
