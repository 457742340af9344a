/* faults.h - makes the n-th request for memory or for a thread fail, so that a test sees every
 * branch for it. Include it in one source of a program that is linked with fault_args (meson.build
 * beside this file): the program's own requests and the runtime's are counted, those of shared
 * libraries are not.
 * Threads: any may request. */
#pragma once

#include "test.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <teff/error.h>

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
void __real_free(void *p);
void __wrap_free(void *p);
void *__real_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t from);
void *__wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t from);
int __real_munmap(void *at, size_t n);
int __wrap_munmap(void *at, size_t n);
int __real_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*fn)(void *arg),
                          void *arg);
int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*fn)(void *arg),
                          void *arg);
void *__wrap_teffi_pool_get(size_t n);
void __wrap_teffi_pool_put(void *p, size_t n);

static _Atomic long faults_left;   /* requests until the one that fails */
static _Atomic bool faults_last;   /* each request fails */
static _Atomic long faults_live;   /* objects on the heap */
static _Atomic long faults_mapped; /* bytes */
static _Atomic bool fault_was_mapping;

static bool fails(void)
{
    return atomic_fetch_sub(&faults_left, 1) == 1 || atomic_load(&faults_last);
}

static void *live(void *p)
{
    atomic_fetch_add(&faults_live, p != NULL);
    return p;
}

static void dead(const void *p)
{
    atomic_fetch_sub(&faults_live, p != NULL);
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : live(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : live(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t n)
{
    if (fails())
        return NULL;
    void *moved = __real_realloc(p, n);
    return p ? moved : live(moved);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : live(__real_aligned_alloc(align, n));
}

void __wrap_free(void *p)
{
    dead(p);
    __real_free(p);
}

void *__wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t from)
{
    if (fails()) {
        atomic_store(&fault_was_mapping, true);
        return MAP_FAILED;
    }
    atomic_fetch_add(&faults_mapped, flags & MAP_FIXED ? 0 : (long)n);
    return __real_mmap64(at, n, prot, flags, fd, from);
}

int __wrap_munmap(void *at, size_t n)
{
    atomic_fetch_sub(&faults_mapped, (long)n);
    return __real_munmap(at, n);
}

int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*fn)(void *arg),
                          void *arg)
{
    return fails() ? EAGAIN : __real_pthread_create(id, attr, fn, arg);
}

/* Without the pool, whose free lists belong to threads. */
void *__wrap_teffi_pool_get(size_t n)
{
    return __wrap_malloc(n);
}

void __wrap_teffi_pool_put(void *p, size_t n)
{
    __wrap_free(p);
}

/* Calls op with its first request failing, then with its second, until none is left to fail. Each
 * time nothing stays on the heap, or mapped.
 * in:   op undoes what it did. strict: it must say that it failed, unless a mapping did, which may
 *       be a signal stack's; not strict: it may do without.
 * out:  how many requests it makes. */
__attribute__((unused)) static long fault_sweep(teff_err (*op)(void), bool strict)
{
    assert_int_equal(op(), TEFF_OK); /* makes also what stays */
    long n = 0;
    for (bool failed = true; failed;) {
        long before = atomic_load(&faults_live), mapped = atomic_load(&faults_mapped);
        atomic_store(&faults_left, ++n);
        teff_err err = op();
        failed = atomic_exchange(&faults_left, 0) <= 0;
        if (!failed || (strict && !atomic_exchange(&fault_was_mapping, false)))
            assert_int_equal(err != TEFF_OK, failed);
        assert_int_equal(atomic_load(&faults_live), before);
        assert_int_equal(atomic_load(&faults_mapped), mapped);
    }
    return n - 1;
}
