/* sim_filter.c - in some of the worlds: all silos and clients have filters, which pause some calls
 * before and after the method, and refuse a few. Do all other checks hold, and has each filter its
 * own state?
 * Way:     world -> [filter] -> options of silos and clients -> calls -> [filter], which checks */
#include <teff/filter.h>
#include "activation/activation.h"
#include "call/wait.h"
#include "sim_world.h"

/* STREAM_FILTER is chosen so that no seed of seeds.txt, and of the planted bugs, draws filters. */
enum {
    STREAM_FILTER = 15742,
    FILTERS_OF_1000 = 150,
    PAUSES_OF_1000 = 60,
    REFUSING_OF_1000 = 500, /* worlds with filters */
    REFUSALS_OF_1000 = 5,
    PAUSE_MS = 3,
    MARKS = 77
};

/* What the state of a filter must be: it needs no memory, which may be out. */
static void *mark_of_call(const teff_filter_call *call)
{
    return (void *)((uintptr_t)call->ctx + call->method->id % MARKS + 1);
}

static void pause_sometimes(sim_world *w, teff_ctx *ctx)
{
    if (sim_draw_chance(&w->filter, PAUSES_OF_1000))
        teffi_ctx_sleep(ctx, (uint32_t)sim_draw_between(&w->filter, 1, PAUSE_MS));
}

static teff_err filter_before(void *arg, teff_filter_call *call)
{
    sim_world *w = arg;
    if (call->state)
        sim_fail(&w->s, "a filter of %s has the state of another", call->method->name);
    call->state = mark_of_call(call);
    w->filtered++;
    pause_sometimes(w, call->ctx);
    return TEFF_OK;
}

static teff_err filter_after(void *arg, teff_filter_call *call, teff_err err)
{
    sim_world *w = arg;
    if (call->state != mark_of_call(call))
        sim_fail(&w->s, "a filter of %s ends with another's state", call->method->name);
    call->state = NULL;
    pause_sometimes(w, call->ctx);
    return err;
}

/* A turn that is paused in a filter counts as running: no other one overlaps. Refuses a few
 * requests on their way in: the world expects that its own calls begin. */
static teff_err check_alone_and_refuse_few(void *arg, teff_filter_call *call)
{
    const teffi_activation *act = teffi_activation_of_ctx(call->ctx);
    sim_world *w = arg;
    if (act->running_of[TEFFI_EXCLUSIVE] > 1 ||
        (act->running_of[TEFFI_EXCLUSIVE] && act->running_of[TEFFI_READ_ONLY]))
        sim_fail(&w->s, "turns overlap in a filter of %s", call->method->name);
    return w->filters_refuse && call->kind == TEFF_CALL_REQUEST &&
                   sim_draw_chance(&w->filter, REFUSALS_OF_1000)
               ? teff_fail(call->ctx, TEFF_E_OVERLOADED, "a filter refuses it")
               : TEFF_OK;
}

void sim_filter_init(sim_world *w)
{
    w->filter = sim_draw_of(w->s.seed, STREAM_FILTER);
    if (!sim_has_faults(w) || !sim_draw_chance(&w->filter, FILTERS_OF_1000))
        return;
    const teff_filter list[SIM_FILTERS] = {
        {filter_before, filter_after, w}, {filter_before, filter_after, w}, {NULL, NULL, NULL}};
    memcpy(w->outgoing, list, sizeof list);
    memcpy(w->incoming, list, sizeof list);
    w->incoming[0] = (teff_filter){check_alone_and_refuse_few, NULL, w};
    w->has_filters = true;
    w->filters_refuse = sim_draw_chance(&w->filter, REFUSING_OF_1000);
}
