/* keep.c - allocate in a state: memory, copies, elements of lists.
 *
 * The table of rooms has the capacity of each list that was appended to; other lists (loaded,
 * compacted, made by the program) are full. Compaction removes the spare room of lists. So the
 * spare room from a list's first growth after a compaction does not count as garbage: else each
 * append would cause the next compaction. */
#include <string.h>
#include "activation/state.h"

/* The capacity of one list. Entries of freed lists may stay: an arena gives no address twice. */
typedef struct teffi_room {
    const void *list; /* NULL: empty */
    size_t n_max;     /* capacity in elements */
} teffi_room;

typedef struct teffi_rooms {
    size_t n, max; /* entries used; size of at, a power of two of at least 2 * n */
    teffi_room at[];
} teffi_rooms;

enum { ROOMS_MIN = 4, ELEMENTS_MIN = 4 };

/* ---- memory ---- */

/* Ends the turn with TEFF_E_NOMEM, because an allocation of n bytes in the state has failed: the
 * state's memory has reached its limit, or the system is out of memory. */
static _Noreturn void exit_turn_after_failed_state_alloc(teff_ctx *ctx, const teffi_activation *act,
                                                         size_t n)
{
    const teff_arena *arena = act->stored->arena;
    (void)teff_fail(ctx, TEFF_E_NOMEM,
                    "no memory for %zu bytes more: the state has %zu, replaced values included; at "
                    "most %d",
                    n, arena->used_bytes, TEFF_STATE_MEMORY_MAX);
    teffi_ctx_exit_turn(ctx, TEFF_E_NOMEM);
}

/* out: the activation whose turn runs on ctx. Ends the turn if the activation has no state. */
static teffi_activation *get_activation_or_exit_turn(teff_ctx *ctx)
{
    teffi_activation *act = teffi_state_owner(ctx);
    if (act)
        return act;
    (void)teff_fail(ctx, TEFF_E_INVALID,
                    "memory of a state is only for turns of a type with state");
    teffi_ctx_exit_turn(ctx, TEFF_E_INVALID);
}

/* Ends the turn if an allocation of n bytes in act's state has failed. Otherwise the turn goes on;
 * if the state has become large, a pause begins, in which no other turn starts
 * (teffi_state_pause_turns_if_large()). in: p: the allocated memory, or NULL if the allocation has
 * failed. out: p. */
static void *check_state_allocation(teff_ctx *ctx, teffi_activation *act, size_t n, void *p)
{
    if (!p)
        exit_turn_after_failed_state_alloc(ctx, act, n);
    teffi_state_pause_turns_if_large(act);
    return p;
}

void *teff_state_alloc(teff_ctx *ctx, size_t n)
{
    teffi_activation *act = get_activation_or_exit_turn(ctx);
    return check_state_allocation(ctx, act, n, teff_arena_alloc(act->stored->arena, n));
}

/* ---- copies ---- */

char *teff_state_strdup(teff_ctx *ctx, const char *s)
{
    teffi_activation *act = get_activation_or_exit_turn(ctx);
    size_t n = s ? strlen(s) : 0;
    return check_state_allocation(ctx, act, n + 1, teff_arena_copy(act->stored->arena, s, n));
}

ProtobufCBinaryData teff_state_copy_bytes(teff_ctx *ctx, ProtobufCBinaryData src)
{
    teffi_activation *act = get_activation_or_exit_turn(ctx);
    if (!src.data || !src.len)
        return (ProtobufCBinaryData){0, NULL};
    void *data = teff_arena_copy(act->stored->arena, src.data, src.len); /* adds a zero byte */
    return (ProtobufCBinaryData){src.len, check_state_allocation(ctx, act, src.len + 1, data)};
}

/* Ends the turn after a copy of src has failed. Possible reasons: src exceeds a limit of states
 * (teffi_state_limits) or is not valid; the state's memory has reached its limit; or the system is
 * out of memory. */
static _Noreturn void exit_turn_after_failed_copy(teff_ctx *ctx, const teffi_activation *act,
                                                  const teff_message_ops *ops,
                                                  const ProtobufCMessage *src)
{
    char text[TEFF_TEXT_MAX];
    size_t len = 0;
    teff_err err = teffi_check_message(ops->desc, src, &teffi_state_limits, "the copy", &len, text);
    if (!err)
        exit_turn_after_failed_state_alloc(ctx, act, len);
    (void)teff_fail(ctx, err, "%s", text);
    teffi_ctx_exit_turn(ctx, err);
}

ProtobufCMessage *teff_state_copy(teff_ctx *ctx, const teff_message_ops *ops,
                                  const ProtobufCMessage *src)
{
    teffi_activation *act = get_activation_or_exit_turn(ctx);
    if (!src)
        return NULL;
    ProtobufCMessage *copy = ops->copy(act->stored->arena, src);
    if (!copy)
        exit_turn_after_failed_copy(ctx, act, ops, src);
    teffi_state_pause_turns_if_large(act);
    return copy;
}

/* ---- lists ---- */

/* out: the entry that holds the capacity of `list`. If there is none, the empty entry in which this
 * capacity can be stored. The search always ends, because at least half of the entries are
 * empty. */
