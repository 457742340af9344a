/* shard.c - find, make, push to and remove this silo's activations, by identity. */
#include "directory/shard.h"

#include <assert.h>
#include <stdlib.h>
#include "activation/turn.h"
#include "base/bug.h"

/* ---- memory ---- */

enum { IMAGE_ENTRIES = 1024, ENTRIES_MAX = 1 << 30 };

static_assert(ENTRIES_MAX < TEFFI_PROCESS_BIT - TEFFI_SLOT_SYSTEM_END,
              "slots of activations are not those of processes");

/* The slab's callback `begin`: stores slot and generation in an entry. */
static void store_slot_and_generation(void *entry, uint32_t slot, uint32_t generation, void *owner)
{
    teffi_activation *act = entry;
    (void)owner;
    /* relaxed: other threads get the slot by later operations, which order this store */
    atomic_store_explicit(&act->slot, slot + TEFFI_SLOT_SYSTEM_END, memory_order_relaxed);
    act->generation = generation;
}

/* The slab's callback `last_use`. out: the slot and the generation that a free entry had when it
 * was last in use. */
static teffi_slab_use get_last_use(const void *entry)
{
    const teffi_activation *act = entry;
    return (teffi_slab_use){act->slot - TEFFI_SLOT_SYSTEM_END, act->generation};
}

static const teffi_slab_type activation_type = {.bytes = sizeof(teffi_activation),
                                                .link = offsetof(teffi_activation, free),
                                                .entries_max = ENTRIES_MAX,
                                                .begin = store_slot_and_generation,
                                                .last_use = get_last_use};

bool teffi_activation_slab_init(teffi_slab *memory, teffi_grains *grains)
{
    teffi_activation *image = calloc(IMAGE_ENTRIES, sizeof *image);
    for (int i = 0; image && i < IMAGE_ENTRIES; i++)
        teffi_activation_init(&image[i], grains);
    bool ok = image && teffi_slab_init(memory, &activation_type, grains, image, IMAGE_ENTRIES);
    free(image);
    return ok;
}

static void discard_entry(void *entry)
{
    teffi_activation_discard_contents(entry);
}

bool teffi_shards_init(teffi_shards *shards, teffi_grains *grains)
{
    for (int i = 0; i < TEFFI_PARTITIONS; i++)
        pthread_mutex_init(&shards->at[i].lock, NULL);
    pthread_mutex_init(&shards->parked_lock, NULL);
    shards->grains = grains;
    return teffi_activation_slab_init(&shards->memory, grains);
}

void teffi_shards_fini(teffi_shards *shards)
{
    teffi_slab_fini(&shards->memory, discard_entry);
    for (int i = 0; i < TEFFI_PARTITIONS; i++) {
        teffi_index_fini(&shards->at[i].index);
        pthread_mutex_destroy(&shards->at[i].lock);
    }
    pthread_mutex_destroy(&shards->parked_lock);
}

void teffi_shard_reclaim_activation(teffi_activation *act)
{
    teffi_shards *shards = act->grains->shards;
    teffi_slab_put(&shards->memory, act); /* may be reused for another grain from here on */
    /* release: pairs with count_activations() in install.c. If count_activations() loads 0,
     * the leaving silo also sees what was done before this subtraction: the requests that were left
     * in the activations have been routed again. */
    atomic_fetch_sub_explicit(&shards->activations, 1, memory_order_release);
}

/* ---- finding ---- */

teffi_activation *teffi_shard_find_activation_locked(teffi_grains *grains, const teffi_ident *ident)
{
    teffi_probe probe;
    teffi_shard *shard = teffi_shard_of(grains, ident->hash);
    uint32_t slot = teffi_index_find_first(&probe, &shard->index, ident->hash);
    for (; slot; slot = teffi_index_find_next(&probe)) {
        teffi_activation *act = teffi_activation_at(&grains->shards->memory, slot);
        teffi_ident found = teffi_activation_ident(act);
        if (teffi_ident_equals(&found, ident))
            return act;
    }
    return NULL;
}

