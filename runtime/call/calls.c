/* calls.c - visits the pending calls of a node, and sweeps the blocks with passed deadlines. */
#include "call/calls.h"

#include "call/origin.h"
#include "call/relay.h"

enum { SLICE_US = 500 };

static const teffi_call_match any_pending = {TEFFI_CALL_PENDING, TEFFI_CALL_PENDING, 0, UINT64_MAX};

static teffi_call *calls_of_block(teffi_slab *slab, uint32_t block)
{
    return teffi_slab_at(slab, block * TEFFI_SLAB_BLOCK);
}

/* ---- the sweep ---- */

/* Ends the block's calls whose deadline has passed. out: the earliest deadline of the others. */
static uint64_t end_late_calls(teffi_call *calls, uint64_t now_ns)
{
    teffi_call_match late = any_pending;
    uint64_t least = UINT64_MAX;
    late.late_at_ns = now_ns;
    for (int i = 0; i < TEFFI_SLAB_BLOCK; i++) {
        uint64_t deadline_ns = teffi_call_due_ns(&calls[i]);
        if (deadline_ns > now_ns)
            least = deadline_ns < least ? deadline_ns : least;
        else /* does nothing if another thread has ended the call meanwhile */
            (void)teffi_call_end_if_matching(&calls[i], &late, TEFF_E_TIMEOUT, teffi_call_late_text,
                                             NULL);
    }
    return least;
}

/* Ends the block's calls whose deadline has passed, and sets the block's mark to the earliest
 * deadline of the others. out: that deadline; calls begun meanwhile are not included. */
static uint64_t sweep_block(teffi_slab *slab, uint32_t block, uint64_t now_ns)
{
    _Atomic uint64_t *mark = teffi_slab_get_block_mark(slab, block);
    /* seq_cst: see deadline.h */
    atomic_store_explicit(mark, UINT64_MAX, memory_order_seq_cst);
    uint64_t least = end_late_calls(calls_of_block(slab, block), now_ns);
    (void)teffi_deadline_lower(mark, least);
    return least;
}

/* Sweeps the blocks that are due, beginning with block number deadlines->at. After SLICE_US it
 * stops before the next block that is due. out: true: the sweep has visited all blocks. */
static bool sweep_slice(teffi_home *home)
{
    const teffi_platform *platform = home->exec->platform;
    teffi_deadlines *deadlines = &home->calls.deadlines;
    uint64_t from = teffi_now(platform), now = from;
    teffi_slab *slab = &home->calls.slab;
    uint32_t n = teffi_slab_block_count(slab);
    for (; deadlines->at < n; deadlines->at++) {
        /* seq_cst: see deadline.h */
        uint64_t least = atomic_load_explicit(teffi_slab_get_block_mark(slab, deadlines->at),
                                              memory_order_seq_cst);
        if (least <= now) {
            now = teffi_now(platform);
            if (now - from >= SLICE_US * 1000u)
                return false;
            least = sweep_block(slab, deadlines->at, now);
        }
        deadlines->least_ns = least < deadlines->least_ns ? least : deadlines->least_ns;
    }
    return true;
}

/* The timer's callback: begins or continues a sweep with one slice. */
static void begin_or_continue_sweep(teffi_timer *timer)
{
    teffi_home *home = teffi_container(timer, teffi_home, calls.deadlines.timer);
    teffi_deadline_sweep_begin(&home->calls.deadlines);
    teffi_deadline_sweep_end_slice(&home->calls.deadlines, sweep_slice(home));
}

/* ---- */

void teffi_calls_init(teffi_home *home)
{
    /* teffi_slab_init can fail only if entries have an image (initial contents): calls have none */
    (void)teffi_slab_init(&home->calls.slab, &teffi_call_type, home, NULL, 0);
    teffi_deadlines_init(&home->calls.deadlines, home, begin_or_continue_sweep);
    teffi_origins_init(home);
}

void teffi_calls_fini(teffi_home *home)
{
    pthread_mutex_destroy(&home->calls.deadlines.lock);
    teffi_origins_fini(home);
    teffi_slab_fini(&home->calls.slab, teffi_call_free_response);
}

