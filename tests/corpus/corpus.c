/* corpus.c - one kind of bytes that silos exchange or store: made, shown as text, made again.
 * usage: corpus make|show|again NAME, with the bytes on standard output or input
 *   NAME: frame.KIND, cluster.MESSAGE, wire.MESSAGE, answer.MESSAGE or transaction.MESSAGE
 *   make: every field has a value
 *   show: one line for each field that is there, so that fields added later change no old text
 *   again: decodes and encodes
 * corpus.py runs it; README.md beside it says for what. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "answer.pb-c.h"
#include "transaction.pb-c.h"
#include "cluster.pb-c.h"
#include "message/codec.h"
#include "message/frame.h"
#include "message/hello.h"
#include "wire.pb-c.h"

enum { BYTES_MAX = 65536, ELEMENTS = 2 };

static const uint64_t now_ns = 5000000000u;
static teff_arena arena;
static uint8_t bytes[BYTES_MAX];
static size_t len;

static _Noreturn void give_up(const char *why)
{
    fprintf(stderr, "corpus: %s\n", why);
    exit(1);
}

static void *take(size_t n)
{
    void *p = teff_arena_alloc(&arena, n);
    if (!p)
        give_up("out of memory");
    return p;
}

/* ---- messages of the .proto files ---- */

static const struct {
    const char *name;
    const ProtobufCMessageDescriptor *desc;
} messages[] = {
    {"cluster.Node", &teff__cluster__node__descriptor},
    {"cluster.Pid", &teff__cluster__pid__descriptor},
    {"cluster.Member", &teff__cluster__member__descriptor},
    {"cluster.VersionRow", &teff__cluster__version_row__descriptor},
    {"cluster.Heartbeat", &teff__cluster__heartbeat__descriptor},
    {"cluster.ViewAtLeast", &teff__cluster__view_at_least__descriptor},
    {"cluster.ViewIs", &teff__cluster__view_is__descriptor},
    {"cluster.Promise", &teff__cluster__promise__descriptor},
    {"cluster.Promised", &teff__cluster__promised__descriptor},
    {"cluster.Probed", &teff__cluster__probed__descriptor},
    {"cluster.Silent", &teff__cluster__silent__descriptor},
    {"cluster.Consent", &teff__cluster__consent__descriptor},
    {"cluster.Consented", &teff__cluster__consented__descriptor},
    {"cluster.GoAway", &teff__cluster__go_away__descriptor},
    {"cluster.Reminder", &teff__cluster__reminder__descriptor},
    {"cluster.Tick", &teff__cluster__tick__descriptor},
    {"cluster.Ticked", &teff__cluster__ticked__descriptor},
    {"cluster.ReminderChanged", &teff__cluster__reminder_changed__descriptor},
    {"cluster.ReminderNoted", &teff__cluster__reminder_noted__descriptor},
    {"cluster.Seal", &teff__cluster__seal__descriptor},
    {"cluster.Sealed", &teff__cluster__sealed__descriptor},
    {"cluster.Dropped", &teff__cluster__dropped__descriptor},
    {"cluster.DirectoryAsk", &teff__cluster__directory_ask__descriptor},
    {"cluster.DirectoryResponse", &teff__cluster__directory_response__descriptor},
    {"cluster.Recover", &teff__cluster__recover__descriptor},
    {"cluster.Recovered", &teff__cluster__recovered__descriptor},
    {"cluster.Moved", &teff__cluster__moved__descriptor},
    {"cluster.Probe", &teff__cluster__probe__descriptor},
    {"cluster.StoreRow", &teff__cluster__store_row__descriptor},
    {"cluster.StoreAsk", &teff__cluster__store_ask__descriptor},
    {"cluster.StoreResponse", &teff__cluster__store_response__descriptor},
    {"wire.Hello", &teff__wire__hello__descriptor},
    {"wire.Refuse", &teff__wire__refuse__descriptor},
    {"wire.Ack", &teff__wire__ack__descriptor},
    {"answer.Answer", &teff__answer__answer__descriptor},
    {"transaction.Participant", &teff__transaction__participant__descriptor},
    {"transaction.Participants", &teff__transaction__participants__descriptor},
};

