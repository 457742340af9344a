/* silo.c - a silo with rooms and scribes. */
#include "chat.teff.h"

enum { LINES_KEPT = 5 };

/* ---- rooms ---- */

static teff_err join_room(chat_room *self, const chat_joining *in)
{
    return chat_listener_subscribe(self->ctx, in->listener, 0);
}

static teff_err say(chat_room *self, const chat_line *in)
{
    return chat_listener_said_notify(self->ctx, in);
}

/* ---- scribes: grains that listen ---- */

/* Drops the oldest line if there are too many, and adds the new one. */
static teff_err listener_said(chat_scribe *self, const chat_line *in)
{
    chat_lines *state = self->state;
    if (state->n_lines == LINES_KEPT) {
        for (size_t i = 1; i < LINES_KEPT; i++)
            state->lines[i - 1] = state->lines[i];
        state->n_lines--;
    }
    chat_lines_append_lines(self->ctx, state, in);
    return chat_scribe_save(self);
}

/* A scribe joins its room when it is asked, so that it hears what is said from then on. */
static teff_err recent(chat_scribe *self, chat_lines *out)
{
    ProtobufCBinaryData me;
    teff_err err = chat_listener_of_grain(self->ctx, &me);
    if (!err)
        err = chat_room_join(self->ctx, self->key, chat_joining(.listener = me));
    out->n_lines = self->state->n_lines;
    out->lines = self->state->lines;
    return err;
}

int main(int argc, char **argv)
{
    static const chat_room_methods room = {.join = join_room, .say = say};
    static const chat_scribe_methods scribe = {.recent = recent, .listener_said = listener_said};
    return teff_silo_main(argc, argv, chat_room_type(&room, NULL), chat_scribe_type(&scribe, NULL),
                          NULL);
}
