/* fuzz_conn.c - a link between hostile peers: sequences of frames, split at any byte, on its own
 * and on accepted connections, between calls of its owner, ticks, and ends at any moment.
 *
 * The input is a script; each step is a byte that chooses it, and bytes that it takes. Checked at
 * each step: what the owner learns of a peer comes in order (hello, up, messages, down), a client
 * is nobody else and reaches no system target, all frames that the link writes are well formed. At
 * the end: no peer is left up, each dial has its done, and nothing stays behind. The first byte
 * gives the link options, among them a secret and a certificate; then peers prove or lie.
 * Way:     [fuzz_conn] -> script_stream -> the link's callbacks -> driver -> events -> [fuzz_conn]
 * Threads: one. The ticker has no thread; a step of the script runs it until it sleeps. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/bug.h"
#include "link/link.h"
#include "message/frame.h"
#include "script_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
teff_err __wrap_teffi_thread_start(teffi_thread *thread, const char *name, void (*fn)(void *arg),
                                   void *arg);
void __wrap_teffi_thread_join(teffi_thread *thread);
bool __wrap_teffi_polling_sleep_or_poll(teffi_conns *conns, uint64_t timeout_ns);
teff_err __real_teffi_identity_new(const teffi_platform *platform, const teffi_tls_files *files,
                                   link_identity **identity, char *text);
teff_err __wrap_teffi_identity_new(const teffi_platform *platform, const teffi_tls_files *files,
                                   link_identity **identity, char *text);
void __wrap_teffi_identity_free(link_identity *identity);

/* bits of the first byte */
enum { IS_CLIENT = 1, HAS_BUDGET = 2, TRIES = 4, HAS_GATEWAY = 8, HAS_SECRET = 16, HAS_TLS = 32 };
/* values of a hello's upper bits that also are lies */
enum { LIE_NO_CERTIFICATE = 6, LIE_NO_SECRET = 7 };

enum {
    NODES = 6, /* peers: silos 0 to 2, clients 3 to 5; each in two incarnations */
    INCARNATIONS = 2,
    SILOS = 3,
    FRAME_MAX = 64 * 1024,
    BODY_MAX = 48 * 1024,
    BUDGET = 96 * 1024,
    STEPS_MAX = 600,
    SEEN_MAX = 2 * STEPS_MAX,
    CLIENTS_MAX = 3,
    HEARTBEAT_MS = 100,
    HELLO_TIMEOUT_MS = 400
};

typedef struct script {
    const uint8_t *at, *end;
} script;

typedef struct peer_seen { /* by the owner */
    teffi_node_id node;
    unsigned hellos, gones, ups, downs;
    bool may_talk; /* it came up, and has not gone cleanly since */
    bool is_up;    /* the last event of both: up, not down */
} peer_seen;

static script in;
static script_transport transport;
static teffi_net *net;
static teffi_budget budget;
static _Atomic uint64_t until_ns;
static uint64_t now_ns = 1000000000; /* rises through all inputs, as that of one process */
static uint64_t random_state;
static peer_seen seen[SEEN_MAX];
static unsigned n_seen, dials, dones, refused_node;
static uint64_t view; /* that the link carries */
static bool freed, leaving, is_client;
static teffi_thread *ticker;
static jmp_buf tick_over;
static unsigned sleeps;

static unsigned take_byte(void)
{
    return in.at < in.end ? *in.at++ : 0;
}

static unsigned take_word(void)
{
    unsigned low = take_byte();
    return low | take_byte() << 8;
}

/* ---- the platform ---- */

static uint64_t read_clock(void *arg)
{
    (void)arg;
    return now_ns;
}

static uint64_t draw_bits(void *arg)
{
    (void)arg;
    random_state += 0x9e3779b97f4a7c15u;
    return random_state * 0xbf58476d1ce4e5b9u;
}

static void drop_line(void *arg, teff_log_level level, const char *line)
{
    (void)arg;
    teffi_bug_if(!line[0] || level > TEFF_LOG_INFO);
}

static const teffi_platform platform = {
    .mono_ns = read_clock, .random = draw_bits, .log = {drop_line, NULL, TEFF_LOG_INFO}};

teff_err __wrap_teffi_thread_start(teffi_thread *thread, const char *name, void (*fn)(void *arg),
                                   void *arg)
{
    (void)name;
    thread->fn = fn;
    thread->arg = arg;
    ticker = thread;
    return TEFF_OK;
}

