/* test_option_rows.c - the fifteen bad inputs of teff/grain.proto's options, each by its name.
 * Rule: an error with file:line, never a silent default. Options that teff does not have are
 * refused as unknown: the rows about them show that. */
#include "scratch_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD                                                                                       \
    "syntax = \"proto3\";\n"                                                                       \
    "package words;\n"                                                                             \
    "import \"teff/grain.proto\";\n"                                                               \
    "message Seen { uint64 times = 1; }\n"

/* The option stands on line 6. */
static void grain_refused(const char *option, const char *what)
{
    char proto[1024];

    snprintf(proto, sizeof proto,
             HEAD "service Word {\n  option (teff.grain) = { %s };\n"
                  "  rpc Add (Seen) returns (Seen);\n}\n",
             option);
    run_refused(proto, "x.proto:6:", what);
}

/* The option stands on line 8. */
static void method_refused(const char *option, const char *answer, const char *what)
{
    char proto[1024];

    snprintf(proto, sizeof proto,
             HEAD "service Word {\n  option (teff.grain) = { key: STRING };\n"
                  "  rpc Add (Seen) returns (%s) {\n    option (teff.method) = { %s };\n  }\n}\n",
             answer, option);
    run_refused(proto, "x.proto:8:", what);
}

static void row_01_unknown_option(void **state)
{
    grain_refused("key: STRING, colour: 3", "colour");
    method_refused("colour: 3", "Seen", "colour");
    run_refused(HEAD "service Word {\n  option (teff.grains) = { key: STRING };\n}\n",
                "x.proto:6:", "teff.grains");
    /* A newer teff/grain.proto than the plugin's own. */
    assert_int_equal(run("mkdir -p newer/teff && sed 's/string idle = 5;/&optional int32 colour = "
                         "99;/' \"$PROTO\"/teff/grain.proto > newer/teff/grain.proto && grep -q "
                         "colour newer/teff/grain.proto"),
                     0);
    run_write("x.proto", HEAD "service Word {\n  option (teff.grain) = { key: STRING, colour: 3 "
                              "};\n}\n");
    assert_int_equal(run("\"$PROTOC\" --plugin=protoc-gen-teff=\"$PLUGIN\" -I. -Inewer "
                         "--teff_out=out x.proto"),
                     1);
    assert_non_null(strstr(run_output, "x.proto:6: option (teff.grain) has a field 99"));
    assert_true(run_out_empty());
}

static void row_02_wrong_type(void **state)
{
    grain_refused("key: STRING, queue_max: \"many\"", "Expected integer");
    grain_refused("key: STRING, reentrant: 7", "out of range");
    grain_refused("key: STRING, idle: 60", "Expected string");
    method_refused("read_only: \"yes\"", "Seen", "Expected");
}

static void row_03_unknown_placement(void **state)
{
    grain_refused("key: STRING, placement: NEAREST", "NEAREST");
}

static void row_04_negative_or_zero_timeout(void **state)
{
    method_refused("timeout: \"-1s\"", "Seen", "timeout: \"-1s\" is not a time");
    method_refused("timeout: \"0s\"", "Seen", "timeout: \"0s\" is no time at all");
    method_refused("timeout: \"\"", "Seen", "timeout: \"\" is not a time");
    method_refused("timeout: \"5\"", "Seen", "timeout: \"5\" is not a time");
    method_refused("timeout: \"1.5s\"", "Seen", "timeout: \"1.5s\" is not a time");
    method_refused("timeout: \"5 s\"", "Seen", "timeout: \"5 s\" is not a time");
    grain_refused("key: STRING, idle: \"0ms\"", "idle: \"0ms\" is no time at all");
}

static void row_05_duration_overflow(void **state)
{
    method_refused("timeout: \"4294967296ms\"", "Seen", "is too long a time");
    method_refused("timeout: \"1194h\"", "Seen", "is too long a time");
    method_refused("timeout: \"99999999999999999999999999s\"", "Seen", "is too long a time");
    run_accepted(HEAD "service Word {\n  option (teff.grain) = { key: STRING, idle: \"1193h\" };\n"
                      "  rpc Add (Seen) returns (Seen) { option (teff.method).timeout = "
                      "\"4294967295ms\"; }\n}\n");
    assert_int_equal(run("grep -q '4294800000, /. idle_ms' out/x.teff.c && grep -q '0, "
                         "4294967295, &words_seen_ops' out/x.teff.c"),
                     0);
}

