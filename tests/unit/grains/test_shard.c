/* test_shard.c - activations found without a lock: two of one hash, and among many that come and
 * go; what they hold of memory. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "directory/shard.h"
#include "activation/ident.h"
#include "lab.h"

static lab *l;

static int setup(void **state)
{
    l = lab_open(1);
    return 0;
}

static int teardown(void **state)
{
    lab_close(l);
    return 0;
}

/* ---- hash collisions ---- */

/* The linker sends the library's calls here: keys of sixteen bytes all collide. */
uint64_t __real_teffi_siphash(const teffi_sipkey *key, const void *data, size_t n);
uint64_t __wrap_teffi_siphash(const teffi_sipkey *key, const void *data, size_t n);

uint64_t __wrap_teffi_siphash(const teffi_sipkey *key, const void *data, size_t n)
{
    return n == sizeof(teff_uuid) ? 5 : __real_teffi_siphash(key, data, n);
}

static teff_uuid uuid_of(uint64_t first, uint64_t second)
{
    teff_uuid uuid;
    memcpy(uuid.bytes, &first, 8);
    memcpy(uuid.bytes + 8, &second, 8);
    return uuid;
}

static void assert_is(teff_uuid key)
{
    char text[40];
    lab_text *out;
    for (int i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", key.bytes[i]);
    lab_ok(l->ctx[0], lab_ids_who(l->ctx[0], key, &out));
    assert_string_equal(out->text, text);
}

static teffi_ident ident_of(const teff_uuid *key)
{
    return teffi_ident_of(&l->silos[0]->node.grains->secret, lab_ids_info.id, key->bytes, 16);
}

static void two_grains_of_one_hash_live_side_by_side(void **state)
{
    teff_uuid a = uuid_of(1, 2), b;
    uint64_t second = 0;
    do
        b = uuid_of(77, second++); /* of 256 one has the same partition */
    while (ident_of(&a).hash != ident_of(&b).hash);
    assert_memory_not_equal(a.bytes, b.bytes, 16);
    for (int i = 0; i < 10; i++) {
        assert_is(a);
        assert_is(b);
    }
}

/* ---- among many ---- */

enum { CALLERS = 3, KEYS = 400, CALLS = 4000 };

typedef struct caller {
    pthread_t thread;
    teff_ctx *ctx;
    unsigned no;
    teff_err err;
} caller;

/* Grains end and come back under other grains' memory while all of them are called. */
static void *add_here_and_there(void *arg)
{
    caller *c = arg;
    char key[20];
    lab_number *out;
    for (unsigned i = 0; i < CALLS && !c->err; i++) {
        snprintf(key, sizeof key, "key-%u", (i * 17 + c->no * 5) % KEYS);
        c->err = lab_account_add(c->ctx, key, lab_number(.n = 1), &out);
        if (!c->err && i % 3 == 0)
            c->err = lab_account_quit(c->ctx, key);
        if (i % 50 == 0)
            teff_ctx_reset(c->ctx);
    }
    return NULL;
}

static void every_call_reaches_its_grain_while_others_end(void **state)
{
    caller callers[CALLERS] = {0};
    char key[20];
    lab_number *out;
    int64_t sum = 0;
    for (unsigned i = 0; i < CALLERS; i++) {
        callers[i].ctx = teff_silo_new_ctx(l->silos[0]);
        callers[i].no = i;
        assert_int_equal(pthread_create(&callers[i].thread, NULL, add_here_and_there, &callers[i]),
                         0);
    }
    for (unsigned i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        lab_ok(callers[i].ctx, callers[i].err);
        teff_ctx_free(callers[i].ctx);
    }
    for (unsigned i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "key-%u", i);
        lab_ok(l->ctx[0], lab_account_add(l->ctx[0], key, lab_number(.n = 0), &out));
        sum += out->n;
    }
    assert_int_equal(sum, CALLERS * CALLS);
}

/* ---- memory ---- */

static teffi_shards *shards_here(void)
{
    return l->silos[0]->node.grains->shards;
}

/* Entries of the blocks that are not decommitted. */
static uint32_t entries_held(teffi_slab *slab)
{
    pthread_mutex_lock(&slab->lock);
    uint32_t blocks = teffi_slab_block_count(slab) - slab->n[TEFFI_SLAB_DECOMMITTED];
    pthread_mutex_unlock(&slab->lock);
    return blocks * TEFFI_SLAB_BLOCK;
}

static void memory_of_grains_that_ended_goes_back(void **state)
{
    enum { N = 12000 };
    teffi_slab *slab = &shards_here()->memory;
    lab_number *out;
    char key[20];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2 * N; i++) {
            snprintf(key, sizeof key, "passing-%d", i % N);
            lab_ok(l->ctx[0], i < N ? lab_account_add(l->ctx[0], key, lab_number(.n = 1), &out)
                                    : lab_account_quit(l->ctx[0], key));
            if (i == N)
                assert_true(entries_held(slab) >= N - 1);
            teff_ctx_reset(l->ctx[0]);
        }
        lab_until(shards_here()->activations == 0);
        lab_until(entries_held(slab) <= N / 2);
    }
}