/* The link is being freed: the ticker looks once more, and ends. */
void __wrap_teffi_thread_join(teffi_thread *thread)
{
    thread->fn(thread->arg);
}

bool __wrap_teffi_polling_sleep_or_poll(teffi_conns *conns, uint64_t timeout_ns)
{
    (void)conns;
    (void)timeout_ns;
    if (sleeps-- == 0)
        longjmp(tick_over, 1); /* the ticker holds no lock while it sleeps */
    return false;
}

/* The ticker looks at all, runs what was delayed, and sleeps again. */
static void run_tick(unsigned step_ms)
{
    now_ns += step_ms * 1000000ull;
    sleeps = 1;
    if (setjmp(tick_over) == 0)
        ticker->fn(ticker->arg);
}

/* ---- the secret and the certificates, which stay for all inputs ---- */

static const teffi_secret secret = {16, "a shared secret!"};
static link_identity *own_identity, *silo_identity, *client_identity; /* the last two: peers' */
static char secret_path[32];
static bool has_secret;

static link_identity *read_certificate(const char *file, const char *authority)
{
    char paths[3][256], text[TEFF_TEXT_MAX];
    link_identity *made;
    snprintf(paths[0], sizeof paths[0], "%s/%s", CERTIFICATES, file);
    snprintf(paths[1], sizeof paths[1], "%s/%s", CERTIFICATES, authority);
    snprintf(paths[2], sizeof paths[2], "%s/client-ca.pem", CERTIFICATES);
    teffi_tls_files files = {paths[0], paths[1], paths[2]};
    if (__real_teffi_identity_new(&platform, &files, &made, text)) {
        fprintf(stderr, "%s\n", text);
        abort();
    }
    return made;
}

static void make_secrets_once(void)
{
    if (own_identity)
        return;
    int fd = memfd_create("secret", 0);
    teffi_bug_if(fd < 0 || fchmod(fd, S_IRUSR) != 0);
    teffi_bug_if(write(fd, secret.bytes, secret.len) != (ssize_t)secret.len);
    snprintf(secret_path, sizeof secret_path, "/proc/self/fd/%d", fd);
    own_identity = read_certificate("silo.pem", "ca.pem");
    silo_identity = read_certificate("peer.pem", "ca.pem");
    client_identity = read_certificate("client.pem", "client-ca.pem");
}

teff_err __wrap_teffi_identity_new(const teffi_platform *on, const teffi_tls_files *files,
                                   link_identity **identity, char *text)
{
    (void)on;
    (void)files;
    (void)text;
    *identity = own_identity;
    return TEFF_OK;
}

void __wrap_teffi_identity_free(link_identity *identity)
{
    (void)identity;
}

static link_identity *identity_of_peer(uint32_t silo)
{
    return silo & TEFFI_CLIENT_BIT ? client_identity : silo_identity;
}

/* A peer that is up has proved that it owns the key of its certificate, if it has shown one. */
static void check_key_of_peer(const teffi_hello *peer)
{
    static const uint8_t none[TEFFI_KEY_BYTES];
    const uint8_t *key = teffi_identity_hash(identity_of_peer(peer->node.silo));
    teffi_bug_if(memcmp(peer->key, none, sizeof none) != 0 &&
                 (!transport.tls || memcmp(peer->key, key, sizeof none) != 0));
}

/* ---- the owner ---- */

static teffi_node_id node_of(unsigned number)
{
    unsigned node = number % NODES;
    return (teffi_node_id){node + 1 + (node < SILOS ? 0 : TEFFI_CLIENT_BIT),
                           1 + number / NODES % INCARNATIONS};
}

/* A spoiled hello may name a node that is none of these. */
static peer_seen *seen_of(const teffi_hello *peer)
{
    bool client = peer->node.silo & TEFFI_CLIENT_BIT;
    unsigned i = 0;
    teffi_bug_if(freed || teffi_node_is_none(peer->node));
    teffi_bug_if(peer->role != (client ? TEFFI_ROLE_CLIENT : TEFFI_ROLE_SILO));
    while (i < n_seen && !teffi_node_equals(seen[i].node, peer->node))
        i++;
    teffi_bug_if(i == SEEN_MAX);
    if (i == n_seen)
        seen[n_seen++] = (peer_seen){.node = peer->node};
    return &seen[i];
}

