/* explore_memory.c - what an explored atomic operation or lock does: a point, then the operation;
 * others may see its store later.
 * Way:     explored source -> explore_atomic.h -> [memory] -> the variable itself
 * Threads: as explore.h.
 *
 * A thread's stores wait in order in a buffer of its own and become visible one by one, as on x86;
 * its own loads see them. A seq_cst store, and a read-modify-write that is at least release, first
 * empty the buffer. One that is only acquire or relaxed need not by C11 (on x86 it would): it only
 * does where it must, for the variable itself. The same goes for locks: taking one is an acquire,
 * giving one back a release store. Loads are never early: a missing acquire is not found here. */
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "explore.h"
#include "memory/slab.h"

static uint64_t memory_get(const volatile void *at, size_t size)
{
    switch (size) {
    case 1:
        return *(const volatile uint8_t *)at;
    case 4:
        return *(const volatile uint32_t *)at;
    default:
        teffi_bug_if(size != 8);
        return *(const volatile uint64_t *)at;
    }
}

static void memory_set(volatile void *at, uint64_t value, size_t size)
{
    switch (size) {
    case 1:
        *(volatile uint8_t *)at = (uint8_t)value;
        break;
    case 4:
        *(volatile uint32_t *)at = (uint32_t)value;
        break;
    default:
        teffi_bug_if(size != 8);
        *(volatile uint64_t *)at = value;
    }
}

static uint32_t bit(const explore_thread *t)
{
    return (uint32_t)1 << (t - ex.thread);
}

/* Visible to all; who waits for this lock looks again. */
static void publish(volatile void *at, uint64_t value, size_t size)
{
    memory_set(at, value, size);
    explore_notify((const void *)at);
}

void explore_drain_one(explore_thread *t)
{
    explore_store s = t->store[0];
    t->n_stores--;
    memmove(t->store, t->store + 1, t->n_stores * sizeof s);
    if (!t->n_stores)
        ex.buffered &= ~bit(t);
    explore_note("%s: its store of %#llx becomes visible", t->name, (unsigned long long)s.value);
    publish(s.at, s.value, s.size);
}

void explore_flush(explore_thread *t)
{
    while (t && t->n_stores)
        explore_drain_one(t);
}

static const explore_store *own_store(const volatile void *at)
{
    explore_thread *t = ex.current;
    for (unsigned i = t ? t->n_stores : 0; i-- > 0;)
        if (t->store[i].at == at)
            return &t->store[i];
    return NULL;
}

static uint64_t value_of(const volatile void *at, size_t size)
{
    const explore_store *own = own_store(at);
    return own ? own->value : memory_get(at, size);
}

static bool releases(int order)
{
    return order == memory_order_release || order == memory_order_acq_rel ||
           order == memory_order_seq_cst;
}

/* Before a read-modify-write of at: see above. */
static void settle(const volatile void *at, int order)
{
    if (releases(order))
        explore_flush(ex.current);
    while (own_store(at))
        explore_drain_one(ex.current);
}

void explore_load(const volatile void *at, void *out, size_t size, int order, const char *where)
{
    (void)order;
    explore_point(where, "load");
    uint64_t value = value_of(at, size);
    memcpy(out, &value, size);
    explore_note("  = %#llx", (unsigned long long)value);
}

static uint64_t value_in(const void *in, size_t size)
{
    uint64_t value = 0;
    memcpy(&value, in, size);
    return value;
}

static void store(volatile void *at, uint64_t value, size_t size, int order)
{
    explore_thread *t = ex.current;
    if (!t || !ex.manner.buffers || order == memory_order_seq_cst) {
        explore_flush(t);
        publish(at, value, size);
        return;
    }
    if (t->n_stores == EXPLORE_BUFFER_MAX)
        explore_drain_one(t);
    t->store[t->n_stores++] = (explore_store){(void *)at, value, (unsigned)size};
    ex.buffered |= bit(t);
    ex.late_stores++;
}

void explore_store_to(volatile void *at, const void *in, size_t size, int order, const char *where)
{
    explore_point(where, "store");
    uint64_t value = value_in(in, size);
    explore_note("  %#llx", (unsigned long long)value);
    store(at, value, size, order);
}

void explore_plain(volatile void *at, const void *in, size_t size)
{
    explore_flush(ex.current);
    memory_set(at, value_in(in, size), size);
}

/* After a read-modify-write: others may see it, and not yet the plain stores that follow. */
static void point_after(const char *where)
{
    if (ex.manner.after)
        explore_point(where, "after it");
}

