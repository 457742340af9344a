/* handshake.c - exchanges hello, hello, ack. A hello is checked against the cluster, the listener,
 * the secret and earlier connections; then the owner may refuse it. */
#include "link/steps.h"

#include <string.h>

enum { SILOS_MAX = 4096 }; /* accepted and UP */

/* Copies the link's hello, because set_own_identity() may change it at any time. */
static teffi_hello copy_own_hello(teffi_conn *conn)
{
    teffi_link *link = teffi_link_of(conn);
    pthread_mutex_lock(&link->conns.lock);
    teffi_hello self = link->self;
    pthread_mutex_unlock(&link->conns.lock);
    return self;
}

static const teffi_secret *find_secret(teffi_conn *conn, uint32_t dialler_role)
{
    return teffi_secrets_find(&teffi_link_of(conn)->secrets, dialler_role);
}

/* Makes this node's greeting, with its certificate, if it has one. Its nonce is random; conn keeps
 * it to check the peer's echo. */
static teffi_greeting make_own_greeting(teffi_conn *conn)
{
    const teffi_platform *p = conn->conns->platform;
    const link_identity *identity = teffi_link_of(conn)->identity;
    teffi_greeting g = {.hello = copy_own_hello(conn)};
    uint64_t random[2] = {p->random(p->arg), p->random(p->arg)};
    memcpy(conn->handshake.nonce, random, sizeof conn->handshake.nonce);
    memcpy(g.nonce, random, sizeof g.nonce);
    g.sequence = conn->dialled ? conn->handshake.sequence : 0;
    if (identity)
        teffi_identity_add_certificate(identity, &g);
    return g;
}

static void send_greeting(teffi_conn *conn, const teffi_greeting *g)
{
    uint8_t payload[TEFFI_HELLO_MAX];
    teffi_sender_send_control(conn, TEFFI_FRAME_HELLO, payload, teffi_hello_pack(g, payload));
}

/* Counts and logs the refusal, and records it as the cause of the connection's end. */
static void record_own_refusal(teffi_conn *conn, link_counter which, const char *text)
{
    teffi_counters_add_one_and_log(&conn->conns->counters, which, "%s: refused: %s", conn->target,
                                   text);
    teffi_conn_record_end_cause(conn, TEFF_E_REFUSED, text);
}

/* Sends a refusal with the reason `text`. out: true, in each case: the caller must not end conn,
 * which ends by itself when the reason has been sent. */
static bool send_refusal(teffi_conn *conn, const char *text)
{
    uint8_t payload[TEFFI_HELLO_MAX];
    size_t len = teffi_refusal_pack(text, payload);
    conn->handshake.refused = true;
    teffi_sender_send_control(conn, TEFFI_FRAME_REFUSE, payload, len);
    teffi_sender_linger(conn);
    return true;
}

/* Refuses the peer. An acceptor sends the reason, a dialler does not. out: false: the caller must
 * end conn. true: conn ends by itself when the reason has been sent. */
static bool refuse_peer(teffi_conn *conn, link_counter which, const char *text)
{
    record_own_refusal(conn, which, text);
    return !conn->dialled && send_refusal(conn, text);
}

/* As refuse_peer(), but a dialler sends the reason, too. It checks the acceptor's proof before it
 * sends its own, so without the reason the acceptor's log would not show that secrets differ. */
static bool refuse_peer_for_secret(teffi_conn *conn, const char *text)
{
    record_own_refusal(conn, LINK_REFUSED_SECRET, text);
    return send_refusal(conn, text);
}

static const char secrets_differ[] =
    "the secrets of the two sides differ (secret_file; a silo's client_secret_file for clients)";

static const char out_of_memory[] = "out of memory";
static const char another_key[] =
    "the peer has not shown the certificate with which it has joined the cluster";

static const link_counter refusals[] = {
    [TEFFI_MISMATCH_CLUSTER] = LINK_REFUSED_CLUSTER,
    [TEFFI_MISMATCH_VERSION] = LINK_REFUSED_VERSION,
    [TEFFI_MISMATCH_IDENTITY] = LINK_REFUSED_IDENTITY,
};

