/* install.h - make the grains of a silo on its node; start, end and free them.
 * Way:     silo/lifecycle -> [install] -> types, shards, directory, look-ups, collector
 * Threads: one thread at a time. */
#pragma once

#include <teff/generated.h>
#include "call/ctx.h"

/* teffi_grains_install - make node->grains; set the node's upcalls, home.exit_turn and the system
 * target of the directory.
 * in: types, sorted here and borrowed until teffi_grains_free. errs: TEFF_E_NOMEM with text. */
TEFF_MUST_USE teff_err teffi_grains_install(teffi_node *node, teff_grain_type **types, size_t n,
                                            char *text);

/* teffi_grains_start - allow activations, and start the collector. */
void teffi_grains_start(teffi_node *node);

/* teffi_grains_end_all_activations - make no more activations, ask all to end, and wait until they
 * have ended.
 * errs: TEFF_E_TIMEOUT at deadline_ns (monotonic), TEFF_E_UNAVAILABLE: the lease is over; with text
 *       in ctx. */
TEFF_MUST_USE teff_err teffi_grains_end_all_activations(teff_ctx *ctx, uint64_t deadline_ns);

/* teffi_grains_stop - stop the collector and the recovery, make no more activations, and let
 * look-ups fail. */
void teffi_grains_stop(teffi_node *node);

/* teffi_grains_free - free node->grains, which may be NULL, after the executor has stopped. */
void teffi_grains_free(teffi_node *node);
