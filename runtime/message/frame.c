/* frame.c - encodes and decodes frames; received bytes are not trusted. */
#include "message/frame.h"

#include <string.h>

enum {
    HAS_SRC = 1 << 0,
    HAS_NODE = 1 << 1,
    HAS_PID = 1 << 2,
    HAS_CALL = 1 << 3,
    HAS_TYPE = 1 << 4,
    HAS_METHOD = 1 << 5,
    HAS_TTL = 1 << 6,
    HAS_ERR = 1 << 7,
    HAS_KEY = 1 << 8,
    HAS_TEXT = 1 << 9,
    HAS_ONCE = 1 << 10,
    HAS_TRANSACTION = 1 << 11,
    HAS_ALL = (1 << 12) - 1,
};

static const uint64_t ns_per_ms = 1000000;

/* Writes v at `at`. All put functions of this file return the address after the bytes written. */
static uint8_t *put_u16(uint8_t *at, size_t v)
{
    at[0] = (uint8_t)v;
    at[1] = (uint8_t)(v >> 8);
    return at + 2;
}

static uint8_t *put_u32(uint8_t *at, uint32_t v)
{
    memcpy(at, &v, 4); /* the build refuses big-endian machines */
    return at + 4;
}

static uint8_t *put_pair(uint8_t *at, uint32_t a, uint32_t b)
{
    return put_u32(put_u32(at, a), b);
}

static uint8_t *put_sized_bytes(uint8_t *at, const void *bytes, size_t n)
{
    at = put_u16(at, n);
    memcpy(at, bytes, n);
    return at + n;
}

/* in: msg with a text. out: how many bytes of the text are sent, at most TEFF_TEXT_MAX - 1. The
 * rest of a longer text is cut off. */
static size_t text_len(const teffi_msg *msg)
{
    return strnlen(msg->text, TEFF_TEXT_MAX - 1);
}

/* out: the length of a response's text or of a request's idempotency key (`once`), which share a
 * union; 0: there is none. */
static size_t text_or_once_len(const teffi_msg *msg)
{
    if (!msg->text)
        return 0;
    return msg->item.kind == TEFFI_MSG_REQUEST ? TEFFI_ONCE_BYTES : text_len(msg);
}

teff_err teffi_frame_compute_size_bound(const teffi_msg *msg, size_t max_bytes, size_t *room,
                                        size_t *body_len)
{
    if (msg->key_len > TEFFI_KEY_WIRE_MAX)
        return TEFF_E_TOO_LARGE;
    *body_len = teffi_msg_packed_len(msg);
    size_t rest =
        TEFFI_FRAME_FIXED_MAX + msg->key_len + text_or_once_len(msg) + msg->transaction_len;
    max_bytes = teffi_frame_max_bytes_for_msg(msg, max_bytes);
    if (rest > max_bytes || *body_len > max_bytes - rest)
        return TEFF_E_TOO_LARGE;
    *room = rest + *body_len;
    return TEFF_OK;
}

/* out: the milliseconds left, rounded up, at least 1. */
static uint32_t ttl_ms(uint64_t deadline_ns, uint64_t now_ns)
{
    if (deadline_ns <= now_ns)
        return 1;
    uint64_t ms = (deadline_ns - now_ns - 1) / ns_per_ms + 1;
    return ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
}

/* Writes the ids that are set, and sets their bits in *has. */
static inline __attribute__((always_inline)) uint8_t *put_ids(const teffi_msg *m, uint8_t *at,
                                                              unsigned *has)
{
    if (!teffi_node_is_none(m->src)) {
        at = put_pair(at, m->src.silo, m->src.incarnation);
        *has |= HAS_SRC;
    }
    if (!teffi_node_is_none(m->to.node)) {
        at = put_pair(at, m->to.node.silo, m->to.node.incarnation);
        *has |= HAS_NODE;
    }
    if (m->to.slot || m->to.generation) {
        at = put_pair(at, m->to.slot, m->to.generation);
        *has |= HAS_PID;
    }
    if (m->item.kind != TEFFI_MSG_ONEWAY &&
        (m->call.slot | m->call.generation | m->call.cookie) != 0) {
        memcpy(at, &m->call, sizeof m->call); /* 16 bytes without padding */
        at += sizeof m->call;
        *has |= HAS_CALL;
    }
    return at;
}

/* Writes the numbers that are not 0, and sets their bits in *has. The deadline is written as the
 * milliseconds left. */
