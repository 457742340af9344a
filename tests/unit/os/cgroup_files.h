/* cgroup_files.h - a folder with the files of cgroups that a test makes. Include it in one source
 * of a program. */
#pragma once

#include "test.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[200];

static inline int setup(void **state)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%.150s/teff-cgroup-XXXXXX", tmp ? tmp : P_tmpdir);
    return mkdtemp(root) ? 0 : -1;
}

static inline int teardown(void **state)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

/* A file below root, and the folders it is in. */
static inline void put(const char *path, const char *text)
{
    char at[512];
    snprintf(at, sizeof at, "%s%s", root, path);
    for (char *c = at + strlen(root) + 1; (c = strchr(c, '/')); *c++ = '/') {
        *c = '\0';
        assert_true(mkdir(at, 0777) == 0 || errno == EEXIST);
    }
    FILE *file = fopen(at, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}
