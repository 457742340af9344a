/* deadlock.c - probes: begun, sent along a call, followed through an activation, confirmed.
 * Threads: on the activation's group; teffi_deadlock_receive_probe: on the target's. */
#include "request/deadlock.h"

#include <stdio.h>
#include "activation/lock.h"
#include "activation/waits.h"
#include "call/origin.h"
#include "cluster/view.h"
#include "directory/client.h"
#include "directory/placement.h"
#include "directory/stateless.h"
#include "node/deliver.h"
#include "request/ask.h"

/* Of the error's text, this much is for the way from the first turn to the last request; the rest
 * is for the request that ends, and the number of grains. */
enum { WAY_TEXT_MAX = 300, LABEL_MAX = 256, CALLS_SEEN_MAX = 1024 };

typedef Teff__Cluster__Probe probe;

/* A probe that is about to be sent. The members of p point to the other members. */
typedef struct draft {
    probe p;
    teffi_packed_pid initiator;
    uint64_t path[2 * TEFFI_PROBE_CALLS_MAX];
    char text[WAY_TEXT_MAX + 8];
} draft;

/* ---- names ---- */

/* Writes the method's name and the grain's key to label, such as "bank.Account.Deposit at b" for
 * the key "b". in: method: NULL for a turn that activates or deactivates act. Then the label is,
 * for example, "bank.Account.on_activate at b". */
static void make_label(char label[LABEL_MAX], const teffi_activation *act,
                       const teff_method *method)
{
    const teff_type_info *info = act->type->info;
    const char *step = act->phase == TEFFI_ACTIVATING     ? ".on_activate"
                       : act->phase == TEFFI_DEACTIVATING ? ".on_deactivate"
                                                          : "";
    char text[TEFFI_KEY_TEXT_MAX];
    teff_key key;
    teffi_activation_get_key(act, &key);
    teffi_key_format(&key, text);
    snprintf(label, LABEL_MAX, "%.130s%s at %s", method ? method->name : info->name,
             method ? "" : step, text);
}

/* Appends a turn or request of act to the draft's text. If the text is full, appends "..." once. */
static void append_label(draft *d, const teffi_activation *act, const teff_method *method)
{
    static const char between[] = ", which waits for ", more[] = ", ...";
    char label[LABEL_MAX];
    size_t len = d->p.text.len;
    make_label(label, act, method);
    if (len + sizeof between + strlen(label) <= WAY_TEXT_MAX)
        len += (size_t)snprintf(d->text + len, sizeof d->text - len, "%s%s", len ? between : "",
                                label);
    else if (!len || d->text[len - 1] != '.')
        len += (size_t)snprintf(d->text + len, sizeof d->text - len, "%s", more);
    d->p.text.len = len;
}

/* ---- what waits for what ---- */

/* Does the turn keep requests of this class from starting? It keeps out all requests if it has no
 * method, like the turn of on_activate, or if the activation is about to end. */
static bool turn_keeps_out_class(const teffi_turn *turn, teffi_class class)
{
    const teffi_activation *act = turn->act;
    if (!turn->method || act->phase != TEFFI_VALID || act->reason)
        return true;
    teffi_class own = teffi_class_of_method(act->type->info, turn->method);
    return class == TEFFI_READ_ONLY ? own == TEFFI_EXCLUSIVE
                                    : class == TEFFI_EXCLUSIVE && own != TEFFI_FREELY;
}

/* out: the class by which msg, a request set aside, is counted in pending_of: that of its method.
 * Exception: if msg's caller has a newer version of the type, start_move_to_newer_silo() in
 * handler.c counts msg as EXCLUSIVE. */
static teffi_class get_pending_class(const teffi_activation *act, const teffi_msg *msg)
{
    const teff_method *method = teffi_method_find(act->type->info, msg->method_id);
    bool needs_newer = teffi_flags_type_version(msg->flags) > act->type->info->version;
    return method && !needs_newer ? teffi_class_of_method(act->type->info, method)
                                  : TEFFI_EXCLUSIVE;
}

/* Does the turn keep this request from starting? in: msg, which was set aside; NULL: any such
 * request. */
