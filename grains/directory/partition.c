/* partition.c - the registrations of the partitions that this silo owns, and their recovery. */
#include "directory/partition.h"

#include <stdlib.h>
#include "cluster/membership.h"
#include "directory/placement.h"
#include "node/deliver.h"

typedef struct entry { /* in teffi_shard.entries: a grain held by another silo */
    teffi_tnode node;
    teffi_pid pid;
    uint32_t type, key_len;
    uint8_t key[];
} entry;

/* ---- entries ---- */

/* Drops all entries of the partition from its table, and frees them and the table's memory. The
 * table can be used again. */
static void drop_entries(teffi_shard *shard)
{
    size_t at = 0;
    teffi_tnode *next = NULL, *node;
    while ((node = teffi_table_next_node(&shard->entries, &at, &next))) {
        teffi_table_del(&shard->entries, node);
        free(teffi_container(node, entry, node));
    }
    teffi_table_fini(&shard->entries);
}

static entry *find_holder_entry(teffi_shard *shard, const teffi_ident *ident)
{
    teffi_tnode *node = teffi_table_find_first(&shard->entries, ident->hash);
    for (; node; node = teffi_table_find_next(node)) {
        entry *e = teffi_container(node, entry, node);
        if (e->type == ident->type && e->key_len == ident->key_len &&
            memcmp(e->key, ident->key, e->key_len) == 0)
            return e;
    }
    return NULL;
}

/* out: the new entry; NULL: out of memory. */
static entry *insert_entry(teffi_shard *shard, const teffi_ident *ident, teffi_pid pid)
{
    entry *e = malloc(sizeof *e + ident->key_len);
    if (!e)
        return NULL;
    e->pid = pid;
    e->type = ident->type;
    e->key_len = ident->key_len;
    memcpy(e->key, ident->key, ident->key_len);
    if (!teffi_table_add(&shard->entries, &e->node, ident->hash)) {
        free(e);
        return NULL;
    }
    return e;
}

/* Finds the grain's entry. UNREGISTER: drops the entry if pid holds the grain. Other methods: drops
 * the entry if the holder's silo has left the view. out: the entry; NULL: there was none, or it was
 * dropped. */
static entry *find_or_drop_entry(teffi_grains *grains, teffi_shard *shard, uint32_t method,
                                 const teffi_ident *ident, teffi_pid pid)
{
    entry *e = find_holder_entry(shard, ident);
    if (!e || (method == TEFFI_METHOD_UNREGISTER
                   ? !teffi_pid_equals(e->pid, pid)
                   : teffi_view_current_has_member(grains->node, e->pid.node)))
        return e;
    teffi_table_del(&shard->entries, &e->node);
    free(e);
    return NULL;
}

/* out: this silo's activation of the grain; NULL: there is none, or it is not registered. */
static teffi_activation *find_registered_activation(teffi_grains *grains, const teffi_ident *ident)
{
    teffi_activation *act = teffi_shard_find_activation_locked(grains, ident);
    return act && act->registered ? act : NULL;
}

/* Executes one of three methods: REGISTER or UNREGISTER of the activation whose PID is pid, or
 * LOOKUP of the grain. The shard's lock is held.
 * If the activation is of this silo: REGISTER sets act->registered and UNREGISTER clears it, unless
 * the grain has an entry, because an entry overrides the activation. If the activation is of
 * another silo: REGISTER adds an entry if no activation holds the grain; UNREGISTER drops the
 * entry, by find_or_drop_entry().
 * out: as teffi_partition_execute_directory_method(). */
