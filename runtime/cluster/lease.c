/* lease.c - ends this silo's lease: when it has run out, when the table says that the silo is dead,
 * or when the workers are stuck. */
#include "cluster/membership.h"

#include <stdio.h>

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

/* ---- are the workers stuck? ---- */

/* States:  no probe -check-> queued -a worker handles it-> no probe
 *          queued, and no processor has begun a run for limit_ns -> the lease is ended
 * Threads: the running heartbeat, which is a system task; the probe: any worker.
 *
 * A heartbeat says only that the system thread runs. If each worker is in a turn that does not end,
 * no other grain is served, and all stay locked to this silo. The probe alone would not do: it may
 * wait behind many long turns. So runs that begin count as well, and limit_ns need only be longer
 * than any turn that blocks its thread. Turns in blocking regions keep no processor. */

static void note_probe(teffi_group *group, teffi_item *item)
{
    teffi_stuck *s = teffi_container(group, teffi_stuck, group);
    (void)item;
    /* release: the group does not use the item any more; pairs with count_still_time */
    atomic_store_explicit(&s->queued, false, memory_order_release);
}

static void describe_probe(teffi_group *group, char *text, size_t size)
{
    (void)group;
    snprintf(text, size, "probe of the workers");
}

void teffi_stuck_init(teffi_membership *m)
{
    static const teffi_group_ops ops = {.handle = note_probe, .describe = describe_probe};
    teffi_group_init(&m->stuck.group, m->node->home.exec, &ops);
}

/* Adds the time since the last check if the probe still waits and no run has begun; otherwise sets
 * the time to 0, and queues a probe if none is. A check counts for half a lease at most, since the
 * workers of a process that was paused have had no time either. */
static void count_still_time(teffi_membership *m)
{
    teffi_stuck *s = &m->stuck;
    teffi_exec *exec = m->node->home.exec;
    uint64_t now = teffi_now(m->node->platform);
    uint64_t between = now - s->checked_ns, most = teffi_lease_length_ns(&m->node->home.lease) / 2;
    uint64_t runs = exec->ops->runs ? exec->ops->runs(exec) : 0;
    bool queued = atomic_load_explicit(&s->queued, memory_order_acquire);
    bool still = queued && runs == s->runs;
    s->still_ns = still ? s->still_ns + (between < most ? between : most) : 0;
    s->runs = runs;
    s->checked_ns = now;
    if (queued)
        return;
    /* relaxed: the push publishes it to note_probe() */
    atomic_store_explicit(&s->queued, true, memory_order_relaxed);
    (void)teffi_group_push(&s->group, &s->probe);
}

bool teffi_stuck_end_lease_if_stuck(teffi_membership *m)
{
    teffi_stuck *s = &m->stuck;
    char why[100];
    if (!s->limit_ns)
        return false;
    count_still_time(m);
    if (s->still_ns < s->limit_ns)
        return false;
    snprintf(why, sizeof why, "its workers are stuck: for %llu s none of them has taken work",
             (unsigned long long)(s->still_ns / 1000000000u));
    /* release: pairs with teffi_stuck_was_found */
    atomic_store_explicit(&s->found, true, memory_order_release);
    teffi_membership_lose_lease(m, why);
    return true;
}

bool teffi_stuck_was_found(const teffi_membership *m)
{
    /* acquire: pairs with teffi_stuck_end_lease_if_stuck */
    return atomic_load_explicit(&m->stuck.found, memory_order_acquire);
}