void teffi_handshake_begin(teffi_conn *conn)
{
    teffi_greeting g = make_own_greeting(conn);
    g.secret = find_secret(conn, g.hello.role) != NULL;
    if ((g.secret || g.certificate.len) &&
        !teffi_proof_digest_hello(&g, conn->handshake.dialler_digest)) {
        record_own_refusal(conn, LINK_CROWDED, out_of_memory);
        teffi_conn_kill(conn);
        return;
    }
    send_greeting(conn, &g);
}

/* conns.lock held. May this peer connect again while this node shuts down? Only if it is still
 * connected and has not sent BYE_ACK. When it sends BYE_ACK, the new connection ends, too.
 * in:   peer; NULL: it is not known. */
static bool may_reconnect_for_goodbye(const link_peer *peer)
{
    return peer && (peer->in || peer->out) && peer->goodbye != GOODBYE_ACKNOWLEDGED;
}

/* conns.lock held. Finds a reason to refuse a new connection from a peer: the peer is connected, or
 * has joined the cluster, with another certificate, a later incarnation of the peer is known, the
 * peer has a newer connection, this node is leaving, or too many nodes are connected. The number of
 * nodes is not checked if the new connection replaces an older one.
 * out:  the reason; *which is its counter. NULL: there is none; *which is LINK_CROWDED, which the
 *       caller counts if it runs out of memory later. */
static const char *find_refusal_reason(teffi_link *link, const teffi_hello *hello,
                                       uint64_t sequence, link_counter *which)
{
    const link_peer *peer = teffi_peer_find(link, hello->node);
    bool silo = hello->role == TEFFI_ROLE_SILO;
    *which = LINK_REFUSED_IDENTITY;
    if (peer && !teffi_key_fits(peer->key, hello->key))
        return another_key;
    if (peer && peer->in &&
        memcmp(peer->in->handshake.remote.key, hello->key, sizeof hello->key) != 0)
        return "the same node is connected, and has shown another certificate";
    if (silo && !teffi_peer_check_and_record_incarnation(link, hello->node, false))
        return "a later start of the same silo has connected already; only the latest start may "
               "connect";
    if (peer && sequence <= peer->in_sequence)
        return "the same node is connected, by a newer connection";
    if (link->leaving && !may_reconnect_for_goodbye(peer))
        return "this node is leaving";
    *which = LINK_CROWDED;
    if (peer && peer->in)
        return NULL;
    if (silo)
        return link->conns.silos_up < SILOS_MAX ? NULL : "too many silos are connected";
    return link->conns.clients_up < link->clients_max ? NULL : "too many clients are connected";
}

/* Checks that the listener accepts the role in the peer's hello. A node could otherwise claim to be
 * a silo at the gateway, where a certificate of the clients' authority is enough.
 * out:  the reason to refuse the peer; NULL: there is none. */
static const char *check_role_for_listener(teffi_conn *conn, const teffi_hello *peer)
{
    const teffi_link *link = teffi_link_of(conn);
    bool client = peer->role == TEFFI_ROLE_CLIENT;
    if (conn->at_gateway && !client)
        return "only clients connect to this address, which is a gateway's";
    if (!conn->at_gateway && client && link->doors[TEFFI_DOOR_GATEWAY].listens)
        return "only silos connect to this address; clients connect to the silo's gateway";
    return NULL;
}

/* Asks the owner, by the hello event, whether it accepts the peer. out: false: the owner refuses
 * the peer; text is the reason, or "" if it gives none. */
static bool ask_owner_to_accept(teffi_conn *conn, const teffi_hello *peer, char *text)
{
    teffi_link *link = teffi_link_of(conn);
    text[0] = '\0';
    return link->events.hello(link->arg, peer, text) == TEFF_OK;
}

/* Acceptor: makes the digests of both hellos, and adds its proof and its signature to its own
 * hello. Stores in conn the proof that the dialler's ACK must have.
 * in:   secret, may be NULL. peer: the dialler's hello. own: the acceptor's. out: false: no
 *       memory. */
