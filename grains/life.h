/* life.h - how an activation begins and ends: register, load, on_activate; on_deactivate,
 * unregister.
 * Way:     activation -> [life] -> directory, state, the type's activate and deactivate
 * Threads: starts on the activation's group, goes on on a fiber of it.
 * Source:  ORLEANS 1, Activation lifecycle; 2.3 */
#ifndef TEFFI_GRAINS_LIFE_H
#define TEFFI_GRAINS_LIFE_H

#include "activation.h"

/* teffi_life_begin - busy until it has ended: then valid, or failed, or winner is set. */
void teffi_life_begin(teffi_activation *act);

/* teffi_life_is_bare - once it is registered nothing is left to be done to begin it. */
bool teffi_life_is_bare(const teff_grain_type *type);

/* teffi_life_end - busy until on_deactivate has run and the directory knows. */
void teffi_life_end(teffi_activation *act);

#endif
