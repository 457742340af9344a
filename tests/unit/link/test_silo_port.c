/* test_silo_port.c - what a hostile or broken peer can do to a silo's port: it is refused and
 * counted, a good peer is not disturbed, and nothing stays behind. */
#include "net_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include "link/link.h"
#include "raw_peer.h"
#include "tree.pb-c.h"

enum { CLIENTS_MAX = 8, FRAME_MAX = 300000, BEAT_MS = 100, HELLO_TIMEOUT_MS = 400 };

typedef struct port {
    test_node *silo, *good;
    unsigned fds; /* with the good peer connected */
    uint32_t slot;
} port;

/* A hundred questions of the good peer are answered, on the connections it began with. */
static void good_peer_goes_on(port *p)
{
    unsigned before = p->good->messages;
    for (int i = 0; i < 100; i++)
        test_send(p->good, p->silo, ++p->slot, 32);
    test_wait(p->good, p->good->messages == before + 100);
    assert_int_equal(p->good->downs, 0);
    assert_int_equal(test_counters(p->good->net).dials, 1);
}

/* A beat and a half passes, in which the good peer's two connections beat both ways, and raw says
 * n bytes: whoever stays connected is heard before any more time passes. Raw may have been closed
 * since the caller looked. */
static void a_beat_passes(port *p, raw_peer *raw, const void *bytes, size_t n)
{
    uint64_t good = test_counters(p->good->net).bytes_in,
             silo = test_counters(p->silo->net).bytes_in;
    test_clock_move(BEAT_MS * 3 / 2);
    if (n)
        raw_send(raw, bytes, n);
    test_wait(p->good, test_counters(p->good->net).bytes_in >= good + 2 * (size_t)TEFFI_FRAME_HEAD);
    test_wait(p->silo,
              test_counters(p->silo->net).bytes_in >= silo + n + 2 * (size_t)TEFFI_FRAME_HEAD ||
                  p->silo->downs > 0);
}

static int set_up(void **state)
{
    port *p = calloc(1, sizeof *p);
    test_clock_hold(); /* time passes where a test lets it */
    p->silo = test_node_start((test_options){.hello_timeout_ms = HELLO_TIMEOUT_MS,
                                             .frame_max_bytes = FRAME_MAX,
                                             .clients_max = CLIENTS_MAX,
                                             .heartbeat_ms = BEAT_MS});
    p->good = test_node_start((test_options){.heartbeat_ms = BEAT_MS});
    p->silo->echo = true;
    test_know(p->good, p->silo);
    test_know(p->silo, p->good);
    good_peer_goes_on(p);
    test_wait(p->silo, p->silo->ups == 2); /* an answer may be out before its connection is told */
    p->fds = test_fds();
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    port *p = *state;
    good_peer_goes_on(p);
    test_wait(p->silo, test_fds() <= p->fds);
    test_node_stop(p->good);
    test_node_stop(p->silo);
    test_clock_release();
    free(p);
    return 0;
}

static void garbage_is_closed(void **state)
{
    port *p = *state;
    for (int i = 0; i < 50; i++) {
        raw_peer *raw = raw_connect(p->silo->address);
        uint8_t bytes[512];
        assert_int_equal(getrandom(bytes, sizeof bytes, 0), sizeof bytes);
        bytes[2] |= 1; /* not by chance a short length: that would be waited for */
        raw_send(raw, bytes, sizeof bytes);
        assert_true(raw_ended(raw));
        raw_close(raw);
    }
    assert_int_equal(test_counters(p->silo->net).garbage, 50);
}

static void http_and_tls_are_closed(void **state)
{
    port *p = *state;
    static const char *const talks[] = {
        "GET / HTTP/1.1\r\nHost: silo\r\n\r\n",
        "POST /api HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello",
        "\x16\x03\x01\x02\x3e\x01\x00\x02\x3a\x03\x03 a tls client hello begins like this",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
    };
    for (size_t i = 0; i < sizeof talks / sizeof talks[0]; i++) {
        raw_peer *raw = raw_connect(p->silo->address);
        raw_send(raw, talks[i], strlen(talks[i] + 1) + 1);
        assert_true(raw_ended(raw));
        raw_close(raw);
    }
    assert_int_equal(test_counters(p->silo->net).garbage, sizeof talks / sizeof talks[0]);
}

