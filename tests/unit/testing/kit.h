/* kit.h - counters on a cluster of the testing kit. Include it in one source of a program.
 * Way:     test -> kit_open -> teff_testing -> counters */
#pragma once

#include <stdio.h>
#include <string.h>
#include <teff/testing.h>
#include "kit.teff.h"
#include "test.h"

static struct {
    int late;        /* turns of AddLate that have slept */
    int activated;   /* of counters */
    int deactivated; /* the hook ran */
    int hosted;      /* starts of silos */
    teff_err host_fails;
    teff_err saved;                        /* of the last Add */
    bool advances, kills, connects, makes; /* what Where does, and must not */
} kit;

static teff_testing *cluster;

static teff_err add(kit_counter *self, const kit_number *in, kit_number *out)
{
    self->state->n += in->n;
    out->n = self->state->n;
    kit.saved = kit_counter_save(self);
    return kit.saved;
}

static teff_err get(kit_counter *self, kit_number *out)
{
    out->n = self->state->n;
    return TEFF_OK;
}

static teff_err add_late(kit_counter *self, const kit_number *in, kit_number *out)
{
    teff_sleep(self->ctx, (uint32_t)in->n);
    kit.late++;
    return add(self, kit_number(.n = 1), out);
}

static teff_err where(kit_counter *self, kit_number *out)
{
    if (kit.advances)
        teff_testing_advance(cluster, 1);
    if (kit.kills)
        teff_testing_kill(cluster, 0);
    if (kit.connects)
        (void)!teff_testing_connect(cluster, 0, &(teff_client *){NULL}, NULL);
    if (kit.makes)
        (void)!teff_testing_new(NULL, &cluster, NULL);
    out->n = 1 + (int64_t)(intptr_t)self->user;
    return TEFF_OK;
}

static teff_err on_activate(kit_counter *self)
{
    kit.activated++;
    return TEFF_OK;
}

static teff_err on_deactivate(kit_counter *self, teff_reason why)
{
    kit.deactivated++;
    return TEFF_OK;
}

static const kit_counter_methods methods = {.add = add,
                                            .get = get,
                                            .add_late = add_late,
                                            .where = where,
                                            .on_activate = on_activate,
                                            .on_deactivate = on_deactivate};

static inline teff_err kit_host(void *arg, teff_silo *silo, unsigned no)
{
    assert_ptr_equal(arg, &kit);
    kit.hosted++;
    if (kit.host_fails)
        return kit.host_fails;
    return teff_silo_host(silo, kit_counter_type(&methods, (void *)(intptr_t)no));
}

static inline teff_testing_options kit_options(unsigned silos, uint64_t seed)
{
    return (teff_testing_options){.size = sizeof(teff_testing_options),
                                  .silos = silos,
                                  .seed = seed,
                                  .host = kit_host,
                                  .arg = &kit};
}

static inline teff_ctx *kit_open(unsigned silos, uint64_t seed)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_testing_options options = kit_options(silos, seed);
    memset(&kit, 0, sizeof kit);
    if (teff_testing_new(&options, &cluster, text))
        fail_msg("no cluster: %s", text);
    return teff_testing_ctx(cluster);
}

static inline int kit_close(void **state)
{
    teff_testing_free(cluster);
    cluster = NULL;
    return 0;
}

static inline int64_t kit_add(const char *key, int64_t n)
{
    kit_number *out = NULL;
    teff_ctx *ctx = teff_testing_ctx(cluster);
    teff_err err = kit_counter_add(ctx, key, kit_number(.n = n), &out);
    if (err)
        fail_msg("add to %s: %s: %s", key, teff_err_name(err), teff_error(ctx));
    return out->n;
}

static inline int kit_where(const char *key)
{
    kit_number *out = NULL;
    teff_ctx *ctx = teff_testing_ctx(cluster);
    teff_err err = kit_counter_where(ctx, key, &out);
    if (err)
        fail_msg("where is %s: %s: %s", key, teff_err_name(err), teff_error(ctx));
    return (int)out->n - 1;
}
