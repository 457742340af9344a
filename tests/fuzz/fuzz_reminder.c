/* fuzz_reminder.c - any row of a reminder: its key and value are refused, or read as what was
 * written; what is read makes a tick, and a next one, that are in order.
 *
 * Input: the length of the key (2 bytes), the key behind "dev\0", the value's bytes.
 * Way:     [fuzz_reminder] -> reminder/reminder_row */
#include <string.h>
#include "base/bug.h"
#include "message/codec.h"
#include "reminder/reminder_row.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void try_key(teffi_bytes bytes)
{
    uint8_t again[TEFFI_REMINDER_KEY_MAX];
    teffi_reminder_key key;
    if (!teffi_reminder_parse_key("dev", bytes, &key))
        return;
    static const teffi_sipkey secret;
    teffi_ident ident = teffi_ident_of(&secret, key.type, key.grain, key.grain_len);
    size_t len =
        teffi_reminder_make_key("dev", &ident, (const char *)key.name, key.name_len, again);
    teffi_bug_if(len != bytes.len || memcmp(again, bytes.data, len) != 0);
}

static void try_plan(const teffi_reminder_value *value, uint64_t now_ms)
{
    teffi_reminder_step step = teffi_reminder_plan(value, now_ms);
    uint64_t wait_ms = teffi_reminder_wait_ms(value, now_ms, NULL);
    teffi_bug_if(step.due_ms < value->next_ms || step.missed > now_ms);
    teffi_bug_if(step.due_ms > value->next_ms && step.due_ms > now_ms);
    teffi_bug_if(!step.last && step.next_ms >= TEFFI_REMINDER_MS_MAX);
    teffi_bug_if(wait_ms > value->next_ms || wait_ms > UINT64_MAX / 1000000);
    /* after a tick on time, the next one comes after a period */
    if (value->period_ms && now_ms == value->next_ms)
        teffi_bug_if(step.missed || step.next_ms != now_ms + value->period_ms);
}

static void try_value(teffi_bytes bytes)
{
    teff_arena arena;
    teffi_reminder_value value, again;
    const char *type;
    teffi_arena_init(&arena, NULL, 0, 1024 * 1024);
    if (teffi_reminder_unpack(bytes, &arena, &value, &type) == TEFF_OK) {
        Teff__Cluster__Reminder msg;
        teffi_reminder_fill_message(&value, type, &msg);
        size_t len = teffi_packed_size(&msg.base);
        uint8_t *packed = teff_arena_alloc(&arena, len + 1);
        teffi_bug_if(!packed);
        teffi_pack(&msg.base, len, packed);
        teffi_bug_if(teffi_reminder_unpack((teffi_bytes){packed, len}, &arena, &again, NULL));
        teffi_bug_if(again.id != value.id || again.next_ms != value.next_ms ||
                     again.period_ms != value.period_ms || again.until_ms != value.until_ms ||
                     again.ticked != value.ticked || again.placement != value.placement);
        const uint64_t times[] = {0,
                                  1,
                                  value.next_ms,
                                  value.next_ms + value.period_ms,
                                  value.until_ms,
                                  2 * TEFFI_REMINDER_MS_MAX};
        for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
            try_plan(&value, times[i]);
    }
    teffi_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static uint8_t key[4 + TEFFI_STORE_KEY_MAX] = "dev";
    if (n < 2)
        return 0;
    size_t len = ((size_t)data[0] << 8 | data[1]) % (TEFFI_STORE_KEY_MAX + 1);
    len = len < n - 2 ? len : n - 2;
    memcpy(key + 4, data + 2, len);
    try_key((teffi_bytes){key, 4 + len});
    try_value((teffi_bytes){data + 2 + len, n - 2 - len});
    return 0;
}
