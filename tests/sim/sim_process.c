/* sim_process.c - processes on the silos of a run: servers that respond, clients that ask and send,
 * and tasks that ask. What each request and message comes to is checked against what happened.
 * Way:     world -> [process] -> teff/pid.h -> the cluster -> servers
 * Checked: a request ends once, with the response that its server gave, or with an error that is
 *          true: one that says that it was not taken is not of a request that was. Messages of a
 *          pair come in order and at most once. Each process ends once. */
#include <stdlib.h>
#include <string.h>
#include <teff/pid.h>
#include "base/bug.h"
#include "call/task.h"
#include "call/wait.h"
#include "process/process.h"
#include "sim_world.h"

enum {
    ACTORS = 48,
    ASKS = 4096,
    HELD_MAX = 4,
    AT_ONCE = 3,
    FILL_MAX = 20000,
    STREAM_PROCESS = 1211, /* chosen so that no earlier seed of seeds.txt draws processes */
    STOP_MS = 60000        /* a client may wait 30 s for a request that is ignored */
};

#define OWN_ERROR TEFF_E_USER(7)
#define YOUNG_NS (5 * SIM_SECOND) /* a silo that began to serve just now may not be connected */

typedef enum fate {
    NOT_TAKEN = 0,
    RESPONDED,
    FAILED, /* the server responded with its own error */
    IGNORED /* also while the response is deferred */
} fate;

typedef struct letter { /* the data of requests, responses and messages; then len bytes of fill */
    uint32_t id, from, to, number, len;
    bool is_response;
} letter;

typedef struct actor {
    sim_world *world;
    sim_silo *place;
    unsigned start; /* of its silo */
    unsigned no, left;
    teff_pid pid;
    bool serves, ended;
    unsigned n_held;
    teff_event held[HELD_MAX]; /* requests; tag: the id */
    /* by the other's number */
    uint32_t sent[ACTORS], received[ACTORS], next_number[ACTORS];
} actor;

struct sim_processes {
    sim_world *world;
    sim_draw draw;
    unsigned n_actors, n_asks, n_letters;
    unsigned under_way; /* tasks, and clients that have not ended */
    uint8_t fates[ASKS];
    bool untaken[ASKS]; /* it ended with an error that says so */
    actor actors[ACTORS];
};

static uint64_t below(sim_processes *all, uint64_t n)
{
    return sim_draw_below(&all->draw, n);
}

static bool serves_still(const sim_silo *place, unsigned start)
{
    return place->state == SIM_SERVING && place->starts == start;
}

/* ---- letters ---- */

static size_t letter_bytes(const letter *l)
{
    return sizeof *l + l->len;
}

/* out: to be freed. */
static letter *letter_new(sim_processes *all, uint32_t id, uint32_t from, uint32_t to)
{
    uint32_t len = below(all, 20) ? (uint32_t)below(all, 40) : (uint32_t)below(all, FILL_MAX);
    letter *l = calloc(1, sizeof *l + len);
    teffi_bug_if(!l);
    *l = (letter){.id = id, .from = from, .to = to, .number = all->n_letters++, .len = len};
    memset(l + 1, (int)(uint8_t)l->number, len);
    return l;
}

/* out: false: it is not one that was sent. */
static bool read_letter(letter *l, const teff_event *event)
{
    if (event->len < sizeof *l)
        return false;
    memcpy(l, event->data, sizeof *l);
    const uint8_t *fill = (const uint8_t *)event->data + sizeof *l;
    for (size_t i = 0; i < l->len && sizeof *l + i < event->len; i++)
        if (fill[i] != (uint8_t)l->number)
            return false;
    return event->len == letter_bytes(l);
}

/* ---- servers ---- */

