/* attack.c - see attack.h. */
#include "attack.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "../../../grains/testing/sim_draw.h"
#include "../link/raw_peer.h"

enum {
    ATTACKERS = 6,
    DRIPS = 50,     /* connections of one attacker that send a byte now and then */
    FLOOD = 100,    /* frames */
    BODY_MAX = 900, /* of a forged message */
};

typedef struct attacker {
    const attack_plan *plan;
    pthread_t thread;
    unsigned number;
    sim_draw draw;
    raw_peer *drips[DRIPS];
    unsigned n_drips;
    attack_result result;
} attacker;

static uint64_t read_clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- sockets ---- */

/* From an address of each attacker's own, so that ports do not run out; reset at its end. */
static raw_peer *open_socket(attacker *a)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + a->number)};
    struct linger reset = {1, 0};
    raw_peer *peer = calloc(1, sizeof *peer);
    peer->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    to.sin_port = htons((uint16_t)atoi(strrchr(a->plan->address, ':') + 1));
    setsockopt(peer->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    if (bind(peer->fd, (struct sockaddr *)&from, sizeof from) != 0 ||
        connect(peer->fd, (struct sockaddr *)&to, sizeof to) != 0) {
        a->result.failed++;
        raw_close(peer);
        return NULL;
    }
    a->result.connected++;
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
    teffi_ack ack = {.signature.len = 0};
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

/* Sleeps until the attacker's connection number i is due; the attackers take turns. */
static void wait_for_turn(const attacker *a, uint64_t begin_ns, unsigned long i)
{
    if (!a->plan->per_second)
        return;
    double due_s = (double)(i * ATTACKERS + a->number) / a->plan->per_second;
    uint64_t due_ns = begin_ns + (uint64_t)(due_s * 1e9);
    struct timespec due = {(time_t)(due_ns / 1000000000u), (long)(due_ns % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
}

static void *attack_often(void *arg)
{
    attacker *a = arg;
    const attack_plan *plan = a->plan;
    uint64_t begin_ns = read_clock_ns(CLOCK_MONOTONIC);
    for (unsigned long i = 0; i < plan->connections / ATTACKERS + 1; i++) {
        wait_for_turn(a, begin_ns, i);
        if (plan->stop && *plan->stop)
            break;
        attack_once(a);
        if (i % 16 == 0)
            drip_bytes(a);
    }
    while (a->n_drips)
        raw_close(a->drips[--a->n_drips]);
    a->result.cpu_s = (double)read_clock_ns(CLOCK_THREAD_CPUTIME_ID) / 1e9;
    return NULL;
}

attack_result attack_run(const attack_plan *plan)
{
    attacker attackers[ATTACKERS];
    attack_result sum = {0};
    for (unsigned i = 0; i < ATTACKERS; i++) {
        attacker *a = &attackers[i];
        *a = (attacker){.plan = plan, .number = i};
        a->draw = sim_draw_of(plan->seed, plan->stream * ATTACKERS + i);
        if (pthread_create(&a->thread, NULL, attack_often, a) != 0)
            abort();
    }
    for (unsigned i = 0; i < ATTACKERS; i++) {
        const attack_result *r = &attackers[i].result;
        pthread_join(attackers[i].thread, NULL);
        sum.connected += r->connected;
        sum.failed += r->failed;
        sum.cpu_s += r->cpu_s;
    }
    return sum;
}
