/* fuzz_prescan.c - any bytes as a message: refused, or unpacked within its budget; the verdict of
 * the pre-scan is protobuf-c's. */
#include "base/bug.h"
#include "tree.pb-c.h"
#include "wire/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    teff_arena arena;
    ProtobufCMessage *msg;
    teffi_arena_init(&arena, NULL, 0, 64u * 1024 * 1024);
    teff_err scan = teffi_prescan(&teff__test__tree__descriptor, data, n);
    teff_err err = teffi_unpack(&teff__test__tree__descriptor, data, n, &arena, &msg);
    teffi_bug_if(err != scan); /* nothing that passes may fail later: memory suffices here */
    teffi_bug_if((msg != NULL) != (err == TEFF_OK));
    teffi_arena_fini(&arena);
    return 0;
}