void explore_exchange(volatile void *at, const void *in, void *old, size_t size, int order,
                      const char *where)
{
    explore_point(where, "exchange");
    settle(at, order);
    uint64_t before = memory_get(at, size);
    memcpy(old, &before, size);
    explore_note("  %#llx, was %#llx", (unsigned long long)value_in(in, size),
                 (unsigned long long)before);
    publish(at, value_in(in, size), size);
    point_after(where);
}

bool explore_cas(volatile void *at, void *expected, const void *want, size_t size, int order,
                 int failed_order, bool weak, const char *where)
{
    (void)failed_order; /* a load, and loads are never early */
    explore_point(where, "compare and swap");
    uint64_t before = value_of(at, size);
    bool spurious = weak && ex.current && explore_draw(256) < ex.manner.spurious;
    if (spurious || before != value_in(expected, size)) {
        explore_note("  failed, was %#llx", (unsigned long long)before);
        memcpy(expected, &before, size);
        return false;
    }
    settle(at, order);
    /* What settled may have been an older store of this thread to the same variable only. */
    teffi_bug_if(memory_get(at, size) != before);
    explore_note("  %#llx, was %#llx", (unsigned long long)value_in(want, size),
                 (unsigned long long)before);
    publish(at, value_in(want, size), size);
    point_after(where);
    return true;
}

static uint64_t applied(explore_op op, uint64_t value, uint64_t by)
{
    switch (op) {
    case EXPLORE_ADD:
        return value + by;
    case EXPLORE_SUB:
        return value - by;
    case EXPLORE_AND:
        return value & by;
    default:
        return value | by;
    }
}

void explore_fetch(volatile void *at, explore_op op, const void *by, void *old, size_t size,
                   int order, const char *where)
{
    explore_point(where, "fetch and change");
    settle(at, order);
    uint64_t before = memory_get(at, size);
    memcpy(old, &before, size);
    publish(at, applied(op, before, value_in(by, size)), size);
    explore_note("  %#llx, was %#llx", (unsigned long long)memory_get(at, size),
                 (unsigned long long)before);
    point_after(where);
}

void explore_fence(int order, const char *where)
{
    explore_point(where, "fence");
    if (order == memory_order_seq_cst)
        explore_flush(ex.current);
}

/* A store of another thread that is still on its way to memory given back was never waited for. */
void explore_free(void *memory)
{
    if (!memory)
        return;
    explore_flush(ex.current);
    const char *from = memory, *to = from + malloc_usable_size(memory);
    for (unsigned i = 0; i < ex.n_threads; i++)
        for (unsigned k = 0; k < ex.thread[i].n_stores; k++) {
            const char *at = ex.thread[i].store[k].at;
            if (at >= from && at < to)
                explore_fail("memory was freed while %s still writes to it", ex.thread[i].name);
        }
    free(memory);
}

/* ---- locks ---- */

void explore_lock_init(void *mutex)
{
    uint32_t nobody = 0;
    explore_plain(&((explore_lock *)mutex)->holder, &nobody, sizeof nobody);
}

static uint32_t self(void)
{
    return ex.current ? (uint32_t)(ex.current - ex.thread) + 1 : UINT32_MAX;
}

int explore_lock_take(void *mutex, const char *at)
{
    explore_lock *lock = mutex;
    explore_point(at, "lock");
    while (own_store(&lock->holder)) /* given back by this thread a moment ago */
        explore_drain_one(ex.current);
    while (memory_get(&lock->holder, sizeof lock->holder)) {
        if (!ex.current || memory_get(&lock->holder, sizeof lock->holder) == self())
            explore_fail("%s: locks what it holds already", at);
        (void)explore_wait(&lock->holder, UINT64_MAX);
    }
    publish(&lock->holder, self(), sizeof lock->holder);
    if (ex.current)
        ex.current->n_locks++;
    return 0;
}

int explore_lock_give(void *mutex, const char *at)
{
    explore_lock *lock = mutex;
    explore_point(at, "unlock");
    if (memory_get(&lock->holder, sizeof lock->holder) != self())
        explore_fail("%s: gives back a lock that it does not hold", at);
    store(&lock->holder, 0, sizeof lock->holder, memory_order_release);
    if (ex.current)
        ex.current->n_locks--;
    return 0;
}

void explore_slab_put(teffi_slab *slab, void *entry)
{
    explore_flush(ex.current);
    teffi_slab_put(slab, entry);
}
