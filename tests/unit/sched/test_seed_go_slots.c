/* test_seed_go_slots.c - sections 2.2 and 3 of the seed document: slots (P) apart from threads (M),
 * handed over around blocking calls, retaken by the monitor (sysmon) from turns that take too
 * long, and a limit on threads. */
#include "test_seed_go.h"

static latch inside, done, gate_open;

static void until_released(void)
{
    while (!atomic_load(&gate_open.count))
        teffi_thread_yield();
}

static int setup(void **state)
{
    (void)state;
    atomic_store(&inside.count, 0);
    atomic_store(&done.count, 0);
    atomic_store(&gate_open.count, 0);
    return 0;
}

/* ---- P and M ---- */

static void block_until_released(job *j)
{
    assert_true(had_slot(j->exec));
    teff_blocking_begin();
    assert_false(holds_slot(j->exec));
    latch_hit(&inside);
    until_released();
    teff_blocking_end();
    assert_true(had_slot(j->exec));
}

/* "the number of Ms may be far larger than that of Ps: in a system call an M has no P" */
static void test_slots_are_apart_from_threads(void **state)
{
    enum { N = 12, SLOTS = 2 };
    static job jobs[N];
    (void)state;
    teffi_exec *exec = exec_of(SLOTS, NULL);
    for (unsigned i = 0; i < N; i++) {
        job_init(&jobs[i], exec, block_until_released, &done);
        job_push(&jobs[i]);
    }
    latch_wait(&inside, N);
    assert_int_equal(real_of(exec)->n_slots, SLOTS);
    pthread_mutex_lock(&real_of(exec)->idle_lock);
    assert_true(real_of(exec)->n_workers >= N);
    pthread_mutex_unlock(&real_of(exec)->idle_lock);
    latch_hit(&gate_open);
    latch_wait(&done, N);
    exec->ops->free(exec);
}

static void wait_for_peer_in_region(job *j)
{
    job_push(j->peer);
    teff_blocking_begin();
    teff_blocking_begin(); /* they nest */
    while (!atomic_load(&j->peer->runs))
        teffi_thread_yield();
    teff_blocking_end();
    teff_blocking_end();
    assert_true(had_slot(j->exec));
}

/* "the woken M takes the P over and goes on with the goroutines in its local queue" */
static void test_a_blocking_region_hands_the_slot_over(void **state)
{
    (void)state;
    teff_blocking_begin(); /* outside of any turn: nothing */
    teff_blocking_end();
    for (unsigned i = 1; i <= 100; i++) {
        teffi_exec *exec = exec_of(1, NULL);
        job a, b;
        job_init(&a, exec, wait_for_peer_in_region, &done);
        job_init(&b, exec, job_nothing, NULL);
        a.peer = &b;
        job_push(&a);
        latch_wait(&done, i);
        exec->ops->free(exec);
    }
}

/* ---- sysmon retakes ---- */

static void spin_until_released(job *j)
{
    (void)j;
    latch_hit(&inside);
    while (!atomic_load(&gate_open.count))
        ;
}

static void others_go_on(unsigned workers, unsigned hogs, void (*hog)(job *j))
{
    static job h[8];
    latch small_done = {0};
    teffi_exec *exec = exec_of(workers, NULL);
    job small;
    job_init(&small, exec, job_nothing, &small_done);
    for (unsigned i = 0; i < hogs; i++) {
        job_init(&h[i], exec, hog, &done);
        job_push(&h[i]);
    }
    latch_wait(&inside, hogs);
    for (unsigned i = 1; i <= 20; i++) {
        job_push(&small);
        latch_wait(&small_done, i);
    }
    assert_int_equal(atomic_load(&done.count), 0);
    latch_hit(&gate_open);
    latch_wait(&done, hogs);
    exec->ops->free(exec);
}

static void test_one_hog_on_the_only_worker(void **state)
{
    (void)state;
    others_go_on(1, 1, spin_until_released);
}

/* The seed's program: as many endless loops as there are slots, and more. */
static void test_a_hog_on_each_worker_and_more(void **state)
{
    (void)state;
    others_go_on(2, 5, spin_until_released);
}

static teffi_parker nobody_wakes;

static void sleep_undeclared(job *j)
{
    (void)j;
    latch_hit(&inside);
    while (!atomic_load(&gate_open.count))
        teffi_parker_wait(&nobody_wakes, 20000000);
}

/* "the P whose M has been in a system call for long is separated from it" - declared or not */
static void test_a_system_call_that_was_not_declared(void **state)
{
    (void)state;
    others_go_on(1, 1, sleep_undeclared);
}

static teffi_timer late;
static latch fired;

static void on_late(teffi_timer *timer)
{
    (void)timer;
    latch_hit(&fired);
}

/* Loses its slot, then does all a turn may do, which must not touch what is another's now. */
static void act_without_slot(job *j)
{
    latch_hit(&inside);
    do {
        while (holds_slot(j->exec))
            ;
    } while (!lost_slot(j->exec));
    job_push(j->peer);
    late = (teffi_timer){.fire = on_late};
    j->exec->ops->timer_set(j->exec, &late, 0);
    if (j->exec->ops->help)
        assert_false(j->exec->ops->help(j->exec));
    while (!atomic_load(&j->peer->runs) || !atomic_load(&fired.count))
        teffi_thread_yield();
    if (atomic_load(&j->runs) % 2)
        return;
    /* A region entered without a slot is left with one. */
    teff_blocking_begin();
    teff_blocking_end();
    assert_true(had_slot(j->exec));
}