static ProtobufCMessage *make_message(const ProtobufCMessageDescriptor *desc, unsigned salt);

static size_t get_size(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return sizeof(uint64_t);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_ENUM:
        return sizeof(uint32_t);
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    default:
        give_up("a field of a type that corpus.c does not know");
    }
}

static void make_value(const ProtobufCFieldDescriptor *field, unsigned salt, void *to)
{
    const uint64_t number = 1000u * field->id + salt;
    const uint32_t low = (uint32_t)number;
    const protobuf_c_boolean yes = 1;
    const ProtobufCEnumDescriptor *values = field->descriptor;
    ProtobufCBinaryData data = {3, take(3)};
    char *text = take(32);
    const ProtobufCMessage *nested;
    size_t size = get_size(field);
    snprintf(text, 32, "%.20s %u", field->name, salt);
    memcpy(data.data, (uint8_t[]){(uint8_t)salt, 0, 255}, 3);
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        memcpy(to, (nested = make_message(field->descriptor, salt + 1), &nested), size);
    else if (field->type == PROTOBUF_C_TYPE_STRING)
        memcpy(to, &text, size);
    else if (field->type == PROTOBUF_C_TYPE_BYTES)
        memcpy(to, &data, size);
    else if (field->type == PROTOBUF_C_TYPE_BOOL)
        memcpy(to, &yes, size);
    else if (field->type == PROTOBUF_C_TYPE_ENUM)
        memcpy(to, &values->values[values->n_values - 1].value, size);
    else
        memcpy(to, size == sizeof low ? (const void *)&low : (const void *)&number, size);
}

static ProtobufCMessage *make_message(const ProtobufCMessageDescriptor *desc, unsigned salt)
{
    ProtobufCMessage *msg = take(desc->sizeof_message);
    protobuf_c_message_init(desc, msg);
    for (unsigned i = 0; i < desc->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &desc->fields[i];
        char *at = (char *)msg + field->offset;
        const size_t n = ELEMENTS, size = get_size(field);
        if (field->label != PROTOBUF_C_LABEL_REPEATED) {
            make_value(field, salt, at);
            continue;
        }
        char *list = take(n * size);
        for (unsigned k = 0; k < n; k++)
            make_value(field, salt + k, list + k * size);
        memcpy(at, &list, sizeof list);
        memcpy((char *)msg + field->quantifier_offset, &n, sizeof n);
    }
    return msg;
}

static void show_bytes(const uint8_t *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        printf(" %02x", data[i]);
    printf("\n");
}

static void show_message(const ProtobufCMessage *msg, const char *prefix);

static void show_value(const ProtobufCFieldDescriptor *field, const void *at, const char *prefix)
{
    char path[256];
    uint64_t number = 0;
    const void *pointer;
    ProtobufCBinaryData data;
    snprintf(path, sizeof path, "%.120s%.100s%s", prefix, field->name,
             field->type == PROTOBUF_C_TYPE_MESSAGE ? "." : "");
    switch (field->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
        memcpy(&pointer, at, sizeof pointer);
        if (pointer)
            show_message(pointer, path);
        break;
    case PROTOBUF_C_TYPE_STRING:
        memcpy(&pointer, at, sizeof pointer);
        if (pointer && *(const char *)pointer)
            printf("%s: \"%s\"\n", path, (const char *)pointer);
        break;
    case PROTOBUF_C_TYPE_BYTES:
        memcpy(&data, at, sizeof data);
        if (data.len) {
            printf("%s:", path);
            show_bytes(data.data, data.len);
        }
        break;
    default: /* numbers; the machines are little-endian, as the frames are */
        memcpy(&number, at, get_size(field));
        if (number)
            printf("%s: %llu\n", path, (unsigned long long)number);
    }
}

