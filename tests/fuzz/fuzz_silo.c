/* fuzz_silo.c - messages of hostile peers to a whole silo: to its system targets, grains and
 * processes, as requests, one-ways and responses, with bodies of any bytes or made of fields.
 *
 * The input is a script; each step is a byte that chooses it, and bytes that it takes. The peers
 * are a member of the cluster, a stranger, a silo that has left, and a client; a client sends what
 * the link lets pass. After each step all groups run. Checked: each request gets one response at
 * most, which goes to its sender; the silo closes, and nothing stays behind.
 * Way:     [fuzz_silo] -> lone_silo -> node/events -> targets, grains, processes -> [fuzz_silo] */
#include <stdlib.h>
#include <string.h>
#include <teff/pid.h>
#include "activation/lock.h"
#include "base/bug.h"
#include "cluster.pb-c.h"
#include "cluster/membership.h"
#include "directory/partition.h"
#include "grains.teff.h"
#include "input.h"
#include "lone_silo.h"
#include "node/pid.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { STEPS_MAX = 60, BODY_MAX = 4096, ACTS_MAX = 6, PEERS = 4, MEMBER = 0, LEFT = 2, CLIENT = 3 };

static fuzz_input in;
static lone_silo lone;
static teffi_hello peers[PEERS];

/* ---- the grains ---- */

/* Calls the grain that the act names, by the same method. */
static teff_err call_next(teff_ctx *ctx, const fuzz_act *act, bool joins, fuzz_number *out)
{
    fuzz_number *theirs = NULL;
    static const fuzz_act none = FUZZ__ACT__INIT;
    const fuzz_act *next = act->next ? act->next : &none;
    if (!act->to[0])
        return TEFF_OK;
    teff_err err = joins ? fuzz_chain_join(ctx, act->to, next, &theirs)
                         : fuzz_chain_go(ctx, act->to, next, &theirs);
    if (!err)
        out->n = theirs->n + 1;
    return err;
}

static teff_err run_act(fuzz_chain *self, const fuzz_act *act, bool joins, fuzz_number *out)
{
    self->state->n++;
    if (act->waits)
        teff_sleep(self->ctx, 1);
    if (act->ear.len)
        (void)!fuzz_ear_subscribe(self->ctx, act->ear, 50);
    if (act->tells)
        (void)!fuzz_ear_heard_notify(self->ctx, fuzz_number(.n = self->state->n));
    teff_err err = call_next(self->ctx, act, joins, out);
    return !err && act->saves ? fuzz_chain_save(self) : err;
}

static teff_err chain_go(fuzz_chain *self, const fuzz_act *act, fuzz_number *out)
{
    return run_act(self, act, false, out);
}

static teff_err chain_join(fuzz_chain *self, const fuzz_act *act, fuzz_number *out)
{
    return run_act(self, act, true, out);
}

static teff_err chain_look(fuzz_chain *self, fuzz_number *out)
{
    out->n = self->state->n;
    return TEFF_OK;
}

static teff_err chain_tell(fuzz_chain *self, const fuzz_act *act)
{
    fuzz_number unused = FUZZ__NUMBER__INIT;
    return run_act(self, act, false, &unused);
}

static teff_err chain_ear_heard(fuzz_chain *self, const fuzz_number *heard)
{
    self->state->n += heard->n & 1;
    return TEFF_OK;
}

static const fuzz_chain_methods methods = {.go = chain_go,
                                           .join = chain_join,
                                           .look = chain_look,
                                           .tell = chain_tell,
                                           .ear_heard = chain_ear_heard};

/* ---- the process ---- */

static teff_pid process;

/* Responds to requests with their data, which is an error's text if the tag is odd. An event of
 * another silo has one of four kinds. */
static teff_err serve_events(void *self, const teff_event *events, size_t n, teff_step *out)
{
    bool ends = false;
    (void)self;
    for (size_t i = 0; i < n; i++) {
        const teff_event *e = &events[i];
        ends |= e->kind == TEFF_EVENT_CANCEL;
        teffi_bug_if(e->kind != TEFF_EVENT_MESSAGE && e->kind != TEFF_EVENT_CANCEL &&
                     e->kind != TEFF_EVENT_RETURNED && e->kind != TEFF_EVENT_REQUEST);
        if (e->kind == TEFF_EVENT_REQUEST)
            (void)teff_pid_respond(teff_process_system_of(teff_step_process(out)), e,
                                   e->tag & 1 ? TEFF_E_FAILED : TEFF_OK, e->data, e->len);
    }
    return ends ? teff_step_done(out) : TEFF_OK;
}

