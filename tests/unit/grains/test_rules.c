/* test_rules.c - what a request or a response may be, and what becomes of it, does not depend on
 * where the grain lives: the same error and text, or the same bytes. Messages are drawn from a seed
 * that is printed; TEFF_SEED sets it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "directory/shard.h"
#include "draw.h"
#include "activation/activation.h"
#include "lab.h"
#include "rules.teff.h"
#include "rules_old.teff.h"
#include "message/codec.h"

enum { SEEDS = 250, KEYS_MAX = 200, BAD_IN = 10, BAD_IN_FLAT = 4 };

/* ---- grains ---- */

typedef struct outcome {
    teff_err err;
    char text[TEFF_TEXT_MAX];
    uint8_t *bytes;
    size_t len;
} outcome;

/* What is sent, or answered. One at a time. */
static struct {
    const teff_type_info *info;
    const teff_method *method;
    const ProtobufCMessage *drawn;
    const char *key;
    outcome *result;
    unsigned again; /* a turn calls so many times more, and takes memory of its own */
} job;

#define MIRROR(name, service, message)                                                             \
    static teff_err name##_echo(service *self, const message *in, message *out)                    \
    {                                                                                              \
        (void)self;                                                                                \
        *out = *in;                                                                                \
        return TEFF_OK;                                                                            \
    }                                                                                              \
    static teff_err name##_make(service *self, const rules_case *in, message *out)                 \
    {                                                                                              \
        (void)self;                                                                                \
        (void)in;                                                                                  \
        *out = *(const message *)(const void *)job.drawn;                                          \
        return TEFF_OK;                                                                            \
    }
MIRROR(tree, rules_mirror, rules_tree)
MIRROR(flat, rules_mirror, rules_flat)
MIRROR(small, rules_small, rules_tree)
MIRROR(older, rulesold_mirror, rulesold_older)
MIRROR(demands, rulesold_mirror, rulesold_demands)

static teff_err tell(rules_mirror *self, const rules_tree *in)
{
    return TEFF_OK;
}

/* Without the key, by which grains differ. */
static void keep_text(outcome *result, const char *text)
{
    char at[64];
    snprintf(at, sizeof at, " at %.32s: ", job.key);
    const char *name_ends = strstr(text, at);
    if (name_ends)
        snprintf(result->text, sizeof result->text, "%.*s: %s", (int)(name_ends - text), text,
                 name_ends + strlen(at));
    else
        snprintf(result->text, sizeof result->text, "no name: %s", text);
}

enum { PATIENCE_MS = 600000 }; /* sanitizers count the 800,000 fields of a tree for long */

static void call(teff_ctx *ctx)
{
    static rules_case none = RULES__CASE__INIT;
    const teff_key key = {.kind = TEFF_KEY_STRING, .text = job.key};
    const teff_method *method = job.method;
    bool makes = method->in == &rules_case_ops;
    const ProtobufCMessage *in = makes ? &none.base : job.drawn;
    ProtobufCMessage *out = NULL;
    outcome *result = job.result;
    teff_ctx_set_timeout(ctx, PATIENCE_MS);
    result->err = method->flags & TEFF_METHOD_ONE_WAY
                      ? teff_send(ctx, job.info, &key, method, in)
                      : teff_ask(ctx, job.info, &key, method, in, &out);
    if (result->err)
        keep_text(result, teff_error(ctx));
    if (!out)
        return;
    result->len = teffi_packed_size(out);
    result->bytes = malloc(result->len + 1);
    assert_non_null(result->bytes);
    teffi_pack(out, result->len, result->bytes);
}

static teff_err ask(rules_asker *self, const rules_case *in)
{
    call(self->ctx);
    for (unsigned i = 0; i < job.again; i++)
        call(self->ctx);
    (void)teff_alloc(self->ctx, job.again * (size_t)1024 * 1024);
    return TEFF_OK;
}

/* ---- two silos and a client ---- */

enum { HERE, AWAY, N_PLACES };

static lab *l;
static teff_client *client;
static teff_ctx *client_ctx;
static char asker[32];
static const teff_type_info *const infos[] = {&rules_mirror_info, &rules_small_info,
                                              &rulesold_mirror_info};
enum { N_INFOS = 3 };
static char keys[N_INFOS][N_PLACES][32];