static bool turn_keeps_out_request(const teffi_turn *turn, const teffi_msg *msg)
{
    const teffi_activation *act = turn->act;
    if (msg)
        return turn_keeps_out_class(turn, get_pending_class(act, msg));
    for (int c = 0; c < 3; c++)
        if (teffi_activation_has_pending(act, (teffi_class)c) &&
            turn_keeps_out_class(turn, (teffi_class)c))
            return true;
    return false;
}

/* Is the turn suspended until this call, perhaps among others, has ended? */
static bool turn_awaits_call(const teffi_turn *turn, const teffi_call *call)
{
    return turn->ctx.waiting && !turn->ctx.waits_for_any && call->wait.awaited && !call->wait.done;
}

/* Finds the grain to which the call's request goes. out: false: not known, because the target is no
 * grain, or because the grain's key is too long to be stored in the call. in: turn, which is
 * suspended: *ident may point to its stack. */
static bool get_called_grain(const teffi_grains *grains, const teffi_turn *turn,
                             const teffi_call *call, teffi_ident *ident)
{
    const teffi_asked *asked = teffi_call_get_method_and_key(call);
    const teffi_ask *ask = turn->ctx.asking;
    if (asked) {
        *ident = teffi_ident_of(&grains->secret, asked->type->id, asked->key, asked->key_len);
        return asked->key_len < TEFFI_CALL_KEY_MAX;
    }
    if (teffi_call_targets_no_grain(call))
        return false;
    *ident = teffi_ident_of(&grains->secret, ask->type->id, ask->bytes, ask->ident.key_len);
    return true;
}

/* ---- sending ---- */

/* Pushes the item to the grain's activation here. out: false: there is none. */
static bool push_to_activation(teffi_grains *grains, const teffi_ident *ident, teffi_item *item)
{
    bool certain;
    teffi_activation *act = teffi_shard_find_activation_without_lock(grains, ident, &certain);
    if (act || certain)
        return act && teffi_group_push(&act->group, item);
    teffi_shard *shard = teffi_shard_of(grains, ident->hash);
    pthread_mutex_lock(&shard->lock);
    act = teffi_shard_find_activation_locked(grains, ident);
    bool pushed = act && teffi_group_push(&act->group, item);
    pthread_mutex_unlock(&shard->lock);
    return pushed;
}

/* Delivers a probe to the grain's activation here; drops it if there is none. Owns msg. */
static void deliver_probe(teffi_grains *grains, teffi_msg *msg, uint32_t type,
                          ProtobufCBinaryData key)
{
    teffi_ident ident = teffi_ident_of(&grains->secret, type, key.data, (uint32_t)key.len);
    msg->item.kind = TEFFI_ITEM_PROBE;
    if (!push_to_activation(grains, &ident, &msg->item))
        teffi_msg_free(msg);
}

/* Finds the node to which a pending call of this node sent its request. out: *to: that node, or
 * this node if the request was not sent yet. false: the call has ended, or that node is not in the
 * view. */
static bool find_request_node(teffi_node *node, uint32_t slot, uint32_t generation,
                              teffi_node_id *to)
{
    const teffi_call *call = teffi_slab_at(&node->home.calls.slab, slot);
    uint64_t word = call ? teffi_call_word(call) : 0;
    uint32_t sent = (uint32_t)word & TEFFI_CALL_SENT;
    if (!teffi_word_is_of_pending_call(word, generation) || word & TEFFI_CALL_CANCEL)
        return false;
    *to = node->id;
    if (!sent)
        return true;
    bool found = false;
    const teffi_view *view = teffi_view_ref_current(node);
    for (size_t i = 0; view && i < view->n_members && !found; i++) {
        *to = view->members[i].node;
        found = (teffi_call_make_sent_to_match(*to).bits & TEFFI_CALL_SENT) == sent;
    }
    teffi_view_unref(view);
    return found;
}

/* Sends the probe to the request of a pending call, on this node or another one. A probe that
 * cannot be sent is dropped, because a later probe repeats it. in: p->slot, p->generation: the
 * call, which this node made or relays. If it has ended, nothing is sent. */
