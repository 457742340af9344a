/* input.h - an input of libFuzzer, taken byte by byte. An input that is used up gives zeros.
 * Way:     libFuzzer -> [input] -> the targets that read a script */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct fuzz_input {
    const uint8_t *at, *end;
} fuzz_input;

static inline unsigned input_take_byte(fuzz_input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

static inline unsigned input_take_word(fuzz_input *in)
{
    unsigned low = input_take_byte(in);
    return low | input_take_byte(in) << 8;
}

/* input_take_bytes - take up to n bytes. out: *n: how many. */
static inline const uint8_t *input_take_bytes(fuzz_input *in, size_t *n)
{
    const uint8_t *taken = in->at;
    if (*n > (size_t)(in->end - in->at))
        *n = (size_t)(in->end - in->at);
    in->at += *n;
    return taken;
}
