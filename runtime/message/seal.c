/* seal.c - one block of AES holds a node's id and zeros. */
#include "message/seal.h"

#include <mbedtls/aes.h>
#include <string.h>

typedef struct sealed { /* the block before encryption */
    uint64_t node, zero;
} sealed;

_Static_assert(sizeof(sealed) == TEFFI_SEAL_BYTES, "a sealed node is one block of AES");

bool teffi_seal_make(const uint8_t key[TEFFI_SEAL_KEY_BYTES], teffi_node_id node,
                     uint8_t seal[TEFFI_SEAL_BYTES])
{
    const sealed plain = {teffi_node_to_word(node), 0};
    uint8_t block[TEFFI_SEAL_BYTES];
    mbedtls_aes_context aes;
    mbedtls_aes_init(&aes);
    memcpy(block, &plain, sizeof block);
    bool made = mbedtls_aes_setkey_enc(&aes, key, 8 * TEFFI_SEAL_KEY_BYTES) == 0 &&
                mbedtls_aes_crypt_ecb(&aes, MBEDTLS_AES_ENCRYPT, block, seal) == 0;
    mbedtls_aes_free(&aes);
    return made;
}

bool teffi_seal_open(const uint8_t key[TEFFI_SEAL_KEY_BYTES], const uint8_t seal[TEFFI_SEAL_BYTES],
                     teffi_node_id *node)
{
    uint8_t block[TEFFI_SEAL_BYTES];
    sealed plain = {0, 1};
    mbedtls_aes_context aes;
    mbedtls_aes_init(&aes);
    if (mbedtls_aes_setkey_dec(&aes, key, 8 * TEFFI_SEAL_KEY_BYTES) == 0 &&
        mbedtls_aes_crypt_ecb(&aes, MBEDTLS_AES_DECRYPT, seal, block) == 0)
        memcpy(&plain, block, sizeof plain);
    mbedtls_aes_free(&aes);
    *node = teffi_node_from_word(plain.node);
    return plain.zero == 0;
}
