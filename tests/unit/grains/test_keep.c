/* test_keep.c - what generated keep and append functions put into a state: deep copies, lists that
 * grow cheaply and leave no garbage for good. */
#include <stdio.h>
#include <string.h>
#include "activation/turn.h" /* before l and ctx, which its parameters would hide */

#include "keep.teff.h"
#include "lab.h"
#include "activation/state.h"
#include "node/ask.h"

typedef teff_err script(keep_keeper *self, const keep_act *in, keep_number *out);

static lab *l;
static teff_ctx *ctx;

/* In a turn, where cmocka's asserts have nowhere to jump to. */
#define must(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond))                                                                               \
            return teff_fail(self->ctx, TEFF_E_FAILED, "%s:%d: %s", __FILE__, __LINE__, #cond);    \
    } while (0)

/* ---- the grain ---- */

static teff_err obey(keep_keeper *self, const keep_act *in, keep_number *out)
{
    return ((script *)(uintptr_t)in->script)(self, in, out);
}

static teff_err get(keep_keeper *self, keep_all *out)
{
    ProtobufCMessage base = out->base;
    *out = *self->state;
    out->base.n_unknown_fields = base.n_unknown_fields;
    return TEFF_OK;
}

static teff_err store(keep_keeper *self)
{
    return keep_keeper_save(self);
}

static void host(teff_silo *silo)
{
    static const keep_keeper_methods methods = {.obey = obey, .get = get, .store = store};
    assert_int_equal(teff_silo_host(silo, keep_keeper_type(&methods, NULL)), TEFF_OK);
}

static int setup(void **state)
{
    l = lab_open_more(1, host);
    ctx = l->ctx[0];
    return 0;
}

static int teardown(void **state)
{
    lab_close(l);
    return 0;
}

static int64_t run(script *fn, int64_t n, keep_all *all)
{
    keep_number *out;
    lab_ok(ctx,
           keep_keeper_obey(ctx, "a", keep_act(.script = (uintptr_t)fn, .n = n, .all = all), &out));
    int64_t got = out->n;
    teff_ctx_reset(ctx);
    return got;
}

static void run_fails(script *fn, teff_err err, const char *text)
{
    keep_number *out;
    lab_fails(ctx, keep_keeper_obey(ctx, "a", keep_act(.script = (uintptr_t)fn), &out), err);
    if (!strstr(teff_error(ctx), text))
        fail_msg("'%s'; expected '%s'", teff_error(ctx), text);
    teff_ctx_reset(ctx);
}

static teff_err ends(keep_keeper *self, const keep_act *in, keep_number *out)
{
    teff_deactivate(self->ctx);
    return TEFF_OK;
}

static void save_and_load(void)
{
    lab_ok(ctx, keep_keeper_store(ctx, "a"));
    run(ends, 0, NULL);
}

static const teffi_stored *stored(const keep_keeper *self)
{
    return teffi_activation_of_ctx(self->ctx)->stored;
}

/* ---- one of everything ---- */

static uint8_t abc[] = {'a', 0, 'c'}, raw[] = {3, 'n', 'e', 'w'};
#define ABC ((ProtobufCBinaryData){sizeof abc, abc})

