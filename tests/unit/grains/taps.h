/* taps.h - silos whose filters note when they run, and grains that run scripts, for the tests of
 * filters. Include it in one source of a program.
 * Threads: filters and grains write the trace under its lock; the test's thread reads it. */
#pragma once

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "lab.h"
#include "filter.teff.h"
#include "activation/activation.h"
#include "request/outgoing.h"

enum { TRACE_BYTES = 1000, OUT1 = 0, OUT2, SILO, TYPE, TAPS };

typedef teff_err script(teff_ctx *ctx, int64_t n, filter_number *out);

typedef struct tap { /* a filter */
    const char *name;
    teff_err (*before)(teff_filter_call *call);
    teff_err (*after)(teff_filter_call *call, teff_err err);
    _Atomic int kind; /* a teff_call_kind: of its last call, as the next ones */
    _Atomic uint64_t from;
    _Atomic bool from_client;
    _Atomic int calls;
} tap;

static tap taps[TAPS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char trace[TRACE_BYTES]; /* guarded by lock */
static _Atomic bool gate;
static _Atomic int held;
static int refuses_client; /* authorize */
static teff_silo *silos[2];
static teff_ctx *ctx;
static char store[512];

static inline void note(const char *text)
{
    pthread_mutex_lock(&lock);
    snprintf(trace + strlen(trace), TRACE_BYTES - strlen(trace), "%s", text);
    pthread_mutex_unlock(&lock);
}

static inline void take_trace(char copy[TRACE_BYTES], bool clear)
{
    pthread_mutex_lock(&lock);
    memcpy(copy, trace, TRACE_BYTES);
    if (clear)
        trace[0] = '\0';
    pthread_mutex_unlock(&lock);
}

static inline bool trace_is(const char *expected)
{
    char copy[TRACE_BYTES];
    take_trace(copy, false);
    return strcmp(copy, expected) == 0;
}

static inline bool trace_has(const char *text)
{
    char copy[TRACE_BYTES];
    take_trace(copy, false);
    return strstr(copy, text) != NULL;
}

static inline size_t trace_len(void)
{
    char copy[TRACE_BYTES];
    take_trace(copy, false);
    return strlen(copy);
}

static inline void clear_trace(void)
{
    char copy[TRACE_BYTES];
    take_trace(copy, true);
}

/* Each test takes what was noted since. */
static inline void expect_trace(const char *expected)
{
    char copy[TRACE_BYTES];
    take_trace(copy, true);
    assert_string_equal(copy, expected);
}

static inline teff_err before(void *arg, teff_filter_call *call)
{
    tap *t = arg;
    char text[40];
    snprintf(text, sizeof text, "%s( ", t->name);
    t->kind = (int)call->kind;
    t->from = call->from;
    t->from_client = call->from_client;
    call->state = t;
    t->calls++;
    note(text);
    return t->before ? t->before(call) : TEFF_OK;
}

static inline teff_err after(void *arg, teff_filter_call *call, teff_err err)
{
    tap *t = arg;
    char text[60];
    snprintf(text, sizeof text, "%s)%s ", t->name, err ? teff_err_name(err) + 7 : "");
    note(text);
    if (call->state != t)
        note("another's state ");
    return t->after ? t->after(call, err) : err;
}

static const teff_filter outgoing[] = {
    {before, after, &taps[OUT1]}, {before, after, &taps[OUT2]}, {NULL, NULL, NULL}};
static const teff_filter incoming[] = {{before, after, &taps[SILO]}, {NULL, NULL, NULL}};
static const teff_filter of_type[] = {{before, after, &taps[TYPE]}, {NULL, NULL, NULL}};

/* ---- grains ---- */

static inline teff_err run_script(teff_ctx *turn, const filter_act *in, filter_number *out)
{
    script *fn = (script *)(uintptr_t)in->script;
    note("M ");
    out->n = in->n;
    return fn ? fn(turn, in->n, out) : TEFF_OK;
}

static inline teff_err run_till(filter_till *self, const filter_act *in, filter_number *out)
{
    return run_script(self->ctx, in, out);
}

static inline teff_err move(filter_till *self, const filter_act *in, filter_number *out)
{
    self->state->n += in->n;
    teff_err err = run_script(self->ctx, in, out);
    return err ? err : filter_till_save(self);
}

static inline teff_err note_till(filter_till *self, const filter_act *in)
{
    filter_number out;
    return run_script(self->ctx, in, &out);
}

static inline teff_err nothing(filter_till *self)
{
    (void)self;
    note("M ");
    return TEFF_OK;
}

static inline teff_err run_plain(filter_plain *self, const filter_act *in, filter_number *out)
{
    return run_script(self->ctx, in, out);
}

static inline teff_err on_reminder(filter_till *self, const teff_tick *tick)
{
    (void)self;
    (void)tick;
    note("R ");
    return TEFF_OK;
}

static const filter_till_methods till_methods = {.run = run_till,
                                                 .again = run_till,
                                                 .note = note_till,
                                                 .move = move,
                                                 .nothing = nothing,
                                                 .listener_heard = note_till,
                                                 .on_reminder = on_reminder};
static const filter_plain_methods plain_methods = {.run = run_plain};

/* ---- silos ---- */

static inline int allow_call(void *arg, const teff_client_call *call)
{
    (void)arg;
    (void)call;
    return !refuses_client;
}

static inline void start_silo(int i)
{
    const teff_silo_options opt = {.size = sizeof opt,
                                   .silent = 1,
                                   .workers = 2,
                                   .store = store,
                                   .authorize = allow_call,
                                   .incoming = incoming,
                                   .outgoing = outgoing};
    char text[TEFF_TEXT_MAX] = "";
    teff_grain_type *till = filter_till_type(&till_methods, NULL);
    teff_grain_type_filter(till, of_type);
    if (teff_silo_new(&opt, &silos[i], text) || teff_silo_host(silos[i], till) ||
        teff_silo_host(silos[i], filter_plain_type(&plain_methods, NULL)) ||
        teff_silo_start(silos[i], text))
        fail_msg("silo %d: %s", i, text);
}

static inline int setup(void **state)
{
    (void)state;
    static const char *const names[TAPS] = {"o1", "o2", "s", "t"};
    for (int i = 0; i < TAPS; i++)
        taps[i] = (tap){.name = names[i]};
    clear_trace();
    gate = false;
    held = 0;
    refuses_client = 0;
    lab_fresh_store(store);
    start_silo(0);
    ctx = teff_silo_new_ctx(silos[0]);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    gate = true;
    teff_ctx_free(ctx);
    for (int i = 1; i >= 0; i--) {
        if (silos[i] && teff_silo_stop(silos[i], 0))
            return 1;
        teff_silo_free(silos[i]);
        silos[i] = NULL;
    }
    lab_drop_store(store);
    return 0;
}

#define ACT(fn, i) filter_act(.script = (uintptr_t)(fn), .n = (i))

static const char all[] = "o1( o2( s( t( M t) s) o2) o1) ";

static inline teff_err run_at(const char *key, script *fn, int64_t n, filter_number **out)
{
    return filter_till_run(ctx, key, ACT(fn, n), out);
}

/* ---- scripts and functions of filters ---- */

/* A call from this turn to an idle grain of the silo: it runs in place. */
static inline teff_err calls_plain(teff_ctx *turn, int64_t n, filter_number *out)
{
    filter_number *got;
    teff_err err = filter_plain_run(turn, 1, ACT(NULL, n + 1), &got);
    out->n = err ? 0 : got->n;
    return err;
}

static inline filter_held *state_of_turn(const teff_ctx *turn)
{
    return (filter_held *)teffi_activation_state(teffi_activation_of_ctx(turn));
}

static inline teff_err reads_state(teff_ctx *turn, int64_t n, filter_number *out)
{
    (void)n;
    out->n = state_of_turn(turn)->n;
    return TEFF_OK;
}

static inline teff_client *connect_client(const teff_filter *filters)
{
    const teff_client_options opt = {
        .size = sizeof opt, .gateways = {teff_silo_address(silos[0])}, .outgoing = filters};
    char text[TEFF_TEXT_MAX] = "";
    teff_client *client;
    if (teff_client_connect(&opt, &client, text))
        fail_msg("%s", text);
    return client;
}

static inline teff_err holds(teff_ctx *turn, int64_t n, filter_number *out)
{
    (void)n;
    (void)out;
    held++;
    while (!gate)
        teff_sleep(turn, 1);
    held--;
    return TEFF_OK;
}

static inline teff_err refuses(teff_filter_call *call)
{
    return teff_fail(call->ctx, TEFF_E_REFUSED, "not by %s", call->key->text ? "you" : "number");
}

static inline teff_err answers_nine(teff_filter_call *call)
{
    if (!call->out) {
        call->out = teff_alloc(call->ctx, sizeof(filter_number));
        call->method->out->desc->message_init(call->out);
    }
    ((filter_number *)call->out)->n = 9;
    call->answered = true;
    return TEFF_OK;
}

static inline teff_err answers_nothing(teff_filter_call *call)
{
    call->answered = true;
    return TEFF_OK;
}

static inline teff_err forgives(teff_filter_call *call, teff_err err)
{
    (void)call;
    (void)err;
    return TEFF_OK;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