static void show_message(const ProtobufCMessage *msg, const char *prefix)
{
    for (unsigned i = 0; i < msg->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &msg->descriptor->fields[i];
        const char *at = (const char *)msg + field->offset, *list;
        size_t n;
        if (field->label != PROTOBUF_C_LABEL_REPEATED) {
            show_value(field, at, prefix);
            continue;
        }
        memcpy(&list, at, sizeof list);
        memcpy(&n, (const char *)msg + field->quantifier_offset, sizeof n);
        for (size_t k = 0; k < n; k++)
            show_value(field, list + k * get_size(field), prefix);
    }
    for (unsigned i = 0; i < msg->n_unknown_fields; i++)
        printf("%sunknown: %u\n", prefix, (unsigned)msg->unknown_fields[i].tag);
}

static void run_message(const ProtobufCMessageDescriptor *desc, const char *mode)
{
    ProtobufCMessage *msg;
    if (strcmp(mode, "make") == 0)
        msg = make_message(desc, 1);
    else if (teffi_unpack(desc, bytes, len, &arena, &msg))
        give_up("the message does not decode");
    if (strcmp(mode, "show") == 0) {
        show_message(msg, "");
        return;
    }
    size_t size = teffi_packed_size(msg);
    teffi_pack(msg, size, bytes);
    fwrite(bytes, 1, size, stdout);
}

/* ---- frames of messages ---- */

static teffi_msg *make_msg(uint32_t kind)
{
    teffi_msg *m = teffi_msg_new(kind);
    if (!m)
        give_up("out of memory");
    bool responds = kind == TEFFI_MSG_RESPONSE;
    m->flags = responds ? TEFFI_MSG_UNNAMED : 0xaa00 | TEFFI_MSG_PLACED;
    m->hops = 3;
    m->src = (teffi_node_id){0x11121314, 0x21222324};
    m->to = (teffi_pid){{0x31323334, 0x41424344}, 0x51525354, 0x61626364};
    if (kind != TEFFI_MSG_ONEWAY)
        m->call = (teffi_origin){0x71727374, 0x01020304, 0x0123456789abcdef};
    m->type_id = 0x81828384;
    m->method_id = 0x91929394;
    m->deadline_ns = now_ns + 1500000000u;
    m->key = (const uint8_t *)"k\0y";
    m->key_len = 3;
    m->err = responds ? TEFF_E_FAILED : 0;
    if (responds)
        m->text = "no funds";
    else if (kind == TEFFI_MSG_REQUEST)
        m->once = (const uint8_t *)"idempotency key";
    m->transaction = (const uint8_t *)"participants";
    m->transaction_len = 12;
    m->raw = (const uint8_t *)"body";
    m->raw_len = 4;
    return m;
}

static void show_msg(const teffi_msg *m)
{
    printf("kind: %u\nflags: %#x\nhops: %u\n", m->item.kind, m->flags, m->hops);
    printf("src: %#x %#x\n", m->src.silo, m->src.incarnation);
    printf("to: %#x %#x %#x %#x\n", m->to.node.silo, m->to.node.incarnation, m->to.slot,
           m->to.generation);
    printf("call: %#x %#x %#llx\n", m->call.slot, m->call.generation,
           (unsigned long long)m->call.cookie);
    printf("type: %#x\nmethod: %#x\n", m->type_id, m->method_id);
    printf("left_ms: %llu\n", (unsigned long long)(m->deadline_ns - now_ns) / 1000000u);
    bool responds = m->item.kind == TEFFI_MSG_RESPONSE;
    printf("err: %u\ntext: %s\nkey:", m->err, responds && m->text ? m->text : "");
    show_bytes(m->key, m->key_len);
    printf("body:");
    show_bytes(m->raw, m->raw_len);
    if (!responds && m->once) {
        printf("once:");
        show_bytes(m->once, TEFFI_ONCE_BYTES);
    }
    if (m->transaction) {
        printf("transaction:");
        show_bytes(m->transaction, m->transaction_len);
    }
}