/* ---- all calls ---- */

typedef struct ending {
    teff_err err;
    const char *text;
    teffi_call *relays;
} ending;

/* If e is NULL, counts the calls that match; otherwise ends them with e->err and e->text. Stops
 * after max calls. out: the number of calls that were counted or ended. */
static uint64_t count_or_end_matching(teffi_home *home, const teffi_call_match *match, ending *e,
                                      uint64_t max)
{
    teffi_slab *slab = &home->calls.slab;
    uint64_t n = 0;
    uint32_t blocks = teffi_slab_block_count(slab);
    for (uint32_t b = 0; (b = teffi_slab_next_committed(slab, b)) < blocks && n < max; b++) {
        teffi_call *calls = calls_of_block(slab, b);
        for (int i = 0; i < TEFFI_SLAB_BLOCK && n < max; i++)
            n += e ? teffi_call_end_if_matching(&calls[i], match, e->err, e->text, &e->relays)
                   : teffi_call_matches(&calls[i], match);
    }
    return n;
}

uint64_t teffi_calls_count_pending(teffi_home *home)
{
    /* CANCEL must be 0: kept cancels are not counted */
    const teffi_call_match calls = {.mask = TEFFI_CALL_PENDING | TEFFI_CALL_CANCEL,
                                    .bits = TEFFI_CALL_PENDING,
                                    .late_at_ns = UINT64_MAX};
    return count_or_end_matching(home, &calls, NULL, UINT64_MAX);
}

uint32_t teffi_calls_relay_count(teffi_home *home)
{
    /* acquire: pairs with teffi_call_free_relay */
    return atomic_load_explicit(&home->calls.relays, memory_order_acquire);
}

bool teffi_calls_any_sent_to(teffi_home *home, teffi_node_id to)
{
    teffi_call_match match = teffi_call_make_sent_to_match(to);
    return count_or_end_matching(home, &match, NULL, 1) > 0;
}

/* Ends the calls that match, but no more than max. out: a list of the ended relays whose outcomes
 * must be sent on. */
static teffi_call *end_matching(teffi_home *home, teffi_call_match match, teff_err err,
                                const char *text, uint64_t max)
{
    ending e = {err, text, NULL};
    (void)count_or_end_matching(home, &match, &e, max);
    return e.relays;
}

teffi_call *teffi_calls_end_sent_to(teffi_home *home, teffi_node_id peer)
{
    return end_matching(home, teffi_call_make_sent_to_match(peer), TEFF_E_UNREACHABLE,
                        "the link broke; the call may have run", UINT64_MAX);
}

teffi_call *teffi_calls_cancel_all(teffi_home *home)
{
    return end_matching(home, any_pending, TEFF_E_CANCELLED,
                        "the silo or client was closed; the call may have run", UINT64_MAX);
}

void teffi_calls_end_relays_of_node(teffi_home *home, teffi_node_id origin_node)
{
    uint64_t origin = teffi_node_to_word(origin_node);
    uint32_t bits = TEFFI_CALL_PENDING | TEFFI_CALL_RELAY;
    /* A client's kept cancels are ended, too. A silo's kept cancels are not ended: the requests
     * that the silo has forwarded may still be queued or running here. So for a silo the mask
     * includes CANCEL, but `bits` does not: a kept cancel does not match. */
    uint32_t keeps = origin_node.silo & TEFFI_CLIENT_BIT ? 0 : TEFFI_CALL_CANCEL;
    /* relaxed: a relay that begins meanwhile is missed and ends at its deadline */
    uint32_t most =
        atomic_load_explicit(teffi_relay_entry_count_of_node(home, origin), memory_order_relaxed);
    const teffi_call_match match = {
        .mask = bits | keeps, .bits = bits, .origin_node = origin, .late_at_ns = UINT64_MAX};
    if (most) /* a relay that ends with TEFF_E_TIMEOUT is not returned: no outcome is sent on */
        (void)end_matching(home, match, TEFF_E_TIMEOUT, NULL, most);
}
