/* test_generated.c - the code generated for tests/golden at work: copies, stubs, thunks, tables. */
#include "everything.teff.h"
#include "fake_runtime.h"
#include "proto2.teff.h"
#include "shared.teff.h"
#include "words.teff.h"

#include <stdlib.h>
#include <string.h>

#include "test.h"

typedef acme_shop_x_v1_http_reply reply;
typedef acme_shop_x_v1_http_reply_inner_thing thing;

static teff_arena arena;
static teff_ctx ctx;

static int setup(void **state)
{
    memset(&ctx, 0, sizeof ctx);
    arena.n_max = sizeof arena.blocks / sizeof *arena.blocks;
    return 0;
}

static int teardown(void **state)
{
    fake_arena_fini(&arena);
    return 0;
}

/* A packed message, for comparing. */
static uint8_t *packed(const void *message, size_t *n)
{
    uint8_t *bytes;

    *n = protobuf_c_message_get_packed_size(message);
    bytes = malloc(*n + 1);
    assert_non_null(bytes);
    assert_int_equal(protobuf_c_message_pack(message, bytes), *n);
    return bytes;
}

static void same(const void *a, const void *b)
{
    size_t na;
    size_t nb;
    uint8_t *pa = packed(a, &na);
    uint8_t *pb = packed(b, &nb);

    assert_int_equal(na, nb);
    assert_memory_equal(pa, pb, na);
    free(pa);
    free(pb);
}

static uint8_t bytes_abc[] = {'a', 0, 'c'};

#define BYTES ((ProtobufCBinaryData){sizeof bytes_abc, bytes_abc})

/* One of everything; static memory, so that a copy that shares some shows. */
static reply *full(void)
{
    static int32_t nums[] = {1, -2, 3};
    static const char *names[] = {"one", "", "three"};
    static ProtobufCBinaryData blobs[2];
    static thing things[2];
    static thing *thing_list[] = {&things[0], &things[1]};
    static acme_shop_x_v1_http_reply_by_name_entry entry;
    static acme_shop_x_v1_http_reply_by_name_entry *entries[] = {&entry};
    static Acme__ShopX__V1__Kind kinds[] = {ACME__SHOP_X__V1__KIND__RedApple};
    static shop_shared_link link[2];
    static shop_shared_link *links[] = {&link[0], &link[1]};
    static double ratios[] = {0.5, 2.25};
    static reply r;

    acme__shop_x__v1__httpreply__init(&r);
    acme__shop_x__v1__httpreply__inner__thing__init(&things[0]);
    acme__shop_x__v1__httpreply__inner__thing__init(&things[1]);
    acme__shop_x__v1__httpreply__by_name_entry__init(&entry);
    shop__shared__link__init(&link[0]);
    shop__shared__link__init(&link[1]);
    blobs[0] = blobs[1] = BYTES;
    things[1].kind = ACME__SHOP_X__V1__KIND__RedApple;
    entry.key = "key";
    entry.value = &things[1];
    link[0].text = "first";
    link[0].next = &link[1];
    link[1].text = "second";
    r.name = "name";
    r.data = BYTES;
    r.n_nums = 3, r.nums = nums;
    r.n_names = 3, r.names = names;
    r.n_blobs = 2, r.blobs = blobs;
    r.thing = &things[0];
    r.n_things = 2, r.things = thing_list;
    r.n_by_name = 1, r.by_name = entries;
    r.n_kinds = 1, r.kinds = kinds;
    r.flag = 1;
    r.ratio = 1.5;
    r.n_ratios = 2, r.ratios = ratios;
    r.link = &link[0];
    r.n_links = 2, r.links = links;
    r.my_kind_case = ACME__SHOP_X__V1__HTTPREPLY__MY_KIND_TEXT;
    r.text = "text";
    r._maybe_text_case = ACME__SHOP_X__V1__HTTPREPLY___MAYBE_TEXT_MAYBE_TEXT;
    r.maybe_text = "maybe";
    r._maybe_raw_case = ACME__SHOP_X__V1__HTTPREPLY___MAYBE_RAW_MAYBE_RAW;
    r.maybe_raw = BYTES;
    return &r;
}

