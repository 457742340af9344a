/* chaos_client.c - threads that read and write registers, and print one JSON line an operation.
 * usage: chaos_client NUMBER LANES KEYS PAUSE_MS TIMEOUT_MS PLANT GATEWAY...
 *   NUMBER: of this client, from 1; a part of the numbers of its writes
 *   LANES: threads, each with one operation at a time; PAUSE_MS: the longest one between two
 *   PLANT: a bug that the check of the histories must find. In calls with a key that are made
 *     again: keyless: they have no key; reread: their answer is that of a read. In transactions:
 *     split: those that read make two calls instead; none
 * Until standard input ends. Then each register is read until it answers, at most 60 times.
 *     Some writes have an idempotency key: such a call is made again until it is answered, and some
 * are made again after that, which is a line of its own.
 *
 *   {"o": "w" or "r", or "a": a write that was answered, asked again, "k": key,
 *    "b": the key of the other register, if it is a transaction,
 *    "s": start, "e": end, both in nanoseconds of CLOCK_MONOTONIC, "c": the number of the error,
 *    "u": 1 if the outcome is unknown, "i": the number of the write,
 *    "n": how often the call was made, if it has a key,
 *    "v": version, "a": activation that answered, "t": [[writer, activation], ...], newest first,
 *    "bv", "ba", "bt": the same of the other register}
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "chaos.teff.h"

enum { LANES_MAX = 256, LINE_BYTES = 4096, HISTORY = 64, LONG_LOOK = 8, LAST_TRIES = 60 };

/* KEYED, AGAIN, HURRIED: one other write, one answer, one call in so many. A call is made again for
 * KEYED_MS: in that time a register gets fewer other answers than it keeps (chaos.proto). */
enum {
    PAIRED = 6, /* one operation in so many is a transaction */
    KEYED = 4,
    AGAIN = 4,
    HURRIED = 8,
    HURRY_MS = 20,
    KEYED_MS = 20000,
    REPEAT_MS = 200,
    AGAIN_MS = 2000
};

typedef struct lane {
    pthread_t thread;
    teff_ctx *ctx;
    uint64_t number, writes, seed; /* number: of client and lane, the upper half of a write's */
} lane;

typedef struct operation {
    const char *kind;
    int64_t key, other;     /* other: -1: it is no transaction */
    uint64_t start, writer; /* writer: 0: a read */
    unsigned calls;         /* with an idempotency key; 0: it has none */
} operation;

typedef enum plant { PLANT_NONE, PLANT_KEYLESS, PLANT_REREAD, PLANT_SPLIT } plant;

static plant planted;
static teff_client *client;
static atomic_bool stops;
static int64_t keys;
static uint32_t pause_ms;

