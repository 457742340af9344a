/* life.h - handle the items of an activation's group (handler.c); begin an activation (register,
 * load, on_activate) and end it (on_deactivate, unregister).
 * Way:     group/group -> handler -> [life] -> directory, state, the type's activate and deactivate
 * Threads: on the activation's group, then on a fiber of that group.
 * Source:  Orleans' src/Orleans.Runtime/Catalog/ActivationData.cs */
#pragma once

#include "activation/activation.h"

/* The group's operations: handle its items, start turns, begin and end the activation. */
extern const teffi_group_ops teffi_activation_ops;

/* teffi_life_begin - register act, load its state, run on_activate. TEFFI_BUSY_LIFE is set while
 * this continues on a fiber. When all is done, act may become VALID, unless act->failed or
 * act->more->winner is set. */
void teffi_life_begin(teffi_activation *act);

/* teffi_life_end - run on_deactivate and unregister act. TEFFI_BUSY_LIFE is set while this
 * continues on a fiber. If there is no stack for the fiber, logs an error and does neither. */
void teffi_life_end(teffi_activation *act);

/* teffi_life_start_resolving_lock - start a life turn that runs teffi_lock_resolve. If there is no
 * stack for the turn, it starts later, after the lock's watch has run again. */
void teffi_life_start_resolving_lock(teffi_activation *act);

/* teffi_life_exit_turn - home.exit_turn: end the turn of a method, or a life turn (on_activate,
 * on_deactivate, teffi_lock_resolve), in its middle, with err. On the turn's fiber. */
void teffi_life_exit_turn(teff_ctx *ctx, teff_err err);
