/* test_golden.c - the text for each .proto file of tests/golden is what stands beside it, and
 * compiles. To accept a change: TEFF_GOLDEN_UPDATE=1 meson test -C <build> codegen/golden, then
 * read the difference before it is committed. */
#include "scratch_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void golden(const char *stem)
{
    if (run("cp -r \"$GOLDEN\"/. . && \"$PROTOC\" --plugin=protoc-gen-teff=\"$PLUGIN\" -I. "
            "-I\"$PROTO\" --teff_out=emit_lock:out %s.proto",
            stem) != 0) {
        fail_msg("%s", run_output);
    }
    if (getenv("TEFF_GOLDEN_UPDATE") != NULL) {
        assert_int_equal(run("cp out/%s.teff.* \"$GOLDEN\"/", stem), 0);
    } else if (run("for e in h c lock; do diff -u \"$GOLDEN\"/%s.teff.$e out/%s.teff.$e || exit 1; "
                   "done",
                   stem, stem) != 0) {
        fail_msg("%s", run_output);
    }
}

static void words(void **state)
{
    (void)state;
    golden("words");
    run_compiles("words");
}

static void shared(void **state)
{
    (void)state;
    golden("shared");
    run_compiles("shared");
}

/* Imports, nested types, every kind of field, key, placement and option. */
static void everything(void **state)
{
    (void)state;
    golden("shared");
    golden("everything");
    run_compiles("everything");
}

static void proto2(void **state)
{
    (void)state;
    golden("proto2");
    run_compiles("proto2");
}

/* Files that users import and did not write: among them proto2, recursion, deprecated fields. */
static void well_known_types(void **state)
{
    static const char *const names[] = {"any",        "descriptor",    "duration",  "empty",
                                        "field_mask", "struct",        "timestamp", "type",
                                        "wrappers",   "source_context"};
    char stem[64];

    (void)state;
    assert_int_equal(run("cd out && for n in any descriptor duration empty field_mask struct "
                         "timestamp type wrappers source_context; do \"$PROTOC\" "
                         "--plugin=protoc-gen-teff=\"$PLUGIN\" -I\"$PROTO\" --teff_out=. "
                         "google/protobuf/$n.proto || exit 1; done"),
                     0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(stem, sizeof stem, "google/protobuf/%s", names[i]);
        run_compiles(stem);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(words, run_setup, run_teardown),
        cmocka_unit_test_setup_teardown(shared, run_setup, run_teardown),
        cmocka_unit_test_setup_teardown(everything, run_setup, run_teardown),
        cmocka_unit_test_setup_teardown(proto2, run_setup, run_teardown),
        cmocka_unit_test_setup_teardown(well_known_types, run_setup, run_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
