/* lone_silo.c - the executor, clock, network and life of a silo on one thread. */
#include "lone_silo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "fiber/fiber.h"
#include "group/closure.h"
#include "group/group.h"
#include "message/frame.h"

enum { READY_MAX = 4096, RUNS_MAX = 200000, ITEMS_MAX = 4, LATE_NS = 50000000 };

static lone_silo *open_silo; /* the one that is open */
static uint64_t clock_ns, bits_drawn;

/* ---- clock, random numbers, log ---- */

static uint64_t read_moved_clock(void *arg)
{
    (void)arg;
    return clock_ns;
}

static uint64_t draw_counted_bits(void *arg)
{
    (void)arg;
    bits_drawn += 0x9e3779b97f4a7c15u;
    return (bits_drawn ^ bits_drawn >> 29) * 0xbf58476d1ce4e5b9u;
}

static void drop_log_line(void *arg, teff_log_level level, const char *line)
{
    (void)arg;
    teffi_bug_if(!line[0] || level > TEFF_LOG_INFO);
}

/* ---- the executor ---- */

typedef struct lone_exec {
    teffi_exec base;
    teffi_group *ready[READY_MAX]; /* a ring */
    unsigned first, n_ready;
    LIST_HEAD(, teffi_timer) timers;
    teffi_group *running;
    bool stopped;
} lone_exec;

static lone_exec executor;

static void queue_ready_group(teffi_exec *base, teffi_group *group)
{
    (void)base;
    if (executor.stopped)
        return;
    teffi_bug_if(executor.n_ready == READY_MAX);
    executor.ready[(executor.first + executor.n_ready++) % READY_MAX] = group;
}

static void run_first_group(void)
{
    teffi_group *group = executor.ready[executor.first], *outer = executor.running;
    executor.first = (executor.first + 1) % READY_MAX;
    executor.n_ready--;
    executor.running = group;
    bool again = teffi_group_run(group, ITEMS_MAX, 0);
    executor.running = outer;
    if (again)
        queue_ready_group(&executor.base, group);
}

static void keep_timer(teffi_exec *base, teffi_timer *timer, uint64_t due_ns)
{
    (void)base;
    if (executor.stopped)
        return;
    timer->due_ns = due_ns;
    timer->where = 1;
    LIST_INSERT_HEAD(&executor.timers, timer, link);
}

static bool cancel_kept_timer(teffi_exec *base, teffi_timer *timer)
{
    (void)base;
    if (!timer->where)
        return false;
    LIST_REMOVE(timer, link);
    timer->where = 0;
    return true;
}

static void move_clock_to(uint64_t now_ns)
{
    clock_ns = now_ns;
    teffi_coarse_ms_set(&executor.base, (uint32_t)(now_ns / 1000000));
}

/* out: false: none is due until then. */
static bool fire_next_timer(uint64_t until_ns)
{
    teffi_timer *next = NULL, *timer;
    LIST_FOREACH (timer, &executor.timers, link)
        if (!next || timer->due_ns < next->due_ns)
            next = timer;
    if (!next || next->due_ns > until_ns)
        return false;
    (void)cancel_kept_timer(&executor.base, next);
    if (next->due_ns > clock_ns)
        move_clock_to(next->due_ns);
    next->fire(next);
    return true;
}

void lone_silo_run(void)
{
    for (unsigned i = 0; executor.n_ready; i++) {
        teffi_bug_if(i == RUNS_MAX);
        run_first_group();
    }
}

void lone_silo_pass_time(uint32_t ms)
{
    uint64_t until_ns = clock_ns + ms * 1000000ull;
    lone_silo_run();
    while (fire_next_timer(until_ns))
        lone_silo_run();
    move_clock_to(until_ns);
}

/* This thread waits: something must happen that ends the wait. Timers fire up to LATE_NS late, so
 * that a thread which looks every millisecond whether something has ended looks less often. */
