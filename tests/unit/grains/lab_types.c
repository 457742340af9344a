/* lab_types.c - what the lab's grains do.
 * Way:     tests -> silo -> [lab_types] -> lab_record */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lab.h"
#include "call/wait.h"

enum { HOLD_MS = 60000 };

/* ---- turns that are watched ---- */

static void hold_turn(teff_ctx *ctx, lab_record *r)
{
    r->held_due_ms = ctx->due_ms;
    r->held++;
    for (int ms = 0; !r->gate && !(r->writing && r->writer_gate) && ms < HOLD_MS; ms++)
        teffi_ctx_sleep(ctx, 1);
    r->held--;
}

/* Computes and computes; its calls of teff's have nothing to wait for. */
static void spin_turn(teff_ctx *ctx, lab_record *r)
{
    r->held++;
    while (!r->gate) {
        for (int i = 0; i < 20000 && !r->gate; i++)
            ;
        if (teff_await_all(ctx, NULL, 0))
            return;
    }
    r->held--;
}

static void raise_to(_Atomic int *most, int now)
{
    int seen = *most;
    while (now > seen && !atomic_compare_exchange_weak(most, &seen, now))
        ;
}

static void do_step(teff_ctx *ctx, lab_record *r, const lab_step *in)
{
    r->started++;
    if (in->seq) {
        int64_t before = atomic_exchange(&r->last_seq[in->caller % LAB_CALLERS], in->seq);
        r->disorder += before >= in->seq;
    }
    if (in->suspend)
        teffi_ctx_sleep(ctx, 1);
    if (in->hold)
        hold_turn(ctx, r);
    if (in->spin)
        spin_turn(ctx, r);
}

static void write_step(teff_ctx *ctx, lab_record *r, const lab_step *in)
{
    int now = ++r->writing;
    raise_to(&r->most_writers, now);
    r->collisions += now > 1 || r->reading > 0;
    do_step(ctx, r, in);
    r->collisions += r->reading > 0;
    r->writing--;
}

static teff_err turns_write(lab_turns *self, const lab_step *in, lab_number *out)
{
    write_step(self->ctx, self->user, in);
    out->n = in->seq;
    return TEFF_OK;
}

static teff_err turns_read(lab_turns *self, const lab_step *in, lab_number *out)
{
    lab_record *r = self->user;
    raise_to(&r->most_readers, ++r->reading);
    r->collisions += r->writing > 0;
    do_step(self->ctx, r, in);
    r->collisions += r->writing > 0;
    r->reading--;
    out->n = in->seq;
    return TEFF_OK;
}

static teff_err turns_peek(lab_turns *self, const lab_step *in, lab_number *out)
{
    lab_record *r = self->user;
    raise_to(&r->most_peekers, ++r->peeking);
    do_step(self->ctx, r, in);
    r->peeking--;
    out->n = r->writing + r->reading;
    return TEFF_OK;
}

static teff_err turns_note(lab_turns *self, const lab_step *in)
{
    lab_record *r = self->user;
    write_step(self->ctx, r, in);
    r->notes++;
    return TEFF_OK;
}

static const lab_turns_methods turns = {.write = turns_write,
                                        .read = turns_read,
                                        .peek = turns_peek,
                                        .note = turns_note,
                                        .quick = turns_write,
                                        .again = turns_write};

static teff_err free_ask(lab_free *self, const lab_step *in, lab_number *out)
{
    lab_record *r = self->user;
    raise_to(&r->most_peekers, ++r->peeking);
    do_step(self->ctx, r, in);
    r->peeking--;
    out->n = self->key;
    return TEFF_OK;
}

/* Calls itself, n deep. */
static teff_err free_down(lab_free *self, const lab_number *in, lab_number *out)
{
    lab_number *deeper;
    if (in->n <= 0)
        return TEFF_OK;
    teff_err err = lab_free_down(self->ctx, self->key, lab_number(.n = in->n - 1), &deeper);
    if (!err)
        out->n = deeper->n + 1;
    return err;
}