static void host(teff_silo *silo)
{
    static const rules_mirror_methods mirror = {.echo = tree_echo,
                                                .make = tree_make,
                                                .echo_flat = flat_echo,
                                                .make_flat = flat_make,
                                                .tell = tell};
    static const rules_small_methods small = {.echo = small_echo, .make = small_make};
    static const rules_asker_methods askers = {.ask = ask};
    static const rulesold_mirror_methods old = {.echo = older_echo,
                                                .make = older_make,
                                                .echo_demands = demands_echo,
                                                .make_demands = demands_make};
    assert_int_equal(teff_silo_host(silo, rules_mirror_type(&mirror, NULL)), TEFF_OK);
    assert_int_equal(teff_silo_host(silo, rules_small_type(&small, NULL)), TEFF_OK);
    assert_int_equal(teff_silo_host(silo, rules_asker_type(&askers, NULL)), TEFF_OK);
    assert_int_equal(teff_silo_host(silo, rulesold_mirror_type(&old, NULL)), TEFF_OK);
}

static bool lives_at(int silo, const teff_type_info *info, const char *key)
{
    teffi_ident ident = teffi_ident_of(&l->silos[silo]->node.grains->secret, info->id,
                                       (const uint8_t *)key, (uint32_t)strlen(key));
    return teffi_shard_has_activation(l->silos[silo]->node.grains, &ident, NULL);
}

/* A grain that lives on silo 0, and one on silo 1. */
static void find_keys(const teff_type_info *info, const teff_method *method, char found[][32])
{
    static rules_case none = RULES__CASE__INIT;
    char text[32];
    found[HERE][0] = found[AWAY][0] = '\0';
    for (int i = 0; i < KEYS_MAX && (!found[HERE][0] || !found[AWAY][0]); i++) {
        const teff_key key = {.kind = TEFF_KEY_STRING, .text = text};
        snprintf(text, sizeof text, "grain %d", i);
        lab_ok(l->ctx[0], teff_ask(l->ctx[0], info, &key, method, &none.base, NULL));
        memcpy(found[lives_at(0, info, text) ? HERE : AWAY], text, sizeof text);
    }
    assert_true(found[HERE][0] && found[AWAY][0]);
}

static const teff_method *method_of(const teff_type_info *info, const char *name)
{
    for (size_t i = 0; i < info->n_methods; i++)
        if (strcmp(strrchr(info->methods[i].name, '.') + 1, name) == 0)
            return &info->methods[i];
    fail_msg("no method %s", name);
    return NULL;
}

static int setup(void **state)
{
    static rules_tree nothing = RULES__TREE__INIT;
    static rulesold_older old = RULESOLD__OLDER__INIT;
    static outcome ignored;
    char found[N_PLACES][32];
    l = lab_open_more(2, host);
    client = lab_client(l, (const int[]){1, -1});
    client_ctx = teff_client_new_ctx(client);
    for (int i = 0; i < N_INFOS; i++) {
        job.drawn = infos[i] == &rulesold_mirror_info ? &old.base : &nothing.base;
        find_keys(infos[i], method_of(infos[i], "Make"), keys[i]);
    }
    job.info = infos[0];
    job.method = method_of(infos[0], "Tell");
    job.key = keys[0][HERE];
    job.drawn = &nothing.base;
    job.result = &ignored;
    find_keys(&rules_asker_info, method_of(&rules_asker_info, "Ask"), found);
    memcpy(asker, found[HERE], sizeof asker);
    return 0;
}

/* Silos send large bytes from where they lie. A sanitizer reads them again after the call that
 * sends them: this thread may have the response by then. So they are freed when no silo runs. */
static void *sent[2];

static int teardown(void **state)
{
    teff_ctx_free(client_ctx);
    teff_client_free(client);
    lab_close(l);
    free(sent[0]);
    free(sent[1]);
    return 0;
}

/* ---- each way ---- */

typedef enum way { THREAD_HERE, THREAD_AWAY, TURN_HERE, TURN_AWAY, CLIENT, WAYS } way;

static const char *const way_names[WAYS] = {"a thread, same silo", "a thread, other silo",
                                            "a turn, same silo", "a turn, other silo", "a client"};

static void go(way w, int info, outcome *result)
{
    teff_ctx *ctx = w == CLIENT ? client_ctx : l->ctx[0];
    *result = (outcome){0};
    job.info = infos[info];
    job.key = keys[info][w == THREAD_AWAY || w == TURN_AWAY ? AWAY : HERE];
    job.result = result;
    teff_ctx_set_timeout(ctx, PATIENCE_MS);
    if (w == TURN_HERE || w == TURN_AWAY)
        lab_ok(ctx, rules_asker_ask(ctx, asker, rules_case()));
    else
        call(ctx);
    teff_ctx_reset(ctx);
}

