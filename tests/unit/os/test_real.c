/* test_real.c - this machine: a child of a fork has random numbers of its own; where the log's
 * lines go. */
#include "test.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/bug.h"
#include "os/platform.h"

enum { N = 64 };

static void draw(const teffi_platform *p, uint64_t *numbers)
{
    for (int i = 0; i < N; i++)
        numbers[i] = p->random(p->arg);
}

static void a_child_draws_other_numbers(void **state)
{
    teffi_platform p;
    uint64_t mine[N], childs[N];
    int ends[2], status;
    teffi_platform_init_real(&p, TEFF_LOG_WARN);
    (void)p.random(p.arg); /* some are left of what was read from the system */
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        draw(&p, childs);
        _exit(write(ends[1], childs, sizeof childs) == (ssize_t)sizeof childs ? 0 : 1);
    }
    assert_true(child > 0);
    draw(&p, mine);
    assert_int_equal(read(ends[0], childs, sizeof childs), sizeof childs);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            assert_true(mine[i] != childs[j]);
    close(ends[0]);
    close(ends[1]);
}

static void a_childs_numbers_are_random(void **state)
{
    teffi_platform p;
    int status;
    teffi_platform_init_real(&p, TEFF_LOG_WARN);
    (void)p.random(p.arg);
    pid_t child = fork();
    if (child == 0) {
        uint64_t numbers[N];
        draw(&p, numbers);
        for (int i = 0; i < N; i++)
            for (int j = 0; j < i; j++)
                if (numbers[i] == numbers[j] || !numbers[i])
                    _exit(1);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void an_old_errno_does_not_matter(void **state)
{
    teffi_platform p;
    uint64_t numbers[N];
    teffi_platform_init_real(&p, TEFF_LOG_WARN);
    errno = EINTR;
    draw(&p, numbers);
    for (int i = 1; i < N; i++)
        assert_true(numbers[i] != numbers[i - 1]);
}

static uint64_t ns_of(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void the_clocks_are_the_systems(void **state)
{
    teffi_platform p;
    teffi_platform_init_real(&p, TEFF_LOG_WARN);
    for (int i = 0; i < 10; i++) {
        uint64_t from = ns_of(CLOCK_BOOTTIME), now = p.mono_ns(p.arg);
        assert_in_range(now, from, ns_of(CLOCK_BOOTTIME));
        from = ns_of(CLOCK_REALTIME);
        now = p.wall_ns(p.arg);
        assert_in_range(now, from, ns_of(CLOCK_REALTIME));
    }
}

/* What a handler got. */
typedef struct page {
    _Atomic unsigned lines[4]; /* by level */
    char last[100];
} page;

static void count(void *arg, teff_log_level level, const char *line)
{
    page *p = arg;
    atomic_fetch_add(&p->lines[level], 1);
}

static void note(void *arg, teff_log_level level, const char *line)
{
    page *p = arg;
    count(arg, level, line);
    strncpy(p->last, line, sizeof p->last - 1);
}

/* Runs fn in a child of its own, which ends by a signal, or with 0. out: its standard error. */
static const char *said(void (*fn)(const teffi_platform *p), int signal)
{
    static char text[1000];
    int ends[2], status;
    size_t n = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        teffi_platform p;
        dup2(ends[1], STDERR_FILENO);
        teffi_platform_init_real(&p, TEFF_LOG_WARN);
        fn(&p);
        _exit(0);
    }
    assert_true(child > 0);
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], text + n, sizeof text - 1 - n)) > 0; n += (size_t)got)
        ;
    text[n] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(signal ? WTERMSIG(status) : WEXITSTATUS(status), signal);
    return text;
}

static page own;
static const teff_log_handler handler = {note, &own};

static void log_with_handler(const teffi_platform *p)
{
    teff_log_to(&handler);
    teffi_logf(&p->log, TEFF_LOG_WARN, "the silo is %d", 7);
    teffi_logf(&p->log, TEFF_LOG_ERROR, "a line\nwith two");
    teffi_logf(&p->log, TEFF_LOG_INFO, "below the level");
    if (own.lines[TEFF_LOG_WARN] != 1 || own.lines[TEFF_LOG_ERROR] != 1 ||
        own.lines[TEFF_LOG_INFO] != 0 || strcmp(own.last, "a line?with two") != 0)
        _exit(3);
}

static void log_before_and_after(const teffi_platform *p)
{
    teffi_logf(&p->log, TEFF_LOG_WARN, "before");
    teff_log_to(&handler);
    teffi_logf(&p->log, TEFF_LOG_WARN, "meanwhile");
    teff_log_to(NULL);
    teffi_logf(&p->log, TEFF_LOG_ERROR, "after");
}

static void end_at_once(const teffi_platform *p)
{
    teff_log_to(&handler);
    teffi_abort_for_broken_rule("somebody", "the last words");
}

static void a_handler_gets_the_lines(void **state)
{
    assert_string_equal(said(log_with_handler, 0), "");
}

static void without_a_handler_they_go_to_stderr(void **state)
{
    const char *text = said(log_before_and_after, 0);
    assert_non_null(strstr(text, "Z warn before\n"));
    assert_non_null(strstr(text, "Z error after\n"));
    assert_null(strstr(text, "meanwhile"));
    struct tm tm = {0}; /* 2026-11-23T20:44:41.797Z */
    assert_non_null(strptime(text, "%Y-%m-%dT%H:%M:%S.", &tm));
    /* time() may be a tick behind the clock that stamps lines */
    assert_in_range(timegm(&tm), time(NULL) - 600, time(NULL) + 1);
}

static void last_words_go_to_stderr(void **state)
{
    assert_non_null(strstr(said(end_at_once, SIGABRT), "teff: somebody: the last words\n"));
}

enum { THREADS = 4, LINES = 2000 };

static void *log_lines(void *arg)
{
    const teffi_platform *p = arg;
    for (int i = 0; i < LINES; i++)
        teffi_logf(&p->log, TEFF_LOG_WARN, "line %d", i);
    return NULL;
}

/* No line is lost while handlers change places. */
static void handlers_change_while_threads_write(void **state)
{
    static page pages[2];
    const teff_log_handler handlers[2] = {{count, &pages[0]}, {count, &pages[1]}};
    pthread_t threads[THREADS];
    teffi_platform p;
    teffi_platform_init_real(&p, TEFF_LOG_WARN);
    teff_log_to(&handlers[0]);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_lines, &p), 0);
    for (int i = 0; i < LINES; i++)
        teff_log_to(&handlers[i % 2]);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    teff_log_to(NULL);
    assert_int_equal(pages[0].lines[TEFF_LOG_WARN] + pages[1].lines[TEFF_LOG_WARN],
                     THREADS * LINES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_draws_other_numbers),
        cmocka_unit_test(a_childs_numbers_are_random),
        cmocka_unit_test(an_old_errno_does_not_matter),
        cmocka_unit_test(the_clocks_are_the_systems),
        cmocka_unit_test(a_handler_gets_the_lines),
        cmocka_unit_test(without_a_handler_they_go_to_stderr),
        cmocka_unit_test(last_words_go_to_stderr),
        cmocka_unit_test(handlers_change_while_threads_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
