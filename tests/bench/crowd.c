/* crowd.c - one silo and many clients: what a connection takes of its memory, and what the calls of
 * one client take beside clients that are idle, and beside one that floods the silo.
 * usage: crowd TRANSPORT CLIENTS MILLISECONDS; it starts itself as --silo and --flood
 * Way:     crowd.py -> [crowd] -> sockets, and a client ===> the silo of another process */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <teff/silo.h>
#include "child.h"
#include "clock.h"
#include "guard.teff.h"
#include "raw_peer.h"
#include "resident.h"
#include "transport.h"

enum { CLIENTS_MAX = 9990, CALLS_MAX = 1 << 20, BEAT_MS = 1000, SETTLE_MS = 1500 };

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "crowd: %s\n", what);
    exit(1);
}

/* ---- the silo ---- */

static teff_err add(guard_target *self, const guard_small *in, guard_small *out)
{
    (void)self;
    out->number = in->number + 1;
    return TEFF_OK;
}

static teff_err note(guard_target *self, const guard_small *in)
{
    (void)self;
    (void)in;
    return TEFF_OK;
}

static int be_silo(const char *transport)
{
    static const guard_target_methods methods = {.add = add, .note = note};
    teff_silo_options opt = {.size = sizeof opt, .silent = 1};
    teff_silo *silo;
    must(bench_transport_of(transport, &opt.transport), "no such transport");
    must(!teff_silo_new(&opt, &silo, NULL) &&
             !teff_silo_host(silo, guard_target_type(&methods, NULL)) &&
             !teff_silo_start(silo, NULL),
         "the silo does not start");
    bench_child_ready(teff_silo_address(silo));
    teff_silo_free(silo);
    return 0;
}

/* ---- clients that only stay ---- */

static int sockets[CLIENTS_MAX];
static unsigned n_sockets;
static _Atomic bool is_over;

/* The handshake by hand, of which only the socket stays. */
static int connect_idle(const char *address, unsigned number)
{
    teffi_greeting own = raw_greeting(TEFFI_CLIENT_BIT | (number + 1), number + 1, 1);
    own.hello.role = TEFFI_ROLE_CLIENT;
    own.hello.address[0] = '\0';
    strcpy(own.hello.cluster, "dev");
    raw_peer *peer = raw_connect(address);
    must(raw_join(peer, &own), "the silo refuses a client");
    int fd = dup(peer->fd);
    raw_close(peer);
    return fd;
}

static void send_heartbeat(int fd)
{
    uint8_t bytes[TEFFI_FRAME_HEAD];
    teffi_frame_encode_control(TEFFI_FRAME_HEARTBEAT, NULL, 0, bytes);
    must(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) == sizeof bytes,
         "the silo has ended a connection");
}

static void *beat(void *arg)
{
    static uint8_t ignored[65536];
    while (!is_over) {
        for (unsigned i = 0; i < n_sockets && !is_over; i++) {
            send_heartbeat(sockets[i]);
            (void)!recv(sockets[i], ignored, sizeof ignored, MSG_DONTWAIT);
        }
        bench_sleep_ms(BEAT_MS);
    }
    return arg;
}

/* ---- clients that call ---- */

static teff_client *connect_client(const char *address, const char *transport)
{
    teff_client_options opt = {.size = sizeof opt, .gateways = {address}};
    teff_client *client = NULL;
    must(bench_transport_of(transport, &opt.transport) && !teff_client_connect(&opt, &client, NULL),
         "a client cannot connect");
    return client;
}

/* Sends as fast as the silo lets it, for ever. */
static _Noreturn void be_flood(const char *address, const char *transport)
{
    teff_ctx *ctx = teff_client_new_ctx(connect_client(address, transport));
    printf("floods\n");
    fflush(stdout);
    uint64_t refused = 0;
    for (int64_t i = 0;; i++) {
        teff_mark mark = teff_ctx_mark(ctx);
        if (guard_target_note(ctx, i % 64, guard_small(.name = "flood")))
            refused++; /* and goes on */
        teff_ctx_rewind(ctx, mark);
    }
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Calls one after the other. */
static void measure(teff_ctx *ctx, uint64_t ms, const char *name)
{
    static uint64_t took[CALLS_MAX];
    size_t n = 0;
    for (uint64_t begin = bench_now_ns(), last = begin;
         n < CALLS_MAX && last - begin < ms * 1000000;) {
        guard_small *response;
        teff_mark mark = teff_ctx_mark(ctx);
        must(!guard_target_add(ctx, 1000, guard_small(.number = 1), &response), "a call failed");
        teff_ctx_rewind(ctx, mark);
        uint64_t now = bench_now_ns();
        took[n++] = now - last;
        last = now;
    }
    qsort(took, n, sizeof took[0], compare);
    printf(", \"%s_median_us\": %.1f, \"%s_p99_us\": %.1f", name, (double)took[n / 2] / 1000, name,
           (double)took[n * 99 / 100] / 1000);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 3 && strcmp(argv[1], "--silo") == 0)
        return be_silo(argv[2]);
    if (argc == 4 && strcmp(argv[1], "--flood") == 0)
        be_flood(argv[2], argv[3]);
    unsigned clients = argc == 4 ? (unsigned)atoi(argv[2]) : 0;
    must(argc == 4 && clients <= CLIENTS_MAX, "usage: crowd TRANSPORT CLIENTS MILLISECONDS");
    uint64_t ms = strtoull(argv[3], NULL, 10);
    const char *const silo_args[] = {"--silo", argv[1], NULL};
    bench_child silo, flood;
    must(bench_child_start(&silo, silo_args), "the silo does not start");
    const char *const flood_args[] = {"--flood", silo.said, argv[1], NULL};
    teff_client *client = connect_client(silo.said, argv[1]);
    teff_ctx *ctx = teff_client_new_ctx(client);
    printf("{\"clients\": %u", clients);
    measure(ctx, ms, "alone");
    double before = bench_resident_bytes_of(silo.pid);
    for (; n_sockets < clients; n_sockets++)
        sockets[n_sockets] = connect_idle(silo.said, n_sockets);
    pthread_t beats;
    must(pthread_create(&beats, NULL, beat, NULL) == 0, "no thread");
    bench_sleep_ms(SETTLE_MS);
    if (clients)
        printf(", \"bytes_per_client\": %.0f",
               (bench_resident_bytes_of(silo.pid) - before) / clients);
    measure(ctx, ms, "crowd");
    must(bench_child_start(&flood, flood_args), "no flood");
    measure(ctx, ms, "flood");
    printf(", \"flood_bytes\": %.0f}\n", bench_resident_bytes_of(silo.pid) - before);
    is_over = true;
    pthread_join(beats, NULL);
    kill(flood.pid, SIGKILL);
    bench_child_stop(&flood);
    teff_ctx_free(ctx);
    teff_client_free(client);
    while (n_sockets)
        close(sockets[--n_sockets]);
    bench_child_stop(&silo);
    return 0;
}
