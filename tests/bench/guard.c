/* guard.c - operations of the hot paths, to be counted by callgrind: guard.py compares the counts
 * with guard.json.
 * usage: guard OPERATION N | guard --about | guard --operations
 *        guard --silo TRANSPORT: what it starts itself
 *   exit status 75: the count is not good, another thread took the worker's place in between
 * Way:     [guard] -> scheduler, timers, processes, frames; grains: guard_calls.c */
#include "guard.h"

#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <teff/process.h>
#include "base/queue.h"
#include "guard.teff.h"
#include "os/thread.h"
#include "sched/queue/deque.h"
#include "sched/exec.h"
#include "message/frame.h"

/* How many times an operation does its work: the mutant's is once more in ten. */
#ifndef GUARD_EXTRA
#define GUARD_EXTRA 0
#endif

void guard_must(teff_err err)
{
    if (!err)
        return;
    fprintf(stderr, "guard: %s\n", teff_err_name(err));
    exit(1);
}

/* ---- marks ---- */

enum { MARKS = 3, DISTURBED = 75 };

static _Atomic unsigned started;   /* threads of workers; relaxed: looked at when all is over */
static unsigned started_at[MARKS]; /* the marks' thread */
static unsigned marks;

/* For callgrind, by name. */
__attribute__((noinline)) void guard_mark(void)
{
    __asm__ volatile("");
    started_at[marks++ % MARKS] = atomic_load_explicit(&started, memory_order_relaxed);
}

static void on_start(void *arg, uint32_t thread)
{
    (void)arg;
    (void)thread;
    atomic_fetch_add_explicit(&started, 1, memory_order_relaxed);
}

const teff_sched_options *guard_sched(void)
{
    static const teff_sched_hooks hooks = {.size = sizeof hooks, .start = on_start};
    static const teff_sched_options opt = {.size = sizeof opt, .hooks = &hooks};
    return &opt;
}

/* The exit status: did one thread do it all? */
static int ended(void)
{
    return started_at[0] == started_at[MARKS - 1] ? 0 : DISTURBED;
}

void guard_parts(void (*part)(void *arg, uint64_t n), void *arg, uint64_t n)
{
    part(arg, n);
    guard_mark();
    part(arg, n);
    guard_mark();
    part(arg, 2 * n);
    guard_mark();
}

/* ---- on a worker: two groups that push to each other; timers ---- */

typedef struct bouncer {
    teffi_group group;
    struct bouncer *other;
    teffi_item item;
    uint64_t n, left; /* the first one's */
    teffi_timer timer;
} bouncer;

static teffi_platform platform;
static teffi_exec *exec;
static teffi_parker finished;
static _Atomic int is_finished;

static void finish(void)
{
    atomic_store_explicit(&is_finished, 1, memory_order_release); /* wait_finish */
    teffi_parker_wake(&finished);
}

static void wait_finish(void)
{
    while (!atomic_load_explicit(&is_finished, memory_order_acquire)) /* finish */
        teffi_parker_wait(&finished, UINT64_MAX);
}

/* One push and one run. */
static void bounce(teffi_group *group, teffi_item *item)
{
    bouncer *b = teffi_container(group, bouncer, group);
    uint64_t at = b->left;
    if (at == 3 * b->n || at == 2 * b->n || at == 0)
        guard_mark();
    if (at == 0) {
        finish();
        return;
    }
    b->other->left = b->left - 1;
    (void)teffi_group_push(&b->other->group, item);
}

static void on_exec(const teffi_group_ops *ops, uint64_t n)
{
    bouncer pair[2] = {0};
    teffi_platform_init_real(&platform, TEFF_LOG_ERROR);
    guard_must(teffi_exec_real_new(&platform, 1, guard_sched(), &exec));
    for (int i = 0; i < 2; i++) {
        teffi_group_init(&pair[i].group, exec, ops);
        pair[i].other = &pair[1 - i];
        pair[i].n = n;
    }
    pair[0].left = 4 * n;
    (void)teffi_group_push(&pair[0].group, &pair[0].item);
    wait_finish();
    exec->ops->free(exec);
}