static void a_copy_is_deep_and_equal(void **state)
{
    const reply *src = full();
    reply *copy = acme_shop_x_v1_http_reply_copy(&arena, src);

    assert_non_null(copy);
    same(src, copy);
    assert_ptr_not_equal(copy->name, src->name);
    assert_ptr_not_equal(copy->data.data, src->data.data);
    assert_ptr_not_equal(copy->nums, src->nums);
    assert_ptr_not_equal(copy->names, src->names);
    assert_ptr_not_equal(copy->names[0], src->names[0]);
    assert_ptr_not_equal(copy->blobs[1].data, src->blobs[1].data);
    assert_ptr_not_equal(copy->thing, src->thing);
    assert_ptr_not_equal(copy->things[1], src->things[1]);
    assert_ptr_not_equal(copy->by_name[0]->value, src->by_name[0]->value);
    assert_ptr_not_equal(copy->by_name[0]->key, src->by_name[0]->key);
    assert_ptr_not_equal(copy->kinds, src->kinds);
    assert_ptr_not_equal(copy->ratios, src->ratios);
    assert_ptr_not_equal(copy->text, src->text);
    assert_ptr_not_equal(copy->maybe_text, src->maybe_text);
    assert_ptr_not_equal(copy->maybe_raw.data, src->maybe_raw.data);
    assert_ptr_not_equal(copy->link->next, src->link->next);
    assert_ptr_not_equal(copy->links[0]->text, src->links[0]->text);
}

/* The oneof's other members, and optional ones that are there with nothing in them. */
static void a_copy_keeps_the_member_of_a_oneof(void **state)
{
    reply *src = full();
    reply *copy;

    src->my_kind_case = ACME__SHOP_X__V1__HTTPREPLY__MY_KIND_RAW;
    src->raw = BYTES;
    copy = acme_shop_x_v1_http_reply_copy(&arena, src);
    same(src, copy);
    assert_ptr_not_equal(copy->raw.data, src->raw.data);
    src->my_kind_case = ACME__SHOP_X__V1__HTTPREPLY__MY_KIND_OTHER;
    src->other = src->thing;
    copy = acme_shop_x_v1_http_reply_copy(&arena, src);
    same(src, copy);
    assert_ptr_not_equal(copy->other, src->other);
    src->my_kind_case = ACME__SHOP_X__V1__HTTPREPLY__MY_KIND_CAMEL_CASE;
    src->camelcase = -5;
    src->_maybe_number_case = ACME__SHOP_X__V1__HTTPREPLY___MAYBE_NUMBER_MAYBE_NUMBER;
    src->maybe_number = 0;
    copy = acme_shop_x_v1_http_reply_copy(&arena, src);
    same(src, copy);
    assert_int_equal(copy->camelcase, -5);
    assert_int_equal(copy->_maybe_number_case, 21);
}

static void a_copy_is_without_nulls(void **state)
{
    const char *names[] = {NULL, "x"};
    reply *copy;
    reply src = {.n_names = 2, .names = names, .data = {3, NULL}};

    copy = acme_shop_x_v1_http_reply_copy(&arena, &src);
    assert_non_null(copy);
    assert_string_equal(copy->name, "");
    assert_string_equal(copy->names[0], "");
    assert_string_equal(copy->names[1], "x");
    assert_int_equal(copy->data.len, 0);
    assert_null(copy->thing);
    assert_ptr_equal(copy->base.descriptor, &acme__shop_x__v1__httpreply__descriptor);
    assert_null(acme_shop_x_v1_http_reply_copy(&arena, NULL));
}

/* Short texts are copied in two pieces, which may overlap. */
static void a_copy_has_texts_of_any_length(void **state)
{
    static const char long_text[] = "0123456789abcdefghij";

    for (size_t n = 0; n < sizeof long_text; n++) {
        char text[sizeof long_text] = "";
        reply src = {.name = text}, *copy;

        memcpy(text, long_text, n);
        copy = acme_shop_x_v1_http_reply_copy(&arena, &src);
        assert_non_null(copy);
        assert_string_equal(copy->name, text);
    }
}