static void half_a_handshake_ends_in_time(void **state)
{
    port *p = *state;
    teffi_greeting g = raw_greeting(900, 1, 1);
    uint8_t payload[TEFFI_HELLO_MAX], frame[TEFFI_HELLO_MAX];
    size_t n = teffi_hello_pack(&g, payload);
    uint64_t accepted = test_counters(p->silo->net).accepted;
    teffi_frame_encode_control(TEFFI_FRAME_HELLO, payload, n, frame);
    raw_peer *silent = raw_connect(p->silo->address), *half = raw_connect(p->silo->address);
    raw_peer *no_ack = raw_connect(p->silo->address);
    raw_send(half, frame, n / 2);
    assert_true(raw_send_greeting(no_ack, &g));
    assert_true(raw_read_hello(no_ack, &g));
    test_wait(p->silo, test_counters(p->silo->net).accepted == accepted + 3);
    for (int i = 0; i * BEAT_MS < HELLO_TIMEOUT_MS; i++)
        a_beat_passes(p, NULL, NULL, 0);
    assert_true(raw_ended(silent) && raw_ended(half) && raw_ended(no_ack));
    assert_int_equal(test_counters(p->silo->net).hello_timeouts, 3);
    assert_int_equal(p->silo->ups, 2); /* the good peer's two */
    test_wait(p->silo, p->silo->gone == 1);
    raw_close(silent);
    raw_close(half);
    raw_close(no_ack);
}

static void another_cluster_is_refused(void **state)
{
    port *p = *state;
    raw_peer *raw = raw_connect(p->silo->address);
    teffi_greeting g = raw_greeting(900, 1, 1);
    strcpy(g.hello.cluster, "tests");
    assert_false(raw_join(raw, &g));
    assert_true(raw_refused(raw, "cluster 'test' expected"));
    assert_true(raw_ended(raw));
    assert_int_equal(test_counters(p->silo->net).refused_cluster, 1);
    raw_close(raw);
}

static void a_recording_is_refused(void **state)
{
    port *p = *state;
    teffi_greeting g = raw_greeting(901, 1, 5);
    raw_peer *first = raw_connect(p->silo->address);
    assert_true(raw_join(first, &g));
    uint8_t frame[128];
    size_t size, body;
    teffi_msg *msg = test_message(TEFFI_MSG_ONEWAY, 0, 5);
    assert_int_equal(teffi_frame_compute_size_bound(msg, sizeof frame, &size, &body), TEFF_OK);
    size = teffi_frame_encode(msg, body, 0, frame);
    teffi_msg_free(msg);
    unsigned before = p->silo->messages;
    assert_true(raw_send(first, frame, size));
    test_wait(p->silo, p->silo->messages == before + 1);
    raw_peer *again = raw_connect(p->silo->address); /* while the first is there: the sequence */
    raw_send(again, first->sent, first->sent_len);
    assert_int_equal(raw_read(again), TEFFI_FRAME_REFUSE);
    assert_true(raw_refused(again, "newer connection"));
    assert_true(raw_ended(again));
    raw_close(again);
    assert_int_equal(test_counters(p->silo->net).refused_identity, 1);
    uint8_t *tape = memcpy(malloc(first->sent_len), first->sent, first->sent_len);
    size_t tape_len = first->sent_len;
    raw_close(first);
    test_wait(p->silo, p->silo->downs == 1);
    unsigned refused = 1;
    for (;; refused++) { /* when it has gone and is forgotten, right after its down: the nonce */
        again = raw_connect(p->silo->address);
        raw_send(again, tape, tape_len);
        if (raw_read(again) == TEFFI_FRAME_HELLO)
            break;
        assert_true(raw_refused(again, "newer connection"));
        assert_true(raw_ended(again));
        raw_close(again);
    }
    assert_int_equal(raw_read(again), TEFFI_FRAME_REFUSE);
    assert_true(raw_refused(again, "another connection"));
    assert_true(raw_ended(again));
    raw_close(again);
    free(tape);
    assert_int_equal(test_counters(p->silo->net).refused_identity, refused + 1);
    assert_int_equal(p->silo->messages, before + 1);
}

static void the_same_silo_id_twice_needs_a_newer_connection(void **state)
{
    port *p = *state;
    teffi_greeting older = raw_greeting(902, 1, 5), newer = raw_greeting(902, 1, 6);
    raw_peer *first = raw_connect(p->silo->address), *second = raw_connect(p->silo->address);
    raw_peer *third = raw_connect(p->silo->address);
    assert_true(raw_join(first, &older));
    test_wait(p->silo, p->silo->ups == 3);
    assert_false(raw_join(second, &older));
    assert_true(raw_refused(second, "newer connection"));
    assert_int_equal(test_counters(p->silo->net).refused_identity, 1);
    assert_true(raw_join(third, &newer));
    assert_true(raw_ended(first)); /* replaced */
    test_wait(p->silo, p->silo->ups == 4 && p->silo->downs == 1);
    raw_close(first);
    raw_close(second);
    raw_close(third);
}

