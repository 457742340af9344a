/* view.h - one version of the cluster's members, and the owner of each directory partition.
 * Way:     membership -> [view] -> directory (owners), placement (hosts), net (addresses)
 * Threads: immutable once made; references are counted. */
#pragma once

#include "link/net.h"

/* The hash ring has this many equal partitions, each with one owner. Part of the wire protocol. */
enum { TEFFI_PARTITIONS = 256 };

/* A silo that has left, or was declared dead, is no member; the view remembers the last ones. */
typedef enum teffi_status {
    TEFFI_ACTIVE = 1,
    TEFFI_LEAVING = 2,
    TEFFI_LEFT = 3,
    TEFFI_DEAD = 4
} teffi_status;

typedef struct teffi_member {
    teffi_node_id node;
    teffi_status status;
    char address[TEFFI_ADDRESS_MAX + 1];
    uint32_t *types; /* ids of the types it hosts */
    size_t n_types;
    uint32_t *versions;           /* of the types, in their order; in a view in the same memory */
    size_t n_versions;            /* the versions of the other types are 0 */
    uint32_t lease_ms, outage_ms; /* as in teffi_lease */
    uint8_t key[TEFFI_KEY_BYTES]; /* as teffi_hello.key; zeros: it has joined without TLS */
} teffi_member;

typedef struct teffi_gone { /* a silo that has left (LEFT) or was declared dead (DEAD) */
    teffi_node_id node;
    teffi_status status;
} teffi_gone;

/* What a view says about a silo. STRANGER: nothing; it may be joining. */
typedef enum teffi_standing {
    TEFFI_STANDING_STRANGER,
    TEFFI_STANDING_MEMBER,
    TEFFI_STANDING_LEFT, /* may still pass on requests that it has received */
    TEFFI_STANDING_DEAD, /* or the view has a later start of the same silo */
} teffi_standing;

typedef struct teffi_view {
    _Atomic uint32_t refs;
    uint64_t version;
    uint64_t table_etag;   /* of the version row from which the view was made; 0: there is none */
    teffi_member *members; /* sorted by node; ACTIVE and LEAVING */
    size_t n_members, n_active;
    teffi_gone *gone;
    size_t n_gone;
    int16_t owner[TEFFI_PARTITIONS]; /* index into members, ACTIVE ones only; -1: none */
} teffi_view;

/* teffi_view_new - make a view of copies of members, of any status, and compute the owners.
 * out:  with one reference; NULL: no memory. */
teffi_view *teffi_view_new(uint64_t version, const teffi_member *members, size_t n);

/* teffi_view_ref - one more reference. out: view. teffi_view_unref - in: view, may be NULL. */
const teffi_view *teffi_view_ref(const teffi_view *view);
void teffi_view_unref(const teffi_view *view);

/* teffi_view_ref_current - take a reference to the node's current view. out: NULL: it has no view
 * yet. */
struct teffi_node;
const teffi_view *teffi_view_ref_current(struct teffi_node *node);

/* teffi_view_current_has_member - is silo a member of the node's current view? */
bool teffi_view_current_has_member(struct teffi_node *node, teffi_node_id silo);

/* teffi_view_find_member - find a member. out: valid as long as the view; NULL: not in the view. */
const teffi_member *teffi_view_find_member(const teffi_view *view, teffi_node_id node);

/* teffi_view_standing - what does the view say about this node? in: view, NULL: none. */
teffi_standing teffi_view_standing(const teffi_view *view, teffi_node_id node);

/* teffi_view_owner - the silo that keeps the directory entries of a partition; zero: none. */
teffi_node_id teffi_view_owner(const teffi_view *view, unsigned partition);

/* teffi_partition_of_hash - the partition of a grain: the highest 8 bits of its hash. */
static inline unsigned teffi_partition_of_hash(uint64_t grain_hash)
{
    return (unsigned)(grain_hash >> 56);
}

/* teffi_member_type_version - which version of the type does the silo host? out: -1: it does
 * not. */
int64_t teffi_member_type_version(const teffi_member *member, uint32_t type_id);
