/* seen.c - a table of guesses, direct mapped.
 * Way:     direct -> [seen] -> activation */
#include "seen.h"

#include <stdlib.h>

void teffi_seen_init(teffi_seen *seen)
{
    seen->slots = calloc(TEFFI_SEEN_SLOTS, sizeof *seen->slots);
}

void teffi_seen_fini(teffi_seen *seen)
{
    free(seen->slots);
    seen->slots = NULL;
}

void teffi_seen_put(teffi_seen *seen, uint64_t mark, teffi_activation *act)
{
    uint64_t address = (uintptr_t)act;
    if (!seen->slots || address >> TEFFI_SEEN_ADDRESS_BITS)
        return;
    /* release: pairs with teffi_seen_get */
    atomic_store_explicit(&seen->slots[mark % TEFFI_SEEN_SLOTS], teffi_seen_tag(mark) | address,
                          memory_order_release);
}