static bool add_proof_and_signature(teffi_conn *conn, const teffi_secret *secret,
                                    const teffi_greeting *peer, teffi_greeting *own)
{
    uint8_t *theirs = conn->handshake.dialler_digest, *ours = conn->handshake.acceptor_digest;
    link_identity *identity = teffi_link_of(conn)->identity;
    own->secret = secret != NULL;
    if (!secret && !identity)
        return true;
    return teffi_proof_digest_hello(peer, theirs) && teffi_proof_digest_hello(own, ours) &&
           (!secret || (teffi_proof_make(secret, TEFFI_PROVER_ACCEPTOR, theirs, ours, own->proof) &&
                        teffi_proof_make(secret, TEFFI_PROVER_DIALLER, theirs, ours,
                                         conn->handshake.expected))) &&
           (!identity ||
            teffi_identity_sign(identity, TEFFI_PROVER_ACCEPTOR, theirs, ours, &own->signature));
}

/* If the link has TLS, checks the certificate in a peer's hello, and sets peer->hello.key. A client
 * need not show one, and nor does an acceptor, as TLS has checked that it may be a server. But
 * whoever dials and says that it is a silo must: otherwise a client could hide that its certificate
 * is for clients only.
 * out:  *key, NULL: none was shown. The reason to refuse the peer; NULL: there is none. */
static const char *check_certificate(teffi_conn *conn, teffi_greeting *peer, link_public_key **key)
{
    link_identity *identity = teffi_link_of(conn)->identity;
    *key = NULL;
    bool silo = peer->hello.role == TEFFI_ROLE_SILO;
    if (!identity || (!peer->certificate.len && (!silo || conn->dialled)))
        return NULL;
    if (!peer->certificate.len)
        return "the peer says that it is a silo, but shows no certificate in its hello";
    return teffi_identity_check_certificate(identity, &peer->certificate, conn->at_gateway, silo,
                                            key, peer->hello.key);
}

/* Acceptor: checks the dialler's hello, and responds with ours or with a refusal. out: true,
 * in each case: the caller must not end conn. After a refusal, conn ends by itself when the reason
 * has been sent. */
static bool check_dialler_hello_and_respond(teffi_conn *conn, teffi_greeting *peer)
{
    teffi_link *link = teffi_link_of(conn);
    teffi_greeting own = make_own_greeting(conn);
    char text[TEFF_TEXT_MAX];
    link_counter which;
    teffi_mismatch mismatch = teffi_hello_check(&own.hello, &peer->hello, text);
    if (mismatch)
        return refuse_peer(conn, refusals[mismatch], text);
    const char *wrong_door = check_role_for_listener(conn, &peer->hello);
    if (wrong_door)
        return refuse_peer(conn, LINK_REFUSED_IDENTITY, wrong_door);
    const teffi_secret *secret = find_secret(conn, peer->hello.role);
    const char *missing = teffi_secrets_explain_missing(peer->secret, secret);
    if (missing)
        return refuse_peer_for_secret(conn, missing);
    const char *bad = check_certificate(conn, peer, &conn->handshake.dialler_key);
    if (bad)
        return refuse_peer(conn, LINK_REFUSED_IDENTITY, bad);
    pthread_mutex_lock(&link->conns.lock);
    const char *conflict = find_refusal_reason(link, &peer->hello, peer->sequence, &which);
    pthread_mutex_unlock(&link->conns.lock);
    if (conflict)
        return refuse_peer(conn, which, conflict);
    if (!add_proof_and_signature(conn, secret, peer, &own))
        return refuse_peer(conn, LINK_CROWDED, out_of_memory);
    if (!ask_owner_to_accept(conn, &peer->hello, text))
        return refuse_peer(conn, LINK_REFUSED_PEER, text);
    conn->handshake.remote = peer->hello;
    conn->handshake.sequence = peer->sequence;
    memcpy(own.echo, peer->nonce, sizeof own.echo);
    pthread_mutex_lock(&link->conns.lock);
    conn->state = CONN_ACKING;
    pthread_mutex_unlock(&link->conns.lock);
    send_greeting(conn, &own);
    return true;
}

