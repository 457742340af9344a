/* sim_rows.c - after each write of a grain's row: does an activation stay in use that does not know
 * the new row?
 * Way:     sim_store (a write was done) -> [rows] -> the activations of all silos
 * An activation that does not know the row answers plain reads from an old state. The histories of
 * a run rarely show that: most often a transaction meets a conflict at the grain before a read. */
#include <stdio.h>
#include <string.h>
#include "activation/lock.h"
#include "activation/state.h"
#include "call/lease.h"
#include "directory/shard.h"
#include "sim_world.h"

/* A value that a transaction has written ends with the transaction's age, root and attempt. */
enum { MARK_BYTES = offsetof(teffi_transaction, step) };

/* The row's key: the cluster's name, a zero byte, the type's name, a zero byte, the grain's key.
 * out: false: the silo does not host the type. */
static bool read_ident(const teffi_grains *grains, const teffi_row *row, teffi_ident *ident)
{
    const char *key = row->key.data, *type = memchr(key, 0, row->key.len);
    if (!type++)
        return false;
    size_t before = (size_t)(type - key) + strlen(type) + 1;
    for (size_t i = 0; i < grains->n_types; i++)
        if (strcmp(grains->types[i]->info->name, type) == 0) {
            *ident =
                teffi_ident_of(&grains->secret, grains->types[i]->info->id,
                               (const uint8_t *)key + before, (uint32_t)(row->key.len - before));
            return true;
        }
    return false;
}

/* out: the grain's activation on the silo, if it may answer requests now, and later ones; else
 * NULL. */
static const teffi_activation *find_in_use(const sim_silo *place, const teffi_row *row)
{
    bool serves = place->state == SIM_SERVING || place->state == SIM_LEAVING;
    teffi_ident ident;
    if (!serves || place->node.dead ||
        !teffi_lease_holds(&place->silo->node.home.lease, sim_node_now(&place->node)) ||
        !read_ident(place->silo->node.grains, row, &ident))
        return NULL;
    const teffi_activation *act =
        teffi_shard_find_activation_locked(place->silo->node.grains, &ident);
    return act && act->phase == TEFFI_VALID && !act->reason ? act : NULL;
}

/* Is the row written by the transaction, in the same attempt, that has locked act? Then act keeps
 * its lock until the transaction's end tells it the new etag. */
static bool lock_knows_write(const teffi_activation *act, const teffi_row *row)
{
    const teffi_lock *lock = teffi_lock_of(act);
    const char *end = (const char *)row->value.data + row->value.len;
    return lock && row->value.len >= MARK_BYTES &&
           memcmp(end - MARK_BYTES, &lock->owner, MARK_BYTES) == 0;
}

/* Outside of transactions only a turn of the grain itself writes the row. */
static bool turn_is_under_way(const teffi_activation *act)
{
    return act->running || (act->busy & TEFFI_BUSY_LIFE);
}

void sim_rows_check_write(void *world, const teffi_store_op *op)
{
    sim_world *w = world;
    for (size_t i = 0; i < op->n_rows; i++)
        for (unsigned no = 0; no < w->n_silos; no++) {
            const teffi_row *row = &op->rows[i];
            if (row->check || strcmp(row->table, "state") != 0)
                continue;
            const teffi_activation *act = find_in_use(&w->silos[no], row);
            if (!act || lock_knows_write(act, row) || turn_is_under_way(act))
                continue;
            char text[TEFFI_KEY_TEXT_MAX];
            teff_key key;
            teffi_activation_get_key(act, &key);
            teffi_key_format(&key, text);
            sim_fail(&w->s, "%s %s is in use on silo %u, which does not know that its row was %s",
                     act->type->info->name, text, no, row->remove ? "removed" : "written");
        }
}
