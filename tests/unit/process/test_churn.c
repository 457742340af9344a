/* test_churn.c - processes of every way on more workers than cores: they spawn, send,
 * ask, sleep, cancel and end in slots that are used again all the time. Every token that goes in
 * comes out, every process that is spawned is closed once, nobody gets another's answer. */
#include "processes.h"

enum { WORKERS = 7, ROUNDS = 300, TOKENS = 8, HOPS = 60, ANSWER_LATE = 1 };

static latch ended, tokens;
static _Atomic unsigned closed, wrong;

/* Answers come from a thread of their own, some twice, all with the question as data. */
static struct {
    pthread_mutex_t lock;
    teffi_thread thread;
    teffi_parker parker;
    struct {
        teff_completion completion;
        uint64_t question;
    } waiting[4096];
    unsigned n;
    bool stop;
} answers = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void answer_late(void *arg, const teff_command *command)
{
    pthread_mutex_lock(&answers.lock);
    bool room = answers.n < 4096;
    if (room) {
        answers.waiting[answers.n].completion = command->completion;
        memcpy(&answers.waiting[answers.n++].question, command->data, sizeof(uint64_t));
    }
    pthread_mutex_unlock(&answers.lock);
    if (room)
        teffi_parker_wake(&answers.parker);
    else
        (void)teff_command_complete(command->completion, TEFF_OK, command->data, command->len);
}

static bool answer_all(void)
{
    pthread_mutex_lock(&answers.lock);
    while (answers.n) {
        teff_completion yield = answers.waiting[--answers.n].completion;
        uint64_t question = answers.waiting[answers.n].question;
        pthread_mutex_unlock(&answers.lock);
        (void)teff_command_complete(yield, TEFF_OK, &question, sizeof question);
        if (question % 3 == 0)
            (void)teff_command_complete(yield, TEFF_E_USER, NULL, 0);
        pthread_mutex_lock(&answers.lock);
    }
    bool stop = answers.stop;
    pthread_mutex_unlock(&answers.lock);
    return !stop;
}

static void answerer(void *arg)
{
    while (answer_all())
        teffi_parker_wait(&answers.parker, UINT64_MAX);
}

static void on_close(void *self)
{
    atomic_fetch_add(&closed, 1);
}

/* A token hops: each hop asks a question, then hands the rest of the way to a child and ends. */
typedef struct token {
    uint64_t hops, id;
} token;

static const teff_process_ops *way_of(uint64_t i);

static void hand_on(teff_process_system *system, token t)
{
    if (t.hops == 0) {
        latch_hit(&tokens);
        return;
    }
    t.hops--;
    teff_pid pid;
    teff_err err =
        teff_process_spawn(system, way_of(t.id + t.hops), NULL, "hop", &t, sizeof t, &pid);
    if (err)
        atomic_fetch_add(&wrong, 1);
    else
        (void)send_tag(system, pid, t.id); /* it may have ended: both are right */
}

static teff_err init(void *self, teff_process *me, const char *method, const void *input,
                     size_t len)
{
    token t;
    if (strcmp(method, "hop") != 0 || len != sizeof t)
        return TEFF_E_INVALID;
    memcpy(&t, input, len);
    uint64_t question = t.hops << 32 | t.id;
    if (t.hops % 7 == 0)
        assert_int_equal(teff_process_set_timer(me, 1000, question), TEFF_OK); /* left behind */
    return teff_process_command(me, ANSWER_LATE, question, &t, sizeof t);
}

static bool is_answer(const teff_event *event, token *t)
{
    if (event->kind != TEFF_EVENT_COMPLETE)
        return false;
    memcpy(&t->hops, event->data, sizeof t->hops); /* the question's first word */
    t->id = event->tag & 0xffffffff;
    if (event->err || event->tag >> 32 != t->hops)
        atomic_fetch_add(&wrong, 1);
    return true;
}

