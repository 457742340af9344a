/* fuzz_codegen.c - any bytes as a CodeGeneratorRequest: an answer or an error, never a crash.
 * Run:     tests/fuzz/fuzz_codegen SCRATCH ../tests/fuzz/corpus/codegen, where SCRATCH takes what
 * is found. A seed is what protoc sends to a plugin that is "cat > FILE". */
#include "codegen.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const teffi_codegen_env env = {NULL, NULL};
    teffi_bytes response;
    teffi_pool pool;

    teffi_pool_init(&pool);
    teffi_codegen_run(&pool, &env, (teffi_bytes){data, size}, &response);
    teffi_pool_fini(&pool);
    return 0;
}