static inline __attribute__((always_inline)) uint8_t *
put_numbers(const teffi_msg *m, uint64_t now_ns, uint8_t *at, unsigned *has)
{
    if (m->type_id) {
        at = put_u32(at, m->type_id);
        *has |= HAS_TYPE;
    }
    if (m->method_id) {
        at = put_u32(at, m->method_id);
        *has |= HAS_METHOD;
    }
    if (m->deadline_ns) {
        at = put_u32(at, ttl_ms(m->deadline_ns, now_ns));
        *has |= HAS_TTL;
    }
    if (m->err && m->item.kind == TEFFI_MSG_RESPONSE) {
        at = put_u16(at, m->err);
        *has |= HAS_ERR;
    }
    return at;
}

/* Writes the key, followed by a response's text or a request's idempotency key (`once`). m->text
 * and m->once share a union, so the message has neither if m->text is NULL. Sets the bits of the
 * written fields in *has. */
static inline __attribute__((always_inline)) uint8_t *
put_key_and_text_or_once(const teffi_msg *m, uint8_t *at, unsigned *has)
{
    if (m->key_len) {
        at = put_sized_bytes(at, m->key, m->key_len);
        *has |= HAS_KEY;
    }
    if (!m->text)
        return at;
    if (m->item.kind == TEFFI_MSG_REQUEST) {
        memcpy(at, m->once, TEFFI_ONCE_BYTES);
        at += TEFFI_ONCE_BYTES;
        *has |= HAS_ONCE;
    } else if (m->text[0] && m->item.kind == TEFFI_MSG_RESPONSE) {
        at = put_sized_bytes(at, m->text, text_len(m));
        *has |= HAS_TEXT;
    }
    return at;
}

static inline __attribute__((always_inline)) uint8_t *put_transaction(const teffi_msg *m,
                                                                      uint8_t *at, unsigned *has)
{
    if (!m->transaction)
        return at;
    at = put_u32(at, m->transaction_len);
    memcpy(at, m->transaction, m->transaction_len);
    *has |= HAS_TRANSACTION;
    return at + m->transaction_len;
}

/* Writes the head, except the length. out: where the fields or the payload go. */
static uint8_t *put_head(uint8_t *at, uint8_t kind, uint8_t hops, unsigned flags, unsigned has)
{
    at += TEFFI_FRAME_PREFIX; /* the caller stores the length, once it is known */
    *at++ = kind;
    *at++ = hops;
    return put_u16(put_u16(at, flags), has);
}

/* Writes everything but the body. out: where the body goes. */
static inline __attribute__((always_inline)) uint8_t *
put_head_and_fields(const teffi_msg *msg, size_t body_len, uint64_t now_ns, uint8_t *out)
{
    unsigned has = 0;
    uint8_t *at = put_ids(msg, out + TEFFI_FRAME_HEAD, &has);
    at = put_numbers(msg, now_ns, at, &has);
    at = put_key_and_text_or_once(msg, at, &has);
    at = put_transaction(msg, at, &has);
    /* The head is written after the fields, because writing the fields sets the bits of `has`. */
    (void)put_head(out, (uint8_t)msg->item.kind, msg->hops, msg->flags, has);
    put_u32(out, (uint32_t)((size_t)(at - out) + body_len - TEFFI_FRAME_PREFIX));
    return at;
}

size_t teffi_frame_encode(const teffi_msg *msg, size_t body_len, uint64_t now_ns, uint8_t *out)
{
    uint8_t *at = put_head_and_fields(msg, body_len, now_ns, out);
    teffi_msg_pack(msg, body_len, at);
    return (size_t)(at - out) + body_len;
}

size_t teffi_frame_encode_without_segment(const teffi_msg *msg, size_t body_len,
                                          const teffi_segment *segment, uint64_t now_ns,
                                          uint8_t *out, size_t *before)
{
    uint8_t *at = put_head_and_fields(msg, body_len, now_ns, out);
    *before = (size_t)(at - out) + teffi_msg_pack_without_segment(msg, body_len, segment, at);
    return (size_t)(at - out) + body_len - segment->len;
}

void teffi_frame_encode_control(uint8_t kind, const uint8_t *payload, size_t len, uint8_t *out)
{
    uint8_t *at = put_head(out, kind, 0, 0, 0);
    if (len)
        memcpy(at, payload, len);
    put_u32(out, (uint32_t)(TEFFI_FRAME_HEAD - TEFFI_FRAME_PREFIX + len));
}

