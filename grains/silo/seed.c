/* seed.c - connects a silo to its seed, the silo whose store it uses; again if it was lost. A seed
 * is known by its address: if it was started again there, it has another id.
 * Way:     lifecycle, remote_store -> [seed] -> address -> net
 * Threads: teffi_seed_dial_again: any; the task runs on the system thread. */
#include "silo/silo.h"

#include "call/task.h"
#include "call/wait.h"
#include "silo/address.h"

/* The pause after a dial doubles with each dial, up to PAUSE_MAX_MS. The second half of it is
 * random, so that the silos of a seed do not dial at the same time. */
enum { PAUSE_MIN_MS = 50, PAUSE_MAX_MS = 1000 };

teff_err teffi_seed_dial(teff_ctx *ctx, teff_silo *silo, teffi_hello *peer)
{
    teff_err err = TEFF_E_UNREACHABLE;
    for (int i = 0; i < TEFF_SEEDS_MAX && silo->opt.seeds[i] && err; i++) {
        silo->seed.address = silo->opt.seeds[i];
        err = teffi_dial(ctx, silo->seed.address, peer);
    }
    if (!err)
        silo->node.seed = teffi_node_to_word(peer->node);
    return err;
}

bool teffi_seed_may_return(const teffi_node *node, const teffi_seed *seed)
{
    return !seed->closed && !teffi_lease_is_over(&node->home.lease);
}

static void pause_after_dial(teff_ctx *ctx, uint32_t pause_ms)
{
    const teffi_platform *platform = ctx->node->platform;
    uint32_t half_ms = pause_ms / 2;
    teffi_ctx_sleep(ctx, half_ms + (uint32_t)(platform->random(platform->arg) % half_ms));
}

/* Logs if another silo than before has accepted. The table of members tells which one it is. */
static void set_seed_and_log_change(teffi_node *node, const char *address, const teffi_hello *peer)
{
    uint64_t id = teffi_node_to_word(peer->node);
    if (atomic_exchange(&node->seed, id) != id)
        teffi_logf(&node->platform->log, TEFF_LOG_INFO,
                   "silo %s: its seed %.256s was started again", node->address, address);
}

/* The task of teffi_seed_dial_again(). Pauses also after the last dial, so that a seed that accepts
 * connections, but does not respond yet, is not dialled more often. */
static void dial_seed_until_accepted(teff_ctx *ctx, void *arg)
{
    teffi_seed *seed = arg;
    teff_err err = TEFF_E_UNREACHABLE;
    uint32_t pause_ms = PAUSE_MIN_MS;
    while (err && teffi_seed_may_return(ctx->node, seed)) {
        teffi_hello peer;
        err = teffi_dial(ctx, seed->address, &peer);
        if (!err)
            set_seed_and_log_change(ctx->node, seed->address, &peer);
        pause_after_dial(ctx, pause_ms);
        pause_ms = pause_ms < PAUSE_MAX_MS / 2 ? pause_ms * 2 : PAUSE_MAX_MS;
    }
    seed->dialling = false;
}

void teffi_seed_dial_again(teffi_node *node, teffi_seed *seed)
{
    if (teffi_seed_may_return(node, seed) && !atomic_exchange(&seed->dialling, true) &&
        teffi_task_start(&node->home, dial_seed_until_accepted, seed, "dial the seed", true))
        seed->dialling = false;
}