/* Static, so that a state that shares some of it shows. */
static keep_all *full(void)
{
    static int64_t numbers[] = {1, -2, 3};
    static const char *texts[] = {"one", "", "three"}, *lines[] = {"a line"};
    static ProtobufCBinaryData blobs[] = {{sizeof abc, abc}, {0, NULL}};
    static keep_part parts[3];
    static keep_part *list[] = {&parts[0], &parts[1]};
    static Keep__Color colors[] = {KEEP__COLOR__BLUE, KEEP__COLOR__RED};
    static protobuf_c_boolean flags[] = {1, 0};
    static double ratios[] = {0.5};
    static keep_all_by_name_entry entry;
    static keep_all_by_name_entry *entries[] = {&entry};
    static lab_box box;
    static lab_box *boxes[] = {&box};
    static ProtobufCMessageUnknownField unknown;
    static keep_all all;

    for (int i = 0; i < 3; i++)
        keep__part__init(&parts[i]);
    keep__all__by_name_entry__init(&entry);
    lab__box__init(&box);
    keep__all__init(&all);
    box = (lab_box){.base = box.base, .count = 7, .note = "note", .n_lines = 1, .lines = lines};
    unknown = (ProtobufCMessageUnknownField){.tag = 77,
                                             .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
                                             .len = sizeof raw,
                                             .data = raw};
    parts[0].name = "first";
    parts[0].data = ABC;
    parts[0].next = &parts[2];
    parts[0].what_case = KEEP__PART__WHAT_BOX;
    parts[0].box = &box;
    parts[0].n_numbers = 3, parts[0].numbers = numbers;
    parts[1].what_case = KEEP__PART__WHAT_TEXT;
    parts[1].text = "the text";
    parts[2].name = "third";
    parts[2].base.n_unknown_fields = 1;
    parts[2].base.unknown_fields = &unknown;
    entry.key = "key";
    entry.value = &parts[1];
    all.n_numbers = 3, all.numbers = numbers;
    all.n_texts = 3, all.texts = texts;
    all.n_blobs = 2, all.blobs = blobs;
    all.n_parts = 2, all.parts = list;
    all.n_colors = 2, all.colors = colors;
    all.n_flags = 2, all.flags = flags;
    all.n_ratios = 1, all.ratios = ratios;
    all.n_by_name = 1, all.by_name = entries;
    all.n_boxes = 1, all.boxes = boxes;
    all.box = &box;
    all.part = &parts[0];
    all.text = "text";
    all.data = ABC;
    return &all;
}

/* All of in's into the state, each by its own function. */
static teff_err takes_all(keep_keeper *self, const keep_act *in, keep_number *out)
{
    const keep_all *src = in->all;
    keep_all *to = self->state;
    teff_ctx *turn = self->ctx;
    for (size_t i = 0; i < src->n_numbers; i++)
        keep_all_append_numbers(turn, to, src->numbers[i]);
    for (size_t i = 0; i < src->n_texts; i++)
        keep_all_append_texts(turn, to, src->texts[i]);
    for (size_t i = 0; i < src->n_blobs; i++)
        keep_all_append_blobs(turn, to, src->blobs[i]);
    for (size_t i = 0; i < src->n_parts; i++) {
        const keep_part *copy = keep_all_append_parts(turn, to, src->parts[i]);
        must(copy == to->parts[i]);
    }
    for (size_t i = 0; i < src->n_colors; i++)
        keep_all_append_colors(turn, to, src->colors[i]);
    for (size_t i = 0; i < src->n_flags; i++)
        keep_all_append_flags(turn, to, src->flags[i]);
    for (size_t i = 0; i < src->n_ratios; i++)
        keep_all_append_ratios(turn, to, src->ratios[i]);
    for (size_t i = 0; i < src->n_by_name; i++)
        keep_all_append_by_name(turn, to, src->by_name[i]);
    for (size_t i = 0; i < src->n_boxes; i++)
        keep_all_append_boxes(turn, to, src->boxes[i]);
    to->box = lab_box_keep(turn, src->box);
    to->part = keep_part_keep(turn, src->part);
    to->text = teff_state_strdup(turn, src->text);
    to->data = teff_state_copy_bytes(turn, src->data);
    return TEFF_OK;
}

static void is_packed_as(const void *a, const void *b)
{
    static uint8_t pa[10000], pb[10000];
    size_t n = protobuf_c_message_get_packed_size(a);
    assert_in_range(n, 1, sizeof pa);
    assert_int_equal(protobuf_c_message_get_packed_size(b), n);
    assert_int_equal(protobuf_c_message_pack(a, pa), n);
    assert_int_equal(protobuf_c_message_pack(b, pb), n);
    assert_memory_equal(pa, pb, n);
}

static void state_is(const keep_all *expected)
{
    keep_all *all;
    lab_ok(ctx, keep_keeper_get(ctx, "a", &all));
    is_packed_as(all, expected);
    teff_ctx_reset(ctx);
}

static void everything_is_kept(void **state)
{
    run(takes_all, 0, full());
    state_is(full());
    save_and_load();
    state_is(full());
}