static void start_process(void)
{
    static const teff_process_ops ops = {.name = "server", .step = serve_events};
    teff_process_options opt = {.size = sizeof opt};
    teff_process_system *system;
    teffi_bug_if(teff_silo_processes(lone.silo, &opt, &system));
    teffi_bug_if(teff_process_spawn(system, &ops, NULL, NULL, NULL, 0, &process));
    lone_silo_run();
}

/* ---- requests and their responses ---- */

typedef struct open_request {
    teffi_node_id from;
    bool responded;
} open_request;

static open_request requests[STEPS_MAX + 1]; /* by call slot, from 1 */
static unsigned n_requests;

static void check_sent_response(teffi_node_id to, const teffi_msg *response)
{
    uint32_t slot = response->call.slot;
    teffi_bug_if(slot == 0 || slot > n_requests || response->call.cookie != slot * 3);
    teffi_bug_if(!teffi_node_equals(to, requests[slot].from) || requests[slot].responded);
    teffi_bug_if(response->err > TEFF_E_MAX);
    requests[slot].responded = true;
}

/* Gives a request its call; the silo receives msg from the peer. Owns msg. */
static void send_from_peer(unsigned peer, teffi_msg *msg)
{
    if (msg->item.kind == TEFFI_MSG_REQUEST) {
        requests[++n_requests] = (open_request){peers[peer].node, false};
        msg->call = (teffi_origin){n_requests, 1, (uint64_t)n_requests * 3};
    }
    msg->src = peers[peer].node;
    msg->to.node = lone.silo->node.id;
    lone_silo_receive(&lone, &peers[peer], msg);
}

static teffi_msg *make_hostile_msg(uint32_t kind, uint32_t slot, uint32_t method)
{
    teffi_msg *msg = teffi_msg_new(kind);
    teffi_bug_if(!msg);
    msg->to.slot = slot;
    msg->method_id = method;
    return msg;
}

static const uint8_t *copy_input(teffi_msg *msg, size_t *n)
{
    const uint8_t *from = input_take_bytes(&in, n);
    void *copy = teff_arena_copy(&msg->arena, *n ? from : (const uint8_t *)"", *n);
    teffi_bug_if(!copy);
    return copy;
}

static void take_raw_body(teffi_msg *msg)
{
    msg->raw_len = input_take_word(&in) % BODY_MAX;
    msg->raw = copy_input(msg, &msg->raw_len);
}

static void pack_body(teffi_msg *msg, const ProtobufCMessage *body)
{
    teffi_bug_if(!teffi_node_pack_body(msg, body));
}

static uint32_t take_kind(void)
{
    return input_take_byte(&in) & 1 ? TEFFI_MSG_ONEWAY : TEFFI_MSG_REQUEST;
}

/* ---- fields ---- */

/* A node: the silo itself, a peer, or none of them. */
static teffi_node_id take_node(void)
{
    unsigned what = input_take_byte(&in) % (PEERS + 2);
    return what < PEERS    ? peers[what].node
           : what == PEERS ? lone.silo->node.id
                           : (teffi_node_id){what, 1};
}

static void take_pid(Teff__Cluster__Pid *pid, Teff__Cluster__Node *node)
{
    teffi_node_id id = take_node();
    teff__cluster__node__init(node);
    teff__cluster__pid__init(pid);
    node->silo = id.silo;
    node->incarnation = id.incarnation;
    unsigned what = input_take_byte(&in);
    pid->node = what & 128 ? NULL : node;
    pid->slot = what % 16;
    pid->generation = what / 16 % 8;
}

/* The view's version, or one near it. */
static uint64_t take_version(void)
{
    return teffi_membership_version(&lone.silo->node) + input_take_byte(&in) % 4 - 1;
}