static void send_probe_to_request(teffi_grains *grains, probe *p)
{
    teffi_node *node = grains->node;
    teffi_node_id to;
    if (!find_request_node(node, p->slot, p->generation, &to))
        return;
    p->cookie = teffi_call_cookie(&node->home, p->slot, p->generation);
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_ONEWAY);
    if (!msg)
        return;
    msg->src = node->id;
    msg->to = (teffi_pid){.node = to, .slot = TEFFI_SLOT_DEADLOCK};
    atomic_fetch_add_explicit(&grains->waits->probes, 1, memory_order_relaxed);
    bool packed = teffi_node_pack_body(msg, &p->base);
    if (packed && teffi_node_equals(to, node->id))
        deliver_probe(grains, msg, p->type, p->key);
    else if (!packed || teffi_node_send(node, to, msg))
        teffi_msg_free(msg);
}

/* ---- following ---- */

static void begin_draft(draft *d)
{
    teff__cluster__probe__init(&d->p);
    d->p.text.data = (uint8_t *)d->text;
    d->p.path = d->path;
}

/* Copies p, whose lengths were checked, to the draft. Leaves out the fields that
 * send_draft_along_call() and send_probe_to_request() set. */
static void copy_to_draft(draft *d, const probe *p)
{
    begin_draft(d);
    d->p.token = p->token;
    d->p.confirms = p->confirms;
    d->p.step = p->step;
    d->p.grains = p->grains;
    d->p.budget = p->budget;
    teffi_pid_pack(&d->initiator, teffi_pid_unpack(p->initiator));
    d->p.initiator = &d->initiator.pid;
    d->p.n_path = p->n_path;
    d->p.text.len = p->text.len;
    if (p->n_path)
        memcpy(d->path, p->path, p->n_path * sizeof d->path[0]);
    if (p->text.len)
        memcpy(d->text, p->text.data, p->text.len);
}

static void get_path_words(const teffi_activation *act, const teffi_call *call, uint64_t words[2])
{
    words[0] = teffi_node_to_word(act->grains->node->id);
    words[1] = (uint64_t)call->slot << 32 | call->generation;
}

static bool path_has_call_at(const probe *p, size_t at, const uint64_t words[2])
{
    return p->path[2 * at] == words[0] && p->path[2 * at + 1] == words[1];
}

static bool path_has_call(const probe *p, const uint64_t words[2])
{
    for (size_t at = 0; at < p->n_path / 2; at++)
        if (path_has_call_at(p, at, words))
            return true;
    return false;
}

/* May a probe of the first round follow this call? out: if so, *ident is the called grain. */
static bool call_can_be_followed(const teffi_turn *turn, const teffi_call *call, const draft *d,
                                 teffi_ident *ident)
{
    uint64_t words[2];
    get_path_words(turn->act, call, words);
    return turn_awaits_call(turn, call) && !path_has_call(&d->p, words) &&
           get_called_grain(turn->act->grains, turn, call, ident);
}

static void send_draft_along_call(const teffi_activation *act, draft *d, const teffi_call *call,
                                  const teffi_ident *ident)
{
    d->p.slot = call->slot;
    d->p.generation = call->generation;
    d->p.type = ident->type;
    d->p.key = (ProtobufCBinaryData){ident->key_len, (uint8_t *)(uintptr_t)ident->key};
    send_probe_to_request(act->grains, &d->p);
}

/* Sends the draft along the calls that the turn awaits, but at most along `most` calls.
 * in:   share: the budget of each probe. UINT32_MAX: send nothing, and only count the calls.
 * out:  the number of calls that can be followed, at most `most`. */
static uint32_t send_draft_along_turn(const teffi_turn *turn, draft *d, uint32_t share,
                                      uint32_t most)
{
    uint32_t n = 0, seen = 0;
    const teffi_call *call;
    teffi_ident ident;
    LIST_FOREACH (call, &turn->ctx.calls, in_ctx) {
        if (++seen > CALLS_SEEN_MAX || n == most)
            break;
        if (!call_can_be_followed(turn, call, d, &ident))
            continue;
        n++;
        if (share == UINT32_MAX)
            continue;
        get_path_words(turn->act, call, &d->path[d->p.n_path]);
        d->p.n_path += 2;
        d->p.budget = share;
        send_draft_along_call(turn->act, d, call, &ident);
        d->p.n_path -= 2;
    }
    return n;
}

