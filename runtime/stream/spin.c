/* spin.c - spins are paid for by earlier ones that found events. */
#include "stream/spin.h"

enum {
    CREDIT_MAX = 16,
    MISS_COSTS = 4, /* so at most four spins in a row are in vain */
    TRY_EVERY = 64, /* short waits */
};

uint64_t teffi_spin_choose_ns(const teffi_spin *spin, size_t bytes)
{
    bool spins = spin->credit || spin->short_waits == TRY_EVERY;
    return spins && bytes <= TEFFI_SPIN_BYTES_MAX ? TEFFI_SPIN_NS : 0;
}

void teffi_spin_record_wait(teffi_spin *spin, bool spun, bool found, uint64_t waited_ns)
{
    if (!spun) {
        spin->short_waits += spin->short_waits < TRY_EVERY;
    } else {
        spin->short_waits = 0;
        if (found)
            spin->credit += spin->credit < CREDIT_MAX;
        else
            spin->credit -= spin->credit < MISS_COSTS ? spin->credit : MISS_COSTS;
    }
    if (waited_ns >= TEFFI_WAIT_SHORT_NS)
        spin->credit = spin->short_waits = 0;
}
