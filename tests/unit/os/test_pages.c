/* test_pages.c - memory that begins as an image or as zeros, and is that again after a decommit;
 * guards that fault, as many as the system allows. */
#include "../faults.h"
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "os/pages.h"

enum { PAGE = 4096, IMAGE = 2 * PAGE, COPIES = 4 };

static char image[IMAGE];

/* write() takes at most so many bytes at once. */
static size_t write_max = 1000;

ssize_t __real_write(int fd, const void *from, size_t n);
ssize_t __wrap_write(int fd, const void *from, size_t n);
ssize_t __wrap_write(int fd, const void *from, size_t n)
{
    if (!write_max) {
        errno = ENOSPC;
        return -1;
    }
    return __real_write(fd, from, n < write_max ? n : write_max);
}

static int setup(void **state)
{
    for (size_t i = 0; i < IMAGE; i++)
        image[i] = (char)(i % 251 + 1);
    return 0;
}

/* Does the system fault when it reads there? */
static bool faults(const char *at)
{
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    bool fault = __real_write(fd[1], at, 1) < 0 && errno == EFAULT;
    close(fd[0]);
    close(fd[1]);
    return fault;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void each_part_is_a_copy_of_the_image(void **state)
{
    struct stat file;
    teffi_pages pages;
    assert_true(teffi_pages_init(&pages, image, IMAGE));
    assert_int_equal(fstat(pages.fd, &file), 0);
    assert_int_equal(file.st_size, IMAGE);
    char *at = teffi_pages_reserve(&pages, COPIES * IMAGE);
    assert_non_null(at);
    assert_true(faults(at)); /* not committed yet */
    static const size_t parts[] = {PAGE, 3 * PAGE, 2 * PAGE, 2 * PAGE};
    size_t end = 0;
    for (unsigned i = 0; i < 4; i++) {
        assert_true(teffi_pages_commit(&pages, at, end, parts[i]));
        end += parts[i];
    }
    int fd = pages.fd;
    teffi_pages_fini(&pages); /* mappings stay */
    assert_false(is_open(fd));
    teffi_pages_fini(&pages);
    for (unsigned i = 0; i < COPIES; i++) {
        assert_memory_equal(at + i * IMAGE, image, IMAGE);
        memset(at + i * IMAGE, (int)i, IMAGE);
    }
    assert_true(teffi_pages_decommit(at + IMAGE, IMAGE));
    assert_memory_equal(at + IMAGE, image, IMAGE);
    assert_int_equal(at[0], 0);
    assert_int_equal(at[2 * IMAGE], 2);
    assert_false(teffi_pages_decommit(at, PAGE - 1)); /* not whole pages */
    assert_int_equal(at[0], 0);
    assert_false(teffi_pages_decommit(at + 1, PAGE));
    teffi_pages_release(at, COPIES * IMAGE);
    assert_true(faults(at));
}

static void without_an_image_there_are_zeros(void **state)
{
    static const char zeros[IMAGE];
    teffi_pages pages;
    assert_true(teffi_pages_init(&pages, NULL, 0));
    assert_int_equal(pages.fd, -1);
    char *at = teffi_pages_reserve(&pages, COPIES * IMAGE);
    assert_true(teffi_pages_commit(&pages, at, 0, IMAGE));
    assert_memory_equal(at, zeros, IMAGE);
    memset(at, 1, IMAGE);
    assert_true(teffi_pages_decommit(at, IMAGE));
    assert_memory_equal(at, zeros, IMAGE);
    teffi_pages_release(at, COPIES * IMAGE);
    teffi_pages_fini(&pages);
}

static void the_file_may_have_descriptor_0(void **state)
{
    teffi_pages pages;
    int saved = dup(0);
    close(0);
    assert_true(teffi_pages_init(&pages, image, IMAGE));
    assert_int_equal(pages.fd, 0);
    teffi_pages_fini(&pages);
    assert_false(is_open(0));
    assert_int_equal(dup2(saved, 0), 0);
    close(saved);
}

static void a_failed_system_call_is_told(void **state)
{
    struct rlimit before, none;
    teffi_pages pages;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_false(teffi_pages_init(&pages, image, IMAGE));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    teffi_pages_fini(&pages);
    write_max = 0;
    assert_false(teffi_pages_init(&pages, image, IMAGE));
    teffi_pages_fini(&pages);
    write_max = 1; /* one byte at a time is slow, but right */
    assert_true(teffi_pages_init(&pages, image, IMAGE));
    write_max = 1000;
    atomic_store(&faults_left, 1);
    assert_null(teffi_pages_reserve(&pages, IMAGE));
    char *at = teffi_pages_reserve(&pages, IMAGE);
    atomic_store(&faults_left, 1);
    assert_false(teffi_pages_commit(&pages, at, 0, IMAGE));
    assert_true(teffi_pages_commit(&pages, at, 0, IMAGE));
    assert_memory_equal(at, image, IMAGE);
    teffi_pages_release(at, IMAGE);
    teffi_pages_fini(&pages);
}

/* ---- guards ---- */

static void a_guard_faults(void **state)
{
    teffi_pages zeros = {.fd = -1};
    unsigned mapped = 0;
    char *at = teffi_pages_reserve(&zeros, 3 * PAGE);
    bool light = madvise(at, PAGE, 102 /* MADV_GUARD_INSTALL */) == 0;
    assert_true(teffi_guard_install(at + PAGE, PAGE, false, &mapped));
    assert_true(faults(at + PAGE) && faults(at + 2 * PAGE - 1));
    assert_false(faults(at + 2 * PAGE));
    assert_int_equal(mapped, !light);
    teffi_guards_lower_count(mapped);
    teffi_pages_release(at, 3 * PAGE);
}

/* out: how many can be installed, each on every second page. */
static unsigned install_guards(char *at, unsigned n, bool reserved, unsigned *mapped)
{
    unsigned made = 0;
    while (made < n && teffi_guard_install(at + made * 2 * PAGE, PAGE, reserved, mapped)) {
        assert_true(faults(at + made * 2 * PAGE));
        made++;
    }
    return made;
}

static void guards_are_limited_and_some_are_reserved(void **state)
{
    enum { MAX = 10, ALL = 2 * (MAX + TEFFI_GUARDS_RESERVED + 1) * PAGE };
    teffi_pages zeros = {.fd = -1};
    unsigned mapped = 0, more = 0;
    char *at = teffi_pages_reserve(&zeros, ALL);
    teffi_guards_simulated = MAX;
    for (int round = 0; round < 2; round++) {
        mapped = more = 0;
        assert_int_equal(install_guards(at, MAX + 1, false, &mapped), MAX);
        assert_int_equal(mapped, MAX);
        assert_int_equal(install_guards(at, TEFFI_GUARDS_RESERVED + 1, true, &more),
                         TEFFI_GUARDS_RESERVED);
        teffi_guards_lower_count(mapped + more);
    }
    teffi_pages_release(at, ALL);
    mapped = 0; /* there is nothing to protect any more, and such a guard does not count */
    for (unsigned i = 0; i < 2 * MAX; i++)
        assert_false(teffi_guard_install(at, PAGE, false, &mapped));
    at = teffi_pages_reserve(&zeros, ALL);
    assert_int_equal(install_guards(at, MAX + 1, false, &mapped), MAX);
    teffi_guards_lower_count(mapped);
    teffi_pages_release(at, ALL);
    teffi_guards_simulated = 0;
}

/* ---- the heap ---- */

static void a_trimmed_heap_holds_no_free_pages(void **state)
{
    enum { N = 10000, BYTES = 1000 };
    static void *chunk[N];
    unsigned char in_memory;
    for (unsigned i = 0; i < N; i++)
        memset(chunk[i] = malloc(BYTES), 1, BYTES);
    for (unsigned i = 0; i < N - 1; i++) /* the last one stays at the top */
        free(chunk[i]);
    if (mallinfo2().fordblks > N * BYTES / 2) { /* else a sanitizer has another heap */
        teffi_pages_trim_heap();
        void *page = (void *)((uintptr_t)chunk[N / 2] / PAGE * PAGE);
        assert_int_equal(mincore(page, PAGE, &in_memory), 0);
        assert_int_equal(in_memory & 1, 0);
    }
    free(chunk[N - 1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_part_is_a_copy_of_the_image),
        cmocka_unit_test(without_an_image_there_are_zeros),
        cmocka_unit_test(the_file_may_have_descriptor_0),
        cmocka_unit_test(a_failed_system_call_is_told),
        cmocka_unit_test(a_guard_faults),
        cmocka_unit_test(guards_are_limited_and_some_are_reserved),
        cmocka_unit_test(a_trimmed_heap_holds_no_free_pages),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
