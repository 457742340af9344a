/* broken.c - the silos whose connections broke: their heartbeats are watched at once. */
#include "cluster/membership.h"

bool teffi_membership_is_connection_broken(teffi_membership *m, teffi_node_id node)
{
    bool found = false;
    pthread_mutex_lock(&m->beat.lock);
    for (size_t i = 0; i < TEFFI_WATCHED_MAX && !found; i++)
        found = teffi_node_equals(m->beat.broken[i], node);
    pthread_mutex_unlock(&m->beat.lock);
    return found;
}

void teffi_membership_prune_broken_connections(teffi_membership *m, const teffi_view *view)
{
    pthread_mutex_lock(&m->beat.lock);
    for (size_t i = 0; i < TEFFI_WATCHED_MAX; i++)
        if (!teffi_node_is_none(m->beat.broken[i]) &&
            !teffi_view_find_member(view, m->beat.broken[i]))
            m->beat.broken[i] = (teffi_node_id){0};
    pthread_mutex_unlock(&m->beat.lock);
}

void teffi_membership_record_connection_state(teffi_membership *m, teffi_node_id node, bool up)
{
    if (!m)
        return;
    teffi_exec *exec = m->node->home.exec;
    const teffi_node_id none = {0};
    pthread_mutex_lock(&m->beat.lock);
    teffi_node_id *at = NULL; /* the silo's entry; if it has none and !up: a free entry */
    for (size_t i = 0; i < TEFFI_WATCHED_MAX; i++)
        if (teffi_node_equals(m->beat.broken[i], node) ||
            (!up && !at && teffi_node_is_none(m->beat.broken[i])))
            at = &m->beat.broken[i];
    bool newly_broken = !up && at && teffi_node_is_none(*at);
    if (at)
        *at = up ? none : node;
    /* Read the other silos' heartbeats now, not at the next regular time. The time for which a
     * heartbeat has not changed is measured from the first read of its last value, so an earlier
     * read finds a dead silo earlier. */
    if (newly_broken && m->joined && !m->beat.looks && exec->ops->timer_cancel(exec, &m->beat.look))
        teffi_membership_set_timer(m, &m->beat.look, 0);
    else if (newly_broken)
        m->beat.hurry = true;
    pthread_mutex_unlock(&m->beat.lock);
}
