/* watch.c - looks at the heartbeats of other silos. */
#include "cluster/watch.h"

/* Parts of a silo's lease, in percent. STILL: a silo that is well writes a heartbeat after 20 %; on
 * a busy machine, or with a slow store, later. */
enum { LOOK_PERCENT = 50, STILL_PERCENT = 50 };

static uint64_t get_percent_of_lease_ns(const teffi_member *silo, unsigned percent)
{
    return silo->lease_ms * UINT64_C(10000) * percent;
}

teffi_watched_silo *teffi_watch_find_entry(teffi_membership *m, teffi_node_id silo)
{
    teffi_watched_silo *oldest = &m->beat.watched[0];
    for (int i = 0; i < TEFFI_WATCHED_MAX; i++) {
        if (teffi_node_equals(m->beat.watched[i].node, silo))
            return &m->beat.watched[i];
        if (m->beat.watched[i].looked_ns < oldest->looked_ns)
            oldest = &m->beat.watched[i];
    }
    *oldest = (teffi_watched_silo){.node = silo};
    return oldest;
}

teff_err teffi_watch_look(teff_ctx *ctx, const teffi_member *silo, teffi_alive *alive,
                          uint64_t *still_ns)
{
    teff_err err = teffi_heartbeat_read(ctx, silo->node, alive);
    if (err)
        return err;
    uint64_t now = teffi_now(ctx->node->platform);
    uint64_t most = get_percent_of_lease_ns(silo, LOOK_PERCENT);
    teffi_watched_silo *w = teffi_watch_find_entry(ctx->node->membership, silo->node);
    uint64_t between = w->looked_ns ? now - w->looked_ns : 0;
    w->still_ns = w->etag == alive->etag ? w->still_ns + (between < most ? between : most) : 0;
    w->unconsented &= w->etag == alive->etag;
    w->etag = alive->etag;
    w->looked_ns = now;
    *still_ns = w->still_ns;
    return TEFF_OK;
}

bool teffi_watch_is_probably_dead(const teffi_membership *m, const teffi_member *silo)
{
    for (int i = 0; i < TEFFI_WATCHED_MAX; i++)
        if (teffi_node_equals(m->beat.watched[i].node, silo->node))
            return m->beat.watched[i].still_ns > get_percent_of_lease_ns(silo, STILL_PERCENT);
    return false;
}