static void on_message(void *arg, const teffi_hello *from, teffi_msg *msg)
{
    const peer_seen *p = seen_of(from);
    (void)arg;
    teffi_bug_if(!p->may_talk);
    if (from->role == TEFFI_ROLE_CLIENT) {
        teffi_bug_if(!teffi_node_equals(msg->src, from->node) || (msg->flags & TEFFI_MSG_PLACED));
        teffi_bug_if(msg->item.kind == TEFFI_MSG_RESPONSE);
        teffi_bug_if(msg->to.slot != TEFFI_SLOT_GRAIN && msg->to.slot != TEFFI_SLOT_CANCEL);
    }
    teffi_msg_free(msg);
}

static teff_err on_hello(void *arg, const teffi_hello *peer, char *text)
{
    peer_seen *p = seen_of(peer);
    (void)arg;
    if (peer->node.silo == refused_node) {
        strcpy(text, "as the script says");
        return TEFF_E_REFUSED;
    }
    p->hellos++;
    return TEFF_OK;
}

static void on_view(void *arg, const teffi_hello *peer, uint64_t version)
{
    (void)arg;
    (void)seen_of(peer);
    teffi_bug_if(version == 0 || is_client || peer->role != TEFFI_ROLE_SILO);
}

static void on_gone(void *arg, const teffi_hello *peer)
{
    peer_seen *p = seen_of(peer);
    (void)arg;
    teffi_bug_if(++p->gones > p->hellos);
}

static void on_up(void *arg, const teffi_hello *peer)
{
    peer_seen *p = seen_of(peer);
    (void)arg;
    check_key_of_peer(peer);
    p->ups++;
    p->may_talk = p->is_up = true;
}

static void on_down(void *arg, const teffi_hello *peer, bool clean)
{
    peer_seen *p = seen_of(peer);
    (void)arg;
    teffi_bug_if(++p->downs > p->ups); /* each connection has one at most */
    teffi_bug_if(!p->may_talk); /* also of two connections, the clean end is the last one's */
    p->may_talk = !clean;
    p->is_up = false;
}

static void on_sent(void *arg, teffi_node_id to, const teffi_msg *request)
{
    (void)arg;
    (void)to;
    teffi_bug_if(request->item.kind != TEFFI_MSG_REQUEST);
}

static void on_unsent(void *arg, const teffi_hello *peer, teffi_msg *msg)
{
    (void)arg;
    (void)seen_of(peer);
    teffi_bug_if(msg->borrows);
    teffi_msg_free(msg);
}

static void on_done(void *arg, teff_err err, const teffi_hello *peer, const char *text)
{
    (void)arg;
    teffi_bug_if(++dones > dials);
    teffi_bug_if(err != TEFF_OK && err != TEFF_E_UNREACHABLE && err != TEFF_E_REFUSED);
    teffi_bug_if(err == TEFF_OK ? seen_of(peer)->ups == 0 : !text);
}

static const teffi_net_events events = {.message = on_message,
                                        .hello = on_hello,
                                        .view = on_view,
                                        .gone = on_gone,
                                        .up = on_up,
                                        .down = on_down,
                                        .sent = on_sent,
                                        .unsent = on_unsent};

/* ---- what the link has written ---- */

/* The link's nonce, which its peer must echo. */
static void look_at_hello(script_stream *s, const teffi_frame *frame)
{
    const uint8_t *payload;
    size_t len;
    teffi_greeting g;
    teffi_bug_if(!teffi_frame_get_control_payload(frame, &payload, &len));
    teffi_bug_if(teffi_hello_unpack(payload, len, &g));
    memcpy(s->nonce, g.nonce, sizeof s->nonce);
    teffi_bug_if(!teffi_proof_digest_hello(&g, s->own_digest));
    teffi_bug_if(g.secret != has_secret || (g.certificate.len > 0) != transport.tls);
    s->knows_nonce = true;
}

/* A stream begins with a hello or a refusal; nothing follows a refusal, no message a goodbye. */
static void look_at_order(script_stream *s, uint8_t kind)
{
    bool greets = kind == TEFFI_FRAME_HELLO || kind == TEFFI_FRAME_REFUSE;
    teffi_bug_if(kind > TEFFI_MSG_RESPONSE && kind < TEFFI_FRAME_HELLO);
    teffi_bug_if(kind > TEFFI_FRAME_VIEW || (!s->knows_nonce && !greets));
    teffi_bug_if(s->refused || (s->said_bye && kind <= TEFFI_MSG_RESPONSE));
    s->refused = kind == TEFFI_FRAME_REFUSE;
    s->said_bye |= kind == TEFFI_FRAME_BYE || kind == TEFFI_FRAME_BYE_ACK;
}

