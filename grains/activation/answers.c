/* answers.c - keeps, finds, packs and unpacks a grain's answers to calls with idempotency keys.
 * Threads: on the activation's group. */
#include "activation/answers.h"

#include <stdlib.h>
#include <string.h>
#include "answer.pb-c.h"
#include "base/hash.h"
#include "call/wait.h"
#include "message/codec.h"
#include "message/fields.h"

enum { ANSWER_FIELD = 19870, LENGTH_MAX = 10 /* bytes of a varint */ };

/* ---- the list ---- */

teffi_answers *teffi_answers_ensure(teffi_activation *act)
{
    teffi_stored *stored = act->stored;
    if (!stored->answers)
        stored->answers = calloc(1, sizeof *stored->answers);
    return stored->answers;
}

void teffi_answers_free(teffi_answers *answers)
{
    teffi_qnode *n;
    while (answers && (n = teffi_queue_pop(&answers->list)))
        free(teffi_container(n, teffi_answer, link));
    free(answers);
}

bool teffi_activation_has_answers(const teffi_activation *act)
{
    return act->stored->answers && act->stored->answers->list.count > 0;
}

static teffi_answer *answer_of(teffi_qnode *n)
{
    return n ? teffi_container(n, teffi_answer, link) : NULL;
}

const teffi_answer *teffi_answers_find(const teffi_answers *answers, const uint8_t *once)
{
    for (teffi_qnode *n = answers->list.head; n; n = n->next)
        if (memcmp(answer_of(n)->once, once, TEFFI_ONCE_BYTES) == 0)
            return answer_of(n);
    return NULL;
}

uint64_t teffi_answers_hash_request(teff_ctx *ctx, const teff_method *method,
                                    const ProtobufCMessage *request)
{
    size_t len = request ? teffi_packed_size(request) : 0;
    teffi_arena_mark here = teffi_arena_get_mark(&ctx->arena);
    uint8_t *packed = teff_alloc(ctx, len + 1);
    if (request)
        teffi_pack(request, len, packed);
    uint64_t hash = teffi_hash64(packed, len, method->id);
    teffi_arena_rewind(&ctx->arena, here);
    return hash;
}

/* ---- one answer ---- */

/* Writes v as a varint. out: the number of bytes written. */
static size_t write_varint(uint8_t *at, size_t v)
{
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        at[n++] = (uint8_t)(v | 0x80);
    at[n++] = (uint8_t)v;
    return n;
}

/* in:  field: the length of a packed Answer as a varint, then the packed Answer.
 * out: the offset of the packed Answer in field. */
static size_t get_packed_answer_offset(const uint8_t *field)
{
    size_t n = 0;
    while (field[n] & 0x80)
        n++;
    return n + 1;
}

/* Adds a new answer at the end of the list. Leaves the answer's member `field` uninitialized: the
 * caller must write all len bytes of this member. out: NULL if out of memory. */
static teffi_answer *push_answer(teffi_answers *answers, const uint8_t *once, uint64_t hash,
                                 size_t len)
{
    teffi_answer *answer = malloc(sizeof *answer + len);
    if (!answer)
        return NULL;
    memcpy(answer->once, once, TEFFI_ONCE_BYTES);
    answer->hash = hash;
    answer->len = len;
    teffi_queue_push(&answers->list, &answer->link);
    return answer;
}

static size_t answers_max(const teffi_activation *act)
{
    uint32_t max = act->type->info->answers_max;
    return max ? max : TEFF_ANSWERS_DEFAULT;
}

/* Packs m and adds it to act's answers. If there are now more than answers_max(), frees the oldest
 * answers. out: false if out of memory. */
static bool pack_and_add_answer(teffi_activation *act, const Teff__Answer__Answer *m)
{
    uint8_t length[LENGTH_MAX];
    teffi_answers *answers = act->stored->answers;
    size_t len = teffi_packed_size(&m->base), prefix = write_varint(length, len);
    teffi_answer *answer = push_answer(answers, m->once.data, m->hash, prefix + len);
    if (!answer)
        return false;
    memcpy(answer->field, length, prefix);
    teffi_pack(&m->base, len, answer->field + prefix);
    while (answers->list.count > answers_max(act))
        free(answer_of(teffi_queue_pop(&answers->list)));
    answers->unsaved = true;
    return true;
}

/* Packs the response into m. If the response is too large to be kept, only sets
 * m->too_large. */
static void pack_response(teff_ctx *ctx, Teff__Answer__Answer *m, const ProtobufCMessage *response)
{
    size_t len = teffi_packed_size(response);
    m->too_large = len > TEFF_ANSWER_MAX;
    if (m->too_large)
        return;
    m->response = (ProtobufCBinaryData){len, teff_alloc(ctx, len + 1)};
    teffi_pack(response, len, m->response.data);
}

bool teffi_answers_add(teff_ctx *ctx, teffi_activation *act, const uint8_t *once, uint64_t hash,
                       teff_err err, const ProtobufCMessage *response)
{
    Teff__Answer__Answer m = TEFF__ANSWER__ANSWER__INIT;
    char *text = (char *)(uintptr_t)teff_error(ctx);
    m.once = (ProtobufCBinaryData){TEFFI_ONCE_BYTES, (uint8_t *)(uintptr_t)once};
    m.hash = hash;
    m.err = (uint32_t)err;
    if (err)
        m.text = (ProtobufCBinaryData){strlen(text), (uint8_t *)text};
    else if (response)
        pack_response(ctx, &m, response);
    return pack_and_add_answer(act, &m);
}

