/* child.c - see child.h. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lab.h"

enum { PATIENCE_MS = 60000 };

const char *child_program;

static void close_both(int ends[2])
{
    close(ends[0]);
    close(ends[1]);
}

child child_run(const char *const *args, bool closed)
{
    const char *argv[40] = {child_program};
    child c = {0};
    int in[2], out[2], err[2];
    for (int i = 0; args[i]; i++)
        argv[i + 1] = args[i];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe(out), 0);
    assert_int_equal(pipe(err), 0);
    c.pid = fork();
    if (c.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also where a test fails that should have ended it */
        dup2(in[0], STDIN_FILENO);
        if (closed)
            close(STDOUT_FILENO);
        else
            dup2(out[1], STDOUT_FILENO);
        dup2(err[1], STDERR_FILENO);
        close_both(out);
        close_both(err);
        execv(child_program, (char *const *)(uintptr_t)argv);
        _exit(99);
    }
    assert_true(c.pid > 0);
    close(in[0]);
    close(out[1]);
    close(err[1]);
    c.in = in[1];
    c.out = out[0];
    c.err = err[0];
    return c;
}

void child_read(child *c, int fd, const char *wanted)
{
    size_t n = 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (;;) {
        c->text[n] = '\0';
        if (wanted && strstr(c->text, wanted) && strchr(strstr(c->text, wanted), '\n'))
            return;
        if (poll(&p, 1, PATIENCE_MS) <= 0)
            fail_msg("nothing came; so far: '%s'", c->text);
        ssize_t got = read(fd, c->text + n, CHILD_TEXT_MAX - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    if (wanted)
        fail_msg("it ended without '%s': '%s'", wanted, c->text);
}

int child_status(child *c)
{
    int status;
    close(c->in);
    close(c->out);
    close(c->err);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    if (!WIFEXITED(status))
        fail_msg("it was ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

void child_refuses(const char *const *args, const char *says)
{
    child c = child_run(args, false);
    child_read(&c, c.err, NULL);
    int status = child_status(&c);
    if (status != 2 || !strstr(c.text, says))
        fail_msg("status %d, '%s'; expected 2 and '%s'", status, c.text, says);
}