static void take_letter(actor *a, const teff_event *event, letter *l)
{
    sim *s = &a->world->s;
    if (!read_letter(l, event) || l->is_response || l->to != a->no) {
        sim_fail(s, "process %u gets what was not sent to it", a->no);
        return;
    }
    sim_trace_add(&s->trace, s->now_ns, a->place->node.name, "letter", a->no, l->number);
    if (l->from == ACTORS) /* a task, whose letters have no order */
        return;
    if (l->number < a->next_number[l->from])
        sim_fail(s, "process %u gets letter %u of process %u twice, or late", a->no, l->number,
                 l->from);
    a->next_number[l->from] = l->number + 1;
    a->received[l->from] += event->kind == TEFF_EVENT_MESSAGE;
}

static void respond(actor *a, const teff_event *request, uint32_t id, fate how)
{
    sim_processes *all = a->world->processes;
    letter *l = letter_new(all, id, a->no, ACTORS);
    l->is_response = true;
    all->fates[id] = (uint8_t)how;
    teff_process_system *system = a->place->silo->processes;
    teff_err err = how == FAILED ? teff_pid_respond(system, request, OWN_ERROR, "its own", 7)
                                 : teff_pid_respond(system, request, TEFF_OK, l, letter_bytes(l));
    sim_trace_add(&a->world->s.trace, a->world->s.now_ns, a->place->node.name, "respond", id, err);
    if (below(all, 20) == 0) /* is dropped */
        (void)teff_pid_respond(system, request, TEFF_OK, "again", 5);
    free(l);
}

static void hold(actor *a, teff_process *me, const teff_event *request, uint32_t id)
{
    teff_event *held = &a->held[a->n_held++];
    *held = *request;
    held->tag = id;
    held->data = NULL;
    uint32_t ms = (uint32_t)below(a->world->processes, 80);
    teffi_bug_if(teff_process_set_timer(me, ms, 0) != TEFF_OK);
}

static void take_request(actor *a, teff_process *me, const teff_event *request, uint32_t id)
{
    sim_processes *all = a->world->processes;
    uint64_t which = below(all, 100);
    if (id >= all->n_asks || all->fates[id] != NOT_TAKEN || request->tag != id) {
        sim_fail(&a->world->s, "process %u takes request %u twice", a->no, id);
        return;
    }
    all->fates[id] = IGNORED;
    if (which < 20 && a->n_held < HELD_MAX)
        hold(a, me, request, id);
    else if (which < 97)
        respond(a, request, id, which < 35 ? FAILED : RESPONDED);
}

static void respond_to_held(actor *a)
{
    if (a->n_held == 0) {
        sim_fail(&a->world->s, "process %u gets a timer that it did not set", a->no);
        return;
    }
    teff_event request = a->held[--a->n_held];
    respond(a, &request, (uint32_t)request.tag, RESPONDED);
}

/* out: the process ends now. */
static bool handle_event(actor *a, teff_process *me, const teff_event *event)
{
    letter l = {0};
    if (event->kind == TEFF_EVENT_CANCEL)
        return true;
    if (event->kind == TEFF_EVENT_TIMER)
        respond_to_held(a);
    else
        take_letter(a, event, &l);
    if (event->kind == TEFF_EVENT_REQUEST && !a->world->s.broken)
        take_request(a, me, event, l.id);
    a->left -= a->left > 0;
    return a->left == 0;
}

/* All events are handled, also those behind the last one that it wants: they are taken. */
static teff_err serve(void *self, const teff_event *events, size_t n, teff_step *out)
{
    actor *a = self;
    bool ends = false;
    for (size_t i = 0; i < n && !a->world->s.broken; i++)
        ends |= handle_event(a, teff_step_process(out), &events[i]);
    return ends ? teff_step_done(out) : TEFF_OK;
}

/* ---- requests ---- */

typedef struct asking { /* one request, from its begin to its end */
    sim_world *world;
    sim_silo *place; /* the caller's */
    unsigned start;
    actor *to;
    uint32_t id;
    bool was_ended, young;
    teff_call call;
    teff_err begun;
} asking;

/* Nothing is wrong with the silos of both since they began. */
static bool silos_are_well(const asking *q)
{
    return sim_calm(q->world) && serves_still(q->place, q->start) &&
           serves_still(q->to->place, q->to->start);
}

