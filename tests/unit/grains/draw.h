/* draw.h - random messages of any type: good ones, and now and then one that breaks a rule.
 * Way:     test_rules -> [draw] -> protobuf-c's descriptors */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>
#include "memory/arena.h"

typedef struct drawing {
    uint64_t rng;
    teff_arena *arena;
    unsigned bad_in; /* one text in so many is not UTF-8, one message NULL; 0: none */
} drawing;

uint32_t draw(drawing *d, uint32_t n);

/* draw_message - of desc, in the arena. in: depth, of those around it. */
ProtobufCMessage *draw_message(drawing *d, const ProtobufCMessageDescriptor *desc, unsigned depth);