static void an_old_generation_is_refused(void **state)
{
    port *p = *state;
    teffi_greeting now = raw_greeting(903, 5, 1), old = raw_greeting(903, 4, 99);
    raw_peer *first = raw_connect(p->silo->address), *second = raw_connect(p->silo->address);
    assert_true(raw_join(first, &now));
    test_wait(p->silo, p->silo->ups == 3);
    raw_close(first);
    test_wait(p->silo, p->silo->downs == 1); /* it is remembered after it has gone */
    assert_false(raw_join(second, &old));
    assert_true(raw_refused(second, "later start"));
    assert_int_equal(test_counters(p->silo->net).refused_identity, 1);
    raw_close(second);
}

static void another_version_is_refused(void **state)
{
    port *p = *state;
    static const uint32_t versions[][2] = {{1, 1},
                                           {TEFFI_PROTOCOL_MAX + 1, TEFFI_PROTOCOL_MAX + 3}};
    static const char *const texts[] = {"versions 2 to 3 expected, the peer speaks 1 to 1",
                                        "versions 2 to 3 expected, the peer speaks 4 to 6"};
    for (unsigned i = 0; i < 2; i++) {
        raw_peer *raw = raw_connect(p->silo->address);
        teffi_greeting g = raw_greeting(904, 1, 1);
        g.hello.version_min = versions[i][0];
        g.hello.version_max = versions[i][1];
        assert_false(raw_join(raw, &g));
        assert_true(raw_refused(raw, texts[i]));
        assert_int_equal(test_counters(p->silo->net).refused_version, i + 1);
        raw_close(raw);
    }
    test_wait(p->silo, test_logged(p->silo, "refused", texts[0])); /* one line a second */
}

static raw_peer *joined(port *p, uint32_t silo)
{
    teffi_greeting g = raw_greeting(silo, 1, 1);
    unsigned ups = p->silo->ups;
    raw_peer *raw = raw_connect(p->silo->address);
    assert_true(raw_join(raw, &g));
    test_wait(p->silo, p->silo->ups == ups + 1);
    return raw;
}

static void an_oversize_length_is_closed(void **state)
{
    port *p = *state;
    static const uint32_t lengths[] = {FRAME_MAX + 1 - 4, 0x7fffffff, UINT32_MAX};
    for (uint32_t i = 0; i < 3; i++) {
        uint8_t head[TEFFI_FRAME_HEAD] = {[4] = TEFFI_MSG_REQUEST};
        raw_peer *raw = joined(p, 910 + i);
        memcpy(head, &lengths[i], 4);
        assert_true(raw_send(raw, head, i ? 4 : sizeof head));
        assert_true(raw_ended(raw));
        raw_close(raw);
    }
    assert_int_equal(test_counters(p->silo->net).oversize, 3);
}

/* A row may be larger than other frames: 16 MiB, from a silo, to the store. */
static void a_row_has_a_limit_and_a_target(void **state)
{
    port *p = *state;
    uint32_t over = TEFFI_FRAME_ROW_MAX + 1 - 4;
    unsigned messages = p->silo->messages;
    uint8_t head[TEFFI_FRAME_HEAD] = {[4] = TEFFI_MSG_REQUEST, [6] = TEFFI_MSG_ROW};
    raw_peer *raw = joined(p, 914);
    memcpy(head, &over, 4);
    assert_true(raw_send(raw, head, sizeof head));
    assert_true(raw_ended(raw));
    raw_close(raw);
    assert_int_equal(test_counters(p->silo->net).oversize, 1);
    teffi_msg *msg = test_message(TEFFI_MSG_ONEWAY, TEFFI_SLOT_MEMBERSHIP, 100);
    size_t size, body_len;
    uint8_t bytes[1000];
    msg->flags = TEFFI_MSG_ROW;
    assert_int_equal(teffi_frame_compute_size_bound(msg, sizeof bytes, &size, &body_len), TEFF_OK);
    size = teffi_frame_encode(msg, body_len, 0, bytes);
    teffi_msg_free(msg);
    raw = joined(p, 915);
    (void)raw_send(raw, bytes, size);
    assert_true(raw_ended(raw));
    raw_close(raw);
    assert_int_equal(p->silo->messages, messages);
}

