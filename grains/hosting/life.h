/* life.h - the items of an activation's group (handler.c), and its life: begin it: register, load,
 * on_activate; end it: on_deactivate, unregister.
 * Way:     group/group -> handler -> [life] -> directory, state, the type's activate and deactivate
 * Threads: on the activation's group, then on a fiber of that group.
 * Source:  Orleans, "Grain lifecycle" */
#pragma once

#include "activation/activation.h"

/* The group's operations: handle its items, start turns, begin and end the activation. */
extern const teffi_group_ops teffi_activation_ops;

/* teffi_life_begin - begin an activation. TEFFI_BUSY_LIFE is set while this goes on in a fiber.
 * When it has ended, act->failed or act->more->winner is set, or neither: then it may be VALID. */
void teffi_life_begin(teffi_activation *act);

/* teffi_life_end - run on_deactivate and unregister. TEFFI_BUSY_LIFE is set while this goes on in a
 * fiber. */
void teffi_life_end(teffi_activation *act);

/* teffi_life_exit_turn - home.exit_turn: end a turn in its middle with err: of a method,
 * on_activate or on_deactivate. On the turn's fiber. */
void teffi_life_exit_turn(teff_ctx *ctx, teff_err err);
