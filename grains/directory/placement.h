/* placement.h - on which silo shall a grain be activated?
 * Way:     route, partition -> [placement] -> view
 * Source:  Orleans' src/Orleans.Runtime/Placement/PlacementService.cs */
#pragma once

#include "activation/grains.h"
#include "activation/ident.h"
#include "activation/type.h"
#include "cluster/view.h"

/* A request carries the caller's strategy and version of the type in its flags (bits 8 and 9, bits
 * 10 to 15), because the silo that places the grain may not host the type.
 * teffi_placement_flags - the flags for the caller's type.
 * teffi_flags_placement_strategy - the strategy in flags; for a stateless worker:
 *       TEFF_PLACE_STATELESS.
 * teffi_flags_place_at_random - the flags with the strategy TEFF_PLACE_RANDOM.
 * teffi_flags_type_version - the version in flags; 0: none.
 * teffi_flags_raise_type_version - the flags with at least this version. in: version, at most
 *       TEFFI_VERSION_MAX. */
enum { TEFFI_VERSION_MAX = 63 };

static inline uint16_t teffi_placement_flags(const teff_type_info *info)
{
    return (uint16_t)((unsigned)info->placement << 8 | (info->version & TEFFI_VERSION_MAX) << 10);
}

/* teffi_placement_flags_of_strategy - the flags of a caller without a version of the type. */
static inline uint16_t teffi_placement_flags_of_strategy(teff_placement placement)
{
    return (uint16_t)((unsigned)placement << 8);
}

static inline uint32_t teffi_flags_type_version(uint16_t flags)
{
    return flags >> 10;
}

static inline uint16_t teffi_flags_raise_type_version(uint16_t flags, uint32_t version)
{
    return teffi_flags_type_version(flags) >= version
               ? flags
               : (uint16_t)((flags & 0x3ffu) | version << 10);
}

static inline uint16_t teffi_flags_place_at_random(uint16_t flags)
{
    return (uint16_t)(flags & ~(3u << 8));
}

/* teffi_placement_choose_silo - choose an ACTIVE silo that hosts the type, in the version of flags
 * or a newer one, by the strategy of flags. For a stateless worker, choose any such silo but this
 * one. in: flags, of a request. out: zero: there is none. */
teffi_node_id teffi_placement_choose_silo(teffi_grains *grains, const teffi_ident *ident,
                                          uint16_t flags);

/* teffi_find_newest_type_version - find the newest version of the type on the ACTIVE silos. out:
 * -1: no silo hosts the type. */
int64_t teffi_find_newest_type_version(teffi_grains *grains, uint32_t type);

/* teffi_placement_respond_error - respond to msg with an error, because no silo can run it:
 * TEFF_E_NOT_FOUND if newest is -1, else TEFF_E_VERSION. in: newest, the newest version that a silo
 * hosts; -1: no silo hosts the type. Owns msg. */
void teffi_placement_respond_error(teffi_grains *grains, teffi_msg *msg, int64_t newest);

static inline teff_placement teffi_flags_placement_strategy(uint16_t flags)
{
    return (teff_placement)(flags >> 8 & 3u);
}