static bool same(const outcome *a, const outcome *b)
{
    return a->err == b->err && strcmp(a->text, b->text) == 0 && a->len == b->len &&
           (!a->len || memcmp(a->bytes, b->bytes, a->len) == 0);
}

/* drawn, sent or answered by each way. out: *first, how it ends; bytes are not kept. */
static void same_each_way(int info, const char *method, const ProtobufCMessage *drawn,
                          const char *what, outcome *first)
{
    job.method = method_of(infos[info], method);
    job.drawn = drawn;
    go(0, info, first);
    for (way w = 1; w < WAYS; w++) {
        outcome other;
        go(w, info, &other);
        if (!same(first, &other))
            fail_msg("%s of %s, %s: %s: %s (%s), %zu bytes; %s: %s (%s), %zu bytes", method,
                     infos[info]->name, what, way_names[0], teff_err_name(first->err), first->text,
                     first->len, way_names[w], teff_err_name(other.err), other.text, other.len);
        free(other.bytes);
    }
    free(first->bytes);
    first->bytes = NULL;
}

/* ---- random messages ---- */

static uint64_t first;

static void choose_seed(void)
{
    const char *set = getenv("TEFF_SEED");
    first = set ? strtoull(set, NULL, 0) : (uint64_t)time(NULL);
    print_message("TEFF_SEED=%" PRIu64 "\n", first);
}

/* out: how many were good. */
static int try_seeds(int info, const char *method, const ProtobufCMessageDescriptor *desc)
{
    /* A Flat has about one text, a tree many: of both kinds, tens must be bad. */
    unsigned bad_in = desc == &rules__flat__descriptor ? BAD_IN_FLAT : BAD_IN;
    int good = 0;
    for (uint64_t seed = first; seed < first + SEEDS; seed++) {
        teff_arena arena;
        char what[40];
        outcome result;
        teffi_arena_init(&arena, NULL, 0, 0);
        drawing d = {.rng = seed * 0x9e3779b97f4a7c15u | 1,
                     .arena = &arena,
                     .bad_in = seed % 2 ? 0 : bad_in};
        const ProtobufCMessage *drawn = draw_message(&d, desc, 1);
        snprintf(what, sizeof what, "seed %" PRIu64, seed);
        same_each_way(info, method, drawn, what, &result);
        good += !result.err;
        teffi_arena_fini(&arena);
    }
    return good;
}

static void messages_fare_alike(void **state)
{
    for (int makes = 0; makes < 2; makes++) {
        int trees = try_seeds(0, makes ? "Make" : "Echo", &rules__tree__descriptor);
        assert_in_range(trees, SEEDS / 3, SEEDS - 1);
        int flat = try_seeds(0, makes ? "MakeFlat" : "EchoFlat", &rules__flat__descriptor);
        assert_in_range(flat, SEEDS / 2, SEEDS - 1);
        int small = try_seeds(1, makes ? "Make" : "Echo", &rules__tree__descriptor);
        assert_in_range(small, SEEDS / 10, SEEDS - 1);
    }
    assert_in_range(try_seeds(0, "Tell", &rules__tree__descriptor), SEEDS / 3, SEEDS - 1);
}

static void messages_of_proto2_fare_alike(void **state)
{
    for (int makes = 0; makes < 2; makes++) {
        int older = try_seeds(2, makes ? "Make" : "Echo", &rulesold__older__descriptor);
        assert_in_range(older, SEEDS / 3, SEEDS - 1);
        int demands =
            try_seeds(2, makes ? "MakeDemands" : "EchoDemands", &rulesold__demands__descriptor);
        assert_in_range(demands, SEEDS / 3, SEEDS - 1);
    }
}

/* ---- each limit ---- */

/* Sent and answered, it ends like that. in: text, a part of the error's. */
static void ends_as(const ProtobufCMessage *m, const char *echo, const char *make, const char *what,
                    teff_err err, const char *text)
{
    for (int makes = 0; makes < 2; makes++) {
        const char *method = makes ? make : echo;
        const char *who = makes ? "the response" : "the request";
        outcome result;
        same_each_way(0, method, m, what, &result);
        if (result.err != err ||
            (err && (!strstr(result.text, text) || !strstr(result.text, who) ||
                     strstr(result.text, "no name") || !strstr(result.text, method))))
            fail_msg("%s of %s: %s (%s); expected %s (%s)", method, what, teff_err_name(result.err),
                     result.text, teff_err_name(err), text);
    }
}

