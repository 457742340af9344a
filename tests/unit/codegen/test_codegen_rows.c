/* test_codegen_rows.c - the fifteen bad inputs of a protoc plugin, each by its name.
 * Rule: file:line where there is one, an exit status, no output file; never a crash. */
#include "codegen.h"
#include "request.pb-c.h"
#include "scratch_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HEAD                                                                                       \
    "syntax = \"proto3\";\n"                                                                       \
    "package words;\n"                                                                             \
    "import \"teff/grain.proto\";\n"
#define GRAIN "option (teff.grain) = { key: STRING };"

static const char good[] = HEAD "message Seen { uint64 times = 1; }\n"
                                "service Word { " GRAIN " rpc Add (Seen) returns (Seen); }\n";

static const teffi_codegen_env alone = {NULL, NULL};

/* How a request is answered in-process: NULL and an answer without files, or a text. */
static bool answered_with_files(const uint8_t *data, size_t n)
{
    uint8_t *exact = malloc(n + (n == 0)); /* of the exact size: a sanitizer sees a step beyond */
    Protoc__Response *response;
    teffi_bytes out = {NULL, 0};
    teffi_pool pool;
    bool files = false;

    assert_non_null(exact);
    memcpy(exact, data, n);
    teffi_pool_init(&pool);
    if (teffi_codegen_run(&pool, &alone, (teffi_bytes){exact, n}, &out) == NULL) {
        response = protoc__response__unpack(&pool.allocator, out.n, out.data);
        assert_non_null(response);
        files = response->n_file > 0;
        assert_true((response->error != NULL) == !files);
    }
    teffi_pool_fini(&pool);
    free(exact);
    return files;
}

static void row_01_empty_stdin(void **state)
{
    assert_int_equal(run("\"$PLUGIN\" < /dev/null > answer"), 1);
    assert_non_null(strstr(run_output, "protoc-gen-teff: the request is empty"));
    assert_int_equal(run("test ! -s answer"), 0);
}

static void row_02_garbage_request(void **state)
{
    assert_int_equal(run("printf 'GET / HTTP/1.1\\r\\n\\r\\n' | \"$PLUGIN\" > answer"), 1);
    assert_non_null(strstr(run_output, "protoc-gen-teff: the request is garbage"));
    assert_int_equal(run("test ! -s answer"), 0);
}

/* Also every changed byte: there may be an answer then, but never a crash. */
static void row_03_truncated_request(void **state)
{
    uint8_t *request;
    size_t n;

    run_write("x.proto", good);
    request = run_request("x.proto", &n);
    assert_true(answered_with_files(request, n));
    for (size_t i = n - 1; i > 0; i -= i > 2000 ? 97 : 1) {
        assert_false(answered_with_files(request, i));
    }
    for (size_t i = n - 1; i > 0; i -= i > 1000 ? 61 : 1) {
        request[i] ^= (uint8_t)(1u << (i % 8));
        answered_with_files(request, n);
        request[i] ^= (uint8_t)(1u << (i % 8));
    }
    free(request);
}

/* A message in a message in a message: protoc allows 32 levels. */
static bool answered_with_levels(int levels)
{
    Protoc__Request request = PROTOC__REQUEST__INIT;
    Protoc__File file = PROTOC__FILE__INIT;
    Protoc__File *files[] = {&file};
    Protoc__Message outer = PROTOC__MESSAGE__INIT;
    Protoc__Message *messages[] = {&outer};
    ProtobufCBinaryData inner;
    char name[] = "a.proto", m[] = "M";
    char *generate[] = {name};
    uint8_t packed[4096], nested[4096];

    outer.name = m;
    outer.nested_type = &inner;
    for (int i = 1; i < levels; i++) {
        inner = (ProtobufCBinaryData){protoc__message__pack(&outer, packed), nested};
        memcpy(nested, packed, inner.len);
        outer.n_nested_type = 1;
    }
    file.name = name;
    file.n_message_type = 1;
    file.message_type = messages;
    request.n_proto_file = 1;
    request.proto_file = files;
    request.n_file_to_generate = 1;
    request.file_to_generate = generate;
    return answered_with_files(packed, protoc__request__pack(&request, packed));
}

