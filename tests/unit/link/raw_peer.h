/* raw_peer.h - a peer made of a plain socket, which may say anything.
 * Way:     test_silo_port -> [raw_peer] -> a listening link */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "message/frame.h"
#include "message/hello.h"

typedef struct raw_peer {
    int fd;
    uint8_t frame[8192]; /* the frame read last, behind its length */
    size_t frame_len;
    uint8_t sent[16384]; /* all that was sent, to be replayed */
    size_t sent_len;
} raw_peer;

/* raw_connect - to "127.0.0.1:port". raw_connect_from - the same, from the host 127.0.0.HOST. */
raw_peer *raw_connect(const char *address);
raw_peer *raw_connect_from(const char *address, uint8_t host);
/* raw_listen - on a port of its own; out: address, 32 bytes. raw_accept - who connects there next,
 * greeted as greeting says. out: NULL: it did not greet. raw_take - the same, not greeted. */
raw_peer *raw_listen(char *address);
raw_peer *raw_take(raw_peer *listener);
raw_peer *raw_accept(raw_peer *listener, const teffi_greeting *greeting);
void raw_close(raw_peer *peer);
/* raw_send - out: false when the other side has closed. */
bool raw_send(raw_peer *peer, const void *bytes, size_t n);
bool raw_send_frame(raw_peer *peer, uint8_t kind, const uint8_t *payload, size_t n);

/* raw_read - the next frame but heartbeats. out: its kind, 0 when the other side closed or a
 * minute went by. */
uint8_t raw_read(raw_peer *peer);
/* raw_read_hello - the acceptor's answer. out: false when it is none. */
bool raw_read_hello(raw_peer *peer, teffi_greeting *answer);
/* raw_ended - reads until the other side closes. out: false after a minute. */
bool raw_ended(raw_peer *peer);

/* raw_greeting - of silo {silo, incarnation} of the cluster "test", of the protocol of today. */
teffi_greeting raw_greeting(uint32_t silo, uint32_t incarnation, uint64_t sequence);
bool raw_send_greeting(raw_peer *peer, const teffi_greeting *greeting);
/* raw_ack - the payload of an ack without a proof. in: the acceptor's hello. out: its length. */
size_t raw_ack(const teffi_greeting *answer, uint8_t *payload);
/* raw_join - a whole handshake. out: false when it was refused; the frame holds the refusal. */
bool raw_join(raw_peer *peer, const teffi_greeting *greeting);
/* raw_refused - is the last frame a refusal whose text contains this? */
bool raw_refused(const raw_peer *peer, const char *text);
