/* outsiders.c - connected silos that are no members of the view: strangers, which may be joining,
 * and silos that have left, which may still pass on requests. */
#include "cluster/membership.h"

enum { HELD_MAX = 1024 };

static teffi_outsider *find_outsider(teffi_outsiders *o, teffi_node_id silo)
{
    for (size_t i = 0; i < o->n; i++)
        if (teffi_node_equals(o->silo[i].node, silo))
            return &o->silo[i];
    return NULL;
}

static bool is_outsider_standing(teffi_standing standing)
{
    return standing == TEFFI_STANDING_STRANGER || standing == TEFFI_STANDING_LEFT;
}

/* outsiders.lock held. Must messages from this outsider be held back? Yes if the outsider is a
 * stranger, or if earlier messages from it are not delivered yet: later messages must not overtake
 * them. */
static bool must_hold_messages(const teffi_outsider *outsider)
{
    return outsider->standing == TEFFI_STANDING_STRANGER || outsider->held;
}

/* outsiders.lock held. Removes entries that are not needed any more, and sets node->strangers to
 * the number of silos whose messages must be held back. relaxed: see node.h */
static void prune_entries_and_set_strangers(teffi_membership *m)
{
    teffi_outsiders *o = &m->outsiders;
    uint32_t n = 0;
    for (size_t i = o->n; i-- > 0;) {
        const teffi_outsider *outsider = &o->silo[i];
        bool connected = outsider->connections && is_outsider_standing(outsider->standing);
        if (connected || outsider->held)
            n += must_hold_messages(outsider);
        else
            o->silo[i] = o->silo[--o->n];
    }
    atomic_store_explicit(&m->node->strangers, n, memory_order_relaxed);
}

static teffi_standing get_standing(teffi_membership *m, teffi_node_id silo)
{
    const teffi_view *view = teffi_view_ref_current(m->node);
    teffi_standing standing = teffi_view_standing(view, silo);
    teffi_view_unref(view);
    return standing;
}

/* ---- connections ---- */

const char *teffi_outsiders_check_may_connect(teffi_membership *m, teffi_node_id silo)
{
    teffi_outsiders *o = &m->outsiders;
    teffi_standing standing = get_standing(m, silo);
    if (standing == TEFFI_STANDING_MEMBER)
        return NULL;
    if (standing == TEFFI_STANDING_DEAD)
        return "the cluster has declared this silo dead, or has seen a later start of it";
    pthread_mutex_lock(&o->lock);
    bool room = o->n < TEFFI_OUTSIDERS_MAX || find_outsider(o, silo);
    pthread_mutex_unlock(&o->lock);
    return room ? NULL : "too many silos outside the cluster's view are connected";
}

/* outsiders.lock held. out: NULL: there is no room. */
static teffi_outsider *find_or_make_outsider(teffi_outsiders *o, teffi_node_id silo)
{
    teffi_outsider *outsider = find_outsider(o, silo);
    if (outsider || o->n == TEFFI_OUTSIDERS_MAX)
        return outsider;
    o->silo[o->n] = (teffi_outsider){.node = silo};
    return &o->silo[o->n++];
}

/* The standing is read under the lock. If a newer view is adopted meanwhile,
 * teffi_outsiders_apply_view_and_drop_dead() waits for the lock, and so it finds the new entry.
 * out: DEAD if the silo is dead, or if there is no room for it: the silo must be disconnected. */
teffi_standing teffi_outsiders_add_connection(teffi_membership *m, teffi_node_id silo)
{
    teffi_outsiders *o = &m->outsiders;
    pthread_mutex_lock(&o->lock);
    teffi_standing standing = get_standing(m, silo);
    if (is_outsider_standing(standing)) {
        teffi_outsider *outsider = find_or_make_outsider(o, silo);
        if (outsider) {
            outsider->standing = standing;
            outsider->connections++;
        } else {
            standing = TEFFI_STANDING_DEAD;
        }
        prune_entries_and_set_strangers(m);
    }
    pthread_mutex_unlock(&o->lock);
    return standing;
}

/* The silo's entry is removed when its last connection ends. If messages of the silo are held back,
 * the entry is removed later, when the last of them has been delivered or refused. */