static teffi_room *find_room_entry(teffi_rooms *rooms, const void *list)
{
    size_t at = (size_t)(((uintptr_t)list >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 32);
    while (rooms->at[at & (rooms->max - 1)].list && rooms->at[at & (rooms->max - 1)].list != list)
        at++;
    return &rooms->at[at & (rooms->max - 1)];
}

/* out: list's capacity, or 0 if nothing was appended to list since the last compaction. In the
 * latter case the list is full, because a compaction leaves no spare room. */
static size_t find_capacity(const teffi_stored *stored, const void *list)
{
    return stored->rooms ? find_room_entry(stored->rooms, list)->n_max : 0;
}

/* Makes a table of twice the size of `old`, and copies the entries of `old` to it. in: old: NULL if
 * there is no table yet; then makes an empty table of size ROOMS_MIN. */
static teffi_rooms *make_larger_room_table(teff_ctx *ctx, const teffi_rooms *old)
{
    size_t max = old ? 2 * old->max : ROOMS_MIN;
    teffi_rooms *rooms = teff_state_alloc(ctx, sizeof *rooms + max * sizeof rooms->at[0]);
    rooms->max = max;
    if (!old)
        return rooms;
    rooms->n = old->n;
    for (size_t i = 0; i < old->max; i++)
        if (old->at[i].list)
            *find_room_entry(rooms, old->at[i].list) = old->at[i];
    return rooms;
}

static void add_room_entry(teff_ctx *ctx, teffi_stored *stored, const void *list, size_t n_max)
{
    if (!stored->rooms || 2 * (stored->rooms->n + 1) > stored->rooms->max)
        stored->rooms = make_larger_room_table(ctx, stored->rooms);
    *find_room_entry(stored->rooms, list) = (teffi_room){list, n_max};
    stored->rooms->n++;
}

/* out: the new capacity of a full list of n elements: 2 * n, but at least n + ELEMENTS_MIN. If the
 * state's memory has no room for such an array, the capacity is as many elements as fill 15/16 of
 * the free memory, but at least n + 1. The other 1/16 is for what the elements point to. in: size:
 * the size of one element. */
static size_t compute_grown_capacity(const teff_arena *arena, size_t n, size_t size)
{
    size_t left = (arena->budget_bytes - arena->used_bytes) / size;
    size_t more = n > ELEMENTS_MIN ? n : ELEMENTS_MIN;
    if (n + more > left)
        more = left - left / 16 > n ? left - left / 16 - n : 1;
    return n + more;
}

/* Copies the list to a larger array and stores that array's capacity. If a list with elements grows
 * for the first time since a compaction, adds the spare room of the new array to grown_bytes,
 * because this spare room does not count as garbage. in: list: NULL if the list is empty.
 * size: the size of one element. out: the new array. */
static void *grow_list(teff_ctx *ctx, teffi_activation *act, const void *list, size_t n,
                       size_t size)
{
    teffi_stored *stored = act->stored;
    size_t n_max = compute_grown_capacity(stored->arena, n, size);
    void *new = check_state_allocation(ctx, act, n_max * size,
                                       teff_arena_take(stored->arena, n_max * size));
    if (list)
        memcpy(new, list, n * size);
    bool first = n && !find_capacity(stored, list);
    add_room_entry(ctx, stored, new, n_max);
    if (first)
        stored->grown_bytes += (n_max - n) * size;
    return new;
}

void teff_state_append(teff_ctx *ctx, void *list, size_t *n, const void *element, size_t size)
{
    teffi_activation *act = get_activation_or_exit_turn(ctx);
    char *elements;
    memcpy(&elements, list, sizeof elements); /* *list, a pointer of any type */
    if (!elements)
        *n = 0;
    if (!elements || *n >= find_capacity(act->stored, elements)) {
        elements = grow_list(ctx, act, elements, *n, size);
        memcpy(list, &elements, sizeof elements);
    }
    memcpy(elements + *n * size, element, size);
    ++*n;
}

void teff_state_append_text(teff_ctx *ctx, void *list, size_t *n, const char *src)
{
    const char *copy = teff_state_strdup(ctx, src);
    teff_state_append(ctx, list, n, &copy, sizeof copy);
}

void teff_state_append_bytes(teff_ctx *ctx, void *list, size_t *n, ProtobufCBinaryData src)
{
    const ProtobufCBinaryData copy = teff_state_copy_bytes(ctx, src);
    teff_state_append(ctx, list, n, &copy, sizeof copy);
}

ProtobufCMessage *teff_state_append_message(teff_ctx *ctx, void *list, size_t *n,
                                            const teff_message_ops *ops,
                                            const ProtobufCMessage *src)
{
    ProtobufCMessage *copy = teff_state_copy(ctx, ops, src);
    if (!copy) { /* src is NULL: append an empty message */
        copy = teff_state_alloc(ctx, ops->desc->sizeof_message);
        protobuf_c_message_init(ops->desc, copy);
    }
    teff_state_append(ctx, list, n, &copy, sizeof copy);
    return copy;
}