/* Does a probe at this activation go through this turn? in: only: the turn of the request that the
 * probe was sent to. NULL: there is no such turn; then the probe goes through each turn that keeps
 * out the request `aside`. aside: as for turn_keeps_out_request(). */
static bool probe_goes_through_turn(const teffi_turn *turn, const teffi_turn *only,
                                    const teffi_msg *aside)
{
    return only ? turn == only : turn_keeps_out_request(turn, aside);
}

/* Sends the draft, a probe of the first round, along the calls that act's turns await. in: only,
 * aside: which turns, as for probe_goes_through_turn(). */
static void send_draft_along_turns(const teffi_activation *act, draft *d, const teffi_turn *only,
                                   const teffi_msg *aside)
{
    uint32_t budget = d->p.budget, n = 0;
    size_t len = d->p.text.len;
    const teffi_turn *turn;
    if (d->p.n_path == 2 * TEFFI_PROBE_CALLS_MAX)
        return;
    LIST_FOREACH (turn, &act->turns, link)
        if (n < budget && probe_goes_through_turn(turn, only, aside))
            n += send_draft_along_turn(turn, d, UINT32_MAX, budget - n);
    if (!n)
        return;
    uint32_t share = budget / n - 1, left = n;
    LIST_FOREACH (turn, &act->turns, link) {
        if (!left || !probe_goes_through_turn(turn, only, aside))
            continue;
        append_label(d, act, turn->method);
        left -= send_draft_along_turn(turn, d, share, left);
        d->p.text.len = len;
    }
}

/* ---- the first round ---- */

/* out: the token of the probes that begin at act, which probe_is_back() checks. It is a hash with
 * this silo's secret key, so no other silo can make it. */
static uint64_t make_token(const teffi_activation *act)
{
    const teffi_pid pid = teffi_activation_pid(act);
    return teffi_siphash(&act->grains->node->home.calls.key, &pid, sizeof pid);
}

/* Begins probes at act. Sends one probe along each call that is awaited by a turn which keeps a
 * waiting request from starting. */
static void begin_probes(teffi_activation *act)
{
    draft d;
    begin_draft(&d);
    teffi_pid_pack(&d.initiator, teffi_activation_pid(act));
    d.p.initiator = &d.initiator.pid;
    d.p.token = make_token(act);
    d.p.grains = 1;
    d.p.budget = TEFFI_PROBE_BUDGET;
    act->more->has_probed = true;
    send_draft_along_turns(act, &d, NULL, NULL);
}

void teffi_deadlock_handle_visit(teffi_activation *act, teffi_item *item)
{
    if (teffi_waits_list_again_and_count_down(act, item))
        begin_probes(act);
}

/* What the probe was sent to, at an activation. */
typedef struct reached {
    const teffi_turn *turn; /* NULL: it is not running */
    teffi_msg *aside;       /* NULL: it was not set aside */
    teffi_qnode *before;    /* the request before `aside` in the queue; NULL: none */
} reached;

/* Forwards a probe of the first round. Exception: if the probe has reached a request that was set
 * aside, and act's PID is lower than that of the initiator, the probe ends here. In this case act
 * begins probes of its own, unless it has begun some since the last teffi_deadlock_handle_visit()
 * (every TEFFI_VISIT_MS). */
static void forward_in_first_round(teffi_activation *act, const probe *p, const reached *at)
{
    draft d;
    teffi_pid initiator = teffi_pid_unpack(p->initiator), own = teffi_activation_pid(act);
    if (at->aside && teffi_pid_is_lower(own, initiator)) {
        if (!act->more->has_probed)
            begin_probes(act);
        return;
    }
    copy_to_draft(&d, p);
    d.p.grains += !teffi_pid_equals(own, initiator);
    if (at->aside)
        append_label(&d, act, teffi_method_find(act->type->info, at->aside->method_id));
    send_draft_along_turns(act, &d, at->turn, at->aside);
}

/* ---- the second round ---- */