void teffi_frame_encode_view(uint64_t version, uint8_t *out)
{
    uint8_t payload[TEFFI_VIEW_BYTES];
    memcpy(payload, &version, sizeof payload);
    teffi_frame_encode_control(TEFFI_FRAME_VIEW, payload, sizeof payload, out);
}

uint64_t teffi_frame_decode_view(const uint8_t *payload, size_t len)
{
    uint64_t version = 0;
    if (len == sizeof version)
        memcpy(&version, payload, sizeof version);
    return version;
}

static uint32_t load_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

static uint16_t load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

teff_err teffi_frame_peek(const uint8_t *data, size_t len, size_t max_bytes, size_t *size,
                          teffi_frame *frame)
{
    *size = 0;
    if (len < TEFFI_FRAME_PREFIX)
        return TEFF_OK;
    size_t rest = load_u32(data);
    if (rest > max_bytes - TEFFI_FRAME_PREFIX)
        return TEFF_E_TOO_LARGE;
    if (rest < TEFFI_FRAME_HEAD - TEFFI_FRAME_PREFIX)
        return TEFF_E_MALFORMED;
    *size = rest + TEFFI_FRAME_PREFIX;
    if (len >= *size)
        *frame = (teffi_frame){
            .kind = data[TEFFI_FRAME_PREFIX], .data = data + TEFFI_FRAME_PREFIX, .len = rest};
    return TEFF_OK;
}

bool teffi_frame_may_be_row(const uint8_t *data, size_t len)
{
    return len < TEFFI_FRAME_HEAD || (load_u16(data + TEFFI_FRAME_PREFIX + 2) & TEFFI_MSG_ROW);
}

bool teffi_frame_get_control_payload(const teffi_frame *frame, const uint8_t **payload, size_t *len)
{
    const uint8_t *d = frame->data;
    *payload = d + TEFFI_FRAME_HEAD - TEFFI_FRAME_PREFIX;
    *len = frame->len - (TEFFI_FRAME_HEAD - TEFFI_FRAME_PREFIX);
    /* a control frame has hops 0, flags 0 and no fields (`has` is 0) */
    return d[1] == 0 && load_u16(d + 2) == 0 && load_u16(d + 4) == 0;
}

/* The bytes that are left to read. A failed read sets bad, which is checked after several reads. */
typedef struct reader {
    const uint8_t *at, *end;
    bool bad;
} reader;

/* out: the next n bytes; NULL, with r->bad set, if fewer are left or an earlier read failed. */
static const uint8_t *read_bytes(reader *r, size_t n)
{
    if (r->bad || (size_t)(r->end - r->at) < n) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *p = r->at;
    r->at += n;
    return p;
}

/* Reads a number that is n bytes long. The number must not be 0, because fields that are 0 are not
 * sent. out: the number; 0, with r->bad set, if bytes are missing or the number is 0. */
static inline uint64_t read_number(reader *r, size_t n)
{
    const uint8_t *p = read_bytes(r, n);
    uint64_t v = 0;
    if (p)
        memcpy(&v, p, n);
    r->bad |= v == 0;
    return v;
}

static void read_pair(reader *r, uint32_t *a, uint32_t *b)
{
    uint64_t v = read_number(r, 8);
    *a = (uint32_t)v;
    *b = (uint32_t)(v >> 32);
}

/* Reads m->call. Sets r->bad if the slot, generation and cookie of the call are all 0. One or two
 * of them may be 0. */
static void read_call(reader *r, teffi_msg *m)
{
    const uint8_t *p = read_bytes(r, sizeof m->call);
    if (!p)
        return;
    memcpy(&m->call, p, sizeof m->call);
    r->bad |= !m->call.slot && !m->call.generation && !m->call.cookie;
}

static void read_ids(reader *r, unsigned has, teffi_msg *m)
{
    if (has & HAS_SRC)
        read_pair(r, &m->src.silo, &m->src.incarnation);
    if (has & HAS_NODE)
        read_pair(r, &m->to.node.silo, &m->to.node.incarnation);
    if (has & HAS_PID)
        read_pair(r, &m->to.slot, &m->to.generation);
    if (has & HAS_CALL)
        read_call(r, m);
}

static void read_numbers(reader *r, unsigned has, uint64_t now_ns, teffi_msg *m)
{
    if (has & HAS_TYPE)
        m->type_id = (uint32_t)read_number(r, 4);
    if (has & HAS_METHOD)
        m->method_id = (uint32_t)read_number(r, 4);
    if (has & HAS_TTL)
        m->deadline_ns = now_ns + read_number(r, 4) * ns_per_ms;
    if (has & HAS_ERR)
        m->err = (uint16_t)read_number(r, 2);
}