static void run_msg(uint32_t kind, const char *mode, const teffi_frame *frame)
{
    teffi_msg *m;
    size_t room, body_len;
    if (strcmp(mode, "make") == 0)
        m = make_msg(kind);
    else if (frame->kind != kind || teffi_frame_decode(frame, NULL, now_ns, &m))
        give_up("the frame does not decode");
    if (strcmp(mode, "show") == 0)
        show_msg(m);
    else if (teffi_frame_compute_size_bound(m, BYTES_MAX, &room, &body_len))
        give_up("the frame does not encode");
    else
        fwrite(bytes, 1, teffi_frame_encode(m, body_len, now_ns, bytes), stdout);
    teffi_msg_free(m);
}

/* ---- control frames ---- */

typedef union payload {
    teffi_greeting hello;
    teffi_ack ack;
    char text[TEFF_TEXT_MAX];
    uint64_t view;
} payload;

static void make_payload(uint8_t kind, payload *p)
{
    memset(p, 0, sizeof *p);
    if (kind == TEFFI_FRAME_HELLO) {
        p->hello = (teffi_greeting){.hello = {.node = {0x11121314, 0x21222324},
                                              .role = TEFFI_ROLE_SILO,
                                              .version_min = TEFFI_PROTOCOL_MIN,
                                              .version_max = TEFFI_PROTOCOL_MAX,
                                              .cluster = "teff",
                                              .address = "10.0.0.1:7070"},
                                    .sequence = 77,
                                    .secret = true};
        memset(p->hello.nonce, 0xa1, sizeof p->hello.nonce);
        memset(p->hello.echo, 0xb2, sizeof p->hello.echo);
        memset(p->hello.proof, 0xc3, sizeof p->hello.proof);
        memset(p->hello.certificate.bytes, 0xf6, p->hello.certificate.len = 5);
        memset(p->hello.signature.bytes, 0x17, p->hello.signature.len = 6);
    } else if (kind == TEFFI_FRAME_ACK) {
        memset(p->ack.echo, 0xd4, sizeof p->ack.echo);
        memset(p->ack.proof, 0xe5, sizeof p->ack.proof);
        memset(p->ack.signature.bytes, 0x28, p->ack.signature.len = 7);
    } else if (kind == TEFFI_FRAME_REFUSE) {
        snprintf(p->text, sizeof p->text, "another cluster");
    } else if (kind == TEFFI_FRAME_VIEW) {
        p->view = 0x3132333435363738;
    }
}

static teff_err read_view(const uint8_t *data, size_t n, payload *p)
{
    p->view = teffi_frame_decode_view(data, n);
    return p->view ? TEFF_OK : TEFF_E_MALFORMED;
}

static teff_err read_payload(uint8_t kind, const uint8_t *data, size_t n, payload *p)
{
    return kind == TEFFI_FRAME_HELLO    ? teffi_hello_unpack(data, n, &p->hello)
           : kind == TEFFI_FRAME_ACK    ? teffi_ack_unpack(data, n, &p->ack)
           : kind == TEFFI_FRAME_REFUSE ? teffi_refusal_unpack(data, n, p->text)
           : kind == TEFFI_FRAME_VIEW   ? read_view(data, n, p)
           : n                          ? TEFF_E_MALFORMED
                                        : TEFF_OK;
}

static size_t pack_view(const payload *p, uint8_t *out)
{
    memcpy(out, &p->view, sizeof p->view);
    return sizeof p->view;
}

static size_t pack_payload(uint8_t kind, const payload *p, uint8_t *out)
{
    return kind == TEFFI_FRAME_HELLO    ? teffi_hello_pack(&p->hello, out)
           : kind == TEFFI_FRAME_ACK    ? teffi_ack_pack(&p->ack, out)
           : kind == TEFFI_FRAME_REFUSE ? teffi_refusal_pack(p->text, out)
           : kind == TEFFI_FRAME_VIEW   ? pack_view(p, out)
                                        : 0;
}

/* The early encodings have no such fields. */
static void show_bytes_if_any(const char *name, const uint8_t *data, size_t n)
{
    if (!n)
        return;
    printf("%s:", name);
    show_bytes(data, n);
}

