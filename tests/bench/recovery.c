/* recovery.c - what a cluster of three silos takes after kill -9 of one of them, and of all.
 * usage: recovery LEASE_MS GRAINS; it starts itself as --silo
 * Way:     recovery.py -> [recovery] -> a client ===> silos of other processes, on one SQLite file
 * Prints milliseconds since the kill:
 *   noticed: a call that runs on the killed silo ends
 *   first_answer, last_answer: of calls to the grains that were active on the killed silo
 *   others_longest: the longest call to a grain on another silo, in the same time
 * Then all silos are killed and one starts on a new port; milliseconds since it was started:
 *   restart_first_answer, restart_last_answer: of calls to all grains */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <teff/silo.h>
#include "child.h"
#include "clock.h"
#include "guard.teff.h"

enum {
    SILOS = 3,
    KILLED = 2,
    GRAINS_MAX = 2000,
    TIMEOUT_MS = 60000,
    HOLD_MS = 120000,
    CONNECT_MS = 500
};

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "recovery: %s\n", what);
    exit(1);
}

/* ---- a silo ---- */

/* Responds with the process's id. Holds a call whose request says so. */
static teff_err tell_process(guard_target *self, const guard_small *in, guard_small *out)
{
    if (in->name[0])
        teff_sleep(self->ctx, HOLD_MS);
    out->number = (uint64_t)getpid();
    return TEFF_OK;
}

static int be_silo(const char *store, const char *lease_ms)
{
    static const guard_target_methods methods = {.add = tell_process};
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .store = store};
    char text[TEFF_TEXT_MAX] = "";
    teff_silo *silo;
    opt.lease_ms = (uint32_t)atoi(lease_ms);
    must(!teff_silo_new(&opt, &silo, text) &&
             !teff_silo_host(silo, guard_target_type(&methods, NULL)) &&
             !teff_silo_start(silo, text),
         text);
    bench_child_ready(teff_silo_address(silo));
    _exit(0);
}

static void start_silo(bench_child *child, const char *store, const char *lease_ms)
{
    const char *const args[] = {"--silo", store, lease_ms, NULL};
    must(bench_child_start(child, args), "a silo does not start");
}

static void kill_silo(const bench_child *child)
{
    kill(child->pid, SIGKILL);
    waitpid(child->pid, NULL, 0);
    close(child->in);
}

/* ---- calls ---- */

static uint64_t places[GRAINS_MAX]; /* the process in which each grain is active */
static int grains;

static teff_client *connect_client(const bench_child *silos, int n)
{
    teff_client_options opt = {.size = sizeof opt};
    teff_client *client = NULL;
    char text[TEFF_TEXT_MAX] = "";
    for (int i = 0; i < n; i++)
        opt.gateways[i] = silos[i].said;
    must(!teff_client_connect(&opt, &client, text), text);
    return client;
}

/* Activates every third grain through this silo: a grain is activated where its call arrives. */
static void activate_grains(const bench_child *silos, int through)
{
    teff_client *client = connect_client(&silos[through], 1);
    teff_ctx *ctx = teff_client_new_ctx(client);
    for (int i = through; i < grains; i += SILOS) {
        guard_small *out;
        must(!guard_target_add(ctx, i, guard_small(.name = ""), &out), "a grain is not activated");
        places[i] = out->number;
        teff_ctx_reset(ctx);
    }
    teff_ctx_free(ctx);
    teff_client_free(client);
}

static double since_ms(uint64_t since_ns)
{
    return (double)(bench_now_ns() - since_ns) / 1e6;
}

static void begin_call(teff_ctx *ctx, int grain, teff_call *call)
{
    must(!guard_target_add_async(ctx, grain, guard_small(.name = ""), NULL, call),
         "no call can be begun");
}

/* Calls the grains of this process, or all if it is 0, at once; those that fail, again. out: when
 * the first one and the last one has responded. */
static void await_answers(teff_ctx *ctx, uint64_t process, uint64_t since_ns, double *first_ms,
                          double *last_ms)
{
    static teff_call calls[GRAINS_MAX];
    int left = 0, begun = 0;
    teff_ctx_set_timeout(ctx, TIMEOUT_MS);
    for (int i = 0; i < grains; i++) {
        calls[i] = (teff_call){0};
        if (process && places[i] != process)
            continue;
        begin_call(ctx, i, &calls[i]);
        left++;
    }
    for (begun = left; left;) {
        guard_small *out;
        size_t at;
        must(!teff_await_any(ctx, calls, (size_t)grains, &at), "no call to await");
        teff_err err = guard_target_add_await(ctx, calls[at], &out);
        teff_drop(ctx, &calls[at]);
        if (err) {
            must(since_ms(since_ns) < TIMEOUT_MS, teff_error(ctx));
            bench_sleep_ms(1);
            begin_call(ctx, (int)at, &calls[at]);
            continue;
        }
        if (left-- == begun)
            *first_ms = since_ms(since_ns);
    }
    *last_ms = since_ms(since_ns);
    teff_ctx_reset(ctx);
}

