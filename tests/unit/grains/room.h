/* room.h - a room with observers, on a network, an executor and a clock that the test drives.
 * Include it in one source of a program.
 * Threads: one. */
#pragma once

#include "activation/observers.h"
#include "activation/turn.h"
#include "bare.h"
#include "chat.teff.h"
#include "cluster.pb-c.h"
#include "hosting/notices.h"

typedef teff_err script(chat_room *self, const chat_script *in, chat_number *out);

enum { KEPT = 64 };

/* The one-ways that the silo has sent. */
typedef struct kept_notice {
    teffi_node_id to;
    uint32_t slot, type_id, method_id;
    bool system;
    uint8_t key[64];
    uint32_t key_len;
    uint8_t raw[512];
    size_t raw_len;
} kept_notice;

static kept_notice kept[KEPT];
static int n_kept;
static uint64_t clock_ns;
static teffi_activation *act;
static script *on_deactivate_script;
static teff_err answer; /* of the last request */

static inline uint64_t room_clock(void *arg)
{
    return clock_ns;
}

static inline void pass_ms(uint64_t ms)
{
    clock_ns += ms * 1000000;
}

static inline void keep_notice(teffi_node_id to, const teffi_msg *msg)
{
    if (msg->item.kind == TEFFI_MSG_RESPONSE)
        answer = (teff_err)msg->err;
    if (msg->item.kind != TEFFI_MSG_ONEWAY)
        return;
    kept_notice *k = &kept[n_kept++ % KEPT];
    *k = (kept_notice){.to = to,
                       .slot = msg->to.slot,
                       .type_id = msg->type_id,
                       .method_id = msg->method_id,
                       .system = msg->system,
                       .key_len = msg->key_len};
    memcpy(k->key, msg->key, msg->key_len < sizeof k->key ? msg->key_len : sizeof k->key);
    if (msg->body) /* to a grain */
        k->raw_len = protobuf_c_message_pack(msg->body, k->raw);
    else if (msg->raw_len <= sizeof k->raw) {
        k->raw_len = msg->raw_len;
        if (msg->raw_len)
            memcpy(k->raw, msg->raw, msg->raw_len);
    }
}

static inline teffi_notice_head head_of(const kept_notice *k)
{
    teffi_notice_head head;
    assert_int_equal(k->key_len, sizeof head);
    memcpy(&head, k->key, sizeof head);
    return head;
}

/* The notice that was sent last, which is the n-th one. */
static inline const kept_notice *last_of(int n)
{
    assert_int_equal(n_kept, n);
    return &kept[(n - 1) % KEPT];
}

/* It is a drop for this reason, and names the room. */
static inline void is_drop(const kept_notice *k, teff_drop_reason why)
{
    Teff__Cluster__Dropped *d = teff__cluster__dropped__unpack(NULL, k->raw_len, k->raw);
    assert_non_null(d);
    assert_int_equal(k->method_id, 0);
    assert_true(k->system);
    assert_int_equal(d->why, why);
    assert_string_equal(d->type, "chat.Room");
    assert_int_equal(d->key_kind, TEFF_KEY_STRING);
    assert_int_equal(d->key.len, 1);
    assert_int_equal(d->key.data[0], 'a');
    teff__cluster__dropped__free_unpacked(d, NULL);
}

/* ---- the grain ---- */

static inline teff_err run_script(chat_room *self, const chat_script *in, chat_number *out)
{
    return ((script *)(uintptr_t)in->fn)(self, in, out);
}

static inline teff_err run_on_deactivate(chat_room *self, teff_reason why)
{
    const chat_script in = CHAT__SCRIPT__INIT;
    chat_number out = CHAT__NUMBER__INIT;
    return on_deactivate_script ? on_deactivate_script(self, &in, &out) : TEFF_OK;
}

static const chat_room_methods room_methods = {.run = run_script,
                                               .on_deactivate = run_on_deactivate};

static inline void run_groups(void)
{
    while (bare_busy) {
        teffi_group *group = bare_busy;
        bare_busy = NULL;
        while (teffi_group_run(group, 10, 0))
            ;
    }
}

