/* later.c - what a worker puts off to the end of its pass, so that it is done once for many: the
 * transport's writes.
 * Way:     exec op -> [later] -> find.c, when the worker finds nothing else to do -> later->run
 * Threads: a slot's list is filled by the worker that holds it and emptied by that worker, or by
 *          the monitor when one turn keeps the worker for long. */
#include <stddef.h>
#include "sched/worker.h"

enum { AGE_MAX_NS = 50000 }; /* of a pass that does not end */

bool teffi_put_off(teffi_exec *exec, teffi_later *later)
{
    teffi_worker *w = teffi_worker_self();
    if (!w || &w->real->exec != exec || w->blocking || w->ends_pass)
        return false;
    uint32_t was = teffi_enter(w);
    teffi_slot *slot = teffi_slot_kept(w);
    if (slot && teffi_later_put(&slot->laters, later))
        slot->later_ms = teffi_warn_now(&w->real->exec.warn);
    teffi_leave(w, was);
    return slot != NULL;
}

void teffi_laters_do(teffi_slot *slot)
{
    teffi_later_do_all(&slot->laters);
}

void teffi_laters_end(teffi_worker *w)
{
    w->ends_pass = true;
    (void)teffi_laters_run(w->slot);
    w->ends_pass = false;
}

void teffi_laters_age(teffi_slot *slot)
{
    if (!atomic_load_explicit(&slot->laters, memory_order_relaxed)) {
        slot->later_ns = 0;
    } else if (!slot->later_ns) {
        slot->later_ns = slot->now_ns;
    } else if (slot->now_ns - slot->later_ns > AGE_MAX_NS) {
        slot->later_ns = 0;
        teffi_laters_do(slot);
    }
}
