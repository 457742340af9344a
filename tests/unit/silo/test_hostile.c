/* test_hostile.c - a silo of another process under thousands of hostile connections: garbage, lies
 * in the handshake, half-open and dripping ones, floods of each frame, forged ids and roles. It
 * does not end, a client beside them is served, and descriptors and allocated bytes are as before
 * when they are over.
 * usage:   test_silo_hostile SILO_PROGRAM TRANSPORT [CONNECTIONS [SEED]]; it prints SEED
 * Way:     [hostile] -> sockets, and a client ===> hostile_silo
 * Threads: attackers, and one that calls through the client. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "../../bench/resident.h"
#include "../../sim/sim_draw.h"
#include "../link/raw_peer.h"
#include "child.h"
#include "lab.h"

enum {
    CONNECTIONS = 5000,
    ATTACKERS = 6,
    DRIPS = 50,     /* connections of one attacker that send a byte now and then */
    FLOOD = 100,    /* frames */
    BODY_MAX = 900, /* of a forged message */
    WARM_UP = 10,   /* a share of the connections comes before memory is measured */
    CALLS_MAX = 1 << 20,
    /* The link keeps the memory of up to 4,096 connections for reuse (link/next_hop.c). */
    KEPT_MAX = 10 * 1024 * 1024,
    KEPT_FIRST = 1024 * 1024,
    KEPT_EACH = 200, /* on average; a leak would be more */
    SETTLE_MS = 30000
};

typedef struct attacker {
    pthread_t thread;
    unsigned number;
    unsigned long connections;
    sim_draw draw;
    raw_peer *drips[DRIPS];
    unsigned n_drips;
} attacker;

static const char *transport;
static char address[64];
static unsigned long connections = CONNECTIONS, seed;
static _Atomic unsigned long connected, refused;
static _Atomic bool is_over;

/* ---- sockets ---- */

/* From an address of each attacker's own, so that ports do not run out; reset at its end. */
static raw_peer *open_socket(const attacker *a)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + a->number)};
    struct linger reset = {1, 0};
    raw_peer *peer = calloc(1, sizeof *peer);
    peer->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    to.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    setsockopt(peer->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    if (bind(peer->fd, (struct sockaddr *)&from, sizeof from) != 0 ||
        connect(peer->fd, (struct sockaddr *)&to, sizeof to) != 0) {
        refused++;
        raw_close(peer);
        return NULL;
    }
    connected++;
    return peer;
}

static void fill_random(attacker *a, uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)sim_draw_next(&a->draw);
}

/* ---- attacks: each returns when it has done its worst ---- */

static void send_garbage(attacker *a, raw_peer *peer)
{
    uint8_t bytes[512];
    fill_random(a, bytes, sizeof bytes);
    if (sim_draw_chance(&a->draw, 500)) /* of a length that is waited for */
        bytes[2] = bytes[3] = 0;
    (void)raw_send(peer, bytes, sizeof bytes);
}

static void send_nothing(attacker *a, raw_peer *peer)
{
    if (sim_draw_chance(&a->draw, 500))
        shutdown(peer->fd, SHUT_WR); /* half-open */
}

static void send_oversize(attacker *a, raw_peer *peer)
{
    uint8_t head[TEFFI_FRAME_HEAD] = {0xff, 0xff, 0xff, (uint8_t)sim_draw_next(&a->draw),
                                      TEFFI_FRAME_HELLO};
    (void)raw_send(peer, head, sizeof head);
}

/* A hello of a silo or a client with a drawn id. */
static teffi_greeting draw_greeting(attacker *a)
{
    uint32_t id = (uint32_t)sim_draw_next(&a->draw);
    teffi_greeting g = raw_greeting(id, 1 + (uint32_t)sim_draw_below(&a->draw, 3), 1);
    bool client = id & TEFFI_CLIENT_BIT;
    g.sequence = sim_draw_next(&a->draw);
    if (client) {
        g.hello.role = TEFFI_ROLE_CLIENT;
        g.hello.address[0] = '\0';
    }
    fill_random(a, g.nonce, sizeof g.nonce);
    return g;
}

static void send_lies(attacker *a, raw_peer *peer)
{
    teffi_greeting g = draw_greeting(a), answer;
    uint8_t payload[TEFFI_ACK_MAX];
    teffi_ack ack = {{0}, {0}};
    switch (sim_draw_below(&a->draw, 6)) {
    case 0:
        strcpy(g.hello.cluster, "other");
        break;
    case 1:
        g.hello.version_min = g.hello.version_max = (uint32_t)sim_draw_next(&a->draw);
        break;
    case 2:
        g.hello.role ^= TEFFI_ROLE_SILO ^ TEFFI_ROLE_CLIENT;
        break;
    case 3:
        g.hello.role = (uint32_t)sim_draw_next(&a->draw);
        break;
    case 4: /* it says that it is the silo itself */
        if (raw_send_greeting(peer, &g) && raw_read_hello(peer, &answer))
            g.hello = answer.hello;
        break;
    default: /* the ack of another connection */
        memcpy(ack.echo, g.nonce, sizeof ack.echo);
        if (raw_send_greeting(peer, &g) && raw_read_hello(peer, &answer))
            (void)raw_send_frame(peer, TEFFI_FRAME_ACK, payload, teffi_ack_pack(&ack, payload));
        return;
    }
    (void)raw_join(peer, &g);
}