/* ---- threads ---- */

typedef struct side {
    teff_client *client;
    uint64_t killed; /* the process that is killed */
    int held;        /* a grain there */
    _Atomic uint64_t killed_ns;
    _Atomic bool is_over;
    _Atomic int rounds; /* of calls to all other grains */
    double noticed_ms, longest_ms;
} side;

static void *hold_call(void *arg)
{
    side *s = arg;
    teff_ctx *ctx = teff_client_new_ctx(s->client);
    guard_small *out;
    teff_ctx_set_timeout(ctx, TIMEOUT_MS);
    teff_err err = guard_target_add(ctx, s->held, guard_small(.name = "hold"), &out);
    must(teff_call_may_have_run(err), "the call on the killed silo did not fail");
    s->noticed_ms = since_ms(s->killed_ns);
    teff_ctx_free(ctx);
    return NULL;
}

static void *call_others(void *arg)
{
    side *s = arg;
    teff_ctx *ctx = teff_client_new_ctx(s->client);
    for (int i = 0; !s->is_over; i = (i + 1) % grains) {
        guard_small *out;
        uint64_t begin = bench_now_ns();
        s->rounds += i == grains - 1;
        if (places[i] == s->killed)
            continue;
        must(!guard_target_add(ctx, i, guard_small(.name = ""), &out),
             "a call to a grain on another silo has failed");
        double took_ms = since_ms(begin);
        s->longest_ms = took_ms > s->longest_ms ? took_ms : s->longest_ms;
        teff_ctx_reset(ctx);
    }
    teff_ctx_free(ctx);
    return NULL;
}

static void measure_killed_one(bench_child *silos, teff_client *client)
{
    side s = {.client = client, .killed = (uint64_t)silos[KILLED].pid};
    teff_ctx *ctx = teff_client_new_ctx(client);
    pthread_t held, others;
    double first_ms, last_ms;
    for (int i = 0; i < SILOS; i++)
        activate_grains(silos, i);
    while (s.held < grains && places[s.held] != s.killed)
        s.held++;
    must(s.held < grains, "no grain is active on the silo to be killed");
    must(!pthread_create(&held, NULL, hold_call, &s) &&
             !pthread_create(&others, NULL, call_others, &s),
         "no thread");
    while (s.rounds < 2)
        bench_sleep_ms(10);
    s.longest_ms = 0;
    s.killed_ns = bench_now_ns();
    kill_silo(&silos[KILLED]);
    await_answers(ctx, s.killed, s.killed_ns, &first_ms, &last_ms);
    s.is_over = true;
    pthread_join(held, NULL);
    pthread_join(others, NULL);
    teff_ctx_free(ctx);
    printf("\"noticed_ms\": %.1f, \"first_answer_ms\": %.0f, \"last_answer_ms\": %.0f, "
           "\"others_longest_ms\": %.1f",
           s.noticed_ms, first_ms, last_ms, s.longest_ms);
}

static void measure_restart(const char *store, const char *lease_ms)
{
    bench_child again;
    uint64_t begin = bench_now_ns();
    double first_ms, last_ms;
    start_silo(&again, store, lease_ms);
    teff_client *client = connect_client(&again, 1);
    teff_ctx *ctx = teff_client_new_ctx(client);
    await_answers(ctx, 0, begin, &first_ms, &last_ms);
    teff_ctx_free(ctx);
    teff_client_free(client);
    kill_silo(&again);
    printf(", \"restart_first_answer_ms\": %.0f, \"restart_last_answer_ms\": %.0f", first_ms,
           last_ms);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 4 && strcmp(argv[1], "--silo") == 0)
        return be_silo(argv[2], argv[3]);
    grains = argc == 3 ? atoi(argv[2]) : 0;
    must(grains > 0 && grains <= GRAINS_MAX, "usage: recovery LEASE_MS GRAINS");
    char folder[] = P_tmpdir "/teff-recovery-XXXXXX", store[64], command[64];
    must(mkdtemp(folder) != NULL, "no folder");
    snprintf(store, sizeof store, "sqlite:%s/rows", folder);
    bench_child silos[SILOS];
    for (int i = 0; i < SILOS; i++)
        start_silo(&silos[i], store, argv[1]);
    teff_client *client = connect_client(silos, KILLED);
    printf("{");
    measure_killed_one(silos, client);
    for (int i = 0; i < KILLED; i++)
        kill_silo(&silos[i]);
    teff_client_free(client);
    measure_restart(store, argv[1]);
    printf("}\n");
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) ? 1 : 0;
}