static void levels_have_a_limit(void **state)
{
    assert_true(answered_with_levels(100));
    assert_false(answered_with_levels(101));
}

static void row_04_unknown_parameter(void **state)
{
    run_write("x.proto", good);
    assert_int_equal(run_protoc("fast", "x.proto"), 1);
    assert_non_null(strstr(run_output, "parameter: \"fast\" is unknown"));
    assert_true(run_out_empty());
    assert_int_equal(run_protoc("emit_lock,emit_lock", "x.proto"), 1);
    assert_int_equal(run_protoc("lock=", "x.proto"), 1);
    assert_int_equal(run_protoc("lock=not-there", "x.proto"), 1);
    assert_non_null(strstr(run_output, "lock=not-there cannot be read"));
    assert_true(run_out_empty());
}

static void row_05_no_service(void **state)
{
    char *header;

    run_accepted("syntax = \"proto3\";\npackage words;\nmessage Seen { uint64 times = 1; }\n"
                 "service Plain { rpc Add (Seen) returns (Seen); }\n");
    header = run_read("out/x.teff.h", NULL);
    assert_non_null(strstr(header, "words_seen_copy"));
    assert_null(strstr(header, "plain"));
    assert_null(strstr(header, "teff_type_info"));
    free(header);
    run_accepted("syntax = \"proto3\";\n");
}

static void row_06_streaming_rpc(void **state)
{
    run_refused(HEAD "message Seen { }\nservice Word { " GRAIN "\n"
                     "  rpc Watch (Seen) returns (stream Seen);\n}\n",
                "x.proto:6", "words.Word.Watch: streams of messages are not supported");
    run_refused(HEAD "message Seen { }\nservice Word { " GRAIN "\n"
                     "  rpc Watch (stream Seen) returns (Seen);\n}\n",
                "x.proto:6", "words.Word.Watch: streams of messages are not supported");
}

static void row_07_duplicate_grain_type(void **state)
{
    run_refused(HEAD "service Word { " GRAIN " }\nservice Word { " GRAIN " }\n", "x.proto:5",
                "already defined");
    /* Two names with the same hash. */
    run_refused("syntax = \"proto3\";\npackage ids;\nimport \"teff/grain.proto\";\n"
                "service S4b28c { " GRAIN " }\nservice S892f0 { " GRAIN " }\n",
                "x.proto:5", "ids.S892f0 and ids.S4b28c (x.proto:4) have the same id 0xdc6a210b");
}

/* Fields and methods get an underscore where protobuf-c gives one; other names are refused. */
static void row_08_keyword_and_macro_names(void **state)
{
    char *header;

    run_refused("syntax = \"proto3\";\nmessage EOF { }\n", "x.proto:2", "EOF becomes EOF");
    run_refused("syntax = \"proto3\";\nmessage NULL { }\n", "x.proto:2", "NULL becomes NULL");
    run_refused("syntax = \"proto3\";\nmessage Int { }\n", "x.proto:2", "Int becomes int");
    run_refused("syntax = \"proto3\";\nmessage Read { }\n", "x.proto:2", "Read becomes read");
    run_refused("syntax = \"proto3\";\npackage size;\nmessage T { }\n", "x.proto:3",
                "size.T becomes size_t");
    run_refused("syntax = \"proto3\";\npackage words;\nmessage Seen {\n  int32 errno = 1;\n}\n",
                "x.proto:4", "words.Seen.errno becomes errno");
    run_refused("syntax = \"proto3\";\npackage words;\nmessage Seen {\n  int32 restrict = 1;\n}\n",
                "x.proto:4", "words.Seen.restrict becomes restrict");
    run_refused("syntax = \"proto3\";\npackage words;\nmessage Seen {\n  int32 size_t = 1;\n}\n",
                "x.proto:4", "words.Seen.size_t becomes size_t, a type");
    run_accepted("syntax = \"proto2\";\npackage words;\nimport \"teff/grain.proto\";\n"
                 "enum E { A = 0; }\n"
                 "message Seen {\n"
                 "  optional int32 register = 1;\n  optional string default = 2;\n"
                 "  repeated int32 new = 3;\n  optional E class = 4;\n"
                 "  oneof which { int32 not_set = 5; string int = 7; Seen char = 12; }\n"
                 "  optional Seen Delete = 9;\n  repeated Seen static = 10;\n"
                 "  required string this = 11;\n  repeated string private = 14;\n"
                 "  optional bytes for = 15;\n}\n"
                 "service Word {\n  option (teff.grain) = { key: STRING, state: \"Seen\" };\n"
                 "  rpc Do (Seen) returns (Seen);\n  rpc Delete (Seen) returns (teff.Void);\n"
                 "  rpc Errno (teff.Void) returns (Seen);\n  rpc unix (Seen) returns (Seen);\n"
                 "  rpc Save (Seen) returns (Seen);\n  rpc Clear (Seen) returns (Seen);\n"
                 "  rpc Type (Seen) returns (Seen);\n  rpc Info (Seen) returns (Seen);\n"
                 "  rpc OnActivate (Seen) returns (Seen);\n}\n");
    header = run_read("out/x.teff.h", NULL);
    assert_non_null(strstr(header, "(*delete_)(words_word *self, const words_seen *in)"));
    assert_non_null(strstr(header, "words_word_delete_(teff_ctx *ctx, "));
    assert_non_null(strstr(header, "words_word_save(words_word *self)"));
    assert_non_null(strstr(header, "words_word_save_(teff_ctx *ctx, "));
    free(header);
}