static bool join_silo(attacker *a, raw_peer *peer)
{
    teffi_greeting g = draw_greeting(a);
    return raw_join(peer, &g);
}

static void flood_control(attacker *a, raw_peer *peer)
{
    uint8_t kind = (uint8_t)(TEFFI_FRAME_HELLO + sim_draw_below(&a->draw, 7));
    bool goes_on = sim_draw_chance(&a->draw, 800) ? join_silo(a, peer) : true;
    for (int i = 0; goes_on && i < FLOOD; i++)
        goes_on = raw_send_frame(peer, kind, NULL, 0);
}

static teffi_msg *draw_message(attacker *a, const uint8_t *body, size_t n)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST + (uint32_t)sim_draw_below(&a->draw, 3));
    msg->raw = body;
    msg->raw_len = n;
    msg->src = (teffi_node_id){(uint32_t)sim_draw_next(&a->draw), 1};
    msg->to.slot = sim_draw_chance(&a->draw, 700) ? (uint32_t)sim_draw_below(&a->draw, 6)
                                                  : (uint32_t)sim_draw_next(&a->draw);
    msg->flags = (uint16_t)sim_draw_below(&a->draw, 8);
    msg->method_id = (uint32_t)sim_draw_below(&a->draw, 12);
    msg->type_id = msg->to.slot ? 0 : (uint32_t)sim_draw_next(&a->draw);
    msg->key = body;
    msg->key_len = msg->to.slot ? 0 : 8;
    msg->call.slot = msg->item.kind != TEFFI_MSG_ONEWAY;
    return msg;
}

/* Forged messages, of which some have a spoiled byte; nobody reads the responses. */
static void flood_messages(attacker *a, raw_peer *peer)
{
    uint8_t body[BODY_MAX], frame[BODY_MAX + 200];
    bool goes_on = join_silo(a, peer);
    for (int i = 0; goes_on && i < FLOOD; i++) {
        size_t room, body_len, n = 8 + sim_draw_below(&a->draw, BODY_MAX - 8);
        fill_random(a, body, n);
        teffi_msg *msg = draw_message(a, body, n);
        if (!teffi_frame_compute_size_bound(msg, sizeof frame, &room, &body_len)) {
            size_t len = teffi_frame_encode(msg, body_len, 0, frame);
            if (sim_draw_chance(&a->draw, 30))
                frame[sim_draw_below(&a->draw, len)] ^= 1;
            goes_on = raw_send(peer, frame, len);
        }
        teffi_msg_free(msg);
    }
}

/* out: true: the connection stays, and gets a byte at each later attack. */
static bool begin_to_drip(attacker *a, raw_peer *peer)
{
    static const uint8_t head[] = {200, 0, 0, 0, TEFFI_MSG_ONEWAY};
    bool joined = sim_draw_chance(&a->draw, 500) && join_silo(a, peer);
    if (a->n_drips == DRIPS || !raw_send(peer, head, sizeof head))
        return false;
    (void)joined;
    a->drips[a->n_drips++] = peer;
    return true;
}

static void drip_bytes(attacker *a)
{
    for (unsigned i = 0; i < a->n_drips; i++)
        (void)raw_send(a->drips[i], "", 1);
}

static void attack_once(attacker *a)
{
    static void (*const attacks[])(attacker * a, raw_peer * peer) = {
        send_garbage, send_nothing, send_oversize, send_lies, flood_control, flood_messages};
    enum { ATTACKS = sizeof attacks / sizeof attacks[0] };
    raw_peer *peer = open_socket(a);
    if (!peer)
        return;
    uint64_t which = sim_draw_below(&a->draw, ATTACKS + 1);
    if (which == ATTACKS) {
        if (begin_to_drip(a, peer))
            return;
    } else {
        attacks[which](a, peer);
    }
    if (sim_draw_chance(&a->draw, 100))
        shutdown(peer->fd, SHUT_RDWR); /* in order, instead of a reset */
    raw_close(peer);
}

static void *attack_often(void *arg)
{
    attacker *a = arg;
    for (unsigned long i = 0; i < a->connections; i++) {
        attack_once(a);
        if (i % 16 == 0)
            drip_bytes(a);
    }
    while (a->n_drips)
        raw_close(a->drips[--a->n_drips]);
    return NULL;
}

static void attack(unsigned long n, uint64_t stream)
{
    static attacker attackers[ATTACKERS];
    for (unsigned i = 0; i < ATTACKERS; i++) {
        attackers[i] = (attacker){.number = i, .connections = n / ATTACKERS + 1};
        attackers[i].draw = sim_draw_of(seed, stream * ATTACKERS + i);
        assert_int_equal(pthread_create(&attackers[i].thread, NULL, attack_often, &attackers[i]),
                         0);
    }
    for (unsigned i = 0; i < ATTACKERS; i++)
        pthread_join(attackers[i].thread, NULL);
}

/* ---- the client beside them ---- */

