/* inbound.h - a batch of received messages, and the queue of those that wait for a worker.
 * Way:     link -> exec op (inbound) -> [inbound] -> batch->run
 * States:  IDLE -put-> QUEUED -a worker-> IDLE; QUEUED -take back-> TAKEN_BACK -a worker-> IDLE
 * Threads: one submission of a batch at a time, from any thread; a batch that was taken back may
 *          be submitted again at once. The queue's groups run on workers. */
#pragma once

#include "group/group.h"

enum {
    TEFFI_INBOUND_GROUPS = 16,  /* queued batches that workers run at a time, at most */
    TEFFI_INBOUND_SHORT = 1024, /* bytes; a batch up to this is not worth waking a worker */
};

typedef enum teffi_inbound_state {
    TEFFI_INBOUND_IDLE, /* item is in no queue */
    TEFFI_INBOUND_QUEUED,
    TEFFI_INBOUND_TAKEN_BACK /* item is still queued; its handler does not run the batch */
} teffi_inbound_state;

/* A new one is zeroed, except the first three fields, which its owner sets. */
typedef struct teffi_inbound {
    /* Dispatches the messages. It may submit the batch again, for the next read. */
    void (*run)(struct teffi_inbound *batch);
    /* Called once for each submission, after its run, or some time after a take_back: for this
     * submission the executor does not use the batch any more. Until then its memory must stay. */
    void (*release)(struct teffi_inbound *batch);
    size_t bytes; /* received; set before each submission */
    /* the queue's */
    teffi_item item;
    teffi_group *group;
    _Atomic teffi_inbound_state state;
    _Atomic uint64_t queued_ns;
    _Atomic uint64_t unqueued_until_ns; /* do not queue it before, since its last wait was long */
} teffi_inbound;

typedef struct teffi_inbound_group {
    teffi_group group;
    _Atomic uint32_t puts; /* number of puts under way; plus a flag: the queue has stopped */
    void (*run)(struct teffi_exec *exec, teffi_inbound *batch);
} teffi_inbound_group;

typedef struct teffi_inbound_queue {
    teffi_inbound_group groups[TEFFI_INBOUND_GROUPS];
    _Atomic uint32_t next; /* round robin: the group of the next new batch */
} teffi_inbound_queue;

/* teffi_inbound_queue_init - in: run, which a worker calls for each batch, and which calls
 * batch->run. */
void teffi_inbound_queue_init(teffi_inbound_queue *queue, struct teffi_exec *exec,
                              void (*run)(struct teffi_exec *exec, teffi_inbound *batch));

/* teffi_inbound_queue_put - queue a batch for a worker.
 * out:  true: the queue releases it. false: the caller must run and release it: it is short, its
 *       item is still queued, its last wait was long, or the queue has stopped. */
bool teffi_inbound_queue_put(teffi_inbound_queue *queue, teffi_inbound *batch);

/* teffi_inbound_queue_drain_and_stop - queue no batch from now on, wait until the puts under way
 * have returned, and run all queued batches here.
 * runs: after the workers have ended. */
void teffi_inbound_queue_drain_and_stop(teffi_inbound_queue *queue);

/* teffi_inbound_is_overdue - has the batch been QUEUED for more than 50 ms? Any thread. */
bool teffi_inbound_is_overdue(const teffi_inbound *batch, uint64_t now_ns);

/* teffi_inbound_take_back - take a QUEUED batch back from the workers. Any thread. out: true: no
 * worker will run it, the caller runs it; a worker still releases it, maybe at once, so the caller
 * needs a reference of its own. false: it is not QUEUED. */
bool teffi_inbound_take_back(teffi_inbound *batch, uint64_t now_ns);
