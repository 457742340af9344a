/* raw_peer.c - blocking sockets with a time limit, and the handshake by hand. */
#include "raw_peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LIMIT_MS = 60000 };

raw_peer *raw_connect(const char *address)
{
    return raw_connect_from(address, 1);
}

raw_peer *raw_connect_from(const char *address, uint8_t host)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000000 | host)};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    raw_peer *peer = calloc(1, sizeof *peer);
    to.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    peer->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (peer->fd < 0 || (host != 1 && bind(peer->fd, (struct sockaddr *)&from, sizeof from) != 0) ||
        connect(peer->fd, (struct sockaddr *)&to, sizeof to) != 0)
        abort();
    return peer;
}

raw_peer *raw_listen(char *address)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    raw_peer *peer = calloc(1, sizeof *peer);
    peer->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (peer->fd < 0 || bind(peer->fd, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(peer->fd, 8) != 0 || getsockname(peer->fd, (struct sockaddr *)&at, &len) != 0)
        abort();
    snprintf(address, 32, "127.0.0.1:%d", ntohs(at.sin_port));
    return peer;
}

raw_peer *raw_take(raw_peer *listener)
{
    struct pollfd p = {listener->fd, POLLIN, 0};
    raw_peer *peer = calloc(1, sizeof *peer);
    peer->fd = poll(&p, 1, LIMIT_MS) == 1 ? accept(listener->fd, NULL, NULL) : -1;
    return peer;
}

raw_peer *raw_accept(raw_peer *listener, const teffi_greeting *greeting)
{
    teffi_greeting heard, own = *greeting;
    raw_peer *peer = raw_take(listener);
    if (peer->fd >= 0 && raw_read_hello(peer, &heard)) {
        memcpy(own.echo, heard.nonce, sizeof own.echo);
        if (raw_send_greeting(peer, &own) && raw_read(peer) == TEFFI_FRAME_ACK)
            return peer;
    }
    raw_close(peer);
    return NULL;
}

void raw_close(raw_peer *peer)
{
    close(peer->fd);
    free(peer);
}

bool raw_send(raw_peer *peer, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    if (peer->sent_len + n <= sizeof peer->sent) {
        memcpy(peer->sent + peer->sent_len, bytes, n);
        peer->sent_len += n;
    }
    while (n) {
        ssize_t sent = send(peer->fd, at, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        at += sent;
        n -= (size_t)sent;
    }
    return true;
}

bool raw_send_frame(raw_peer *peer, uint8_t kind, const uint8_t *payload, size_t n)
{
    uint8_t bytes[TEFFI_HELLO_MAX + TEFFI_FRAME_HEAD];
    teffi_frame_encode_control(kind, payload, n, bytes);
    return raw_send(peer, bytes, n + TEFFI_FRAME_HEAD);
}

static bool read_all(raw_peer *peer, uint8_t *out, size_t n)
{
    while (n) {
        struct pollfd p = {peer->fd, POLLIN, 0};
        ssize_t got = poll(&p, 1, LIMIT_MS) == 1 ? recv(peer->fd, out, n, 0) : -1;
        if (got <= 0)
            return false;
        out += got;
        n -= (size_t)got;
    }
    return true;
}

uint8_t raw_read(raw_peer *peer)
{
    do {
        uint32_t n;
        if (!read_all(peer, (uint8_t *)&n, 4) || n > sizeof peer->frame || n < 6 ||
            !read_all(peer, peer->frame, n))
            return 0;
        peer->frame_len = n;
    } while (peer->frame[0] == TEFFI_FRAME_HEARTBEAT);
    return peer->frame[0];
}

static const uint8_t *payload_of(const raw_peer *peer, size_t *n)
{
    *n = peer->frame_len - (TEFFI_FRAME_HEAD - TEFFI_FRAME_PREFIX);
    return peer->frame + TEFFI_FRAME_HEAD - TEFFI_FRAME_PREFIX;
}

bool raw_read_hello(raw_peer *peer, teffi_greeting *answer)
{
    size_t n;
    if (raw_read(peer) != TEFFI_FRAME_HELLO)
        return false;
    const uint8_t *payload = payload_of(peer, &n);
    return teffi_hello_unpack(payload, n, answer) == TEFF_OK;
}

bool raw_ended(raw_peer *peer)
{
    uint8_t ignored[4096];
    for (;;) {
        struct pollfd p = {peer->fd, POLLIN, 0};
        if (poll(&p, 1, LIMIT_MS) != 1)
            return false;
        ssize_t got = recv(peer->fd, ignored, sizeof ignored, 0);
        if (got == 0 || (got < 0 && errno == ECONNRESET))
            return true;
        if (got < 0)
            return false;
    }
}

teffi_greeting raw_greeting(uint32_t silo, uint32_t incarnation, uint64_t sequence)
{
    teffi_greeting g = {.hello = {.node = {silo, incarnation},
                                  .role = TEFFI_ROLE_SILO,
                                  .version_min = TEFFI_PROTOCOL_MIN,
                                  .version_max = TEFFI_PROTOCOL_MAX,
                                  .cluster = "test",
                                  .address = "127.0.0.1:1"},
                        .sequence = sequence};
    memset(g.nonce, 0x5a, sizeof g.nonce);
    return g;
}

bool raw_send_greeting(raw_peer *peer, const teffi_greeting *greeting)
{
    uint8_t payload[TEFFI_HELLO_MAX];
    size_t n = teffi_hello_pack(greeting, payload);
    return raw_send_frame(peer, TEFFI_FRAME_HELLO, payload, n);
}

size_t raw_ack(const teffi_greeting *answer, uint8_t *payload)
{
    teffi_ack ack = {.signature.len = 0};
    memcpy(ack.echo, answer->nonce, sizeof ack.echo);
    return teffi_ack_pack(&ack, payload);
}

bool raw_join(raw_peer *peer, const teffi_greeting *greeting)
{
    uint8_t payload[64];
    teffi_greeting answer;
    if (!raw_send_greeting(peer, greeting) || !raw_read_hello(peer, &answer))
        return false;
    return memcmp(answer.echo, greeting->nonce, sizeof answer.echo) == 0 &&
           raw_send_frame(peer, TEFFI_FRAME_ACK, payload, raw_ack(&answer, payload));
}

bool raw_refused(const raw_peer *peer, const char *text)
{
    size_t n;
    char said[TEFF_TEXT_MAX];
    const uint8_t *payload = payload_of(peer, &n);
    return peer->frame[0] == TEFFI_FRAME_REFUSE &&
           teffi_refusal_unpack(payload, n, said) == TEFF_OK && payload[1] == TEFF_E_REFUSED &&
           strstr(said, text);
}
