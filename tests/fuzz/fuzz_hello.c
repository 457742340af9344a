/* fuzz_hello.c - any bytes as each of the handshake's payloads; what is taken packs again. */
#include <string.h>
#include "base/bug.h"
#include "message/hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void hello(const uint8_t *data, size_t n)
{
    static const teffi_hello self = {.node = {7, 1},
                                     .role = TEFFI_ROLE_SILO,
                                     .version_min = 1,
                                     .version_max = 1,
                                     .cluster = "test",
                                     .address = "h:1"};
    teffi_greeting g, again;
    uint8_t bytes[TEFFI_HELLO_MAX];
    char text[TEFF_TEXT_MAX];
    if (teffi_hello_unpack(data, n, &g))
        return;
    size_t len = teffi_hello_pack(&g, bytes);
    teffi_bug_if(len > sizeof bytes || teffi_hello_unpack(bytes, len, &again));
    teffi_bug_if(memcmp(&g, &again, sizeof g) != 0);
    teffi_bug_if(teffi_hello_check(&self, &g.hello, text) == TEFFI_MATCHES &&
                 (g.hello.version_min > 1 || g.hello.version_max < 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    teffi_ack ack, again;
    uint8_t bytes[TEFFI_ACK_MAX];
    char text[TEFF_TEXT_MAX];
    hello(data, n);
    if (teffi_refusal_unpack(data, n, text) == TEFF_OK)
        teffi_bug_if(strlen(text) >= TEFF_TEXT_MAX);
    if (teffi_ack_unpack(data, n, &ack) == TEFF_OK) {
        size_t len = teffi_ack_pack(&ack, bytes);
        teffi_bug_if(len > sizeof bytes || teffi_ack_unpack(bytes, len, &again));
        teffi_bug_if(memcmp(&ack, &again, sizeof ack) != 0);
    }
    return 0;
}
