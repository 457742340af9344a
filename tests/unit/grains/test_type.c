/* test_type.c - whether activations of a type begin with a turn of their own. */
#include "activation/type.h"

#include "lab.h"

static teff_err on_activate(lab_turns *self)
{
    return TEFF_OK;
}

/* Code that was generated before hooks had places says nothing of them: they may be there. */
static void a_type_is_bare_if_it_surely_has_no_hook_and_no_state(void **state)
{
    lab_turns_methods none = {0}, hooked = {.on_activate = on_activate};
    teff_type_info info = lab_turns_info;
    teff_grain_type *type = teff_grain_type_new(&info, &none, NULL);
    assert_true(teffi_type_activates_at_once(type));
    type->methods = &hooked;
    assert_false(teffi_type_activates_at_once(type));
    type->methods = &none;
    info.on_activate_at = 0;
    assert_false(teffi_type_activates_at_once(type));
    info = lab_turns_info;
    info.state = lab_account_info.state;
    assert_false(teffi_type_activates_at_once(type));
    teff_grain_type_free(type);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_type_is_bare_if_it_surely_has_no_hook_and_no_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
