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
    golden("words");
    run_compiles("words");
}

static void shared(void **state)
{
    golden("shared");
    run_compiles("shared");
}

/* Imports, nested types, every kind of field, key, placement and option. */
static void everything(void **state)
{
    golden("shared");
    golden("everything");
    run_compiles("everything");
}

static void proto2(void **state)
{
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

/* The application's own error codes, as teff/error.h says to write and use them. */
static void user_codes_warn_nowhere(void **state)
{
    run_write("out/codes.teff.c",
              "#include <teff/error.h>\n"
              "#define NO_FUNDS TEFF_E_USER(1)\n"
              "#define FROZEN TEFF_E_USER(2)\n"
              "teff_err pay(int sum);\n"
              "int judge(teff_err err);\n"
              "teff_err pay(int sum)\n"
              "{\n"
              "    teff_err err = sum > 10 ? NO_FUNDS : TEFF_OK;\n"
              "\n"
              "    return sum > 20 ? FROZEN : err;\n"
              "}\n"
              "int judge(teff_err err)\n"
              "{\n"
              "    switch ((int)err) {\n"
              "    case TEFF_OK:\n"
              "        return 0;\n"
              "    case NO_FUNDS:\n"
              "        return 1;\n"
              "    case FROZEN:\n"
              "        return 2;\n"
              "    default:\n"
              "        return err == TEFF_E_TIMEOUT || err >= TEFF_E_USER || pay(3) == NO_FUNDS;\n"
              "    }\n"
              "}\n");
    run_compiles("codes");
}

/* Messages in one expression: name(.field = value) in C, name_with().field(value) in C++. */
static void literals_warn_nowhere(void **state)
{
    static const char in_c[] =
        "#include \"everything.teff.h\"\n"
        "#include \"proto2.teff.h\"\n"
        "#define M(...) acme_shop_x_v1_http_reply(__VA_ARGS__)\n"
        "teff_err call(teff_ctx *ctx, teff_uuid key);\n"
        "teff_err call(teff_ctx *ctx, teff_uuid key)\n"
        "{\n"
        "    int32_t nums[] = {1, 2};\n"
        "    teff_err err = acme_shop_x_v1_everything_find(ctx, key, \"\", M(), NULL);\n"
        "    if (!err)\n"
        "        err = acme_shop_x_v1_everything_find(ctx, key, \"\", M(.name = \"n\",\n"
        "            .nums = nums, .n_nums = 2,\n"
        "            .thing = acme_shop_x_v1_http_reply_inner_thing(.up = M(.flag = 1)),\n"
        "            .my_kind_case = ACME__SHOP_X__V1__HTTPREPLY__MY_KIND_TEXT, .text = \"t\"), "
        "NULL);\n"
        "    return err ? err : (teff_err)(old_part(.label = \"l\")->has_number);\n"
        "}\n";
    static const char in_cxx[] =
        "#include \"everything.teff.h\"\n"
        "#include \"proto2.teff.h\"\n"
        "#include <cassert>\n"
        "#include <cstring>\n"
        "typedef acme_shop_x_v1_http_reply_with with;\n"
        "static int32_t nums[] = {1, 2};\n"
        "static void look(const acme_shop_x_v1_http_reply *m)\n"
        "{\n"
        "    assert(m->base.descriptor && strcmp(m->name, \"n\") == 0 && m->n_nums == 2);\n"
        "    assert(m->nums == nums && m->thing->up->flag && m->data.len == 0);\n"
        "    assert(m->my_kind_case == ACME__SHOP_X__V1__HTTPREPLY__MY_KIND_TEXT);\n"
        "    assert(strcmp(m->text, \"t\") == 0 && m->_maybe_number_case);\n"
        "}\n"
        "static void look(const old_part *m)\n"
        "{\n"
        "    assert(m->has_flag && !m->has_number && m->number == 7 && m->label == m->name);\n"
        "}\n"
        "teff_err call(teff_ctx *ctx, teff_uuid key);\n"
        "teff_err call(teff_ctx *ctx, teff_uuid key)\n"
        "{\n"
        "    return acme_shop_x_v1_everything_find(ctx, key, \"\", with().name(\"n\"), NULL);\n"
        "}\n"
        "int main()\n"
        "{\n"
        "    const char *l = \"l\";\n"
        "    look(with().text(\"t\").nums(nums, 2).name(\"n\").maybe_number(0).thing(\n"
        "        acme_shop_x_v1_http_reply_inner_thing_with().up(with().flag(true))));\n"
        "    look(old_part_with().flag(false).label(l).name(l));\n"
        "}\n";

    golden("shared");
    golden("everything");
    golden("proto2");
    run_write("out/literals.teff.c", in_c);
    run_write("out/literals.cc", in_cxx);
    if (run("cd out && $CC -std=c11 -Wall -Wextra -Wpedantic -Wmissing-field-initializers -Werror "
            "-I. -I\"$INCLUDE\" -fsyntax-only literals.teff.c") != 0) {
        fail_msg("as C11: %s", run_output);
    }
    if (run("test -z \"$CXX\" || { cd out && for s in c++11 c++17 c++20; do $CXX -std=$s -Wall "
            "-Wextra -Wpedantic -Wmissing-field-initializers -Werror -I. -I\"$INCLUDE\" "
            "-fsyntax-only literals.cc || exit 1; done; }") != 0) {
        fail_msg("as C++: %s", run_output);
    }
    /* The calls have no runtime to be linked with. */
    if (run("test -z \"$CXX\" || { cd out && sed -i '/^teff_err call/,/^}/d' literals.cc && "
            "$CC -c -I. -I\"$INCLUDE\" everything.pb-c.c shared.pb-c.c proto2.pb-c.c && $CXX -I. "
            "-I\"$INCLUDE\" literals.cc *.o -lprotobuf-c -o literals && ./literals; }") != 0) {
        fail_msg("%s", run_output);
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
        cmocka_unit_test_setup_teardown(user_codes_warn_nowhere, run_setup, run_teardown),
        cmocka_unit_test_setup_teardown(literals_warn_nowhere, run_setup, run_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
