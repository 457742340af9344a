/* peers.c - the table of peers, the newest incarnations of silos, and the event queues. */
#include "link/peers.h"

#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "link/link.h"

static link_peer **peer_bucket(teffi_link *link, teffi_node_id id)
{
    uint64_t hash = teffi_siphash_word(&link->secret, teffi_node_to_word(id));
    return &link->peers.buckets[hash % LINK_BUCKETS];
}

link_peer *teffi_peer_find(teffi_link *link, teffi_node_id id)
{
    link_peer *peer = *peer_bucket(link, id);
    while (peer && !teffi_node_equals(peer->id, id))
        peer = peer->bucket_next;
    return peer;
}

link_peer *teffi_peer_find_or_add(teffi_link *link, teffi_node_id id)
{
    link_peer *peer = teffi_peer_find(link, id);
    if (peer)
        return peer;
    peer = calloc(1, sizeof *peer);
    if (!peer)
        return NULL;
    peer->id = id;
    peer->owner = link;
    atomic_init(&peer->refs, 1);
    pthread_mutex_init(&peer->lock, NULL);
    peer->listed = true;
    peer->bucket_next = *peer_bucket(link, id);
    *peer_bucket(link, id) = peer;
    link->peers.n++;
    return peer;
}

void teffi_peer_ref(link_peer *peer)
{
    atomic_fetch_add_explicit(&peer->refs, 1, memory_order_relaxed);
}

void teffi_peer_unref(link_peer *peer)
{
    teffi_link *link = peer->owner;
    /* acq_rel: pairs with itself: the other holders' accesses happen before the free. */
    if (atomic_fetch_sub_explicit(&peer->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&peer->lock);
    free(peer);
    pthread_mutex_lock(&link->conns.lock);
    link->peers.n--;
    pthread_cond_broadcast(&link->conns.changed);
    pthread_mutex_unlock(&link->conns.lock);
}

void teffi_peer_set_known(link_peer *peer, const char *address)
{
    if (!peer->known) {
        peer->goodbye = GOODBYE_NOT_SAID;
        peer->bye_heard = peer->dial_failed = false;
    }
    peer->known = true;
    memmove(peer->address, address, strlen(address) + 1);
}

void teffi_peer_set_of_conn(teffi_conn *conn, link_peer *peer)
{
    if (conn->peer == peer)
        return;
    teffi_peer_ref(peer);
    conn->peer = peer;
    peer->n_conns++;
}

bool teffi_peer_remove_if_unused(link_peer *peer)
{
    if (!peer->listed || peer->known || peer->n_conns || !teffi_peer_has_no_events(peer))
        return false;
    link_peer **at = peer_bucket(peer->owner, peer->id);
    while (*at != peer)
        at = &(*at)->bucket_next;
    *at = peer->bucket_next;
    peer->listed = false;
    return true;
}

/* Releases conns.lock around each teffi_peer_unref(), because that function takes it. */
void teffi_peers_fini(teffi_link *link)
{
    teffi_conns *conns = &link->conns;
    pthread_mutex_lock(&conns->lock);
    for (unsigned i = 0; i < LINK_BUCKETS; i++)
        for (link_peer *peer; (peer = link->peers.buckets[i]);) {
            link->peers.buckets[i] = peer->bucket_next;
            peer->listed = false;
            pthread_mutex_unlock(&conns->lock);
            teffi_peer_unref(peer);
            pthread_mutex_lock(&conns->lock);
        }
    while (link->peers.n)
        pthread_cond_wait(&conns->changed, &conns->lock);
    pthread_mutex_unlock(&conns->lock);
}

/* An entry of peers.seen holds the newest recorded incarnation of one silo. A silo's entry is in
 * the set that the silo's hash selects. If the silo has no entry and `record` is true, id is
 * recorded in an empty entry of that set, or else in the entry that was written longest ago.
 * out:  false: the silo's entry has a newer incarnation than id; id is not recorded. */
bool teffi_peer_check_and_record_incarnation(teffi_link *link, teffi_node_id id, bool record)
{
    link_seen_silo *set = link->peers.seen[teffi_mix64(id.silo) % LINK_SEEN_SETS];
    link_seen_silo *place = &set[0];
    for (unsigned i = 0; i < LINK_SEEN_IN_SET; i++) {
        if (set[i].node.silo == id.silo) {
            place = &set[i];
            break;
        }
        if (set[i].stamp < place->stamp)
            place = &set[i];
    }
    if (place->node.silo == id.silo && place->node.incarnation > id.incarnation)
        return false;
    if (record)
        *place = (link_seen_silo){.node = id, .stamp = ++link->peers.seen_clock};
    return true;
}

/* ---- events ---- */

void teffi_peer_post_event(link_peer *peer, link_event *event, link_event_kind kind,
                           teffi_conn *conn)
{
    event->kind = kind;
    event->conn = conn;
    pthread_mutex_lock(&peer->lock);
    teffi_queue_push(&peer->events, &event->link);
    pthread_mutex_unlock(&peer->lock);
}

bool teffi_peer_try_begin_event_drain(link_peer *peer)
{
    pthread_mutex_lock(&peer->lock);
    bool mine = !peer->draining && peer->events.count;
    peer->draining |= mine;
    pthread_mutex_unlock(&peer->lock);
    return mine;
}

link_event *teffi_peer_pop_event_or_end_drain(link_peer *peer)
{
    pthread_mutex_lock(&peer->lock);
    teffi_qnode *at = teffi_queue_pop(&peer->events);
    peer->draining = at != NULL;
    pthread_mutex_unlock(&peer->lock);
    return at ? teffi_container(at, link_event, link) : NULL;
}

bool teffi_peer_has_no_events(link_peer *peer)
{
    pthread_mutex_lock(&peer->lock);
    bool quiet = !peer->draining && peer->events.count == 0;
    pthread_mutex_unlock(&peer->lock);
    return quiet;
}