static void show_payload(uint8_t kind, const payload *p)
{
    printf("kind: %u\n", kind);
    if (kind == TEFFI_FRAME_HELLO) {
        const teffi_hello *h = &p->hello.hello;
        printf("node: %#x %#x\nrole: %u\nversions: %u %u\n", h->node.silo, h->node.incarnation,
               h->role, h->version_min, h->version_max);
        printf("cluster: %s\naddress: %s\nsequence: %llu\nsecret: %d\nnonce:", h->cluster,
               h->address, (unsigned long long)p->hello.sequence, p->hello.secret);
        show_bytes(p->hello.nonce, sizeof p->hello.nonce);
        printf("echo:");
        show_bytes(p->hello.echo, sizeof p->hello.echo);
        printf("proof:");
        show_bytes(p->hello.proof, sizeof p->hello.proof);
        show_bytes_if_any("certificate", p->hello.certificate.bytes, p->hello.certificate.len);
        show_bytes_if_any("signature", p->hello.signature.bytes, p->hello.signature.len);
    } else if (kind == TEFFI_FRAME_ACK) {
        printf("echo:");
        show_bytes(p->ack.echo, sizeof p->ack.echo);
        printf("proof:");
        show_bytes(p->ack.proof, sizeof p->ack.proof);
        show_bytes_if_any("signature", p->ack.signature.bytes, p->ack.signature.len);
    } else if (kind == TEFFI_FRAME_REFUSE) {
        printf("text: %s\n", p->text);
    } else if (kind == TEFFI_FRAME_VIEW) {
        printf("view: %#llx\n", (unsigned long long)p->view);
    }
}

static void run_control(uint8_t kind, const char *mode, const teffi_frame *frame)
{
    static uint8_t packed[TEFFI_HELLO_MAX];
    payload p;
    const uint8_t *data;
    size_t n;
    if (strcmp(mode, "make") == 0)
        make_payload(kind, &p);
    else if (frame->kind != kind || !teffi_frame_get_control_payload(frame, &data, &n) ||
             read_payload(kind, data, n, &p))
        give_up("the control frame does not decode");
    if (strcmp(mode, "show") == 0) {
        show_payload(kind, &p);
        return;
    }
    n = pack_payload(kind, &p, packed);
    teffi_frame_encode_control(kind, packed, n, bytes);
    fwrite(bytes, 1, TEFFI_FRAME_HEAD + n, stdout);
}

static const struct {
    const char *name;
    uint8_t kind;
} frames[] = {
    {"frame.REQUEST", TEFFI_MSG_REQUEST},       {"frame.ONEWAY", TEFFI_MSG_ONEWAY},
    {"frame.RESPONSE", TEFFI_MSG_RESPONSE},     {"frame.HELLO", TEFFI_FRAME_HELLO},
    {"frame.REFUSE", TEFFI_FRAME_REFUSE},       {"frame.ACK", TEFFI_FRAME_ACK},
    {"frame.HEARTBEAT", TEFFI_FRAME_HEARTBEAT}, {"frame.BYE", TEFFI_FRAME_BYE},
    {"frame.BYE_ACK", TEFFI_FRAME_BYE_ACK},     {"frame.VIEW", TEFFI_FRAME_VIEW},
};

static void run_frame(uint8_t kind, const char *mode)
{
    teffi_frame frame = {0};
    size_t size;
    if (strcmp(mode, "make") != 0 &&
        (teffi_frame_peek(bytes, len, BYTES_MAX, &size, &frame) || size != len))
        give_up("no whole frame");
    if (kind <= TEFFI_MSG_RESPONSE)
        run_msg(kind, mode, &frame);
    else
        run_control(kind, mode, &frame);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    teffi_arena_init(&arena, NULL, 0, 1 << 20);
    if (strcmp(argv[1], "make") != 0)
        len = fread(bytes, 1, sizeof bytes, stdin);
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++)
        if (strcmp(argv[2], frames[i].name) == 0)
            return run_frame(frames[i].kind, argv[1]), 0;
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++)
        if (strcmp(argv[2], messages[i].name) == 0)
            return run_message(messages[i].desc, argv[1]), teffi_arena_fini(&arena), 0;
    give_up("no such kind");
}