static teff_err execute_directory_method_locked(teffi_grains *grains, teffi_shard *shard,
                                                uint32_t method, const teffi_ident *ident,
                                                teffi_pid pid, teffi_pid *holder)
{
    entry *e = find_or_drop_entry(grains, shard, method, ident, pid);
    teffi_activation *act = e || method == TEFFI_METHOD_LOOKUP
                                ? NULL
                                : teffi_shard_find_activation_by_pid(grains, ident, pid);
    if (act)
        act->registered = method == TEFFI_METHOD_REGISTER;
    act = e ? NULL : find_registered_activation(grains, ident);
    if (act) {
        *holder = teffi_activation_pid(act);
        return TEFF_OK;
    }
    /* Only activations of other silos get an entry: those of this silo are in the index. */
    if (!e && method == TEFFI_METHOD_REGISTER && !teffi_node_equals(pid.node, grains->node->id)) {
        e = insert_entry(shard, ident, pid);
        if (!e)
            return TEFF_E_NOMEM;
    }
    if (!e)
        return TEFF_E_NOT_FOUND;
    *holder = e->pid;
    return TEFF_OK;
}

/* ---- parked requests ---- */

bool teffi_partitions_park_request(teffi_shards *shards, teffi_msg *msg)
{
    size_t bytes = sizeof *msg + TEFFI_MSG_INLINE + msg->raw_len + msg->key_len;
    pthread_mutex_lock(&shards->parked_lock);
    bool fits = shards->parked.count < TEFFI_PARKED_MAX &&
                shards->parked_bytes + bytes <= TEFFI_PARKED_BYTES_MAX;
    if (fits) {
        teffi_queue_push(&shards->parked, &msg->link);
        shards->parked_bytes += bytes;
    }
    pthread_mutex_unlock(&shards->parked_lock);
    return fits;
}

void teffi_partitions_deliver_parked_requests(teffi_grains *grains)
{
    teffi_shards *shards = grains->shards;
    teffi_queue parked = {0};
    teffi_qnode *n;
    pthread_mutex_lock(&shards->parked_lock);
    teffi_queue_move(&parked, &shards->parked);
    shards->parked_bytes = 0;
    pthread_mutex_unlock(&shards->parked_lock);
    while ((n = teffi_queue_pop(&parked)))
        teffi_node_deliver(grains->node, teffi_container(n, teffi_msg, link));
}

void teffi_partitions_fini(teffi_shards *shards)
{
    teffi_qnode *n;
    for (int i = 0; i < TEFFI_PARTITIONS; i++)
        drop_entries(&shards->at[i]);
    while ((n = teffi_queue_pop(&shards->parked)))
        teffi_msg_free(teffi_container(n, teffi_msg, link));
}

/* ---- registrations ---- */

teff_err teffi_partition_execute_directory_method(teffi_grains *grains, uint32_t method,
                                                  const teffi_ident *ident, teffi_pid pid,
                                                  teffi_pid *holder, teffi_msg *msg)
{
    teffi_shard *shard = teffi_shard_of(grains, ident->hash);
    teff_err err = TEFF_E_UNAVAILABLE;
    pthread_mutex_lock(&shard->lock);
    if (shard->phase == TEFFI_SERVING)
        err = execute_directory_method_locked(grains, shard, method, ident, pid, holder);
    else if (shard->phase == TEFFI_LOCKED && msg) /* parked under shard->lock: see parked_lock */
        err =
            teffi_partitions_park_request(grains->shards, msg) ? TEFF_E_CLOSED : TEFF_E_OVERLOADED;
    pthread_mutex_unlock(&shard->lock);
    return err;
}

bool teffi_activation_is_registered(const teffi_activation *act)
{
    teffi_shard *shard = teffi_shard_of(act->grains, teffi_activation_ident(act).hash);
    pthread_mutex_lock(&shard->lock);
    bool registered = act->registered;
    pthread_mutex_unlock(&shard->lock);
    return registered;
}

bool teffi_activation_set_registered(teffi_activation *act, bool registered)
{
    teffi_shard *shard = teffi_shard_of(act->grains, teffi_activation_ident(act).hash);
    pthread_mutex_lock(&shard->lock);
    bool before = act->registered;
    act->registered = registered;
    pthread_mutex_unlock(&shard->lock);
    return before;
}

/* ---- making a registered activation ---- */

/* Can this silo place the grain, which means choose a silo for it? Yes if this silo serves the
 * grain's partition and no other silo holds the grain. Drops the grain's entry if the holder's silo
 * has left the view. in: this silo has no activation of the grain. The shard's lock is held. */
