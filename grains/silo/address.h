/* address.h - check addresses and other options of users before anything is opened; connect to a
 * node by its address. link/net.h says which addresses are valid.
 * Way:     silo (seeds), client (gateways) -> [address] -> net */
#pragma once

#include <stdbool.h>
#include <teff/silo.h>
#include "call/ctx.h"

/* teffi_address_is_loopback - can only this machine reach address: loopback or a unix path? */
bool teffi_address_is_loopback(const char *address);

/* teffi_address_is_wildcard - does address mean all interfaces ("0.0.0.0", "[::]")? */
bool teffi_address_is_wildcard(const char *address);

/* teffi_cluster_id_is_valid - is cluster a valid id, 1..64 of [A-Za-z0-9._-]? */
bool teffi_cluster_id_is_valid(const char *cluster);

/* teffi_option_refuse - write "option: 'value'; expected ..." to text, TEFF_TEXT_MAX bytes or NULL.
 * out: TEFF_E_INVALID. */
teff_err teffi_option_refuse(char *text, const char *option, const char *value,
                             const char *expected);

/* teffi_option_check_address - check an address. With TLS it must not be a unix path. in: text, as
 * above. errs: TEFF_E_INVALID. */
TEFF_MUST_USE teff_err teffi_option_check_address(char *text, const char *option,
                                                  const char *address, bool tls);

/* teffi_options_check - check the options that both silos and clients have.
 * in:   addresses: TEFF_SEEDS_MAX of them, or fewer and then NULL. name: their option's name, for
 *       the error text.
 *       text: as above.
 * errs: TEFF_E_INVALID. */
TEFF_MUST_USE teff_err teffi_options_check(const char *cluster, const char *name,
                                           const char *const *addresses, teff_transport transport,
                                           const char *tls_cert, const char *tls_ca,
                                           uint64_t connection_bytes_max, char *text);

/* teffi_dial - connect to a node, and wait for its hello. out: *peer, the hello.
 * errs: TEFF_E_UNREACHABLE, TEFF_E_REFUSED; text in ctx. */
TEFF_MUST_USE teff_err teffi_dial(teff_ctx *ctx, const char *address, teffi_hello *peer);