teffi_activation *teffi_shard_find_activation_without_lock(teffi_grains *grains,
                                                           const teffi_ident *ident, bool *certain)
{
    teffi_shard *shard = teffi_shard_of(grains, ident->hash);
    teffi_probe probe;
    *certain = false;
    /* relaxed: if this load misses a new collision, the result may be the activation of another
     * grain. That activation compares the identity and routes the request again. */
    if (atomic_load_explicit(&shard->hash_collision, memory_order_relaxed))
        return NULL;
    uint32_t slot = teffi_index_find_first(&probe, &shard->index, ident->hash);
    for (; slot; slot = teffi_index_find_next(&probe)) {
        teffi_activation *act = teffi_activation_at(&grains->shards->memory, slot);
        /* relaxed: the activation compares the identity when it handles the request */
        if (atomic_load_explicit(&act->hash, memory_order_relaxed) == ident->hash)
            return act;
    }
    *certain = teffi_index_search_was_complete(&probe);
    return NULL;
}

void teffi_shard_set_hash_collision(teffi_grains *grains, uint64_t hash)
{
    atomic_store_explicit(&teffi_shard_of(grains, hash)->hash_collision, true,
                          memory_order_relaxed);
}

teffi_activation *teffi_shard_find_activation_by_pid(teffi_grains *grains, const teffi_ident *ident,
                                                     teffi_pid pid)
{
    teffi_activation *act = teffi_shard_find_activation_locked(grains, ident);
    return act && teffi_pid_equals(teffi_activation_pid(act), pid) ? act : NULL;
}

bool teffi_shard_has_activation(teffi_grains *grains, const teffi_ident *ident,
                                const teffi_pid *pid)
{
    teffi_shard *shard = teffi_shard_of(grains, ident->hash);
    pthread_mutex_lock(&shard->lock);
    bool has = pid ? teffi_shard_find_activation_by_pid(grains, ident, *pid) != NULL
                   : teffi_shard_find_activation_locked(grains, ident) != NULL;
    pthread_mutex_unlock(&shard->lock);
    return has;
}

/* ---- making, pushing, removing ---- */

/* Takes a free activation from the slab and gives it the identity `ident`. Also reserves a place in
 * the index, so that the later teffi_index_add() cannot fail. The shard's lock is held. errs:
 * TEFF_E_NOMEM, TEFF_E_INVALID. */
static teff_err take_free_activation(teffi_grains *grains, const teff_grain_type *type,
                                     const teffi_ident *ident, teffi_activation **out)
{
    teffi_activation *act = teffi_slab_take(&grains->shards->memory);
    if (!act)
        return TEFF_E_NOMEM;
    teff_err err = teffi_index_reserve(&teffi_shard_of(grains, ident->hash)->index)
                       ? teffi_activation_give_identity(act, type, ident)
                       : TEFF_E_NOMEM;
    if (err)
        teffi_slab_put(&grains->shards->memory, act);
    else
        *out = act;
    return err;
}

teff_err teffi_shard_create_activation(teffi_grains *grains, const teffi_ident *ident,
                                       bool registered, bool *claimed, teffi_activation **out)
{
    const teff_grain_type *type = teffi_type_find(grains, ident->type);
    if (!type)
        return TEFF_E_NOT_FOUND;
    /* seq_cst: pairs with teffi_grains_end_all_activations(), which clears `accepting` and
     * afterwards loads this counter. Either its load includes this activation, or the load of
     * `accepting` below returns false, and no activation is made. */
    uint64_t n =
        atomic_fetch_add_explicit(&grains->shards->activations, 1, memory_order_seq_cst) + 1;
    teff_err err =
        !atomic_load_explicit(&grains->accepting, memory_order_seq_cst) ? TEFF_E_NOT_FOUND
        : teffi_shards_are_full(grains, n - 1)                          ? TEFF_E_OVERLOADED
                                               : take_free_activation(grains, type, ident, out);
    if (err) {
        atomic_fetch_sub_explicit(&grains->shards->activations, 1, memory_order_release);
        return err;
    }
    teffi_activation *act = *out;
    act->registered = registered && !teffi_type_is_stateless(type);
    if (claimed && (*claimed = teffi_group_claim(&act->group)))
        act->phase = TEFFI_VALID;
    bool added =
        teffi_index_add(&teffi_shard_of(grains, ident->hash)->index, ident->hash, act->slot);
    teffi_bug_if(!added);
    return TEFF_OK;
}

/* Finds the grain's activation, or makes it if may_create, and pushes msg to it. Does all of this
 * under the shard's lock, so that a new activation gets its first request before it can end. out:
 * *act; *deep, as teffi_activation_push(). errs: as teffi_shard_push_request(). */
