/* notice.h - messages about observers, which go to TEFFI_SLOT_OBSERVER; references to observers.
 * Way:     activation/observers, request/notify -> [notice] -> hosting/notices -> silo/observer
 * Threads: pure functions.
 *
 *   message       type_id    method_id         way                        body
 *   notification  interface  of the method     silo -> gateway -> client  the method's request
 *   drop          interface  0                 silo -> gateway -> client  teff.cluster.Dropped
 *   bounce        0          teff_drop_reason  client -> gateway -> silo  none
 *   seal          0          TEFFI_SEAL        client -> gateway          none; Sealed in response
 *
 * The first three are one-ways. Their key is a teffi_notice_head. The gateway of a notification or
 * drop may be the silo that sends it, and may send a bounce itself. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "message/msg.h"
#include "message/seal.h"

/* method_id of the request for a seal of the client's own id; greater than each teff_drop_reason */
enum { TEFFI_SEAL = 16 };

/* 56 bytes without padding, little-endian as this machine (meson.build). */
typedef struct teffi_notice_head {
    /* on the way to the gateway: of the client's id; on the way to the client and back: a tag, by
     * which the gateway knows the heads that it has sent to this client, and zeros */
    uint8_t seal[TEFFI_SEAL_BYTES];
    uint64_t observer;         /* the client's number of the observer */
    uint64_t notifier;         /* teffi_node_to_word of the silo that notifies */
    uint32_t slot, generation; /* of its activation; slot 0: it wants no bounce */
    uint32_t index;            /* of the subscription there */
    uint32_t zero;
    uint64_t subscription; /* its number */
} teffi_notice_head;

_Static_assert(sizeof(teffi_notice_head) == 56, "the head of a notice has no padding");

/* teffi_notice_read_head - copy the head out of msg's key.
 * out:  false: msg has no valid head. */
TEFF_MUST_USE bool teffi_notice_read_head(const teffi_msg *msg, teffi_notice_head *head);

/* teffi_notice_new - make a one-way to TEFFI_SLOT_OBSERVER with a copy of head.
 * in:   raw, len: the packed body, copied. out: NULL: no memory. */
teffi_msg *teffi_notice_new(teffi_node_id from, teffi_node_id to, const teffi_notice_head *head,
                            uint32_t type_id, uint32_t method_id, const uint8_t *raw, size_t len);

/* ---- references ---- */

enum { TEFFI_REF_CLIENT = 1, TEFFI_REF_GRAIN = 2 };

/* The first bytes of each reference. The rest of a reference to a grain is its key. */
typedef struct teffi_ref_head {
    uint8_t kind;     /* TEFFI_REF_* */
    uint8_t key_kind; /* of a grain: a teff_key_kind */
    uint8_t zero[2];
    uint32_t interface; /* id of the observer interface */
} teffi_ref_head;

typedef struct teffi_client_ref {
    teffi_ref_head head;
    uint64_t gateway;               /* teffi_node_to_word */
    uint8_t seal[TEFFI_SEAL_BYTES]; /* of the client's id, by the gateway */
    uint64_t observer;              /* as in teffi_notice_head */
} teffi_client_ref;

typedef struct teffi_grain_ref {
    teffi_ref_head head;
    uint32_t type; /* id of the grain type */
    uint32_t zero;
} teffi_grain_ref;

_Static_assert(sizeof(teffi_client_ref) == 40 && sizeof(teffi_grain_ref) == 16,
               "references have no padding");

/* teffi_ref_read - check a reference, except the key of a grain. The gateway of a client must be a
 * silo.
 * in:   bytes, may be NULL if len is 0. out: its kind, with the whole of *client, or *grain, whose
 *       key follows in bytes; 0: it is no reference. */
int teffi_ref_read(const uint8_t *bytes, size_t len, teffi_client_ref *client,
                   teffi_grain_ref *grain);
