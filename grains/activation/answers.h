/* answers.h - the newest answers of a grain to calls with idempotency keys, stored with its state.
 * Way:     turn (a call with a key) -> [answers] -> state -> the grain's row (teff/answer.proto)
 * Threads: on the activation's group.
 *
 *   a call with a key meets        and gets
 *     no state, a read-only method   TEFF_E_INVALID; it does not run
 *     its key's answer               that answer; if that is not stored yet, it is stored first
 *     its key, but another method    TEFF_E_INVALID; it does not run
 *       or request
 *     an answer that was too large   TEFF_E_TOO_LARGE; it does not run
 *     a running call with its key    its answer, after that turn: admission orders the two, or the
 *                                    lock of the state (`saving`) if turns overlap
 *     a save that fails              the store's error; the activation ends, and the next one loads
 *                                    the row, which has both state and answer if on_deactivate
 *                                    saved, else neither
 *     a save of unknown outcome,     the store's error; the next activation loads the row, which
 *       or a conflict                has both state and answer, or neither
 *     no memory in its turn          TEFF_E_NOMEM; nothing is stored
 *     the end of the activation,     its answer from the row
 *       a move, a crash
 *     a deadline, a cancel           as any call: not run if it has not begun; a turn that has
 *                                    begun stores its answer
 *     teff_state_clear               its answer: the row stays, with the answers and an empty state
 *     answers_max newer answers      its answer is dropped: it runs again */
#pragma once

#include "activation/activation.h"

/* The field of a row that says which transaction wrote it (participants.c). */
enum { TEFFI_MARK_FIELD = 19871 };

/* One answer, on the heap. */
typedef struct teffi_answer {
    teffi_qnode link;
    uint8_t once[TEFFI_ONCE_BYTES];
    uint64_t hash;   /* of method and request */
    size_t len;      /* of field */
    uint8_t field[]; /* a field's value in a row: length, packed Answer */
} teffi_answer;

/* The answers of one activation, on the heap. */
typedef struct teffi_answers {
    teffi_queue list;     /* of teffi_answer.link, oldest first */
    const teff_ctx *turn; /* the turn of a call with a key, which holds stored->saving; or NULL */
    bool unsaved;         /* the row lacks some of them */
} teffi_answers;

/* teffi_answers_ensure - act's answers; makes an empty list if there is none. in: act has a state.
 * out:  NULL: out of memory. */
teffi_answers *teffi_answers_ensure(teffi_activation *act);

/* teffi_answers_free - free answers, which may be NULL. */
void teffi_answers_free(teffi_answers *answers);

/* teffi_activation_has_answers - has act answers? in: act has a state. */
bool teffi_activation_has_answers(const teffi_activation *act);

/* teffi_answers_find - the answer to a call with the key once; NULL: none. It is valid until the
 * next teffi_answers_add. */
const teffi_answer *teffi_answers_find(const teffi_answers *answers, const uint8_t *once);

/* teffi_answers_hash_request - hash a request and its method; the hash is the same on all silos.
 * Uses ctx's memory until it returns. in: request, NULL: none. */
uint64_t teffi_answers_hash_request(teff_ctx *ctx, const teff_method *method,
                                    const ProtobufCMessage *request);

/* teffi_answers_add - add an answer as the newest; drop the oldest ones over the type's
 * answers_max. The answer is err with ctx's text, or response, which may be NULL. If ctx has no
 * memory to pack the response, the turn ends.
 * in:   act's list is made (teffi_answers_ensure). out: false: out of memory. */
TEFF_MUST_USE bool teffi_answers_add(teff_ctx *ctx, teffi_activation *act, const uint8_t *once,
                                     uint64_t hash, teff_err err, const ProtobufCMessage *response);

/* teffi_answers_read_outcome - repeat an answer.
 * out:  *response, in ctx's memory; NULL: the method has none, or an error.
 * errs: the answer's error, with its text in ctx; TEFF_E_TOO_LARGE, TEFF_E_NOMEM,
 *       TEFF_E_MALFORMED. */
TEFF_MUST_USE teff_err teffi_answers_read_outcome(teff_ctx *ctx, const teffi_answer *answer,
                                                  const teff_method *method,
                                                  ProtobufCMessage **response);

/* teffi_answers_copy_base_and_add_answers - copy state's base (ProtobufCMessage); the copy lists
 * the answers among its unknown fields. While state is packed, the copy takes the place of state's
 * own base.
 * in:   act has a state; state, its own or an empty one.
 * out:  the copy; its fields point into ctx's memory, act's answers and state. */
ProtobufCMessage teffi_answers_copy_base_and_add_answers(teff_ctx *ctx, const teffi_activation *act,
                                                         const ProtobufCMessage *state);

/* teffi_answers_move_from_state - move the answers of a row from the unknown fields of its state to
 * act, and drop the mark of a transaction.
 * in:   scratch, for decoding. runs: on a worker's own stack.
 * errs: TEFF_E_MALFORMED, TEFF_E_NOMEM. */
TEFF_MUST_USE teff_err teffi_answers_move_from_state(teffi_activation *act, ProtobufCMessage *state,
                                                     teff_arena *scratch);