static void a_truncated_frame_is_no_message(void **state)
{
    port *p = *state;
    uint8_t frame[128];
    size_t size, body;
    unsigned before = p->silo->messages;
    teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, 1, 20);
    assert_int_equal(teffi_frame_compute_size_bound(msg, sizeof frame, &size, &body), TEFF_OK);
    size = teffi_frame_encode(msg, body, 0, frame);
    teffi_msg_free(msg);
    raw_peer *raw = joined(p, 920);
    assert_true(raw_send(raw, frame, size - 1)); /* the connection ends inside */
    raw_close(raw);
    test_wait(p->silo, p->silo->downs == 1);
    raw = joined(p, 921);
    uint32_t rest = 12;
    memcpy(frame, &rest, 4); /* the fields end inside */
    assert_true(raw_send(raw, frame, 16));
    assert_true(raw_ended(raw));
    raw_close(raw);
    assert_int_equal(test_counters(p->silo->net).malformed, 1);
    assert_int_equal(p->silo->messages, before);
}

static teff_err send_body(port *p, uint32_t silo, const uint8_t *bytes, size_t n)
{
    size_t size, body;
    unsigned before = p->silo->messages;
    teffi_msg *msg = test_message(TEFFI_MSG_ONEWAY, 0, 0);
    msg->raw = bytes;
    msg->raw_len = n;
    assert_int_equal(teffi_frame_compute_size_bound(msg, FRAME_MAX, &size, &body), TEFF_OK);
    uint8_t *frame = malloc(size);
    size = teffi_frame_encode(msg, body, 0, frame);
    teffi_msg_free(msg);
    raw_peer *raw = joined(p, silo);
    assert_true(raw_send(raw, frame, size));
    test_wait(p->silo, p->silo->messages == before + 1);
    free(frame);
    raw_close(raw);
    return teffi_msg_unpack(p->silo->last, &teff__test__tree__descriptor);
}

static void depth_and_field_bombs_do_not_unpack(void **state)
{
    port *p = *state;
    static uint8_t deep[128], wide[210000];
    size_t len = 0;
    for (; len < 126; len += 2) { /* 63 levels, each around the one before */
        memmove(deep + 2, deep, len);
        deep[0] = 0x62;
        deep[1] = (uint8_t)len;
    }
    assert_int_equal(send_body(p, 930, deep, len), TEFF_E_TOO_LARGE);
    for (size_t i = 0; i < sizeof wide; i++)
        wide[i] = i % 2 ? 0 : 0x12; /* 105,000 empty children */
    assert_int_equal(send_body(p, 931, wide, sizeof wide), TEFF_E_TOO_LARGE);
}

static void a_bomb_in_the_hello_is_closed(void **state)
{
    port *p = *state;
    uint8_t payload[4096];
    raw_peer *raw = raw_connect(p->silo->address);
    memset(payload, 0x0b, sizeof payload); /* groups in groups */
    raw_send_frame(raw, TEFFI_FRAME_HELLO, payload, 3000);
    assert_true(raw_ended(raw));
    raw_close(raw);
    raw = raw_connect(p->silo->address);
    raw_send_frame(raw, TEFFI_FRAME_HELLO, payload, 4096 - TEFFI_FRAME_HEAD);
    assert_true(raw_ended(raw));
    raw_close(raw);
    assert_int_equal(test_counters(p->silo->net).garbage, 2);
}

static void a_message_before_the_hello_is_closed(void **state)
{
    port *p = *state;
    uint8_t frame[128];
    size_t size, body;
    unsigned before = p->silo->messages;
    teffi_msg *msg = test_message(TEFFI_MSG_ONEWAY, 0, 5);
    assert_int_equal(teffi_frame_compute_size_bound(msg, sizeof frame, &size, &body), TEFF_OK);
    size = teffi_frame_encode(msg, body, 0, frame);
    teffi_msg_free(msg);
    raw_peer *raw = raw_connect(p->silo->address);
    raw_send(raw, frame, size);
    assert_true(raw_ended(raw));
    raw_close(raw);
    assert_int_equal(test_counters(p->silo->net).garbage, 1);
    assert_int_equal(p->silo->messages, before);
}

