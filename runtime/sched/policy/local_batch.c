/* local_batch.c - how long a batch stays local. */
#include "sched/policy/local_batch.h"

#include "os/thread.h"

/* A sample is slow if it exceeds turns * TURN_NS + SLACK_NS (START_NS for the first samples). One
 * sample over SURE_NS is enough, unless the OS has preempted this thread since the last such
 * sample. DRY_NS is the longest time that a batch stays local. Chosen so that short calls of a peer
 * are hardly ever shared (BENCH=remote-call-1024). */
enum { TURN_NS = 2000, SLACK_NS = 6000, START_NS = 20000, SURE_NS = 200000, DRY_NS = 4000000 };
#ifndef TEFFI_BATCH_SHARED_SOON /* tests/explore: slow turns are rare there and batches small */
enum { SLOW_MAX = 3, SHARED_PICKS = 1024 };
#else
enum { SLOW_MAX = 2, SHARED_PICKS = 2 };
#endif
enum { FIRST_PICKS = 2, SAMPLE_EVERY = 4 };

bool teffi_local_batch_record_push(teffi_local_batch *batch, bool deque_is_open)
{
    if (!batch->exists)
        batch->picks = 0;
    batch->exists = true;
    return !batch->shared && !deque_is_open;
}

/* Set *preemptions to how often the OS has preempted this thread. out: true: the number has
 * risen. */
static bool update_preemption_count(uint64_t *preemptions)
{
    uint64_t before = *preemptions;
    *preemptions = teffi_thread_count_preemptions();
    return *preemptions != before;
}

/* Update the number of slow samples in a row, and check whether the batch is so slow that thieves
 * may take from it. in: turns: the turns in this sample; ns: how long they took in all.
 * out: true: SLOW_MAX samples in a row were slow, or this one is over SURE_NS and the OS has not
 * preempted this thread since the last sample over SURE_NS. */
static bool record_sample_and_check_if_slow(teffi_local_batch *batch, uint32_t turns, uint64_t ns,
                                            uint64_t *preemptions)
{
    uint64_t slack_ns = batch->sampled + turns > FIRST_PICKS ? SLACK_NS : START_NS;
    if (ns <= slack_ns + (uint64_t)turns * TURN_NS) {
        batch->slow = 0;
        return false;
    }
    return ++batch->slow >= SLOW_MAX || (ns > SURE_NS && !update_preemption_count(preemptions));
}

teffi_batch_verdict teffi_local_batch_sample_if_due(teffi_local_batch *batch,
                                                    const teffi_platform *platform,
                                                    uint64_t *preemptions)
{
    uint32_t n = batch->picks++;
    if ((n & (n - 1)) && n % SAMPLE_EVERY) /* samples at picks 0, 1, 2, 4, 8, 12 and so on */
        return TEFFI_BATCH_NOT_SAMPLED;
    uint64_t now = teffi_now(platform);
    if (!n) {
        batch->since_ns = now;
    } else {
        uint32_t turns = n - batch->sampled;
        /* count down the picks for which batches are still shared */
        batch->shared -= batch->shared < turns ? batch->shared : turns;
        if (record_sample_and_check_if_slow(batch, turns, now - batch->sampled_ns, preemptions) ||
            now - batch->since_ns > DRY_NS) {
            batch->shared = SHARED_PICKS;
            batch->since_ns = now;
        }
    }
    batch->sampled_ns = now;
    batch->sampled = n;
    return batch->shared ? TEFFI_BATCH_SHARED : TEFFI_BATCH_LOCAL;
}