/* conns.lock held. Makes conn the peer's incoming connection. If there is an older incoming
 * connection, kills it, and also the outgoing connection if that is UP. If the peer sent BYE before
 * it connected again, clears bye_heard and kills the outgoing connection. */
static void replace_incoming_conn(link_peer *peer, teffi_conn *conn)
{
    teffi_conn *old = peer->in;
    peer->in = conn;
    peer->in_sequence = conn->handshake.sequence;
    if (peer->bye_heard)
        teffi_ending_clear_bye_and_kill_outgoing(peer);
    if (old) {
        teffi_ending_kill_replaced(old);
        teffi_conn_set_routed_node(old, 0);
        teffi_ending_kill_for_broken_pair(peer->out);
    }
}

/* conns.lock held. Brings conn UP: sets its peer and its state, and posts its up event. */
static void bring_conn_up(teffi_conn *conn, link_peer *peer)
{
    teffi_peer_set_of_conn(conn, peer);
    conn->state = CONN_UP;
    conn->liveness.wrote_ns = teffi_conns_now(conn->conns);
    teffi_conn_ref(conn);
    teffi_peer_post_event(peer, &conn->up_event, EVENT_UP, conn);
}

/* Acceptor, after a valid ACK: brings conn UP, or refuses the peer. The ACK proves that the
 * dialler's hello was not a replay, that the dialler knows the secret, if there is one, and that it
 * owns the key of the certificate, if it has shown one. Calls
 * find_refusal_reason() again, because two connections of one node may be in their handshake at the
 * same time. out: true, in each case: the caller must not end conn. After a refusal, conn ends by
 * itself when the reason has been sent. */
static bool bring_conn_up_or_refuse_peer(teffi_conn *conn)
{
    teffi_link *link = teffi_link_of(conn);
    const teffi_hello *remote = &conn->handshake.remote;
    link_counter which;
    pthread_mutex_lock(&link->conns.lock);
    const char *conflict = find_refusal_reason(link, remote, conn->handshake.sequence, &which);
    link_peer *peer = conflict ? NULL : teffi_peer_find_or_add(link, remote->node);
    if (peer) {
        if (remote->role == TEFFI_ROLE_SILO)
            teffi_peer_check_and_record_incarnation(link, remote->node,
                                                    true); /* true: records it */
        replace_incoming_conn(peer, conn);
        link->conns.pending--;
        teffi_conn_leave_host(conn);
        bring_conn_up(conn, peer);
        (*teffi_conn_state_counter(conn))++;
    }
    pthread_mutex_unlock(&link->conns.lock);
    if (!peer)
        return refuse_peer(conn, which, conflict ? conflict : out_of_memory);
    teffi_sender_open(conn);
    return true;
}

/* Acceptor: has the owner of the certificate that the dialler has shown signed the hellos? Frees
 * the key. out: true also if it has shown none. */
static bool ack_has_signature(teffi_conn *conn, const teffi_ack *ack)
{
    conn_handshake *h = &conn->handshake;
    bool good =
        !h->dialler_key ||
        teffi_identity_verify(teffi_link_of(conn)->identity, h->dialler_key, TEFFI_PROVER_DIALLER,
                              h->dialler_digest, h->acceptor_digest, &ack->signature);
    teffi_identity_free_key(h->dialler_key);
    h->dialler_key = NULL;
    return good;
}

static const char not_signed[] = "the peer has not proved that it owns the key of its certificate";

/* Acceptor: checks the dialler's ACK, and brings conn UP or refuses the peer. out: false: the ACK
 * is malformed, and the caller must end conn. true: conn is UP; or the peer was refused, and conn
 * ends by itself when the reason has been sent. */
