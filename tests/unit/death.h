/* death.h - does a function end the process with a line on standard error? It runs in a child. */
#pragma once

#include "test.h"
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* in: fn must not have returned; line: a part of what it writes. */
static inline bool dies_with(void (*fn)(void), const char *line)
{
    int fd[2], status = 0;
    char text[4000];
    size_t got = 0;
    assert_int_equal(pipe(fd), 0);
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        dup2(fd[1], STDERR_FILENO);
        fn();
        _exit(0);
    }
    close(fd[1]);
    for (ssize_t n = 1; n > 0 && got<sizeof text - 1; got += n> 0 ? (size_t)n : 0)
        n = read(fd[0], text + got, sizeof text - 1 - got);
    text[got] = 0;
    close(fd[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(text, line);
}
