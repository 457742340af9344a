/* chaos_client.c - threads that read and write registers, and print one JSON line an operation.
 * usage: chaos_client NUMBER LANES KEYS PAUSE_MS TIMEOUT_MS GATEWAY...
 *   NUMBER: of this client, from 1; a part of the numbers of its writes
 *   LANES: threads, each with one operation at a time; PAUSE_MS: the longest one between two
 * Until standard input ends. Then each register is read until it answers, at most 60 times.
 *
 *   {"o": "w" or "r", "k": key, "s": start, "e": end, both in nanoseconds of CLOCK_MONOTONIC,
 *    "c": the number of the error, "u": 1 if the outcome is unknown, "i": the number of the write,
 *    "v": version, "a": activation that answered, "t": [[writer, activation], ...], newest first}
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "chaos.teff.h"

enum { LANES_MAX = 256, LINE_BYTES = 4096, HISTORY = 64, LONG_LOOK = 8, LAST_TRIES = 60 };

typedef struct lane {
    pthread_t thread;
    teff_ctx *ctx;
    uint64_t number, writes, seed; /* number: of client and lane, the upper half of a write's */
} lane;

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

/* out: the line's new length. */
static int print_seen(char *line, int n, const chaos_seen *seen)
{
    n += snprintf(line + n, (size_t)(LINE_BYTES - n),
                  ",\"v\":%" PRIu64 ",\"a\":%" PRIu64 ",\"t\":[", seen->version, seen->activation);
    for (size_t i = 0; i < seen->n_writers && i < seen->n_activations && n < LINE_BYTES - 64; i++)
        n += snprintf(line + n, (size_t)(LINE_BYTES - n), "%s[%" PRIu64 ",%" PRIu64 "]",
                      i ? "," : "", seen->writers[i], seen->activations[i]);
    return n + snprintf(line + n, (size_t)(LINE_BYTES - n), "]");
}

/* in: writer: 0: a read. One write() a line, so that lines of several threads do not mix. */
static void print_operation(uint64_t writer, int64_t key, uint64_t start, teff_err err,
                            const chaos_seen *seen)
{
    char line[LINE_BYTES];
    int n = snprintf(
        line, sizeof line,
        "{\"o\":\"%s\",\"k\":%" PRId64 ",\"s\":%" PRIu64 ",\"e\":%" PRIu64 ",\"c\":%d,\"u\":%d",
        writer ? "w" : "r", key, start, get_now(), (int)err, err && teff_err_unknown(err) ? 1 : 0);
    if (writer)
        n += snprintf(line + n, sizeof line - (size_t)n, ",\"i\":%" PRIu64, writer);
    if (!err)
        n = print_seen(line, n, seen);
    n += snprintf(line + n, sizeof line - (size_t)n, "}\n");
    if (write(STDOUT_FILENO, line, (size_t)n) != n)
        exit(1);
}

static void write_key(lane *l, int64_t key)
{
    uint64_t start = get_now(), writer = l->number << 32 | ++l->writes;
    chaos_seen *seen = NULL;
    teff_err err = chaos_register_write(l->ctx, key, chaos_change(.writer = writer), &seen);
    print_operation(writer, key, start, err, seen);
    teff_ctx_reset(l->ctx);
}

static teff_err read_key(lane *l, int64_t key, uint32_t length)
{
    uint64_t start = get_now();
    chaos_seen *seen = NULL;
    teff_err err = chaos_register_read(l->ctx, key, chaos_look(.length = length), &seen);
    print_operation(0, key, start, err, seen);
    teff_ctx_reset(l->ctx);
    return err;
}

static void *run_lane(void *arg)
{
    lane *l = arg;
    while (!atomic_load_explicit(&stops, memory_order_relaxed)) { /* seen some time */
        int64_t key = (int64_t)(draw_number(l) >> 8) % keys;
        uint64_t kind = draw_number(l) >> 8;
        if (kind % 2)
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
    l->ctx = teff_client_ctx(client);
    if (!l->ctx)
        exit(1);
    teff_ctx_timeout(l->ctx, timeout_ms);
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
    if (argc < 7 || atoi(argv[2]) < 1 || atoi(argv[2]) > LANES_MAX || atoi(argv[3]) < 1) {
        fprintf(stderr, "usage: %s NUMBER LANES KEYS PAUSE_MS TIMEOUT_MS GATEWAY...\n", argv[0]);
        return 2;
    }
    int n = atoi(argv[2]);
    keys = atoi(argv[3]);
    pause_ms = (uint32_t)atoi(argv[4]);
    connect_client(argv + 6);
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