/* One letter, or some bytes of the input. */
static ProtobufCBinaryData take_key_of_grain(teffi_msg *msg)
{
    unsigned what = input_take_byte(&in);
    size_t n = what >= 200 ? what - 200 : 1;
    uint8_t *key = teff_arena_alloc(&msg->arena, 64);
    teffi_bug_if(!key);
    key[0] = (uint8_t)('a' + what % 8);
    if (what >= 200) {
        const uint8_t *from = input_take_bytes(&in, &n);
        if (n)
            memcpy(key, from, n);
    }
    key[n] = '\0';
    return (ProtobufCBinaryData){n, key};
}

static uint32_t take_type(void)
{
    return input_take_byte(&in) & 1 ? 12345 : fuzz_chain_info.id;
}

/* ---- steps: messages to system targets ---- */

static void send_raw_system(void)
{
    unsigned peer = input_take_byte(&in) % CLIENT, to = input_take_byte(&in);
    teffi_msg *msg = make_hostile_msg(take_kind(), 1 + to % TEFFI_SLOT_SYSTEM_END, to / 16);
    take_raw_body(msg);
    send_from_peer(peer, msg);
}

static void send_directory_ask(void)
{
    Teff__Cluster__DirectoryAsk ask = TEFF__CLUSTER__DIRECTORY_ASK__INIT;
    Teff__Cluster__Pid pid;
    Teff__Cluster__Node node;
    unsigned peer = input_take_byte(&in) % CLIENT;
    uint32_t kind = take_kind(), method = 1 + input_take_byte(&in) % 6;
    teffi_msg *msg = make_hostile_msg(kind, TEFFI_SLOT_DIRECTORY, method);
    ask.view = take_version();
    ask.type = take_type();
    ask.key = take_key_of_grain(msg);
    take_pid(&pid, &node);
    ask.pid = input_take_byte(&in) & 1 ? NULL : &pid;
    pack_body(msg, &ask.base);
    send_from_peer(peer, msg);
}

static void send_recover(void)
{
    Teff__Cluster__Recover ask = TEFF__CLUSTER__RECOVER__INIT;
    uint8_t bits[TEFFI_PARTITIONS / 8 + 1];
    unsigned peer = input_take_byte(&in) % CLIENT;
    teffi_msg *msg = make_hostile_msg(take_kind(), TEFFI_SLOT_DIRECTORY, TEFFI_METHOD_RECOVER);
    memset(bits, (int)input_take_byte(&in), sizeof bits);
    ask.view = take_version();
    ask.partitions = (ProtobufCBinaryData){sizeof bits - input_take_byte(&in) % 3, bits};
    ask.cursor = input_take_word(&in);
    pack_body(msg, &ask.base);
    send_from_peer(peer, msg);
}

static void send_moved(void)
{
    Teff__Cluster__Moved moved = TEFF__CLUSTER__MOVED__INIT;
    Teff__Cluster__Pid pid;
    Teff__Cluster__Node node;
    unsigned peer = input_take_byte(&in) % CLIENT;
    teffi_msg *msg = make_hostile_msg(take_kind(), TEFFI_SLOT_DIRECTORY, TEFFI_METHOD_MOVED);
    moved.type = take_type();
    moved.key = take_key_of_grain(msg);
    take_pid(&pid, &node);
    moved.pid = &pid;
    pack_body(msg, &moved.base);
    send_from_peer(peer, msg);
}

static void send_consent(void)
{
    Teff__Cluster__Consent ask = TEFF__CLUSTER__CONSENT__INIT;
    Teff__Cluster__Silent silent[4], *list[4];
    Teff__Cluster__Node nodes[4];
    unsigned peer = input_take_byte(&in) % CLIENT;
    teffi_msg *msg = make_hostile_msg(take_kind(), TEFFI_SLOT_MEMBERSHIP, TEFFI_METHOD_CONSENT);
    ask.silent = list;
    ask.n_silent = input_take_byte(&in) % 5;
    for (size_t i = 0; i < ask.n_silent; i++) {
        teffi_node_id id = take_node();
        list[i] = &silent[i];
        teff__cluster__node__init(&nodes[i]);
        teff__cluster__silent__init(&silent[i]);
        nodes[i].silo = id.silo;
        nodes[i].incarnation = id.incarnation;
        silent[i].beat = input_take_byte(&in);
        silent[i].node = silent[i].beat == 255 ? NULL : &nodes[i];
    }
    pack_body(msg, &ask.base);
    send_from_peer(peer, msg);
}

