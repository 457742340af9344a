/* type.h - the grain types that a silo hosts, and their methods; the limits of their requests and
 * responses, the same for grains here and on other silos.
 * Way:     shard, direct, reference (requests), turn (responses) -> [type] -> message/check
 * Threads: any; a type is immutable after start, but for slow. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <teff/generated.h>
#include "memory/arena.h"

struct teffi_grains;
struct teff_filter;

typedef struct teffi_incoming teffi_incoming;

struct teff_grain_type {
    const teff_type_info *info;
    const void *methods;
    void *user;
    size_t sure_bytes; /* from teffi_message_unchecked_bytes_max() */
    int8_t priority;
    /* atomic, by method: calls to queue | consecutive long calls << 16 (request/direct.c) */
    _Atomic uint32_t *slow;
    const struct teff_filter *filters; /* of the type alone; NULL: none */
    teffi_incoming *incoming; /* NULL: no filters, and info is the generated one (filter.h) */
};

enum { TEFFI_IDLE_DEFAULT_MS = 15 * 60 * 1000, TEFFI_QUEUE_DEFAULT = 10000 };

/* teffi_type_find - a hosted type by id; NULL: not hosted here. */
const teff_grain_type *teffi_type_find(const struct teffi_grains *grains, uint32_t id);

/* teffi_types_sort - sort by id, for teffi_type_find. */
void teffi_types_sort(teff_grain_type **types, size_t n);

/* The method_id of a request that carries a tick of a reminder (teff.cluster.Tick). No method of a
 * grain type has it, and no client may send it. */
enum { TEFFI_METHOD_TICK = 0 };

/* teffi_tick_method - the method of ticks, for types with on_reminder: see reminder/remind.c. */
extern const teff_method teffi_tick_method;

/* teffi_method_find - a method of the type by id, also teffi_tick_method; NULL: no such method. */
const teff_method *teffi_method_find(const teff_type_info *info, uint32_t id);

/* teffi_type_has_hook - did the program set the hook whose slot is at byte offset `at` of
 * type->methods? If `at` is 0, the generated code does not know the slot; the result is true. */
bool teffi_type_has_hook(const teff_grain_type *type, size_t at);

/* teffi_type_activates_at_once - has type neither state nor on_activate? Then its activations are
 * VALID as soon as they are registered. */
bool teffi_type_activates_at_once(const teff_grain_type *type);

/* teffi_type_is_stateless - is the type a stateless worker (directory/stateless.h)? */
static inline bool teffi_type_is_stateless(const teff_grain_type *type)
{
    return type->info->placement == TEFF_PLACE_STATELESS;
}

/* teffi_queue_max - how many requests may wait at one activation. */
static inline uint32_t teffi_queue_max(const teff_type_info *info)
{
    return info->queue_max ? info->queue_max : TEFFI_QUEUE_DEFAULT;
}

/* teffi_idle_ms - the time without a request after which an activation is deactivated. At most 36
 * days: longer times cannot be told from delays (TEFFI_DELAY_MAX_MS). */
static inline uint32_t teffi_idle_ms(const teff_type_info *info)
{
    const uint32_t max = 36u * 24 * 60 * 60 * 1000;
    uint32_t ms = info->idle_ms ? info->idle_ms : TEFFI_IDLE_DEFAULT_MS;
    return ms < max ? ms : max;
}

/* ---- limits of messages ---- */

/* A packed value has at most 4 times its size in memory: an int32 of -1 has 4 bytes in memory, but
 * 10 packed and a tag of up to 5. A value has at least 4 bytes in memory, which bounds the number
 * of fields. */
enum { TEFFI_PACKED_PER_BYTE = 4 };

_Static_assert(TEFF_MESSAGE_MAX / TEFFI_PACKED_PER_BYTE <= TEFF_UNPACKED_MAX &&
                   TEFF_MESSAGE_MAX / TEFFI_PACKED_PER_BYTE / 4 <= TEFF_FIELDS_MAX,
               "a copy whose packed size is surely within the limit is within the others");

/* teffi_message_max - the most bytes that a packed request or response may have. */
static inline size_t teffi_message_max(const teff_type_info *info)
{
    return info->max_message_bytes ? info->max_message_bytes : TEFF_MESSAGE_MAX;
}

/* teffi_message_check - check that a message is within the limits of info, that its strings are
 * UTF-8 and that no required part is missing, with teffi_check_message (message/codec.h).
 * in:   body, of type ops. what: "request" or "response", for the error text.
 * out:  *packed, its packed size. On an error the text is in ctx.
 * errs: TEFF_E_TOO_LARGE, TEFF_E_MALFORMED. */
TEFF_MUST_USE teff_err teffi_message_check(teff_ctx *ctx, const teff_type_info *info,
                                           const teff_message_ops *ops,
                                           const ProtobufCMessage *body, const char *what,
                                           size_t *packed);

/* teffi_message_explain_failed_copy - the error for which teffi_message_copy_and_check returned
 * NULL, with a text in ctx.
 * errs: as teffi_message_check; TEFF_E_NOMEM. */
teff_err teffi_message_explain_failed_copy(teff_ctx *ctx, const teff_type_info *info,
                                           const teff_message_ops *ops,
                                           const ProtobufCMessage *body, const char *what);

/* teffi_message_check_copy - the slow path of teffi_message_copy_and_check: check a copy that is
 * large, failed (NULL) or has a text that is not UTF-8 (arena->bad_text, which is cleared). out:
 * copy; NULL: it failed, has such a text or breaks a limit. */
ProtobufCMessage *teffi_message_check_copy(const teff_type_info *info, const teff_message_ops *ops,
                                           teff_arena *arena, ProtobufCMessage *copy);

/* teffi_message_unchecked_bytes_max - the largest size in memory of a message that is not checked:
 * a message of this size or less cannot exceed the limits. */
static inline size_t teffi_message_unchecked_bytes_max(const teff_type_info *info)
{
    return teffi_message_max(info) / TEFFI_PACKED_PER_BYTE;
}

/* teffi_message_copy_and_check - copy src into arena, and check that the copy is within the limits
 * of info.
 * in:   sure: teffi_message_unchecked_bytes_max(info).
 * out:  the copy. NULL: there is no memory, or src exceeds a limit or has a text that is not UTF-8;
 *       teffi_message_explain_failed_copy() finds out which. */
static inline ProtobufCMessage *
teffi_message_copy_and_check(const teff_type_info *info, size_t sure, const teff_message_ops *ops,
                             teff_arena *arena, const ProtobufCMessage *src)
{
    size_t before = arena->used_bytes;
    ProtobufCMessage *copy = ops->copy(arena, src);
    bool small = arena->used_bytes - before <= sure;
    return copy && small && !arena->bad_text ? copy
                                             : teffi_message_check_copy(info, ops, arena, copy);
}
