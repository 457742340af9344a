/* fake_runtime.c - what generated code asks of the runtime, written down instead of done.
 * Way:     generated stubs -> [fake_runtime] -> test_generated.c */
#include "fake_runtime.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct teff_grain_type {
    const teff_type_info *info;
};

void *teff_arena_take(teff_arena *arena, size_t n)
{
    if (arena->n == arena->n_max) {
        return NULL;
    }
    char *block = malloc(n + (n == 0));
    arena->blocks[arena->n++] = block;
    return block != NULL ? memset(block, 0xa5, n) : NULL; /* whoever reads it unwritten sees that */
}

void *teff_arena_alloc(teff_arena *arena, size_t n)
{
    void *block = teff_arena_take(arena, n);

    return block != NULL ? memset(block, 0, n) : NULL;
}

void *teff_arena_copy(teff_arena *arena, const void *src, size_t n)
{
    char *copy = teff_arena_alloc(arena, n + 1);

    if (copy != NULL && n > 0) {
        memcpy(copy, src, n);
    }
    return copy;
}

void teff_copy_check_utf8(teff_arena *arena, const char *text, size_t n)
{
    (void)arena;
    (void)text;
    (void)n;
}

int teff_copy_text(teff_arena *arena, const char **text)
{
    *text = teff_arena_copy(arena, *text, *text != NULL ? strlen(*text) : 0);
    return *text != NULL;
}

int teff_copy_texts(teff_arena *arena, size_t n, const char ***texts)
{
    int good;

    *texts = n > 0 ? teff_arena_copy(arena, *texts, n * sizeof **texts) : NULL;
    good = n == 0 || *texts != NULL;
    for (size_t i = 0; good && i < n; i++) {
        good = teff_copy_text(arena, &(*texts)[i]);
    }
    return good;
}

int teff_copy_bytes(teff_arena *arena, ProtobufCBinaryData *bytes)
{
    if (bytes->data == NULL || bytes->len == 0) {
        *bytes = (ProtobufCBinaryData){0, NULL};
        return 1;
    }
    bytes->data = teff_arena_copy(arena, bytes->data, bytes->len);
    return bytes->data != NULL;
}

int teff_copy_bytes_list(teff_arena *arena, size_t n, ProtobufCBinaryData **list)
{
    int good;

    *list = n > 0 ? teff_arena_copy(arena, *list, n * sizeof **list) : NULL;
    good = n == 0 || *list != NULL;
    for (size_t i = 0; good && i < n; i++) {
        good = teff_copy_bytes(arena, &(*list)[i]);
    }
    return good;
}

int teff_copy_unknown(teff_arena *arena, ProtobufCMessage *copy)
{
    size_t n = copy->n_unknown_fields;
    bool good;

    copy->unknown_fields =
        teff_arena_copy(arena, copy->unknown_fields, n * sizeof *copy->unknown_fields);
    good = copy->unknown_fields != NULL;
    for (size_t i = 0; good && i < n; i++) {
        ProtobufCMessageUnknownField *field = &copy->unknown_fields[i];

        field->data = teff_arena_copy(arena, field->data, field->len);
        good = field->data != NULL;
    }
    return good;
}

void fake_arena_fini(teff_arena *arena)
{
    while (arena->n > 0) {
        free(arena->blocks[--arena->n]);
    }
}

teff_err teff_fail(teff_ctx *ctx, teff_err err, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(ctx->text, sizeof ctx->text, fmt, args);
    va_end(args);
    return err;
}

teff_err teff_ask(teff_ctx *ctx, const teff_type_info *type, const teff_key *key,
                  const teff_method *method, const ProtobufCMessage *in, ProtobufCMessage **out)
{
    ctx->last = (fake_call){.function = "teff_ask",
                            .type = type,
                            .key = *key,
                            .method = method,
                            .in = in,
                            .wants_response = out != NULL};
    if (out != NULL && ctx->err == TEFF_OK) {
        *out = ctx->answer;
    }
    return ctx->err;
}