/* Copies the unread bytes (key to body) into the arena in one piece, and makes r read the copy. */
static teff_err copy_unread_to_arena(reader *r, teffi_msg *m)
{
    size_t n = (size_t)(r->end - r->at);
    uint8_t *copy = n ? teff_arena_copy(&m->arena, r->at, n) : NULL;
    *r = (reader){.at = copy, .end = copy ? copy + n : NULL, .bad = r->bad};
    return n && !copy ? TEFF_E_NOMEM : TEFF_OK;
}

/* Reads the fields that follow the numbers, each if its bit in `has` is set: the key, the text, the
 * idempotency key (`once`), the transaction. The rest is the body. The text is copied, because it
 * needs a zero byte at its end. For the other fields and the body, m points to the bytes that r
 * reads. */
static teff_err read_remaining_fields(reader *r, unsigned has, teffi_msg *m)
{
    if (has & HAS_KEY) {
        m->key_len = (uint32_t)read_number(r, 2);
        m->key = read_bytes(r, m->key_len);
    }
    if (has & HAS_TEXT) {
        size_t len = read_number(r, 2);
        const uint8_t *text = read_bytes(r, len);
        r->bad |= !text || len >= TEFF_TEXT_MAX || memchr(text, 0, len) != NULL;
        if (!r->bad)
            m->text = teff_arena_copy(&m->arena, text, len);
        if (!r->bad && !m->text)
            return TEFF_E_NOMEM;
    }
    if (has & HAS_ONCE)
        m->once = read_bytes(r, TEFFI_ONCE_BYTES);
    if (has & HAS_TRANSACTION) {
        m->transaction_len = (uint32_t)read_number(r, 4);
        m->transaction = read_bytes(r, m->transaction_len);
    }
    if (r->bad)
        return TEFF_E_MALFORMED;
    m->raw = r->at;
    m->raw_len = (size_t)(r->end - r->at);
    return TEFF_OK;
}

/* Does the message have every field that its kind needs, and no field that its kind forbids? */
static bool fields_fit_kind(const teffi_msg *m, unsigned has)
{
    switch (m->item.kind) {
    case TEFFI_MSG_REQUEST:
        return (has & HAS_CALL) && !(has & (HAS_ERR | HAS_TEXT));
    case TEFFI_MSG_ONEWAY:
        return !(has & (HAS_CALL | HAS_ERR | HAS_TEXT | HAS_ONCE));
    default:
        return (has & HAS_CALL) && !(has & HAS_ONCE);
    }
}

/* Decodes a frame into the new message m. The text is always copied to m's arena. in: copies: if
 * true, the key, the idempotency key (`once`), the transaction and the body are copied, too;
 * otherwise m points to their bytes in the frame. */
static teff_err decode_into_msg(const teffi_frame *frame, bool copies, uint64_t now_ns,
                                teffi_msg *m)
{
    const uint8_t *d = frame->data;
    unsigned has = load_u16(d + 4);
    reader r = {.at = d + TEFFI_FRAME_HEAD - TEFFI_FRAME_PREFIX, .end = d + frame->len};
    m->hops = d[1];
    m->flags = load_u16(d + 2);
    if ((has & ~(unsigned)HAS_ALL) || !fields_fit_kind(m, has))
        return TEFF_E_MALFORMED;
    read_ids(&r, has, m);
    read_numbers(&r, has, now_ns, m);
    if (r.bad)
        return TEFF_E_MALFORMED;
    teff_err err = copies ? copy_unread_to_arena(&r, m) : TEFF_OK;
    return err ? err : read_remaining_fields(&r, has, m);
}

teff_err teffi_frame_decode(const teffi_frame *frame, uint8_t *memory, uint64_t now_ns,
                            teffi_msg **msg)
{
    *msg = NULL;
    if (frame->kind < TEFFI_MSG_REQUEST || frame->kind > TEFFI_MSG_RESPONSE)
        return TEFF_E_MALFORMED;
    teffi_msg *m = teffi_msg_new(frame->kind);
    if (!m)
        return TEFF_E_NOMEM;
    teff_err err = decode_into_msg(frame, !memory, now_ns, m);
    if (err) {
        teffi_msg_free(m);
        return err;
    }
    if (memory)
        teffi_arena_adopt_chunk(&m->arena, memory);
    *msg = m;
    return TEFF_OK;
}
