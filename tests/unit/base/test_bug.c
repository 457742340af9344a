/* test_bug.c - a bug, or a broken rule, ends the process with a line that says where. */
#include "base/bug.h"

/* cmocka comes after these. */
#include "../death.h"

static void be_wrong(void)
{
    teffi_bug_if(sizeof(int) == 1); /* not wrong */
    teffi_bug_if(sizeof(int) == 4);
}

static void break_a_rule(void)
{
    teffi_abort_for_broken_rule("words.Word.Add", "it waits");
}

static void a_bug_names_its_place(void **state)
{
    assert_true(dies_with(be_wrong, "test_bug.c:10: sizeof(int) == 4\n"));
}

static void a_broken_rule_names_the_turn(void **state)
{
    assert_true(dies_with(break_a_rule, "teff: words.Word.Add: it waits\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bug_names_its_place),
        cmocka_unit_test(a_broken_rule_names_the_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
