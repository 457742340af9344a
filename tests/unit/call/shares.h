/* shares.h - nodes whose keyed hashes are equal share one count of relays and cancels
 * (call/relay.h): two of any 1,024. */
#pragma once

#include "call/relay.h"

static inline bool have_same_share(teffi_home *home, teffi_node_id a, teffi_node_id b)
{
    return teffi_relay_entry_count_of_node(home, teffi_node_to_word(a)) ==
           teffi_relay_entry_count_of_node(home, teffi_node_to_word(b));
}

/* out: an id after that of node, which does not share its count. */
static inline teffi_node_id next_of_other_share(teffi_home *home, teffi_node_id node)
{
    teffi_node_id other = node;
    do
        other.silo++;
    while (have_same_share(home, node, other));
    return other;
}