static void row_06_reentrant_and_transactional(void **state)
{
    run_refused(HEAD
                "service Word {\n  option (teff.grain) = { key: STRING, reentrant: true };\n"
                "  rpc A (Seen) returns (Seen) { option (teff.method).transactional = true; }\n}\n",
                "x.proto:7:", "transactional: words.Word.A locks its grain");
    run_refused(HEAD
                "service Word {\n  option (teff.grain) = { key: STRING };\n"
                "  rpc A (Seen) returns (Seen) { option (teff.method).transactional = true; }\n"
                "  rpc B (Seen) returns (Seen) {\n"
                "    option (teff.method).always_interleave = true;\n  }\n"
                "}\n",
                "x.proto:7:", "transactional: words.Word.A locks its grain");
    method_refused("transactional: true, read_only: true", "Seen", "locks its grain");
    method_refused("transactional: true, one_way: true", "teff.Void", "has an outcome");
    method_refused("transactional: true, idempotent: true", "Seen", "must count once");
    grain_refused("key: STRING, transactional: true", "transactional");
}

static void row_07_one_way_with_response(void **state)
{
    method_refused("one_way: true", "Seen",
                   "one_way: words.Word.Add has a response, expected returns (teff.Void)");
    method_refused("one_way: true, timeout: \"1s\"", "teff.Void", "nobody waits");
    method_refused("one_way: true, idempotent: true", "teff.Void", "nobody learns");
    method_refused("read_only: true, always_interleave: true", "Seen",
                   "read_only or always_interleave");
}

static void row_08_key_type_unsupported(void **state)
{
    grain_refused("key: FLOAT", "FLOAT");
    grain_refused("reentrant: true", "grain words.Word has no key, expected key: STRING");
    run_refused(HEAD "service Word {\n  option (teff.grain) = {};\n}\n",
                "x.proto:6:", "has no key");
}

static void row_09_duplicate_method_id(void **state)
{
    run_refused(HEAD "service Word {\n  option (teff.grain) = { key: STRING };\n"
                     "  rpc A (Seen) returns (Seen) { option (teff.method).id = 5; }\n"
                     "  rpc B (Seen) returns (Seen) { option (teff.method).id = 5; }\n}\n",
                "x.proto:8:", "words.Word.B and words.Word.A (x.proto:7) have the same id");
    method_refused("id: 0", "Seen", "id: 0, expected 1 to 4294967295");
    /* Hashed ids: these two names have the same one. */
    run_refused("syntax = \"proto3\";\npackage ids;\nimport \"teff/grain.proto\";\n"
                "message Seen { }\nservice Word {\n  option (teff.grain) = { key: STRING };\n"
                "  rpc M238ab (Seen) returns (Seen);\n  rpc M68978 (Seen) returns (Seen);\n}\n",
                "x.proto:8:", "have the same id 0x48a8f92e, expected another id for one");
}

/* A method may be named like what each grain has: codegen_rows, row 8. */
static void row_10_reserved_name(void **state)
{
    run_refused("syntax = \"proto3\";\npackage teff;\nimport \"teff/grain.proto\";\n"
                "service Grain { option (teff.grain) = { key: STRING }; }\n",
                "x.proto:4:", "a name of the C library or of teff");
    run_refused(HEAD "message Holder {\n  teff.Void nothing = 1;\n}\n",
                "x.proto:6:", "teff.Void is for requests and responses");
}

static void row_11_state_message_missing(void **state)
{
    grain_refused("key: STRING, state: \"words.Gone\"",
                  "state: there is no message \"words.Gone\"");
    grain_refused("key: STRING, state: \"\"", "state: there is no message \"\"");
    grain_refused("key: STRING, state: \"teff.Void\"", "state: there is no message");
    run_write("a.proto", "syntax = \"proto3\";\npackage a;\nmessage Far { }\n");
    run_write("b.proto", "syntax = \"proto3\";\npackage b;\nimport \"a.proto\";\n"
                         "message Near { a.Far far = 1; }\n");
    run_refused("syntax = \"proto3\";\npackage words;\nimport \"teff/grain.proto\";\n"
                "import \"b.proto\";\nservice Word {\n"
                "  option (teff.grain) = { key: STRING, state: \"a.Far\" };\n}\n",
                "x.proto:6:", "state: a.Far is in a.proto, expected an import of that file");
}