static void a_copy_keeps_unknown_fields(void **state)
{
    ProtobufCMessageUnknownField unknown[] = {{99, PROTOBUF_C_WIRE_TYPE_VARINT, 1, bytes_abc},
                                              {98, PROTOBUF_C_WIRE_TYPE_64BIT, 0, NULL}};
    thing inner = {.base = {NULL, 2, unknown}};
    reply src = {.base = {NULL, 1, unknown}, .thing = &inner};
    reply *copy = acme_shop_x_v1_http_reply_copy(&arena, &src);

    assert_non_null(copy);
    assert_int_equal(copy->base.n_unknown_fields, 1);
    assert_int_equal(copy->thing->base.n_unknown_fields, 2);
    assert_int_equal(copy->thing->base.unknown_fields[1].tag, 98);
    assert_ptr_not_equal(copy->base.unknown_fields, unknown);
    assert_ptr_not_equal(copy->base.unknown_fields[0].data, bytes_abc);
    assert_int_equal(copy->base.unknown_fields[0].tag, 99);
    assert_int_equal(copy->base.unknown_fields[0].len, 1);
    assert_int_equal(copy->base.unknown_fields[0].data[0], 'a');
}

/* As on the wire: a oneof whose message is NULL, a text that is the default, a missing message. */
static void a_copy_reads_as_after_the_wire(void **state)
{
    reply none = {.my_kind_case = ACME__SHOP_X__V1__HTTPREPLY__MY_KIND_OTHER};
    old_part initial;
    old_part *copy;

    assert_int_equal(acme_shop_x_v1_http_reply_copy(&arena, &none)->my_kind_case, 0);
    old__part__init(&initial);
    copy = old_part_copy(&arena, &initial);
    assert_non_null(copy);
    assert_ptr_equal(copy->name, initial.name);
}

static void a_copy_stops_at_32_levels(void **state)
{
    shop_shared_link links[33];

    for (int i = 0; i < 33; i++) {
        shop__shared__link__init(&links[i]);
        links[i].next = i < 32 ? &links[i + 1] : NULL;
    }
    assert_non_null(shop_shared_link_copy(&arena, &links[1]));
    assert_null(shop_shared_link_copy(&arena, &links[0]));
    links[32].next = &links[0]; /* a ring: no stack would be deep enough */
    assert_null(shop_shared_link_copy(&arena, &links[1]));
    assert_null(shop_shared_link_copy_levels(&arena, &links[1], 0));
}

static void a_copy_without_memory_is_null(void **state)
{
    const reply *src = full();
    unsigned needed;

    assert_non_null(acme_shop_x_v1_http_reply_copy(&arena, src));
    needed = arena.n;
    for (unsigned n = 0; n < needed; n++) {
        fake_arena_fini(&arena);
        arena.n_max = n;
        assert_null(acme_shop_x_v1_http_reply_copy(&arena, src));
    }
    fake_arena_fini(&arena);
    arena.n_max = needed;
    assert_non_null(acme_shop_x_v1_http_reply_copy(&arena, src));
}

/* What is not there reads as after the wire: its default, and still not there. */
static void a_proto2_copy_has_the_defaults(void **state)
{
    old_part *rest = old_part(.label = "in the middle");
    old_part *src = old_part(.label = "l", .number = 99, .next = rest, .has_size = 1,
                             .size = OLD__PART__SIZE__SMALL);
    old_part *copy = old_part_copy(&arena, src);
    size_t n;
    uint8_t *bytes = packed(src, &n);
    old_part *wired = old__part__unpack(NULL, n, bytes);

    assert_non_null(copy);
    assert_non_null(wired);
    assert_int_equal(copy->number, 7);
    assert_int_equal(copy->has_number, 0);
    assert_string_equal(copy->name, "x");
    assert_int_equal(copy->flag, 1);
    assert_null(copy->plain);
    assert_int_equal(copy->preset.len, 2);
    assert_int_equal(copy->size, OLD__PART__SIZE__SMALL);
    assert_int_equal(copy->next->size, OLD__PART__SIZE__LARGE);
    same(copy, wired);
    assert_int_equal(copy->number, wired->number);
    assert_string_equal(copy->name, wired->name);
    assert_int_equal(copy->preset.len, wired->preset.len);
    old__part__free_unpacked(wired, NULL);
    free(bytes);
}