/* ---- repeat an answer ---- */

typedef struct reading {
    teff_ctx *ctx;
    const teffi_answer *answer;
    const teff_method *method;
    Teff__Answer__Answer *m;
    ProtobufCMessage *response;
    teff_err err;
} reading;

/* Unpacks the stored Answer message. If the message contains the method's response, also unpacks
 * the response. Runs on the worker's stack, because unpacking recurses and may need more stack than
 * a fiber has. */
static void unpack_answer_on_worker(void *arg)
{
    reading *r = arg;
    teff_arena *arena = &r->ctx->arena;
    size_t at = get_packed_answer_offset(r->answer->field);
    ProtobufCMessage *m;
    r->err = teffi_unpack(&teff__answer__answer__descriptor, r->answer->field + at,
                          r->answer->len - at, arena, &m);
    r->m = (Teff__Answer__Answer *)m;
    if (!r->err && !r->m->err && !r->m->too_large && r->method->out)
        r->err = teffi_unpack(r->method->out->desc, r->m->response.data, r->m->response.len, arena,
                              &r->response);
}

teff_err teffi_answers_read_outcome(teff_ctx *ctx, const teffi_answer *answer,
                                    const teff_method *method, ProtobufCMessage **response)
{
    reading r = {.ctx = ctx, .answer = answer, .method = method};
    teffi_ctx_run_off_fiber(ctx, unpack_answer_on_worker, &r);
    *response = r.response;
    if (r.err)
        return teff_fail(ctx, r.err, "the stored answer to this call cannot be read");
    if (r.m->too_large)
        return teff_fail(ctx, TEFF_E_TOO_LARGE,
                         "the call ran before; its response, over %d bytes, was not kept",
                         TEFF_ANSWER_MAX);
    if (!r.m->err)
        return TEFF_OK;
    return teff_fail(ctx, (teff_err)r.m->err, "%.*s", (int)r.m->text.len,
                     r.m->text.len ? (const char *)r.m->text.data : "");
}

/* ---- in the row ---- */

static bool is_answer(const ProtobufCMessageUnknownField *field)
{
    return field->tag == ANSWER_FIELD;
}

/* Copies state's base, the ProtobufCMessage with which it begins, and lists act's answers in the
 * unknown fields of the copy.
 * Leaves out unknown fields of state that have the field number of answers: they may come from a
 * client's message that the program copied to state, and would later be loaded as answers. */
ProtobufCMessage teffi_answers_copy_base_and_add_answers(teff_ctx *ctx, const teffi_activation *act,
                                                         const ProtobufCMessage *state)
{
    ProtobufCMessage head = *state;
    const teffi_answers *answers = act->stored->answers;
    size_t max = state->n_unknown_fields + (answers ? answers->list.count : 0);
    if (!max)
        return head;
    head.n_unknown_fields = 0;
    head.unknown_fields = teff_alloc(ctx, max * sizeof *head.unknown_fields);
    for (unsigned i = 0; i < state->n_unknown_fields; i++)
        if (!is_answer(&state->unknown_fields[i]))
            head.unknown_fields[head.n_unknown_fields++] = state->unknown_fields[i];
    for (teffi_qnode *at = answers ? answers->list.head : NULL; at; at = at->next)
        head.unknown_fields[head.n_unknown_fields++] =
            (ProtobufCMessageUnknownField){ANSWER_FIELD, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
                                           answer_of(at)->len, answer_of(at)->field};
    return head;
}

/* Checks that field holds a valid answer, and copies it to act's answers.
 * in:  scratch: memory for unpacking the answer. */
static teff_err check_and_copy_answer(teffi_activation *act,
                                      const ProtobufCMessageUnknownField *field,
                                      teff_arena *scratch)
{
    ProtobufCMessage *m;
    teffi_answers *answers = teffi_answers_ensure(act);
    if (field->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
        return TEFF_E_MALFORMED;
    size_t at = get_packed_answer_offset(field->data);
    teff_err err = teffi_unpack(&teff__answer__answer__descriptor, field->data + at,
                                field->len - at, scratch, &m);
    if (err || !answers)
        return err ? err : TEFF_E_NOMEM;
    const Teff__Answer__Answer *a = (const Teff__Answer__Answer *)m;
    if (a->once.len != TEFFI_ONCE_BYTES || a->err > TEFF_E_MAX || a->text.len >= TEFF_TEXT_MAX)
        return TEFF_E_MALFORMED;
    teffi_answer *answer = push_answer(answers, a->once.data, a->hash, field->len);
    if (!answer)
        return TEFF_E_NOMEM;
    memcpy(answer->field, field->data, field->len);
    return TEFF_OK;
}

/* Moves the answers from the unknown fields of state to act. Also removes a transaction's mark from
 * the unknown fields, because the mark is not part of the state. */
teff_err teffi_answers_move_from_state(teffi_activation *act, ProtobufCMessage *state,
                                       teff_arena *scratch)
{
    unsigned n = 0;
    teff_err err = TEFF_OK;
    for (unsigned i = 0; i < state->n_unknown_fields && !err; i++)
        if (is_answer(&state->unknown_fields[i]))
            err = check_and_copy_answer(act, &state->unknown_fields[i], scratch);
        else if (state->unknown_fields[i].tag != TEFFI_MARK_FIELD)
            state->unknown_fields[n++] = state->unknown_fields[i];
    state->n_unknown_fields = n;
    return err;
}