static bool check_ack_and_bring_conn_up(teffi_conn *conn, const uint8_t *payload, size_t len)
{
    teffi_ack ack;
    if (teffi_ack_unpack(payload, len, &ack))
        return teffi_receiver_report_violation(conn, "bad ack");
    if (memcmp(ack.echo, conn->handshake.nonce, sizeof ack.echo) != 0)
        return refuse_peer(conn, LINK_REFUSED_IDENTITY, "the ack belongs to another connection");
    const conn_handshake *h = &conn->handshake;
    const teffi_secret *secret = find_secret(conn, h->remote.role);
    if (secret && !teffi_proof_equal(ack.proof, h->expected))
        return refuse_peer_for_secret(conn, secrets_differ);
    if (!ack_has_signature(conn, &ack))
        return refuse_peer(conn, LINK_REFUSED_IDENTITY, not_signed);
    return bring_conn_up_or_refuse_peer(conn);
}

/* out: where to redial a peer that was dialled by address. A silo uses the address that the peer
 * advertises. That address is for silos, so a client uses the one that it has dialled. */
static const char *get_redial_address(const teffi_conn *conn)
{
    bool client = conn->conns->role == TEFFI_ROLE_CLIENT;
    return client ? conn->target : conn->handshake.remote.address;
}

/* conns.lock held. Dialler: makes conn the peer's outgoing connection. It takes over the messages
 * of the connection that it replaces, before any new message may be sent.
 * out:  false: the peer has an outgoing connection that is UP, so conn is not needed. */
static bool replace_outgoing_conn_unless_up(teffi_conn *conn, link_peer *peer)
{
    teffi_conn *old = peer->out;
    if (!conn->peer) /* a conn dialled for a peer must not make it known again after peer_remove */
        teffi_peer_set_known(peer, peer->known ? peer->address : get_redial_address(conn));
    peer->dial_failed = false;
    peer->backoff_ms = 0;
    if (old && old != conn) {
        if (old->state == CONN_UP)
            return false;
        old->ending.cause = CONN_REPLACED;
        teffi_sender_close_and_move_unopened(old, conn);
        teffi_conn_kill(old);
    }
    peer->out = conn;
    pthread_mutex_lock(&conn->lock); /* other threads may send on a conn dialled for the peer */
    conn->sender.peer_left = peer->left;
    pthread_mutex_unlock(&conn->lock);
    return true;
}

/* Dialler: brings conn UP, and sends the ACK. out: false: the caller must end conn, for example
 * because another connection to the peer is UP. */
static bool bring_conn_up_and_send_ack(teffi_conn *conn, const teffi_ack *ack)
{
    teffi_link *link = teffi_link_of(conn);
    uint8_t payload[TEFFI_ACK_MAX];
    bool up = false;
    pthread_mutex_lock(&link->conns.lock);
    link_peer *peer = conn->peer;
    if (!peer && !link->leaving)
        peer = teffi_peer_find_or_add(link, conn->handshake.remote.node);
    bool key_differs = peer && !teffi_key_fits(peer->key, conn->handshake.remote.key);
    if (peer && !key_differs && !link->freeing && conn->ending.cause != CONN_REPLACED) {
        up = replace_outgoing_conn_unless_up(conn, peer);
        if (up)
            bring_conn_up(conn, peer);
        else /* conn's end must follow the other connection's up event in the peer's queue */
            teffi_peer_set_of_conn(conn, peer);
        conn->handshake.not_needed = !up;
    }
    pthread_mutex_unlock(&link->conns.lock);
    if (key_differs)
        return refuse_peer(conn, LINK_REFUSED_IDENTITY, another_key);
    if (!up)
        return false;
    teffi_sender_send_control(conn, TEFFI_FRAME_ACK, payload, teffi_ack_pack(ack, payload));
    teffi_sender_open(conn);
    return true;
}

/* Dialler: makes the proof that the acceptor's hello must have, and adds the dialler's own proof to
 * the ack. out: false: no memory. */
static bool make_expected_and_own_proof(const teffi_conn *conn, const teffi_secret *secret,
                                        uint8_t *expected, teffi_ack *ack)
{
    const uint8_t *ours = conn->handshake.dialler_digest, *theirs = conn->handshake.acceptor_digest;
    return teffi_proof_make(secret, TEFFI_PROVER_ACCEPTOR, ours, theirs, expected) &&
           teffi_proof_make(secret, TEFFI_PROVER_DIALLER, ours, theirs, ack->proof);
}

