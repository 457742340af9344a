/* chat.c - chat HOST:PORT ROOM NICK: says each line of its input in a room, and prints what others
 * say there. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "chat.teff.h"

enum { RENEW_MS = TEFF_OBSERVER_EXPIRY_MS / 2, LINE_MAX_BYTES = 500 };

typedef struct visitor {
    const char *room, *nick;
    teff_observer *observer;
} visitor;

/* Joins the room, or stays in it: the room forgets listeners that do not join again. */
static teff_err join_room(teff_ctx *ctx, const visitor *me)
{
    ProtobufCBinaryData ref;
    teff_err err = teff_observer_get_ref(ctx, me->observer, &ref);
    return err ? err : chat_room_join(ctx, me->room, chat_joining(.listener = ref));
}

/* ---- callbacks: on a thread of the client ---- */

static void print_line(const chat_line *line)
{
    printf("%s: %s\n", line->nick, line->text);
    fflush(stdout);
}

static teff_err said(chat_listener *self, const chat_line *in)
{
    const visitor *me = self->user;
    if (strcmp(in->nick, me->nick) != 0)
        print_line(in);
    return TEFF_OK;
}

static void on_dropped(chat_listener *self, const teff_dropped *how)
{
    const visitor *me = self->user;
    printf("* %s\n", how->why == TEFF_DROPPED_SLOW ? "too slow: lines are missing" : "joins again");
    fflush(stdout);
    if (join_room(self->ctx, me))
        fprintf(stderr, "%s\n", teff_error(self->ctx));
}

static const chat_listener_methods callbacks = {.said = said, .on_dropped = on_dropped};

/* ---- the standard input ---- */

static teff_err print_recent(teff_ctx *ctx, const visitor *me)
{
    chat_lines *recent;
    teff_err err = chat_scribe_recent(ctx, me->room, &recent);
    for (size_t i = 0; !err && i < recent->n_lines; i++)
        print_line(recent->lines[i]);
    return err;
}

/* Says the lines of the standard input; joins again whenever none has come for a while. */
static teff_err say_lines(teff_ctx *ctx, const visitor *me)
{
    char text[LINE_MAX_BYTES];
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    teff_err err = TEFF_OK;
    setvbuf(stdin, NULL, _IONBF, 0); /* poll() knows nothing of bytes that stdio has read ahead */
    while (!err) {
        if (poll(&in, 1, RENEW_MS) == 0) {
            err = join_room(ctx, me);
        } else if (!fgets(text, sizeof text, stdin)) {
            return TEFF_OK;
        } else {
            text[strcspn(text, "\n")] = '\0';
            err = chat_room_say(ctx, me->room, chat_line(.nick = me->nick, .text = text));
        }
        teff_ctx_reset(ctx);
    }
    return err;
}

static int visit(teff_ctx *ctx, visitor *me)
{
    teff_err err = chat_listener_observe(ctx, &callbacks, me, &me->observer);
    if (!err)
        err = print_recent(ctx, me);
    if (!err)
        err = join_room(ctx, me);
    if (!err)
        printf("* %s is in %s\n", me->nick, me->room);
    fflush(stdout);
    if (!err)
        err = say_lines(ctx, me);
    if (err)
        fprintf(stderr, "%s\n", teff_error(ctx));
    teff_observer_free(me->observer);
    return err ? 1 : 0;
}

int main(int argc, char **argv)
{
    char text[TEFF_TEXT_MAX];
    teff_client *client;
    if (argc != 4) {
        fprintf(stderr, "usage: chat HOST:PORT ROOM NICK\n");
        return 2;
    }
    const teff_client_options options = {.size = sizeof options, .gateways = {argv[1]}};
    if (teff_client_connect(&options, &client, text)) {
        fprintf(stderr, "%s\n", text);
        return 1;
    }
    visitor me = {.room = argv[2], .nick = argv[3]};
    teff_ctx *ctx = teff_client_new_ctx(client);
    int status = ctx ? visit(ctx, &me) : 1;
    teff_ctx_free(ctx);
    teff_client_free(client);
    return status;
}