static void send_number_to_membership(void)
{
    Teff__Cluster__ViewAtLeast ask = TEFF__CLUSTER__VIEW_AT_LEAST__INIT;
    unsigned peer = input_take_byte(&in) % CLIENT;
    uint32_t kind = take_kind(), method = input_take_byte(&in) % 7;
    /* Promise has a number in the same field */
    teffi_msg *msg = make_hostile_msg(kind, TEFFI_SLOT_MEMBERSHIP, method);
    ask.version = take_version();
    pack_body(msg, &ask.base);
    send_from_peer(peer, msg);
}

static void send_probe(void)
{
    Teff__Cluster__Probe probe = TEFF__CLUSTER__PROBE__INIT;
    Teff__Cluster__Pid pid;
    Teff__Cluster__Node node;
    uint64_t path[64];
    unsigned peer = input_take_byte(&in) % CLIENT;
    uint32_t kind = take_kind(), method = input_take_byte(&in) % 3;
    teffi_msg *msg = make_hostile_msg(kind, TEFFI_SLOT_DEADLOCK, method);
    take_pid(&pid, &node);
    probe.initiator = &pid;
    probe.token = input_take_byte(&in);
    probe.confirms = probe.token & 1;
    probe.step = input_take_byte(&in) % 34;
    probe.n_path = input_take_byte(&in) % 65;
    probe.path = path;
    for (size_t i = 0; i < probe.n_path; i++)
        path[i] = i % 2 ? 1 : teffi_node_to_word(peers[MEMBER].node);
    probe.budget = input_take_byte(&in);
    unsigned call = input_take_byte(&in); /* often one of the requests that the peer has sent */
    probe.slot = call % (STEPS_MAX + 1);
    probe.generation = 1;
    probe.cookie = probe.slot * 3u;
    probe.type = take_type();
    probe.key = take_key_of_grain(msg);
    probe.text.len = input_take_byte(&in);
    probe.text.data = (uint8_t *)(uintptr_t)copy_input(msg, &probe.text.len);
    pack_body(msg, &probe.base);
    send_from_peer(peer, msg);
}

static void send_store_ask(void)
{
    static const char *const tables[] = {"membership", "alive", "fence", "state", "Bad name", ""};
    Teff__Cluster__StoreAsk ask = TEFF__CLUSTER__STORE_ASK__INIT;
    Teff__Cluster__StoreRow rows[4], *list[4];
    unsigned peer = input_take_byte(&in) % CLIENT, what = input_take_byte(&in);
    teffi_msg *msg = make_hostile_msg(take_kind(), TEFFI_SLOT_STORE, 1);
    msg->flags = TEFFI_MSG_ROW;
    ask.kind = what % 8;
    ask.n_rows = what / 8 % 5;
    ask.rows = list;
    ask.limit = input_take_byte(&in) * 8;
    for (size_t i = 0; i < ask.n_rows; i++) {
        Teff__Cluster__StoreRow *row = list[i] = &rows[i];
        teff__cluster__store_row__init(row);
        unsigned bits = input_take_byte(&in);
        row->table = (char *)(uintptr_t)tables[bits % 8 % 6];
        row->remove = bits & 16;
        row->any = bits & 32;
        row->check = bits & 64;
        row->etag = input_take_byte(&in);
        row->key = (ProtobufCBinaryData){input_take_byte(&in), NULL};
        row->key.data = (uint8_t *)(uintptr_t)copy_input(msg, &row->key.len);
        row->value = (ProtobufCBinaryData){input_take_byte(&in), NULL};
        row->value.data = (uint8_t *)(uintptr_t)copy_input(msg, &row->value.len);
    }
    pack_body(msg, &ask.base);
    send_from_peer(peer, msg);
}

/* ---- steps: messages to grains and processes ---- */

/* A reference to an observer of the client through this silo or a peer, to a grain, or any
 * bytes. */