static bool can_place_grain(teffi_grains *grains, const teffi_ident *ident)
{
    teffi_shard *shard = teffi_shard_of(grains, ident->hash);
    return shard->phase == TEFFI_SERVING &&
           !find_or_drop_entry(grains, shard, TEFFI_METHOD_REGISTER, ident, (teffi_pid){0});
}

/* Finds this silo's activation of the grain. If there is none, places the grain: chooses a silo,
 * and creates the activation if that silo is this one. The shard's lock is held. out: TEFF_OK: *act
 * is the activation; the caller pushes msg. Errors: as teffi_partition_push_or_choose_silo(). */
static teff_err find_or_place_activation_locked(teffi_grains *grains, const teffi_ident *ident,
                                                teffi_msg *msg, teffi_node_id *placed,
                                                teffi_activation **act)
{
    *act = teffi_shard_find_activation_locked(grains, ident);
    if (*act)
        return TEFF_OK;
    if (!can_place_grain(grains, ident))
        return TEFF_E_UNAVAILABLE;
    *placed = teffi_placement_choose_silo(grains, ident, msg->flags);
    if (!teffi_node_equals(*placed, grains->node->id))
        return TEFF_E_NOT_FOUND;
    msg->flags |= TEFFI_MSG_PLACED;
    return teffi_shard_create_activation(grains, ident, true, NULL, act);
}

teff_err teffi_partition_push_or_choose_silo(teffi_grains *grains, const teffi_ident *ident,
                                             teffi_msg *msg, teffi_node_id *placed)
{
    teffi_shard *shard = teffi_shard_of(grains, ident->hash);
    teffi_activation *act;
    uint32_t deep = 0;
    pthread_mutex_lock(&shard->lock);
    teff_err err = find_or_place_activation_locked(grains, ident, msg, placed, &act);
    if (!err)
        err = teffi_activation_push(act, teffi_type_find(grains, ident->type), msg, &deep);
    pthread_mutex_unlock(&shard->lock);
    if (deep)
        teffi_warn_long_queue(&act->group, deep);
    return err;
}

teffi_activation *teffi_partition_create_claimed_activation(teffi_grains *grains,
                                                            const teffi_ident *ident)
{
    const teff_grain_type *type = teffi_type_find(grains, ident->type);
    teffi_activation *act = NULL;
    bool claimed = false;
    if (!type || !teffi_type_activates_at_once(type))
        return NULL;
    pthread_mutex_t *lock = &teffi_shard_of(grains, ident->hash)->lock;
    pthread_mutex_lock(lock);
    if (!teffi_shard_find_activation_locked(grains, ident) && can_place_grain(grains, ident) &&
        teffi_node_equals(
            teffi_placement_choose_silo(grains, ident, teffi_placement_flags(type->info)),
            grains->node->id) &&
        teffi_shard_create_activation(grains, ident, true, &claimed, &act) != TEFF_OK)
        act = NULL;
    pthread_mutex_unlock(lock);
    /* act's memory may have held the activation of another grain. If a late push for that grain
     * comes before the claim, the claim fails: the new activation exists, but the caller must queue
     * the request. */
    return claimed ? act : NULL;
}

/* ---- phases ---- */

/* Updates a partition's phase for a new view. in: mine: this silo is the owner in the new view.
 * version: of the new view. out: true: the partition is LOCKED.
 * If this silo stays the owner, the phase and the entries stay. This is correct even if this silo
 * missed a view in which another silo was the owner. That silo cannot have served the partition:
 * its recovery needed this silo's response for the missed view. */
static bool update_phase_for_view(teffi_shard *shard, bool mine, uint64_t version)
{
    pthread_mutex_lock(&shard->lock);
    if (mine && shard->phase == TEFFI_NOT_MINE) {
        shard->phase = TEFFI_LOCKED;
        shard->since = version;
    }
    if (!mine && shard->phase != TEFFI_NOT_MINE) {
        shard->phase = TEFFI_NOT_MINE;
        drop_entries(shard);
    }
    bool locked = shard->phase == TEFFI_LOCKED;
    pthread_mutex_unlock(&shard->lock);
    return locked;
}