static void run_while_waiting(teffi_exec *base)
{
    (void)base;
    if (executor.n_ready) {
        run_first_group();
        return;
    }
    move_clock_to(clock_ns + LATE_NS);
    teffi_bug_if(!fire_next_timer(UINT64_MAX));
}

static void ignore_blocking(teffi_exec *base)
{
    (void)base;
}

static teffi_group *get_running_group(teffi_exec *base)
{
    (void)base;
    return executor.running;
}

static void stop_lone_exec(teffi_exec *base)
{
    (void)base;
    executor.stopped = true;
    executor.n_ready = 0;
    LIST_INIT(&executor.timers);
}

static void free_lone_exec(teffi_exec *base)
{
    stop_lone_exec(base);
    teffi_null_group_fini(base);
}

static teff_err open_lone_exec(const teffi_platform *platform, unsigned workers,
                               const teff_sched_options *opt, teffi_exec **out)
{
    static const teffi_exec_ops ops = {.ready = queue_ready_group,
                                       .timer_set = keep_timer,
                                       .timer_cancel = cancel_kept_timer,
                                       .blocking_begin = ignore_blocking,
                                       .blocking_end = ignore_blocking,
                                       .park = run_while_waiting,
                                       .current = get_running_group,
                                       .stop = stop_lone_exec,
                                       .free = free_lone_exec};
    static teffi_fiber_pool *fibers; /* stays for all inputs */
    (void)workers;
    if (!fibers)
        fibers = teffi_fiber_pool_new(0, 0);
    teffi_bug_if(!fibers);
    memset(&executor, 0, sizeof executor);
    executor.base = (teffi_exec){.ops = &ops, .platform = platform, .fibers = fibers};
    teffi_warn_init(&executor.base.warn, opt ? opt : &(teff_sched_options){0});
    teffi_null_group_init(&executor.base);
    move_clock_to(clock_ns);
    *out = &executor.base;
    return TEFF_OK;
}

/* ---- the network ---- */

static teffi_net network;
static teffi_net_options network_options;

/* out: NULL: it does not encode, or does not decode. Frees msg. */
static teffi_msg *pass_through_frame(teffi_msg *msg)
{
    static uint8_t bytes[LONE_FRAME_MAX];
    size_t room, body_len, size;
    teffi_msg *decoded = NULL;
    teffi_frame frame;
    if (!teffi_frame_compute_size_bound(msg, sizeof bytes, &room, &body_len) &&
        room <= sizeof bytes) {
        size_t len = teffi_frame_encode(msg, body_len, clock_ns, bytes);
        if (teffi_frame_peek(bytes, len, sizeof bytes, &size, &frame) || size != len ||
            teffi_frame_decode(&frame, NULL, clock_ns, &decoded))
            decoded = NULL;
    }
    teffi_msg_free(msg);
    return decoded;
}

static teff_err take_sent_message(teffi_net *net, teffi_node_id to, teffi_msg *msg)
{
    (void)net;
    teffi_bug_if(teffi_node_equals(to, open_silo->silo->node.id));
    teffi_msg *sent = pass_through_frame(msg);
    if (!sent)
        return TEFF_OK; /* longer than LONE_FRAME_MAX: lost */
    if (sent->item.kind == TEFFI_MSG_RESPONSE) {
        open_silo->responded(to, sent);
    } else if (sent->item.kind == TEFFI_MSG_REQUEST) {
        unsigned at = open_silo->n_asked++ % LONE_ASKED_MAX;
        open_silo->asked[at] = (lone_asked){to, sent->call, sent->to.slot, sent->method_id};
        network_options.events->sent(network_options.arg, to, sent);
    } else if (to.silo & TEFFI_CLIENT_BIT && sent->to.slot == TEFFI_SLOT_OBSERVER) {
        teffi_bug_if(!teffi_notice_read_head(sent, &open_silo->heard));
    }
    teffi_msg_free(sent);
    return TEFF_OK;
}

static teff_err listen_nowhere(teffi_net *net, teffi_door door, const char *address, char *bound,
                               char *text)
{
    (void)net;
    (void)door;
    (void)text;
    strcpy(bound, address);
    return TEFF_OK;
}

