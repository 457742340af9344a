/* install.c - make, start, end and free the grains of a silo. Sets the node's upcalls, by which
 * runtime/ calls grains/. */
#include "hosting/install.h"

#include <stdlib.h>
#include <string.h>
#include "activation/type.h"
#include "base/error.h"
#include "call/wait.h"
#include "cluster/membership.h"
#include "directory/location_cache.h"
#include "directory/server.h"
#include "hosting/collector.h"
#include "hosting/life.h"
#include "hosting/notices.h"
#include "activation/load_limit.h"
#include "activation/waits.h"
#include "request/activation_cache.h"
#include "request/deadlock.h"
#include "request/route.h"
#include "reminder/schedule.h"
#include "reminder/server.h"

/* ---- upcalls ---- */

/* Refuses a message without a key, because no kind of key is empty. */
static void route_grain_request(teffi_node *node, teffi_msg *msg)
{
    if (msg->key_len)
        teffi_route(node->grains, msg);
    else
        teffi_node_respond_with_err(node, msg, TEFF_E_INVALID, "the message names no grain");
}

static void route_unsent_request(teffi_node *node, teffi_node_id to, teffi_msg *msg)
{
    teffi_reroute_unsent_request(node->grains, msg, to);
}

/* Lets the location cache and this silo's partitions adopt a new view. Starts the recovery of the
 * partitions that need it. */
static void grains_adopt_view(teffi_node *node, const teffi_view *old, const teffi_view *now)
{
    (void)old;
    teffi_locations_adopt_view(node->grains->location_cache, now, node->id);
    if (teffi_partitions_adopt_view(node->grains, now))
        teffi_recover_start(node->grains);
}

static const teffi_upcalls upcalls = {
    .request = route_grain_request,
    .unsent = route_unsent_request,
    .notice = teffi_notices_handle,
    .view = grains_adopt_view,
};

/* ---- making and freeing ---- */

/* The grains with their parts, in zeroed memory. */
typedef struct hosted {
    teffi_shards shards;
    teffi_location_cache location_cache;
    teffi_activation_cache activation_cache;
    teffi_load_limit load_limit;
    teffi_waits waits;
    teffi_reminders reminders;
    teffi_grains grains;
    teffi_collector collector;
} hosted;

static hosted *get_hosting_state(teffi_grains *grains)
{
    return teffi_container(grains, hosted, grains);
}

static void free_hosting_state(teffi_grains *grains)
{
    teffi_collector_fini(&get_hosting_state(grains)->collector);
    teffi_waits_fini(grains->waits);
    teffi_reminders_fini(grains->reminders);
    free(get_hosting_state(grains));
}

static void init_grains(hosted *all, teffi_node *node, teff_grain_type **types, size_t n)
{
    teffi_grains *grains = &all->grains;
    grains->node = node;
    grains->group_ops = &teffi_activation_ops;
    grains->secret.k0 = node->platform->random(node->platform->arg);
    grains->secret.k1 = node->platform->random(node->platform->arg);
    const uint64_t seal_key[] = {teffi_siphash(&grains->secret, "seal 0", 6),
                                 teffi_siphash(&grains->secret, "seal 1", 6)};
    _Static_assert(sizeof seal_key == TEFFI_SEAL_KEY_BYTES, "two words are a key");
    memcpy(grains->seal_key, seal_key, sizeof seal_key);
    grains->types = types;
    grains->n_types = n;
    grains->shards = &all->shards;
    grains->location_cache = &all->location_cache;
    grains->activation_cache = &all->activation_cache;
    grains->load_limit = &all->load_limit;
    teffi_load_limit_init(&all->load_limit);
    grains->waits = &all->waits;
    teffi_waits_init(&all->waits, node);
    grains->reminders = &all->reminders;
    grains->phases_changed = teffi_reminders_apply_phases;
    teffi_collector_init(&all->collector, grains);
}