void guard_group(uint64_t n)
{
    static const teffi_group_ops ops = {.handle = bounce};
    on_exec(&ops, n);
}

static void late(teffi_timer *timer)
{
    (void)timer;
    fprintf(stderr, "guard: a timer fired early\n");
    exit(1);
}

/* Set and cancel, due in half a minute to a minute and a half. */
static void churn(void *arg, uint64_t n)
{
    bouncer *b = arg;
    uint64_t now = teffi_now(&platform);
    for (uint64_t i = 0; i < n; i++) {
        exec->ops->timer_set(exec, &b->timer, now + (30000 + i * 7 % 60000) * 1000000u);
        (void)exec->ops->timer_cancel(exec, &b->timer);
    }
}

static void time_it(teffi_group *group, teffi_item *item)
{
    bouncer *b = teffi_container(group, bouncer, group);
    (void)item;
    b->timer.fire = late;
    guard_parts(churn, b, b->n);
    finish();
}

void guard_timer(uint64_t n)
{
    static const teffi_group_ops ops = {.handle = time_it};
    on_exec(&ops, n);
}

/* ---- stealing: what a thief pays for a group, its owner's push with it ---- */

static void push_and_steal(void *arg, uint64_t n)
{
    static int items[64];
    void *stolen[TEFFI_STEAL_MAX];
    teffi_deque *deque = arg;
    for (uint64_t done = 0; done < n; done += 64) {
        for (int i = 0; i < 64; i++)
            (void)teffi_deque_push(deque, &items[i]);
        while (teffi_deque_steal(deque, stolen, TEFFI_STEAL_MAX) > 0)
            continue;
    }
}

void guard_steal(uint64_t n)
{
    teffi_deque deque;
    if (!teffi_deque_init(&deque))
        guard_must(TEFF_E_NOMEM);
    guard_parts(push_and_steal, &deque, n);
    teffi_deque_fini(&deque);
}

/* ---- processes: an event from one to another ---- */

static teff_process_system *processes;
static uint64_t events_n;

static void tell(teff_pid to, teff_pid from, uint64_t tag)
{
    guard_must(teff_process_send(processes, to, &(teff_event){.tag = tag, .from = from}));
}

static teff_err step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    (void)self;
    if (n == 0)
        return TEFF_OK;
    if (events[0].kind == TEFF_EVENT_CANCEL)
        return teff_step_done(out);
    uint64_t at = events[0].tag;
    if (at == 3 * events_n || at == 2 * events_n || at == 0)
        guard_mark();
    if (at == 0)
        finish();
    else
        tell(events[0].from, teff_process_pid(teff_step_process(out)), at - 1);
    return TEFF_OK;
}

void guard_process(uint64_t n)
{
    static const teff_process_ops ops = {.name = "guard", .step = step};
    teff_process_options opt = {.size = sizeof opt, .workers = 1, .sched = guard_sched()};
    teff_pid pair[2];
    guard_must(teff_process_system_new(&opt, &processes));
    for (int i = 0; i < 2; i++)
        guard_must(teff_process_spawn(processes, &ops, NULL, NULL, NULL, 0, &pair[i]));
    events_n = n;
    tell(pair[0], pair[1], 4 * n);
    wait_finish();
    teff_process_system_free(processes);
}

/* ---- frames: a small request as bytes, and back until a turn could begin ---- */

enum { NOW_NS = 1000000000, FRAME_MAX = 1 << 20 };

typedef struct framed {
    teffi_msg *msg;
    uint8_t bytes[512];
    size_t size;
} framed;

static void encode_one(framed *f)
{
    size_t body_len;
    guard_must(teffi_frame_compute_size_bound(f->msg, FRAME_MAX, &f->size, &body_len));
    if (f->size > sizeof f->bytes)
        guard_must(TEFF_E_TOO_LARGE);
    f->size = teffi_frame_encode(f->msg, body_len, NOW_NS, f->bytes);
}

static void encode(void *arg, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        encode_one(arg);
        if (GUARD_EXTRA && i % 10 == 0)
            encode_one(arg);
    }
}