static void the_owner_may_refuse(void **state)
{
    port *p = *state;
    raw_peer *raw = raw_connect(p->silo->address);
    teffi_greeting g = raw_greeting(940, 1, 1);
    p->silo->refuse = "not on the list";
    assert_false(raw_join(raw, &g));
    assert_true(raw_refused(raw, "not on the list"));
    assert_int_equal(test_counters(p->silo->net).refused_peer, 1);
    raw_close(raw);
}

static bool send_msg(raw_peer *raw, const teffi_msg *msg)
{
    size_t size, body;
    uint8_t frame[256];
    assert_int_equal(teffi_frame_compute_size_bound(msg, sizeof frame, &size, &body), TEFF_OK);
    size = teffi_frame_encode(msg, body, 0, frame);
    return raw_send(raw, frame, size);
}

static teffi_greeting client_greeting(uint32_t id, uint64_t sequence)
{
    teffi_greeting g = raw_greeting(id | TEFFI_CLIENT_BIT, 1, sequence);
    g.hello.role = TEFFI_ROLE_CLIENT;
    g.hello.address[0] = '\0';
    return g;
}

static raw_peer *joined_client(port *p, uint32_t id)
{
    teffi_greeting g = client_greeting(id, 1);
    unsigned ups = p->silo->ups;
    raw_peer *raw = raw_connect(p->silo->address);
    assert_true(raw_join(raw, &g));
    test_wait(p->silo, p->silo->ups == ups + 1);
    return raw;
}

static void a_client_cannot_be_somebody_else(void **state)
{
    port *p = *state;
    raw_peer *raw = joined_client(p, 77);
    unsigned before = p->silo->messages;
    teffi_msg *msg = test_message(TEFFI_MSG_ONEWAY, 0, 5);
    msg->src = (teffi_node_id){1, 1};
    msg->flags = TEFFI_MSG_PLACED;
    assert_true(send_msg(raw, msg));
    teffi_msg_free(msg);
    test_wait(p->silo, p->silo->messages == before + 1);
    assert_int_equal(p->silo->last->src.silo, 77 | TEFFI_CLIENT_BIT);
    assert_int_equal(p->silo->last->flags & TEFFI_MSG_PLACED, 0);
    raw_close(raw);
}

static void a_client_cannot_call_system_targets(void **state)
{
    port *p = *state;
    static const uint32_t slots[] = {TEFFI_SLOT_DIRECTORY,  TEFFI_SLOT_MEMBERSHIP, TEFFI_SLOT_STORE,
                                     TEFFI_SLOT_SYSTEM_END, TEFFI_PROCESS_BIT,     UINT32_MAX};
    enum { SLOTS = sizeof slots / sizeof slots[0] };
    raw_peer *raw = joined_client(p, 78);
    unsigned before = p->silo->messages;
    teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, 5, 5), *response;
    msg->call.cookie = 1ull << 40;
    for (uint32_t i = 0; i < SLOTS; i++) {
        msg->to.slot = slots[i];
        msg->call.generation = i;
        assert_true(send_msg(raw, msg));
        assert_int_equal(raw_read(raw), TEFFI_MSG_RESPONSE);
        teffi_frame frame = {raw->frame[0], raw->frame, raw->frame_len};
        assert_int_equal(teffi_frame_decode(&frame, NULL, 0, &response), TEFF_OK);
        assert_int_equal(response->err, TEFF_E_REFUSED);
        assert_int_equal(response->call.slot, 5);
        assert_int_equal(response->call.generation, i);
        assert_int_equal(response->call.cookie, 1ull << 40);
        teffi_msg_free(response);
    }
    teffi_msg_free(msg);
    msg = test_message(TEFFI_MSG_ONEWAY, 0, 5); /* nobody waits for a response to that */
    msg->to.slot = TEFFI_PROCESS_BIT;
    assert_true(send_msg(raw, msg));
    teffi_msg_free(msg);
    test_wait(p->silo, test_counters(p->silo->net).refused_system == SLOTS + 1);
    assert_int_equal(p->silo->messages, before);
    raw_close(raw);
}

static void a_client_cancels_its_own_calls_only(void **state)
{
    port *p = *state;
    raw_peer *raw = joined_client(p, 79);
    unsigned before = p->silo->messages;
    uint64_t refused = test_counters(p->silo->net).refused_system;
    teffi_msg *msg = test_message(TEFFI_MSG_ONEWAY, 0, 16);
    msg->to.slot = TEFFI_SLOT_CANCEL;
    msg->src = (teffi_node_id){78 | TEFFI_CLIENT_BIT, 1};
    assert_true(send_msg(raw, msg));
    teffi_msg_free(msg);
    test_wait(p->silo, p->silo->messages == before + 1);
    assert_int_equal(p->silo->last->src.silo, 79 | TEFFI_CLIENT_BIT);
    msg = test_message(TEFFI_MSG_REQUEST, 5, 16);
    msg->to.slot = TEFFI_SLOT_CANCEL;
    assert_true(send_msg(raw, msg));
    teffi_msg_free(msg);
    test_wait(p->silo, test_counters(p->silo->net).refused_system == refused + 1);
    raw_close(raw);
}

