/* scene_process.c - processes on the whole executor: they and two threads outside spawn, send, ask,
 * cancel and complete commands, while processes end and their slots are used again; then the system
 * stops. Messages of one sender come in order, once, and to the life that they were sent to; each
 * request gets one response; each process begins and ends once.
 * Way:     explore_main -> [scene] -> explored runtime/process and all below it
 * Threads: as explore.h. */
#include <string.h>
#include "base/bug.h"
#include "explore.h"
#include "group/exec.h"
#include "process/send.h"
#include "process/turn.h"
#include "sched/exec.h"
#include "sched/worker.h"

enum {
    ACTORS = 6,
    OUTSIDERS = 2,
    ACTIONS_MAX = 6,
    REQUESTS = 32,
    WAITING = 4, /* commands that nobody has completed yet */
    COMMAND = 1  /* the one with a handler */
};

typedef struct letter { /* the data of a message */
    unsigned from, to, number;
} letter;

typedef struct actor { /* one life of a process */
    teff_pid pid;
    bool refused, known, inside;
    unsigned inits, closes, ends, cancels, upgrades, retries;
    unsigned timers_set, timers_fired, commands, completions;
    unsigned events_left;
    unsigned next_number[ACTORS + OUTSIDERS]; /* of each sender, at least this comes next */
} actor;

static teffi_exec *exec;
static teff_process_system *processes;
static actor actors[ACTORS];
static unsigned n_actors, n_spawning, n_requests, n_sent;
static bool responded[REQUESTS];
static teff_completion waiting[WAITING];
static unsigned n_waiting;
static bool stops; /* commands are completed at once */
static uint32_t nested_of_4;

static void act(unsigned self);

/* ---- what must hold ---- */

static void enter(actor *a)
{
    if (a->inside)
        explore_fail("two functions of a process at once");
    if (a->ends)
        explore_fail("a process runs after its end");
    a->inside = true;
    explore_point("scene", "inside");
}

static void leave(actor *a)
{
    explore_point("scene", "inside");
    a->inside = false;
}

static void on_letter(actor *a, const teff_event *event)
{
    const letter *l = event->data;
    if (event->len != sizeof *l || l->to != a - actors)
        explore_fail("a message comes to another process than it was sent to");
    if (l->number < a->next_number[l->from])
        explore_fail("message %u of sender %u comes twice, or too late", l->number, l->from);
    a->next_number[l->from] = l->number + 1;
}

/* out: the process ends now. */
static bool on_event(actor *a, const teff_event *event)
{
    switch (event->kind) {
    case TEFF_EVENT_REQUEST:
        on_letter(a, event);
        if (teff_pid_respond(processes, event, TEFF_OK, NULL, 0))
            explore_fail("a response is refused");
        break;
    case TEFF_EVENT_MESSAGE:
        on_letter(a, event);
        break;
    case TEFF_EVENT_RETURNED:
        if (((const letter *)event->data)->from != a - actors)
            explore_fail("a message returns to another process than sent it");
        break;
    case TEFF_EVENT_TIMER:
        if (++a->timers_fired > a->timers_set)
            explore_fail("a timer comes that was not set");
        break;
    case TEFF_EVENT_COMPLETE:
        if (++a->completions > a->commands)
            explore_fail("a completion comes without a command");
        break;
    case TEFF_EVENT_CANCEL:
        if (a->cancels++)
            explore_fail("a process is cancelled twice");
        return true;
    }
    return a->events_left == 0 || --a->events_left == 0;
}

/* teffi_pid_route.respond; also of requests that no process has taken */
static teff_err on_response(void *arg, const teff_event *request, teff_err err, const void *data,
                            size_t len)
{
    (void)arg;
    (void)err;
    (void)data;
    (void)len;
    if (responded[request->call])
        explore_fail("a request gets two responses");
    responded[request->call] = true;
    return TEFF_OK;
}