static void tree_ends_as(const rules_tree *tree, const char *what, teff_err err, const char *text)
{
    ends_as(&tree->base, "Echo", "Make", what, err, text);
}

static void flat_ends_as(const rules_flat *flat, const char *what, teff_err err, const char *text)
{
    ends_as(&flat->base, "EchoFlat", "MakeFlat", what, err, text);
}

/* So many bytes, such that with their tag and length they take n packed. */
static ProtobufCBinaryData blob_of(size_t n)
{
    uint8_t *data = calloc(1, n);
    assert_non_null(data);
    return (ProtobufCBinaryData){n - 4, data};
}

static void packed_bytes_end_at_the_limit(void **state)
{
    for (size_t over = 0; over < 2; over++) {
        ProtobufCBinaryData blob = blob_of(TEFF_MESSAGE_MAX + over);
        sent[over] = blob.data;
        teff_err err = over ? TEFF_E_TOO_LARGE : TEFF_OK;
        const char *text = "takes 1048577 bytes packed; at most 1048576";
        tree_ends_as(rules_tree(.blob = blob), "bytes", err, text);
        flat_ends_as(rules_flat(.blob = blob), "bytes", err, text);
    }
    ProtobufCBinaryData five = blob_of(5000000);
    five.len = 5000000;
    tree_ends_as(rules_tree(.blob = five), "5 MB", TEFF_E_TOO_LARGE, "takes 5000005 bytes packed");
    flat_ends_as(rules_flat(.blob = five), "5 MB", TEFF_E_TOO_LARGE, "takes 5000005 bytes packed");
    free(five.data);
}

static void packed_lists_count_by_their_bytes(void **state)
{
    enum { MANY = 500000 };
    uint64_t *wide = calloc(MANY, sizeof *wide);
    uint32_t *numbers = calloc(MANY, sizeof *numbers);
    assert_true(wide && numbers);
    tree_ends_as(rules_tree(.n_numbers = MANY, .numbers = numbers), "numbers", TEFF_OK, "");
    flat_ends_as(rules_flat(.n_numbers = MANY, .numbers = wide), "numbers", TEFF_OK, "");
    memset(wide, 0xff, MANY * sizeof *wide);
    flat_ends_as(rules_flat(.n_numbers = MANY, .numbers = wide), "large numbers", TEFF_E_TOO_LARGE,
                 "takes 5000005 bytes packed");
    free(wide);
    free(numbers);
}

static void fields_end_at_the_limit(void **state)
{
    static int32_t numbers[TEFF_FIELDS_MAX + 1];
    static const char *names[TEFF_FIELDS_MAX + 1];
    const char *text = "has 100001 fields; at most 100000";
    for (size_t over = 0; over < 2; over++) {
        size_t n = TEFF_FIELDS_MAX + over;
        teff_err err = over ? TEFF_E_TOO_LARGE : TEFF_OK;
        tree_ends_as(rules_tree(.n_unpacked = n, .unpacked = numbers), "numbers", err, text);
        tree_ends_as(rules_tree(.n_names = n, .names = names), "names", err, text);
        flat_ends_as(rules_flat(.n_unpacked = n, .unpacked = numbers), "numbers", err, text);
        flat_ends_as(rules_flat(.n_names = n, .names = names), "names", err, text);
    }
}

static void depth_ends_at_the_limit(void **state)
{
    static rules_tree trees[TEFF_DEPTH_MAX + 1];
    const char *text = "rules.Tree.left; at most 32";
    for (size_t i = 0; i <= TEFF_DEPTH_MAX; i++) {
        rules__tree__init(&trees[i]);
        trees[i].left = i < TEFF_DEPTH_MAX ? &trees[i + 1] : NULL;
    }
    tree_ends_as(&trees[1], "32 deep", TEFF_OK, "");
    tree_ends_as(&trees[0], "33 deep", TEFF_E_TOO_LARGE, text);
    trees[TEFF_DEPTH_MAX].left = &trees[0];
    tree_ends_as(&trees[0], "a ring", TEFF_E_TOO_LARGE, text);
}

