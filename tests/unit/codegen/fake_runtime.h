/* fake_runtime.h - what generated code asks of the runtime, written down instead of done.
 * Way:     generated stubs -> [fake_runtime] -> test_generated.c */
#pragma once

#include <stdbool.h>
#include <teff/errno.h>

#include <teff/generated.h>

/* The last call that a stub made. */
typedef struct fake_call {
    const char *function; /* "teff_ask" */
    const teff_type_info *type;
    teff_key key;
    const teff_method *method;
    const ProtobufCMessage *in;
    bool wants_response;
    ProtobufCBinaryData observer;
    uint32_t expiry_ms;
} fake_call;

struct teff_ctx {
    fake_call last;
    ProtobufCMessage *answer; /* what teff_ask and teff_await give */
    teff_err err;             /* what every call returns */
    char text[TEFF_TEXT_MAX]; /* of teff_fail */
};

/* An arena that counts, and may run out. */
struct teff_arena {
    void *blocks[4096];
    unsigned n;
    unsigned n_max; /* allocations that succeed */
};

void fake_arena_fini(teff_arena *arena);
