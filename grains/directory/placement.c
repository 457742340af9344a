/* placement.c - the strategies: random, prefer local, by hash; the versions that silos host. */
#include "directory/placement.h"

#include <stdio.h>
#include "node/deliver.h"

/* What a silo must host. */
typedef struct wanted {
    uint32_t type;
    uint32_t version; /* or a newer one, since each version serves callers of older ones */
} wanted;

static bool can_host(const teffi_member *member, wanted want)
{
    return member->status == TEFFI_ACTIVE &&
           teffi_member_type_version(member, want.type) >= (int64_t)want.version;
}

/* Chooses one of the silos that can host the type, all with the same chance; never `except`. One
 * pass suffices (reservoir sampling). out: zero: no silo can host the type. */
static teffi_node_id choose_random_silo(teffi_grains *grains, const teffi_view *view, wanted want,
                                        teffi_node_id except)
{
    const teffi_platform *platform = grains->node->platform;
    uint64_t n = 0;
    teffi_node_id chosen = {0};
    for (size_t i = 0; i < view->n_members; i++)
        if (can_host(&view->members[i], want) &&
            !teffi_node_equals(view->members[i].node, except) &&
            platform->random(platform->arg) % ++n == 0)
            chosen = view->members[i].node;
    return chosen;
}

/* Of the silos that can host the type, chooses the one with the highest hash of {grain, silo}
 * (rendezvous hashing). So if a silo joins or leaves, the choice changes only for grains that are
 * placed on that silo. out: zero: no silo can host the type. */
static teffi_node_id choose_silo_by_hash(const teffi_view *view, const teffi_ident *ident,
                                         wanted want)
{
    uint64_t hash = teffi_key_cluster_hash(ident->type, ident->key, ident->key_len), best = 0;
    teffi_node_id chosen = {0};
    for (size_t i = 0; i < view->n_members; i++) {
        teffi_node_id node = view->members[i].node;
        uint64_t id = (uint64_t)node.silo << 32 | node.incarnation;
        uint64_t score = teffi_mix64(hash ^ teffi_mix64(id));
        if (can_host(&view->members[i], want) && score >= best) {
            best = score;
            chosen = node;
        }
    }
    return chosen;
}

teffi_node_id teffi_placement_choose_silo(teffi_grains *grains, const teffi_ident *ident,
                                          uint16_t flags)
{
    const teffi_view *view = teffi_view_ref_current(grains->node);
    teff_placement how = teffi_flags_placement_strategy(flags);
    wanted want = {ident->type, teffi_flags_type_version(flags)};
    teffi_node_id chosen = {0};
    if (!view)
        return chosen;
    const teffi_member *self = teffi_view_find_member(view, grains->node->id);
    if (how == TEFF_PLACE_PREFER_LOCAL && self && can_host(self, want))
        chosen = self->node;
    else if (how == TEFF_PLACE_HASH)
        chosen = choose_silo_by_hash(view, ident, want);
    else
        chosen =
            choose_random_silo(grains, view, want,
                               how == TEFF_PLACE_STATELESS ? grains->node->id : (teffi_node_id){0});
    teffi_view_unref(view);
    return chosen;
}

int64_t teffi_find_newest_type_version(teffi_grains *grains, uint32_t type)
{
    const teffi_view *view = teffi_view_ref_current(grains->node);
    int64_t newest = -1;
    for (size_t i = 0; view && i < view->n_members; i++) {
        int64_t version = view->members[i].status == TEFFI_ACTIVE
                              ? teffi_member_type_version(&view->members[i], type)
                              : -1;
        newest = version > newest ? version : newest;
    }
    teffi_view_unref(view);
    return newest;
}

void teffi_placement_respond_error(teffi_grains *grains, teffi_msg *msg, int64_t newest)
{
    char text[TEFF_TEXT_MAX];
    if (newest < 0) {
        teffi_node_respond_with_err(grains->node, msg, TEFF_E_NOT_FOUND,
                                    "no silo of the cluster hosts this grain type");
        return;
    }
    snprintf(text, sizeof text,
             "the caller has version %u of the grain type, the newest silo of the cluster has "
             "version %lld; the call did not run",
             (unsigned)teffi_flags_type_version(msg->flags), (long long)newest);
    teffi_node_respond_with_err(grains->node, msg, TEFF_E_VERSION, text);
}
