/* frame.c - messages to bytes and back; nothing that was received is trusted.
 * Way:     net send -> [frame] -> link ===> link -> [frame] -> message event */
#include "wire/frame.h"

#include <string.h>
#include <teff/silo.h>

enum {
    HAS_SRC = 1 << 0,
    HAS_VIA = 1 << 1,
    HAS_NODE = 1 << 2,
    HAS_PID = 1 << 3,
    HAS_CALL = 1 << 4,
    HAS_TYPE = 1 << 5,
    HAS_METHOD = 1 << 6,
    HAS_TTL = 1 << 7,
    HAS_ERR = 1 << 8,
    HAS_KEY = 1 << 9,
    HAS_TEXT = 1 << 10,
    HAS_ALL = (1 << 11) - 1,
};

static const uint64_t ns_per_ms = 1000000;

static uint8_t *put16(uint8_t *at, size_t v)
{
    at[0] = (uint8_t)v;
    at[1] = (uint8_t)(v >> 8);
    return at + 2;
}

static uint8_t *put32(uint8_t *at, uint32_t v)
{
    memcpy(at, &v, 4); /* the build refuses big-endian machines */
    return at + 4;
}

static uint8_t *put_pair(uint8_t *at, uint32_t a, uint32_t b)
{
    return put32(put32(at, a), b);
}

static uint8_t *put_bytes(uint8_t *at, const void *bytes, size_t n)
{
    at = put16(at, n);
    memcpy(at, bytes, n);
    return at + n;
}

static size_t text_len(const teffi_msg *msg)
{
    return msg->text ? strnlen(msg->text, TEFF_TEXT_MAX - 1) : 0;
}

static unsigned fields_of(const teffi_msg *m)
{
    unsigned has = 0;
    has |= teffi_node_none(m->src) ? 0 : HAS_SRC;
    has |= teffi_node_none(m->via) ? 0 : HAS_VIA;
    has |= teffi_node_none(m->to.node) ? 0 : HAS_NODE;
    has |= m->to.slot || m->to.generation ? HAS_PID : 0;
    has |= m->call_slot || m->call_generation ? HAS_CALL : 0;
    has |= m->type_id ? HAS_TYPE : 0;
    has |= m->method_id ? HAS_METHOD : 0;
    has |= m->deadline_ns ? HAS_TTL : 0;
    has |= m->err ? HAS_ERR : 0;
    has |= m->key_len ? HAS_KEY : 0;
    has |= text_len(m) ? HAS_TEXT : 0;
    if (m->item.kind != TEFFI_MSG_RESPONSE)
        has &= ~(unsigned)(HAS_ERR | HAS_TEXT);
    return m->item.kind == TEFFI_MSG_ONEWAY ? has & ~(unsigned)HAS_CALL : has;
}

/* How many of the low four bits are set: without a processor's own instruction, a call. */
static size_t bits4(unsigned x)
{
    return 0x4332322132212110u >> (x & 15) * 4 & 15;
}

_Static_assert(HAS_CALL == 1 << 4 && HAS_TTL == 1 << 7 && HAS_TEXT == 1 << 10, "see below");

static size_t fixed_len(unsigned has)
{
    size_t eights = bits4(has) + (has >> 4 & 1);
    return eights * 8 + bits4(has >> 5 & 7) * 4 + bits4(has >> 8 & 7) * 2;
}

teff_err teffi_frame_size(const teffi_msg *msg, size_t max_bytes, size_t *size, size_t *body_len)
{
    if (msg->key_len > TEFFI_KEY_WIRE_MAX)
        return TEFF_E_TOO_LARGE;
    *body_len = teffi_msg_packed_len(msg);
    unsigned has = fields_of(msg);
    size_t rest = TEFFI_FRAME_HEAD + fixed_len(has) + msg->key_len;
    rest += has & HAS_TEXT ? text_len(msg) : 0;
    if (rest > max_bytes || *body_len > max_bytes - rest)
        return TEFF_E_TOO_LARGE;
    *size = rest + *body_len;
    return TEFF_OK;
}

static uint32_t ttl_ms(uint64_t deadline_ns, uint64_t now_ns)
{
    if (deadline_ns <= now_ns)
        return 1;
    uint64_t ms = (deadline_ns - now_ns - 1) / ns_per_ms + 1;
    return ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
}