/* Two grains of one hash: which one an activation is shows only under the lock. */
static void with_a_collision_only_the_lock_can_tell(void **state)
{
    teffi_grains *grains = l->silos[0]->node.grains;
    const teffi_ident ident = teffi_ident_of(&grains->secret, lab_turns_info.id,
                                             (const uint8_t *)"nobody", sizeof "nobody" - 1);
    bool certain = false;
    assert_null(teffi_shard_find_activation_without_lock(grains, &ident, &certain));
    assert_true(certain);
    teffi_shard_set_hash_collision(grains, ident.hash);
    assert_null(teffi_shard_find_activation_without_lock(grains, &ident, &certain));
    assert_false(certain);
}

/* The part that holds what waits is there while something does. */
static void what_is_made_when_needed_goes_when_idle(void **state)
{
    teff_call calls[3];
    lab_number *out;
    bool certain;
    const teffi_ident ident = teffi_ident_of(&l->silos[0]->node.grains->secret, lab_turns_info.id,
                                             (const uint8_t *)"busy", sizeof "busy" - 1);
    for (int round = 1; round <= 3; round++) {
        l->record.gate = false;
        for (int i = 0; i < 3; i++)
            lab_ok(l->ctx[0], lab_turns_write_async(l->ctx[0], "busy", lab_step(.hold = true), NULL,
                                                    &calls[i]));
        lab_until(l->record.held == 1);
        teffi_activation *act =
            teffi_shard_find_activation_without_lock(l->silos[0]->node.grains, &ident, &certain);
        assert_non_null(act);
        /* acquire, both: the group is at rest, and what it did before is seen */
        lab_until(teffi_group_state_of(&act->group) == TEFFI_GROUP_IDLE && act->queued == 2);
        assert_non_null(act->more);
        l->record.gate = true;
        for (int i = 0; i < 3; i++)
            lab_ok(l->ctx[0], lab_turns_write_await(l->ctx[0], calls[i], &out));
        lab_until(teffi_group_state_of(&act->group) == TEFFI_GROUP_IDLE);
        assert_null(act->more);
        assert_int_equal(act->queued, 0);
    }
}

/* ---- walking ---- */

enum { GRAINS = 100 };

typedef struct walk {
    unsigned seen, left; /* left: until it stops */
    bool twice;          /* met one again */
    teffi_activation *met[GRAINS];
} walk;

static bool meet(void *arg, teffi_activation *act)
{
    walk *w = arg;
    for (unsigned i = 0; i < w->seen; i++)
        w->twice |= w->met[i] == act;
    w->met[w->seen++] = act;
    return --w->left > 0;
}

static void begin_grains(void)
{
    lab_number *out;
    char key[20];
    for (int i = 0; i < GRAINS; i++) {
        snprintf(key, sizeof key, "walked-%d", i);
        lab_ok(l->ctx[0], lab_account_add(l->ctx[0], key, lab_number(.n = 1), &out));
    }
}

/* It goes on where it stopped, and says when it is through. */
static void a_walk_meets_each_activation_once(void **state)
{
    teffi_grains *grains = l->silos[0]->node.grains;
    begin_grains();
    for (unsigned step = 1; step <= GRAINS + 1; step += 33) {
        walk w = {.left = step};
        uint64_t cursor = 0;
        unsigned stops = 0;
        while (!teffi_shards_walk_activations(grains, NULL, &cursor, meet, &w)) {
            assert_int_equal(w.seen, ++stops * step);
            assert_true(cursor != 0);
            w.left = step;
        }
        assert_int_equal(w.seen, GRAINS);
        assert_int_equal(stops, GRAINS / step);
        assert_int_equal(cursor, 0);
        assert_false(w.twice);
    }
}

static void a_walk_keeps_to_the_partitions_that_are_asked_for(void **state)
{
    teffi_grains *grains = l->silos[0]->node.grains;
    uint8_t set[TEFFI_PARTITION_SET_BYTES] = {0};
    walk w = {.left = GRAINS + 1};
    uint64_t cursor = 0;
    begin_grains();
    assert_true(teffi_shards_walk_activations(grains, set, &cursor, meet, &w));
    assert_int_equal(w.seen, 0);
    memset(set, 0xff, sizeof set / 2);
    assert_true(teffi_shards_walk_activations(grains, set, &cursor, meet, &w));
    assert_in_range(w.seen, 1, GRAINS - 1);
    for (unsigned i = 0; i < w.seen; i++)
        assert_true(teffi_partition_of_hash(teffi_activation_ident(w.met[i]).hash) <
                    TEFFI_PARTITIONS / 2);
}

int main(void)
{
#define SHARD(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        SHARD(two_grains_of_one_hash_live_side_by_side),
        SHARD(every_call_reaches_its_grain_while_others_end),
        SHARD(memory_of_grains_that_ended_goes_back),
        SHARD(with_a_collision_only_the_lock_can_tell),
        SHARD(what_is_made_when_needed_goes_when_idle),
        SHARD(a_walk_meets_each_activation_once),
        SHARD(a_walk_keeps_to_the_partitions_that_are_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