static void on_end(void *arg, teff_pid pid, teff_err err)
{
    (void)arg;
    (void)err;
    for (unsigned i = 0; i < n_actors; i++) {
        if (!teff_pid_equals(actors[i].pid, pid))
            continue;
        if (actors[i].ends)
            explore_fail("a process ends twice");
        explore_flush(ex.current); /* its generation, which senders compare */
        actors[i].ends = 1;
    }
}

/* ---- functions of processes ---- */

static teff_err on_init(void *self, teff_process *me, const char *method, const void *input,
                        size_t len)
{
    actor *a = self;
    enter(a);
    if (a->inits++ != a->upgrades || strcmp(method, "begin") || len != sizeof(unsigned) ||
        *(const unsigned *)input != a - actors)
        explore_fail("a process begins twice, or with another's input");
    if (!teff_pid_equals(teff_process_pid(me), a->pid) || teff_process_system_of(me) != processes)
        explore_fail("a process is another one");
    leave(a);
    return explore_draw(16) ? TEFF_OK : TEFF_E_FAILED;
}

static void on_close(void *self)
{
    actor *a = self;
    enter(a);
    if (a->closes++ > a->upgrades)
        explore_fail("a process is closed twice");
    leave(a);
}

static void set_timer(actor *a, teff_process *me)
{
    a->timers_set++;
    teffi_bug_if(teff_process_set_timer(me, explore_draw(3), 0) != TEFF_OK);
}

static uint32_t some_command(actor *a)
{
    a->commands++;
    return explore_draw(8) ? COMMAND : COMMAND + 1;
}

static void give_way(void)
{
    if (explore_draw(2)) {
        (void)teff_yield();
        return;
    }
    explore_flush(ex.current);
    teffi_worker_self()->preempt = 1;
    (void)teff_yield_if_due();
}

static const teff_process_ops patient_ops, plain_ops;

static teff_err decide(actor *a, teff_step *out)
{
    unsigned number = (unsigned)(a - actors);
    switch (explore_draw(8)) {
    case 0:
        return a->events_left > 2 ? teff_step_continue(out) : teff_step_idle(out);
    case 1:
        return teff_step_block(out);
    case 2:
        if (a->upgrades)
            break;
        a->upgrades = 1;
        return teff_step_upgrade(out, explore_draw(2) ? &plain_ops : &patient_ops, a, "begin",
                                 &number, sizeof number);
    case 3:
        set_timer(a, teff_step_process(out));
        break;
    case 4:
        (void)teff_step_command(out, some_command(a), 0, "x", 1);
        break;
    default:
        break;
    }
    return explore_draw(64) ? TEFF_OK : TEFF_E_FAILED;
}

/* As a step that polls does. out: the process ends now. */
static bool take_mail(actor *a, teff_process *me)
{
    teffi_event *event = teffi_process_take_message(me);
    bool ends = event && on_event(a, &event->event);
    if (event)
        teffi_event_free(me, event);
    return ends;
}

static teff_err on_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    actor *a = self;
    bool ends = false;
    enter(a);
    for (size_t i = 0; i < n; i++)
        ends |= on_event(a, &events[i]);
    if (!ends && a->events_left) /* a step without an event counts, too */
        a->events_left--;
    if (explore_draw(8) == 0)
        ends |= take_mail(a, teff_step_process(out));
    if (explore_draw(2))
        act((unsigned)(a - actors));
    if (explore_draw(8) == 0)
        give_way();
    teff_err err = ends ? teff_step_done(out) : decide(a, out);
    leave(a);
    return err;
}

/* Once, it wants the same event again, after a poke. */
static teff_err on_patient_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    actor *a = self;
    bool cancelled = n && events[0].kind == TEFF_EVENT_CANCEL;
    if (!cancelled && explore_draw(4) == 0 && !a->retries++)
        return teffi_step_set_retry(out);
    return on_step(self, events, n, out);
}