static void test_a_turn_goes_on_without_its_slot(void **state)
{
    latch filler_done = {0};
    (void)state;
    teffi_exec *exec = exec_of(1, NULL);
    job a, b, filler;
    job_init(&a, exec, act_without_slot, &done);
    job_init(&b, exec, job_nothing, NULL);
    job_init(&filler, exec, job_nothing, &filler_done);
    a.peer = &b;
    for (unsigned i = 1; i <= 6; i++) {
        atomic_store(&b.runs, 0);
        atomic_store(&fired.count, 0);
        job_push(&a);
        latch_wait(&inside, i);
        job_push(&filler); /* what the monitor retakes the slot for */
        latch_wait(&done, i);
        latch_wait(&filler_done, i);
    }
    exec->ops->free(exec);
}

/* ---- no work and no slot is lost, however often and at whatever moment slots are retaken ---- */

enum { RUNNERS = 24, HOPS = 5000, RETAKES = 100 };

static job runners[RUNNERS];
static _Atomic unsigned hops;
static _Atomic bool enough;

static void hop(job *j)
{
    unsigned n = atomic_fetch_add(&hops, 1);
    for (unsigned i = 0; i < n % 5000; i++)
        (void)atomic_load(&enough);
    if (!atomic_load(&enough))
        job_push(j->peer);
    if (n % 7 == 0) {
        teff_blocking_begin();
        teff_blocking_end();
    }
    if (n % 11 == 0)
        teffi_thread_yield();
}

static void retake_all(teffi_real *real, unsigned *taken)
{
    for (unsigned i = 0; i < real->n_slots; i++) {
        uint64_t turn = atomic_load(&real->slots[i].turns);
        *taken += teffi_slot_retake(real, &real->slots[i], turn);
    }
}

static void test_slots_retaken_all_the_time(void **state)
{
    unsigned taken = 0;
    (void)state;
    teffi_exec *exec = exec_of(3, NULL);
    atomic_store(&hops, 0);
    atomic_store(&enough, false);
    for (unsigned i = 0; i < RUNNERS; i++) {
        job_init(&runners[i], exec, hop, NULL);
        runners[i].peer = &runners[(i + 1) % RUNNERS];
    }
    /* Two runners may meet in one: fill up from outside. */
    while (atomic_load(&hops) < HOPS || taken < RETAKES) {
        for (unsigned i = 0; i < RUNNERS; i += 4)
            job_push(&runners[i]);
        retake_all(real_of(exec), &taken);
    }
    atomic_store(&enough, true);
    /* Each slot is held by one thread, or free; and work still gets done. */
    job last;
    job_init(&last, exec, job_nothing, &done);
    for (unsigned i = 1; i <= 1000; i++) {
        job_push(&last);
        latch_wait(&done, i);
    }
    teffi_real *real = real_of(exec);
    pthread_mutex_lock(&real->idle_lock);
    unsigned held = 0;
    for (unsigned i = 0; i < real->n_workers; i++)
        held += real->workers[i]->slot != NULL;
    for (teffi_slot *slot = real->free_slots; slot; slot = slot->next_free)
        held++;
    assert_int_equal(held, real->n_slots);
    pthread_mutex_unlock(&real->idle_lock);
    exec->ops->free(exec);
}

/* ---- SetMaxThreads ---- */

static char logged[512];
static latch refused;

static void note_line(void *arg, teffi_level level, const char *line)
{
    (void)arg;
    if (level != TEFFI_ERROR)
        return;
    snprintf(logged, sizeof logged, "%s", line);
    latch_hit(&refused);
}

/* Two threads at most, a hog on each: the third turn waits, the log says why, and it goes on when
 * one of the two comes back. */
static void test_the_limit_on_threads(void **state)
{
    teff_sched_options opt = {.threads_max = 2};
    teffi_log before = platform.log;
    job hog[2], small;
    latch small_done = {0};
    (void)state;
    platform.log = (teffi_log){.write = note_line, .level = TEFFI_ERROR};
    atomic_store(&refused.count, 0);
    teffi_exec *exec = exec_of(1, &opt);
    for (unsigned i = 0; i < 2; i++) {
        job_init(&hog[i], exec, spin_until_released, &done);
        job_push(&hog[i]);
    }
    latch_wait(&inside, 2);
    job_init(&small, exec, job_nothing, &small_done);
    job_push(&small);
    latch_wait(&refused, 1);
    assert_non_null(strstr(logged, "threads_max"));
    assert_non_null(strstr(logged, "2 threads"));
    assert_int_equal(atomic_load(&small_done.count), 0);
    latch_hit(&gate_open);
    latch_wait(&small_done, 1);
    latch_wait(&done, 2);
    for (unsigned i = 2; i <= 100; i++) {
        job_push(&small);
        latch_wait(&small_done, i);
    }
    assert_int_equal(atomic_load(&refused.count), 1); /* said once */
    assert_int_equal(real_of(exec)->n_workers, 2);
    exec->ops->free(exec);
    platform.log = before;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_slots_are_apart_from_threads, setup),
        cmocka_unit_test_setup(test_a_blocking_region_hands_the_slot_over, setup),
        cmocka_unit_test_setup(test_one_hog_on_the_only_worker, setup),
        cmocka_unit_test_setup(test_a_hog_on_each_worker_and_more, setup),
        cmocka_unit_test_setup(test_a_system_call_that_was_not_declared, setup),
        cmocka_unit_test_setup(test_a_turn_goes_on_without_its_slot, setup),
        cmocka_unit_test_setup(test_slots_retaken_all_the_time, setup),
        cmocka_unit_test_setup(test_the_limit_on_threads, setup),
    };
    teffi_platform_real(&platform, TEFFI_INFO);
    return cmocka_run_group_tests_name("sched/seed go slots", tests, NULL, NULL);
}
