/* client_rows.c - rows client-…: a client's thread calls grains of one silo, which is a process of
 * its own.
 * Way:     bench.c -> [client_rows] -> loops.c -> client ===> the child's silo */
#include <stdio.h>
#include "bench.h"
#include "child.h"
#include "loops.h"
#include "transport.h"

static const struct {
    const char *name, *what;
    uint64_t width;
} rows[] = {{"client-call-1", "call", 0},          {"client-call-64", "window", 64},
            {"client-call-1024", "window", 1024},  {"client-one-way", "one-way", 0},
            {"client-64KiB-call", "blob-call", 0}, {"client-64KiB-one-way", "blob-one-way", 0}};

enum { ROWS = sizeof rows / sizeof rows[0] };

static teff_client *connect_to(bench *b, const char *gateway)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_client_options options = {
        .size = sizeof options, .gateways = {gateway}, .transport = b->transport};
    teff_client *client;
    teff_err err = teff_client_connect(&options, &client, text);
    if (err) {
        fprintf(stderr, "bench: a client cannot connect: %s\n", text);
        bench_fatal(NULL, err);
    }
    b->ctx = teff_client_new_ctx(client);
    b->loop = bench_loop;
    return client;
}

void bench_client(bench *b)
{
    const char *const args[] = {"--target", "", bench_transport_name(b->transport), NULL};
    bench_child silo;
    bool any = false;
    for (int i = 0; i < ROWS; i++)
        any |= bench_wanted(b, rows[i].name);
    if (!any)
        return;
    if (!bench_child_start(&silo, args))
        bench_fatal(NULL, TEFF_E_IO);
    teff_client *client = connect_to(b, silo.said);
    b->child = &silo;
    for (int i = 0; i < ROWS; i++)
        bench_timed(b, rows[i].name, rows[i].what, rows[i].width);
    b->child = NULL;
    teff_ctx_free(b->ctx);
    b->ctx = NULL;
    teff_client_free(client);
    bench_child_stop(&silo);
}