static const lab_free_methods freely = {.ask = free_ask, .down = free_down};

static teff_err small_write(lab_small *self, const lab_step *in, lab_number *out)
{
    write_step(self->ctx, self->user, in);
    out->n = in->seq;
    return TEFF_OK;
}

static teff_err small_echo(lab_small *self, const lab_text *in, lab_text *out)
{
    out->text = teff_strdup(self->ctx, in->text);
    return TEFF_OK;
}

/* A response of n letters. */
static teff_err small_blow(lab_small *self, const lab_number *in, lab_text *out)
{
    char *text = teff_alloc(self->ctx, (size_t)in->n + 1);
    memset(text, 'x', (size_t)in->n);
    out->text = text;
    return TEFF_OK;
}

static const lab_small_methods small = {
    .write = small_write, .echo = small_echo, .blow = small_blow};

/* ---- state ---- */

static teff_err account_add(lab_account *self, const lab_number *in, lab_number *out)
{
    self->state->count += in->n;
    out->n = self->state->count;
    return lab_account_save(self);
}

static teff_err account_get(lab_account *self, lab_box *out)
{
    ProtobufCMessage base = out->base;
    *out = *self->state;
    out->base = base;
    return TEFF_OK;
}

static teff_err account_keep(lab_account *self)
{
    return lab_account_save(self);
}

static teff_err account_wipe(lab_account *self)
{
    return lab_account_clear(self);
}

static teff_err account_set_note(lab_account *self, const lab_text *in)
{
    self->state->note = teff_state_strdup(self->ctx, in->text);
    return TEFF_OK;
}

static teff_err account_push(lab_account *self, const lab_text *in, lab_number *out)
{
    lab_box *box = self->state;
    const char **lines = teff_state_alloc(self->ctx, (box->n_lines + 1) * sizeof *lines);
    if (box->n_lines)
        memcpy(lines, box->lines, box->n_lines * sizeof *lines);
    lines[box->n_lines] = teff_state_strdup(self->ctx, in->text);
    box->lines = lines;
    box->n_lines++;
    out->n = (int64_t)box->n_lines;
    return TEFF_OK;
}

static teff_err account_quit(lab_account *self)
{
    teff_deactivate(self->ctx);
    return TEFF_OK;
}

static teff_err account_begin(lab_account *self)
{
    ((lab_record *)self->user)->activated++;
    return TEFF_OK;
}

static teff_err account_end(lab_account *self, teff_reason why)
{
    lab_record *r = self->user;
    r->last_reason = (int)why;
    r->deactivated++;
    return TEFF_OK;
}

static const lab_account_methods account = {.add = account_add,
                                            .get = account_get,
                                            .keep = account_keep,
                                            .wipe = account_wipe,
                                            .set_note = account_set_note,
                                            .push = account_push,
                                            .quit = account_quit,
                                            .on_activate = account_begin,
                                            .on_deactivate = account_end};

static teff_err sleepy_add(lab_sleepy *self, const lab_number *in, lab_number *out)
{
    self->state->count += in->n;
    out->n = self->state->count;
    return TEFF_OK;
}

static teff_err sleepy_hold(lab_sleepy *self, const lab_step *in, lab_number *out)
{
    hold_turn(self->ctx, self->user);
    out->n = self->state->count;
    return TEFF_OK;
}

static teff_err sleepy_begin(lab_sleepy *self)
{
    ((lab_record *)self->user)->activated++;
    return TEFF_OK;
}

/* Saved only here: what comes back was saved when it went idle. */
static teff_err sleepy_end(lab_sleepy *self, teff_reason why)
{
    lab_record *r = self->user;
    teff_err err = lab_sleepy_save(self);
    r->last_reason = (int)why;
    r->deactivated++;
    return err;
}

