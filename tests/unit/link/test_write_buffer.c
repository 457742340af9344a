/* test_write_buffer.c - bytes and segments come out in order, in whatever steps they are written.
 * */
#include "test.h"

#include <stdlib.h>
#include <string.h>
#include "link/conn/buffers.h"

enum { ROUNDS = 300, MAX = 20000, KEEP = 4096 };

static uint32_t seed;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

/* What out should hold, as one piece. */
typedef struct plain {
    uint8_t bytes[40 * MAX];
    size_t len;
} plain;

static void fill(uint8_t *at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        at[i] = (uint8_t)draw(256);
}

static void put(write_buffer *out, plain *all, size_t n)
{
    assert_true(teffi_write_buffer_reserve(out, n));
    fill(out->data + out->len, n);
    memcpy(all->bytes + all->len, out->data + out->len, n);
    teffi_write_buffer_commit_data(out, n);
    all->len += n;
}

/* A frame: before bytes, a zero-copy segment, behind bytes. borrowed: where the segment lies, or
 * NULL. */
static void put_around(write_buffer *out, plain *all, size_t before, size_t cut, size_t behind,
                       uint8_t *borrowed)
{
    teffi_msg *msg = borrowed ? NULL : teffi_msg_new(TEFFI_MSG_ONEWAY);
    uint8_t *bytes = borrowed ? borrowed : teff_arena_alloc(&msg->arena, cut);
    assert_non_null(bytes);
    fill(bytes, cut);
    assert_true(teffi_write_buffer_reserve(out, before + behind));
    uint8_t *at = out->data + out->len;
    fill(at, before + behind);
    teffi_write_buffer_add_segment(out, out->len + before, bytes, cut, msg);
    teffi_write_buffer_commit_data(out, before + behind);
    memcpy(all->bytes + all->len, at, before);
    memcpy(all->bytes + all->len + before, bytes, cut);
    memcpy(all->bytes + all->len + before + cut, at + before, behind);
    all->len += before + cut + behind;
}

/* Write up to max bytes, of which the stream takes some. */
static void write_some(write_buffer *out, write_position *at, const plain *all, size_t max)
{
    struct iovec pieces[TEFFI_STREAM_PIECES];
    unsigned n;
    size_t offered = teffi_write_buffer_list_pieces(out, at, max, pieces, &n), seen = 0;
    assert_in_range(n, 1, TEFFI_STREAM_PIECES);
    assert_in_range(offered, 1, max);
    for (unsigned i = 0; i < n; i++) {
        assert_true(pieces[i].iov_len > 0);
        assert_memory_equal(pieces[i].iov_base, all->bytes + at->total + seen, pieces[i].iov_len);
        seen += pieces[i].iov_len;
    }
    assert_int_equal(seen, offered);
    size_t before = at->total, taken = draw(3) ? offered : 1 + draw((uint32_t)offered);
    teffi_write_buffer_mark_written(out, at, taken);
    assert_int_equal(at->total, before + taken);
}

static plain *new_plain(void)
{
    plain *all = calloc(1, sizeof *all);
    assert_non_null(all);
    return all;
}

static void all_comes_out_in_order(void **state)
{
    plain *all = new_plain();
    write_buffer out = {0};
    for (seed = 1; seed < ROUNDS; seed++) {
        write_position at = {0};
        uint32_t kept = seed;
        all->len = 0;
        for (uint32_t i = 0, n = 1 + draw(30); i < n; i++)
            if (draw(2))
                put(&out, all, 10 + draw(300));
            else
                put_around(&out, all, 10 + draw(50), 1 + draw(MAX), draw(2) * draw(100), NULL);
        assert_int_equal(out.total, all->len);
        while (at.total < out.total)
            write_some(&out, &at, all, 1 + draw(3 * MAX));
        assert_int_equal(at.total, all->len);
        teffi_write_buffer_reset(&out, KEEP);
        assert_int_equal(out.total, 0);
        seed = kept;
    }
    teffi_write_buffer_fini(&out);
    free(all);
}

/* However much of it is written already: borrowed bytes may go away afterwards. */
static void what_is_lent_is_copied_in_time(void **state)
{
    static uint8_t borrowed[MAX];
    plain *all = new_plain();
    for (size_t first = 0; first <= MAX + 20; first += first < 30 ? 1 : 977) {
        write_buffer out = {0};
        write_position at = {0};
        all->len = 0;
        put_around(&out, all, 12, MAX, 8, borrowed);
        if (first)
            teffi_write_buffer_mark_written(&out, &at, first);
        assert_true(teffi_write_buffer_copy_borrowed(&out, &at));
        memset(borrowed, 0, sizeof borrowed);
        while (at.total < out.total)
            write_some(&out, &at, all, MAX);
        teffi_write_buffer_fini(&out);
    }
    free(all);
}

/* Behind others, before anything is written. */
static void what_is_lent_is_copied_at_once(void **state)
{
    static uint8_t borrowed[MAX];
    plain *all = new_plain();
    write_buffer out = {0};
    write_position at = {0};
    for (int i = 0; i < 10; i++) {
        put_around(&out, all, 12, 1000, 8, NULL);
        put_around(&out, all, 12, MAX, 8, borrowed);
        assert_true(teffi_write_buffer_copy_or_drop_newest(&out));
        memset(borrowed, 0, sizeof borrowed);
    }
    assert_int_equal(out.total, all->len);
    while (at.total < out.total)
        write_some(&out, &at, all, MAX);
    teffi_write_buffer_fini(&out);
    free(all);
}

static void what_is_not_written_is_freed(void **state)
{
    plain *all = new_plain();
    write_buffer out = {0};
    write_position at = {0};
    for (int i = 0; i < 10; i++)
        put_around(&out, all, 12, 1000, 8, NULL);
    teffi_write_buffer_mark_written(&out, &at, 3500); /* in the fourth */
    teffi_write_buffer_fini(&out);                    /* a leak is the sanitizer's to find */
    assert_null(out.data);
    assert_null(out.segments);
    free(all);
}

static void memory_of_a_peak_goes_later(void **state)
{
    plain *all = new_plain();
    write_buffer out = {0};
    put(&out, all, 3 * KEEP);
    for (int i = 0; i < 15; i++) {
        teffi_write_buffer_reset(&out, KEEP);
        put(&out, all, 10);
    }
    assert_true(out.cap >= 3 * KEEP);
    for (int i = 0; i < 2; i++)
        teffi_write_buffer_reset(&out, KEEP);
    assert_int_equal(out.cap, 0);
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_comes_out_in_order),
        cmocka_unit_test(what_is_lent_is_copied_in_time),
        cmocka_unit_test(what_is_lent_is_copied_at_once),
        cmocka_unit_test(what_is_not_written_is_freed),
        cmocka_unit_test(memory_of_a_peak_goes_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