static inline __attribute__((always_inline)) uint8_t *put_fields(const teffi_msg *m, unsigned has,
                                                                 uint64_t now_ns, uint8_t *at)
{
    if (has & HAS_SRC)
        at = put_pair(at, m->src.silo, m->src.incarnation);
    if (has & HAS_VIA)
        at = put_pair(at, m->via.silo, m->via.incarnation);
    if (has & HAS_NODE)
        at = put_pair(at, m->to.node.silo, m->to.node.incarnation);
    if (has & HAS_PID)
        at = put_pair(at, m->to.slot, m->to.generation);
    if (has & HAS_CALL)
        at = put_pair(at, m->call_slot, m->call_generation);
    if (has & HAS_TYPE)
        at = put32(at, m->type_id);
    if (has & HAS_METHOD)
        at = put32(at, m->method_id);
    if (has & HAS_TTL)
        at = put32(at, ttl_ms(m->deadline_ns, now_ns));
    if (has & HAS_ERR)
        at = put16(at, m->err);
    if (has & HAS_KEY)
        at = put_bytes(at, m->key, m->key_len);
    if (has & HAS_TEXT)
        at = put_bytes(at, m->text, text_len(m));
    return at;
}

static uint8_t *put_head(uint8_t *at, uint8_t kind, uint8_t hops, unsigned flags, unsigned has)
{
    at += TEFFI_FRAME_PREFIX; /* the length comes last */
    *at++ = kind;
    *at++ = hops;
    return put16(put16(at, flags), has);
}

/* All but the body. out: where that goes. */
static inline __attribute__((always_inline)) uint8_t *
put_rest(const teffi_msg *msg, size_t body_len, uint64_t now_ns, uint8_t *out)
{
    unsigned has = fields_of(msg);
    uint8_t *at = put_head(out, (uint8_t)msg->item.kind, msg->hops, msg->flags, has);
    at = put_fields(msg, has, now_ns, at);
    put32(out, (uint32_t)((size_t)(at - out) + body_len - TEFFI_FRAME_PREFIX));
    return at;
}

void teffi_frame_encode(const teffi_msg *msg, size_t body_len, uint64_t now_ns, uint8_t *out)
{
    teffi_msg_pack(msg, body_len, put_rest(msg, body_len, now_ns, out));
}

size_t teffi_frame_encode_around(const teffi_msg *msg, size_t body_len, const teffi_hole *hole,
                                 uint64_t now_ns, uint8_t *out)
{
    uint8_t *at = put_rest(msg, body_len, now_ns, out);
    return (size_t)(at - out) + teffi_msg_pack_around(msg, body_len, hole, at);
}

void teffi_frame_control(uint8_t kind, const uint8_t *payload, size_t len, uint8_t *out)
{
    uint8_t *at = put_head(out, kind, 0, 0, 0);
    if (len)
        memcpy(at, payload, len);
    put32(out, (uint32_t)(TEFFI_FRAME_HEAD - TEFFI_FRAME_PREFIX + len));
}

static uint32_t load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

static uint16_t load16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

teff_err teffi_frame_peek(const uint8_t *data, size_t len, size_t max_bytes, size_t *size,
                          teffi_frame *frame)
{
    *size = 0;
    if (len < TEFFI_FRAME_PREFIX)
        return TEFF_OK;
    size_t rest = load32(data);
    if (rest > max_bytes - TEFFI_FRAME_PREFIX)
        return TEFF_E_TOO_LARGE;
    if (rest < TEFFI_FRAME_HEAD - TEFFI_FRAME_PREFIX)
        return TEFF_E_MALFORMED;
    *size = rest + TEFFI_FRAME_PREFIX;
    if (len >= *size)
        *frame = (teffi_frame){data[TEFFI_FRAME_PREFIX], data + TEFFI_FRAME_PREFIX, rest};
    return TEFF_OK;
}

bool teffi_frame_payload(const teffi_frame *frame, const uint8_t **payload, size_t *len)
{
    const uint8_t *d = frame->data;
    *payload = d + TEFFI_FRAME_HEAD - TEFFI_FRAME_PREFIX;
    *len = frame->len - (TEFFI_FRAME_HEAD - TEFFI_FRAME_PREFIX);
    return d[1] == 0 && load16(d + 2) == 0 && load16(d + 4) == 0;
}

/* What is left to read. A failed read leaves bad set, so that fields can be read in a row. */
typedef struct reader {
    const uint8_t *at, *end;
    bool bad;
} reader;

static const uint8_t *get(reader *r, size_t n)
{
    if (r->bad || (size_t)(r->end - r->at) < n) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *p = r->at;
    r->at += n;
    return p;
}

static uint32_t get16(reader *r)
{
    const uint8_t *p = get(r, 2);
    uint32_t v = p ? load16(p) : 0;
    r->bad |= v == 0;
    return v;
}

static uint32_t get32(reader *r)
{
    const uint8_t *p = get(r, 4);
    uint32_t v = p ? load32(p) : 0;
    r->bad |= v == 0;
    return v;
}

static void get_pair(reader *r, uint32_t *a, uint32_t *b)
{
    const uint8_t *p = get(r, 8);
    if (!p)
        return;
    *a = load32(p);
    *b = load32(p + 4);
    r->bad |= *a == 0 && *b == 0;
}

