/* install.c - the grains layer of a silo: made, hooked into the node, left, freed. The one file in
 * which the runtime's upward seams are filled in.
 * Way:     silo/lifecycle -> [install] -> types, catalog, directory, locate, collector */
#include <stdio.h>
#include <stdlib.h>
#include "base/bug.h"
#include "collector.h"
#include "grains.h"
#include "route.h"
#include "silo/layer.h"

/* ---- types ---- */

static int by_id(const void *a, const void *b)
{
    const teff_grain_type *const *x = a, *const *y = b;
    return ((*x)->info->id > (*y)->info->id) - ((*x)->info->id < (*y)->info->id);
}

const teff_grain_type *teffi_type_find(const teffi_grains *grains, uint32_t id)
{
    size_t low = 0, high = grains->n_types;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (grains->types[mid]->info->id == id)
            return grains->types[mid];
        if (grains->types[mid]->info->id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

const teff_method *teffi_method_find(const teff_type_info *info, uint32_t id)
{
    size_t low = 0, high = info->n_methods;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (info->methods[mid].id == id)
            return &info->methods[mid];
        if (info->methods[mid].id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

teff_grain_type *teff_grain_type_new(const teff_type_info *info, const void *methods, void *user)
{
    teff_grain_type *type = malloc(sizeof *type);
    _Atomic uint32_t *slow = calloc(info->n_methods + 1, sizeof *slow);
    if (!type || !slow) {
        free(type);
        free(slow);
        return NULL;
    }
    *type = (teff_grain_type){.info = info, .methods = methods, .user = user, .slow = slow};
    return type;
}

void teff_grain_type_free(teff_grain_type *type)
{
    if (type)
        free(type->slow);
    free(type);
}

void teff_grain_type_priority(teff_grain_type *type, int8_t priority)
{
    type->priority = priority;
}

/* ---- upcalls ---- */

static void on_request(teffi_node *node, teffi_msg *msg)
{
    teffi_route(node->grains, msg);
}

static void on_view(teffi_node *node, const teffi_view *old, const teffi_view *now)
{
    (void)old;
    teffi_hints_view(&node->grains->hints, now, node->id);
    teffi_directory_view(node->grains, now);
}

static const teffi_upcalls upcalls = {.request = on_request, .view = on_view};

/* ---- life of the layer ---- */

static void free_grains(teffi_grains *grains)
{
    teffi_catalog_fini(&grains->catalog);
    pthread_mutex_destroy(&grains->collect_lock);
    free(grains->types);
    free(grains);
}

static teffi_grains *new_grains(teffi_node *node, teff_grain_type **types, size_t n)
{
    teffi_grains *grains = calloc(1, sizeof *grains);
    if (!grains)
        return NULL;
    grains->node = node;
    pthread_mutex_init(&grains->collect_lock, NULL);
    grains->types = calloc(n + 1, sizeof(teff_grain_type *));
    if (!teffi_catalog_init(&grains->catalog, grains) || !grains->types) {
        free_grains(grains);
        return NULL;
    }
    if (n)
        memcpy(grains->types, types, n * sizeof *types);
    qsort(grains->types, n, sizeof *types, by_id);
    grains->n_types = n;
    return grains;
}

static teff_err layer_make(teffi_node *node, teff_grain_type **types, size_t n, char *text)
{
    teffi_grains *grains = new_grains(node, types, n);
    if (!grains) {
        snprintf(text, TEFF_TEXT_MAX, "out of memory");
        return TEFF_E_NOMEM;
    }
    teffi_hints_init(&grains->hints);
    teffi_locate_init(grains);
    teffi_seen_init(&grains->seen);
    node->grains = grains;
    node->upcalls = upcalls;
    teffi_node_target(node, TEFFI_SLOT_DIRECTORY, teffi_directory_handle);
    return TEFF_OK;
}

static void layer_start(teffi_node *node)
{
    teffi_collector_start(node->grains);
    node->grains->accepting = true;
}

typedef struct ending {
    unsigned part, asked;
    uint64_t at;
} ending;

enum { ROUND_MS = 2, ROUND_ENDS = 8192 };

static bool end_one(void *arg, teffi_activation *act)
{
    ending *e = arg;
    teffi_activation_end(act, TEFF_REASON_STOPPING);
    return ++e->asked < ROUND_ENDS;
}

/* Not all of millions at once: the silo still talks to the cluster. */
static void end_some(teffi_grains *grains, ending *e)
{
    e->asked = 0;
    while (e->part < TEFFI_PARTITIONS && e->asked < ROUND_ENDS)
        if (teffi_catalog_each(grains, e->part, &e->at, end_one, e)) {
            e->part++;
            e->at = 0;
        }
    if (e->part == TEFFI_PARTITIONS)
        e->part = 0;
}

/* Asked again in each round: one that was just activating may have been asked too early. */
static teff_err layer_leave(teff_ctx *ctx, uint64_t deadline_ns)
{
    teffi_grains *grains = ctx->node->grains;
    ending e = {0};
    grains->accepting = false;
    while (atomic_load_explicit(&grains->catalog.count, memory_order_relaxed) > 0) {
        end_some(grains, &e);
        if (teffi_now(grains->node->platform) >= deadline_ns)
            return teffi_ctx_fail(ctx, TEFF_E_TIMEOUT, "%llu activations did not end in time",
                                  (unsigned long long)grains->catalog.count);
        teffi_ctx_sleep(ctx, ROUND_MS);
    }
    return TEFF_OK;
}

static bool layer_routing(teffi_node *node)
{
    return teffi_locating_any(node->grains);
}

static void layer_stop(teffi_node *node)
{
    node->grains->accepting = false;
    node->grains->closed = true;
    teffi_collector_stop(node->grains);
}

static void layer_free(teffi_node *node)
{
    teffi_grains *grains = node->grains;
    if (!grains)
        return;
    teffi_locate_fini(grains);
    teffi_hints_fini(&grains->hints);
    teffi_seen_fini(&grains->seen);
    teffi_directory_fini(grains);
    free_grains(grains);
    node->grains = NULL;
}

static const teff_type_info *layer_info(const teff_grain_type *type)
{
    return type->info;
}

const teffi_layer teffi_grains_layer = {
    .make = layer_make,
    .start = layer_start,
    .leave = layer_leave,
    .routing = layer_routing,
    .stop = layer_stop,
    .free = layer_free,
    .dump = teffi_grains_dump,
    .info = layer_info,
};
