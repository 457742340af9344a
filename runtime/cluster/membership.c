/* membership.c - creates and frees a silo's membership. */
#include "cluster/membership.h"

#include <stdlib.h>
#include <string.h>
#include "cluster/join.h"

teffi_membership *teffi_membership_new(teffi_node *node, const uint32_t *types,
                                       const uint32_t *versions, size_t n)
{
    teffi_membership *m = calloc(1, sizeof *m + 2 * n * sizeof *types);
    if (!m)
        return NULL;
    m->node = node;
    m->n_types = n;
    m->n_versions = versions ? n : 0;
    if (n)
        memcpy(m->types, types, n * sizeof *types);
    if (n && versions)
        memcpy(m->types + n, versions, n * sizeof *versions);
    pthread_mutex_init(&m->follow.lock, NULL);
    pthread_mutex_init(&m->beat.lock, NULL);
    pthread_mutex_init(&m->follow.changes.lock, NULL);
    pthread_mutex_init(&m->outsiders.lock, NULL);
    pthread_mutex_init(&m->promises.lock, NULL);
    pthread_mutex_init(&m->reach.lock, NULL);
    teffi_stuck_init(m);
    node->membership = m;
    node->check_silo = teffi_membership_check_peer;
    node->check_key = teffi_membership_check_key;
    node->hear_view = teffi_membership_hear_view;
    node->hold = teffi_membership_hold_msg_if_needed;
    teffi_node_set_target(node, TEFFI_SLOT_MEMBERSHIP, teffi_membership_handle_request);
    return m;
}

void teffi_membership_free(teffi_membership *m)
{
    if (!m)
        return;
    for (unsigned i = 0; i < TEFFI_VIEWS_KEPT; i++)
        teffi_view_unref(m->follow.before[i]);
    teffi_view_unref(m->node->view);
    m->node->view = NULL;
    pthread_mutex_destroy(&m->follow.lock);
    pthread_mutex_destroy(&m->beat.lock);
    pthread_mutex_destroy(&m->follow.changes.lock);
    pthread_mutex_destroy(&m->outsiders.lock);
    pthread_mutex_destroy(&m->promises.lock);
    pthread_mutex_destroy(&m->reach.lock);
    free(m);
}