static teff_err push_under_lock(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                                bool may_create, teffi_activation **act, uint32_t *deep)
{
    teffi_shard *shard = teffi_shard_of(grains, ident->hash);
    teff_err err = TEFF_OK;
    pthread_mutex_lock(&shard->lock);
    *act = teffi_shard_find_activation_locked(grains, ident);
    if (!*act)
        err = may_create ? teffi_shard_create_activation(grains, ident, false, NULL, act)
                         : TEFF_E_NOT_FOUND;
    if (!err)
        err = teffi_activation_push(*act, teffi_type_find(grains, ident->type), msg, deep);
    pthread_mutex_unlock(&shard->lock);
    return err;
}

teff_err teffi_shard_push_request(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                                  bool may_create)
{
    uint32_t deep = 0;
    bool certain;
    teffi_activation *act = teffi_shard_find_activation_without_lock(grains, ident, &certain);
    /* TEFF_E_CLOSED: act has ended, or no activation was found. In both cases push_under_lock()
     * repeats the search. It is not called if there is certainly none and none may be created. */
    teff_err err = TEFF_E_CLOSED;
    if (act)
        err = teffi_activation_push(act, teffi_type_find(grains, ident->type), msg, &deep);
    if (certain && !may_create)
        return TEFF_E_NOT_FOUND;
    if (err == TEFF_E_CLOSED)
        err = push_under_lock(grains, ident, msg, may_create, &act, &deep);
    if (deep)
        teffi_warn_long_queue(&act->group, deep);
    return err;
}

void teffi_shard_remove_activation(teffi_activation *act)
{
    uint64_t hash = teffi_activation_ident(act).hash;
    teffi_shard *shard = teffi_shard_of(act->grains, hash);
    pthread_mutex_lock(&shard->lock);
    teffi_index_del(&shard->index, hash, act->slot);
    act->registered = false;
    pthread_mutex_unlock(&shard->lock);
}

bool teffi_shard_ask_duplicate_to_end(teffi_grains *grains, const teffi_ident *ident, teffi_pid pid)
{
    teffi_shard *shard = teffi_shard_of(grains, ident->hash);
    pthread_mutex_lock(&shard->lock);
    teffi_activation *act = teffi_shard_find_activation_by_pid(grains, ident, pid);
    bool was_registered = act && act->registered;
    if (was_registered) {
        act->registered = false;
        teffi_activation_ask_to_end(act, TEFF_REASON_DUPLICATE);
    }
    pthread_mutex_unlock(&shard->lock);
    return was_registered;
}

/* A cursor of teffi_shards_walk_activations(), from the highest bits to the lowest: partition (16
 * bits), low 16 bits of index.moves, number of the next cell (32 bits). A rebuild of the index
 * changes index.moves, and makes the number of the cell invalid. */
static uint64_t make_cursor(unsigned part, uint32_t moves, uint32_t cell)
{
    return (uint64_t)part << 48 | (uint64_t)(moves & 0xffff) << 32 | cell;
}

/* Visits the activations of shard `part`, beginning at *cursor. Begins at the shard's start if
 * *cursor is for another shard, or was made before a rebuild of the index. Stops if visit returns
 * false. out: *cursor, where to continue; true if the walk has reached the end of the shard. */
static bool walk_shard(teffi_grains *grains, unsigned part, uint64_t *cursor,
                       bool (*visit)(void *arg, teffi_activation *act), void *arg)
{
    teffi_shard *shard = &grains->shards->at[part];
    uint32_t slot = 0;
    bool more = true;
    pthread_mutex_lock(&shard->lock);
    uint32_t moves = atomic_load_explicit(&shard->index.moves, memory_order_relaxed);
    bool goes_on = *cursor >> 32 == make_cursor(part, moves, 0) >> 32;
    uint32_t cell = goes_on ? (uint32_t)*cursor : 0;
    while (more && (slot = teffi_index_next_number(&shard->index, &cell)))
        more = visit(arg, teffi_activation_at(&grains->shards->memory, slot));
    *cursor = make_cursor(part, moves, cell);
    pthread_mutex_unlock(&shard->lock);
    return slot == 0;
}

bool teffi_shards_walk_activations(teffi_grains *grains, const uint8_t *set, uint64_t *cursor,
                                   bool (*visit)(void *arg, teffi_activation *act), void *arg)
{
    for (unsigned part = (unsigned)(*cursor >> 48); part < TEFFI_PARTITIONS; part++)
        if ((!set || teffi_set_has_partition(set, part)) &&
            !walk_shard(grains, part, cursor, visit, arg))
            return false;
    *cursor = 0;
    return true;
}