static teff_err takes_the_whole(keep_keeper *self, const keep_act *in, keep_number *out)
{
    *self->state = *keep_all_keep(self->ctx, in->all);
    return TEFF_OK;
}

/* Again and again: the copies before are garbage, which is given back. */
static void a_whole_state_is_replaced(void **state)
{
    for (int i = 0; i < 1000; i++)
        run(takes_the_whole, 0, full());
    state_is(full());
    save_and_load();
    state_is(full());
}

/* ---- nothing, and what is in the state already ---- */

static teff_err takes_nothing(keep_keeper *self, const keep_act *in, keep_number *out)
{
    keep_all *to = self->state;
    teff_ctx *turn = self->ctx;
    must(!keep_part_keep(turn, NULL));
    must(strcmp(teff_state_strdup(turn, NULL), "") == 0);
    must(!teff_state_copy_bytes(turn, (ProtobufCBinaryData){5, NULL}).data);
    must(teff_state_copy_bytes(turn, (ProtobufCBinaryData){5, NULL}).len == 0);
    keep_all_append_texts(turn, to, NULL);
    keep_all_append_blobs(turn, to, (ProtobufCBinaryData){0, NULL});
    keep_part *part = keep_all_append_parts(turn, to, NULL);
    must(strcmp(part->name, "") == 0);
    part->name = teff_state_strdup(turn, "filled in");
    keep_part_append_numbers(turn, part, 5);
    return TEFF_OK;
}

static void null_is_an_empty_one(void **state)
{
    static const char *texts[] = {""};
    static ProtobufCBinaryData blobs[1];
    int64_t numbers[] = {5};
    keep_part *part = keep_part(.name = "filled in", .n_numbers = 1, .numbers = numbers);
    run(takes_nothing, 0, NULL);
    save_and_load();
    state_is(keep_all(.n_texts = 1, .texts = texts, .n_blobs = 1, .blobs = blobs, .n_parts = 1,
                      .parts = &part));
}

enum { AGAIN = 100 };

static teff_err takes_its_own(keep_keeper *self, const keep_act *in, keep_number *out)
{
    keep_all *to = self->state;
    teff_ctx *turn = self->ctx;
    keep_all_append_parts(turn, to, keep_part(.name = "own", .data = ABC));
    keep_all_append_texts(turn, to, "own");
    keep_all_append_numbers(turn, to, 9);
    for (int i = 0; i < AGAIN; i++) {
        to->parts[0]->next = keep_part_keep(turn, i % 10 ? to->parts[0] : NULL);
        keep_all_append_parts(turn, to, to->parts[0]);
        keep_all_append_texts(turn, to, to->texts[0]);
        keep_all_append_numbers(turn, to, to->numbers[0]);
        teff_state_append(turn, &to->numbers, &to->n_numbers, &to->numbers[0], sizeof(int64_t));
    }
    return TEFF_OK;
}

static void what_is_there_may_be_copied(void **state)
{
    keep_all *all;
    run(takes_its_own, 0, NULL);
    save_and_load();
    lab_ok(ctx, keep_keeper_get(ctx, "a", &all));
    assert_int_equal(all->n_parts, AGAIN + 1);
    assert_int_equal(all->n_texts, AGAIN + 1);
    assert_int_equal(all->n_numbers, 2 * AGAIN + 1);
    for (size_t i = 0; i <= AGAIN; i++) {
        assert_string_equal(all->parts[i]->name, "own");
        assert_memory_equal(all->parts[i]->data.data, abc, sizeof abc);
        assert_string_equal(all->texts[i], "own");
        assert_int_equal(all->numbers[2 * i], 9);
    }
    int depth = 0;
    for (const keep_part *part = all->parts[AGAIN]; part; part = part->next)
        depth++;
    assert_int_equal(depth, 1 + (AGAIN - 1) % 10);
    teff_ctx_reset(ctx);
}

/* ---- what a newer build wrote ---- */

/* A field that this build does not know, in m and in each message below it. out: how many messages
 * got one. Those that have one already were met before. */
