/* trim.c - what a peak has left behind goes back to the system, a slice at each look.
 * Way:     monitor -> [trim] -> fiber pool, depots of base/pool -> heap -> the kernel
 * Threads: the monitor. */
#include "base/pool.h"
#include "platform/pages.h"
#include "sched/worker.h"

/* From here on it is worth while to have the heap look through what it has. */
enum { HEAP_BYTES = 4 * 1024 * 1024 };

bool teffi_trim(teffi_real *real, uint64_t now_ns)
{
    bool stacks = teffi_fiber_pool_trim(real->exec.fibers, now_ns);
    bool objects = teffi_pool_age(now_ns, &real->trimmed_bytes);
    if (!objects && real->trimmed_bytes >= HEAP_BYTES) {
        real->trimmed_bytes = 0;
        teffi_pages_trim_heap();
    }
    return stacks || objects;
}
