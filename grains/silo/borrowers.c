/* borrowers.c - which members use this silo's store? A silo that joined through this silo, its
 * seed, writes its heartbeats to the seed's store. So a member whose last write is older than its
 * lease has left, has lost its lease, or uses another store by now.
 * Way:     remote_store -> [borrowers] -> lifecycle: a seed leaves after the silos that use its
 *          store */
#include "silo/silo.h"

#include "cluster/view.h"

/* borrowers.lock held. out: the silo's entry. A silo without one gets an unused entry or, if there
 * is none, that of the silo whose last write is the oldest. */
static teffi_borrower *find_or_replace_borrower(teffi_borrowers *b, teffi_node_id silo)
{
    teffi_borrower *oldest = &b->of[0];
    for (size_t i = 0; i < TEFFI_BORROWERS_MAX; i++) {
        if (teffi_node_equals(b->of[i].node, silo))
            return &b->of[i];
        if (b->of[i].wrote_ns < oldest->wrote_ns)
            oldest = &b->of[i];
    }
    oldest->node = silo;
    return oldest;
}

void teffi_borrowers_record_write(teffi_node *node, teffi_node_id silo)
{
    teffi_borrowers *b = node->borrowers;
    uint64_t now = teffi_now(node->platform);
    pthread_mutex_lock(&b->lock);
    find_or_replace_borrower(b, silo)->wrote_ns = now;
    pthread_mutex_unlock(&b->lock);
}

/* Is the borrower a member of the view, and its last write not older than its lease? */
static bool borrower_is_alive(const teffi_borrower *borrower, const teffi_view *view, uint64_t now)
{
    const teffi_member *member =
        borrower->wrote_ns ? teffi_view_find_member(view, borrower->node) : NULL;
    return member && now - borrower->wrote_ns <= member->lease_ms * UINT64_C(1000000);
}

size_t teffi_borrowers_count(teffi_node *node)
{
    teffi_borrowers *b = node->borrowers;
    const teffi_view *view = teffi_view_ref_current(node);
    size_t n = 0;
    pthread_mutex_lock(&b->lock);
    uint64_t now = teffi_now(node->platform);
    for (size_t i = 0; view && i < TEFFI_BORROWERS_MAX; i++)
        n += borrower_is_alive(&b->of[i], view, now);
    pthread_mutex_unlock(&b->lock);
    teffi_view_unref(view);
    return n;
}