static void row_09_names_collide_after_folding(void **state)
{
    run_refused(HEAD "message Seen { }\nservice Word {\n  " GRAIN "\n"
                     "  rpc GetIt (Seen) returns (Seen);\n  rpc get_it (Seen) returns (Seen);\n}\n",
                "x.proto:8",
                "words.Word.get_it and words.Word.GetIt (x.proto:7) both become get_it");
    run_refused(HEAD "message SeenIt { }\nmessage seen_it { }\n", "x.proto:5",
                "words.seen_it and words.SeenIt (x.proto:4) both become words_seen_it");
    run_refused("syntax = \"proto2\";\npackage words;\nmessage Seen {\n"
                "  optional int32 camelCase = 1;\n  optional int32 camelcase = 2;\n}\n",
                "x.proto:5", "both become camelcase");
    run_refused(HEAD "message Seen {\n  repeated int32 a = 1;\n  int32 n_a = 2;\n}\n", "x.proto:6",
                "both become n_a");
    run_refused(HEAD "message Seen {\n  int32 base = 1;\n}\n", "x.proto:5", "both become base");
    run_refused(HEAD "message Word_Add { }\nservice Word {\n  " GRAIN "\n"
                     "  rpc Add (Word_Add) returns (Word_Add);\n}\n",
                "x.proto:7", "both become words_word_add");
    run_refused(HEAD "message Seen { }\nservice Word {\n  " GRAIN "\n"
                     "  rpc Add (Seen) returns (Seen);\n  rpc AddSend (Seen) returns (Seen);\n}\n",
                "x.proto:8", "both become words_word_add_send");
    run_refused(
        HEAD "message Seen { }\nservice Word {\n  " GRAIN "\n"
             "  rpc Add (Seen) returns (teff.Void) { option (teff.method) = { one_way: true }; }\n"
             "  rpc AddTimer (Seen) returns (Seen);\n}\n",
        "x.proto:8", "both become words_word_add_timer");
    run_refused(HEAD "message Seen { repeated int32 a = 1; }\nmessage SeenAppendA { }\n",
                "x.proto:", "both become words_seen_append_a");
    run_refused(HEAD "message Seen { }\nmessage SeenKeep { }\n", "x.proto:5",
                "both become words_seen_keep");
    run_accepted(HEAD "message Seen { repeated int32 a = 1 [deprecated = true]; int32 b = 2; }\n"
                      "message SeenAppendA { }\nmessage SeenAppendB { }\n");
    run_accepted(HEAD
                 "message Seen { }\nservice Word {\n  " GRAIN "\n"
                 "  rpc Add (Seen) returns (Seen);\n  rpc AddTimer (Seen) returns (Seen);\n}\n");
}

