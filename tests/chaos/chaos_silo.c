/* chaos_silo.c - a silo of registers that remember who wrote their last versions.
 * usage: chaos_silo [--plant unsaved|twice|stale] [options of a silo]
 *   --plant: a bug that the check of the histories must find */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include "chaos.teff.h"

enum { HISTORY = 64 };

/* A planted bug shows in all but one of so many operations: a lost write is seen only if it was the
 * last before its silo was killed. */
enum { RIGHT = 4 };

typedef enum plant { PLANT_NONE, PLANT_UNSAVED, PLANT_TWICE, PLANT_STALE } plant;

static plant planted;
static atomic_uint_fast64_t activations, operations;
static uint64_t process; /* 43 random bits: JSON's readers keep 63 */

static bool shows_bug(plant which)
{
    return planted == which &&
           atomic_fetch_add_explicit(&operations, 1, memory_order_relaxed) % RIGHT != 0;
}

/* No two activations of the run get the same number. The operating system uses the id of a process
 * that has ended again, within minutes on a busy machine, so `process` is random. */
static teff_err number_activation(chaos_register *self)
{
    uint64_t n = atomic_fetch_add_explicit(&activations, 1, memory_order_relaxed);
    chaos_cell *cell = self->state;
    cell->activation = process << 20 | (n & 0xfffff);
    for (size_t i = cell->n_writers; i < HISTORY; i++) {
        chaos_cell_append_writers(self->ctx, cell, 0);
        chaos_cell_append_activations(self->ctx, cell, 0);
    }
    return TEFF_OK;
}

static void list_writes(chaos_register *self, uint64_t length, chaos_seen *out)
{
    const chaos_cell *cell = self->state;
    length = length < HISTORY ? length : HISTORY;
    length = length < cell->version ? length : cell->version;
    out->version = cell->version;
    out->activation = cell->activation;
    out->n_writers = out->n_activations = (size_t)length;
    out->writers = teff_alloc(self->ctx, length * sizeof(uint64_t));
    out->activations = teff_alloc(self->ctx, length * sizeof(uint64_t));
    for (uint64_t i = 0; i < length; i++) {
        out->writers[i] = cell->writers[(cell->version - i) % HISTORY];
        out->activations[i] = cell->activations[(cell->version - i) % HISTORY];
    }
}

/* A write whose save fails is taken back, because the next save would write it, too. With a key the
 * state is stored after this turn: if that fails, the activation ends. */
static teff_err write_version(chaos_register *self, uint64_t writer)
{
    chaos_cell *cell = self->state;
    size_t at = (size_t)(++cell->version % HISTORY);
    uint64_t old_writer = cell->writers[at], old_activation = cell->activations[at];
    cell->writers[at] = writer;
    cell->activations[at] = cell->activation;
    teff_err err = shows_bug(PLANT_UNSAVED) ? TEFF_OK : chaos_register_save(self);
    if (err) {
        cell->version--;
        cell->writers[at] = old_writer;
        cell->activations[at] = old_activation;
    }
    return err;
}

static teff_err write_register(chaos_register *self, const chaos_change *in, chaos_seen *out)
{
    teff_err err = write_version(self, in->writer);
    if (!err && shows_bug(PLANT_TWICE))
        err = write_version(self, in->writer);
    if (!err)
        list_writes(self, 1, out);
    return err;
}

/* ---- transactions ---- */

static teff_err write_in_transaction(chaos_register *self, const chaos_change *in, chaos_seen *out)
{
    teff_err err = write_version(self, in->writer);
    if (!err)
        list_writes(self, 1, out);
    return err;
}

static teff_err read_in_transaction(chaos_register *self, const chaos_look *in, chaos_seen *out)
{
    list_writes(self, in->length, out);
    return TEFF_OK;
}

static chaos_seen *make_seen(chaos_register *self)
{
    chaos_seen *seen = teff_alloc(self->ctx, sizeof *seen);
    chaos__seen__init(seen);
    return seen;
}

/* One half of the transactions changes the other register first. */
static teff_err write_both(chaos_register *self, const chaos_change_both *in, chaos_seen_both *out)
{
    const chaos_change *part = chaos_change(.writer = in->writer);
    bool other_first = in->writer % 2;
    teff_err err = TEFF_OK;
    out->own = make_seen(self);
    if (other_first)
        err = chaos_register_write_with(self->ctx, in->other, part, &out->other);
    if (!err)
        err = write_in_transaction(self, part, out->own);
    if (!err && !other_first)
        err = chaos_register_write_with(self->ctx, in->other, part, &out->other);
    return err;
}

static teff_err read_both(chaos_register *self, const chaos_look_both *in, chaos_seen_both *out)
{
    out->own = make_seen(self);
    list_writes(self, 1, out->own);
    return chaos_register_read_with(self->ctx, in->other, chaos_look(.length = 1), &out->other);
}

/* ---- reads ---- */

static teff_err read_register(chaos_register *self, const chaos_look *in, chaos_seen *out)
{
    list_writes(self, in->length, out);
    if (out->version > 1 && in->length == 1 && shows_bug(PLANT_STALE)) {
        out->version--;
        out->writers[0] = self->state->writers[out->version % HISTORY];
        out->activations[0] = self->state->activations[out->version % HISTORY];
    }
    return TEFF_OK;
}

static teff_err take_plant(void *arg, const char *value, char *text)
{
    static const char *const names[] = {"none", "unsaved", "twice", "stale"};
    (void)arg;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(value, names[i]) == 0) {
            planted = (plant)i;
            return TEFF_OK;
        }
    }
    snprintf(text, TEFF_TEXT_MAX, "none, unsaved, twice or stale expected");
    return TEFF_E_INVALID;
}

int main(int argc, char **argv)
{
    static const chaos_register_methods methods = {.write = write_register,
                                                   .read = read_register,
                                                   .write_both = write_both,
                                                   .read_both = read_both,
                                                   .write_with = write_in_transaction,
                                                   .read_with = read_in_transaction,
                                                   .on_activate = number_activation};
    static const teff_silo_option options[] = {
        {"plant", "BUG", "a bug that the check must find (none)", take_plant},
        {NULL, NULL, NULL, NULL},
    };
    if (getrandom(&process, sizeof process, 0) != sizeof process)
        return 1;
    process >>= 21;
    const teff_silo_program program = {.size = sizeof program, .options = options};
    return teff_silo_run(argc, argv, &program, chaos_register_type(&methods, NULL), NULL);
}
