/* local_batch.h - the local batch: groups that became READY by received messages. Thieves leave
 * them alone while their turns are short.
 * Way:     submit (add) ... find (check, at each pick) -> keep it local | let thieves take from it
 * Threads: the processor's owner. */
#pragma once

#include "os/platform.h"

/* When a group moves to another core, its cache lines follow, and those of its messages and pending
 * calls. If turns are short, that costs more than it gains (tests/bench/RESULTS.md). So a batch
 * stays local until several samples in a row are slow, one is very slow, or it has been local for
 * 4 ms. Then this batch and the next ones are shared for 1,024 picks. If a turn does not end, the
 * monitor lets thieves take from the batch. */
typedef struct teffi_local_batch {
    bool exists;       /* groups were added, and the deque was not found empty since */
    unsigned slow;     /* slow samples in a row */
    uint32_t shared;   /* picks for which new batches are still shared */
    uint32_t picks;    /* since the first group was added */
    uint32_t sampled;  /* picks at the last sample */
    uint64_t since_ns; /* time of its first pick, or when it was last shared */
    uint64_t sampled_ns;
} teffi_local_batch;

/* teffi_local_batch_record_push - record that a group was pushed to the deque; the first one begins
 * a batch.
 * in:   deque_is_open: it has other groups, and thieves may take from it.
 * out:  true: keep it local (no_steal); false: wake another worker. */
bool teffi_local_batch_record_push(teffi_local_batch *batch, bool deque_is_open);

typedef enum teffi_batch_verdict {
    TEFFI_BATCH_NOT_SAMPLED,
    TEFFI_BATCH_LOCAL,
    TEFFI_BATCH_SHARED
} teffi_batch_verdict;

/* teffi_local_batch_sample_if_due - before a pick, while the batch exists: take a sample if one is
 * due.
 * in:   preemptions, how often the OS had preempted this thread when this function last asked. It
 *       asks again, and updates the number, only after a sample of over 200 us.
 * out:  SHARED: the caller lets thieves take from the deque. */
teffi_batch_verdict teffi_local_batch_sample_if_due(teffi_local_batch *batch,
                                                    const teffi_platform *platform,
                                                    uint64_t *preemptions);