static void names_that_only_protobuf_c_clashes_over(void **state)
{
    run_refused(HEAD "message Seen {\n  oneof which {\n    int32 _not_set = 1;\n  }\n}\n",
                "x.proto:6",
                "words.Seen._not_set and words.Seen.which (x.proto:5) both become "
                "WORDS__SEEN__WHICH__NOT_SET");
    run_refused(HEAD
                "message Seen {\n  enum Which { NOT_SET = 0; }\n  oneof which { int32 a = 1; }\n"
                "}\n",
                "x.proto:6", "both become WORDS__SEEN__WHICH__NOT_SET");
    run_refused("syntax = \"proto2\";\nmessage A {\n  optional double d = 1 [default = -inf];\n}\n",
                "x.proto:3", "protobuf-c cannot write the default -inf");
    run_refused("syntax = \"proto2\";\nmessage A {\n  optional float d = 1 [default = nan];\n}\n",
                "x.proto:3", "protobuf-c cannot write the default nan");
}

/* The header of an import comes along: its grains' names must be others. */
static void a_grain_clashes_with_an_imported_one(void **state)
{
    run_write("y.proto", "syntax = \"proto3\";\npackage words.a;\nimport \"teff/grain.proto\";\n"
                         "service B { " GRAIN " }\n");
    run_refused("syntax = \"proto3\";\npackage words;\nimport \"teff/grain.proto\";\n"
                "import \"y.proto\";\nservice A_B { " GRAIN " }\n",
                "x.proto:5", "words.A_B and words.a.B (y.proto:4) both become words_a_b");
}

/* Of somebody else's file, as it is: gRPC services, options of protobuf-c, letters in its name. */
static void files_of_others(void **state)
{
    run_accepted("syntax = \"proto3\";\npackage words;\nimport \"protobuf-c/protobuf-c.proto\";\n"
                 "message Seen { }\n"
                 "service Plain {\n  rpc Do (Seen) returns (Seen);\n"
                 "  rpc Delete (stream Seen) returns (stream Seen);\n}\n");
    run_write("w\xc3\xb6rter.proto", good);
    assert_int_equal(run_protoc("", "w\xc3\xb6rter.proto"), 0);
    run_compiles("w\xc3\xb6rter");
    assert_int_equal(run("rm -r out && mkdir out"), 0);
    run_write("x#y.proto", good);
    assert_int_equal(run_protoc("", "'x#y.proto'"), 1);
    assert_non_null(
        strstr(run_output, "x#y.proto:1: the file's name holds a character other than"));
    assert_true(run_out_empty());
}

static void row_10_missing_import(void **state)
{
    Protoc__Request *r;
    uint8_t *request;
    uint8_t *packed;
    size_t n;

    run_refused("syntax = \"proto3\";\nimport \"gone.proto\";\n", "gone.proto", "File not found");
    /* The same, from a protoc that does not look. */
    run_write("dep.proto", "syntax = \"proto3\";\npackage dep;\nmessage A { }\n");
    run_write("x.proto",
              "syntax = \"proto3\";\nimport \"dep.proto\";\nmessage B { dep.A a = 1; }\n");
    request = run_request("x.proto", &n);
    assert_true(answered_with_files(request, n));
    r = protoc__request__unpack(NULL, n, request);
    assert_non_null(r);
    strcpy(r->proto_file[1]->dependency[0], "gone.prot");
    packed = malloc(n + 16);
    assert_false(answered_with_files(packed, protoc__request__pack(r, packed)));
    protoc__request__free_unpacked(r, NULL);
    free(packed);
    free(request);
}

static void row_11_cyclic_imports(void **state)
{
    Protoc__Request *r;
    uint8_t *request;
    uint8_t *packed;
    size_t n;

    run_write("y.proto", "syntax = \"proto3\";\nimport \"x.proto\";\n");
    run_refused("syntax = \"proto3\";\nimport \"y.proto\";\n", "y.proto", "imports itself");
    run_write("y.proto",
              "syntax = \"proto3\";\nimport public \"z.proto\";\nmessage A { Z z = 1; }\n");
    run_write("z.proto", "syntax = \"proto3\";\nmessage Z { }\n");
    run_write("x.proto", "syntax = \"proto3\";\nimport \"y.proto\";\nmessage B { A a = 1; }\n");
    request = run_request("x.proto", &n);
    r = protoc__request__unpack(NULL, n, request);
    assert_int_equal(r->n_proto_file, 3);
    strcpy(r->proto_file[1]->dependency[0], "x.proto"); /* y imports x, which imports y */
    packed = malloc(n + 16);
    assert_false(answered_with_files(packed, protoc__request__pack(r, packed)));
    protoc__request__free_unpacked(r, NULL);
    free(packed);
    free(request);
}