static void row_12_stateless_worker_and_reminders(void **state)
{
    grain_refused("key: STRING, stateless_worker: 4, reminders: true", "reminders");
    grain_refused("key: STRING, reminders: true", "reminders");
}

static void bad_stateless_workers(void **state)
{
    grain_refused("key: STRING, stateless_worker: 0", "stateless_worker: 0, expected 1 to 64, or "
                                                      "-1 for one");
    grain_refused("key: STRING, stateless_worker: -2", "stateless_worker: -2, expected 1 to 64");
    grain_refused("key: STRING, stateless_worker: 65", "stateless_worker: 65, expected 1 to 64");
    grain_refused("key: STRING, stateless_worker: 4, state: \"words.Seen\"",
                  "words.Word would overwrite each other's state, expected no state");
    grain_refused("key: STRING, stateless_worker: 4, placement: RANDOM", "expected no placement");
    grain_refused("key: STRING, stateless_worker: 4, answers_max: 1",
                  "answers_max: words.Word has no state");
    run_refused(HEAD "service Ear {\n  option (teff.observer) = true;\n"
                     "  rpc Said (Seen) returns (teff.Void);\n}\nservice Word {\n"
                     "  option (teff.grain) = { key: STRING, stateless_worker: 1,"
                     " observes: \"words.Ear\" };\n}\n",
                "x.proto:10:", "some of the notifications, expected no observes");
    run_refused(HEAD "service Word {\n"
                     "  option (teff.grain) = { key: STRING, stateless_worker: 1 };\n"
                     "  rpc A (Seen) returns (Seen) { option (teff.method).transactional = true; }"
                     "\n}\n",
                "x.proto:7:", "transactional: words.Word.A locks its grain, but a stateless");
    run_accepted(HEAD "service Word {\n"
                      "  option (teff.grain) = { key: STRING, stateless_worker: -1, idle: \"9s\","
                      " reentrant: true };\n  rpc A (Seen) returns (Seen);\n}\n");
    assert_int_equal(run("grep -q TEFF_PLACE_STATELESS out/x.teff.c && grep -q '0, /. pool_max' "
                         "out/x.teff.c"),
                     0);
}

static void row_13_max_message_above_global(void **state)
{
    grain_refused("key: STRING, max_message_bytes: 1048577",
                  "max_message_bytes: 1048577, expected 1 to 1048576");
    grain_refused("key: STRING, max_message_bytes: 0", "max_message_bytes: 0, expected 1 to");
    grain_refused("key: STRING, queue_max: 0", "queue_max: 0, expected 1 to 1000000");
    grain_refused("key: STRING, version: 0", "version: 0, expected 1 to 63");
    grain_refused("key: STRING, version: 64", "version: 64, expected 1 to 63");
    grain_refused("key: STRING, queue_max: 4294967296", "out of range");
    grain_refused("key: STRING, answers_max: 1025", "answers_max: 1025, expected 1 to 1024");
    grain_refused("key: STRING, answers_max: 0", "answers_max: 0, expected 1 to 1024");
    grain_refused("key: STRING, answers_max: 1", "answers_max: words.Word has no state");
}

static void row_14_duplicate_version(void **state)
{
    grain_refused("key: STRING, version: 1, version: 1", "version");
    run_refused(HEAD "service Word {\n  option (teff.grain).key = STRING;\n"
                     "  option (teff.grain).key = INT64;\n}\n",
                "x.proto:7:", "already set");
}

static const char locked[] = HEAD "service Word {\n  option (teff.grain) = { key: STRING };\n"
                                  "  rpc Add (Seen) returns (Seen);\n"
                                  "  rpc Get (Seen) returns (Seen);\n}\n";

