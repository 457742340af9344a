/* fuzz_decode.c - any bytes as a message: refused, or unpacked as protobuf-c unpacks them. */
#include "base/bug.h"
#include "../unit/message/codec_same.h"
#include "cluster.pb-c.h"
#include "older.pb-c.h"
#include "tree.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const ProtobufCMessageDescriptor *const types[] = {&teff__test__tree__descriptor,
                                                              &teff__test__older__descriptor,
                                                              &teff__cluster__probe__descriptor};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        teff_arena arena;
        ProtobufCMessage *msg;
        teffi_arena_init(&arena, NULL, 0, 64u * 1024 * 1024);
        teff_err err = teffi_unpack(types[i], data, n, &arena, &msg);
        teffi_bug_if((msg != NULL) != (err == TEFF_OK));
        teffi_bug_if(err && err != TEFF_E_MALFORMED && err != TEFF_E_TOO_LARGE);
        teffi_arena_fini(&arena);
        teffi_bug_if(codec_same(types[i], data, n) != NULL);
    }
    return 0;
}
