/* type.c - make grain types; find types and methods by id; check requests and responses. */
#include "activation/type.h"

#include <stdlib.h>
#include "activation/grains.h"
#include "call/ctx.h"
#include "message/codec.h"

static int compare_type_ids(const void *a, const void *b)
{
    const teff_grain_type *const *x = a, *const *y = b;
    return ((*x)->info->id > (*y)->info->id) - ((*x)->info->id < (*y)->info->id);
}

void teffi_types_sort(teff_grain_type **types, size_t n)
{
    qsort(types, n, sizeof *types, compare_type_ids);
}

static int compare_id_with_type(const void *id, const void *type)
{
    uint32_t x = *(const uint32_t *)id, y = (*(teff_grain_type *const *)type)->info->id;
    return x == y ? 0 : x < y ? -1 : 1;
}

const teff_grain_type *teffi_type_find(const teffi_grains *grains, uint32_t id)
{
    teff_grain_type **found =
        bsearch(&id, grains->types, grains->n_types, sizeof *grains->types, compare_id_with_type);
    return found ? *found : NULL;
}

static int compare_id_with_method(const void *id, const void *method)
{
    uint32_t x = *(const uint32_t *)id, y = ((const teff_method *)method)->id;
    return x == y ? 0 : x < y ? -1 : 1;
}

const teff_method *teffi_method_find(const teff_type_info *info, uint32_t id)
{
    if (id == TEFFI_METHOD_TICK)
        return info->remind ? &teffi_tick_method : NULL;
    return bsearch(&id, info->methods, info->n_methods, sizeof *info->methods,
                   compare_id_with_method);
}

bool teffi_type_has_hook(const teff_grain_type *type, size_t at)
{
    void (*hook)(void);
    if (!at) /* the hook's slot is not known, so the hook may be set */
        return true;
    memcpy(&hook, (const char *)type->methods + at, sizeof hook);
    return hook != NULL;
}

bool teffi_type_activates_at_once(const teff_grain_type *type)
{
    return !type->info->state && !teffi_type_has_hook(type, type->info->on_activate_at);
}

/* The result of teff_grain_type_new() if memory is out. It is not NULL, because NULL would end the
 * program's list of types. */
static teff_grain_type no_memory;

teff_grain_type *teff_grain_type_new(const teff_type_info *info, const void *methods, void *user)
{
    teff_grain_type *type = malloc(sizeof *type);
    _Atomic uint32_t *slow = calloc(info->n_methods + 1, sizeof *slow);
    if (!type || !slow) {
        free(type);
        free(slow);
        return &no_memory;
    }
    *type = (teff_grain_type){.info = info,
                              .methods = methods,
                              .user = user,
                              .sure_bytes = teffi_message_unchecked_bytes_max(info),
                              .slow = slow};
    return type;
}

void teff_grain_type_free(teff_grain_type *type)
{
    if (!type || type == &no_memory)
        return;
    free(type->slow);
    free(type->incoming);
    free(type);
}

void teff_grain_type_priority(teff_grain_type *type, int8_t priority)
{
    if (type != &no_memory)
        type->priority = priority;
}

/* ---- limits of messages ---- */

static teffi_limits get_limits(const teff_type_info *info)
{
    return (teffi_limits){
        .bytes = teffi_message_max(info), .fields = TEFF_FIELDS_MAX, .memory = TEFF_UNPACKED_MAX};
}

/* Repeats a failed check, to get the error text. Not inlined, because the compiler zeroes all
 * locals: if this were part of teffi_message_check(), each check would zero the text's buffer, also
 * if the check succeeds. */
__attribute__((noinline)) static teff_err
repeat_check_for_error_text(teff_ctx *ctx, const teff_type_info *info, const teff_message_ops *ops,
                            const ProtobufCMessage *body, const char *what, size_t *packed)
{
    const teffi_limits limits = get_limits(info);
    char text[TEFF_TEXT_MAX];
    teff_err err = teffi_check_message(ops->desc, body, &limits, what, packed, text);
    return err ? teff_fail(ctx, err, "the %s", text) : TEFF_OK;
}

teff_err teffi_message_check(teff_ctx *ctx, const teff_type_info *info, const teff_message_ops *ops,
                             const ProtobufCMessage *body, const char *what, size_t *packed)
{
    const teffi_limits limits = get_limits(info);
    if (!teffi_check_message(ops->desc, body, &limits, what, packed, NULL))
        return TEFF_OK;
    return repeat_check_for_error_text(ctx, info, ops, body, what, packed);
}

teff_err teffi_message_explain_failed_copy(teff_ctx *ctx, const teff_type_info *info,
                                           const teff_message_ops *ops,
                                           const ProtobufCMessage *body, const char *what)
{
    size_t packed;
    teff_err err = teffi_message_check(ctx, info, ops, body, what, &packed);
    return err ? err : teff_fail(ctx, TEFF_E_NOMEM, "out of memory for the %s", what);
}

ProtobufCMessage *teffi_message_check_copy(const teff_type_info *info, const teff_message_ops *ops,
                                           teff_arena *arena, ProtobufCMessage *copy)
{
    const teffi_limits limits = get_limits(info);
    size_t packed;
    bool bad = arena->bad_text || !copy;
    arena->bad_text = false;
    return bad || teffi_check_message(ops->desc, copy, &limits, "", &packed, NULL) ? NULL : copy;
}
