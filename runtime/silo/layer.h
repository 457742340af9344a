/* layer.h - the grains layer as a silo starts and stops it: the one table by which the runtime,
 * which knows nothing of grains, drives what is built on it. Filled in by grains/install.c.
 * Way:     silo/lifecycle -> [layer] -> grains */
#ifndef TEFFI_SILO_LAYER_H
#define TEFFI_SILO_LAYER_H

#include <teff/grain.h>
#include "base/line.h"
#include "node/ctx.h"

typedef struct teffi_layer {
    /* Make the layer for a node and install its upcalls and system targets. types are borrowed.
     * errs: TEFF_E_NOMEM with text. */
    teff_err (*make)(teffi_node *node, teff_grain_type **types, size_t n, char *text);
    /* The silo has joined: activations may be made. */
    void (*start)(teffi_node *node);
    /* Make none any more, end all; waits. errs: TEFF_E_TIMEOUT at deadline_ns (mono). */
    teff_err (*leave)(teff_ctx *ctx, uint64_t deadline_ns);
    /* Are requests on their way through this silo? */
    bool (*routing)(teffi_node *node);
    /* No timer of the layer fires any more. */
    void (*stop)(teffi_node *node);
    /* After the executor is gone. */
    void (*free)(teffi_node *node);
    /* Lines about what it holds. From any thread, while the silo serves. */
    void (*dump)(teffi_node *node, const teffi_lines *to);
    const teff_type_info *(*info)(const teff_grain_type *type);
} teffi_layer;

extern const teffi_layer teffi_grains_layer;

#endif