static bool is_young(const sim_world *w, const sim_silo *place)
{
    return w->s.now_ns - place->serves_ns < YOUNG_NS;
}

static void check_response(const asking *q, const teff_event *response)
{
    letter l = {0};
    bool right = read_letter(&l, response) && l.is_response && l.id == q->id &&
                 l.from == q->to->no && response->tag == q->id &&
                 teff_pid_equals(response->from, q->to->pid);
    if (!right || q->world->processes->fates[q->id] != RESPONDED)
        sim_fail(&q->world->s, "request %u to process %u gets another response", q->id, q->to->no);
}

static void check_own_error(const asking *q, const char *text)
{
    if (q->world->processes->fates[q->id] != FAILED || strcmp(text, "its own") != 0)
        sim_fail(&q->world->s, "request %u gets an error that its process did not give: %s", q->id,
                 text);
}

static bool may_fail_with(const asking *q, teff_err err)
{
    bool ignored = q->world->processes->fates[q->id] == IGNORED;
    switch ((int)err) {
    case TEFF_E_TIMEOUT:
        return ignored || q->world->s.faults.timeouts || q->world->s.faults.pauses ||
               q->world->s.faults.stuck;
    case TEFF_E_CLOSED:
        return q->to->ended || !silos_are_well(q);
    case TEFF_E_UNAVAILABLE:
        return q->young || !silos_are_well(q);
    case TEFF_E_UNREACHABLE:
    case TEFF_E_CANCELLED:
        return !silos_are_well(q);
    default:
        return false;
    }
}

static void check_failure(const asking *q, teff_err err, const char *text)
{
    sim_processes *all = q->world->processes;
    if (!may_fail_with(q, err))
        sim_fail(&q->world->s, "request %u to process %u ends as %s: %s", q->id, q->to->no,
                 teff_err_name(err), text);
    all->untaken[q->id] = !teff_call_may_have_run(err);
}

static void ask_ended(const asking *q, teff_ctx *ctx, teff_err err, const teff_event *response)
{
    sim *s = &q->world->s;
    sim_trace_add(&s->trace, s->now_ns, q->place->node.name, "asked", q->id, err);
    if ((!err || err == OWN_ERROR) && q->was_ended)
        sim_fail(s, "process %u responds after its end", q->to->no);
    if (!err)
        check_response(q, response);
    else if (err == OWN_ERROR)
        check_own_error(q, teff_error(ctx));
    else
        check_failure(q, err, teff_error(ctx));
}

/* Of those that were spawned so far; more often one that has not ended. */
static actor *some_server(sim_processes *all)
{
    actor *a = NULL;
    for (int tries = 0; tries < 4 && all->n_actors && (!a || !a->serves || a->ended); tries++)
        a = &all->actors[below(all, all->n_actors)];
    return a && a->serves ? a : NULL;
}

/* in: from, ACTORS: a task. out: false: there are no servers, or too many requests. */
static bool ask_begins(asking *q, sim_processes *all, teff_ctx *ctx, sim_silo *place, unsigned from)
{
    sim_world *w = all->world;
    actor *to = some_server(all);
    if (!to || all->n_asks == ASKS)
        return false;
    *q = (asking){.world = w,
                  .place = place,
                  .start = place->starts,
                  .to = to,
                  .id = all->n_asks++,
                  .was_ended = to->ended,
                  .young = is_young(w, place) || is_young(w, to->place)};
    letter *l = letter_new(all, q->id, from, to->no);
    bool hurried = sim_draw_chance(&all->draw, w->s.faults.timeouts) && !w->s.left_out.timeouts;
    teff_ctx_set_timeout(ctx, hurried ? 1 + (uint32_t)below(all, 60) : 0);
    q->begun = teff_pid_ask_async(ctx, to->pid, q->id, l, letter_bytes(l), NULL, &q->call);
    free(l);
    return true;
}