static void a_client_that_responds_is_closed(void **state)
{
    port *p = *state;
    raw_peer *raw = joined_client(p, 80);
    unsigned before = p->silo->messages;
    teffi_msg *msg = test_message(TEFFI_MSG_RESPONSE, 1, 5);
    msg->to.node = p->silo->id;
    assert_true(send_msg(raw, msg));
    teffi_msg_free(msg);
    test_wait(p->silo, p->silo->downs == 1 || p->silo->messages > before);
    assert_int_equal(p->silo->messages, before);
    assert_true(raw_ended(raw));
    assert_int_equal(test_counters(p->silo->net).malformed, 1);
    raw_close(raw);
}

static void says_goodbye_twice(port *p, raw_peer *raw, uint64_t malformed)
{
    assert_true(raw_send_frame(raw, TEFFI_FRAME_BYE, NULL, 0));
    assert_int_equal(raw_read(raw), TEFFI_FRAME_BYE_ACK);
    raw_send_frame(raw, TEFFI_FRAME_BYE, NULL, 0);
    assert_int_equal(raw_read(raw), 0); /* closed */
    assert_int_equal(test_counters(p->silo->net).malformed, malformed);
    raw_close(raw);
}

static void a_second_goodbye_is_closed(void **state)
{
    port *p = *state;
    says_goodbye_twice(p, joined(p, 970), 1);
    says_goodbye_twice(p, joined_client(p, 81), 2);
}

/* A frame without a message: with a payload, with flags, of a kind that is none. */
static void set_leaving(port *p, teffi_node_id id, bool leaving, link_goodbye goodbye)
{
    teffi_link *link = (teffi_link *)p->silo->net;
    pthread_mutex_lock(&link->conns.lock);
    link->leaving = leaving;
    teffi_peer_find(link, id)->goodbye = goodbye;
    pthread_mutex_unlock(&link->conns.lock);
}

/* Before its old connection has ended: the shutdown would wait for the new one in vain. */
static void a_client_that_has_acknowledged_the_goodbye_is_refused(void **state)
{
    port *p = *state;
    raw_peer *first = joined_client(p, 81), *second = raw_connect(p->silo->address);
    raw_peer *third = raw_connect(p->silo->address);
    teffi_greeting for_goodbye = client_greeting(81, 2), late = client_greeting(81, 3);
    set_leaving(p, late.hello.node, true, GOODBYE_SAID);
    assert_true(raw_join(second, &for_goodbye));
    test_wait(p->silo, p->silo->ups == 4);
    set_leaving(p, late.hello.node, true, GOODBYE_ACKNOWLEDGED);
    bool joined = raw_join(third, &late);
    set_leaving(p, late.hello.node, false, GOODBYE_NOT_SAID);
    assert_false(joined);
    assert_true(raw_refused(third, "this node is leaving"));
    raw_close(first);
    raw_close(second);
    raw_close(third);
}

static void a_control_frame_with_more_is_closed(void **state)
{
    port *p = *state;
    static const uint8_t kinds[] = {TEFFI_FRAME_HEARTBEAT, TEFFI_FRAME_HEARTBEAT, 99};
    for (unsigned i = 0; i < 3; i++) {
        uint8_t bytes[TEFFI_FRAME_HEAD + 1];
        size_t payload = i == 0;
        raw_peer *raw = joined(p, 975 + i);
        teffi_frame_encode_control(TEFFI_FRAME_HEARTBEAT, NULL, 0, bytes);
        assert_true(raw_send(raw, bytes, TEFFI_FRAME_HEAD)); /* a good one */
        teffi_frame_encode_control(kinds[i], bytes, payload, bytes);
        bytes[6] = i == 1; /* flags */
        assert_true(raw_send(raw, bytes, TEFFI_FRAME_HEAD + payload));
        assert_true(raw_ended(raw));
        assert_int_equal(test_counters(p->silo->net).malformed, i + 1);
        raw_close(raw);
    }
}