/* Views of a connection rise; the link knows them. */
static void look_at_view(script_stream *s, const teffi_frame *frame)
{
    const uint8_t *payload;
    size_t len;
    teffi_bug_if(!teffi_frame_get_control_payload(frame, &payload, &len));
    uint64_t version = teffi_frame_decode_view(payload, len);
    teffi_bug_if(version <= s->view || version > view);
    s->view = version;
}

static void look_at_frame(script_stream *s, const teffi_frame *frame)
{
    teffi_msg *msg;
    look_at_order(s, frame->kind);
    if (frame->kind == TEFFI_FRAME_VIEW)
        look_at_view(s, frame);
    if (frame->kind == TEFFI_FRAME_HELLO) {
        look_at_hello(s, frame);
    } else if (frame->kind <= TEFFI_MSG_RESPONSE) {
        teffi_bug_if(teffi_frame_decode(frame, NULL, now_ns, &msg));
        teffi_msg_free(msg);
    }
}

static void look_at_written(script_stream *s)
{
    script_queue *q = &s->written;
    size_t at = 0, size;
    teffi_frame frame;
    for (;; at += size) {
        teffi_bug_if(teffi_frame_peek(q->bytes + at, q->len - at, FRAME_MAX, &size, &frame));
        if (size == 0 || size > q->len - at)
            break;
        look_at_frame(s, &frame);
    }
    q->len -= at;
    memmove(q->bytes, q->bytes + at, q->len);
}

static void look_at_all_written(void)
{
    for (int i = 0; i < SCRIPT_STREAMS; i++)
        if (transport.streams[i].used)
            look_at_written(&transport.streams[i]);
}

/* ---- what a peer sends ---- */

static script_stream *choose_stream(void)
{
    return &transport.streams[take_byte() % SCRIPT_STREAMS];
}

static void send_control(script_stream *s, unsigned kind, const uint8_t *payload, size_t n)
{
    uint8_t frame[TEFFI_HELLO_MAX + TEFFI_FRAME_HEAD];
    teffi_frame_encode_control((uint8_t)kind, payload, n, frame);
    script_send(s, frame, n + TEFFI_FRAME_HEAD);
}

/* Adds to a hello, or to an ack, what proves it. in: prover: the peer's side. */
static void add_proofs(const script_stream *s, teffi_prover prover, link_identity *identity,
                       uint8_t *proof, teffi_signature *signature)
{
    bool peer_dials = prover == TEFFI_PROVER_DIALLER;
    const uint8_t *dialler = peer_dials ? s->peer_digest : s->own_digest;
    const uint8_t *acceptor = peer_dials ? s->own_digest : s->peer_digest;
    if (has_secret)
        teffi_bug_if(!teffi_proof_make(&secret, prover, dialler, acceptor, proof));
    if (transport.tls)
        teffi_bug_if(!teffi_identity_sign(identity, prover, dialler, acceptor, signature));
}

static void add_proofs_to_hello(script_stream *s, teffi_greeting *g, unsigned lie)
{
    link_identity *identity = identity_of_peer(g->hello.node.silo);
    g->secret = has_secret && lie != LIE_NO_SECRET;
    if (transport.tls && lie != LIE_NO_CERTIFICATE)
        teffi_identity_add_certificate(identity, g);
    teffi_bug_if(!teffi_proof_digest_hello(g, s->peer_digest));
    s->peer_silo = g->hello.node.silo;
    if (s->dialled && s->knows_nonce)
        add_proofs(s, TEFFI_PROVER_ACCEPTOR, identity, g->proof, &g->signature);
}

/* A hello of one of the nodes, which bits of `lies` make wrong. */
static void send_hello(script_stream *s)
{
    unsigned number = take_byte(), lies = take_byte();
    uint8_t payload[TEFFI_HELLO_MAX];
    teffi_greeting g = {.hello = {.node = node_of(number),
                                  .version_min = TEFFI_PROTOCOL_MIN + (lies & 1),
                                  .version_max = TEFFI_PROTOCOL_MAX + (lies & 1)}};
    bool client = g.hello.node.silo & TEFFI_CLIENT_BIT;
    g.hello.role = client != ((lies & 2) != 0) ? TEFFI_ROLE_CLIENT : TEFFI_ROLE_SILO;
    strcpy(g.hello.cluster, lies & 4 ? "other" : "test");
    strcpy(g.hello.address, client != ((lies & 8) != 0) ? "" : "script:1");
    g.sequence = lies >> 5;
    memset(g.nonce, 1 + (int)(lies >> 6), sizeof g.nonce);
    if (s->knows_nonce && !(lies & 16))
        memcpy(g.echo, s->nonce, sizeof g.echo);
    add_proofs_to_hello(s, &g, lies >> 5);
    send_control(s, TEFFI_FRAME_HELLO, payload, teffi_hello_pack(&g, payload));
}

