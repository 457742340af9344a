/* test_reminder_row.c - keys and values of reminders' rows; which tick comes next. */
#include <stdlib.h>
#include "lab.h"
#include "reminder/reminder_row.h"

static const teffi_sipkey secret = {1, 2};

static teffi_ident ident_of(const char *key)
{
    return teffi_ident_of(&secret, 0x80ffee01, (const uint8_t *)key, (uint32_t)strlen(key));
}

static void a_key_is_parsed_as_it_was_made(void **state)
{
    uint8_t bytes[TEFFI_REMINDER_KEY_MAX];
    teffi_ident ident = ident_of("grain\xff");
    size_t len = teffi_reminder_make_key("dev", &ident, "name", 4, bytes);
    teffi_reminder_key key;
    assert_true(teffi_reminder_parse_key("dev", (teffi_bytes){bytes, len}, &key));
    assert_int_equal(key.partition, teffi_partition_of_hash(ident.hash));
    assert_int_equal(key.type, ident.type);
    assert_int_equal(key.grain_len, 6);
    assert_memory_equal(key.grain, "grain\xff", 6);
    assert_int_equal(key.name_len, 4);
    assert_memory_equal(key.name, "name", 4);
    assert_false(teffi_reminder_parse_key("de", (teffi_bytes){bytes, len}, &key));
    for (size_t n = 0; n < len - 3; n++) /* "n" alone is a name, too */
        assert_false(teffi_reminder_parse_key("dev", (teffi_bytes){bytes, n}, &key));
    bytes[4]++; /* another partition */
    assert_false(teffi_reminder_parse_key("dev", (teffi_bytes){bytes, len}, &key));
    bytes[4]--;
    bytes[len - 1] = 0xff; /* no UTF-8 */
    assert_false(teffi_reminder_parse_key("dev", (teffi_bytes){bytes, len}, &key));
}