static teff_err step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    token t;
    for (size_t i = 0; i < n; i++)
        if (is_answer(&events[i], &t)) {
            hand_on(teff_process_system_of(teff_step_process(out)), t);
            return teff_step_done(out);
        }
    return n % 2 ? teff_step_idle(out) : teff_step_block(out);
}

static teff_err run(void *self, teff_process *me)
{
    teff_event event;
    token t;
    do {
        teff_err err = teff_process_receive(me, &event);
        if (err)
            return err;
    } while (!is_answer(&event, &t));
    hand_on(teff_process_system_of(me), t);
    return TEFF_OK;
}

static const teff_process_ops *way_of(uint64_t i)
{
    static const teff_process_ops ways[3] = {
        {.name = "step", .init = init, .step = step, .close = on_close},
        {.name = "fiber", .flags = TEFF_PROCESS_FIBER, .init = init, .run = run, .close = on_close},
        {.name = "fiber step",
         .flags = TEFF_PROCESS_FIBER,
         .init = init,
         .step = step,
         .close = on_close}};
    return &ways[i % 3];
}

static void test_tokens_are_neither_lost_nor_doubled(void **state)
{
    teff_process_options opt = {.size = sizeof opt,
                                .workers = WORKERS,
                                .processes_max = 1000,
                                .ended = count_end,
                                .arg = &ended};
    teff_process_system *system = system_of(opt);
    assert_int_equal(teff_process_set_handler(system, ANSWER_LATE, answer_late, NULL), TEFF_OK);
    assert_int_equal(teffi_thread_start(&answers.thread, "answers", answerer, NULL), TEFF_OK);
    for (unsigned r = 0; r < ROUNDS; r++) {
        for (unsigned i = 0; i < TOKENS; i++)
            hand_on(system, (token){HOPS, i});
        latch_wait(&tokens, (r + 1) * TOKENS);
    }
    assert_int_equal(teff_process_system_stop(system, 60000, NULL), TEFF_OK);
    pthread_mutex_lock(&answers.lock);
    answers.stop = true;
    pthread_mutex_unlock(&answers.lock);
    teffi_parker_wake(&answers.parker);
    teffi_thread_join(&answers.thread);
    assert_int_equal(atomic_load(&tokens.count), ROUNDS * TOKENS);
    assert_int_equal(atomic_load(&wrong), 0);
    assert_int_equal(atomic_load(&closed), ROUNDS * TOKENS * HOPS);
    assert_int_equal(atomic_load(&ended.count), ROUNDS * TOKENS * HOPS);
    teff_process_system_free(system);
}

/* Many start and stop cycles with work under way: no hang, nothing left. */
static teff_err step_ring(void *self, const teff_event *events, size_t n, teff_step *out)
{
    teff_pid *next = self;
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == TEFF_EVENT_CANCEL)
            return teff_step_done(out);
        (void)send_tag(teff_process_system_of(teff_step_process(out)), *next, events[i].tag);
    }
    return teff_step_idle(out);
}

static void test_start_and_stop_with_work_under_way(void **state)
{
    static const teff_process_ops ops = {.name = "ring", .step = step_ring};
    for (unsigned i = 0; i < 200; i++) {
        teff_process_system *system = system_of((teff_process_options){.workers = 1 + i % 4});
        teff_pid ring[5];
        memset(ring, 0, sizeof ring);
        for (unsigned k = 0; k < 5; k++)
            ring[(k + 4) % 5] = spawn(system, &ops, &ring[k]);
        for (unsigned k = 0; k < 3; k++)
            assert_int_equal(send_tag(system, ring[k], k), TEFF_OK);
        assert_int_equal(teff_process_system_stop(system, 60000, NULL), TEFF_OK);
        teff_process_system_free(system);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_are_neither_lost_nor_doubled),
        cmocka_unit_test(test_start_and_stop_with_work_under_way),
    };
    return cmocka_run_group_tests_name("process/churn", tests, NULL, NULL);
}