/* Dialler: checks the certificate and the signature in the acceptor's hello, if it shows one, and
 * asks the owner about its key. Sets peer->hello.key.
 * out:  the reason to refuse the peer, maybe in text; NULL: there is none. */
static const char *check_acceptor_certificate(teffi_conn *conn, teffi_greeting *peer, char *text)
{
    const conn_handshake *h = &conn->handshake;
    const teffi_link *link = teffi_link_of(conn);
    link_public_key *key;
    const char *why = check_certificate(conn, peer, &key);
    if (key && !teffi_identity_verify(link->identity, key, TEFFI_PROVER_ACCEPTOR, h->dialler_digest,
                                      h->acceptor_digest, &peer->signature))
        why = not_signed;
    teffi_identity_free_key(key);
    if (!why && link->events.dialled && link->events.dialled(link->arg, &peer->hello, text))
        why = text;
    return why;
}

/* Dialler: checks the acceptor's proof and certificate, brings conn UP, and sends the ACK. out:
 * false: the caller must end conn. true: conn is UP; or the peer was refused because of the secret,
 * and conn ends by itself when the reason has been sent. */
static bool check_acceptor_proof_and_bring_conn_up(teffi_conn *conn, const teffi_secret *secret,
                                                   teffi_greeting *peer)
{
    conn_handshake *h = &conn->handshake;
    link_identity *identity = teffi_link_of(conn)->identity;
    uint8_t expected[TEFFI_PROOF_BYTES];
    char text[TEFF_TEXT_MAX];
    teffi_ack ack = {.signature.len = 0};
    memcpy(ack.echo, peer->nonce, sizeof ack.echo);
    if ((secret || identity) && !teffi_proof_digest_hello(peer, h->acceptor_digest))
        return refuse_peer(conn, LINK_CROWDED, out_of_memory);
    if (secret && !make_expected_and_own_proof(conn, secret, expected, &ack))
        return refuse_peer(conn, LINK_CROWDED, out_of_memory);
    if (secret && !teffi_proof_equal(expected, peer->proof))
        return refuse_peer_for_secret(conn, secrets_differ);
    const char *why = check_acceptor_certificate(conn, peer, text);
    if (why)
        return refuse_peer(conn, LINK_REFUSED_IDENTITY, why);
    if (identity && !teffi_identity_sign(identity, TEFFI_PROVER_DIALLER, h->dialler_digest,
                                         h->acceptor_digest, &ack.signature))
        return refuse_peer(conn, LINK_CROWDED, out_of_memory);
    h->remote = peer->hello;
    return bring_conn_up_and_send_ack(conn, &ack);
}

/* Dialler: checks the acceptor's hello and proof, brings conn UP, and sends the ACK. out: as
 * check_acceptor_proof_and_bring_conn_up(). */
static bool check_acceptor_hello_and_bring_conn_up(teffi_conn *conn, teffi_greeting *peer)
{
    teffi_hello self = copy_own_hello(conn);
    char text[TEFF_TEXT_MAX];
    if (memcmp(peer->echo, conn->handshake.nonce, sizeof peer->echo) != 0)
        return teffi_receiver_report_violation(conn, "the response belongs to another connection");
    teffi_mismatch mismatch = teffi_hello_check(&self, &peer->hello, text);
    if (mismatch)
        return refuse_peer(conn, refusals[mismatch], text);
    if (peer->hello.role != TEFFI_ROLE_SILO)
        return refuse_peer(conn, LINK_REFUSED_IDENTITY, "only silos are dialled");
    if (conn->peer && !teffi_node_equals(conn->peer->id, peer->hello.node))
        return refuse_peer(conn, LINK_REFUSED_IDENTITY, "another node listens at this address");
    const teffi_secret *secret = find_secret(conn, self.role);
    const char *missing = teffi_secrets_explain_missing(secret, peer->secret);
    if (missing)
        return refuse_peer_for_secret(conn, missing);
    return check_acceptor_proof_and_bring_conn_up(conn, secret, peer);
}

/* Records and logs why the peer refused this node. A dialler sends a refusal only because of a
 * secret (refuse_peer_for_secret()), so an acceptor counts it as LINK_REFUSED_SECRET. out: false,
 * always: the connection ends. */