static ProtobufCBinaryData take_ref(teffi_msg *msg)
{
    unsigned what = input_take_byte(&in);
    teffi_client_ref client = {.head = {TEFFI_REF_CLIENT, 0, {0, 0}, fuzz_ear_info.type.id},
                               .gateway = teffi_node_to_word(take_node()),
                               .observer = what};
    teffi_grain_ref grain = {.head = client.head, .type = take_type()};
    grain.head.kind = TEFFI_REF_GRAIN;
    grain.head.key_kind = (uint8_t)(1 + what / 32);
    ProtobufCBinaryData key, ref;
    if (what & 1) {
        ref.data = (uint8_t *)(uintptr_t)copy_input(msg, &ref.len);
        return ref;
    }
    ref.data = teff_arena_alloc(&msg->arena, sizeof client + 64);
    teffi_bug_if(!ref.data);
    if (what & 2) {
        teffi_bug_if(!teffi_seal_make(lone.silo->node.grains->seal_key,
                                      what & 4 ? take_node() : peers[CLIENT].node, client.seal));
        memcpy(ref.data, &client, ref.len = sizeof client);
    } else {
        key = take_key_of_grain(msg);
        memcpy(ref.data, &grain, sizeof grain);
        memcpy(ref.data + sizeof grain, key.data, key.len);
        ref.len = sizeof grain + key.len;
    }
    return ref;
}

/* An act, and those that it leads to. */
static void take_act_body(teffi_msg *msg)
{
    static const char *const keys[] = {"", "a", "b", "c", "d", "e", "f", "\xff"};
    fuzz_act acts[ACTS_MAX];
    unsigned n = 0, what;
    do {
        what = input_take_byte(&in);
        acts[n] = (fuzz_act)FUZZ__ACT__INIT;
        acts[n].to = (char *)(uintptr_t)keys[what % 8];
        acts[n].saves = what & 8;
        acts[n].waits = what & 16;
        acts[n].tells = what & 128;
        if (what & 64)
            acts[n].ear = take_ref(msg);
        if (n)
            acts[n - 1].next = &acts[n];
    } while (++n < ACTS_MAX && what & 32);
    pack_body(msg, &acts[0].base);
}

static void take_transaction(teffi_msg *msg)
{
    unsigned what = input_take_byte(&in);
    teffi_transaction t = {.attempt = what & 15, .step = what / 16 % 10};
    t.age = input_take_byte(&in);
    t.root = take_node();
    t.etag = input_take_byte(&in);
    teffi_bug_if(!teffi_transaction_write_to_msg(msg, &t));
    if (what == 255)
        msg->transaction_len = input_take_byte(&in) % sizeof t;
}

static void send_to_grain(void)
{
    unsigned peer = input_take_byte(&in) % PEERS, what = input_take_byte(&in);
    unsigned method = input_take_byte(&in) % (unsigned)(fuzz_chain_info.n_methods + 2);
    teffi_msg *msg =
        make_hostile_msg(what & 1 ? TEFFI_MSG_ONEWAY : TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN, 0);
    if (method < fuzz_chain_info.n_methods)
        msg->method_id = fuzz_chain_info.methods[method].id;
    else
        msg->method_id = method == fuzz_chain_info.n_methods ? 0 : 77;
    msg->type_id = take_type();
    ProtobufCBinaryData key = take_key_of_grain(msg);
    msg->key = key.data;
    msg->key_len = (uint32_t)key.len;
    if (what & 2 && peer != CLIENT)
        msg->flags = TEFFI_MSG_PLACED;
    msg->hops = peer == CLIENT ? 0 : (uint8_t)(what >> 6) * 3;
    if (what & 4)
        msg->deadline_ns = teffi_now(lone.silo->node.platform) + 5000000u * (what >> 4);
    if (what & 8)
        take_raw_body(msg);
    else
        take_act_body(msg);
    if (what & 16 && peer != CLIENT)
        take_transaction(msg);
    if (what & 32 && !(what & 1))
        msg->once = teff_arena_copy(&msg->arena, "0123456789abcdef", TEFFI_ONCE_BYTES);
    send_from_peer(peer, msg);
}

static void send_hostile_cancel(void)
{
    unsigned peer = input_take_byte(&in) % PEERS, slot = input_take_byte(&in) % (STEPS_MAX + 1);
    teffi_origin origin = {slot, 1, slot * 3u};
    teffi_msg *msg = make_hostile_msg(TEFFI_MSG_ONEWAY, TEFFI_SLOT_CANCEL, 0);
    msg->raw_len = sizeof origin - (slot == STEPS_MAX);
    msg->raw = teff_arena_copy(&msg->arena, &origin, sizeof origin);
    teffi_bug_if(!msg->raw);
    send_from_peer(peer, msg);
}