bool teffi_partitions_adopt_view(teffi_grains *grains, const teffi_view *now)
{
    teffi_shards *shards = grains->shards;
    bool locked = false;
    for (unsigned i = 0; i < TEFFI_PARTITIONS; i++) {
        bool mine = teffi_node_equals(teffi_view_owner(now, i), grains->node->id);
        locked |= update_phase_for_view(&shards->at[i], mine, now->version);
    }
    /* release: pairs with park_if_behind() in server.c. A request that park_if_behind() does not
     * park finds the phases of this view or of a newer one. */
    atomic_store_explicit(&shards->version, now->version, memory_order_release);
    teffi_partitions_deliver_parked_requests(grains);
    if (grains->phases_changed)
        grains->phases_changed(grains);
    return locked;
}

/* ---- recovery ---- */

bool teffi_partitions_begin_recovery_round(teffi_grains *grains, uint8_t *set)
{
    bool any = false;
    if (set)
        memset(set, 0, TEFFI_PARTITION_SET_BYTES);
    for (unsigned i = 0; i < TEFFI_PARTITIONS; i++) {
        teffi_shard *shard = &grains->shards->at[i];
        pthread_mutex_lock(&shard->lock);
        bool locked = shard->phase == TEFFI_LOCKED;
        if (locked && set) {
            drop_entries(shard); /* earlier rounds of recovery have put them there */
            set[i / 8] |= (uint8_t)(1u << i % 8);
        }
        pthread_mutex_unlock(&shard->lock);
        any |= locked;
    }
    return any;
}

/* Makes pid the grain's holder if the grain has no holder, or if pid is lower than the present
 * holder. If that holder is an activation of this silo, it stays in the index, but the new entry
 * of pid overrides it. The shard's lock is held. out: as teffi_partition_merge_activation(). */
static teff_err merge_activation_locked(teffi_grains *grains, teffi_shard *shard,
                                        const teffi_ident *ident, teffi_pid pid, teffi_pid *loser)
{
    entry *e = find_holder_entry(shard, ident);
    teffi_activation *act = e ? NULL : find_registered_activation(grains, ident);
    teffi_pid holder = e ? e->pid : act ? teffi_activation_pid(act) : pid;
    bool won = !teffi_pid_is_lower(holder, pid);
    *loser = won ? holder : pid;
    if (won && e)
        e->pid = pid;
    else if (won && !insert_entry(shard, ident, pid))
        return TEFF_E_NOMEM;
    return teffi_pid_equals(holder, pid) ? TEFF_OK : TEFF_E_EXISTS;
}

teff_err teffi_partition_merge_activation(teffi_grains *grains, const teffi_ident *ident,
                                          teffi_pid pid, uint64_t version, teffi_pid *loser)
{
    teffi_shard *shard = teffi_shard_of(grains, ident->hash);
    teff_err err = TEFF_E_CLOSED;
    pthread_mutex_lock(&shard->lock);
    if (shard->phase == TEFFI_LOCKED && shard->since <= version)
        err = merge_activation_locked(grains, shard, ident, pid, loser);
    pthread_mutex_unlock(&shard->lock);
    return err;
}

void teffi_partitions_start_serving(teffi_grains *grains, const uint8_t *set, uint64_t version)
{
    for (unsigned i = 0; i < TEFFI_PARTITIONS; i++) {
        teffi_shard *shard = &grains->shards->at[i];
        if (!teffi_set_has_partition(set, i))
            continue;
        pthread_mutex_lock(&shard->lock);
        if (shard->phase == TEFFI_LOCKED && shard->since <= version)
            shard->phase = TEFFI_SERVING;
        pthread_mutex_unlock(&shard->lock);
    }
    teffi_partitions_deliver_parked_requests(grains);
    if (grains->phases_changed)
        grains->phases_changed(grains);
    teffi_membership_signal_change(grains->node->membership);
}