static void wait_somehow(actor *a, teff_process *me)
{
    teff_event reply;
    switch (explore_draw(8)) {
    case 0:
        (void)!teff_process_sleep(me, explore_draw(3));
        break;
    case 1:
        (void)!teff_process_yield(me);
        break;
    case 2:
        a->completions++;
        (void)!teff_process_ask(me, some_command(a), "x", 1, &reply);
        break;
    case 3:
        (void)!teff_process_command(me, some_command(a), 0, "x", 1);
        break;
    case 4:
        set_timer(a, me);
        break;
    default:
        break;
    }
}

static teff_err on_run(void *self, teff_process *me)
{
    actor *a = self;
    teff_event event;
    bool ends = false;
    while (!ends && !teff_process_receive(me, &event)) {
        enter(a);
        ends = on_event(a, &event);
        if (explore_draw(2))
            act((unsigned)(a - actors));
        leave(a);
        wait_somehow(a, me);
    }
    return TEFF_OK;
}

static const teff_process_ops
    plain_ops = {.name = "plain", .init = on_init, .step = on_step, .close = on_close},
    fiber_ops = {.name = "fiber",
                 .flags = TEFF_PROCESS_FIBER,
                 .init = on_init,
                 .step = on_step,
                 .close = on_close},
    patient_ops = {.name = "patient",
                   .step_max = 1,
                   .priority = -1,
                   .init = on_init,
                   .step = on_patient_step,
                   .close = on_close},
    run_ops = {.name = "run",
               .flags = TEFF_PROCESS_FIBER,
               .init = on_init,
               .run = on_run,
               .close = on_close},
    nested_ops = {.name = "nested", .init = on_init, .run = on_run, .close = on_close};

/* ---- what anybody does ---- */

static void spawn_one(void)
{
    static const teff_process_ops *const all[] = {&plain_ops, &fiber_ops, &patient_ops, &run_ops};
    if (n_actors == ACTORS)
        return;
    unsigned number = n_actors++;
    actor *a = &actors[number];
    const teff_process_ops *ops =
        explore_draw(4) < nested_of_4 ? &nested_ops : all[explore_draw(4)];
    a->events_left = 1 + explore_draw(6);
    n_spawning++;
    teff_err err = teff_process_spawn(processes, ops, a, "begin", &number, sizeof number, &a->pid);
    if (err && err != TEFF_E_CLOSED && err != TEFF_E_OVERLOADED)
        explore_fail("a process cannot be spawned: %s", teff_err_name(err));
    n_spawning--;
    explore_flush(ex.current); /* as whatever tells others of its PID */
    a->refused = err != TEFF_OK;
    a->known = !err;
}

static actor *some_actor(void)
{
    actor *a = n_actors ? &actors[explore_draw(n_actors)] : NULL;
    return a && a->known ? a : NULL;
}

/* in: was_over: its end was known before the send. */
static bool is_sent(teff_err err, bool was_over)
{
    bool known = !err || err == TEFF_E_CLOSED || err == TEFF_E_OVERLOADED;
    if (!known || (was_over && err != TEFF_E_CLOSED))
        explore_fail("sending ends as %s", teff_err_name(err));
    return !err;
}

static void send_one(unsigned self, actor *to)
{
    letter l = {self, (unsigned)(to - actors), n_sent++};
    teff_event event = {.data = &l, .len = sizeof l};
    bool was_over = to->ends;
    if (self < ACTORS)
        event.from = actors[self].pid;
    (void)is_sent(teff_process_send(processes, to->pid, &event), was_over);
}

static void ask_one(unsigned self, actor *to)
{
    if (n_requests == REQUESTS)
        return;
    letter l = {self, (unsigned)(to - actors), n_sent++};
    teff_event event = {.kind = TEFF_EVENT_REQUEST, .data = &l, .len = sizeof l};
    bool was_over = to->ends;
    event.call = n_requests++;
    if (!is_sent(teffi_process_deliver(processes, to->pid, &event), was_over))
        (void)on_response(NULL, &event, TEFF_E_CLOSED, NULL, 0); /* as the node does */
}