static void row_15_method_gone_or_renumbered(void **state)
{
    run_write("x.proto", locked);
    assert_int_equal(run_protoc("emit_lock", "x.proto"), 0);
    assert_int_equal(run("mv out/x.teff.lock . && rm out/* && cat x.teff.lock"), 0);
    assert_non_null(strstr(run_output, "words.Word.Add 0x3917dadd\nwords.Word.Get 0xb9c0e6ca\n"));
    assert_int_equal(run_protoc("lock=x.teff.lock", "x.proto"), 0);
    assert_int_equal(run("rm out/* && sed -i /Get/d x.proto"), 0);
    assert_int_equal(run_protoc("lock=x.teff.lock", "x.proto"), 1);
    assert_non_null(strstr(run_output, "x.teff.lock:4: method words.Word.Get is not in x.proto"));
    assert_true(run_out_empty());
    run_write("x.proto", locked);
    assert_int_equal(
        run("sed -i '/Add/s/(Seen);/(Seen) { option (teff.method).id = 9; }/' x.proto"), 0);
    assert_int_equal(run_protoc("lock=x.teff.lock", "x.proto"), 1);
    assert_non_null(strstr(run_output, "x.proto:7: words.Word.Add has the id 0x00000009, expected "
                                       "0x3917dadd as in x.teff.lock:3"));
    run_write("x.proto", locked);
    run_write("x.teff.lock", "words.Word.Add 0x3917dadd\nwords.Word.Get b9c0e6ca\n");
    assert_int_equal(run_protoc("lock=x.teff.lock", "x.proto"), 1);
    assert_non_null(strstr(run_output, "x.teff.lock:2: not a line of a lock"));
    assert_true(run_out_empty());
}

static void a_version_that_falls(void **state)
{
    run_write("x.proto", locked);
    assert_int_equal(run("sed -i 's/key: STRING/key: STRING, version: 12/' x.proto"), 0);
    assert_int_equal(run_protoc("emit_lock", "x.proto"), 0);
    assert_int_equal(run("mv out/x.teff.lock . && rm out/* && cat x.teff.lock"), 0);
    assert_non_null(strstr(run_output, "words.Word version 12\n"));
    assert_int_equal(run_protoc("lock=x.teff.lock", "x.proto"), 0);
    assert_int_equal(run("rm out/* && sed -i 's/version: 12/version: 13/' x.proto"), 0);
    assert_int_equal(run_protoc("lock=x.teff.lock", "x.proto"), 0);
    assert_int_equal(run("rm out/* && sed -i 's/version: 13/version: 11/' x.proto"), 0);
    assert_int_equal(run_protoc("lock=x.teff.lock", "x.proto"), 1);
    assert_non_null(strstr(run_output,
                           "x.proto:5: words.Word has the version 11, expected at least "
                           "12 as in x.teff.lock:5"));
    run_write("x.teff.lock", "words.Other version 1\nwords.Word version x\n");
    assert_int_equal(run_protoc("lock=x.teff.lock", "x.proto"), 1);
    assert_non_null(strstr(run_output, "x.teff.lock:1: grain words.Other is not in x.proto any "
                                       "more"));
    assert_non_null(strstr(run_output, "x.teff.lock:2: not a line of a lock"));
    assert_true(run_out_empty());
}

/* The service begins on line 5, its method stands on line 7. */
static void observer_refused(const char *method, const char *where, const char *what)
{
    char proto[1024];

    snprintf(proto, sizeof proto, HEAD "service Ear {\n  option (teff.observer) = true;\n%s}\n",
             method);
    run_refused(proto, where, what);
}

static void bad_observers(void **state)
{
    observer_refused("", "x.proto:5:", "observer words.Ear has no method");
    observer_refused("  rpc A (Seen) returns (Seen);\n",
                     "x.proto:7:", "words.Ear.A has a response, but nobody waits");
    observer_refused(
        "  rpc A (Seen) returns (teff.Void) { option (teff.method).one_way = true; }\n",
        "x.proto:7:", "words.Ear.A is a method of an observer, expected no option");
    observer_refused(
        "  rpc A (Seen) returns (teff.Void) { option (teff.method).timeout = \"1s\"; }\n",
        "x.proto:7:", "words.Ear.A is a method of an observer, expected no option");
    observer_refused("  rpc A (stream Seen) returns (teff.Void);\n",
                     "x.proto:7:", "streams of messages are not supported");
    observer_refused("  option (teff.grain).key = STRING;\n  rpc A (Seen) returns (teff.Void);\n",
                     "x.proto:5:", "words.Ear is an observer, expected no option (teff.grain)");
    observer_refused("  rpc OnDropped (Seen) returns (teff.Void);\n",
                     "x.proto:7:", "both become on_dropped in C");
    observer_refused("  rpc A (Seen) returns (teff.Void) { option (teff.method).id = 0; }\n",
                     "x.proto:7:", "id: 0, expected");
    run_refused(HEAD "message EarCount { }\n"
                     "service Ear {\n  option (teff.observer) = true;\n"
                     "  rpc A (Seen) returns (teff.Void);\n}\n",
                "x.proto:6:", "words_ear_count in C");
}