/* A notification, a drop, a bounce or a request for a seal, as the link lets it pass: its head is
 * the last one that the client has received, or of fields. */
static void send_about_observer(void)
{
    unsigned peer = input_take_byte(&in) % PEERS, what = input_take_byte(&in);
    uint32_t kind = what & 64 ? TEFFI_MSG_REQUEST : TEFFI_MSG_ONEWAY;
    teffi_msg *msg = make_hostile_msg(kind, TEFFI_SLOT_OBSERVER, input_take_byte(&in) % 20);
    teffi_notice_head head = lone.heard;
    msg->type_id = what & 1 && peer != CLIENT ? fuzz_ear_info.type.id : 0;
    if (what & 2) {
        unsigned where = input_take_byte(&in);
        head = (teffi_notice_head){.observer = what,
                                   .notifier = teffi_node_to_word(take_node()),
                                   .slot = where % 32,
                                   .generation = where / 32,
                                   .index = where / 64,
                                   .subscription = where % 8,
                                   .zero = what == 255};
        teffi_bug_if(!teffi_seal_make(lone.silo->node.grains->seal_key, take_node(), head.seal));
    }
    msg->key = teff_arena_copy(&msg->arena, &head, sizeof head);
    teffi_bug_if(!msg->key);
    msg->key_len = what & 4 ? (uint32_t)input_take_byte(&in) % sizeof head : sizeof head;
    take_raw_body(msg);
    send_from_peer(peer, msg);
}

/* An event with a head of fields, or of any bytes. */
static void send_event_to_process(void)
{
    unsigned peer = input_take_byte(&in) % CLIENT, what = input_take_byte(&in);
    teffi_msg *msg = make_hostile_msg(take_kind(), TEFFI_PROCESS_BIT | what % 4, 0);
    msg->to.generation = what / 4 % 8;
    if (what & 64) {
        msg->to.slot = process.slot;
        msg->to.generation = process.generation;
    }
    if (what & 128) {
        teffi_event_head head = {.kind = input_take_byte(&in) % 8, .slot = process.slot};
        head.silo = take_node().silo;
        head.tag = input_take_byte(&in);
        msg->raw_len = sizeof head;
        msg->raw = teff_arena_copy(&msg->arena, &head, sizeof head);
        teffi_bug_if(!msg->raw);
    } else {
        take_raw_body(msg);
    }
    send_from_peer(peer, msg);
}

/* ---- steps: responses, connections, time ---- */

static void make_directory_response(teffi_msg *msg)
{
    Teff__Cluster__DirectoryResponse body = TEFF__CLUSTER__DIRECTORY_RESPONSE__INIT;
    Teff__Cluster__Pid pid;
    Teff__Cluster__Node node;
    unsigned what = input_take_byte(&in);
    body.result = (Teff__Cluster__DirectoryResponse__Result)(what % 4);
    body.view = take_version();
    take_pid(&pid, &node);
    body.pid = what & 16 ? NULL : &pid;
    pack_body(msg, &body.base);
}

/* Responds to a request of the silo, as the node to which it went, or as another one. */
static void respond_to_silo(void)
{
    unsigned which = input_take_byte(&in), what = input_take_byte(&in);
    unsigned kept = lone.n_asked < LONE_ASKED_MAX ? lone.n_asked : LONE_ASKED_MAX;
    if (!kept)
        return;
    lone_asked *asked = &lone.asked[(lone.n_asked - 1 - which % kept) % LONE_ASKED_MAX];
    unsigned peer = 0;
    while (peer < CLIENT && !teffi_node_equals(peers[peer].node, asked->to))
        peer++;
    teffi_msg *msg = make_hostile_msg(TEFFI_MSG_RESPONSE, 0, 0);
    msg->call = asked->call;
    if (what & 1)
        msg->err = (uint16_t)(what >> 2);
    else if (what & 2 && asked->slot == TEFFI_SLOT_DIRECTORY)
        make_directory_response(msg);
    else
        take_raw_body(msg);
    send_from_peer(what & 128 ? (peer + 1) % CLIENT : peer % CLIENT, msg);
}