static void row_12_proto2_groups(void **state)
{
    run_refused("syntax = \"proto2\";\npackage words;\nmessage Seen {\n"
                "  optional group Part = 1 { optional int32 n = 1; }\n}\n",
                "x.proto:4", "groups are not supported, expected a message field");
    run_refused("syntax = \"proto2\";\npackage words;\nmessage Seen {\n  extensions 5 to 9;\n}\n"
                "extend Seen {\n  repeated group Part = 5 { optional int32 n = 1; }\n}\n",
                "x.proto:7", "groups are not supported");
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double best_of_three(const uint8_t *request, size_t n)
{
    double best = 1e9;

    for (int i = 0; i < 3; i++) {
        double before = seconds();
        double took;

        assert_true(answered_with_files(request, n));
        took = seconds() - before;
        best = took < best ? took : best;
    }
    return best;
}

static uint8_t *service_of(int n_methods, size_t *n)
{
    size_t size = (size_t)n_methods * 100 + 1000;
    char *proto = malloc(size);
    int len = snprintf(proto, size, HEAD "message Seen { }\nservice Word {\n  " GRAIN "\n");
    uint8_t *request;

    for (int i = 0; i < n_methods; i++) {
        len += snprintf(proto + len, size - (size_t)len,
                        "  // Number %d.\n  rpc M%d (Seen) returns (Seen);\n", i, i);
    }
    snprintf(proto + len, size - (size_t)len, "}\n");
    run_write("x.proto", proto);
    free(proto);
    request = run_request("x.proto", n);
    return request;
}

/* Four times the methods take about four times as long; quadratic work would take sixteen. */
static void row_13_ten_thousand_methods(void **state)
{
    size_t n;
    uint8_t *request = service_of(2500, &n);
    double quarter = best_of_three(request, n);
    double whole;

    free(request);
    request = service_of(10000, &n);
    whole = best_of_three(request, n);
    free(request);
    assert_true(whole < quarter * 9);
    assert_int_equal(run_protoc("", "x.proto"), 0);
    assert_int_equal(run("test $(grep -c _invoke, out/x.teff.c) -eq 0 && "
                         "test $(grep -c '_invoke}' out/x.teff.c) -eq 10000"),
                     0);
}

static void row_14_paths_that_leave(void **state)
{
    static const char *const names[] = {"../x.proto",  "a/../../x.proto", "/x.proto", "a/..",
                                        "a\n#x.proto", "a\"x.proto",      ""};

    run_refused("syntax = \"proto3\";\nimport \"../y.proto\";\n", "x.proto", "..");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Protoc__Request request = PROTOC__REQUEST__INIT;
        Protoc__File file = PROTOC__FILE__INIT;
        Protoc__File *files[] = {&file};
        char *generate[] = {(char *)(uintptr_t)names[i]};
        uint8_t packed[256];

        file.name = generate[0];
        request.n_proto_file = 1;
        request.proto_file = files;
        request.n_file_to_generate = 1;
        request.file_to_generate = generate;
        assert_false(answered_with_files(packed, protoc__request__pack(&request, packed)));
        file.name = generate[0] = (char *)(uintptr_t) "a/b..c.proto"; /* this one is fine */
        assert_true(answered_with_files(packed, protoc__request__pack(&request, packed)));
    }
}

static void row_15_write_failure(void **state)
{
    uint8_t *request;
    size_t n;

    run_write("x.proto", good);
    request = run_request("x.proto", &n);
    free(request);
    assert_int_equal(run("\"$PLUGIN\" < request > /dev/full"), 1);
    assert_non_null(strstr(run_output, "the response cannot be written"));
    assert_int_equal(run("\"$PLUGIN\" --help > /dev/full"), 1);
    assert_int_equal(run("rmdir out"), 0);
    assert_int_equal(run_protoc("", "x.proto"), 1);
    assert_int_equal(run("test ! -e out && mkdir out"), 0);
}