static void literals(void **state)
{
    words_seen *none = words_seen();
    thing *nested =
        acme_shop_x_v1_http_reply_inner_thing(.kind = ACME__SHOP_X__V1__KIND__RedApple,
                                              .up = acme_shop_x_v1_http_reply(.name = "up"));
    const words_seen *some = words_seen(.times = 3);

    assert_ptr_equal(none->base.descriptor, &words__seen__descriptor);
    assert_int_equal(none->times, 0);
    assert_int_equal(some->times, 3);
    assert_string_equal(nested->up->name, "up");
}

static void stubs_ask(void **state)
{
    words_total total = WORDS__TOTAL__INIT;
    words_total *out = NULL;
    const words_seen *in = words_seen(.times = 1);

    ctx.answer = &total.base;
    assert_int_equal(words_word_add(&ctx, "teff", in, &out), TEFF_OK);
    assert_ptr_equal(out, &total);
    assert_string_equal(ctx.last.function, "teff_ask");
    assert_ptr_equal(ctx.last.type, &words_word_info);
    assert_int_equal(ctx.last.key.kind, TEFF_KEY_STRING);
    assert_string_equal(ctx.last.key.text, "teff");
    assert_string_equal(ctx.last.method->name, "words.Word.Add");
    assert_ptr_equal(ctx.last.in, in);
    assert_int_equal(words_word_add(&ctx, "teff", in, NULL), TEFF_OK);
    assert_false(ctx.last.wants_response);
    ctx.err = TEFF_E_TIMEOUT;
    assert_int_equal(words_word_get(&ctx, "teff", &out), TEFF_E_TIMEOUT);
    assert_null(out);
    assert_null(ctx.last.in);
    assert_string_equal(ctx.last.method->name, "words.Word.Get");
    assert_int_equal(words_word_nop(&ctx, "teff"), TEFF_E_TIMEOUT);
    assert_false(ctx.last.wants_response);
}

static void stubs_start_reply_and_send(void **state)
{
    words_total total = WORDS__TOTAL__INIT;
    words_total *out = NULL;
    teff_call call;

    ctx.answer = &total.base;
    assert_int_equal(words_word_add_async(&ctx, "a", words_seen(), NULL, &call), TEFF_OK);
    assert_string_equal(ctx.last.function, "teff_ask_async");
    assert_string_equal(ctx.last.method->name, "words.Word.Add");
    assert_int_equal(words_word_add_await(&ctx, call, &out), TEFF_OK);
    assert_string_equal(ctx.last.function, "teff_await");
    assert_ptr_equal(out, &total);
    assert_int_equal(words_word_nop_await(&ctx, call), TEFF_OK);
    assert_false(ctx.last.wants_response);
    assert_int_equal(words_word_get_send(&ctx, "a"), TEFF_OK);
    assert_string_equal(ctx.last.function, "teff_send");
    assert_int_equal(words_word_poke(&ctx, "a", words_seen()), TEFF_OK);
    assert_string_equal(ctx.last.function, "teff_send");
    assert_string_equal(ctx.last.method->name, "words.Word.Poke");
}

static void stubs_start_timers(void **state)
{
    const teff_timer_options options = {.size = sizeof options, .due_ms = 7};
    const words_seen *in = words_seen();
    teff_timer timer;

    assert_int_equal(words_word_poke_timer(&ctx, in, &options, &timer), TEFF_OK);
    assert_string_equal(ctx.last.function, "teff_timer_start");
    assert_ptr_equal(ctx.last.type, &words_word_info);
    assert_string_equal(ctx.last.method->name, "words.Word.Poke");
    assert_ptr_equal(ctx.last.in, in);
    assert_int_equal(timer.id, 7);
}

