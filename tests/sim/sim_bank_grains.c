/* sim_bank_grains.c - accounts, and tellers that work with them in transactions.
 * Way:     bank callers -> the cluster -> [bank grains] -> accounts -> the bank's ledger */
#include <stdio.h>
#include "base/bug.h"
#include "call/wait.h"
#include "sim_bank.h"

static sim_world *world_of(const sim_silo *place)
{
    return place->world;
}

/* ---- one account ---- */

static teff_err apply_deed(world_account *self, const world_deed *in, uint64_t run, world_seen *out)
{
    sim_world *w = world_of(self->user);
    teff_err err = TEFF_OK;
    if (in->pause_ms)
        teffi_ctx_sleep(self->ctx, in->pause_ms);
    const sim_access access = {.version = self->state->version,
                               .writer = self->state->writer,
                               .by = in->writes ? in->by : 0,
                               .account = sim_key_of(self->key),
                               .writes = in->writes};
    sim_bank_note(w, run, &access);
    if (in->writes) {
        self->state->balance += in->by;
        self->state->version++;
        self->state->writer = run;
        err = world_account_save(self);
    }
    out->balance = self->state->balance;
    out->version = self->state->version;
    out->writer = self->state->writer;
    out->run = run;
    if (in->ends)
        teff_deactivate(self->ctx);
    return err || !in->fails ? err : teff_fail(self->ctx, TEFF_E_USER(1), "as the deed says");
}

/* ---- plans ---- */

typedef struct doing {
    teff_ctx *ctx;
    const world_plan *plan;
    world_account *own; /* the root's; NULL: a teller */
    uint64_t run;
} doing;

typedef struct begun {
    teff_call call;
    bool is_plan, waits; /* waits: it has begun */
} begun;

/* A teller that is asked through so many others has a key of its own, so that no teller waits for
 * itself. */
static void teller_name(unsigned via, unsigned account, char name[16])
{
    sim_key_name(via * 2 + account % 2, name);
}

/* Lets a teller do the deed, and maybe the next one. */
static teff_err pass_deeds(const doing *d, size_t i, teff_call *call)
{
    char name[16];
    const world_deed *deed = d->plan->deeds[i];
    world_deed deeds[2] = {*deed, *deed}, *list[2] = {&deeds[0], &deeds[1]};
    if (deed->with_next)
        deeds[1] = *d->plan->deeds[i + 1];
    deeds[0].via = deeds[1].via = deed->via - 1;
    deeds[0].with_next = deed->with_next && deeds[0].via;
    deeds[1].with_next = false;
    teller_name(deed->via, deed->account, name);
    return world_teller_run_async(d->ctx, name,
                                  world_plan(.n_deeds = deed->with_next ? 2 : 1, .deeds = list,
                                             .run = d->run, .at_once = d->plan->at_once),
                                  NULL, call);
}

static teff_err begin_deed(const doing *d, size_t i, begun *b)
{
    char name[16];
    const world_deed *deed = d->plan->deeds[i];
    world_deed this = *deed;
    this.run = d->run;
    *b = (begun){.is_plan = deed->via > 0, .waits = true};
    if (deed->via)
        return pass_deeds(d, i, &b->call);
    sim_key_name(deed->account, name);
    return deed->writes ? world_account_change_async(d->ctx, name, &this, NULL, &b->call)
                        : world_account_read_async(d->ctx, name, &this, NULL, &b->call);
}

static teff_err end_deed(const doing *d, const world_deed *deed, const begun *b)
{
    world_seen *seen;
    return b->is_plan     ? world_teller_run_await(d->ctx, b->call, &seen)
           : deed->writes ? world_account_change_await(d->ctx, b->call, &seen)
                          : world_account_read_await(d->ctx, b->call, &seen);
}

/* Does a deed, or begins it. */
static teff_err do_deed(const doing *d, size_t i, begun *b)
{
    world_seen seen = WORLD__SEEN__INIT;
    const world_deed *deed = d->plan->deeds[i];
    *b = (begun){0};
    if (i > 0 && d->plan->deeds[i - 1]->with_next)
        return TEFF_OK; /* a teller does it */
    if (d->own && sim_key_of(d->own->key) == deed->account)
        return apply_deed(d->own, deed, d->run, &seen);
    return begin_deed(d, i, b);
}

static teff_err do_one_by_one(const doing *d)
{
    teff_err first = TEFF_OK;
    for (size_t i = 0; i < d->plan->n_deeds && (!first || d->plan->shrugs); i++) {
        begun b;
        teff_err err = do_deed(d, i, &b);
        if (!err && b.waits)
            err = end_deed(d, d->plan->deeds[i], &b);
        first = first ? first : err;
    }
    return d->plan->shrugs ? TEFF_OK : first;
}