static void get_pairs(reader *r, unsigned has, teffi_msg *m)
{
    if (has & HAS_SRC)
        get_pair(r, &m->src.silo, &m->src.incarnation);
    if (has & HAS_VIA)
        get_pair(r, &m->via.silo, &m->via.incarnation);
    if (has & HAS_NODE)
        get_pair(r, &m->to.node.silo, &m->to.node.incarnation);
    if (has & HAS_PID)
        get_pair(r, &m->to.slot, &m->to.generation);
    if (has & HAS_CALL)
        get_pair(r, &m->call_slot, &m->call_generation);
}

static void get_numbers(reader *r, unsigned has, uint64_t now_ns, teffi_msg *m)
{
    if (has & HAS_TYPE)
        m->type_id = get32(r);
    if (has & HAS_METHOD)
        m->method_id = get32(r);
    if (has & HAS_TTL)
        m->deadline_ns = now_ns + get32(r) * ns_per_ms;
    if (has & HAS_ERR)
        m->err = (uint16_t)get16(r);
}

/* Key, text and body, into the arena, where they stay next to each other. */
static teff_err copy_rest(reader *r, teffi_msg *m)
{
    size_t n = (size_t)(r->end - r->at);
    uint8_t *copy = n ? teff_arena_copy(&m->arena, r->at, n) : NULL;
    *r = (reader){copy, copy ? copy + n : NULL, r->bad};
    return n && !copy ? TEFF_E_NOMEM : TEFF_OK;
}

static teff_err get_bytes(reader *r, unsigned has, teffi_msg *m)
{
    if (has & HAS_KEY) {
        m->key_len = get16(r);
        m->key = get(r, m->key_len);
    }
    if (has & HAS_TEXT) {
        size_t len = get16(r);
        const uint8_t *text = get(r, len);
        r->bad |= !text || len >= TEFF_TEXT_MAX || memchr(text, 0, len) != NULL;
        if (!r->bad)
            m->text = teff_arena_copy(&m->arena, text, len);
        if (!r->bad && !m->text)
            return TEFF_E_NOMEM;
    }
    if (r->bad)
        return TEFF_E_MALFORMED;
    m->raw = r->at;
    m->raw_len = (size_t)(r->end - r->at);
    return TEFF_OK;
}

static bool makes_sense(const teffi_msg *m, unsigned has)
{
    switch (m->item.kind) {
    case TEFFI_MSG_REQUEST:
        return (has & HAS_CALL) && !(has & (HAS_ERR | HAS_TEXT));
    case TEFFI_MSG_ONEWAY:
        return !(has & (HAS_CALL | HAS_ERR | HAS_TEXT));
    default:
        return has & HAS_CALL;
    }
}

static teff_err decode_into(const teffi_frame *frame, bool copies, uint64_t now_ns, teffi_msg *m)
{
    const uint8_t *d = frame->data;
    unsigned has = load16(d + 4);
    reader r = {d + TEFFI_FRAME_HEAD - TEFFI_FRAME_PREFIX, d + frame->len, false};
    m->hops = d[1];
    m->flags = load16(d + 2);
    if ((has & ~(unsigned)HAS_ALL) || !makes_sense(m, has))
        return TEFF_E_MALFORMED;
    get_pairs(&r, has, m);
    get_numbers(&r, has, now_ns, m);
    if (r.bad)
        return TEFF_E_MALFORMED;
    teff_err err = copies ? copy_rest(&r, m) : TEFF_OK;
    return err ? err : get_bytes(&r, has, m);
}

static teff_err decode(const teffi_frame *frame, bool copies, uint64_t now_ns, teffi_msg **msg)
{
    *msg = NULL;
    if (frame->kind < TEFFI_MSG_REQUEST || frame->kind > TEFFI_MSG_RESPONSE)
        return TEFF_E_MALFORMED;
    teffi_msg *m = teffi_msg_new(frame->kind);
    if (!m)
        return TEFF_E_NOMEM;
    teff_err err = decode_into(frame, copies, now_ns, m);
    if (err) {
        teffi_msg_free(m);
        return err;
    }
    *msg = m;
    return TEFF_OK;
}

teff_err teffi_frame_decode(const teffi_frame *frame, uint64_t now_ns, teffi_msg **msg)
{
    return decode(frame, true, now_ns, msg);
}

teff_err teffi_frame_decode_within(const teffi_frame *frame, uint8_t *memory, uint64_t now_ns,
                                   teffi_msg **msg)
{
    teff_err err = decode(frame, false, now_ns, msg);
    if (!err)
        teffi_arena_adopt(&(*msg)->arena, memory);
    return err;
}