static void output_is_the_same_every_time(void **state)
{
    run_write("x.proto", good);
    assert_int_equal(run_protoc("emit_lock", "x.proto"), 0);
    assert_int_equal(run("mv out first && mkdir out"), 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(run_protoc("emit_lock", "x.proto"), 0);
        assert_int_equal(run("diff -r first out"), 0);
    }
}

/* Without a package, the message Add is also a macro add(). */
static void a_message_named_like_a_method(void **state)
{
    run_accepted("syntax = \"proto3\";\nimport \"teff/grain.proto\";\n"
                 "message Add { }\nmessage OnActivate { }\nservice Sum { " GRAIN
                 " rpc Add (.Add) returns (OnActivate); }\n");
}

/* Public imports of public imports: a diamond on every level takes no longer than a chain. */
static void public_imports(void **state)
{
    char name[32];
    char text[256];

    run_write("p0.proto", "syntax = \"proto3\";\npackage p;\nmessage State { }\n");
    run_write("q0.proto", "syntax = \"proto3\";\n");
    for (int i = 1; i < 40; i++) {
        for (const char *c = "pq"; *c != '\0'; c++) {
            snprintf(name, sizeof name, "%c%d.proto", *c, i);
            snprintf(text, sizeof text,
                     "syntax = \"proto3\";\nimport public \"p%d.proto\";\n"
                     "import public \"q%d.proto\";\n",
                     i - 1, i - 1);
            run_write(name, text);
        }
    }
    run_write("x.proto",
              "syntax = \"proto3\";\npackage p;\nimport \"teff/grain.proto\";\n"
              "import \"q39.proto\";\nimport \"p39.proto\";\n"
              "service S { option (teff.grain) = { key: STRING, state: \"State\" }; }\n");
    assert_int_equal(run_protoc("", "x.proto"), 0);
}

static void no_protoc_gen_c(void **state)
{
    run_write("x.proto", good);
    assert_int_equal(run("mkdir -p empty; P=$(command -v \"$PROTOC\"); PATH=$PWD/empty \"$P\" "
                         "--plugin=protoc-gen-teff=\"$PLUGIN\" -I. -I\"$PROTO\" --teff_out=out "
                         "x.proto"),
                     1);
    assert_non_null(strstr(run_output, "protoc-gen-c cannot be run"));
    assert_true(run_out_empty());
}

static void a_parent_may_ignore_sigchld(void **state)
{
    size_t n;
    run_write("x.proto", good);
    free(run_request("x.proto", &n));
    if (run("env --ignore-signal=CHLD \"$PLUGIN\" < request > response") != 0)
        fail_msg("%s", run_output);
    assert_int_equal(run("grep -q protoc-gen-c response"), 1); /* no error in the response */
    assert_int_equal(run("grep -q x.pb-c.h response"), 0);
}

static void usage(void **state)
{
    assert_int_equal(run("\"$PLUGIN\" --help"), 0);
    assert_non_null(strstr(run_output, "lock=FILE"));
    assert_int_equal(run("\"$PLUGIN\" --version"), 0);
    assert_int_equal(run("\"$PLUGIN\" --frob < /dev/null"), 2);
    assert_non_null(strstr(run_output, "--teff_out"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define ROW(name) cmocka_unit_test_setup_teardown(name, run_setup, run_teardown)
        ROW(row_01_empty_stdin),
        ROW(row_02_garbage_request),
        ROW(row_03_truncated_request),
        ROW(levels_have_a_limit),
        ROW(row_04_unknown_parameter),
        ROW(row_05_no_service),
        ROW(row_06_streaming_rpc),
        ROW(row_07_duplicate_grain_type),
        ROW(row_08_keyword_and_macro_names),
        ROW(row_09_names_collide_after_folding),
        ROW(names_that_only_protobuf_c_clashes_over),
        ROW(a_grain_clashes_with_an_imported_one),
        ROW(files_of_others),
        ROW(row_10_missing_import),
        ROW(row_11_cyclic_imports),
        ROW(row_12_proto2_groups),
        ROW(row_13_ten_thousand_methods),
        ROW(row_14_paths_that_leave),
        ROW(row_15_write_failure),
        ROW(output_is_the_same_every_time),
        ROW(a_message_named_like_a_method),
        ROW(public_imports),
        ROW(no_protoc_gen_c),
        ROW(a_parent_may_ignore_sigchld),
        ROW(usage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
