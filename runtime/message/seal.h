/* seal.h - hides the id of a node from everybody but the silo that has sealed it.
 * Way:     hosting/notices -> [seal] -> references to observers
 * Threads: pure functions. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "message/msg.h"

enum { TEFFI_SEAL_BYTES = 16, TEFFI_SEAL_KEY_BYTES = 16 };

/* teffi_seal_make - encrypt a node's id, with 64 bits that are zero, as one block of AES-128.
 * out: false: mbed TLS has failed.
 * teffi_seal_open - out: false: the bytes were not sealed with this key. A guess succeeds once in
 * 2^64 tries. */
TEFF_MUST_USE bool teffi_seal_make(const uint8_t key[TEFFI_SEAL_KEY_BYTES], teffi_node_id node,
                                   uint8_t seal[TEFFI_SEAL_BYTES]);
TEFF_MUST_USE bool teffi_seal_open(const uint8_t key[TEFFI_SEAL_KEY_BYTES],
                                   const uint8_t seal[TEFFI_SEAL_BYTES], teffi_node_id *node);
