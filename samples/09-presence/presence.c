/* presence.c - presence HOST:PORT LOBBY: prints who is online in the lobby.
 *             presence HOST:PORT LOBBY send: sends the beats of its input, lines "NAME PLACE". */
#include <stdio.h>
#include <string.h>
#include "presence.teff.h"

enum { PACKET_BYTES = 1000 };

static teff_err print_names(teff_ctx *ctx, const char *lobby)
{
    presence_names *list;
    teff_err err = presence_lobby_list(ctx, lobby, &list);
    for (size_t i = 0; !err && i < list->n_names; i++)
        printf("%s is in %s\n", list->names[i]->name, list->names[i]->place);
    if (!err && list->n_names == 0)
        printf("nobody is online\n");
    return err;
}

/* Each line is a packet, as if each player had a device. */
static teff_err send_beats(teff_ctx *ctx, const char *lobby)
{
    char line[PACKET_BYTES];
    teff_err err = TEFF_OK;
    while (!err && fgets(line, sizeof line, stdin)) {
        const ProtobufCBinaryData data = {strlen(line), (uint8_t *)line};
        err = presence_gate_report(ctx, lobby, presence_packet(.data = data));
        teff_ctx_reset(ctx);
    }
    return err;
}

int main(int argc, char **argv)
{
    char text[TEFF_TEXT_MAX];
    teff_client *client;
    bool sends = argc == 4 && strcmp(argv[3], "send") == 0;
    if (argc != 3 && !sends) {
        fprintf(stderr, "usage: presence HOST:PORT LOBBY [send]\n");
        return 2;
    }
    const teff_client_options options = {.size = sizeof options, .gateways = {argv[1]}};
    if (teff_client_connect(&options, &client, text)) {
        fprintf(stderr, "%s\n", text);
        return 1;
    }
    teff_ctx *ctx = teff_client_new_ctx(client);
    teff_err err = !ctx    ? TEFF_E_NOMEM
                   : sends ? send_beats(ctx, argv[2])
                           : print_names(ctx, argv[2]);
    if (err)
        fprintf(stderr, "%s\n", ctx ? teff_error(ctx) : "out of memory");
    teff_ctx_free(ctx);
    teff_client_free(client);
    return err ? 1 : 0;
}