static teffi_grains *new_grains(teffi_node *node, teff_grain_type **types, size_t n)
{
    hosted *all = calloc(1, sizeof *all);
    if (!all)
        return NULL;
    teffi_types_sort(types, n);
    init_grains(all, node, types, n);
    bool ready = teffi_reminders_init(&all->reminders, &all->grains, teffi_reminders_run_ticks,
                                      teffi_reminders_load);
    if (!teffi_shards_init(&all->shards, &all->grains) || !ready) {
        teffi_shards_fini(&all->shards);
        free_hosting_state(&all->grains);
        return NULL;
    }
    return &all->grains;
}

teff_err teffi_grains_install(teffi_node *node, teff_grain_type **types, size_t n, char *text)
{
    node->grains = new_grains(node, types, n);
    if (!node->grains)
        return teffi_fail(text, TEFF_E_NOMEM, "out of memory for activations");
    node->upcalls = upcalls;
    node->home.exit_turn = teffi_life_exit_turn;
    teffi_node_set_target(node, TEFFI_SLOT_DIRECTORY, teffi_directory_handle_request);
    teffi_node_set_target(node, TEFFI_SLOT_DEADLOCK, teffi_deadlock_receive_probe);
    teffi_node_set_target(node, TEFFI_SLOT_REMINDER, teffi_reminders_handle_request);
    return TEFF_OK;
}

void teffi_grains_free(teffi_node *node)
{
    teffi_grains *grains = node->grains;
    if (!grains)
        return;
    teffi_lookups_fini(grains);
    teffi_partitions_fini(grains->shards);
    teffi_shards_fini(grains->shards);
    free_hosting_state(grains);
    node->grains = NULL;
}

/* ---- starting and ending ---- */

void teffi_grains_start(teffi_node *node)
{
    teffi_collector_start(&get_hosting_state(node->grains)->collector);
    node->grains->accepting = true;
}

static uint64_t count_activations(const teffi_grains *grains)
{
    /* seq_cst pairs with teffi_shard_create_activation(); the acquire that seq_cst includes pairs
     * with teffi_shard_reclaim_activation(). */
    return atomic_load_explicit(&grains->shards->activations, memory_order_seq_cst);
}

/* A round begins every ROUND_MS, and asks at most ROUND_ENDS activations to end: millions at once
 * would delay the silo's system messages. */
enum { ROUND_MS = 2, ROUND_ENDS = 8192 };

/* Called for each activation by teffi_shards_walk_activations(). out: false: the round is over. */
static bool ask_activation_to_end(void *arg, teffi_activation *act)
{
    unsigned *asked = arg;
    teffi_activation_ask_to_end(act, TEFF_REASON_STOPPING);
    return ++*asked < ROUND_ENDS;
}

/* Repeats the rounds until no activation is left. A single walk is not enough: it may miss an
 * activation that is just being made. */
teff_err teffi_grains_end_all_activations(teff_ctx *ctx, uint64_t deadline_ns)
{
    teffi_grains *grains = ctx->node->grains;
    uint64_t cursor = 0;
    atomic_store_explicit(&grains->accepting, false, memory_order_seq_cst);
    while (count_activations(grains) > 0) {
        unsigned asked = 0;
        if (teffi_lease_is_over(&ctx->home->lease))
            return teff_fail(ctx, TEFF_E_UNAVAILABLE, "%s", teffi_lease_over_text);
        (void)teffi_shards_walk_activations(grains, NULL, &cursor, ask_activation_to_end, &asked);
        if (teffi_now(grains->node->platform) >= deadline_ns)
            return teff_fail(ctx, TEFF_E_TIMEOUT, "%llu activations did not end in time",
                             (unsigned long long)count_activations(grains));
        teffi_ctx_sleep(ctx, ROUND_MS);
    }
    return TEFF_OK;
}

void teffi_grains_stop(teffi_node *node)
{
    hosted *all = get_hosting_state(node->grains);
    node->grains->accepting = false;
    node->grains->closed = true;
    teffi_membership_signal_change(node->membership); /* wakes waiting look-ups, which then fail */
    teffi_collector_stop(&all->collector);
    teffi_waits_stop(&all->waits);
    teffi_recover_cancel_timer(node->grains);
    teffi_reminders_stop(&all->reminders);
}