/* To a process of another silo, which cannot be reached; and one that was sent before returns. */
static void send_away(actor *from)
{
    const teff_pid away = {.silo = 1, .incarnation = 1, .slot = TEFFI_PROCESS_BIT, .generation = 1};
    letter l = {.from = (unsigned)(from - actors)};
    teff_event event = {.data = &l, .len = sizeof l};
    bool was_over = from->ends;
    if (teff_process_send(processes, away, &event) != TEFF_E_UNAVAILABLE)
        explore_fail("a message leaves a system without a route");
    event.kind = TEFF_EVENT_RETURNED;
    event.from = away;
    (void)is_sent(teffi_process_deliver(processes, from->pid, &event), was_over);
}

static void cancel_one(actor *to)
{
    bool was_over = to->ends;
    teff_event event = {.kind = TEFF_EVENT_CANCEL};
    (void)is_sent(teffi_process_deliver(processes, to->pid, &event), was_over);
}

/* Cancels a process while it is spawned, by the PID that it will have if its slot was used before.
 * A signal that is lost then hides the later ones, and the process would never end. */
static void cancel_spawning(void)
{
    for (unsigned i = 0; i < n_actors; i++) {
        teff_pid pid = actors[i].pid;
        pid.generation += 2;
        if (actors[i].ends)
            (void)teffi_process_signal(processes, pid, TEFFI_SIGNAL_CANCEL);
    }
}

static void complete_one(void)
{
    if (!n_waiting)
        return;
    unsigned which = explore_draw(n_waiting);
    teff_completion name = waiting[which];
    waiting[which] = waiting[--n_waiting];
    teff_err err = teff_command_complete(name, TEFF_OK, "done", 4);
    if (err && err != TEFF_E_CLOSED)
        explore_fail("a completion ends as %s", teff_err_name(err));
    if (explore_draw(8) == 0 && !teff_command_complete(name, TEFF_OK, NULL, 0))
        explore_fail("a command is completed twice");
}

static void on_command(void *arg, const teff_command *command)
{
    (void)arg;
    if (!stops && n_waiting < WAITING && explore_draw(2))
        waiting[n_waiting++] = command->completion;
    else
        (void)teff_command_complete(command->completion, TEFF_OK, NULL, 0);
}

static void on_line(void *arg, const char *line)
{
    (void)arg;
    explore_note("%s", line);
}

static void look_around(void)
{
    teff_process_info infos[ACTORS];
    teff_process_stats stats;
    teff_process_count counts[4];
    size_t n = teff_process_list(processes, infos, ACTORS);
    for (size_t i = 0; i < n; i++)
        (void)teffi_process_has_room(processes, infos[i].pid, sizeof(letter));
    teff_process_stats_get(processes, &stats);
    if (teff_process_worker_counts(processes, counts, 4) != exec->workers + 1)
        explore_fail("not all workers are counted");
    (void)teff_process_sched_metrics(processes, NULL, NULL, 0);
    (void)teff_process_system_scale(processes, 1 + explore_draw(exec->workers));
    teff_process_system_dump(processes, on_line, NULL);
}

static void act(unsigned self)
{
    actor *to = some_actor();
    uint32_t which = explore_draw(12);
    if (n_spawning && explore_draw(2))
        cancel_spawning();
    else if (!to || which == 0)
        spawn_one();
    else if (which < 5)
        send_one(self, to);
    else if (which < 8)
        ask_one(self, to);
    else if (which == 8)
        cancel_one(to);
    else if (which == 9)
        complete_one();
    else if (which == 10)
        (void)teffi_process_signal(processes, to->pid, TEFFI_SIGNAL_POKE);
    else if (explore_draw(8) == 0)
        look_around();
    else
        send_away(to);
}