static void accept_nobody(teffi_net *net)
{
    (void)net;
}

static void ignore_identity(teffi_net *net, teffi_node_id self, const char *address)
{
    (void)net;
    (void)self;
    (void)address;
}

static teff_err add_any_peer(teffi_net *net, teffi_node_id node, const char *address)
{
    (void)net;
    (void)node;
    (void)address;
    return TEFF_OK;
}

static void remove_any_peer(teffi_net *net, teffi_node_id node, bool clean)
{
    (void)net;
    (void)node;
    (void)clean;
}

static void remove_dead_peer(teffi_net *net, teffi_node_id node)
{
    (void)net;
    (void)node;
}

static void ignore_peer_left(teffi_net *net, teffi_node_id node)
{
    (void)net;
    (void)node;
}

static teff_err shut_down_at_once(teffi_net *net, uint32_t timeout_ms)
{
    (void)net;
    (void)timeout_ms;
    return TEFF_OK;
}

static teff_err open_network(const teffi_platform *platform, const teffi_net_options *opt,
                             teffi_net **net, char *text)
{
    static const teffi_net_ops ops = {.listen = listen_nowhere,
                                      .accept = accept_nobody,
                                      .identify = ignore_identity,
                                      .peer_add = add_any_peer,
                                      .peer_remove = remove_any_peer,
                                      .peer_dead = remove_dead_peer,
                                      .peer_left = ignore_peer_left,
                                      .send = take_sent_message,
                                      .shutdown = shut_down_at_once,
                                      .free = accept_nobody};
    (void)platform;
    (void)text;
    network.ops = &ops;
    network_options = *opt;
    *net = &network;
    return TEFF_OK;
}

void lone_silo_receive(lone_silo *lone, const teffi_hello *from, teffi_msg *msg)
{
    teffi_msg *received = pass_through_frame(msg);
    if (!received)
        return;
    teffi_msg_charge(received, network_options.budget);
    network_options.events->message(&lone->silo->node, from, received);
}

/* ---- the silo ---- */

static teff_err open_memory_store(const teffi_platform *platform, const char *address,
                                  teffi_store **store, char *text)
{
    (void)platform;
    return teffi_store_open(address, store, text);
}

static const teffi_platform lone_platform = {.mono_ns = read_moved_clock,
                                             .wall_ns = read_moved_clock,
                                             .random = draw_counted_bits,
                                             .log = {drop_log_line, NULL, TEFF_LOG_INFO},
                                             .exec_new = open_lone_exec,
                                             .net_new = open_network,
                                             .store_open = open_memory_store};

static void abort_on_error(teff_err err, const char *text)
{
    if (!err)
        return;
    fprintf(stderr, "%s: %s\n", teff_err_name(err), text);
    abort();
}

void lone_silo_open(lone_silo *lone, teff_grain_type *type)
{
    teff_silo_options opt = {.size = sizeof opt, .listen = "127.0.0.1:1", .cluster = "dev"};
    char text[TEFF_TEXT_MAX];
    open_silo = lone;
    clock_ns = 1000000000;
    bits_drawn = 0;
    lone->n_asked = 0;
    abort_on_error(teffi_silo_new_on_platform(&lone_platform, &opt, &lone->silo, text), text);
    abort_on_error(teffi_silo_host_type(lone->silo, type, text), text);
    lone->silo->phase = TEFFI_SILO_STARTED;
    abort_on_error(teffi_silo_open(lone->silo, text), text);
    lone->ctx = teffi_ctx_new(&lone->silo->node.home);
    teffi_bug_if(!lone->ctx);
    abort_on_error(teffi_silo_join(lone->ctx, lone->silo), teff_error(lone->ctx));
}

void lone_silo_close(lone_silo *lone)
{
    teff_ctx_free(lone->ctx);
    teffi_bug_if(teffi_silo_close(lone->silo, 0));
    teff_silo_free(lone->silo);
}