static uint64_t get_now(void)
{
    struct timespec t = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t draw_number(lane *l)
{
    l->seed ^= l->seed << 13;
    l->seed ^= l->seed >> 7;
    l->seed ^= l->seed << 17;
    return l->seed;
}

static void sleep_ms(uint64_t ms)
{
    struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

/* in: whose, "" or "b". out: the line's new length. */
static int print_seen(char *line, int n, const char *whose, const chaos_seen *seen)
{
    n += snprintf(line + n, (size_t)(LINE_BYTES - n),
                  ",\"%sv\":%" PRIu64 ",\"%sa\":%" PRIu64 ",\"%st\":[", whose, seen->version, whose,
                  seen->activation, whose);
    for (size_t i = 0; i < seen->n_writers && i < seen->n_activations && n < LINE_BYTES - 64; i++)
        n += snprintf(line + n, (size_t)(LINE_BYTES - n), "%s[%" PRIu64 ",%" PRIu64 "]",
                      i ? "," : "", seen->writers[i], seen->activations[i]);
    return n + snprintf(line + n, (size_t)(LINE_BYTES - n), "]");
}

/* With a key, a later call may store what the store has refused. */
static bool is_unknown(const operation *o, teff_err err)
{
    return err && (o->calls ? err != TEFF_E_INVALID : teff_call_may_have_run(err));
}

/* One write() a line, so that lines of several threads do not mix. in: other, of a transaction. */
static void print_operation(const operation *o, teff_err err, const chaos_seen *seen,
                            const chaos_seen *other)
{
    char line[LINE_BYTES];
    int n = snprintf(line, sizeof line,
                     "{\"o\":\"%s\",\"k\":%" PRId64 ",\"s\":%" PRIu64 ",\"e\":%" PRIu64
                     ",\"c\":%d,\"u\":%d",
                     o->kind, o->key, o->start, get_now(), (int)err, is_unknown(o, err));
    if (o->writer)
        n += snprintf(line + n, sizeof line - (size_t)n, ",\"i\":%" PRIu64, o->writer);
    if (o->calls)
        n += snprintf(line + n, sizeof line - (size_t)n, ",\"n\":%u", o->calls);
    if (o->other >= 0)
        n += snprintf(line + n, sizeof line - (size_t)n, ",\"b\":%" PRId64, o->other);
    if (!err)
        n = print_seen(line, n, "", seen);
    if (!err && o->other >= 0)
        n = print_seen(line, n, "b", other);
    n += snprintf(line + n, sizeof line - (size_t)n, "}\n");
    if (write(STDOUT_FILENO, line, (size_t)n) != n)
        exit(1);
}

static void write_key(lane *l, int64_t key)
{
    operation o = {"w", key, -1, get_now(), l->number << 32 | ++l->writes, 0};
    chaos_seen *seen = NULL;
    teff_err err = chaos_register_write(l->ctx, key, chaos_change(.writer = o.writer), &seen);
    print_operation(&o, err, seen, NULL);
    teff_ctx_reset(l->ctx);
}

/* ---- writes with a key ---- */

static teff_err call_once(lane *l, operation *o, chaos_seen **seen)
{
    bool again = o->calls++ > 0;
    teff_uuid id = {{0}};
    teff_call_options options = {.size = sizeof options, .once = &id};
    teff_call call;
    memcpy(id.bytes, &o->writer, sizeof o->writer);
    if (again && planted == PLANT_REREAD)
        return chaos_register_read(l->ctx, o->key, chaos_look(.length = 1), seen);
    if (again && planted == PLANT_KEYLESS)
        options.once = NULL;
    if ((draw_number(l) >> 8) % HURRIED == 0)
        options.timeout_ms = 1 + (uint32_t)((draw_number(l) >> 8) % HURRY_MS);
    teff_err err = chaos_register_write_async(l->ctx, o->key, chaos_change(.writer = o->writer),
                                              &options, &call);
    return err ? err : chaos_register_write_await(l->ctx, call, seen);
}

/* Until it is answered, refused, or late. */
static teff_err call_until_answered(lane *l, operation *o, chaos_seen **seen)
{
    uint64_t until = get_now() + KEYED_MS * UINT64_C(1000000);
    teff_err err = call_once(l, o, seen);
    while (err && err != TEFF_E_INVALID && get_now() < until) {
        teff_ctx_reset(l->ctx);
        sleep_ms((draw_number(l) >> 8) % REPEAT_MS);
        err = call_once(l, o, seen);
    }
    print_operation(o, err, *seen, NULL);
    teff_ctx_reset(l->ctx);
    return err;
}

static void write_once(lane *l, int64_t key)
{
    operation o = {"w", key, -1, get_now(), l->number << 32 | ++l->writes, 0};
    chaos_seen *seen = NULL;
    teff_err err = call_until_answered(l, &o, &seen);
    if (err || (!planted && (draw_number(l) >> 8) % AGAIN))
        return;
    /* its activation may end; a planted bug shows within a short run */
    sleep_ms((draw_number(l) >> 8) % (planted ? REPEAT_MS : AGAIN_MS));
    o.kind = "a";
    o.start = get_now();
    (void)call_until_answered(l, &o, &seen);
}

/* ---- transactions ---- */

static void write_both(lane *l, int64_t key, int64_t other)
{
    operation o = {"w", key, other, get_now(), l->number << 32 | ++l->writes, 0};
    chaos_seen_both *seen = NULL;
    teff_err err = chaos_register_write_both(
        l->ctx, key, chaos_change_both(.writer = o.writer, .other = other), &seen);
    print_operation(&o, err, err ? NULL : seen->own, err ? NULL : seen->other);
    teff_ctx_reset(l->ctx);
}

/* The planted bug: other operations may happen between the two reads. */
static void read_split(lane *l, int64_t key, int64_t other)
{
    operation o = {"r", key, other, get_now(), 0, 0};
    chaos_seen *one = NULL, *two = NULL;
    teff_err err = chaos_register_read(l->ctx, key, chaos_look(.length = 1), &one);
    sleep_ms((draw_number(l) >> 8) % HURRY_MS);
    err = err ? err : chaos_register_read(l->ctx, other, chaos_look(.length = 1), &two);
    print_operation(&o, err, one, two);
    teff_ctx_reset(l->ctx);
}

static void read_both(lane *l, int64_t key, int64_t other)
{
    operation o = {"r", key, other, get_now(), 0, 0};
    chaos_seen_both *seen = NULL;
    teff_err err = chaos_register_read_both(l->ctx, key, chaos_look_both(.other = other), &seen);
    print_operation(&o, err, err ? NULL : seen->own, err ? NULL : seen->other);
    teff_ctx_reset(l->ctx);
}

static void run_transaction(lane *l, int64_t key)
{
    uint64_t kind = draw_number(l) >> 8;
    if (planted == PLANT_SPLIT)
        key %= 2;
    int64_t other =
        planted == PLANT_SPLIT ? 1 - key : (key + 1 + (int64_t)(kind / 2) % (keys - 1)) % keys;
    if (kind % 2)
        write_both(l, key, other);
    else if (planted == PLANT_SPLIT)
        read_split(l, key, other);
    else
        read_both(l, key, other);
}

/* ---- the lanes ---- */

static teff_err read_key(lane *l, int64_t key, uint32_t length)
{
    operation o = {"r", key, -1, get_now(), 0, 0};
    chaos_seen *seen = NULL;
    teff_err err = chaos_register_read(l->ctx, key, chaos_look(.length = length), &seen);
    print_operation(&o, err, seen, NULL);
    teff_ctx_reset(l->ctx);
    return err;
}

static void *run_lane(void *arg)
{
    lane *l = arg;
    while (!atomic_load_explicit(&stops, memory_order_relaxed)) { /* seen some time */
        int64_t key = (int64_t)(draw_number(l) >> 8) % keys;
        uint64_t kind = draw_number(l) >> 8;
        if (kind / 64 % (planted == PLANT_SPLIT ? 2 : PAIRED) == 0)
            run_transaction(l, key);
        else if (kind % 2 && kind / 2 % KEYED == 0)
            write_once(l, key);
        else if (kind % 2)
            write_key(l, key);
        else
            (void)read_key(l, key, kind / 2 % LONG_LOOK ? 1 : HISTORY);
        sleep_ms((draw_number(l) >> 8) % (pause_ms + 1));
    }
    return NULL;
}

/* Reads what has stayed. */
static void read_all(lane *l)
{
    for (int64_t key = 0; key < keys; key++)
        for (int i = 0; i < LAST_TRIES && read_key(l, key, HISTORY) != TEFF_OK; i++)
            sleep_ms(500);
}

static void start_lane(lane *l, uint64_t client_number, uint64_t n, uint32_t timeout_ms)
{
    l->number = client_number << 16 | n;
    l->seed = l->number * UINT64_C(0x9e3779b97f4a7c15);
    l->ctx = teff_client_new_ctx(client);
    if (!l->ctx)
        exit(1);
    teff_ctx_set_timeout(l->ctx, timeout_ms);
    if (pthread_create(&l->thread, NULL, run_lane, l) != 0)
        exit(1);
}

static void connect_client(char **gateways)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_client_options options = {.size = sizeof options, .cluster = "chaos"};
    for (int i = 0; gateways[i] && i < TEFF_SEEDS_MAX - 1; i++)
        options.gateways[i] = gateways[i];
    if (teff_client_connect(&options, &client, text)) {
        fprintf(stderr, "chaos_client: %s\n", text);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    static lane lanes[LANES_MAX];
    char byte;
    if (argc < 8 || atoi(argv[2]) < 1 || atoi(argv[2]) > LANES_MAX || atoi(argv[3]) < 2) {
        fprintf(stderr, "usage: %s NUMBER LANES KEYS PAUSE_MS TIMEOUT_MS PLANT GATEWAY...\n",
                argv[0]);
        return 2;
    }
    int n = atoi(argv[2]);
    keys = atoi(argv[3]);
    pause_ms = (uint32_t)atoi(argv[4]);
    planted = strcmp(argv[6], "keyless") == 0  ? PLANT_KEYLESS
              : strcmp(argv[6], "reread") == 0 ? PLANT_REREAD
              : strcmp(argv[6], "split") == 0  ? PLANT_SPLIT
                                               : PLANT_NONE;
    connect_client(argv + 7);
    for (int i = 0; i < n; i++)
        start_lane(&lanes[i], (uint64_t)atoi(argv[1]), (uint64_t)i, (uint32_t)atoi(argv[5]));
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    atomic_store_explicit(&stops, true, memory_order_relaxed);
    for (int i = 0; i < n; i++)
        pthread_join(lanes[i].thread, NULL);
    read_all(&lanes[0]);
    for (int i = 0; i < n; i++)
        teff_ctx_free(lanes[i].ctx);
    teff_client_free(client);
    return 0;
}