static int add_unknown(ProtobufCMessage *m)
{
    static uint8_t newer[] = {5, 'n', 'e', 'w', 'e', 'r'};
    static ProtobufCMessageUnknownField field = {
        .tag = 99, .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, sizeof newer, newer};
    int n = m->unknown_fields != &field;
    m->n_unknown_fields = 1;
    m->unknown_fields = &field;
    for (unsigned i = 0; n && i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        char *count = (char *)m + f->quantifier_offset, *at = (char *)m + f->offset;
        if (f->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        if (f->label == PROTOBUF_C_LABEL_REPEATED)
            for (size_t k = 0; k < *(size_t *)(void *)count; k++)
                n += add_unknown((*(ProtobufCMessage ***)(void *)at)[k]);
        else if ((!(f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) ||
                  *(uint32_t *)(void *)count == f->id) &&
                 *(ProtobufCMessage **)(void *)at)
            n += add_unknown(*(ProtobufCMessage **)(void *)at);
    }
    return n;
}

/* The only row of a state. */
static teffi_row read_stored_row(void)
{
    teffi_row from = {.table = "state"};
    teffi_store_op op = {
        .kind = TEFFI_STORE_SCAN, .rows = &from, .n_rows = 1, .limit = 2, .arena = &ctx->arena};
    lab_ok(ctx, teffi_ctx_run_store_op(ctx, &op));
    assert_int_equal(op.n_found, 1);
    return op.rows[0];
}

static void row_is(const keep_all *expected)
{
    static uint8_t bytes[10000];
    teffi_row row = read_stored_row();
    assert_int_equal(protobuf_c_message_get_packed_size(&expected->base), row.value.len);
    assert_int_equal(protobuf_c_message_pack(&expected->base, bytes), row.value.len);
    assert_memory_equal(bytes, row.value.data, row.value.len);
    teff_ctx_reset(ctx);
}

static void write_row(const keep_all *all)
{
    static uint8_t bytes[10000];
    teffi_row row = read_stored_row();
    row.value = (teffi_bytes){bytes, protobuf_c_message_pack(&all->base, bytes)};
    row.any = true;
    teffi_store_op op = {
        .kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1, .arena = &ctx->arena};
    lab_ok(ctx, teffi_ctx_run_store_op(ctx, &op));
    teff_ctx_reset(ctx);
}

/* in: n, 1: also copies within the state, and n numbers more. */
static teff_err changes(keep_keeper *self, const keep_act *in, keep_number *out)
{
    keep_all *to = self->state;
    to->text = teff_state_strdup(self->ctx, "by the old build");
    to->part->name = teff_state_strdup(self->ctx, "by the old build, too");
    memset(teff_state_alloc(self->ctx, 100000), 'x', 100000); /* garbage: the next compaction */
    if (in->n) {
        to->part = keep_part_keep(self->ctx, to->part);
        keep_all_append_parts(self->ctx, to, to->parts[0]);
        keep_all_append_numbers(self->ctx, to, in->n);
    }
    return TEFF_OK;
}

/* Load, change, compact, save, again and again: each message of the state keeps what a newer build
 * wrote into it, at every level and in copies within the state. */
static void fields_of_a_newer_build_are_kept(void **state)
{
    enum { MESSAGES = 6 };
    int64_t numbers[] = {1, -2, 3, 7};
    keep_part first, own, *list[] = {NULL, NULL, &first};
    run(takes_all, 0, full());
    save_and_load();
    keep_all *all = full();
    assert_int_equal(add_unknown(&all->base), MESSAGES);
    write_row(all);
    row_is(all);
    for (int i = 0; i < 10; i++) {
        run(changes, 0, NULL);
        save_and_load();
    }
    first = *all->parts[0];
    own = *all->part;
    own.name = "by the old build, too";
    all->text = "by the old build";
    all->part = &own;
    row_is(all);
    run(changes, 7, NULL);
    for (int i = 0; i < 10; i++)
        run(changes, 0, NULL);
    save_and_load();
    list[0] = all->parts[0];
    list[1] = all->parts[1];
    all->parts = list;
    all->n_parts = 3;
    all->numbers = numbers;
    all->n_numbers = 4;
    row_is(all);
}

/* ---- growing ---- */

static const void *list_was;
static int64_t moves;

/* How much its arena holds, at most, whatever was done: a multiple of what is in use. */
static teff_err is_lean(const keep_keeper *self, size_t used)
{
    size_t holds = stored(self)->arena->used_bytes;
    if (holds <= 8 * used + 8 * 4096)
        return TEFF_OK;
    return teff_fail(self->ctx, TEFF_E_FAILED, "%zu bytes held for %zu", holds, used);
}

static void count_moves(const void *list)
{
    moves += list != list_was;
    list_was = list;
}

static teff_err appends_one(keep_keeper *self, const keep_act *in, keep_number *out)
{
    keep_all_append_numbers(self->ctx, self->state, in->n);
    count_moves(self->state->numbers);
    return is_lean(self, self->state->n_numbers * sizeof(int64_t));
}

static void a_list_moves_as_often_as_it_doubles(void **state)
{
    enum { N = 20000 };
    keep_all *all;
    moves = 0;
    for (int64_t i = 0; i < N; i++)
        run(appends_one, i, NULL);
    assert_in_range(moves, 10, 60);
    save_and_load();
    run(appends_one, N, NULL);
    lab_ok(ctx, keep_keeper_get(ctx, "a", &all));
    assert_int_equal(all->n_numbers, N + 1);
    for (int64_t i = 0; i <= N; i++)
        assert_int_equal(all->numbers[i], i);
    teff_ctx_reset(ctx);
}

enum { LAST = 1024 }; /* a power of two: the worst for a list that doubles at such */

/* The newest LAST, as texts and as numbers. */
static teff_err keeps_the_last(keep_keeper *self, const keep_act *in, keep_number *out)
{
    keep_all *to = self->state;
    char text[32];
    if (to->n_texts == LAST) {
        memmove(to->texts, to->texts + 1, --to->n_texts * sizeof *to->texts);
        memmove(to->numbers, to->numbers + 1, --to->n_numbers * sizeof *to->numbers);
    }
    snprintf(text, sizeof text, "line %lld", (long long)in->n);
    keep_all_append_texts(self->ctx, to, text);
    keep_all_append_numbers(self->ctx, to, in->n);
    count_moves(to->texts);
    return is_lean(self, to->n_texts * 32);
}

static void a_list_of_the_last_ones_is_cheap(void **state)
{
    enum { N = 20 * LAST };
    keep_all *all;
    moves = 0;
    for (int64_t i = 0; i < N; i++)
        run(keeps_the_last, i, NULL);
    assert_in_range(moves, 1, 200);
    lab_ok(ctx, keep_keeper_get(ctx, "a", &all));
    assert_int_equal(all->n_texts, LAST);
    assert_string_equal(all->texts[0], "line 19456");
    assert_int_equal(all->numbers[LAST - 1], N - 1);
    teff_ctx_reset(ctx);
}

static teff_err pushes_and_pops(keep_keeper *self, const keep_act *in, keep_number *out)
{
    keep_all *to = self->state;
    if (to->n_numbers > LAST)
        to->n_numbers--;
    else
        keep_all_append_numbers(self->ctx, to, in->n);
    count_moves(to->numbers);
    return is_lean(self, to->n_numbers * sizeof(int64_t));
}

static void a_stack_is_cheap(void **state)
{
    moves = 0;
    for (int64_t i = 0; i < 10 * LAST; i++)
        run(pushes_and_pops, i, NULL);
    assert_in_range(moves, 1, 60);
}

/* Thrown away, and built anew each time. */
static teff_err builds_anew(keep_keeper *self, const keep_act *in, keep_number *out)
{
    keep_all *to = self->state;
    to->n_numbers = 0;
    to->numbers = NULL;
    for (int64_t i = 0; i < in->n; i++)
        keep_all_append_numbers(self->ctx, to, i);
    return is_lean(self, to->n_numbers * sizeof(int64_t));
}

/* The front is cut off by moving the pointer: the runtime does not know that list. */
static teff_err cuts_the_front(keep_keeper *self, const keep_act *in, keep_number *out)
{
    keep_all *to = self->state;
    if (to->n_numbers > LAST) {
        to->numbers++;
        to->n_numbers--;
    }
    keep_all_append_numbers(self->ctx, to, in->n);
    return is_lean(self, LAST * sizeof(int64_t));
}

static void garbage_is_given_back(void **state)
{
    keep_all *all;
    for (int64_t i = 0; i < 2000; i++)
        run(builds_anew, i % 10 ? 10 : 1000, NULL);
    run(builds_anew, 0, NULL);
    for (int64_t i = 0; i < 5 * LAST; i++)
        run(cuts_the_front, i, NULL);
    lab_ok(ctx, keep_keeper_get(ctx, "a", &all));
    assert_int_equal(all->n_numbers, LAST + 1);
    for (int64_t i = 0; i <= LAST; i++)
        assert_int_equal(all->numbers[i], 4 * LAST - 1 + i);
    teff_ctx_reset(ctx);
}

/* Many lists, in turn. */
static teff_err appends_to_one_of_many(keep_keeper *self, const keep_act *in, keep_number *out)
{
    enum { LISTS = 300 };
    keep_all *to = self->state;
    if (to->n_parts < LISTS)
        keep_all_append_parts(self->ctx, to, keep_part(.name = "a list"));
    keep_part *part = to->parts[in->n % (int64_t)to->n_parts];
    const int64_t *was = part->numbers;
    keep_part_append_numbers(self->ctx, part, in->n);
    moves += part->numbers != was;
    return is_lean(self, to->n_parts * (sizeof *part + 16) + (size_t)in->n * sizeof(int64_t));
}

static void many_lists_grow(void **state)
{
    enum { N = 30000 };
    moves = 0;
    for (int64_t i = 0; i < N; i++)
        run(appends_to_one_of_many, i, NULL);
    assert_in_range(moves, 300, N / 5);
}

/* The table of their capacities grows five times meanwhile. */
static teff_err fills_many_lists(keep_keeper *self, const keep_act *in, keep_number *out)
{
    enum { LISTS = 64, ROOM = 4 };
    keep_all *to = self->state;
    const int64_t *was[LISTS];
    for (int i = 0; i < LISTS; i++) {
        keep_all_append_parts(self->ctx, to, keep_part(.name = "a list"));
        keep_part_append_numbers(self->ctx, to->parts[i], i);
        was[i] = to->parts[i]->numbers;
    }
    for (int i = 0; i < LISTS * (ROOM - 1); i++)
        keep_part_append_numbers(self->ctx, to->parts[i % LISTS], i);
    for (int i = 0; i < LISTS; i++)
        must(to->parts[i]->numbers == was[i]);
    to->n_parts = 0;
    return TEFF_OK;
}

/* Each time at other addresses. */
static void lists_keep_their_room_among_many(void **state)
{
    for (int i = 0; i < 10; i++)
        run(fills_many_lists, 0, NULL);
}

/* A list of the program's own, as long as its elements; one that was made shorter. */
static teff_err has_its_own_list(keep_keeper *self, const keep_act *in, keep_number *out)
{
    keep_all *to = self->state;
    to->n_flags = 5;
    to->flags = teff_state_alloc(self->ctx, to->n_flags * sizeof *to->flags);
    void *behind = teff_state_alloc(self->ctx, 16);
    const void *was = to->flags;
    for (int i = 0; i < 100; i++)
        keep_all_append_flags(self->ctx, to, 1);
    must(to->flags != was);
    must(*(uint64_t *)behind == 0);
    was = to->flags;
    to->n_flags = 2;
    for (int i = 0; i < 100; i++)
        keep_all_append_flags(self->ctx, to, 1);
    must(to->flags == was);
    return TEFF_OK;
}

static void lists_of_the_program_grow_too(void **state)
{
    run(has_its_own_list, 0, NULL);
}

/* ---- limits ---- */

static teff_err appends_n(keep_keeper *self, const keep_act *in, keep_number *out)
{
    for (int64_t i = 0; i < in->n; i++)
        keep_all_append_numbers(self->ctx, self->state, 1);
    return TEFF_OK;
}

static teff_err appends_for_ever(keep_keeper *self, const keep_act *in, keep_number *out)
{
    for (out->n = 0; out->n >= 0; out->n++)
        keep_all_append_numbers(self->ctx, self->state, out->n);
    return TEFF_OK;
}

static teff_err copies_for_ever(keep_keeper *self, const keep_act *in, keep_number *out)
{
    for (out->n = 0; out->n >= 0; out->n++)
        keep_all_append_texts(self->ctx, self->state, "a text");
    return TEFF_OK;
}

static void over_the_limit_the_turn_ends(void **state)
{
    run(takes_all, 0, full());
    lab_ok(ctx, keep_keeper_store(ctx, "a"));
    run_fails(appends_for_ever, TEFF_E_NOMEM, "keep.Keeper.Obey at a: ");
    state_is(full());
    run_fails(copies_for_ever, TEFF_E_NOMEM, "at most 134217728");
    state_is(full());
}

/* Doubled, such a list would not fit beside the one before. */
static void a_list_may_be_as_large_as_a_state(void **state)
{
    enum { N = 7 * 1024 * 1024, MORE = 100 * 1000 };
    run(appends_n, N, NULL);
    run(appends_n, MORE, NULL);
    save_and_load();
    run(appends_n, MORE, NULL);
    lab_ok(ctx, keep_keeper_store(ctx, "a"));
}

/* There is room for as many elements again as the list has, but for few more. */
static teff_err grows_into_what_is_left(keep_keeper *self, const keep_act *in, keep_number *out)
{
    enum { N = 1000, LEFT = N + N / 50 };
    keep_all *to = self->state;
    teff_arena *arena = teffi_state_owner(self->ctx)->stored->arena;
    const size_t budget = arena->budget_bytes;
    keep_all_append_flags(self->ctx, to, 1); /* makes the table of capacities */
    to->n_numbers = N;
    to->numbers = teff_state_alloc(self->ctx, N * sizeof *to->numbers);
    for (int64_t i = 0; i < N; i++)
        to->numbers[i] = i;
    const size_t used = arena->used_bytes;
    arena->budget_bytes = used + LEFT * sizeof *to->numbers;
    keep_all_append_numbers(self->ctx, to, N);
    arena->budget_bytes = budget;
    must(arena->used_bytes - used >= (N + 1) * sizeof *to->numbers);
    for (int64_t i = 0; i <= N; i++)
        must(to->numbers[i] == i);
    return TEFF_OK;
}

static void a_list_grows_into_what_is_left(void **state)
{
    run(grows_into_what_is_left, 0, NULL);
}

/* ---- messages that are none ---- */

static teff_err takes_a_hole(keep_keeper *self, const keep_act *in, keep_number *out)
{
    keep_part *hole = NULL;
    *self->state = *keep_all_keep(self->ctx, keep_all(.n_parts = 1, .parts = &hole));
    return TEFF_OK;
}

static teff_err takes_a_ring(keep_keeper *self, const keep_act *in, keep_number *out)
{
    keep_part *ring = keep_part(.name = "ring");
    ring->next = ring;
    self->state->part = keep_part_keep(self->ctx, ring);
    return TEFF_OK;
}

static void what_is_no_message_ends_the_turn(void **state)
{
    run(takes_all, 0, full());
    lab_ok(ctx, keep_keeper_store(ctx, "a"));
    run_fails(takes_a_hole, TEFF_E_MALFORMED,
              "keep.Keeper.Obey at a: the copy: keep.All.parts is NULL");
    state_is(full());
    run_fails(takes_a_ring, TEFF_E_TOO_LARGE, "the copy nests over 32 messages deep");
    state_is(full());
}

#define KEEP(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        KEEP(everything_is_kept),
        KEEP(a_whole_state_is_replaced),
        KEEP(null_is_an_empty_one),
        KEEP(what_is_there_may_be_copied),
        KEEP(fields_of_a_newer_build_are_kept),
        KEEP(a_list_moves_as_often_as_it_doubles),
        KEEP(a_list_of_the_last_ones_is_cheap),
        KEEP(a_stack_is_cheap),
        KEEP(garbage_is_given_back),
        KEEP(many_lists_grow),
        KEEP(lists_keep_their_room_among_many),
        KEEP(lists_of_the_program_grow_too),
        KEEP(over_the_limit_the_turn_ends),
        KEEP(a_list_grows_into_what_is_left),
        KEEP(a_list_may_be_as_large_as_a_state),
        KEEP(what_is_no_message_ends_the_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