teff_err teff_ask_async(teff_ctx *ctx, const teff_type_info *type, const teff_key *key,
                        const teff_method *method, const ProtobufCMessage *in,
                        const teff_call_options *options, teff_call *call)
{
    (void)options;
    ctx->last = (fake_call){
        .function = "teff_ask_async", .type = type, .key = *key, .method = method, .in = in};
    call->impl = (struct teffi_call *)ctx;
    return ctx->err;
}

teff_err teff_send(teff_ctx *ctx, const teff_type_info *type, const teff_key *key,
                   const teff_method *method, const ProtobufCMessage *in)
{
    ctx->last =
        (fake_call){.function = "teff_send", .type = type, .key = *key, .method = method, .in = in};
    return ctx->err;
}

teff_err teff_timer_start(teff_ctx *ctx, const teff_type_info *type, const teff_method *method,
                          const ProtobufCMessage *in, const teff_timer_options *options,
                          teff_timer *timer)
{
    ctx->last =
        (fake_call){.function = "teff_timer_start", .type = type, .method = method, .in = in};
    timer->id = options->due_ms;
    return ctx->err;
}

teff_err teff_observer_new(teff_ctx *ctx, const teff_observer_info *info, const void *methods,
                           void *user, teff_observer **observer)
{
    ctx->last = (fake_call){.function = "teff_observer_new", .type = &info->type};
    *observer = user;
    return methods != NULL ? ctx->err : TEFF_E_INVALID;
}

teff_err teff_observer_of_grain(teff_ctx *ctx, const teff_observer_info *info,
                                ProtobufCBinaryData *ref)
{
    ctx->last = (fake_call){.function = "teff_observer_of_grain", .type = &info->type};
    ref->len = 3;
    return ctx->err;
}

teff_err teff_observers_subscribe(teff_ctx *ctx, const teff_observer_info *info,
                                  ProtobufCBinaryData ref, uint32_t expiry_ms)
{
    ctx->last = (fake_call){.function = "teff_observers_subscribe",
                            .type = &info->type,
                            .observer = ref,
                            .expiry_ms = expiry_ms};
    return ctx->err;
}

bool teff_observers_unsubscribe(teff_ctx *ctx, const teff_observer_info *info,
                                ProtobufCBinaryData ref)
{
    ctx->last =
        (fake_call){.function = "teff_observers_unsubscribe", .type = &info->type, .observer = ref};
    return true;
}

size_t teff_observers_count(teff_ctx *ctx, const teff_observer_info *info)
{
    ctx->last = (fake_call){.function = "teff_observers_count", .type = &info->type};
    return 5;
}

teff_err teff_notify(teff_ctx *ctx, const teff_observer_info *info, const teff_method *method,
                     const ProtobufCMessage *in)
{
    ctx->last =
        (fake_call){.function = "teff_notify", .type = &info->type, .method = method, .in = in};
    return ctx->err;
}

teff_err teff_notify_one(teff_ctx *ctx, const teff_observer_info *info, const teff_method *method,
                         ProtobufCBinaryData ref, const ProtobufCMessage *in)
{
    ctx->last = (fake_call){.function = "teff_notify_one",
                            .type = &info->type,
                            .method = method,
                            .in = in,
                            .observer = ref};
    return ctx->err;
}

teff_err teff_await(teff_ctx *ctx, teff_call call, ProtobufCMessage **out)
{
    ctx->last = (fake_call){.function = "teff_await", .wants_response = out != NULL};
    if (out != NULL && call.impl == (struct teffi_call *)ctx) {
        *out = ctx->answer;
    }
    return ctx->err;
}

teff_err teff_state_save(teff_ctx *ctx)
{
    ctx->last = (fake_call){.function = "teff_state_save"};
    return ctx->err;
}

teff_err teff_state_clear(teff_ctx *ctx)
{
    ctx->last = (fake_call){.function = "teff_state_clear"};
    return ctx->err;
}

teff_grain_type *teff_grain_type_new(const teff_type_info *info, const void *methods, void *user)
{
    static teff_grain_type type;

    (void)methods;
    (void)user;
    type.info = info;
    return &type;
}

int *teff_errno(void)
{
#undef errno
    static int no;

    return &no;
}