static void ask_some(sim_processes *all, teff_ctx *ctx, sim_silo *place, unsigned from)
{
    asking some[AT_ONCE];
    size_t n = 0;
    for (uint64_t want = 1 + below(all, AT_ONCE); n < want; n++)
        if (!ask_begins(&some[n], all, ctx, place, from))
            break;
    for (size_t i = 0; i < n && !all->world->s.broken; i++) {
        teff_event response = {0};
        teff_err err = some[i].begun;
        if (!err)
            err = teff_pid_ask_await(ctx, &some[i].call, &response);
        ask_ended(&some[i], ctx, err, &response);
    }
    teff_ctx_reset(ctx);
}

/* ---- clients and tasks ---- */

static void send_some(actor *a, teff_ctx *ctx)
{
    sim_processes *all = a->world->processes;
    actor *to = some_server(all);
    for (uint64_t n = to ? 1 + below(all, 5) : 0; n > 0; n--) {
        letter *l = letter_new(all, 0, a->no, to->no);
        teff_event message = {.data = l, .len = letter_bytes(l), .from = a->pid};
        bool was_ended = to->ended;
        teff_err err = below(all, 2)
                           ? teff_pid_send(ctx, to->pid, &message)
                           : teff_process_send(a->place->silo->processes, to->pid, &message);
        free(l);
        sim_trace_add(&a->world->s.trace, a->world->s.now_ns, a->place->node.name, "send", to->no,
                      err);
        if (!err && was_ended && to->place == a->place && to->start == a->start)
            sim_fail(&a->world->s, "process %u takes a message after its end", to->no);
        if (err && err != TEFF_E_CLOSED && err != TEFF_E_UNAVAILABLE)
            sim_fail(&a->world->s, "a message to process %u ends as %s", to->no,
                     teff_err_name(err));
        a->sent[to->no] += !err;
    }
}

static teff_err run_client(void *self, teff_process *me)
{
    actor *a = self;
    sim_world *w = a->world;
    teff_ctx *ctx = teff_process_ctx(me);
    teffi_bug_if(!ctx);
    while (a->left-- && w->stage == SIM_RUNS && !w->s.broken) {
        if (below(w->processes, 2))
            ask_some(w->processes, ctx, a->place, a->no);
        else
            send_some(a, ctx);
        if (teff_process_sleep(me, (uint32_t)below(w->processes, 40)))
            break;
    }
    w->processes->under_way--;
    return TEFF_OK;
}

static void run_ask(teff_ctx *ctx, void *arg)
{
    sim_silo *place = arg;
    sim_processes *all = place->world->processes;
    for (uint64_t n = 1 + below(all, 6); n > 0 && place->world->stage == SIM_RUNS; n--)
        ask_some(all, ctx, place, ACTORS);
    all->under_way--;
}

static void spawn(sim_processes *all, sim_silo *place)
{
    static const teff_process_ops server = {.name = "server", .step = serve},
                                  client = {.name = "client",
                                            .flags = TEFF_PROCESS_FIBER,
                                            .run = run_client};
    if (all->n_actors == ACTORS)
        return;
    actor *a = &all->actors[all->n_actors];
    *a = (actor){.world = all->world,
                 .place = place,
                 .start = place->starts,
                 .no = all->n_actors,
                 .serves = below(all, 2),
                 .left = 1 + (unsigned)below(all, 60)};
    teff_err err = teff_process_spawn(place->silo->processes, a->serves ? &server : &client, a,
                                      NULL, NULL, 0, &a->pid);
    if (err) {
        sim_fail(&all->world->s, "a process cannot be spawned: %s", teff_err_name(err));
        return;
    }
    all->n_actors++;
    all->under_way += !a->serves;
}

/* ---- the schedule ---- */

static sim_silo *some_silo(sim_processes *all)
{
    sim_silo *place = &all->world->silos[below(all, all->world->n_silos)];
    return place->state == SIM_SERVING && place->silo->processes ? place : NULL;
}

static void cancel_some(sim_processes *all, sim_silo *place)
{
    if (all->n_actors)
        (void)teff_process_cancel(place->silo->processes,
                                  all->actors[below(all, all->n_actors)].pid);
}