/* Finds the call at index `at` of the path among the calls that act's turns await. in: only, aside:
 * as for probe_goes_through_turn(). out: *ident: the called grain. NULL: no such turn awaits the
 * call any more, or the called grain is not known. */
static const teffi_call *find_awaited_call(const teffi_activation *act, const probe *p, size_t at,
                                           const teffi_turn *only, const teffi_msg *aside,
                                           teffi_ident *ident)
{
    const teffi_turn *turn;
    const teffi_call *call;
    uint64_t words[2];
    LIST_FOREACH (turn, &act->turns, link) {
        if (!probe_goes_through_turn(turn, only, aside))
            continue;
        LIST_FOREACH (call, &turn->ctx.calls, in_ctx) {
            get_path_words(act, call, words);
            if (path_has_call_at(p, at, words))
                return turn_awaits_call(turn, call) &&
                               get_called_grain(act->grains, turn, call, ident)
                           ? call
                           : NULL;
        }
    }
    return NULL;
}

/* Forwards a probe of the second round along its path's next call. */
static void forward_in_second_round(const teffi_activation *act, const probe *p, const reached *at)
{
    draft d;
    teffi_ident ident;
    const teffi_call *call = find_awaited_call(act, p, p->step, at->turn, at->aside, &ident);
    if (!call)
        return;
    copy_to_draft(&d, p);
    d.p.step++;
    send_draft_along_call(act, &d, call, &ident);
}

/* Ends the request that was set aside, the last request of the path, with TEFF_E_DEADLOCK. */
static void end_request_in_cycle(teffi_activation *act, const probe *p, const reached *at)
{
    char text[TEFF_TEXT_MAX], label[LABEL_MAX];
    teffi_msg *msg = at->aside;
    make_label(label, act, teffi_method_find(act->type->info, msg->method_id));
    snprintf(text, sizeof text, "%s waits for %.*s, a cycle of %u grain%s", label, (int)p->text.len,
             (const char *)p->text.data, p->grains, p->grains == 1 ? "" : "s");
    teffi_queue_remove_after(&act->more->pending, at->before);
    act->more->pending_of[get_pending_class(act, msg)]--;
    teffi_lock_update_pending_of_owner(act, msg, false);
    teffi_activation_uncount_queued(act, msg);
    atomic_fetch_add_explicit(&act->grains->waits->reports, 1, memory_order_relaxed);
    teffi_node_respond_with_named_err(act->grains->node, msg, TEFF_E_DEADLOCK, text);
}

/* The probe has come back to the activation where it began, to a request that was set aside. If the
 * path's first call is awaited by a turn that keeps out this request, the path is a cycle: begins
 * the second round, or, after the second round, ends the request. */
static void handle_returned_probe(teffi_activation *act, const probe *p, const reached *at)
{
    teffi_ident ident;
    draft d;
    const teffi_call *first = find_awaited_call(act, p, 0, NULL, at->aside, &ident);
    if (!first)
        return;
    if (p->confirms) {
        end_request_in_cycle(act, p, at);
        return;
    }
    copy_to_draft(&d, p);
    d.p.confirms = true;
    d.p.step = 1;
    send_draft_along_call(act, &d, first, &ident);
}

/* ---- at an activation ---- */

/* Is msg the request that the probe was sent to? in: from: the node that sent the probe. */
static bool is_probed_request(const teffi_activation *act, const teffi_msg *msg, const probe *p,
                              teffi_node_id from)
{
    return msg->item.kind == TEFFI_MSG_REQUEST && teffi_node_equals(msg->src, from) &&
           msg->call.slot == p->slot && msg->call.generation == p->generation &&
           (msg->call.cookie == p->cookie || teffi_node_equals(from, act->grains->node->id));
}

/* Finds the request that the probe was sent to. out: false: it is not here, neither running nor set
 * aside. */
static bool find_probed_request(teffi_activation *act, const probe *p, teffi_node_id from,
                                reached *at)
{
    teffi_qnode *n = NULL;
    *at = (reached){NULL, NULL, NULL};
    const teffi_turn *turn;
    LIST_FOREACH (turn, &act->turns, link) {
        if (!turn->request || !is_probed_request(act, turn->request, p, from))
            continue;
        at->turn = turn;
        return true;
    }
    while (act->more && (n = teffi_queue_after(&act->more->pending, at->before))) {
        teffi_msg *msg = teffi_container(n, teffi_msg, link);
        if (is_probed_request(act, msg, p, from)) {
            at->aside = msg;
            return true;
        }
        at->before = n;
    }
    return false;
}