static void act_often(void *arg)
{
    unsigned self = ACTORS + *(unsigned *)arg;
    for (uint32_t n = 1 + explore_draw(ACTIONS_MAX); n > 0; n--)
        act(self);
}

/* ---- a run ---- */

static teff_sched_options draw_policy(void)
{
    teff_sched_options opt = {.queue_warn = explore_draw(4) == 0};
    if (explore_draw(4) == 0) {
        opt.policy = TEFF_SCHED_PRIORITY;
        opt.waiting_max = 1 + explore_draw(3);
    }
    return opt;
}

static void start_system(void)
{
    const teff_process_options unsized = {.mailbox_max = 1};
    const teff_sched_options sched = draw_policy();
    teff_process_options opt = {.size = sizeof opt,
                                .ended = on_end,
                                .measure = (int)explore_draw(2),
                                .processes_max = explore_draw(2) * (2 + explore_draw(3)),
                                .mailbox_max = explore_draw(2) * (1 + explore_draw(3))};
    if (teffi_exec_real_new(&explore_platform, 1 + explore_draw(3), &sched, &exec) ||
        teffi_process_system_new_on(exec, &opt, &processes))
        explore_fail("the system does not start");
    if (explore_draw(16) == 0 && !teffi_process_system_new_on(exec, &unsized, &processes))
        explore_fail("options without a size are taken");
    processes->route.respond = on_response;
    teffi_bug_if(teff_process_set_handler(processes, COMMAND, on_command, NULL) != TEFF_OK);
}

static void wait_for(explore_thread *outsider)
{
    while (outsider->state != EXPLORE_ENDED)
        (void)explore_wait(outsider, UINT64_MAX);
}

static void stop_system(explore_thread **outsiders)
{
    for (unsigned i = 0; i < OUTSIDERS && explore_draw(2); i++)
        wait_for(outsiders[i]);
    stops = true;
    while (n_waiting)
        complete_one();
    (void)teff_process_system_stop(processes, 1 + explore_draw(2) * 10000, NULL);
    while (teffi_processes_count_alive(
        processes)) /* time passes as drawn: it may have waited in vain */
        explore_back_off("scene");
    for (unsigned i = 0; i < OUTSIDERS; i++)
        wait_for(outsiders[i]);
}

static void check_slots(void)
{
    for (uint32_t i = 0; i < ACTORS; i++) {
        teff_process *p = teffi_process_at(processes, i | TEFFI_PROCESS_BIT);
        if (p && teffi_mailbox_get_load(p))
            explore_fail("a mailbox counts messages that are gone");
    }
}

static void live(void *arg)
{
    static unsigned which[OUTSIDERS] = {0, 1};
    explore_thread *outsiders[OUTSIDERS];
    (void)arg;
    start_system();
    for (unsigned i = 0; i < OUTSIDERS; i++)
        outsiders[i] =
            &ex.thread[explore_start(i ? "outside 2" : "outside 1", act_often, &which[i])];
    stop_system(outsiders);
    exec->ops->stop(exec);
    check_slots();
    exec->ops->free(exec);
    teff_process_system_free(processes);
}

static void check(void)
{
    for (unsigned i = 0; i < n_actors; i++) {
        const actor *a = &actors[i];
        if (!a->refused && (!a->ends || a->closes != 1 + a->upgrades))
            explore_fail("process %u was closed %u times", i, a->closes);
    }
    for (unsigned i = 0; i < n_requests; i++)
        if (!responded[i])
            explore_fail("request %u got no response", i);
}

static void play(void)
{
    memset(actors, 0, sizeof actors);
    memset(responded, 0, sizeof responded);
    n_actors = n_spawning = n_requests = n_sent = n_waiting = 0;
    stops = false;
    nested_of_4 = explore_draw(2) ? 1 : 0;
    explore_start("main", live, NULL);
    explore_run();
    check();
}

const explore_scene explore_process = {"process", 2048, play};
