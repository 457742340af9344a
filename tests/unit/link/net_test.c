/* net_test.c - a recording owner for links under test. */
#include "net_test.h"

#include <dirent.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <teff/silo.h>
#include <time.h>
#include "base/bug.h"
#include "link/link.h"
#include "sched/exec.h"

/* What a test does not ask for must not happen, on however slow a machine. */
enum { HEARTBEAT_MS = 60000, HELLO_TIMEOUT_MS = 120000 };

static _Atomic uint64_t held_ns; /* the links' clock while a test holds it, else 0 */

static uint64_t real_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t mono_ns(void *arg)
{
    uint64_t held = held_ns;
    return held ? held : real_ns();
}

void test_clock_hold(void)
{
    held_ns = real_ns();
}

void test_clock_move(uint32_t ms)
{
    held_ns += ms * 1000000ull;
}

void test_clock_release(void)
{
    held_ns = 0;
}

static uint64_t random_bits(void *arg)
{
    uint64_t v = 0;
    if (getrandom(&v, sizeof v, 0) != sizeof v)
        abort();
    return v;
}

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void write_line(void *arg, teff_log_level level, const char *line)
{
    test_node *n = arg;
    pthread_mutex_lock(&log_lock);
    size_t at = strlen(n->log);
    snprintf(n->log + at, sizeof n->log - at, "%s\n", line);
    pthread_mutex_unlock(&log_lock);
    if (getenv("TEFF_TEST_LOG"))
        fprintf(stderr, "%s\n", line);
}

bool test_logged(test_node *n, const char *what, const char *and_what)
{
    bool found = false;
    pthread_mutex_lock(&log_lock);
    for (const char *line = n->log, *end; !found && (end = strchr(line, '\n')); line = end + 1) {
        const char *a = strstr(line, what), *b = strstr(line, and_what);
        found = a && a < end && b && b < end;
    }
    pthread_mutex_unlock(&log_lock);
    return found;
}

static uint8_t test_byte(uint32_t slot, size_t at)
{
    return (uint8_t)(slot * 7 + at + (at >> 8) * 3);
}

static bool is_whole(const teffi_msg *msg)
{
    for (size_t i = 0; i < msg->raw_len; i++)
        if (msg->raw[i] != test_byte(msg->call.slot, i))
            return false;
    return true;
}

static void lock_node(test_node *n)
{
    pthread_mutex_lock(&n->lock);
}