static inline teffi_ident room_ident(void)
{
    return teffi_ident_of(&grains.secret, chat_room_info.id, (const uint8_t *)"a", 1);
}

/* Runs fn in a turn of the room. out: what it returned. */
static inline teff_err run_with(script *fn, int64_t n, ProtobufCBinaryData ref)
{
    uint32_t deep;
    teffi_msg *msg = bare_message(TEFFI_MSG_REQUEST);
    msg->type_id = chat_room_info.id;
    for (size_t i = 0; i < chat_room_info.n_methods; i++)
        if (strcmp(chat_room_info.methods[i].name, "chat.Room.Run") == 0)
            msg->method_id = chat_room_info.methods[i].id;
    msg->body = (ProtobufCMessage *)chat_script_copy(
        &msg->arena, chat_script(.fn = (uintptr_t)fn, .n = n, .listener = ref));
    answer = TEFF_E_MAX;
    assert_int_equal(teffi_activation_push(act, act->type, msg, &deep), TEFF_OK);
    run_groups();
    return answer;
}

static inline teff_err run(script *fn, int64_t n)
{
    return run_with(fn, n, (ProtobufCBinaryData){0, NULL});
}

/* ---- references ---- */

/* To observer `number` of a client, through a gateway. The bytes are valid until the next call. */
static inline ProtobufCBinaryData client_ref(teffi_node_id gateway, teffi_node_id client,
                                             uint64_t number)
{
    static teffi_client_ref ref;
    ref = (teffi_client_ref){
        .head = {.kind = TEFFI_REF_CLIENT, .interface = chat_listener_info.type.id},
        .gateway = teffi_node_to_word(gateway),
        .observer = number};
    assert_true(teffi_seal_make(grains.seal_key, client, ref.seal));
    return (ProtobufCBinaryData){sizeof ref, (uint8_t *)&ref};
}

static const teffi_node_id some_client = {0x80000001, 7}, other_client = {0x80000002, 7};

/* Through the other silo. */
static inline ProtobufCBinaryData far_ref(uint64_t number)
{
    return client_ref(bare_peer, some_client, number);
}

/* ---- scripts ---- */

static inline teff_err subscribes(chat_room *self, const chat_script *in, chat_number *out)
{
    return chat_listener_subscribe(self->ctx, in->listener, (uint32_t)in->n);
}

static inline teff_err notifies(chat_room *self, const chat_script *in, chat_number *out)
{
    return chat_listener_said_notify(self->ctx, chat_line(.n = in->n));
}

static inline teff_err counts(chat_room *self, const chat_script *in, chat_number *out)
{
    return TEFF_E_USER((int)chat_listener_count(self->ctx));
}

static inline int count(void)
{
    return (int)run(counts, 0) - TEFF_E_USER;
}

/* ---- */

static inline int open_room(void **state)
{
    n_kept = 0;
    clock_ns = bare_now_ns;
    bare_busy = NULL;
    on_deactivate_script = NULL;
    bare_platform.mono_ns = room_clock;
    if (bare_open(state))
        return 1;
    sent.watch = keep_notice;
    teff_grain_type_free(type);
    type = chat_room_type(&room_methods, NULL);
    node.home.exit_turn = teffi_life_exit_turn;
    node.upcalls.notice = teffi_notices_handle;
    memcpy(grains.seal_key, "0123456789abcdef", TEFFI_SEAL_KEY_BYTES);
    bare_view(1, (teffi_node_id[]){bare_self, bare_peer}, 2);
    teffi_ident ident = room_ident();
    teffi_shard_of(&grains, ident.hash)->phase = TEFFI_SERVING;
    if (teffi_shard_create_activation(&grains, &ident, true, NULL, &act))
        return 1;
    teffi_activation_nudge(act);
    run_groups();
    return act->phase != TEFFI_VALID;
}

static inline void end_room(void)
{
    teffi_activation_ask_to_end(act, TEFF_REASON_STOPPING);
    run_groups();
    assert_int_equal(grains.shards->activations, 0);
}

/* The room may have observers: they are freed with it. */
static inline int close_room(void **state)
{
    return bare_close(state);
}