#define EAR                                                                                        \
    "service Ear {\n  option (teff.observer) = true;\n  rpc A (Seen) returns (teff.Void);\n}\n"

static void bad_observes(void **state)
{
    grain_refused("key: STRING, observes: \"Ear\"", "observes: there is no observer \"Ear\"");
    grain_refused("key: STRING, observes: \"Word\"", "observes: there is no observer \"Word\"");
    run_refused(HEAD EAR "service Word {\n"
                         "  option (teff.grain) = { key: STRING, observes: \"Ear\", observes: "
                         "\"Ear\" };\n}\n",
                "x.proto:9:", "both become ear_a in C");
    run_refused(HEAD EAR "service Word {\n"
                         "  option (teff.grain) = { key: STRING, observes: \"Ear\" };\n"
                         "  rpc EarA (Seen) returns (Seen);\n}\n",
                "x.proto:9:", "both become ear_a in C");
    run_refused(HEAD EAR "service Word {\n"
                         "  option (teff.grain) = { key: STRING, observes: \"ords.Ear\" };\n}\n",
                "x.proto:10:", "there is no observer \"ords.Ear\"");
    run_accepted(HEAD EAR "service Word {\n"
                          "  option (teff.grain) = { key: STRING, observes: \"words.Ear\" };\n}\n");
}

static void method_option_without_a_grain(void **state)
{
    run_refused(HEAD "service Plain {\n  rpc Add (Seen) returns (Seen) {\n"
                     "    option (teff.method).read_only = true;\n  }\n}\n",
                "x.proto:7:", "words.Plain is no grain, expected option (teff.grain)");
    run_refused(HEAD "service Plain {\n  rpc Add (Seen) returns (teff.Void);\n}\n",
                "x.proto:6:", "words.Plain is no grain");
}

static void protobuf_c_options_are_refused(void **state)
{
    run_refused("syntax = \"proto3\";\npackage words;\nimport \"protobuf-c/protobuf-c.proto\";\n"
                "option (pb_c_file).c_package = \"other\";\nmessage Seen { }\n",
                "x.proto:4:", "option (pb_c_file)");
    run_refused("syntax = \"proto3\";\npackage words;\nimport \"protobuf-c/protobuf-c.proto\";\n"
                "message Seen {\n  string s = 1 [(pb_c_field).string_as_bytes = true];\n}\n",
                "x.proto:5:", "option (pb_c_field)");
}

static void the_options_have_one_name(void **state)
{
    assert_int_equal(run("cp \"$PROTO\"/teff/grain.proto mine.proto"), 0);
    run_refused("syntax = \"proto3\";\npackage words;\nimport \"mine.proto\";\n"
                "service Word { option (teff.grain) = { key: STRING }; }\n",
                "mine.proto:", "expected to be imported as \"teff/grain.proto\"");
    run_write("x.proto", "syntax = \"proto3\";\n");
    assert_int_equal(run_protoc("", "teff/grain.proto"), 1);
    assert_non_null(strstr(run_output, "teff/grain.proto:1: options are not generated"));
    assert_true(run_out_empty());
}

static void every_problem_is_told(void **state)
{
    run_refused(HEAD "service Word {\n  option (teff.grain) = { queue_max: 0 };\n"
                     "  rpc _Add (Seen) returns (stream Seen);\n}\n",
                "x.proto:6: grain words.Word has no key", "x.proto:7: words.Word._Add begins");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define ROW(name) cmocka_unit_test_setup_teardown(name, run_setup, run_teardown)
        ROW(row_01_unknown_option),
        ROW(row_02_wrong_type),
        ROW(row_03_unknown_placement),
        ROW(row_04_negative_or_zero_timeout),
        ROW(row_05_duration_overflow),
        ROW(row_06_reentrant_and_transactional),
        ROW(row_07_one_way_with_response),
        ROW(row_08_key_type_unsupported),
        ROW(row_09_duplicate_method_id),
        ROW(row_10_reserved_name),
        ROW(row_11_state_message_missing),
        ROW(row_12_stateless_worker_and_reminders),
        ROW(row_13_max_message_above_global),
        ROW(row_14_duplicate_version),
        ROW(row_15_method_gone_or_renumbered),
        ROW(a_version_that_falls),
        ROW(bad_stateless_workers),
        ROW(bad_observers),
        ROW(bad_observes),
        ROW(method_option_without_a_grain),
        ROW(protobuf_c_options_are_refused),
        ROW(the_options_have_one_name),
        ROW(every_problem_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