/* out: 4^20 trees. */
static const rules_tree *shared_parts(void)
{
    static rules_tree level[20], *twice[20][4];
    for (size_t i = 0; i < 20; i++) {
        rules__tree__init(&level[i]);
        level[i].n_children = i < 19 ? 4 : 0;
        level[i].children = twice[i];
        for (size_t k = 0; k < 4; k++)
            twice[i][k] = i < 19 ? &level[i + 1] : NULL;
    }
    return &level[0];
}

static void memory_ends_at_the_limit(void **state)
{
    static rules_tree leaf = RULES__TREE__INIT;
    static rules_tree *leaves[TEFF_FIELDS_MAX - 1];
    for (size_t i = 0; i < TEFF_FIELDS_MAX - 1; i++)
        leaves[i] = &leaf;
    tree_ends_as(rules_tree(.n_children = TEFF_FIELDS_MAX - 1, .children = leaves), "many leaves",
                 TEFF_E_TOO_LARGE, "bytes unpacked; at most 33554432");
    tree_ends_as(shared_parts(), "shared parts", TEFF_E_TOO_LARGE, "has over 800000 fields");
}

/* First of all tests: later a method that took long goes through the queue. */
static void refused_responses_leave_nothing_in_the_turn(void **state)
{
    outcome result;
    job.method = method_of(infos[0], "Make");
    job.drawn = &shared_parts()->base;
    job.again = 3;
    go(TURN_HERE, 0, &result);
    job.again = 0;
    assert_int_equal(result.err, TEFF_E_TOO_LARGE);
}

static void texts_are_utf8(void **state)
{
    const char *names[] = {"good", "\xc3(", "good"};
    rules_tree inner = *rules_tree(.n_names = 3, .names = names);
    rules_tree *children[] = {&inner, NULL};
    tree_ends_as(rules_tree(.name = "\xff"), "a name", TEFF_E_MALFORMED,
                 "rules.Tree.name is not UTF-8");
    tree_ends_as(rules_tree(.n_children = 1, .children = children), "names", TEFF_E_MALFORMED,
                 "rules.Tree.names is not UTF-8");
    static const char *const short_ones[] = {"abc\xff", "\xffxyz", "abcdefg\x80", "abcd\xc3(g"};
    for (size_t i = 0; i < sizeof short_ones / sizeof short_ones[0]; i++)
        tree_ends_as(rules_tree(.name = short_ones[i]), "a short name", TEFF_E_MALFORMED,
                     "rules.Tree.name is not UTF-8");
    inner.n_names = 1;
    tree_ends_as(rules_tree(.n_children = 2, .children = children), "a child", TEFF_E_MALFORMED,
                 "rules.Tree.children is NULL");
    flat_ends_as(rules_flat(.n_names = 3, .names = names), "names", TEFF_E_MALFORMED,
                 "rules.Flat.names is not UTF-8");
    flat_ends_as(rules_flat(.which_case = RULES__FLAT__WHICH_TEXT, .text = "a \x80"), "a oneof",
                 TEFF_E_MALFORMED, "rules.Flat.text is not UTF-8");
}

/* A type's own limit holds for its responses also when nobody wants them. */
static void unwanted_responses_are_held_to_the_limit(void **state)
{
    char name[300] = "";
    memset(name, 'n', sizeof name - 1);
    job.drawn = &rules_tree(.name = name)->base;
    for (int place = HERE; place <= AWAY; place++) {
        const char *key = keys[1][place];
        lab_fails(l->ctx[0], rules_small_make(l->ctx[0], key, rules_case(), NULL),
                  TEFF_E_TOO_LARGE);
        assert_non_null(strstr(teff_error(l->ctx[0]), "takes 302 bytes packed; at most 200"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_responses_leave_nothing_in_the_turn),
        cmocka_unit_test(messages_fare_alike),
        cmocka_unit_test(messages_of_proto2_fare_alike),
        cmocka_unit_test(packed_bytes_end_at_the_limit),
        cmocka_unit_test(packed_lists_count_by_their_bytes),
        cmocka_unit_test(fields_end_at_the_limit),
        cmocka_unit_test(depth_ends_at_the_limit),
        cmocka_unit_test(memory_ends_at_the_limit),
        cmocka_unit_test(texts_are_utf8),
        cmocka_unit_test(unwanted_responses_are_held_to_the_limit),
    };
    choose_seed();
    return cmocka_run_group_tests(tests, setup, teardown);
}
