/* membership.h - who is in the cluster: joins, leaves, follows the table, tells the others.
 * Way:     silo/lifecycle -> [membership] -> rows (store), view -> node->upcalls.view
 * Threads: join and leave on one context at a time; the rest from anywhere. Views are adopted one
 *          at a time, versions only rise.
 * Source:  DESIGN section 7; ORLEANS 2.1 */
#ifndef TEFFI_CLUSTER_MEMBERSHIP_H
#define TEFFI_CLUSTER_MEMBERSHIP_H

#include "cluster/view.h"
#include "node/ctx.h"

typedef struct teffi_membership teffi_membership;

enum { TEFFI_METHOD_VIEW_AT_LEAST = 1, TEFFI_METHOD_GO_AWAY = 2 }; /* TEFFI_SLOT_MEMBERSHIP */

/* teffi_membership_new - for a silo; types are the ids it hosts (copied). Serves its system slot.
 * out:  NULL when memory is out. */
teffi_membership *teffi_membership_new(teffi_node *node, const uint32_t *types, size_t n);

/* teffi_membership_free - after the node's tasks have ended. NULL allowed. */
void teffi_membership_free(teffi_membership *membership);

/* teffi_membership_guess - the id for an address by the clock alone, before the table can
 * be read. */
void teffi_membership_guess(teff_ctx *ctx, const char *address);

/* teffi_membership_identify - this start's id: incarnation over the table's last one for address.
 * out:  node->id and node->address are set. errs: the store's. */
TEFF_MUST_USE teff_err teffi_membership_identify(teff_ctx *ctx, const char *address);

/* teffi_membership_join - write ourselves ACTIVE, adopt the view, have the others adopt it, and
 * begin to follow the table. errs: the store's, TEFF_E_TIMEOUT (too many conflicts). */
TEFF_MUST_USE teff_err teffi_membership_join(teff_ctx *ctx);

/* teffi_membership_leaving - LEAVING: nothing new is placed here; every other silo has adopted that
 * view when this returns, or could not be reached. */
TEFF_MUST_USE teff_err teffi_membership_leaving(teff_ctx *ctx);

/* teffi_membership_left - out of the view for good; likewise adopted by the others. */
TEFF_MUST_USE teff_err teffi_membership_left(teff_ctx *ctx);

/* teffi_membership_stop - follow the table no longer (start no more tasks). */
void teffi_membership_stop(teffi_membership *membership);

/* teffi_membership_refresh - adopt what the table says, at least version.
 * errs: the store's; TEFF_E_TIMEOUT: the table has no such version yet. */
TEFF_MUST_USE teff_err teffi_membership_refresh(teff_ctx *ctx, uint64_t version);

/* teffi_membership_ousted - has the cluster declared us dead? Then nothing may be served. */
bool teffi_membership_ousted(const teffi_membership *membership);

#endif