static void every_kind_of_key(void **state)
{
    const acme_shop_x_v1_empty *empty = acme_shop_x_v1_empty();
    teff_uuid uuid = {{1, 2, 3}};

    assert_int_equal(acme_shop_x_v1_tagged_twice(&ctx, uuid, empty, NULL), TEFF_OK);
    assert_int_equal(ctx.last.key.kind, TEFF_KEY_UUID);
    assert_memory_equal(&ctx.last.key.uuid, &uuid, sizeof uuid);
    assert_int_equal(acme_shop_x_v1_everything_nothing(&ctx, uuid, "text"), TEFF_OK);
    assert_int_equal(ctx.last.key.kind, TEFF_KEY_UUID_STRING);
    assert_string_equal(ctx.last.key.text, "text");
    assert_memory_equal(&ctx.last.key.uuid, &uuid, sizeof uuid);
    assert_int_equal(shop_shared_lists_read(&ctx, -7, NULL), TEFF_OK);
    assert_int_equal(ctx.last.key.kind, TEFF_KEY_INT64);
    assert_int_equal(ctx.last.key.number, -7);
    assert_int_equal(acme_shop_x_v1_bare_info.key_kind, TEFF_KEY_INT64_STRING);
    assert_int_equal(acme_shop_x_v1_bare_info.n_methods, 0);
}

static teff_err add(words_word *self, const words_seen *in, words_total *out)
{
    assert_string_equal(self->key, "teff");
    assert_ptr_equal(self->ctx, &ctx);
    assert_ptr_equal(self->user, &arena);
    self->state->count += in->times;
    out->count = self->state->count;
    return words_word_save(self);
}

static teff_err on_deactivate(words_word *self, teff_reason why)
{
    assert_int_equal(why, TEFF_REASON_STOPPING);
    return words_word_clear(self);
}

static const teff_method *method(const teff_type_info *info, const char *name)
{
    for (size_t i = 0; i < info->n_methods; i++) {
        if (strcmp(info->methods[i].name, name) == 0) {
            return &info->methods[i];
        }
    }
    fail_msg("no method %s", name);
    return NULL;
}

static void thunks(void **state)
{
    static const words_word_methods methods = {.add = add, .on_deactivate = on_deactivate};
    words_count count = WORDS__COUNT__INIT;
    words_total total = WORDS__TOTAL__INIT;
    const teff_grain grain = {&ctx, {TEFF_KEY_STRING, "teff", 0, {{0}}}, &count.base, &arena};
    const teff_type_info *info = &words_word_info;

    assert_int_equal(method(info, "words.Word.Add")
                         ->invoke(&grain, &methods, &words_seen(.times = 5)->base, &total.base),
                     TEFF_OK);
    assert_int_equal(total.count, 5);
    assert_string_equal(ctx.last.function, "teff_state_save");
    assert_int_equal(info->activate(&grain, &methods), TEFF_OK);
    assert_int_equal(info->deactivate(&grain, &methods, TEFF_REASON_STOPPING), TEFF_OK);
    assert_string_equal(ctx.last.function, "teff_state_clear");
    assert_int_equal(method(info, "words.Word.Get")->invoke(&grain, &methods, NULL, &total.base),
                     TEFF_E_UNIMPLEMENTED);
    assert_non_null(words_word_type(&methods, NULL));
}

static uint32_t fnv(const char *s)
{
    uint32_t h = 2166136261U;

    while (*s != '\0') {
        h = (h ^ (unsigned char)*s++) * 16777619U;
    }
    return h;
}

/* ---- observers ---- */

static int happened, seen, dropped;

static teff_err on_happened(acme_shop_x_v1_watch *self, const acme_shop_x_v1_http_reply *in)
{
    assert_ptr_equal(self->ctx, &ctx);
    assert_ptr_equal(self->user, &arena);
    assert_string_equal(in->name, "x");
    happened++;
    return TEFF_E_USER(3);
}

static void on_dropped(acme_shop_x_v1_watch *self, const teff_dropped *how)
{
    assert_ptr_equal(self->user, &arena);
    assert_int_equal(how->why, TEFF_DROPPED_SLOW);
    dropped++;
}

