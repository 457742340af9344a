/* fuzz_prescan.c - any bytes as a message: refused, or unpacked within its budget; the verdict of
 * the pre-scan is protobuf-c's, and what the codec makes of them is what protobuf-c makes. */
#include "base/bug.h"
#include "../unit/wire/codec_same.h"
#include "older.pb-c.h"
#include "tree.pb-c.h"
#include "wire/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static bool decided(const uint8_t *data, size_t n)
{
    teff_arena arena;
    ProtobufCMessage *msg;
    teff_err err;
    teffi_arena_init(&arena, NULL, 0, 64u * 1024 * 1024);
    bool ours = teffi_decode(&teff__test__tree__descriptor, data, n, false, &arena, &msg, &err);
    teffi_arena_fini(&arena);
    return ours;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    teff_arena arena;
    ProtobufCMessage *msg;
    teffi_arena_init(&arena, NULL, 0, 64u * 1024 * 1024);
    teff_err scan = teffi_prescan(&teff__test__tree__descriptor, data, n);
    teff_err err = teffi_unpack(&teff__test__tree__descriptor, data, n, &arena, &msg);
    /* Nothing that passes may fail later: memory suffices here. Only protobuf-c does not merge a
     * message that comes twice when it has a oneof that is not set. */
    teffi_bug_if(err != scan && (scan || err != TEFF_E_MALFORMED || decided(data, n)));
    teffi_bug_if((msg != NULL) != (err == TEFF_OK));
    teffi_arena_fini(&arena);
    teffi_bug_if(codec_same(&teff__test__tree__descriptor, data, n) != NULL);
    teffi_bug_if(codec_same(&teff__test__older__descriptor, data, n) != NULL);
    return 0;
}