static void a_client_over_the_limit_is_refused(void **state)
{
    port *p = *state;
    raw_peer *raw[CLIENTS_MAX], *late = raw_connect(p->silo->address);
    teffi_greeting g = raw_greeting(99 | TEFFI_CLIENT_BIT, 1, 1);
    g.hello.role = TEFFI_ROLE_CLIENT;
    g.hello.address[0] = '\0';
    for (uint32_t i = 0; i < CLIENTS_MAX; i++)
        raw[i] = joined_client(p, 90 + i);
    assert_false(raw_join(late, &g));
    assert_true(raw_refused(late, "too many clients"));
    assert_int_equal(test_counters(p->silo->net).crowded, 1);
    raw_close(late);
    raw_close(joined(p, 980)); /* a silo still may */
    test_wait(p->silo, p->silo->downs == 1);
    raw_close(raw[0]);
    test_wait(p->silo, p->silo->downs == 2);
    raw[0] = joined_client(p, 99); /* there is room again */
    for (uint32_t i = 0; i < CLIENTS_MAX; i++)
        raw_close(raw[i]);
}

/* The connection that carried the BYE_ACK breaks: the peer may not have read it, and waits. */
static void a_goodbye_is_acknowledged_again_on_what_is_left(void **state)
{
    port *p = *state;
    char address[32];
    teffi_greeting g = raw_greeting(971, 1, 1);
    raw_peer *listener = raw_listen(address), *in = joined(p, 971);
    teffi_net *net = p->silo->net;
    teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, 1, 5);
    assert_int_equal(net->ops->peer_add(net, g.hello.node, address), TEFF_OK);
    assert_int_equal(net->ops->send(net, g.hello.node, msg), TEFF_OK);
    raw_peer *out = raw_accept(listener, &g);
    assert_non_null(out);
    assert_int_equal(raw_read(out), TEFFI_MSG_REQUEST);
    assert_true(raw_send_frame(in, TEFFI_FRAME_BYE, NULL, 0));
    assert_int_equal(raw_read(out), TEFFI_FRAME_BYE_ACK);
    raw_close(out);
    assert_int_equal(raw_read(in), TEFFI_FRAME_BYE_ACK);
    raw_close(in);
    raw_close(listener);
}

static void a_silent_peer_is_closed(void **state)
{
    port *p = *state;
    raw_peer *raw = joined(p, 950);
    while (p->silo->downs == 0) /* it says nothing any more */
        a_beat_passes(p, raw, NULL, 0);
    assert_true(raw_ended(raw));
    assert_int_equal(test_counters(p->silo->net).silent, 1);
    raw_close(raw);
}

static void a_peer_that_drips_is_closed(void **state)
{
    port *p = *state;
    raw_peer *raw = joined(p, 951);
    static const uint8_t head[] = {200, 0, 0, 0, TEFFI_MSG_ONEWAY};
    a_beat_passes(p, raw, head, sizeof head);
    while (p->silo->downs == 0) /* one byte of the frame with each beat */
        a_beat_passes(p, raw, "\0", 1);
    assert_int_equal(test_counters(p->silo->net).silent, 1);
    raw_close(raw);
}

/* Over a slow line: in all it takes longer than a frame may of which nothing more comes. */
static void a_large_frame_may_come_slowly(void **state)
{
    port *p = *state;
    enum { BODY = 280000, PIECE = 14000 };
    raw_peer *raw = joined(p, 952);
    unsigned before = p->silo->messages;
    size_t size, body;
    teffi_msg *msg = test_message(TEFFI_MSG_ONEWAY, 0, BODY);
    assert_int_equal(teffi_frame_compute_size_bound(msg, FRAME_MAX, &size, &body), TEFF_OK);
    uint8_t *frame = malloc(size);
    size = teffi_frame_encode(msg, body, 0, frame);
    teffi_msg_free(msg);
    for (size_t at = 0; at < size && p->silo->downs == 0; at += PIECE)
        a_beat_passes(p, raw, frame + at, size - at < PIECE ? size - at : PIECE);
    free(frame);
    assert_int_equal(p->silo->downs, 0);
    test_wait(p->silo, p->silo->messages == before + 1);
    raw_close(raw);
}

