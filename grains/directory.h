/* directory.h - which activation holds a grain, anywhere in the cluster? Strong from the start.
 * Way:     activation (register), locate (lookup) -> [directory] -> the owner of the grain's
 *          partition
 *
 * The hash space is cut into 256 partitions; the view's ring gives each an owner. A silo that
 * becomes owner of a partition locks it, asks every silo of the view for its confirmed activations
 * in it, and serves when all have answered. A silo answers only after it has adopted that view (or
 * a later one), and a registration confirmed by the former owner around the change is done again
 * with the new one; so each confirmed activation is known to the new owner before it serves.
 * Requests carry the asker's view; an owner behind it catches up first, a former owner says
 * REFRESH.
 *
 *     a partition here:   NOT_MINE --view gives it--> LOCKED --all answered--> SERVING
 *                              ^------------------view takes it----------------'
 *
 * Threads: a lock per partition; remote requests come through the system target.
 * Source:  DESIGN 7; ORLEANS 2.3 (its recovery path, made the only path: one mechanism for joins,
 *          leaves and crashes, and nothing to hand over that could be lost) */
#ifndef TEFFI_GRAINS_DIRECTORY_H
#define TEFFI_GRAINS_DIRECTORY_H

#include <pthread.h>
#include "base/queue.h"
#include "base/table.h"
#include "cluster/view.h"
#include "ident.h"
#include "node/ctx.h"

struct teffi_grains;
struct teffi_activation;

/* methods of TEFFI_SLOT_DIRECTORY */
enum {
    TEFFI_METHOD_REGISTER = 1,
    TEFFI_METHOD_LOOKUP = 2,
    TEFFI_METHOD_UNREGISTER = 3,
    TEFFI_METHOD_RECOVER = 4,
    TEFFI_METHOD_MOVED = 5
};

typedef enum teffi_part_phase { TEFFI_NOT_MINE = 0, TEFFI_LOCKED, TEFFI_SERVING } teffi_part_phase;

/* Who holds which grain of a partition. What this silo's own activations hold is not in entries but
 * in the catalog, as registered: so it takes no memory here, and need not be recovered. The lock is
 * that of the catalog's shard of this number. */
typedef struct teffi_partition_table {
    teffi_part_phase phase;
    teffi_table entries; /* of other silos' activations; they count before the catalog's */
    teffi_queue parked;  /* remote requests that came while LOCKED (teffi_msg.link) */
} teffi_partition_table;

typedef struct teffi_directory {
    teffi_partition_table parts[TEFFI_PARTITIONS];
    _Atomic uint64_t version; /* of the view the phases follow */
    _Atomic bool recovering;  /* a task runs that unlocks partitions */
} teffi_directory;

void teffi_directory_fini(struct teffi_grains *grains);

/* teffi_directory_view - phases follow a new view. One at a time, under adoption. */
void teffi_directory_view(struct teffi_grains *grains, const teffi_view *now);

/* teffi_directory_handle - the system target. */
void teffi_directory_handle(teffi_node *node, teffi_msg *msg);

/* teffi_directory_register - make an activation the grain's one, or learn who is.
 * out:  TEFF_OK: *holder is pid, and will be known to whoever owns the partition next;
 *       TEFF_E_EXISTS: *holder is another one. errs: TEFF_E_UNAVAILABLE, TEFF_E_TIMEOUT. */
TEFF_MUST_USE teff_err teffi_directory_register(teff_ctx *ctx, struct teffi_activation *act,
                                                teffi_pid *holder);

/* teffi_directory_register_here, teffi_directory_unregister_here - the same at once, when this silo
 * owns the partition and serves it. errs: TEFF_E_UNAVAILABLE: it does not; the other way. */
TEFF_MUST_USE teff_err teffi_directory_register_here(struct teffi_activation *act,
                                                     teffi_pid *holder);
TEFF_MUST_USE teff_err teffi_directory_unregister_here(struct teffi_activation *act);

/* teffi_directory_nobody - this silo owns the grain's partition and serves it, and no other silo
 * holds the grain. Under the partition's lock: while that is held, one that is registered may be
 * made here. */
bool teffi_directory_nobody(struct teffi_grains *grains, const teffi_ident *ident);

/* teffi_directory_lookup - who holds it. out: TEFF_E_NOT_FOUND: nobody. errs: as above. */
TEFF_MUST_USE teff_err teffi_directory_lookup(teff_ctx *ctx, const teffi_ident *ident,
                                              teffi_pid *holder);

/* teffi_directory_unregister - pid does not hold it any more (nothing happens if it did not). */
TEFF_MUST_USE teff_err teffi_directory_unregister(teff_ctx *ctx, const teffi_ident *ident,
                                                  teffi_pid pid);

/* teffi_directory_peek - lookup without waiting, when this silo owns the partition and serves it.
 * out:  TEFF_OK, TEFF_E_NOT_FOUND, or TEFF_E_UNAVAILABLE: ask with teffi_directory_lookup. */
TEFF_MUST_USE teff_err teffi_directory_peek(struct teffi_grains *grains, const teffi_ident *ident,
                                            teffi_pid *holder);

/* ---- shared by directory.c, directory_ask.c and recover.c ---- */

typedef struct teffi_entry { /* of a partition's table */
    teffi_tnode node;
    teffi_pid pid;
    uint32_t type, key_len;
    uint8_t key[];
} teffi_entry;

/* teffi_directory_apply - one operation on a partition we serve; under no lock.
 * out:  TEFF_OK with *holder (HELD), TEFF_E_NOT_FOUND (absent), TEFF_E_UNAVAILABLE (NOT_MINE),
 *       TEFF_E_CLOSED (LOCKED; msg, when not NULL, was parked), TEFF_E_NOMEM. */
TEFF_MUST_USE teff_err teffi_directory_apply(struct teffi_grains *grains, uint32_t method,
                                             const teffi_ident *ident, teffi_pid pid,
                                             teffi_pid *holder, teffi_msg *msg);

/* teffi_directory_merge - an entry that recovery found, into a LOCKED partition; the first one
 * wins. */
TEFF_MUST_USE teff_err teffi_directory_merge(struct teffi_grains *grains, const teffi_ident *ident,
                                             teffi_pid pid);

/* teffi_directory_unlock - LOCKED partitions of a set (a bit each) serve, if view version still is
 * the directory's; parked requests go on. */
void teffi_directory_unlock(struct teffi_grains *grains, const uint8_t *set, uint64_t version);

/* teffi_recover_start - see to it that a task unlocks what is LOCKED. */
void teffi_recover_start(struct teffi_grains *grains);

/* teffi_recover_answer - list what we hold of the partitions asked for; owns msg. */
void teffi_recover_answer(struct teffi_grains *grains, teffi_msg *msg);

#endif