void teffi_outsiders_remove_connection(teffi_membership *m, teffi_node_id silo)
{
    teffi_outsiders *o = &m->outsiders;
    pthread_mutex_lock(&o->lock);
    teffi_outsider *outsider = find_outsider(o, silo);
    if (outsider && outsider->connections) {
        outsider->connections--;
        prune_entries_and_set_strangers(m);
    }
    pthread_mutex_unlock(&o->lock);
}

void teffi_outsiders_apply_view_and_drop_dead(teffi_membership *m, const teffi_view *view)
{
    teffi_outsiders *o = &m->outsiders;
    teffi_node_id dead[TEFFI_OUTSIDERS_MAX];
    size_t n_dead = 0;
    pthread_mutex_lock(&o->lock);
    for (size_t i = 0; i < o->n; i++) {
        o->silo[i].standing = teffi_view_standing(view, o->silo[i].node);
        if (o->silo[i].standing == TEFFI_STANDING_DEAD)
            dead[n_dead++] = o->silo[i].node;
    }
    prune_entries_and_set_strangers(m);
    pthread_mutex_unlock(&o->lock);
    for (size_t i = 0; i < n_dead; i++)
        m->node->home.net->ops->peer_dead(m->node->home.net, dead[i]);
}

size_t teffi_outsiders_list(teffi_membership *m, teffi_node_id *to)
{
    teffi_outsiders *o = &m->outsiders;
    pthread_mutex_lock(&o->lock);
    for (size_t i = 0; i < o->n; i++)
        to[i] = o->silo[i].node;
    size_t n = o->n;
    pthread_mutex_unlock(&o->lock);
    return n;
}

/* Is there an outsider that is a stranger? in: silo: only this one is checked; zero: all are. */
bool teffi_outsiders_have_stranger(teffi_membership *m, teffi_node_id silo)
{
    teffi_outsiders *o = &m->outsiders;
    pthread_mutex_lock(&o->lock);
    bool found = false;
    for (size_t i = 0; i < o->n; i++)
        found |= o->silo[i].standing == TEFFI_STANDING_STRANGER &&
                 (teffi_node_is_none(silo) || teffi_node_equals(o->silo[i].node, silo));
    pthread_mutex_unlock(&o->lock);
    return found;
}

bool teffi_outsiders_have_undelivered(teffi_membership *m)
{
    teffi_outsiders *o = &m->outsiders;
    bool any = false;
    pthread_mutex_lock(&o->lock);
    for (size_t i = 0; i < o->n; i++)
        any |= o->silo[i].held > 0;
    pthread_mutex_unlock(&o->lock);
    return any;
}

/* ---- messages ---- */

teff_err teffi_outsiders_hold_msg_if_needed(teffi_membership *m, teffi_msg *msg, bool *first)
{
    teffi_outsiders *o = &m->outsiders;
    teff_err err = TEFF_E_NOT_FOUND; /* need not be held back */
    pthread_mutex_lock(&o->lock);
    teffi_outsider *from = find_outsider(o, msg->src);
    if (from && must_hold_messages(from))
        err = o->held.count < HELD_MAX ? TEFF_OK : TEFF_E_OVERLOADED;
    if (!err) {
        from->held++;
        teffi_queue_push(&o->held, &msg->link);
        *first = !o->served;
        o->served = true;
    }
    pthread_mutex_unlock(&o->lock);
    return err;
}

teffi_queue teffi_outsiders_take_held_messages(teffi_membership *m)
{
    teffi_outsiders *o = &m->outsiders;
    pthread_mutex_lock(&o->lock);
    teffi_queue held = o->held;
    o->held = (teffi_queue){0};
    o->served = held.count > 0; /* if no message was held, the caller stops serving */
    pthread_mutex_unlock(&o->lock);
    return held;
}

void teffi_outsiders_decrement_held_count(teffi_membership *m, teffi_node_id silo)
{
    teffi_outsiders *o = &m->outsiders;
    pthread_mutex_lock(&o->lock);
    find_outsider(o, silo)->held--; /* an entry stays while held > 0 */
    prune_entries_and_set_strangers(m);
    pthread_mutex_unlock(&o->lock);
}
