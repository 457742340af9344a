/* fuzz_frame.c - any bytes as a frame: refused, or a message that encodes to the same bytes. */
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "message/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const uint64_t now = 1000000000u;

static void check_round_trip(const teffi_msg *msg, const uint8_t *data, size_t n)
{
    size_t room, body_len, before;
    teffi_bug_if(teffi_frame_compute_size_bound(msg, 2 * n + 100, &room, &body_len) != TEFF_OK ||
                 room < n);
    uint8_t *again = malloc(room);
    teffi_bug_if(!again);
    teffi_bug_if(teffi_frame_encode(msg, body_len, now, again) != n);
    teffi_bug_if(memcmp(again, data, n) != 0);
    teffi_segment segment;
    if (teffi_msg_find_segment(msg, 1, &segment)) {
        memset(again, 0, n);
        size_t copied =
            teffi_frame_encode_without_segment(msg, body_len, &segment, now, again, &before);
        teffi_bug_if(copied + segment.len != n || before > copied);
        teffi_bug_if(memcmp(again, data, before) != 0);
        teffi_bug_if(memcmp(again + before, data + before + segment.len, copied - before) != 0);
        teffi_bug_if(memcmp(segment.bytes, data + before, segment.len) != 0);
    }
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    teffi_frame frame;
    teffi_msg *msg;
    const uint8_t *payload;
    size_t size, len;
    if (teffi_frame_peek(data, n, 65536, &size, &frame) || size == 0 || size > n)
        return 0;
    teffi_bug_if(teffi_frame_get_control_payload(&frame, &payload, &len) &&
                 payload + len != data + size);
    if (teffi_frame_decode(&frame, NULL, now, &msg) == TEFF_OK) {
        check_round_trip(msg, data, size);
        teffi_msg_free(msg);
    }
    return 0;
}