static void unlock_node(test_node *n)
{
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

static void send_response(test_node *n, teffi_node_id to, teffi_msg *msg)
{
    msg->item.kind = TEFFI_MSG_RESPONSE;
    msg->src = n->id;
    msg->to = (teffi_pid){.node = to};
    if (n->net->ops->send(n->net, to, msg))
        teffi_msg_free(msg);
}

static void on_message(void *arg, const teffi_hello *from, teffi_msg *msg)
{
    test_node *n = arg;
    lock_node(n);
    while (n->hold)
        pthread_cond_wait(&n->changed, &n->lock);
    n->messages++;
    if (n->look)
        n->look(n, msg);
    n->disorder += msg->call.slot <= n->last_slot && msg->item.kind == TEFFI_MSG_REQUEST;
    n->wrong += n->checks && !is_whole(msg);
    n->last_slot = msg->call.slot;
    n->last_peer = *from;
    bool echo = n->echo && msg->item.kind == TEFFI_MSG_REQUEST;
    teffi_msg_free(echo ? NULL : n->last);
    if (!echo)
        n->last = msg;
    unlock_node(n);
    if (echo)
        send_response(n, from->node, msg);
}

static teff_err on_hello(void *arg, const teffi_hello *peer, char *text)
{
    test_node *n = arg;
    lock_node(n);
    n->asked++;
    n->last_peer = *peer;
    const char *refuse = n->refuse;
    unlock_node(n);
    if (!refuse)
        return TEFF_OK;
    snprintf(text, TEFF_TEXT_MAX, "%s", refuse);
    return TEFF_E_REFUSED;
}

static teff_err on_dialled(void *arg, const teffi_hello *peer, char *text)
{
    const test_node *n = arg;
    (void)peer;
    if (n->refuse_dialled)
        snprintf(text, TEFF_TEXT_MAX, "%s", n->refuse_dialled);
    return n->refuse_dialled ? TEFF_E_REFUSED : TEFF_OK;
}

static void on_view(void *arg, const teffi_hello *peer, uint64_t version)
{
    test_node *n = arg;
    lock_node(n);
    n->views++;
    n->view = version;
    n->view_of = peer->node;
    unlock_node(n);
}

static void on_gone(void *arg, const teffi_hello *peer)
{
    test_node *n = arg;
    lock_node(n);
    n->gone++;
    n->last_peer = *peer;
    unlock_node(n);
}

static void on_up(void *arg, const teffi_hello *peer)
{
    test_node *n = arg;
    lock_node(n);
    n->ups++;
    n->last_peer = *peer;
    n->last_slot = 0;
    unlock_node(n);
}

static void on_down(void *arg, const teffi_hello *peer, bool clean)
{
    test_node *n = arg;
    lock_node(n);
    n->downs++;
    n->downs_clean += clean;
    n->last_peer = *peer;
    if (n->lost)
        n->lost(n);
    unlock_node(n);
}

static void on_unsent(void *arg, const teffi_hello *peer, teffi_msg *msg)
{
    test_node *n = arg;
    lock_node(n);
    n->unsent++;
    n->checked_unsent += is_whole(msg) && !msg->borrows;
    n->last_slot = msg->call.slot;
    n->last_peer = *peer;
    unlock_node(n);
    teffi_msg_free(msg);
}

static void on_sent(void *arg, teffi_node_id to, const teffi_msg *request)
{
    test_node *n = arg;
    (void)to;
    n->sent += request->item.kind == TEFFI_MSG_REQUEST;
}

void test_note_dialled(void *arg, teff_err err, const teffi_hello *peer, const char *text)
{
    test_dialled *d = arg;
    (void)peer;
    d->err = err;
    snprintf(d->text, sizeof d->text, "%s", text ? text : "");
    d->done = true;
}

static const teffi_net_events events = {.message = on_message,
                                        .hello = on_hello,
                                        .dialled = on_dialled,
                                        .view = on_view,
                                        .gone = on_gone,
                                        .up = on_up,
                                        .down = on_down,
                                        .sent = on_sent,
                                        .unsent = on_unsent};

static uint32_t next_silo(void)
{
    static _Atomic uint32_t last = 100;
    return ++last;
}

teffi_transport_kind test_transport(void)
{
    return getenv("TEFF_TEST_REACTOR") ? TEFFI_TRANSPORT_REACTOR : TEFFI_TRANSPORT_NNG;
}

static void fill_options(test_node *n, const test_options *opt, teffi_net_options *net)
{
    *net = (teffi_net_options){.events = &events, .arg = n};
    net->self.role = opt->role ? opt->role : TEFFI_ROLE_SILO;
    n->id.silo = opt->silo ? opt->silo : next_silo();
    n->id.silo |= net->self.role == TEFFI_ROLE_CLIENT ? TEFFI_CLIENT_BIT : 0;
    n->id.incarnation = opt->incarnation ? opt->incarnation : 1;
    net->self.node = n->id;
    snprintf(net->self.cluster, sizeof net->self.cluster, "%s",
             opt->cluster ? opt->cluster : "test");
    net->heartbeat_ms = opt->heartbeat_ms ? opt->heartbeat_ms : HEARTBEAT_MS;
    net->queue_max_bytes = opt->queue_max_bytes;
    net->hello_timeout_ms = opt->hello_timeout_ms ? opt->hello_timeout_ms : HELLO_TIMEOUT_MS;
    net->frame_max_bytes = opt->frame_max_bytes;
    net->clients_max = opt->clients_max;
    net->budget = opt->budget;
    net->transport = opt->transport;
    if (!net->transport && !opt->cert)
        net->transport = test_transport();
    net->secret_file = opt->secret;
    net->client_secret_file = opt->client_secret;
    net->tls = (teffi_tls_files){opt->cert, opt->ca, opt->client_ca};
}

static void set_up_waiting(test_node *n)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->changed, &attr);
    pthread_condattr_destroy(&attr);
}

test_node *test_node_start(test_options opt)
{
    test_node *n = calloc(1, sizeof *n);
    teffi_net_options net;
    char text[TEFF_TEXT_MAX] = "";
    assert_non_null(n);
    n->platform = (teffi_platform){
        .mono_ns = mono_ns, .random = random_bits, .log = {write_line, n, TEFF_LOG_INFO}};
    set_up_waiting(n);
    fill_options(n, &opt, &net);
    if (opt.workers)
        assert_int_equal(teffi_exec_real_new(&n->platform, opt.workers, NULL, &n->exec), TEFF_OK);
    net.exec = n->exec;
    if (teffi_net_link_new(&n->platform, &net, &n->net, text))
        fail_msg("%s", text);
    if (net.self.role == TEFFI_ROLE_SILO) {
        const char *listen = opt.listen ? opt.listen : "127.0.0.1:0";
        if (n->net->ops->listen(n->net, TEFFI_DOOR_SILOS, listen, n->address, text))
            fail_msg("%s", text);
        if (opt.gateway &&
            n->net->ops->listen(n->net, TEFFI_DOOR_GATEWAY, opt.gateway, n->gateway, text))
            fail_msg("%s", text);
        n->net->ops->identify(n->net, n->id, n->address);
        n->net->ops->accept(n->net);
    }
    return n;
}