static void send_ack(script_stream *s)
{
    uint8_t payload[TEFFI_ACK_MAX];
    teffi_ack ack = {.signature.len = 0};
    if (s->knows_nonce) {
        memcpy(ack.echo, s->nonce, sizeof ack.echo);
        add_proofs(s, TEFFI_PROVER_DIALLER, identity_of_peer(s->peer_silo), ack.proof,
                   &ack.signature);
    }
    send_control(s, TEFFI_FRAME_ACK, payload, teffi_ack_pack(&ack, payload));
}

static void send_any_control(script_stream *s)
{
    uint8_t payload[8];
    unsigned kind = take_byte(), n = kind >> 5 == 7 ? TEFFI_VIEW_BYTES : kind >> 5;
    for (unsigned i = 0; i < n; i++)
        payload[i] = (uint8_t)take_byte();
    send_control(s, TEFFI_FRAME_HELLO - 1 + kind % 8, payload, n);
}

static void send_refusal(script_stream *s)
{
    uint8_t payload[TEFFI_HELLO_MAX];
    send_control(s, TEFFI_FRAME_REFUSE, payload, teffi_refusal_pack("no", payload));
}

static teffi_msg *make_message(void)
{
    static const uint32_t slots[] = {TEFFI_SLOT_GRAIN, TEFFI_SLOT_STORE, TEFFI_SLOT_CANCEL,
                                     TEFFI_PROCESS_BIT};
    unsigned what = take_byte();
    size_t body = take_word() % BODY_MAX;
    teffi_msg *msg = teffi_msg_new(1 + what % 3);
    uint8_t *raw = msg ? teff_arena_alloc(&msg->arena, body + 1) : NULL;
    teffi_bug_if(!raw);
    memset(raw, (int)what, body);
    msg->raw = raw;
    msg->raw_len = body;
    msg->to.slot = slots[what >> 2 & 3];
    msg->flags = what >> 4 & 7;
    msg->src = node_of(what);
    msg->call.slot = msg->item.kind == TEFFI_MSG_ONEWAY ? 0 : what + 1;
    msg->awaited = what & 128;
    msg->deadline_ns = what & 64 ? now_ns + 5000000u : 0;
    return msg;
}

static void send_message(script_stream *s)
{
    static uint8_t frame[FRAME_MAX];
    size_t size, body_len;
    teffi_msg *msg = make_message();
    if (!teffi_frame_compute_size_bound(msg, sizeof frame, &size, &body_len) &&
        size <= sizeof frame)
        script_send(s, frame, teffi_frame_encode(msg, body_len, now_ns, frame));
    teffi_msg_free(msg);
}

static void send_raw(script_stream *s)
{
    for (unsigned n = take_byte() % 32; n > 0; n--) {
        uint8_t byte = (uint8_t)take_byte();
        script_send(s, &byte, 1);
    }
}

/* One byte of what was sent and not received yet. */
static void spoil_byte(script_stream *s)
{
    unsigned at = take_word(), with = take_byte();
    if (s->sent.len)
        s->sent.bytes[at % s->sent.len] ^= (uint8_t)with;
}

/* ---- what the owner calls ---- */

static void call_send(void)
{
    teffi_node_id to = node_of(take_byte());
    teffi_msg *msg = make_message();
    if (leaving || net->ops->send(net, to, msg))
        teffi_msg_free(msg);
}

/* Without waiting, as this thread has all that it would wait for. */
static void call_shutdown(void)
{
    teff_err err = net->ops->shutdown(net, 0);
    teffi_bug_if(err != TEFF_OK && err != TEFF_E_TIMEOUT);
    leaving = true;
}

static void call_dial(void)
{
    dials++;
    net->ops->dial(net, "script:1", on_done, NULL);
}

static void end_dial(void)
{
    unsigned which = take_byte();
    (void)script_dialled(&transport, &transport.dials[which % SCRIPT_DIALS], which < 128);
}

