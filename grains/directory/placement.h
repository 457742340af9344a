/* placement.h - on which silo shall a grain be activated?
 * Way:     route, partition -> [placement] -> view
 * Source:  Orleans' src/Orleans.Runtime/Placement/PlacementService.cs */
#pragma once

#include "activation/grains.h"
#include "activation/ident.h"
#include "cluster/view.h"

/* teffi_place - choose an ACTIVE silo that hosts the type. out: zero: there is none. */
teffi_node_id teffi_place(teffi_grains *grains, const teffi_ident *ident, teff_placement how);

/* A request carries the strategy in its flags, because the silo that places the grain may not host
 * the type, and then does not know its strategy.
 * teffi_placement_flags - the flags for a strategy.
 * teffi_placement_of - the strategy in flags; random if they have none that is known. */
static inline uint16_t teffi_placement_flags(teff_placement how)
{
    return (uint16_t)((unsigned)how << 8);
}

static inline teff_placement teffi_placement_of(uint16_t flags)
{
    unsigned how = flags >> 8 & 3u;
    return how <= TEFF_PLACE_HASH ? (teff_placement)how : TEFF_PLACE_RANDOM;
}
