/* lease.c - ends this silo's lease, when it has run out or the table says that the silo is dead. */
#include "cluster/membership.h"

void teffi_membership_set_timer(teffi_membership *m, teffi_timer *timer, uint64_t due_ns)
{
    teffi_exec *exec = m->node->home.exec;
    if (!m->beat.stopped && !teffi_lease_is_over(&m->node->home.lease))
        exec->ops->timer_set(exec, timer, due_ns);
}

void teffi_membership_lose_lease(teffi_membership *m, const char *why)
{
    teffi_node *node = m->node;
    if (m->left || !teffi_lease_end(&node->home.lease))
        return;
    teffi_logf(&node->platform->log, TEFF_LOG_ERROR,
               "membership: this silo has lost its lease, %s; it serves nothing any more", why);
    teffi_membership_signal_change(m);
    if (node->lost)
        node->lost(node, why);
}

/* The timer's callback: ends the lease if it has run out. If it was renewed meanwhile, sets the
 * timer to its new end. */
static void end_lease_when_due(teffi_timer *timer)
{
    teffi_membership *m = teffi_container(timer, teffi_membership, beat.expiry);
    const teffi_lease *lease = &m->node->home.lease;
    pthread_mutex_lock(&m->beat.lock);
    bool holds = teffi_lease_holds(lease, teffi_now(m->node->platform));
    if (holds)
        teffi_membership_set_timer(m, &m->beat.expiry, teffi_lease_until_ns(lease));
    bool stopped = m->beat.stopped;
    pthread_mutex_unlock(&m->beat.lock);
    if (!holds && !stopped)
        teffi_membership_lose_lease(m, "the store has not confirmed a heartbeat for so long");
}

void teffi_membership_start_lease_timer(teffi_membership *m)
{
    pthread_mutex_lock(&m->beat.lock);
    m->beat.expiry.fire = end_lease_when_due;
    teffi_membership_set_timer(m, &m->beat.expiry, teffi_lease_until_ns(&m->node->home.lease));
    pthread_mutex_unlock(&m->beat.lock);
}