static teff_err do_at_once(const doing *d)
{
    begun b[SIM_DEEDS];
    teff_err first = TEFF_OK;
    for (size_t i = 0; i < d->plan->n_deeds; i++) {
        teff_err err = do_deed(d, i, &b[i]);
        first = first ? first : err;
        b[i].waits &= !err;
    }
    for (size_t i = 0; i < d->plan->n_deeds && !d->plan->drops; i++) {
        teff_err err = b[i].waits ? end_deed(d, d->plan->deeds[i], &b[i]) : TEFF_OK;
        first = first ? first : err;
    }
    return d->plan->shrugs ? TEFF_OK : first;
}

static teff_err do_plan(teff_ctx *ctx, sim_silo *place, const world_plan *in, world_account *own,
                        world_seen *out)
{
    doing d = {ctx, in, own, in->run};
    teffi_bug_if(in->n_deeds > SIM_DEEDS);
    if (!d.run)
        d.run = sim_bank_run(world_of(place), in->call, (unsigned)in->n_deeds);
    out->run = d.run;
    teff_err err = in->at_once ? do_at_once(&d) : do_one_by_one(&d);
    return err || !in->fails ? err : teff_fail(ctx, TEFF_E_USER(2), "as the plan says");
}

/* ---- Account ---- */

static teff_err account_activate(world_account *self)
{
    return sim_life_begin(self->user, SIM_ACCOUNT, sim_key_of(self->key));
}

static teff_err account_deactivate(world_account *self, teff_reason why)
{
    (void)why;
    sim_life_end(self->user, SIM_ACCOUNT, sim_key_of(self->key));
    return TEFF_OK;
}

static teff_err account_deed(world_account *self, const world_deed *in, world_seen *out)
{
    unsigned key = sim_key_of(self->key);
    uint64_t run = in->run ? in->run : sim_bank_run(world_of(self->user), in->call, 1);
    sim_turn_begin(self->user, self->ctx, SIM_ACCOUNT, key);
    teff_err err = apply_deed(self, in, run, out);
    sim_turn_end(self->user, SIM_ACCOUNT, key);
    return err;
}

static teff_err account_run(world_account *self, const world_plan *in, world_seen *out)
{
    unsigned key = sim_key_of(self->key);
    sim_turn_begin(self->user, self->ctx, SIM_ACCOUNT, key);
    teff_err err = do_plan(self->ctx, self->user, in, self, out);
    sim_turn_end(self->user, SIM_ACCOUNT, key);
    return err;
}

static teff_err account_look(world_account *self, world_seen *out)
{
    sim_turn_read(self->user, self->ctx, SIM_ACCOUNT, sim_key_of(self->key));
    out->balance = self->state->balance;
    out->version = self->state->version;
    out->writer = self->state->writer;
    return TEFF_OK;
}

/* ---- Teller ---- */

static teff_err teller_activate(world_teller *self)
{
    return sim_life_begin(self->user, SIM_TELLER, sim_key_of(self->key));
}

static teff_err teller_deactivate(world_teller *self, teff_reason why)
{
    (void)why;
    sim_life_end(self->user, SIM_TELLER, sim_key_of(self->key));
    return TEFF_OK;
}

static teff_err teller_run(world_teller *self, const world_plan *in, world_seen *out)
{
    unsigned key = sim_key_of(self->key);
    sim_turn_begin(self->user, self->ctx, SIM_TELLER, key);
    teff_err err = do_plan(self->ctx, self->user, in, NULL, out);
    sim_turn_end(self->user, SIM_TELLER, key);
    return err;
}

static teff_err teller_peek(world_teller *self, const world_deed *in, world_seen *out)
{
    char name[16];
    world_seen *seen;
    unsigned key = sim_key_of(self->key);
    sim_turn_begin(self->user, self->ctx, SIM_TELLER, key);
    sim_key_name(in->account, name);
    teff_err err = world_account_look(self->ctx, name, &seen);
    if (!err)
        *out = *seen;
    sim_turn_end(self->user, SIM_TELLER, key);
    return err;
}

/* ---- hosting ---- */

static const world_account_methods account_methods = {.change = account_deed,
                                                      .read = account_deed,
                                                      .run = account_run,
                                                      .look = account_look,
                                                      .on_activate = account_activate,
                                                      .on_deactivate = account_deactivate};
static const world_teller_methods teller_methods = {.run = teller_run,
                                                    .peek = teller_peek,
                                                    .on_activate = teller_activate,
                                                    .on_deactivate = teller_deactivate};

static void host_type(sim_silo *place, const teff_type_info *info, const void *methods)
{
    teff_grain_type *type = teff_grain_type_new(info, methods, place);
    teffi_bug_if(!type || teff_silo_host(place->silo, type) != TEFF_OK);
}

void sim_bank_host(sim_silo *place)
{
    const sim_bank *bank = place->world->bank;
    if (!bank)
        return;
    host_type(place, &bank->account, &account_methods);
    host_type(place, &bank->teller, &teller_methods);
}
