/* deferred.h - a list of deferred work, such as a write that serves many requests at once.
 * Way:     transport -> exec op (defer) -> [deferred] -> a worker that finds no group
 * Threads: any thread pushes; the thread that runs the list takes all of it at once. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct teffi_deferred {
    /* Called once for each time that the work was deferred. It may defer the work again, and must
     * not block. */
    void (*run)(struct teffi_deferred *work);
    struct teffi_deferred *next; /* link in the list */
} teffi_deferred;

/* teffi_deferred_push - add work, which is in no list, to a list. runs: any thread. out: true: the
 * list was empty. */
static inline bool teffi_deferred_push(teffi_deferred *_Atomic *list, teffi_deferred *work)
{
    teffi_deferred *head = atomic_load_explicit(list, memory_order_relaxed);
    do
        work->next = head;
    /* seq_cst: the caller's next load comes after this store. seq_cst includes release, which makes
     * work->next visible to teffi_deferred_run_all. */
    while (!atomic_compare_exchange_weak_explicit(list, &head, work, memory_order_seq_cst,
                                                  memory_order_relaxed));
    return !head;
}

/* teffi_deferred_run_all - empty the list, then run all work that was in it, the newest first. */
static inline void teffi_deferred_run_all(teffi_deferred *_Atomic *list)
{
    /* acquire: pairs with teffi_deferred_push */
    teffi_deferred *at = atomic_exchange_explicit(list, NULL, memory_order_acquire);
    while (at) {
        teffi_deferred *next = at->next; /* read now: at->run may push the work again */
        at->run(at);
        at = next;
    }
}
