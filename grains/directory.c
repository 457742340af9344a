/* directory.c - the partitions this silo owns, and requests of others for them.
 * Way:     directory_ask (here), system target (others) -> [directory] -> tables
 * Threads: a lock per partition, the catalog shard's. */
#include "directory.h"

#include <stdlib.h>
#include <string.h>
#include "cluster.pb-c.h"
#include "cluster/membership.h"
#include "grains.h"
#include "node/task.h"

static pthread_mutex_t *lock_of(teffi_grains *grains, unsigned partition)
{
    return &grains->catalog.shards[partition].lock;
}

static void drop_entries(teffi_partition_table *part)
{
    size_t at = 0;
    teffi_tnode *next = NULL, *node;
    while ((node = teffi_table_each(&part->entries, &at, &next))) {
        teffi_table_del(&part->entries, node);
        free(teffi_container(node, teffi_entry, node));
    }
    teffi_table_fini(&part->entries);
}

void teffi_directory_fini(teffi_grains *grains)
{
    for (int i = 0; i < TEFFI_PARTITIONS; i++) {
        teffi_partition_table *part = &grains->directory.parts[i];
        teffi_qnode *node;
        drop_entries(part);
        while ((node = teffi_queue_pop(&part->parked)))
            teffi_msg_free(teffi_container(node, teffi_msg, link));
    }
}

/* ---- entries ---- */

static teffi_entry *find(teffi_partition_table *part, const teffi_ident *ident)
{
    teffi_tnode *node = teffi_table_first(&part->entries, ident->hash);
    for (; node; node = teffi_table_next(node)) {
        teffi_entry *e = teffi_container(node, teffi_entry, node);
        if (e->type == ident->type && e->key_len == ident->key_len &&
            memcmp(e->key, ident->key, e->key_len) == 0)
            return e;
    }
    return NULL;
}

static bool same_pid(teffi_pid a, teffi_pid b)
{
    return teffi_node_is(a.node, b.node) && a.slot == b.slot && a.generation == b.generation;
}

static teffi_entry *insert(teffi_partition_table *part, const teffi_ident *ident, teffi_pid pid)
{
    teffi_entry *e = malloc(sizeof *e + ident->key_len);
    if (!e)
        return NULL;
    e->pid = pid;
    e->type = ident->type;
    e->key_len = ident->key_len;
    memcpy(e->key, ident->key, ident->key_len);
    if (!teffi_table_add(&part->entries, &e->node, ident->hash)) {
        free(e);
        return NULL;
    }
    return e;
}

/* Held by a silo that is in the view; entries of silos that are gone count for nothing. */
static bool held(teffi_grains *grains, const teffi_entry *e)
{
    const teffi_view *view = teffi_view_get(grains->node);
    bool there = view && teffi_view_find(view, e->pid.node);
    teffi_view_unref(view);
    return there;
}

/* Our own activation of the grain, when it is registered. */
static teffi_activation *own(teffi_grains *grains, const teffi_ident *ident)
{
    teffi_activation *act = teffi_catalog_find_locked(grains, ident);
    return act && act->registered ? act : NULL;
}

/* One of ours that still is who asked. */
static teffi_activation *asker(teffi_grains *grains, const teffi_ident *ident, teffi_pid pid)
{
    teffi_activation *act = NULL;
    if (teffi_node_is(pid.node, grains->node->id))
        act = teffi_catalog_find_locked(grains, ident);
    return act && same_pid(teffi_activation_pid(act), pid) ? act : NULL;
}

/* An entry that counts; one that does not, or is to go, goes. */
static teffi_entry *standing(teffi_grains *grains, teffi_partition_table *part, uint32_t method,
                             const teffi_ident *ident, teffi_pid pid)
{
    teffi_entry *e = find(part, ident);
    if (!e || (method == TEFFI_METHOD_UNREGISTER ? !same_pid(e->pid, pid) : held(grains, e)))
        return e;
    teffi_table_del(&part->entries, &e->node);
    free(e);
    return NULL;
}

static teff_err apply(teffi_grains *grains, teffi_partition_table *part, uint32_t method,
                      const teffi_ident *ident, teffi_pid pid, teffi_pid *holder)
{
    teffi_entry *e = standing(grains, part, method, ident, pid);
    teffi_activation *act = e || method == TEFFI_METHOD_LOOKUP ? NULL : asker(grains, ident, pid);
    if (act)
        act->registered = method == TEFFI_METHOD_REGISTER;
    act = e ? NULL : own(grains, ident);
    if (act) {
        *holder = teffi_activation_pid(act);
        return TEFF_OK;
    }
    /* Not for one of ours: it would be in the catalog, and stand there. */
    if (!e && method == TEFFI_METHOD_REGISTER && !teffi_node_is(pid.node, grains->node->id)) {
        e = insert(part, ident, pid);
        if (!e)
            return TEFF_E_NOMEM;
    }
    if (!e)
        return TEFF_E_NOT_FOUND;
    *holder = e->pid;
    return TEFF_OK;
}

