/* fuzz_state.c - any bytes as the row of a grain's state: refused, or a state with answers that is
 * packed to a row which loads as the same. The same bytes as a list of a transaction's
 * participants, and as the key of a grain.
 * Way:     [fuzz_state] -> store -> activation/state, answers, participants, ident */
#include <stdlib.h>
#include <string.h>
#include "activation/answers.h"
#include "activation/load_limit.h"
#include "activation/participants.h"
#include "activation/state.h"
#include "activation/type.h"
#include "base/bug.h"
#include "keep.teff.h"
#include "node/ask.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const uint8_t new_once[TEFFI_ONCE_BYTES] = "a key of a call";

/* ---- a node with a store, and activations of one grain ---- */

static teffi_node node;
static teffi_grains grains;
static teffi_load_limit load_limit;
static teff_ctx ctx;
static teff_grain_type type = {.info = &keep_keeper_info};

static uint64_t read_fixed_clock(void *arg)
{
    (void)arg;
    return 1000000000;
}

static const teffi_platform platform = {.mono_ns = read_fixed_clock};

static void open_state_node(void)
{
    node.platform = &platform;
    node.id = (teffi_node_id){7, 1};
    node.home.node = &node;
    node.grains = &grains;
    strcpy(node.cluster, "dev");
    memset(&load_limit, 0, sizeof load_limit);
    teffi_load_limit_init(&load_limit);
    grains = (teffi_grains){.node = &node, .load_limit = &load_limit};
    teffi_ctx_init(&ctx, &node.home, NULL);
    teffi_bug_if(teffi_store_open("memory", &node.store, NULL));
}

static void close_state_node(void)
{
    teffi_store_close(node.store);
    teffi_arena_fini(&ctx.arena);
}

static void init_grain(teffi_activation *act)
{
    memset(act, 0, sizeof *act);
    act->type = &type;
    act->grains = &grains;
    act->key_len = 1;
    act->key[0] = 'a';
}

/* Loads act's state from a row with this value. */
static teff_err write_and_load(teffi_activation *act, teffi_bytes value)
{
    init_grain(act);
    teffi_row row = {
        .table = "state", .key = teffi_state_make_row_key(&ctx, act), .value = value, .any = true};
    teffi_store_op op = {.kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1, .arena = &ctx.arena};
    teffi_bug_if(teffi_ctx_run_store_op(&ctx, &op));
    return teffi_state_load(&ctx, act);
}

/* ---- the state and its answers ---- */

static void check_outcome(const teffi_answer *answer, const teff_method *method)
{
    ProtobufCMessage *response = NULL;
    teff_err err = teffi_answers_read_outcome(&ctx, answer, method, &response);
    teffi_bug_if(err < TEFF_OK || err > TEFF_E_MAX);
    teffi_bug_if(err && (response || strlen(teff_error(&ctx)) >= TEFF_TEXT_MAX));
    teffi_bug_if(!err && method->out && !response);
}

static void check_answers(const teffi_activation *act)
{
    const teffi_answers *answers = act->stored->answers;
    size_t count = 0;
    if (!answers)
        return;
    for (teffi_qnode *at = answers->list.head; at; at = at->next, count++) {
        const teffi_answer *answer = teffi_container(at, teffi_answer, link);
        teffi_bug_if(!teffi_answers_find(answers, answer->once));
        for (size_t i = 0; i < keep_keeper_info.n_methods; i++)
            check_outcome(answer, &keep_keeper_info.methods[i]);
    }
    teffi_bug_if(count != answers->list.count || answers->unsaved);
    teffi_bug_if(teffi_activation_has_answers(act) != (count > 0));
}

/* out: the row's value that act packs to. */
static teffi_bytes pack_loaded(const teffi_activation *act)
{
    teffi_bytes value;
    const ProtobufCMessage *state = act->stored->message;
    teffi_bug_if(teffi_state_pack(&ctx, act, &value));
    for (unsigned i = 0; i < state->n_unknown_fields; i++)
        teffi_bug_if(state->unknown_fields[i].tag == TEFFI_MARK_FIELD);
    return value;
}