static bool record_received_refusal(teffi_conn *conn, const uint8_t *payload, size_t len)
{
    char text[TEFF_TEXT_MAX];
    if (teffi_refusal_unpack(payload, len, text))
        return teffi_receiver_report_violation(conn, "bad refusal");
    teffi_conn_record_end_cause(conn, TEFF_E_REFUSED, text);
    if (conn->dialled)
        teffi_counters_add_one_and_log(&conn->conns->counters, LINK_DIAL_FAILURES,
                                       "dial %.128s: %.300s", conn->target, text);
    else
        teffi_counters_add_one_and_log(&conn->conns->counters, LINK_REFUSED_SECRET,
                                       "%.128s: it refuses this silo: %.300s", conn->target, text);
    return false;
}

bool teffi_handshake_handle_frame(teffi_conn *conn, const teffi_frame *frame)
{
    const uint8_t *payload;
    size_t len;
    teffi_greeting peer;
    if (!teffi_frame_get_control_payload(frame, &payload, &len))
        return teffi_receiver_report_violation(conn, "bad handshake");
    if (conn->state == CONN_GREETING && frame->kind == TEFFI_FRAME_HELLO) {
        if (teffi_hello_unpack(payload, len, &peer))
            return teffi_receiver_report_violation(conn, "bad hello");
        return conn->dialled ? check_acceptor_hello_and_bring_conn_up(conn, &peer)
                             : check_dialler_hello_and_respond(conn, &peer);
    }
    if (conn->state == CONN_ACKING && frame->kind == TEFFI_FRAME_ACK)
        return check_ack_and_bring_conn_up(conn, payload, len);
    if (frame->kind == TEFFI_FRAME_REFUSE && (conn->dialled || conn->state == CONN_ACKING))
        return record_received_refusal(conn, payload, len);
    return teffi_receiver_report_violation(conn, "no handshake");
}

/* out: why the handshake broke. A peer that refuses our certificate usually closes before it sends
 * an alert, so some texts list the possible causes. */
static const char *explain_broken_handshake(const teffi_conn *conn,
                                            const teffi_stream_result *result)
{
    if (conn->liveness.given_up)
        return "no response in time";
    if (result->end == TEFFI_STREAM_CLOSED)
        return "closed by this side";
    if (result->end == TEFFI_STREAM_NO_CERTIFICATE)
        return "TLS handshake failed: the peer showed no certificate";
    if (result->end == TEFFI_STREAM_NO_TLS)
        return "TLS handshake failed: the peer speaks no TLS, or one side refused the other's "
               "certificate (expired, not valid yet, or not signed by the authority in tls_ca, for "
               "clients in tls_client_ca)";
    if (conn->dialled && conn->conns->transport->tls)
        return "closed by the peer in the TLS handshake: it speaks no TLS, or refused this side's "
               "certificate; its log may say more";
    if (conn->dialled)
        return "closed by the peer in the handshake: it may expect TLS; its log may say more";
    return result->text;
}

/* An accepted connection that closes early, as those of health checks do, is not logged; only
 * failed dials and failed TLS handshakes are. */
void teffi_handshake_report_failure(teffi_conn *conn, const teffi_stream_result *result)
{
    bool tls = result->end == TEFFI_STREAM_NO_CERTIFICATE || result->end == TEFFI_STREAM_NO_TLS;
    bool ours = result->end == TEFFI_STREAM_CLOSED; /* this side killed it and logged any failure */
    const char *why = explain_broken_handshake(conn, result);
    if (conn->dialled && !conn->ending.why && !ours)
        teffi_counters_add_one_and_log(&conn->conns->counters, LINK_DIAL_FAILURES,
                                       "dial %.128s: %s", conn->target, why);
    else if (!conn->dialled && tls)
        teffi_counters_add_one_and_log(&conn->conns->counters, LINK_REFUSED_TLS, "%s: %s",
                                       conn->target, why);
    teffi_conn_record_end_cause(conn, TEFF_E_UNREACHABLE, why);
}