/* The thunks of callbacks use no key and no state. */
static void thunks_of_observers(void **state)
{
    static const acme_shop_x_v1_watch_methods methods = {.happened = on_happened,
                                                         .on_dropped = on_dropped},
                                              none = {.happened = NULL};
    const teff_grain self = {.ctx = &ctx, .user = &arena};
    const teff_dropped how = {.why = TEFF_DROPPED_SLOW};
    const teff_observer_info *info = &acme_shop_x_v1_watch_info;
    const teff_method *called = method(&info->type, "acme.shopX.v1.Watch.Happened");

    assert_int_equal(
        called->invoke(&self, &methods, &acme_shop_x_v1_http_reply(.name = "x")->base, NULL),
        TEFF_E_USER(3));
    assert_int_equal(happened, 1);
    assert_int_equal(called->invoke(&self, &none, NULL, NULL), TEFF_E_UNIMPLEMENTED);
    info->dropped(&self, &methods, &how);
    info->dropped(&self, &none, &how);
    assert_int_equal(dropped, 1);
}

static void stubs_of_observers(void **state)
{
    static const acme_shop_x_v1_watch_methods methods = {.happened = NULL};
    const acme_shop_x_v1_http_reply *in = acme_shop_x_v1_http_reply();
    uint8_t bytes[4] = {1, 2, 3, 4};
    ProtobufCBinaryData ref = {sizeof bytes, bytes}, made;
    teff_observer *observer;

    assert_int_equal(acme_shop_x_v1_watch_observe(&ctx, &methods, &arena, &observer), TEFF_OK);
    assert_ptr_equal(observer, &arena);
    assert_ptr_equal(ctx.last.type, &acme_shop_x_v1_watch_info.type);
    assert_int_equal(acme_shop_x_v1_watch_of_grain(&ctx, &made), TEFF_OK);
    assert_int_equal(made.len, 3);
    assert_int_equal(acme_shop_x_v1_watch_subscribe(&ctx, ref, 77), TEFF_OK);
    assert_int_equal(ctx.last.expiry_ms, 77);
    assert_ptr_equal(ctx.last.observer.data, bytes);
    assert_true(acme_shop_x_v1_watch_unsubscribe(&ctx, ref));
    assert_string_equal(ctx.last.function, "teff_observers_unsubscribe");
    assert_int_equal(acme_shop_x_v1_watch_count(&ctx), 5);
    assert_int_equal(acme_shop_x_v1_watch_happened_notify(&ctx, in), TEFF_OK);
    assert_string_equal(ctx.last.function, "teff_notify");
    assert_string_equal(ctx.last.method->name, "acme.shopX.v1.Watch.Happened");
    assert_ptr_equal(ctx.last.in, in);
    assert_int_equal(acme_shop_x_v1_watch_delete__notify_one(&ctx, ref), TEFF_OK);
    assert_string_equal(ctx.last.function, "teff_notify_one");
    assert_string_equal(ctx.last.method->name, "acme.shopX.v1.Watch.Delete");
    assert_null(ctx.last.in);
    assert_ptr_equal(ctx.last.observer.data, bytes);
}

static teff_err far_seen(acme_shop_x_v1_watched *self, const shop_shared_link *in)
{
    assert_string_equal(self->key, "k");
    seen++;
    return TEFF_OK;
}

/* A grain that observes has the observers' methods, with their ids, as one-way methods. */
static void grains_implement_observers(void **state)
{
    static const acme_shop_x_v1_watched_methods methods = {.far_seen = far_seen};
    const teff_grain grain = {&ctx, {TEFF_KEY_STRING, "k", 0, {{0}}}, NULL, NULL};
    const teff_type_info *info = &acme_shop_x_v1_watched_info;
    const teff_method *called = method(info, "shop.shared.Far.Seen");

    assert_int_equal(info->n_methods, 4);
    assert_int_equal(called->id, fnv("shop.shared.Far.Seen"));
    assert_int_equal(called->id, shop_shared_far_info.type.methods[0].id);
    assert_int_equal(called->flags, TEFF_METHOD_ONE_WAY);
    assert_ptr_equal(called->in, &shop_shared_link_ops);
    assert_int_equal(called->invoke(&grain, &methods, NULL, NULL), TEFF_OK);
    assert_int_equal(seen, 1);
    assert_int_equal(method(info, "acme.shopX.v1.Watch.Happened")->id,
                     method(&acme_shop_x_v1_watch_info.type, "acme.shopX.v1.Watch.Happened")->id);
    assert_int_equal(acme_shop_x_v1_mirror_info.n_methods, 2);
}