typedef struct caller {
    pthread_t thread;
    teff_ctx *ctx;
    uint64_t took_ns[CALLS_MAX];
    size_t n;
    teff_err err;
} caller;

static caller good;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *call_often(void *arg)
{
    caller *c = arg;
    while (!is_over && c->n < CALLS_MAX && !c->err) {
        lab_text *out;
        uint64_t begin = now_ns();
        c->err = lab_hashed_where(c->ctx, "home", &out);
        c->took_ns[c->n++] = now_ns() - begin;
        if (!c->err)
            teff_ctx_reset(c->ctx);
    }
    return NULL;
}

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void begin_calls(void)
{
    good.n = 0;
    is_over = false;
    assert_int_equal(pthread_create(&good.thread, NULL, call_often, &good), 0);
}

/* All calls have succeeded. Prints how long they took. */
static void end_calls(const char *when)
{
    is_over = true;
    pthread_join(good.thread, NULL);
    if (good.err)
        fail_msg("%s: %s: %s", when, teff_err_name(good.err), teff_error(good.ctx));
    assert_true(good.n > 0);
    qsort(good.took_ns, good.n, sizeof good.took_ns[0], compare_times);
    printf("%s, %s: %zu calls, median %.0f us, p99 %.0f us\n", transport, when, good.n,
           (double)good.took_ns[good.n / 2] / 1000, (double)good.took_ns[good.n * 99 / 100] / 1000);
}

static void call_alone(const char *when)
{
    struct timespec second = {1, 0};
    begin_calls();
    nanosleep(&second, NULL);
    end_calls(when);
}

/* ---- the silo ---- */

static unsigned count_fds(pid_t pid)
{
    char path[64];
    unsigned n = 0;
    for (int fd = 0; fd < 65536; fd++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
        n += access(path, F_OK) == 0 || faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    }
    return n;
}

/* out: the bytes that it has allocated. */
static double ask_used(void)
{
    lab_text *out;
    lab_ok(good.ctx, lab_hashed_where(good.ctx, "used", &out));
    double used = atof(out->text);
    teff_ctx_reset(good.ctx);
    return used;
}

static double growth_max(void)
{
    double kept = KEPT_FIRST + (double)connections * KEPT_EACH;
    return kept < KEPT_MAX ? kept : KEPT_MAX;
}

/* Waits until its descriptors are as few, and its bytes as many, as before. */
static void wait_settled(pid_t pid, unsigned fds, double used_max)
{
    struct timespec pause = {.tv_nsec = 200000000};
    uint64_t until = now_ns() + SETTLE_MS * 1000000ull;
    unsigned open = count_fds(pid); /* it may open a file for a moment at any time */
    double used = ask_used();
    while ((open > fds || used > used_max) && now_ns() < until) {
        nanosleep(&pause, NULL);
        open = count_fds(pid);
        used = ask_used();
    }
    if (open > fds || used > used_max)
        fail_msg("%u descriptors, %.0f bytes; before: %u, and at most %.0f", open, used, fds,
                 used_max);
}

static void a_silo_outlives_them_and_serves_others(void **state)
{
    child silo = child_run(ARGS("--quiet", "--cluster", "test", "--transport", transport), false);
    teff_client_options opt = {.size = sizeof opt, .cluster = "test", .gateways = {address}};
    teff_client *client;
    char text[TEFF_TEXT_MAX] = "";
    child_read(&silo, silo.out, "ready ");
    assert_int_equal(sscanf(strstr(silo.text, "ready "), "ready %63s", address), 1);
    if (teff_client_connect(&opt, &client, text))
        fail_msg("%s", text);
    good.ctx = teff_client_ctx(client);
    call_alone("alone");
    unsigned fds = count_fds(silo.pid);
    attack(connections / WARM_UP, 0);
    wait_settled(silo.pid, fds, HUGE_VAL);
    double used = ask_used(), resident = bench_resident_bytes_of(silo.pid);
    begin_calls();
    attack(connections, 1);
    end_calls("beside them");
    wait_settled(silo.pid, fds, used + growth_max());
    call_alone("after them");
    printf("%s: %lu connections, %lu failed; allocated bytes: %.0f, then %.0f; resident: %.0f, "
           "then %.0f\n",
           transport, (unsigned long)connected, (unsigned long)refused, used, ask_used(), resident,
           bench_resident_bytes_of(silo.pid));
    assert_int_equal(refused, 0);
    teff_ctx_free(good.ctx);
    teff_client_free(client);
    assert_int_equal(kill(silo.pid, SIGTERM), 0);
    assert_int_equal(child_status(&silo), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_silo_outlives_them_and_serves_others)};
    if (argc < 3)
        return 2;
    signal(SIGPIPE, SIG_IGN);
    child_program = argv[1];
    transport = argv[2];
    connections = argc > 3 ? strtoul(argv[3], NULL, 10) : CONNECTIONS;
    seed = argc > 4 ? strtoul(argv[4], NULL, 10) : (unsigned long)(now_ns() % 1000000000u);
    printf("%s: again: %lu connections, seed %lu\n", transport, connections, seed);
    fflush(stdout);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