static void draw_process(sim *s, void *arg, bool run)
{
    sim_processes *all = arg;
    sim_silo *place = run ? some_silo(all) : NULL;
    if (!run || all->world->stage != SIM_RUNS)
        return;
    uint64_t which = below(all, 10);
    if (place && which < 5) {
        spawn(all, place);
    } else if (place && which < 9) {
        all->under_way++;
        teffi_bug_if(teffi_task_start(&place->silo->node.home, run_ask, place, "ask", false) !=
                     TEFF_OK);
    } else if (place) {
        cancel_some(all, place);
    }
    sim_at(s, below(all, 200 * SIM_MS), draw_process, all);
}

void sim_processes_init(sim_world *w)
{
    sim_draw draw = sim_draw_of(w->s.seed, STREAM_PROCESS);
    bool planted = w->s.plant == SIM_PLANT_REPEATED || w->s.plant == SIM_PLANT_DROPPED;
    if (!sim_draw_chance(&draw, 300) && !planted)
        return;
    w->processes = calloc(1, sizeof *w->processes);
    teffi_bug_if(!w->processes);
    w->processes->world = w;
    w->processes->draw = draw;
    sim_at(&w->s, 300 * SIM_MS, draw_process, w->processes);
}

void sim_processes_fini(sim_world *w)
{
    free(w->processes);
    w->processes = NULL;
}

unsigned sim_processes_under_way(const sim_world *w)
{
    return w->processes ? w->processes->under_way : 0;
}

unsigned sim_processes_asks(const sim_world *w)
{
    return w->processes ? w->processes->n_asks : 0;
}

/* ---- the processes of a silo ---- */

static void on_end(void *arg, teff_pid pid, teff_err err)
{
    sim_silo *place = arg;
    sim_processes *all = place->world->processes;
    for (unsigned i = 0; i < all->n_actors; i++) {
        actor *a = &all->actors[i];
        if (!teff_pid_equals(a->pid, pid))
            continue;
        if (a->ended || a->place != place || (err && err != TEFF_E_CANCELLED))
            sim_fail(&place->world->s, "process %u ends as %s", i, teff_err_name(err));
        a->ended = true;
        return;
    }
    sim_fail(&place->world->s, "an unknown process ends");
}

void sim_processes_start(sim_silo *place)
{
    teff_process_system *system;
    const teff_process_options opt = {.size = sizeof opt, .ended = on_end, .arg = place};
    if (!place->world->processes)
        return;
    if (teff_silo_processes(place->silo, &opt, &system))
        sim_fail(&place->world->s, "silo %u cannot have processes", place->no);
}

void sim_processes_stop(sim_silo *place)
{
    sim_processes *all = place->world->processes;
    bool force = place->node.dead || below(all, 4) == 0;
    teff_err err = teffi_silo_stop_engines_and_processes(place->silo, force ? 1 : STOP_MS);
    if (err && !force)
        sim_fail(&place->world->s, "the processes of silo %u do not end", place->no);
    for (unsigned i = 0; i < all->n_actors; i++)
        if (all->actors[i].place == place && !all->actors[i].ended)
            sim_fail(&place->world->s, "process %u has not ended, though its silo stops", i);
}

/* ---- at the end ---- */

static void check_pair(const sim_world *w, sim *s, const actor *from, const actor *to)
{
    uint32_t sent = from->sent[to->no], received = to->received[from->no];
    bool well = sim_calm(w) && !to->ended && serves_still(to->place, to->start);
    if (received > sent || (well && received < sent))
        sim_fail(s, "process %u got %u of the %u messages of process %u", to->no, received, sent,
                 from->no);
}

void sim_processes_audit(sim_world *w)
{
    sim_processes *all = w->processes;
    for (unsigned i = 0; all && i < all->n_asks; i++)
        if (all->untaken[i] && all->fates[i] != NOT_TAKEN)
            sim_fail(&w->s, "request %u was taken, and its caller was told that it was not", i);
    for (unsigned i = 0; all && i < all->n_actors * all->n_actors; i++)
        check_pair(w, &w->s, &all->actors[i / all->n_actors], &all->actors[i % all->n_actors]);
}