static void call_owner(void)
{
    unsigned what = take_byte(), number = what >> 4;
    if (leaving)
        return; /* after a shutdown only free may follow */
    switch (what % 8) {
    case 0:
        (void)net->ops->peer_add(net, node_of(number), "script:1");
        break;
    case 1:
        if (what & 8 && !is_client && number % 2)
            net->ops->peer_dead(net, node_of(number));
        else
            net->ops->peer_remove(net, node_of(number), what & 8);
        break;
    case 2:
        if (what & 8 && !is_client)
            net->ops->carry_view(net, ++view);
        else
            net->ops->peer_left(net, node_of(number));
        break;
    case 3:
        call_dial();
        break;
    case 4:
        refused_node = node_of(number).silo;
        break;
    case 5:
        until_ns = now_ns + (number ? 50000000u * number : 1u << 31);
        break;
    case 6:
        call_shutdown();
        break;
    default:
        call_send();
    }
}

/* ---- the script ---- */

static void run_step(unsigned what)
{
    switch (what) {
    case 0:
        (void)script_accept(&transport);
        break;
    case 1:
        send_hello(choose_stream());
        break;
    case 2:
        send_ack(choose_stream());
        break;
    case 3:
        send_message(choose_stream());
        break;
    case 4:
        send_any_control(choose_stream());
        break;
    case 5:
        send_raw(choose_stream());
        break;
    case 6:
        spoil_byte(choose_stream());
        break;
    case 7:
        script_receive(choose_stream(), take_byte());
        break;
    case 8:
        script_receive(choose_stream(), SIZE_MAX);
        break;
    case 9:
        script_write(choose_stream(), take_word());
        break;
    case 10:
        script_write(choose_stream(), SIZE_MAX);
        break;
    case 11:
        script_break(choose_stream());
        break;
    case 12:
        run_tick(take_byte());
        break;
    case 13:
        (void)teffi_poller_poll_once(&transport.poller);
        break;
    case 14:
        end_dial();
        break;
    case 15:
        call_owner();
        break;
    case 16:
        send_refusal(choose_stream());
        break;
    default:
        call_send();
    }
}

static void start_link(unsigned options)
{
    teffi_net_options opt = {.self = {.node = {99, 1}, .role = TEFFI_ROLE_SILO},
                             .events = &events,
                             .transport = TEFFI_TRANSPORT_REACTOR,
                             .frame_max_bytes = FRAME_MAX,
                             .queue_max_bytes = 2 * FRAME_MAX,
                             .heartbeat_ms = HEARTBEAT_MS,
                             .hello_timeout_ms = HELLO_TIMEOUT_MS,
                             .clients_max = CLIENTS_MAX,
                             .until_ns = &until_ns};
    char bound[TEFFI_ADDRESS_MAX + 1];
    is_client = options & IS_CLIENT;
    view = 0;
    if (is_client)
        opt.self = (teffi_hello){.node = {99 | TEFFI_CLIENT_BIT, 1}, .role = TEFFI_ROLE_CLIENT};
    strcpy(opt.self.cluster, "test");
    opt.budget = options & HAS_BUDGET ? &budget : NULL;
    memset(&budget, 0, sizeof budget);
    teffi_budget_init(&budget, BUDGET);
    n_seen = 0;
    transport.tries = options & TRIES;
    transport.tls = options & HAS_TLS;
    has_secret = options & HAS_SECRET;
    opt.secret_file = has_secret ? secret_path : NULL;
    transport.no_listener = freed = leaving = false;
    transport.door = TEFFI_DOOR_GATEWAY;
    until_ns = now_ns + 3600000000000u;
    dials = dones = refused_node = 0;
    random_state = options;
    script_next = &transport;
    teffi_bug_if(teffi_net_link_new(&platform, &opt, &net, NULL));
    if (is_client)
        return;
    if (options & HAS_GATEWAY)
        teffi_bug_if(net->ops->listen(net, TEFFI_DOOR_GATEWAY, "script:0", bound, NULL));
    teffi_bug_if(net->ops->listen(net, TEFFI_DOOR_SILOS, "script:0", bound, NULL));
    net->ops->identify(net, opt.self.node, bound);
    net->ops->accept(net);
}

static void check_ends(void)
{
    teffi_bug_if(dones != dials);
    for (const peer_seen *p = seen; p < seen + n_seen; p++) {
        teffi_bug_if(p->is_up);
        teffi_bug_if(p->gones > p->hellos || p->hellos - p->gones > p->ups);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    in = (script){data, data + n};
    make_secrets_once();
    start_link(take_byte());
    for (int i = 0; i < STEPS_MAX && in.at < in.end; i++) {
        run_step(take_byte() % 18);
        look_at_all_written();
    }
    net->ops->free(net);
    freed = true;
    check_ends();
    return 0;
}