static const lab_sleepy_methods sleepy = {.add = sleepy_add,
                                          .hold = sleepy_hold,
                                          .on_activate = sleepy_begin,
                                          .on_deactivate = sleepy_end};

/* ---- failures ---- */

static teff_err moody_begin(lab_moody *self)
{
    lab_record *r = self->user;
    r->activated++;
    if (r->moody_failures <= 0)
        return TEFF_OK;
    r->moody_failures--;
    if (strcmp(self->key, "silent") == 0)
        return TEFF_E_USER + 7;
    return teff_fail(self->ctx, TEFF_E_USER + 7, "not in the mood, says %s", self->key);
}

static teff_err moody_ask(lab_moody *self, lab_number *out)
{
    out->n = 1;
    return TEFF_OK;
}

static teff_err moody_fail(lab_moody *self, const lab_number *in, lab_text *out)
{
    return teff_fail(self->ctx, (teff_err)in->n, "failed with %" PRId64 " at %s", in->n, self->key);
}

static teff_err moody_wrap(lab_moody *self)
{
    char other[100];
    lab_text *out;
    snprintf(other, sizeof other, "%.60s, asked", self->key);
    teff_err err = lab_moody_fail(self->ctx, other, lab_number(.n = TEFF_E_USER(3)), &out);
    return teff_fail(self->ctx, err, "wrapped: %s", teff_error(self->ctx));
}

/* A code and no text; below zero, after a call that failed with another one. */
static teff_err moody_bare(lab_moody *self, const lab_number *in)
{
    lab_text *out;
    teff_err err = in->n < 0 ? lab_moody_fail(self->ctx, "another one",
                                              lab_number(.n = TEFF_E_NOT_FOUND), &out)
                             : TEFF_OK;
    return err ? TEFF_E_USER(4) : (teff_err)in->n;
}

static const lab_moody_methods moody = {.bare = moody_bare,
                                        .ask = moody_ask,
                                        .fail = moody_fail,
                                        .wrap = moody_wrap,
                                        .on_activate = moody_begin};

/* ---- calls of grains by grains ---- */

/* The first key is ours; the rest of the path is the next one's. */
static teff_err relay_go(lab_relay *self, const lab_path *in, lab_number *out)
{
    lab_record *r = self->user;
    lab_number *rest;
    out->n = 1;
    r->went++;
    if (in->hold)
        hold_turn(self->ctx, r);
    if (in->n_keys == 0)
        return TEFF_OK;
    teff_ctx_set_timeout(self->ctx, in->timeout_ms);
    lab_path *path = lab_path(.n_keys = in->n_keys - 1, .keys = in->keys + 1);
    teff_err err = lab_relay_go(self->ctx, in->keys[0], path, &rest);
    r->went_err = (int)err;
    if (!err)
        out->n += rest->n;
    return err;
}

static teff_err relay_fan(lab_relay *self, const lab_plan *in, lab_number *out)
{
    size_t n = (size_t)in->n;
    teff_call *calls = teff_alloc(self->ctx, n * sizeof *calls);
    lab_number *one;
    char key[64];
    for (size_t i = 0; i < n; i++) {
        snprintf(key, sizeof key, "%s-%zu", in->prefix, i);
        teff_err err =
            lab_account_add_async(self->ctx, key, lab_number(.n = (int64_t)i), NULL, &calls[i]);
        if (err)
            return err;
    }
    teff_err err = teff_await_all(self->ctx, calls, n);
    for (size_t i = 0; i < n && !err; i++) {
        err = lab_account_add_await(self->ctx, calls[i], &one);
        out->n += err ? 0 : one->n;
    }
    return err;
}

static const lab_relay_methods relay = {.go = relay_go, .fan = relay_fan};

/* ---- keys and places ---- */