static int compare(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

static void the_rows_of_a_partition_and_of_a_grain_are_ranges(void **state)
{
    uint8_t from[TEFFI_REMINDER_KEY_MAX], to[TEFFI_REMINDER_KEY_MAX], key[TEFFI_REMINDER_KEY_MAX];
    teffi_ident ident = ident_of("g");
    unsigned partition = teffi_partition_of_hash(ident.hash);
    size_t len = teffi_reminder_make_key("dev", &ident, "\xc3\xbf", 2, key);
    size_t from_len = teffi_reminder_make_partition_key("dev", partition, from);
    size_t to_len = teffi_reminder_make_partition_key("dev", partition + 1, to);
    assert_true(compare(from, from_len, key, len) < 0 && compare(key, len, to, to_len) < 0);
    from_len = teffi_reminder_make_key("dev", &ident, NULL, 0, from);
    memcpy(to, from, from_len);
    to_len = from_len;
    teffi_reminder_raise_prefix(to, &to_len);
    assert_true(compare(from, from_len, key, len) < 0 && compare(key, len, to, to_len) < 0);
    ident = ident_of("gg");
    len = teffi_reminder_make_key("dev", &ident, "a", 1, key);
    assert_false(compare(from, from_len, key, len) < 0 && compare(key, len, to, to_len) < 0);
    to_len = teffi_reminder_make_partition_key("dev", TEFFI_PARTITIONS, to);
    from_len = teffi_reminder_make_partition_key("dev", TEFFI_PARTITIONS - 1, from);
    assert_true(compare(from, from_len, to, to_len) < 0);
}

static void the_next_page_begins_after_a_key(void **state)
{
    uint8_t after[TEFFI_REMINDER_KEY_MAX], longer[TEFFI_STORE_KEY_MAX];
    size_t len = teffi_reminder_make_key_after((teffi_bytes){"dev\0a", 5}, after);
    assert_int_equal(len, 6);
    assert_memory_equal(after, "dev\0a", 6);
    memset(longer, 255, sizeof longer);
    longer[0] = 'd';
    len = teffi_reminder_make_key_after((teffi_bytes){longer, sizeof longer}, after);
    assert_int_equal(len, 1);
    assert_int_equal(after[0], 'e');
}

static void a_value_is_read_as_it_was_packed(void **state)
{
    teff_arena arena;
    Teff__Cluster__Reminder msg;
    const teffi_reminder_value value = {.id = UINT64_MAX,
                                        .next_ms = TEFFI_REMINDER_MS_MAX - 1,
                                        .period_ms = 60000,
                                        .until_ms = 7,
                                        .ticked = true,
                                        .placement = TEFF_PLACE_HASH};
    teffi_reminder_value read;
    const char *type;
    uint8_t packed[128];
    teffi_reminder_fill_message(&value, "a.Type", &msg);
    size_t len = protobuf_c_message_pack(&msg.base, packed);
    teffi_arena_init(&arena, NULL, 0, 0);
    assert_int_equal(teffi_reminder_unpack((teffi_bytes){packed, len}, &arena, &read, &type),
                     TEFF_OK);
    assert_string_equal(type, "a.Type");
    assert_true(read.id == value.id && read.next_ms == value.next_ms && read.ticked &&
                read.period_ms == 60000 && read.until_ms == 7 && read.placement == 2);
    assert_int_equal(teffi_reminder_unpack((teffi_bytes){packed, len - 1}, &arena, &read, NULL),
                     TEFF_E_MALFORMED);
    teffi_arena_fini(&arena);
    msg.next_ms = TEFFI_REMINDER_MS_MAX;
    assert_false(teffi_reminder_read_value(&msg, &read));
    msg.next_ms = 0;
    msg.period_ms = UINT64_MAX;
    assert_false(teffi_reminder_read_value(&msg, &read));
    msg.period_ms = 0;
    msg.until_ms = UINT64_MAX;
    assert_false(teffi_reminder_read_value(&msg, &read));
    msg.until_ms = 0;
    msg.placement = 3;
    assert_false(teffi_reminder_read_value(&msg, &read));
}

static const struct {
    const char *what;
    uint64_t next, period, until, now; /* in */
    uint64_t due, missed, after;
    bool last;
} plans[] = {
    {"one tick", 100, 0, 0, 100, 100, 0, 0, true},
    {"one tick, late", 100, 0, 0, 900, 100, 0, 0, true},
    {"on time", 100, 10, 0, 100, 100, 0, 110, false},
    {"a little late", 100, 10, 0, 109, 100, 0, 110, false},
    {"one missed", 100, 10, 0, 110, 110, 1, 120, false},
    {"many missed", 100, 10, 0, 1005, 1000, 90, 1010, false},
    {"early", 100, 10, 0, 95, 100, 0, 110, false},
    {"the clock was set back", 1000, 10, 0, 100, 1000, 0, 110, false},
    {"the last one", 100, 10, 109, 100, 100, 0, 110, true},
    {"the one before it", 100, 10, 110, 100, 100, 0, 110, false},
    {"missed until the end", 100, 10, 125, 1005, 120, 2, 130, true},
};

static void which_tick_comes_next(void **state)
{
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        const teffi_reminder_value value = {
            .next_ms = plans[i].next, .period_ms = plans[i].period, .until_ms = plans[i].until};
        teffi_reminder_step step = teffi_reminder_plan(&value, plans[i].now);
        if (step.due_ms != plans[i].due || step.missed != plans[i].missed ||
            step.last != plans[i].last || step.next_ms != plans[i].after)
            fail_msg("%s: due %d, missed %d, next %d, last %d", plans[i].what, (int)step.due_ms,
                     (int)step.missed, (int)step.next_ms, step.last);
    }
}

static void how_long_it_waits(void **state)
{
    teffi_reminder_value value = {.next_ms = 1000, .period_ms = 10};
    assert_int_equal(teffi_reminder_wait_ms(&value, 2000, NULL), 0);
    assert_int_equal(teffi_reminder_wait_ms(&value, 990, NULL), 10);
    assert_int_equal(teffi_reminder_wait_ms(&value, 100, NULL), 900); /* the first tick */
    value.ticked = true; /* now it is known that the clock was set back */
    assert_int_equal(teffi_reminder_wait_ms(&value, 100, NULL), 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_is_parsed_as_it_was_made),
        cmocka_unit_test(the_rows_of_a_partition_and_of_a_grain_are_ranges),
        cmocka_unit_test(the_next_page_begins_after_a_key),
        cmocka_unit_test(a_value_is_read_as_it_was_packed),
        cmocka_unit_test(which_tick_comes_next),
        cmocka_unit_test(how_long_it_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
