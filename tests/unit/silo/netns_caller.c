/* netns_caller.c - calls many grains through one gateway: argv[1] its address, argv[2] how many.
 * Each key is called twice; prints how many silos answered. Exit status 0 when all calls did. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lab.h"

static int call_all(teff_ctx *ctx, int n)
{
    char key[40], places[8][TEFFI_ADDRESS_MAX + 1] = {{0}};
    int seen = 0;
    for (int i = 0; i < 2 * n; i++) {
        lab_text *out;
        int p = 0;
        snprintf(key, sizeof key, "grain-%d", i % n);
        teff_err err = lab_hashed_where(ctx, key, &out);
        if (err) {
            fprintf(stderr, "%s: %s: %s\n", key, teff_err_name(err), teff_error(ctx));
            return -1;
        }
        while (p < seen && strcmp(places[p], out->text) != 0)
            p++;
        if (p == seen && seen < 8)
            snprintf(places[seen++], sizeof places[0], "%s", out->text);
    }
    return seen;
}

int main(int argc, char **argv)
{
    teff_client_options opt = {.size = sizeof opt, .gateways = {argc > 2 ? argv[1] : ""}};
    char text[TEFF_TEXT_MAX] = "";
    teff_client *client;
    if (argc < 3)
        return 2;
    if (teff_client_connect(&opt, &client, text)) {
        fprintf(stderr, "%s\n", text);
        return 1;
    }
    teff_ctx *ctx = teff_client_new_ctx(client);
    int seen = ctx ? call_all(ctx, atoi(argv[2])) : -1;
    teff_ctx_free(ctx);
    teff_client_free(client);
    printf("%d\n", seen);
    return seen < 0 ? 1 : 0;
}
