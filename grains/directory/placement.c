/* placement.c - the strategies: random, prefer local, by hash. */
#include "directory/placement.h"

static bool can_host(const teffi_member *member, uint32_t type)
{
    return member->status == TEFFI_ACTIVE && teffi_member_hosts(member, type);
}

/* Reservoir sampling: chooses in one pass, each candidate with the same chance. out: zero: none. */
static teffi_node_id pick_random(teffi_grains *grains, const teffi_view *view, uint32_t type)
{
    const teffi_platform *platform = grains->node->platform;
    uint64_t n = 0;
    teffi_node_id chosen = {0};
    for (size_t i = 0; i < view->n_members; i++)
        if (can_host(&view->members[i], type) && platform->random(platform->arg) % ++n == 0)
            chosen = view->members[i].node;
    return chosen;
}

/* Rendezvous hashing: the silo with the highest hash of {grain, silo}. When a silo joins or leaves,
 * only its own grains get another place. out: zero: none can host the type. */
static teffi_node_id pick_hash(const teffi_view *view, const teffi_ident *ident)
{
    uint64_t place = teffi_key_place(ident->type, ident->key, ident->key_len), best = 0;
    teffi_node_id chosen = {0};
    for (size_t i = 0; i < view->n_members; i++) {
        teffi_node_id node = view->members[i].node;
        uint64_t id = (uint64_t)node.silo << 32 | node.incarnation;
        uint64_t score = teffi_mix64(place ^ teffi_mix64(id));
        if (can_host(&view->members[i], ident->type) && score >= best) {
            best = score;
            chosen = node;
        }
    }
    return chosen;
}

teffi_node_id teffi_place(teffi_grains *grains, const teffi_ident *ident, teff_placement how)
{
    const teffi_view *view = teffi_view_get(grains->node);
    teffi_node_id chosen = {0};
    if (!view)
        return chosen;
    const teffi_member *self = teffi_view_find(view, grains->node->id);
    if (how == TEFF_PLACE_PREFER_LOCAL && self && can_host(self, ident->type))
        chosen = self->node;
    else if (how == TEFF_PLACE_HASH)
        chosen = pick_hash(view, ident);
    else
        chosen = pick_random(grains, view, ident->type);
    teffi_view_unref(view);
    return chosen;
}
