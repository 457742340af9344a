/* dial.h - reach a node of which only the address is known, and wait for its hello.
 * Way:     silo (seeds), client (gateways) -> [dial] -> net */
#ifndef TEFFI_SILO_DIAL_H
#define TEFFI_SILO_DIAL_H

#include "node/ctx.h"

/* teffi_dial - out: *peer, who answered. errs: TEFF_E_UNREACHABLE, TEFF_E_REFUSED; text in ctx. */
TEFF_MUST_USE teff_err teffi_dial(teff_ctx *ctx, const char *address, teffi_hello *peer);

#endif
