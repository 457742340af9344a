/* view.h - one version of "who is in the cluster", and who owns which part of the directory.
 * Way:     membership -> [view] -> directory (owners), placement (hosts), net (addresses)
 * Threads: immutable once made; references are counted.
 * Source:  DESIGN section 7; ORLEANS 2.1, 2.3 */
#ifndef TEFFI_CLUSTER_VIEW_H
#define TEFFI_CLUSTER_VIEW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "process/msg.h"
#include "wire/net.h"

/* The hash ring is cut into this many equal arcs; an arc moves as a whole. Part of the protocol. */
enum { TEFFI_PARTITIONS = 256 };

typedef enum teffi_status { TEFFI_ACTIVE = 1, TEFFI_LEAVING = 2 } teffi_status;

typedef struct teffi_member {
    teffi_node_id node;
    teffi_status status;
    char address[TEFFI_ADDRESS_MAX + 1];
    uint32_t *types; /* ids of the types it hosts, sorted */
    size_t n_types;
} teffi_member;

typedef struct teffi_view {
    _Atomic uint32_t refs;
    uint64_t version;
    teffi_member *members; /* sorted by node; ACTIVE and LEAVING ones */
    size_t n_members, n_active;
    int16_t owner[TEFFI_PARTITIONS]; /* index into members, ACTIVE ones only; -1: none */
} teffi_view;

/* teffi_view_new - takes copies of members; computes the owners.
 * out:  NULL when memory is out; one reference. */
teffi_view *teffi_view_new(uint64_t version, const teffi_member *members, size_t n);

const teffi_view *teffi_view_ref(const teffi_view *view);
void teffi_view_unref(const teffi_view *view); /* NULL allowed */

/* teffi_view_get - the node's current view, referenced; NULL before the first. */
struct teffi_node;
const teffi_view *teffi_view_get(struct teffi_node *node);

/* teffi_view_find - a member by node; NULL when it is not in the view. */
const teffi_member *teffi_view_find(const teffi_view *view, teffi_node_id node);

/* teffi_view_owner - who keeps the directory entries of a partition; none: zero. */
teffi_node_id teffi_view_owner(const teffi_view *view, unsigned partition);

static inline unsigned teffi_partition(uint64_t grain_hash)
{
    return (unsigned)(grain_hash >> 56);
}

/* teffi_member_hosts - does it host the type? */
bool teffi_member_hosts(const teffi_member *member, uint32_t type_id);

#endif
