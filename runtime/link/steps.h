/* steps.h - the steps of a connection's life on a link: it begins (dial, accept), is read (driver),
 * greets (handshake), says goodbye (goodbye) and ends (ending).
 * Way:     next_hop, heartbeat, streams -> [dial, accept] -> driver -> [handshake, goodbye, ending]
 *          -> peers (events), sender
 * Threads: as each function says; peers under conns.lock. At most one thread at a time reads a
 *          connection, its reader. The reader's reference passes from one to the next: receive
 *          callback, executor, waiting client thread, deferred read, batch event, memory queue. One
 *          thread at a time reports a peer's events, without a lock. */
#pragma once

#include "link/link.h"

/* ---- dial.c ---- */

/* teffi_dial_make_conn_to_peer - conns.lock held; create the connection and set peer->out. in:
 * peer->out is NULL.
 * out:  NULL: no memory, or the link is being freed. Otherwise the caller calls teffi_dial_start().
 * teffi_dial_start - start the connection's dial. in: the connection's first reference, passed to
 * the dial's callback. runs: with or without conns.lock. */
teffi_conn *teffi_dial_make_conn_to_peer(link_peer *peer);
void teffi_dial_start(teffi_conn *conn);

/* ---- accept.c ---- */

/* teffi_accept_retry - accept again after an accept failed (no file descriptor, no memory).
 * runs: the ticker. */
void teffi_accept_retry(teffi_link *link);

/* ---- driver.c: completed reads and writes, deferred reads, events reported to the owner ---- */

/* teffi_driver_init - set the callbacks of the connections' streams. */
void teffi_driver_init(teffi_link *link);

/* teffi_driver_new_conn - conns.lock held; make a connection, not listed yet.
 * out:  NULL: no memory. */
teffi_conn *teffi_driver_new_conn(teffi_link *link, bool dialled);

/* teffi_driver_handle_frames_and_read - handle the buffered frames, report events, then receive
 * more.
 * in:   the reader's reference, taken over. runs: the reader; no lock held. */
void teffi_driver_handle_frames_and_read(teffi_conn *conn);

/* teffi_driver_end_conn - end the connection and report its end; if a write is in flight, its
 * callback does so. in: a reference, dropped. runs: as teffi_ending_try_end(). */
void teffi_driver_end_conn(teffi_conn *conn);

/* teffi_driver_resume_waiting_conns - resume the connections that no longer wait for memory; end
 * those that were killed.
 * teffi_driver_free_dead_conns - free the connections without references.
 * runs: the ticker; link free. */
void teffi_driver_resume_waiting_conns(teffi_link *link);
void teffi_driver_free_dead_conns(teffi_link *link);

/* ---- handshake.c: until the connection is UP, by its reader. See message/hello.h ---- */

/* teffi_handshake_begin - send the dialler's hello. If there is no memory for its digest, kills
 * conn. */
void teffi_handshake_begin(teffi_conn *conn);

/* teffi_handshake_handle_frame - handle a frame that arrives before UP, or, on a connection that
 * this side dialled, REFUSE also in UP. out: false: the connection ends. */
bool teffi_handshake_handle_frame(teffi_conn *conn, const teffi_frame *frame);

/* teffi_handshake_report_failure - the stream ended before UP: note the cause, and count and log a
 * failed dial or TLS handshake. */
void teffi_handshake_report_failure(teffi_conn *conn, const teffi_stream_result *result);

/* ---- goodbye.c ---- */

/* teffi_goodbye_say - conns.lock held; append BYE to the peer's outgoing connection, or else to its
 * incoming one, if there is one; a connection gets at most one BYE.
 * teffi_goodbye_acknowledge - conns.lock held; append BYE_ACK to conn, at most once. */
void teffi_goodbye_say(link_peer *peer);
void teffi_goodbye_acknowledge(teffi_conn *conn);

/* teffi_goodbye_handle_bye - handle a BYE: accept no more messages to the peer, append BYE_ACK.
 * teffi_goodbye_handle_bye_ack - handle a BYE_ACK: if BYE was said, kill the peer's connections. */
void teffi_goodbye_handle_bye(teffi_conn *conn);
void teffi_goodbye_handle_bye_ack(teffi_conn *conn);

/* ---- ending.c: redial, goodbye, events ---- */

/* teffi_ending_try_end - end the connection, and post its down event; without a peer, call the done
 * function of its dial instead. Also reports the gone event.
 * runs: the reader, or the callback of the dial or write; no lock held; not again once it has
 *       returned true.
 * out:  true: the caller drains the events and drops the list's reference. false: a write is in
 *       flight; its callback calls this function again (teffi_sender_complete_write). */
bool teffi_ending_try_end(teffi_conn *conn);

/* teffi_ending_report_dial_result - call the done function of a dial to an address; a dial for a
 * peer has none. in: conn has ended and was never UP. */
void teffi_ending_report_dial_result(const teffi_conn *conn);

/* teffi_ending_kill_for_broken_pair - conns.lock held; kill conn, if it is UP, because the other
 * connection of its pair has ended, or a response could not be sent. The end of conn does not kill
 * the other.
 * in:   conn, peer->in or peer->out, may be NULL. */
void teffi_ending_kill_for_broken_pair(teffi_conn *conn);

/* teffi_ending_clear_bye_and_kill_outgoing - conns.lock held; the peer said goodbye, and has
 * connected again. Reset its goodbye, and kill the outgoing connection, if there is one: it accepts
 * no more messages. The next message or the ticker dials a new one, if the peer is known. The end
 * of the old one is clean if everything was written. */
void teffi_ending_clear_bye_and_kill_outgoing(link_peer *peer);

/* teffi_ending_kill_replaced - conns.lock held; kill the connection because a newer one replaces
 * it. Its down event is posted now, before the up event of the newer one; messages that it still
 * receives are dropped. in: the peer's incoming connection, until now. */
void teffi_ending_kill_replaced(teffi_conn *conn);

/* teffi_ending_kill_incoming_conn - kill the node's incoming connection, because a response to a
 * request on it could not be sent: so the caller's call fails. Does nothing after a goodbye, which
 * ends the connection anyway.
 * runs: no lock held. */
void teffi_ending_kill_incoming_conn(teffi_link *link, teffi_node_id id);
