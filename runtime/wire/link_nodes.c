/* link_nodes.c - whom does this link know, and how new are they? One record for a node, from its
 * first connection or peer_add to the last.
 * Way:     link_send, link_greet -> [nodes] -> connections
 * Threads: under link->lock, but for dropping references. */
#include "wire/link.h"

#include <stdlib.h>
#include <string.h>
#include "base/hash.h"

static uint64_t hash_of(teffi_node_id id)
{
    return teffi_mix64((uint64_t)id.silo << 32 | id.incarnation);
}

static link_node **bucket_of(teffi_link *link, teffi_node_id id)
{
    return &link->buckets[hash_of(id) % LINK_BUCKETS];
}

link_node *teffi_link_node_find(teffi_link *link, teffi_node_id id)
{
    link_node *node = *bucket_of(link, id);
    while (node && !teffi_node_is(node->id, id))
        node = node->bucket_next;
    return node;
}

link_node *teffi_link_node_make(teffi_link *link, teffi_node_id id)
{
    link_node *node = teffi_link_node_find(link, id);
    if (node)
        return node;
    node = calloc(1, sizeof *node);
    if (!node)
        return NULL;
    node->id = id;
    node->owner = link;
    atomic_init(&node->refs, 1);
    pthread_mutex_init(&node->lock, NULL);
    node->listed = true;
    node->bucket_next = *bucket_of(link, id);
    *bucket_of(link, id) = node;
    link->nodes++;
    return node;
}

void teffi_link_node_ref(link_node *node)
{
    atomic_fetch_add_explicit(&node->refs, 1, memory_order_relaxed);
}

void teffi_link_node_unref(link_node *node)
{
    teffi_link *link = node->owner;
    /* acq_rel: pairs with the other holders' drops, before the memory goes. */
    if (atomic_fetch_sub_explicit(&node->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&node->lock);
    free(node);
    pthread_mutex_lock(&link->lock);
    link->nodes--;
    pthread_cond_broadcast(&link->changed);
    pthread_mutex_unlock(&link->lock);
}

void teffi_link_node_know(link_node *node, const char *address)
{
    if (!node->known)
        node->bye_wanted = node->bye_acked = node->bye_heard = node->dial_failed = false;
    node->known = true;
    memmove(node->address, address, strlen(address) + 1);
}

static bool is_quiet(link_node *node)
{
    pthread_mutex_lock(&node->lock);
    bool quiet = !node->draining && node->events.count == 0;
    pthread_mutex_unlock(&node->lock);
    return quiet;
}

bool teffi_link_node_settle(link_node *node)
{
    if (!node->listed || node->known || node->in || node->out || !is_quiet(node))
        return false;
    link_node **at = bucket_of(node->owner, node->id);
    while (*at != node)
        at = &(*at)->bucket_next;
    *at = node->bucket_next;
    node->listed = false;
    return true;
}

/* A set holds the silos whose hash is equal; the one not seen for longest makes room. */
bool teffi_link_seen_newest(teffi_link *link, teffi_node_id id, bool note)
{
    seen_silo *set = link->seen[teffi_mix64(id.silo) % LINK_SEEN_SETS];
    seen_silo *slot = &set[0];
    for (unsigned i = 0; i < LINK_SEEN_WAYS; i++) {
        if (set[i].node.silo == id.silo) {
            slot = &set[i];
            break;
        }
        if (set[i].stamp < slot->stamp)
            slot = &set[i];
    }
    if (slot->node.silo == id.silo && slot->node.incarnation > id.incarnation)
        return false;
    if (note)
        *slot = (seen_silo){id, ++link->seen_clock};
    return true;
}
