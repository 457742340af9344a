/* chat.c - README's chat room: what came is kept in the state; a timer forgets the guests. */
#include "chat.teff.h"

static teff_err say(chat_rooms *self, const chat_line *in)
{
    chat_room *room = self->state;
    chat_room_append_lines(self->ctx, room, in);        /* a copy of the whole message */
    chat_room_append_guests(self->ctx, room, in->from); /* of a text */
    if (!room->topic)
        room->topic = chat_line_keep(self->ctx, in);
    return chat_rooms_save(self);
}

static teff_err forget(chat_rooms *self)
{
    self->state->n_guests = 0;
    return chat_rooms_save(self);
}

static teff_err on_activate(chat_rooms *self)
{
    static const teff_timer_options options = {
        .size = sizeof options, .due_ms = 60000, .period_ms = 60000};
    return chat_rooms_forget_timer(self->ctx, &options, NULL);
}

int main(int argc, char **argv)
{
    static const chat_rooms_methods methods = {
        .say = say, .forget = forget, .on_activate = on_activate};
    return teff_silo_main(argc, argv, chat_rooms_type(&methods, NULL), NULL);
}