static void put_uuid(char *text, teff_uuid uuid)
{
    for (int i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", uuid.bytes[i]);
}

static teff_err ids_who(lab_ids *self, lab_text *out)
{
    char *text = teff_alloc(self->ctx, 40);
    put_uuid(text, self->key);
    out->text = text;
    return TEFF_OK;
}

static teff_err pair_who(lab_pair *self, lab_text *out)
{
    char *text = teff_alloc(self->ctx, TEFF_KEY_MAX + 40);
    snprintf(text, TEFF_KEY_MAX + 40, "%" PRId64 "/%s", self->key, self->key_text);
    out->text = text;
    return TEFF_OK;
}

static teff_err id_pair_who(lab_id_pair *self, lab_text *out)
{
    char *text = teff_alloc(self->ctx, TEFF_KEY_MAX + 40);
    put_uuid(text, self->key);
    snprintf(text + 32, TEFF_KEY_MAX + 8, "/%s", self->key_text);
    out->text = text;
    return TEFF_OK;
}

static const lab_ids_methods ids = {.who = ids_who};
static const lab_pair_methods pair = {.who = pair_who};
static const lab_id_pair_methods id_pair = {.who = id_pair_who};

static void put_place(teff_ctx *ctx, lab_text *out)
{
    out->text = teff_strdup(ctx, ctx->node->address);
}

static teff_err near_where(lab_near *self, lab_text *out)
{
    put_place(self->ctx, out);
    return TEFF_OK;
}

static teff_err hashed_where(lab_hashed *self, lab_text *out)
{
    put_place(self->ctx, out);
    return TEFF_OK;
}

static teff_err rare_where(lab_rare *self, lab_text *out)
{
    put_place(self->ctx, out);
    return TEFF_OK;
}

static const lab_near_methods near = {.where = near_where};
static const lab_hashed_methods hashed = {.where = hashed_where};
static const lab_rare_methods rare = {.where = rare_where};

/* ---- one activation at a time ---- */

static teff_err single_add(lab_single *self, const lab_number *in, lab_number *out)
{
    lab_record *r = self->user;
    r->duplicates += r->single_live[self->key % LAB_SINGLES] != 1;
    out->n = atomic_fetch_add(&r->single_sum, in->n) + in->n;
    return TEFF_OK;
}

static teff_err single_begin(lab_single *self)
{
    lab_record *r = self->user;
    r->activated++;
    r->duplicates += atomic_fetch_add(&r->single_live[self->key % LAB_SINGLES], 1) != 0;
    return TEFF_OK;
}

static teff_err single_end(lab_single *self, teff_reason why)
{
    lab_record *r = self->user;
    r->deactivated++;
    r->single_live[self->key % LAB_SINGLES]--;
    return TEFF_OK;
}

static const lab_single_methods single = {
    .add = single_add, .on_activate = single_begin, .on_deactivate = single_end};

/* ---- hosting ---- */

static void host_type(teff_silo *silo, teff_grain_type *type)
{
    assert_non_null(type);
    assert_int_equal(teff_silo_host(silo, type), TEFF_OK);
}

void lab_host_all(teff_silo *silo, lab_record *record)
{
    host_type(silo, lab_turns_type(&turns, record));
    host_type(silo, lab_free_type(&freely, record));
    host_type(silo, lab_small_type(&small, record));
    host_type(silo, lab_account_type(&account, record));
    host_type(silo, lab_sleepy_type(&sleepy, record));
    host_type(silo, lab_moody_type(&moody, record));
    host_type(silo, lab_relay_type(&relay, record));
    host_type(silo, lab_ids_type(&ids, record));
    host_type(silo, lab_pair_type(&pair, record));
    host_type(silo, lab_id_pair_type(&id_pair, record));
    host_type(silo, lab_near_type(&near, record));
    host_type(silo, lab_hashed_type(&hashed, record));
    host_type(silo, lab_single_type(&single, record));
}

void lab_host_rare(teff_silo *silo, lab_record *record)
{
    host_type(silo, lab_rare_type(&rare, record));
}