static bool is_up[PEERS];

/* A connection comes up, or breaks; one at a time for each peer. */
static void change_connection(void)
{
    unsigned what = input_take_byte(&in), i = what % PEERS;
    teffi_node *node = &lone.silo->node;
    char text[TEFF_TEXT_MAX];
    if (is_up[i]) {
        teffi_node_net_events.down(node, &peers[i], what & 8);
        is_up[i] = false;
    } else if (teffi_node_net_events.hello(node, &peers[i], text) == TEFF_OK) {
        is_up[i] = !(what & 8);
        if (is_up[i])
            teffi_node_net_events.up(node, &peers[i]);
        else
            teffi_node_net_events.gone(node, &peers[i]);
    }
}

static void pass_some_time(void)
{
    lone_silo_pass_time(1 + input_take_byte(&in) * 4);
}

/* ---- the script ---- */

static void run_silo_step(void)
{
    static void (*const steps[])(void) = {send_to_grain,
                                          send_raw_system,
                                          send_directory_ask,
                                          send_recover,
                                          send_moved,
                                          send_consent,
                                          send_probe,
                                          send_number_to_membership,
                                          send_hostile_cancel,
                                          send_store_ask,
                                          send_event_to_process,
                                          respond_to_silo,
                                          pass_some_time,
                                          change_connection,
                                          send_about_observer};
    steps[input_take_byte(&in) % (sizeof steps / sizeof steps[0])]();
    lone_silo_run();
}

/* All connections with silos break: the silo's calls to them end, and nothing waits for them. */
static void break_connections(void)
{
    for (unsigned i = 0; i < CLIENT; i++) {
        teffi_node_net_events.up(&lone.silo->node, &peers[i]);
        teffi_node_net_events.down(&lone.silo->node, &peers[i], false);
        lone_silo_run();
    }
}

/* Adds rows of the member and of the silo that has left, and adopts the view that they make. */
static void add_peers_to_table(void)
{
    static uint32_t types[1];
    teffi_member_row changed[2] = {
        {.member = {.node = peers[MEMBER].node, .status = TEFFI_ACTIVE, .lease_ms = 600000}},
        {.member = {.node = peers[LEFT].node, .status = TEFFI_ACTIVE, .lease_ms = 600000},
         .dead = true,
         .left = true}};
    teffi_rows rows;
    types[0] = fuzz_chain_info.id;
    for (int i = 0; i < 2; i++) {
        strcpy(changed[i].member.address, peers[i * LEFT].address);
        changed[i].member.types = types;
        changed[i].member.n_types = 1;
    }
    teffi_bug_if(teffi_rows_read(lone.ctx, &rows));
    teffi_bug_if(teffi_rows_write(lone.ctx, &rows, changed, 2));
    teffi_bug_if(teffi_membership_refresh(lone.ctx, 0));
}

static void make_peers(void)
{
    for (unsigned i = 0; i < PEERS; i++) {
        teffi_hello *peer = &peers[i];
        *peer = (teffi_hello){.node = {77 + i, 1}, .role = TEFFI_ROLE_SILO};
        strcpy(peer->cluster, "dev");
        strcpy(peer->address, "peer:1");
        peer->address[4] = (char)('0' + i);
        strcat(peer->address, ":1");
        is_up[i] = false;
    }
    peers[CLIENT].role = TEFFI_ROLE_CLIENT;
    peers[CLIENT].node.silo |= TEFFI_CLIENT_BIT;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    in = (fuzz_input){data, data + n};
    n_requests = 0;
    lone.responded = check_sent_response;
    lone.heard = (teffi_notice_head){.slot = 0};
    make_peers();
    lone_silo_open(&lone, fuzz_chain_type(&methods, NULL));
    start_process();
    if (input_take_byte(&in) & 1)
        add_peers_to_table();
    for (int i = 0; i < STEPS_MAX && in.at < in.end; i++)
        run_silo_step();
    break_connections();
    (void)!teffi_silo_stop_engines_and_processes(lone.silo, 1000);
    lone_silo_close(&lone);
    return 0;
}
