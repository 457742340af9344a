/* view.c - makes views; assigns owners by consistent hashing. */
#include "cluster/view.h"

#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "node/node.h"

/* Points of a silo on the ring: with 64 the largest share is about a third above the mean. */
enum { POINTS = 64 };

/* For qsort: orders members by silo, then by incarnation. */
static int compare_members_by_node(const void *a, const void *b)
{
    const teffi_member *x = a, *y = b;
    if (x->node.silo != y->node.silo)
        return x->node.silo < y->node.silo ? -1 : 1;
    return (x->node.incarnation > y->node.incarnation) -
           (x->node.incarnation < y->node.incarnation);
}

/* Makes the member the owner of the partition that contains the point, unless a point of another
 * member is before this one in the partition. Of equal points, the first caller's counts.
 * in, out: first: each partition's first point so far. */
static void put_point(teffi_view *view, uint64_t point, int16_t member, uint64_t *first)
{
    unsigned partition = (unsigned)(point >> 56);
    if (view->owner[partition] >= 0 && first[partition] <= point)
        return;
    view->owner[partition] = member;
    first[partition] = point;
}

/* Gives the partitions without points the owner of the next one that has points. After the last
 * partition the ring begins again. Without points, no partition has an owner (-1). */
static void set_owners_between_points(teffi_view *view)
{
    int16_t next = -1;
    for (unsigned i = 2 * TEFFI_PARTITIONS; i-- > 0;) {
        int16_t *owner = &view->owner[i % TEFFI_PARTITIONS];
        if (*owner < 0)
            *owner = next;
        next = *owner;
    }
}

/* Puts POINTS points of each ACTIVE member on the ring. The owner of a partition is the member of
 * the first point at or after the start of the partition. */
static void assign_partition_owners(teffi_view *view)
{
    uint64_t first[TEFFI_PARTITIONS];
    for (unsigned i = 0; i < TEFFI_PARTITIONS; i++)
        view->owner[i] = -1;
    for (size_t m = 0; m < view->n_members; m++) {
        teffi_node_id id = view->members[m].node;
        for (uint64_t i = 0; view->members[m].status == TEFFI_ACTIVE && i < POINTS; i++)
            put_point(view, teffi_hash64(&id, sizeof id, i), (int16_t)m, first);
    }
    set_owners_between_points(view);
}

/* Appends a copy of the member to view->members. out: false: no memory; teffi_view_unref frees what
 * was copied. */
static bool append_member_copy(teffi_view *view, const teffi_member *member)
{
    teffi_member *to = &view->members[view->n_members++]; /* teffi_view_unref frees this many */
    *to = *member;
    to->types = calloc(to->n_types + to->n_versions + 1, sizeof *to->types);
    if (!to->types)
        return false;
    to->versions = to->types + to->n_types;
    if (to->n_types)
        memcpy(to->types, member->types, to->n_types * sizeof *to->types);
    if (to->n_versions)
        memcpy(to->versions, member->versions, to->n_versions * sizeof *to->versions);
    view->n_active += to->status == TEFFI_ACTIVE;
    return true;
}

/* Adds copies of the ACTIVE and LEAVING members to the view, and records in view->gone those that
 * have left or are dead. out: false: no memory; teffi_view_unref frees what was copied. */
static bool copy_members_and_record_gone(teffi_view *view, const teffi_member *members, size_t n)
{
    view->members = calloc(n + 1, sizeof *view->members);
    view->gone = calloc(n + 1, sizeof *view->gone);
    if (!view->members || !view->gone)
        return false;
    for (size_t i = 0; i < n; i++)
        if (members[i].status >= TEFFI_LEFT)
            view->gone[view->n_gone++] = (teffi_gone){members[i].node, members[i].status};
        else if (!append_member_copy(view, &members[i]))
            return false;
    qsort(view->members, view->n_members, sizeof *view->members, compare_members_by_node);
    return true;
}

teffi_view *teffi_view_new(uint64_t version, const teffi_member *members, size_t n)
{
    teffi_view *view = calloc(1, sizeof *view);
    if (!view)
        return NULL;
    atomic_init(&view->refs, 1);
    view->version = version;
    if (!copy_members_and_record_gone(view, members, n)) {
        teffi_view_unref(view);
        return NULL;
    }
    assign_partition_owners(view);
    return view;
}

const teffi_view *teffi_view_ref(const teffi_view *view)
{
    teffi_view *v = (teffi_view *)(uintptr_t)view;
    atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
    return view;
}

void teffi_view_unref(const teffi_view *view)
{
    teffi_view *v = (teffi_view *)(uintptr_t)view;
    /* acq_rel: all uses of the view by other holders happen before the last holder frees it */
    if (!v || atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < v->n_members; i++)
        free(v->members[i].types);
    free(v->members);
    free(v->gone);
    free(v);
}

const teffi_view *teffi_view_ref_current(teffi_node *node)
{
    pthread_mutex_lock(&node->lock);
    const teffi_view *view = node->view ? teffi_view_ref(node->view) : NULL;
    pthread_mutex_unlock(&node->lock);
    return view;
}

bool teffi_view_current_has_member(teffi_node *node, teffi_node_id silo)
{
    const teffi_view *view = teffi_view_ref_current(node);
    bool has = view && teffi_view_find_member(view, silo);
    teffi_view_unref(view);
    return has;
}

/* out: the index of the first member that compare_members_by_node() does not put before node. */
static size_t find_place(const teffi_view *view, teffi_node_id node)
{
    size_t from = 0, to = view->n_members;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        teffi_node_id at = view->members[middle].node;
        bool before =
            at.silo != node.silo ? at.silo < node.silo : at.incarnation < node.incarnation;
        if (before)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

const teffi_member *teffi_view_find_member(const teffi_view *view, teffi_node_id node)
{
    size_t i = find_place(view, node);
    bool found = i < view->n_members && teffi_node_equals(view->members[i].node, node);
    return found ? &view->members[i] : NULL;
}

/* A silo gets a higher incarnation each time it starts. So `node` is dead not only if the view
 * lists it as dead, but also if the view lists the same silo with a higher incarnation. */
teffi_standing teffi_view_standing(const teffi_view *view, teffi_node_id node)
{
    size_t place = view ? find_place(view, node) : 0;
    if (view && place < view->n_members && view->members[place].node.silo == node.silo)
        return teffi_node_equals(view->members[place].node, node) ? TEFFI_STANDING_MEMBER
                                                                  : TEFFI_STANDING_DEAD;
    for (size_t i = 0; view && i < view->n_gone; i++) {
        teffi_node_id gone = view->gone[i].node;
        if (gone.silo == node.silo && gone.incarnation >= node.incarnation)
            return gone.incarnation == node.incarnation && view->gone[i].status == TEFFI_LEFT
                       ? TEFFI_STANDING_LEFT
                       : TEFFI_STANDING_DEAD;
    }
    return TEFFI_STANDING_STRANGER;
}

teffi_node_id teffi_view_owner(const teffi_view *view, unsigned partition)
{
    int16_t owner = view->owner[partition];
    return owner < 0 ? (teffi_node_id){0} : view->members[owner].node;
}

int64_t teffi_member_type_version(const teffi_member *member, uint32_t type_id)
{
    for (size_t i = 0; i < member->n_types; i++)
        if (member->types[i] == type_id)
            return i < member->n_versions ? member->versions[i] : 0;
    return -1;
}
