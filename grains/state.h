/* state.h - a grain's stored state: loaded before on_activate, saved when its code says so.
 * Way:     activation -> [state] -> store, table "state", key: cluster, type, key bytes
 * Threads: on the activation's group. */
#ifndef TEFFI_GRAINS_STATE_H
#define TEFFI_GRAINS_STATE_H

#include "activation.h"

/* teffi_state_load - act->stored from the store, or empty. Nothing for a type without state.
 * errs: the store's; TEFF_E_MALFORMED: the row does not decode as the state message. */
TEFF_MUST_USE teff_err teffi_state_load(teff_ctx *ctx, teffi_activation *act);

/* teffi_state_compact - between turns, when none runs: give back what the state no longer uses. */
bool teffi_state_compacts(const teffi_activation *act);
void teffi_state_compact(teffi_activation *act);

/* teffi_state_free - with its arena. */
void teffi_state_free(teffi_activation *act);

#endif
