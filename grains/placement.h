/* placement.h - on which silo shall a grain that is nowhere be activated?
 * Way:     locate -> [placement] -> route
 * Source:  ORLEANS 1, Placement */
#ifndef TEFFI_GRAINS_PLACEMENT_H
#define TEFFI_GRAINS_PLACEMENT_H

#include "cluster/view.h"
#include "ident.h"

struct teffi_grains;

/* teffi_place - an ACTIVE silo that hosts the type. out: zero when there is none. */
teffi_node_id teffi_place(struct teffi_grains *grains, const teffi_ident *ident,
                          teff_placement how);

/* The strategy travels in a request's flags: a gateway or directory may not host the type. */
static inline uint16_t teffi_placement_flags(teff_placement how)
{
    return (uint16_t)((unsigned)how << 8);
}

static inline teff_placement teffi_placement_of(uint16_t flags)
{
    unsigned how = flags >> 8 & 3u;
    return how <= TEFF_PLACE_HASH ? (teff_placement)how : TEFF_PLACE_RANDOM;
}

#endif
