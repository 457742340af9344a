/* test_warm.c - a call to an idle grain of the same silo, a fan-out to many, and a one-way message,
 * when all that they need has been used before: no memory from the heap, no system call.
 *
 * The heap's functions are counted at link time. System calls are refused by the kernel while a
 * turn says so (syscall user dispatch): the signal that it sends instead is counted, and the call
 * let through. A thread that the machine stopped for a while is given a successor, which needs some
 * of both: one try in twenty may; so what is needed once in 3,000 operations is found. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <ucontext.h>
#include "acts.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

enum { OPS = 200, WIDTH = 100, TRIES = 2000, TRIES_THAT_NEED_MAX = TRIES / 20 };
enum { ALLOW = 0, BLOCK = 1 };

static _Atomic uint64_t allocations, system_calls;
static _Atomic bool calls_unseen;            /* the kernel has no syscall user dispatch */
static _Thread_local volatile char selector; /* a turn may change its thread */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
int __real_posix_memalign(void **out, size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
int __wrap_posix_memalign(void **out, size_t align, size_t n);

void *__wrap_malloc(size_t n)
{
    allocations++;
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    allocations++;
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    allocations++;
    return __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    allocations++;
    return __real_aligned_alloc(align, n);
}

int __wrap_posix_memalign(void **out, size_t align, size_t n)
{
    allocations++;
    return __real_posix_memalign(out, align, n);
}

/* The one that was refused is tried again. */
static void refused(int no, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;
    system_calls++;
    selector = ALLOW;
#if defined(__x86_64__)
    uc->uc_mcontext.gregs[REG_RIP] -= 2;
#elif defined(__aarch64__)
    uc->uc_mcontext.pc -= 4;
#endif
}

static teff_err is_told(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    return key ? TEFF_OK : TEFF_E_FAILED;
}

static teff_err ask(teff_ctx *turn, direct_number **out)
{
    return direct_actor_obey(turn, FIRST, RUN(responds), out);
}

static teff_err one_call(teff_ctx *turn)
{
    return ask(turn, NULL);
}

static teff_err one_way(teff_ctx *turn)
{
    return direct_actor_tell(turn, FIRST, RUN(is_told));
}

static teff_err kept_response(teff_ctx *turn)
{
    direct_number *got;
    return ask(turn, &got);
}

static teff_err fan_out(teff_ctx *turn)
{
    teff_call calls[WIDTH];
    teff_err err = TEFF_OK;
    for (int i = 0; i < WIDTH && !err; i++)
        err = direct_actor_obey_async(turn, FIRST + i, RUN(responds), NULL, &calls[i]);
    if (!err)
        err = teff_await_all(turn, calls, WIDTH);
    for (int i = 0; i < WIDTH && !err; i++)
        teff_drop(turn, &calls[i]);
    return err;
}

static teff_err operations(teff_ctx *turn, const direct_act *in)
{
    teff_err (*operation)(teff_ctx * turn) = (teff_err(*)(teff_ctx *))(uintptr_t)in->n;
    teff_err err = TEFF_OK;
    for (int i = 0; i < (operation == fan_out ? OPS / WIDTH : OPS) && !err; i++)
        err = operation(turn);
    return err;
}

static __attribute__((noinline)) void watch(void)
{
    sigset_t sys; /* workers block what is not theirs */
    sigemptyset(&sys);
    sigaddset(&sys, SIGSYS);
    pthread_sigmask(SIG_UNBLOCK, &sys, NULL);
    if (prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &selector))
        calls_unseen = true;
    else
        selector = BLOCK;
}

static __attribute__((noinline)) void unwatch(void)
{
    selector = ALLOW;
    prctl(PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0);
}

/* Once to warm up, once to count. */
static teff_err counts(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    teff_err err = operations(turn, in);
    uint64_t allocations_before = allocations, calls_before = system_calls;
    watch();
    err = err ? err : operations(turn, in);
    unwatch();
    out->n = (int64_t)(system_calls - calls_before) << 32;
    out->n |= (int64_t)(allocations - allocations_before);
    return err;
}

static void needs(teff_err (*operation)(teff_ctx *turn), int64_t allocations_most,
                  int64_t calls_most)
{
    direct_number *out;
    int more = 0;
    struct sigaction act = {.sa_sigaction = refused, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGSYS, &act, NULL);
    for (int i = 0; i < TRIES; i++) {
        lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(counts, .n = (intptr_t)operation), &out));
        more += (out->n & UINT32_MAX) > allocations_most || out->n >> 32 > calls_most;
        teff_ctx_reset(ctx);
    }
    if (more > TRIES_THAT_NEED_MAX)
        fail_msg("%d times out of %d something was needed", more, TRIES);
    if (calls_unseen)
        skip(); /* the heap's half was seen */
}

static void test_a_call_needs_neither_heap_nor_kernel(void **state)
{
    needs(one_call, 0, 0);
}

static void test_a_fan_out_needs_neither(void **state)
{
    needs(fan_out, 0, 0);
}

static void test_a_one_way_message_needs_neither(void **state)
{
    needs(one_way, 0, 0);
}

/* The caller's memory grows with the responses that it keeps, in blocks that double. */
static void test_responses_are_kept_in_few_blocks(void **state)
{
    needs(kept_response, 3, 3);
}

int main(void)
{
#define WARM(f) cmocka_unit_test_setup_teardown(f, acts_setup_one_worker, acts_teardown)
    const struct CMUnitTest tests[] = {
        WARM(test_a_call_needs_neither_heap_nor_kernel),
        WARM(test_a_fan_out_needs_neither),
        WARM(test_a_one_way_message_needs_neither),
        WARM(test_responses_are_kept_in_few_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