teff_err teffi_directory_apply(teffi_grains *grains, uint32_t method, const teffi_ident *ident,
                               teffi_pid pid, teffi_pid *holder, teffi_msg *msg)
{
    unsigned partition = teffi_partition(ident->hash);
    teffi_partition_table *part = &grains->directory.parts[partition];
    teff_err err = TEFF_E_UNAVAILABLE;
    pthread_mutex_lock(lock_of(grains, partition));
    if (part->phase == TEFFI_SERVING) {
        err = apply(grains, part, method, ident, pid, holder);
    } else if (part->phase == TEFFI_LOCKED) {
        if (msg)
            teffi_queue_push(&part->parked, &msg->link);
        err = TEFF_E_CLOSED;
    }
    pthread_mutex_unlock(lock_of(grains, partition));
    return err;
}

/* Registered while the partition is served, under its lock: whoever owns it next lists us. */
teff_err teffi_directory_register_here(teffi_activation *act, teffi_pid *holder)
{
    teffi_grains *grains = act->grains;
    teffi_ident ident = teffi_activation_ident(act);
    unsigned partition = teffi_partition(ident.hash);
    teffi_partition_table *part = &grains->directory.parts[partition];
    teff_err err = TEFF_E_UNAVAILABLE;
    pthread_mutex_lock(lock_of(grains, partition));
    if (part->phase == TEFFI_SERVING) {
        teffi_entry *e =
            standing(grains, part, TEFFI_METHOD_REGISTER, &ident, teffi_activation_pid(act));
        act->registered = !e;
        *holder = e ? e->pid : teffi_activation_pid(act);
        err = e ? TEFF_E_EXISTS : TEFF_OK;
    }
    pthread_mutex_unlock(lock_of(grains, partition));
    return err;
}

bool teffi_directory_nobody(teffi_grains *grains, const teffi_ident *ident)
{
    teffi_partition_table *part = &grains->directory.parts[teffi_partition(ident->hash)];
    return part->phase == TEFFI_SERVING &&
           !standing(grains, part, TEFFI_METHOD_REGISTER, ident, (teffi_pid){0});
}

teff_err teffi_directory_unregister_here(teffi_activation *act)
{
    teffi_grains *grains = act->grains;
    unsigned partition = teffi_partition(teffi_activation_ident(act).hash);
    pthread_mutex_lock(lock_of(grains, partition));
    bool serving = grains->directory.parts[partition].phase == TEFFI_SERVING;
    if (serving)
        act->registered = false;
    pthread_mutex_unlock(lock_of(grains, partition));
    return serving ? TEFF_OK : TEFF_E_UNAVAILABLE;
}

teff_err teffi_directory_merge(teffi_grains *grains, const teffi_ident *ident, teffi_pid pid)
{
    unsigned partition = teffi_partition(ident->hash);
    teffi_partition_table *part = &grains->directory.parts[partition];
    teff_err err = TEFF_OK;
    pthread_mutex_lock(lock_of(grains, partition));
    teffi_entry *e = part->phase == TEFFI_LOCKED ? find(part, ident) : NULL;
    if (part->phase == TEFFI_LOCKED && !e && !insert(part, ident, pid))
        err = TEFF_E_NOMEM;
    else if (e && !same_pid(e->pid, pid))
        err = TEFF_E_EXISTS;
    pthread_mutex_unlock(lock_of(grains, partition));
    return err;
}

/* ---- phases ---- */

static void deliver_again(teffi_node *node, teffi_queue *parked)
{
    teffi_qnode *n;
    while ((n = teffi_queue_pop(parked)))
        teffi_node_deliver(node, teffi_container(n, teffi_msg, link));
}

void teffi_directory_view(teffi_grains *grains, const teffi_view *now)
{
    teffi_directory *dir = &grains->directory;
    bool locked = false;
    for (unsigned i = 0; i < TEFFI_PARTITIONS; i++) {
        teffi_partition_table *part = &dir->parts[i];
        teffi_queue bounced = {0};
        bool mine = teffi_node_is(teffi_view_owner(now, i), grains->node->id);
        pthread_mutex_lock(lock_of(grains, i));
        if (mine && part->phase == TEFFI_NOT_MINE)
            part->phase = TEFFI_LOCKED;
        if (!mine && part->phase != TEFFI_NOT_MINE) {
            part->phase = TEFFI_NOT_MINE;
            drop_entries(part);
            teffi_queue_move(&bounced, &part->parked);
        }
        locked |= part->phase == TEFFI_LOCKED;
        pthread_mutex_unlock(lock_of(grains, i));
        deliver_again(grains->node, &bounced);
    }
    /* release, pairs with the acquire in handle(): who sees the version sees its phases */
    atomic_store_explicit(&dir->version, now->version, memory_order_release);
    if (locked)
        teffi_recover_start(grains);
}

void teffi_directory_unlock(teffi_grains *grains, const uint8_t *set, uint64_t version)
{
    for (unsigned i = 0; i < TEFFI_PARTITIONS; i++) {
        teffi_partition_table *part = &grains->directory.parts[i];
        teffi_queue parked = {0};
        if (!(set[i / 8] & (1u << i % 8)))
            continue;
        pthread_mutex_lock(lock_of(grains, i));
        if (part->phase == TEFFI_LOCKED && grains->directory.version == version) {
            part->phase = TEFFI_SERVING;
            teffi_queue_move(&parked, &part->parked);
        }
        pthread_mutex_unlock(lock_of(grains, i));
        deliver_again(grains->node, &parked);
    }
}