void test_node_stop(test_node *n)
{
    lock_node(n);
    n->hold = false;
    unlock_node(n);
    if (n->exec)
        n->exec->ops->stop(n->exec);
    n->net->ops->free(n->net);
    if (n->exec)
        n->exec->ops->free(n->exec);
    teffi_msg_free(n->last);
    pthread_cond_destroy(&n->changed);
    pthread_mutex_destroy(&n->lock);
    free(n);
}

teffi_hello test_last_peer(test_node *n)
{
    pthread_mutex_lock(&n->lock);
    teffi_hello peer = n->last_peer;
    pthread_mutex_unlock(&n->lock);
    return peer;
}

uint64_t test_now(void)
{
    return real_ns();
}

uint64_t test_deadline(void)
{
    return real_ns() + 60 * 1000000000ull;
}

bool test_pause(test_node *n, uint64_t limit_ns)
{
    uint64_t until = real_ns() + 10000000u;
    struct timespec t = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    pthread_cond_timedwait(&n->changed, &n->lock, &t);
    return real_ns() < limit_ns;
}

_Static_assert(sizeof(test_counts) == LINK_COUNTERS * sizeof(uint64_t), "one for each");

test_counts test_counters(const teffi_net *net)
{
    const link_counters *counters = &((const teffi_link *)net)->conns.counters;
    uint64_t values[LINK_COUNTERS];
    test_counts c;
    for (unsigned i = 0; i < LINK_COUNTERS; i++)
        values[i] = atomic_load_explicit(&counters->counts[i], memory_order_relaxed);
    memcpy(&c, values, sizeof c);
    return c;
}

teffi_msg *test_message(uint32_t kind, uint32_t slot, size_t n)
{
    teffi_msg *msg = teffi_msg_new(kind);
    teffi_bug_if(!msg);
    msg->call.slot = slot;
    msg->method_id = 7;
    uint8_t *body = teff_arena_alloc(&msg->arena, n);
    teffi_bug_if(!body);
    for (size_t i = 0; i < n; i++)
        body[i] = test_byte(slot, i);
    msg->raw = body;
    msg->raw_len = n;
    return msg;
}

void test_know(test_node *a, test_node *b)
{
    assert_int_equal(a->net->ops->peer_add(a->net, b->id, b->address), TEFF_OK);
}

static teff_err send_in_time(test_node *from, test_node *to, uint32_t slot, size_t n)
{
    uint64_t limit = test_deadline();
    teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, slot, n);
    msg->src = from->id;
    for (bool again = true;;) {
        teff_err err = from->net->ops->send(from->net, to->id, msg);
        if (!again || (err != TEFF_E_OVERLOADED && err != TEFF_E_UNREACHABLE))
            return err;
        pthread_mutex_lock(&from->lock);
        again = test_pause(from, limit);
        pthread_mutex_unlock(&from->lock);
    }
}

void test_send(test_node *from, test_node *to, uint32_t slot, size_t n)
{
    teff_err err = send_in_time(from, to, slot, n);
    if (err)
        fail_msg("send: %s", teff_err_name(err));
}

bool test_sent(test_node *from, test_node *to, uint32_t slot, size_t n)
{
    return send_in_time(from, to, slot, n) == TEFF_OK;
}

void test_exchange(test_node *a, test_node *b, unsigned n)
{
    test_know(a, b);
    test_know(b, a);
    b->echo = true;
    for (uint32_t i = 1; i <= n; i++)
        test_send(a, b, i, 40);
    test_wait(a, a->messages == n);
    assert_int_equal(a->last->call.slot, n);
    assert_int_equal(b->disorder, 0);
}

void *test_shutdown(void *node)
{
    test_node *n = node;
    return n->net->ops->shutdown(n->net, TEST_SHUTDOWN_MS) == TEFF_OK ? NULL : node;
}

static unsigned entries_of(const char *path)
{
    unsigned n = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 3; /* . and .. and, for fds, the directory itself */
}

unsigned test_fds(void)
{
    return entries_of("/proc/self/fd");
}

unsigned test_threads(void)
{
    return entries_of("/proc/self/task");
}

void test_flush(test_node *node)
{
    teffi_sender_write_coalesced(&((teffi_link *)node->net)->conns);
}
