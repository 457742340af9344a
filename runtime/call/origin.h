/* origin.h - a table of relays and kept cancels (relay.h), found by their origin.
 * Way:     relay, call -> [origin]
 * Threads: any. A bucket's lock is a leaf. */
#pragma once

#include "call/call.h"

void teffi_origins_init(teffi_home *home);
void teffi_origins_fini(teffi_home *home);

/* teffi_origins_add_pending_entry - add an entry and make it pending: from then on any thread may
 * end it.
 * in:   call, a relay or kept cancel, with origin and out set. pending: its word.
 * out:  false: not added, and *found is the entry that prevents it: for a relay, a pending cancel
 *       of the same origin; for a cancel, any entry of that origin. Search and insertion are one
 *       step, so of a relay and its cancel the later one finds the earlier. */
bool teffi_origins_add_pending_entry(teffi_call *call, uint64_t pending, teffi_slab_use *found);

/* teffi_origins_find_entry - find an entry of a call by the bits of its word.
 * in:   node, as a word; 0: this one. bits: all are set in the word; 0: any entry, also one that
 *       has ended and is not removed yet.
 * out:  false: there is none. *found: a hint, as the entry may end meanwhile. */
bool teffi_origins_find_entry(teffi_home *home, uint64_t node, teffi_origin origin, uint32_t bits,
                              teffi_slab_use *found);

/* teffi_origins_remove_entry - remove an entry. in: call, added, and taken by this thread. */
void teffi_origins_remove_entry(teffi_call *call);