/* Unpacks the probe, checks its lengths, and lowers its budget to TEFFI_PROBE_BUDGET if it is
 * higher. out: NULL: the probe is not valid. */
static probe *unpack_probe(teffi_msg *msg)
{
    if (msg->raw_len > TEFFI_PROBE_BYTES_MAX ||
        teffi_msg_unpack(msg, &teff__cluster__probe__descriptor))
        return NULL;
    probe *p = (probe *)msg->body;
    bool fits = p->initiator && p->n_path >= 2 && p->n_path <= 2 * TEFFI_PROBE_CALLS_MAX &&
                p->n_path % 2 == 0 && p->text.len < sizeof((draft *)NULL)->text &&
                p->key.len <= TEFFI_KEY_BYTES_MAX && p->step <= p->n_path / 2;
    if (fits && p->budget > TEFFI_PROBE_BUDGET)
        p->budget = TEFFI_PROBE_BUDGET;
    return fits ? p : NULL;
}

/* The memory of act may have been reused for another grain since the probe was pushed. */
static bool is_grain_of_probe(const teffi_activation *act, const probe *p)
{
    return act->type->info->id == p->type && act->key_len == p->key.len &&
           teffi_key_bytes_equal(teffi_activation_key_bytes(act), p->key.data, act->key_len);
}

/* Did the probe begin at act, and has it followed its whole path? */
static bool probe_is_back(const teffi_activation *act, const probe *p)
{
    return teffi_pid_equals(teffi_activation_pid(act), teffi_pid_unpack(p->initiator)) &&
           p->token == make_token(act) && (!p->confirms || p->step == p->n_path / 2);
}

void teffi_deadlock_handle_probe(teffi_activation *act, teffi_msg *msg)
{
    reached at;
    const probe *p = unpack_probe(msg);
    bool is_grain = p && is_grain_of_probe(act, p);
    bool found = is_grain && find_probed_request(act, p, msg->src, &at);
    if (is_grain && !found && teffi_stateless_push_to_next(act, &msg->item))
        return;
    if (found) {
        if (at.aside && probe_is_back(act, p))
            handle_returned_probe(act, p, &at);
        else if (!p->confirms)
            forward_in_first_round(act, p, &at);
        else if (p->step < p->n_path / 2)
            forward_in_second_round(act, p, &at);
    }
    teffi_msg_free(msg);
}

/* ---- from other silos ---- */

/* Counts a probe that another silo has sent. out: false: too many probes came in the current
 * window of TEFFI_VISIT_MS: the caller must drop this probe. */
static bool count_probe_and_check_limit(teffi_waits *waits)
{
    uint64_t now = teffi_now(waits->node->platform);
    if (now >= waits->window_ns) {
        waits->window_ns = now + TEFFI_VISIT_MS * 1000000ull;
        waits->received = 0;
    }
    return waits->received++ < TEFFI_PROBES_MAX;
}

void teffi_deadlock_receive_probe(teffi_node *node, teffi_msg *msg)
{
    teffi_slab_use relay;
    probe *p = NULL;
    if (msg->item.kind == TEFFI_MSG_ONEWAY && count_probe_and_check_limit(node->grains->waits) &&
        teffi_view_current_has_member(node, msg->src))
        p = unpack_probe(msg);
    if (!p) {
        teffi_node_drop_message(node, msg);
        return;
    }
    const teffi_origin origin = {p->slot, p->generation, p->cookie};
    if (!teffi_origins_find_entry(&node->home, teffi_node_to_word(msg->src), origin,
                                  TEFFI_CALL_PENDING | TEFFI_CALL_RELAY, &relay)) {
        deliver_probe(node->grains, msg, p->type, p->key);
        return;
    }
    p->slot = relay.slot;
    p->generation = relay.generation;
    send_probe_to_request(node->grains, p);
    teffi_msg_free(msg);
}