/* ---- requests of others ---- */

static void answer(teffi_node *node, teffi_msg *msg, teff_err err, teffi_pid holder)
{
    Teff__Cluster__DirectoryAnswer a = TEFF__CLUSTER__DIRECTORY_ANSWER__INIT;
    Teff__Cluster__Pid pid = TEFF__CLUSTER__PID__INIT;
    Teff__Cluster__Node id = TEFF__CLUSTER__NODE__INIT;
    id.silo = holder.node.silo;
    id.incarnation = holder.node.incarnation;
    pid.node = &id;
    pid.slot = holder.slot;
    pid.generation = holder.generation;
    a.view = node->grains->directory.version;
    a.result = err == TEFF_OK            ? TEFF__CLUSTER__DIRECTORY_ANSWER__RESULT__HELD
               : err == TEFF_E_NOT_FOUND ? TEFF__CLUSTER__DIRECTORY_ANSWER__RESULT__ABSENT
                                         : TEFF__CLUSTER__DIRECTORY_ANSWER__RESULT__REFRESH;
    a.pid = err ? NULL : &pid;
    teffi_node_answer_with(node, msg, &a.base);
}

/* The asker has seen a newer view: catch up, then take the message again. */
static void catch_up(teff_ctx *ctx, void *arg)
{
    teffi_msg *msg = arg;
    uint64_t view = msg->method_id == TEFFI_METHOD_RECOVER
                        ? ((Teff__Cluster__Recover *)msg->body)->view
                        : ((Teff__Cluster__DirectoryAsk *)msg->body)->view;
    teff_err err = teffi_membership_refresh(ctx, view);
    if (err)
        teffi_node_answer(ctx->node, msg, err, teff_error(ctx));
    else
        teffi_directory_handle(ctx->node, msg);
}

static bool behind(teffi_node *node, teffi_msg *msg, uint64_t view)
{
    if (atomic_load_explicit(&node->grains->directory.version, memory_order_acquire) >= view)
        return false;
    if (teffi_task_start(node, catch_up, msg, "directory: catch up with a view"))
        teffi_node_answer(node, msg, TEFF_E_NOMEM, "directory: out of memory");
    return true;
}

static teffi_pid pid_of(const Teff__Cluster__Pid *from)
{
    teffi_pid pid = {0};
    if (!from || !from->node)
        return pid;
    pid.node = (teffi_node_id){from->node->silo, from->node->incarnation};
    pid.slot = from->slot;
    pid.generation = from->generation;
    return pid;
}

static void handle_ask(teffi_node *node, teffi_msg *msg)
{
    const Teff__Cluster__DirectoryAsk *ask = (const Teff__Cluster__DirectoryAsk *)msg->body;
    teffi_pid holder = {0};
    if (behind(node, msg, ask->view))
        return;
    teffi_ident ident = teffi_ident_of(ask->type, ask->key.data, (uint32_t)ask->key.len);
    teff_err err =
        teffi_directory_apply(node->grains, msg->method_id, &ident, pid_of(ask->pid), &holder, msg);
    if (err == TEFF_E_NOMEM)
        teffi_node_answer(node, msg, err, "directory: out of memory");
    else if (err != TEFF_E_CLOSED)
        answer(node, msg, err, holder);
}

static void handle_moved(teffi_node *node, teffi_msg *msg)
{
    const Teff__Cluster__Moved *moved = (const Teff__Cluster__Moved *)msg->body;
    teffi_ident ident = teffi_ident_of(moved->type, moved->key.data, (uint32_t)moved->key.len);
    teffi_hint_drop(&node->grains->hints, ident.hash, pid_of(moved->pid).node);
    teffi_msg_free(msg);
}

void teffi_directory_handle(teffi_node *node, teffi_msg *msg)
{
    const ProtobufCMessageDescriptor *desc =
        msg->method_id == TEFFI_METHOD_RECOVER ? &teff__cluster__recover__descriptor
        : msg->method_id == TEFFI_METHOD_MOVED ? &teff__cluster__moved__descriptor
                                               : &teff__cluster__directory_ask__descriptor;
    teff_err err = teffi_msg_unpack(msg, desc);
    if (err)
        teffi_node_answer(node, msg, err, "directory: the request does not decode");
    else if (msg->method_id == TEFFI_METHOD_MOVED)
        handle_moved(node, msg);
    else if (msg->method_id == TEFFI_METHOD_RECOVER) {
        if (!behind(node, msg, ((Teff__Cluster__Recover *)msg->body)->view))
            teffi_recover_answer(node->grains, msg);
    } else if (msg->method_id >= TEFFI_METHOD_REGISTER && msg->method_id <= TEFFI_METHOD_UNREGISTER)
        handle_ask(node, msg);
    else
        teffi_node_answer(node, msg, TEFF_E_NOT_FOUND, "directory: no such request");
}
