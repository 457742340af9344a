/* reclaim.c - the timer that reclaims a slab's memory. */
#include "call/reclaim.h"

#include "base/queue.h"

static void set_slice_timer(teffi_reclaim *reclaim, uint64_t due_ns)
{
    pthread_mutex_lock(&reclaim->lock);
    if (!reclaim->stopped)
        reclaim->exec->ops->timer_set(reclaim->exec, &reclaim->timer, due_ns);
    pthread_mutex_unlock(&reclaim->lock);
}

static void reclaim_slice(teffi_timer *timer)
{
    teffi_reclaim *reclaim = teffi_container(timer, teffi_reclaim, timer);
    uint64_t next_ns = teffi_slab_reclaim(reclaim->slab, reclaim->exec->platform);
    if (next_ns)
        set_slice_timer(reclaim, next_ns);
}

void teffi_reclaim_soon(teffi_reclaim *reclaim, teffi_exec *exec)
{
    pthread_mutex_lock(&reclaim->lock);
    bool stopped = reclaim->stopped;
    reclaim->exec = exec;
    pthread_mutex_unlock(&reclaim->lock);
    if (!stopped)
        set_slice_timer(reclaim, teffi_now(exec->platform) + TEFFI_SLAB_AGE_MS * UINT64_C(1000000));
}

void teffi_reclaim_stop(teffi_reclaim *reclaim)
{
    pthread_mutex_lock(&reclaim->lock);
    reclaim->stopped = true;
    pthread_mutex_unlock(&reclaim->lock);
}

void teffi_reclaim_init(teffi_reclaim *reclaim, teffi_slab *slab)
{
    *reclaim = (teffi_reclaim){.slab = slab, .timer = {.fire = reclaim_slice}};
    pthread_mutex_init(&reclaim->lock, NULL);
}

void teffi_reclaim_fini(teffi_reclaim *reclaim)
{
    pthread_mutex_destroy(&reclaim->lock);
}