/* Half of it came at once: each byte after that is no progress. */
static void a_large_frame_that_stalls_is_closed(void **state)
{
    port *p = *state;
    enum { BODY = 280000, HALF = BODY / 2 };
    static uint8_t half[HALF];
    raw_peer *raw = joined(p, 953);
    teffi_frame_encode_control(TEFFI_MSG_ONEWAY, NULL, 0, half);
    half[0] = (uint8_t)BODY;
    half[1] = (uint8_t)(BODY >> 8);
    half[2] = (uint8_t)(BODY >> 16);
    a_beat_passes(p, raw, half, sizeof half);
    unsigned bytes = 0;
    while (p->silo->downs == 0 && ++bytes < 100)
        a_beat_passes(p, raw, "\0", 1);
    assert_true(bytes < 100);
    assert_int_equal(test_counters(p->silo->net).silent, 1);
    raw_close(raw);
}

static teff_err send_to_client(port *p, uint32_t kind, uint32_t client)
{
    teffi_node_id id = {client | TEFFI_CLIENT_BIT, 1};
    teffi_msg *msg = test_message(kind, 1, 65536);
    teff_err err = p->silo->net->ops->send(p->silo->net, id, msg);
    if (err)
        teffi_msg_free(msg);
    return err;
}

/* A response is not dropped while its client waits for it. */
static void a_client_without_room_for_a_response_is_disconnected(void **state)
{
    port *p = *state;
    raw_peer *raw = joined_client(p, 80);
    while (send_to_client(p, TEFFI_MSG_ONEWAY, 80) != TEFF_E_OVERLOADED)
        ;
    teff_err err;
    do /* responses have more room than other messages */
        err = send_to_client(p, TEFFI_MSG_RESPONSE, 80);
    while (!err);
    assert_int_equal(err, TEFF_E_OVERLOADED);
    test_wait(p->silo, p->silo->downs == 1);
    assert_int_equal(test_counters(p->silo->net).silent, 0);
    raw_close(raw);
}

/* A client whose messages pile up, because it never reads. */
static void a_peer_that_never_reads_is_closed(void **state)
{
    port *p = *state;
    raw_peer *raw = joined_client(p, 79);
    uint8_t beat[TEFFI_FRAME_HEAD];
    unsigned sent = 0;
    /* the kernel's buffers fill, then ours; a response would end the connection */
    while (send_to_client(p, TEFFI_MSG_ONEWAY, 79) != TEFF_E_OVERLOADED) {
        if (++sent % 64 == 0)
            good_peer_goes_on(p);
    }
    assert_int_equal(p->silo->downs, 0);
    teffi_frame_encode_control(TEFFI_FRAME_HEARTBEAT, NULL, 0, beat);
    while (p->silo->downs == 0)
        a_beat_passes(p, raw, beat, sizeof beat); /* it is not silent */
    teff_err err = send_to_client(p, TEFFI_MSG_RESPONSE, 79);
    assert_true(err == TEFF_E_CLOSED || err == TEFF_E_UNREACHABLE);
    assert_int_equal(test_counters(p->silo->net).silent, 1);
    raw_close(raw);
}

#define ROW(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(garbage_is_closed),
        ROW(http_and_tls_are_closed),
        ROW(half_a_handshake_ends_in_time),
        ROW(another_cluster_is_refused),
        ROW(a_recording_is_refused),
        ROW(the_same_silo_id_twice_needs_a_newer_connection),
        ROW(an_old_generation_is_refused),
        ROW(another_version_is_refused),
        ROW(an_oversize_length_is_closed),
        ROW(a_row_has_a_limit_and_a_target),
        ROW(a_truncated_frame_is_no_message),
        ROW(depth_and_field_bombs_do_not_unpack),
        ROW(a_bomb_in_the_hello_is_closed),
        ROW(a_message_before_the_hello_is_closed),
        ROW(the_owner_may_refuse),
        ROW(a_client_cannot_be_somebody_else),
        ROW(a_client_cannot_call_system_targets),
        ROW(a_client_cancels_its_own_calls_only),
        ROW(a_client_that_responds_is_closed),
        ROW(a_second_goodbye_is_closed),
        ROW(a_goodbye_is_acknowledged_again_on_what_is_left),
        ROW(a_client_that_has_acknowledged_the_goodbye_is_refused),
        ROW(a_control_frame_with_more_is_closed),
        ROW(a_client_over_the_limit_is_refused),
        ROW(a_silent_peer_is_closed),
        ROW(a_peer_that_drips_is_closed),
        ROW(a_large_frame_may_come_slowly),
        ROW(a_large_frame_that_stalls_is_closed),
        ROW(a_client_without_room_for_a_response_is_disconnected),
        ROW(a_peer_that_never_reads_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