static void decode(void *arg, uint64_t n)
{
    framed *f = arg;
    for (uint64_t i = 0; i < n; i++) {
        teffi_frame frame;
        teffi_msg *msg;
        size_t size;
        guard_must(teffi_frame_peek(f->bytes, f->size, FRAME_MAX, &size, &frame));
        guard_must(teffi_frame_decode(&frame, NULL, NOW_NS, &msg));
        guard_must(teffi_msg_unpack(msg, &guard__small__descriptor));
        teffi_msg_free(msg);
    }
}

static void on_frame(void (*part)(void *arg, uint64_t n), uint64_t n)
{
    framed f = {.msg = teffi_msg_new(TEFFI_MSG_REQUEST)};
    if (!f.msg)
        guard_must(TEFF_E_NOMEM);
    guard_small *body = guard_small(.number = 123456, .name = "small");
    f.msg->src = (teffi_node_id){0x12345678, 3};
    f.msg->to = (teffi_pid){{0x23456789, 2}, 4711, 1};
    f.msg->call.slot = 815;
    f.msg->call.generation = 7;
    f.msg->type_id = 0x3456789a;
    f.msg->method_id = 0x456789ab;
    f.msg->deadline_ns = (uint64_t)NOW_NS * 31;
    f.msg->key = (const uint8_t *)"\x02\x00\x00\x00\x00\x00\x00\x12\x67";
    f.msg->key_len = 9;
    f.msg->body = &body->base;
    encode_one(&f);
    guard_parts(part, &f, n);
    teffi_msg_free(f.msg);
}

void guard_encode(uint64_t n)
{
    on_frame(encode, n);
}

void guard_decode(uint64_t n)
{
    on_frame(decode, n);
}

/* ---- */

static const struct operation {
    const char *name;
    unsigned n; /* of which guard.py wants a count */
    guard_operation *run;
    void (*run_named)(const char *operation, uint64_t n); /* if run is NULL */
} operations[] = {
    {"call", 4000, NULL, guard_calls},
    {"call-many", 8192, NULL, guard_calls},
    {"call-hooks", 4000, NULL, guard_calls},
    {"call-multilevel", 4000, NULL, guard_calls},
    {"call-priority", 4000, NULL, guard_calls},
    {"call-queued", 2000, NULL, guard_calls},
    {"fan-out-queued", 4096, NULL, guard_calls},
    {"one-way-queued", 6400, NULL, guard_calls},
    {"activation", 4000, NULL, guard_calls},
    {"group", 40000, guard_group, NULL},
    {"steal", 64000, guard_steal, NULL},
    {"timer", 40000, guard_timer, NULL},
    {"process-event", 20000, guard_process, NULL},
    {"frame-encode", 20000, guard_encode, NULL},
    {"frame-decode", 20000, guard_decode, NULL},
    {"client-fan-out-nng", 6400, NULL, guard_client},
    {"client-fan-out-reactor", 6400, NULL, guard_client},
};

/* What a count depends on beside the sources. */
static int about(void)
{
#ifdef __OPTIMIZE__
    const char *optimized = "yes";
#else
    const char *optimized = "no";
#endif
    printf(
        "{\"compiler\": \"%s\", \"optimized\": \"%s\", \"libc\": \"%s\", \"protobuf-c\": \"%s\"}\n",
        __VERSION__, optimized, gnu_get_libc_version(), protobuf_c_version());
    return 0;
}

int main(int argc, char **argv)
{
    size_t n = sizeof operations / sizeof operations[0];
    if (argc == 2 && strcmp(argv[1], "--about") == 0)
        return about();
    if (argc == 2 && strcmp(argv[1], "--operations") == 0) {
        for (size_t i = 0; i < n; i++)
            printf("%s %u\n", operations[i].name, operations[i].n);
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "--silo") == 0) {
        guard_silo(argv[2]);
        return 0;
    }
    for (size_t i = 0; argc == 3 && i < n; i++) {
        if (strcmp(argv[1], operations[i].name) != 0)
            continue;
        uint64_t times = strtoull(argv[2], NULL, 10);
        if (operations[i].run)
            operations[i].run(times);
        else
            operations[i].run_named(operations[i].name, times);
        return ended();
    }
    fprintf(stderr, "usage: guard OPERATION N | guard --about | guard --operations\n");
    return 2;
}
