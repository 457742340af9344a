/* guard_client.c - the guard's operations of a client, on each transport: what the client's one
 * thread pays to send requests and to receive their responses.
 * Way:     guard -> generated stubs -> client ===> a silo in a process that is not counted
 * Threads: the main thread sends, receives and decodes; nng's own threads are not counted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <teff/silo.h>
#include "child.h"
#include "guard.h"
#include "guard.teff.h"
#include "transport.h"

enum { WIDTH = 64 }; /* calls under way */

static void call_round(void *arg, uint64_t n)
{
    teff_ctx *ctx = arg;
    teff_call calls[WIDTH];
    for (uint64_t done = 0; done < n; done += WIDTH) {
        teff_mark mark = teff_ctx_mark(ctx);
        for (uint64_t i = 0; i < WIDTH; i++)
            guard_must(guard_target_add_async(
                ctx, (int64_t)i, guard_small(.number = i, .name = "small"), NULL, &calls[i]));
        guard_must(teff_await_all(ctx, calls, WIDTH));
        teff_ctx_rewind(ctx, mark);
    }
}

/* in: operation: client-fan-out-nng, ... */
void guard_client(const char *operation, uint64_t n)
{
    const char *name = strrchr(operation, '-') + 1;
    const char *const args[] = {"--silo", name, NULL};
    teff_client_options opt = {.size = sizeof opt};
    teff_client *client;
    bench_child silo;
    if (!bench_transport_of(name, &opt.transport) || !bench_child_start(&silo, args))
        guard_must(TEFF_E_IO);
    opt.gateways[0] = silo.said;
    guard_must(teff_client_connect(&opt, &client, NULL));
    teff_ctx *ctx = teff_client_new_ctx(client);
    guard_parts(call_round, ctx, n);
    teff_ctx_free(ctx);
    teff_client_free(client);
    bench_child_stop(&silo);
}

void guard_silo(const char *transport)
{
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .workers = 1};
    teff_silo *silo;
    if (!bench_transport_of(transport, &opt.transport))
        guard_must(TEFF_E_INVALID);
    guard_must(teff_silo_new(&opt, &silo, NULL));
    guard_must(teff_silo_host(silo, guard_target_new()));
    guard_must(teff_silo_start(silo, NULL));
    bench_child_ready(teff_silo_address(silo));
    teff_silo_free(silo);
}