static void tables(void **state)
{
    const teff_type_info *all = &acme_shop_x_v1_everything_info;
    const teff_type_info *tagged = &acme_shop_x_v1_tagged_info;
    const teff_type_info *word = &words_word_info;

    assert_int_equal(word->id, fnv("words.Word"));
    assert_int_equal(method(word, "words.Word.Add")->id, fnv("words.Word.Add"));
    assert_int_equal(method(word, "words.Word.Poke")->id, 7);
    for (size_t i = 1; i < word->n_methods; i++) {
        assert_true(word->methods[i - 1].id < word->methods[i].id);
    }
    assert_int_equal(word->n_methods, 4);
    assert_int_equal(method(word, "words.Word.Get")->flags, TEFF_METHOD_READ_ONLY);
    /* users' programs have these numbers */
    assert_int_equal(TEFF_METHOD_READ_ONLY, 1);
    assert_int_equal(TEFF_METHOD_ALWAYS_INTERLEAVE, 2);
    assert_int_equal(TEFF_METHOD_ONE_WAY, 4);
    assert_int_equal(TEFF_METHOD_IDEMPOTENT, 8);
    assert_int_equal(TEFF_METHOD_TRANSACTIONAL, 16);
    assert_null(method(word, "words.Word.Get")->in);
    assert_ptr_equal(method(word, "words.Word.Get")->out, &words_total_ops);
    assert_int_equal(method(word, "words.Word.Nop")->timeout_ms, 120000);
    assert_ptr_equal(word->state, &words_count_ops);
    assert_int_equal(word->flags | word->idle_ms | word->queue_max | word->max_message_bytes, 0);
    assert_int_equal(all->flags, TEFF_TYPE_REENTRANT);
    assert_int_equal(all->placement, TEFF_PLACE_HASH);
    assert_int_equal(all->idle_ms, 90000);
    assert_int_equal(all->queue_max, 5);
    assert_int_equal(all->max_message_bytes, 1000);
    assert_int_equal(all->version, 3);
    assert_int_equal(word->version, 0);
    assert_int_equal(all->answers_max, 7);
    assert_int_equal(word->answers_max, 0);
    assert_ptr_equal(all->state, &acme_shop_x_v1_http_reply_inner_thing_ops);
    assert_int_equal(method(all, "acme.shopX.v1.Everything.Tell")->flags, TEFF_METHOD_ONE_WAY);
    assert_int_equal(tagged->placement, TEFF_PLACE_PREFER_LOCAL);
    assert_int_equal(tagged->pool_max, 0);
    assert_int_equal(acme_shop_x_v1_crew_info.placement, TEFF_PLACE_STATELESS);
    assert_int_equal(acme_shop_x_v1_crew_info.pool_max, 4);
    assert_null(tagged->state);
    assert_int_equal(tagged->methods[0].flags,
                     TEFF_METHOD_ALWAYS_INTERLEAVE | TEFF_METHOD_IDEMPOTENT);
    assert_int_equal(acme_shop_x_v1_joint_info.methods[0].flags, TEFF_METHOD_TRANSACTIONAL);
    assert_int_equal(tagged->methods[0].timeout_ms, 3600000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        CASE(a_copy_is_deep_and_equal),
        CASE(a_copy_keeps_the_member_of_a_oneof),
        CASE(a_copy_is_without_nulls),
        CASE(a_copy_has_texts_of_any_length),
        CASE(a_copy_keeps_unknown_fields),
        CASE(a_copy_reads_as_after_the_wire),
        CASE(a_copy_stops_at_32_levels),
        CASE(a_copy_without_memory_is_null),
        CASE(a_proto2_copy_has_the_defaults),
        CASE(literals),
        CASE(stubs_ask),
        CASE(stubs_start_reply_and_send),
        CASE(stubs_start_timers),
        CASE(every_kind_of_key),
        CASE(thunks),
        CASE(thunks_of_observers),
        CASE(stubs_of_observers),
        CASE(grains_implement_observers),
        CASE(tables),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