/* A new answer stays, also if older ones are dropped for it. */
static void check_new_answer(teffi_activation *act)
{
    teffi_activation again;
    teffi_bug_if(!teffi_answers_ensure(act));
    teffi_bug_if(!teffi_answers_add(&ctx, act, new_once, 77, TEFF_OK, NULL));
    size_t kept = act->stored->answers->list.count;
    teffi_bug_if(kept > TEFF_ANSWERS_DEFAULT);
    teffi_bug_if(write_and_load(&again, pack_loaded(act)));
    teffi_bug_if(again.stored->answers->list.count != kept);
    const teffi_answer *found = teffi_answers_find(again.stored->answers, new_once);
    teffi_bug_if(!found);
    teffi_state_free(&again);
}

static void check_state(teffi_bytes row)
{
    teffi_activation act, again;
    teff_err err = write_and_load(&act, row);
    teffi_bug_if(err && err != TEFF_E_MALFORMED && err != TEFF_E_NOMEM);
    if (!err) {
        check_answers(&act);
        teffi_bytes first = pack_loaded(&act);
        teffi_bug_if(write_and_load(&again, first));
        check_answers(&again);
        teffi_bytes second = pack_loaded(&again);
        teffi_bug_if(first.len != second.len || memcmp(first.data, second.data, first.len) != 0);
        teffi_state_free(&again);
        check_new_answer(&act);
    }
    teffi_state_free(&act);
}

/* ---- participants ---- */

typedef Teff__Transaction__Participant entry;

static bool entries_name_same_grain(const entry *a, const entry *b)
{
    return a->type == b->type && a->key.len == b->key.len &&
           (!a->key.len || memcmp(a->key.data, b->key.data, a->key.len) == 0);
}

/* Of a grain there is one entry on each silo, and one row. */
static void check_entry(const Teff__Transaction__Participants *all, size_t i)
{
    const entry *own = all->list[i];
    teffi_bug_if(own->stamp > atomic_load(&grains.stamp));
    for (size_t k = 0; k < i; k++) {
        const entry *other = all->list[k];
        if (!entries_name_same_grain(own, other))
            continue;
        teffi_bug_if(own->silo == other->silo && own->incarnation == other->incarnation);
        teffi_bug_if(own->etag != other->etag || (own->writes && other->writes));
        teffi_bug_if(own->row.len && other->row.len);
    }
}

static void check_participants(teffi_bytes packed)
{
    Teff__Transaction__Participants *all;
    teff_err err = teffi_participants_unpack_and_merge(&ctx, packed, &all);
    teffi_bug_if(err == TEFF_OK && !all);
    teffi_bug_if(err && err != TEFF_E_ABORTED && all);
    for (size_t i = 0; !err && i < all->n_list; i++)
        check_entry(all, i);
}

static void check_transaction(teffi_bytes bytes)
{
    teffi_transaction transaction;
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST);
    teffi_bug_if(!msg);
    msg->transaction = bytes.data;
    msg->transaction_len = (uint32_t)bytes.len;
    bool decodes = teffi_transaction_read_from_msg(msg, &transaction);
    teffi_bug_if(decodes != (bytes.len == sizeof transaction));
    if (decodes) {
        teffi_bug_if(!teffi_transaction_write_to_msg(msg, &transaction));
        teffi_bug_if(memcmp(msg->transaction, bytes.data, bytes.len) != 0);
    }
    teffi_msg_free(msg);
}

/* ---- keys ---- */

static void check_key_bytes(teff_key_kind kind, const uint8_t *bytes, uint32_t len)
{
    uint8_t again[TEFFI_KEY_BYTES_MAX];
    char text[TEFFI_KEY_TEXT_MAX];
    const char *why = NULL;
    teff_key key;
    if (!teffi_key_decode(kind, bytes, len, &key))
        return;
    teffi_bug_if(teffi_key_encode(kind, &key, again, &why) != len);
    teffi_bug_if(memcmp(again, bytes, len) != 0);
    teffi_key_format(&key, text);
    teffi_bug_if(strlen(text) >= sizeof text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const teff_key_kind kinds[] = {TEFF_KEY_STRING, TEFF_KEY_INT64, TEFF_KEY_UUID,
                                          TEFF_KEY_INT64_STRING, TEFF_KEY_UUID_STRING};
    uint8_t *copy = malloc(n + 1); /* a key is followed by a zero byte */
    teffi_bug_if(!copy);
    if (n)
        memcpy(copy, data, n);
    copy[n] = '\0';
    open_state_node();
    check_state((teffi_bytes){copy, n});
    check_participants((teffi_bytes){copy, n});
    check_transaction((teffi_bytes){copy, n});
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        check_key_bytes(kinds[i], copy, (uint32_t)n);
    close_state_node();
    free(copy);
    return 0;
}
