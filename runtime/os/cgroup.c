/* cgroup.c - finds the folders of this process's cgroups.
 * Source:  cgroups(7); Linux's Documentation/admin-guide/cgroup-v2.rst
 *
 * A container may show its own cgroup as the root of /sys/fs/cgroup, while /proc/self/cgroup has
 * the host's path of it: so folders that do not exist are visited, too, and have no files. */
#include "os/cgroup.h"

#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 4096, LINE_BYTES = 4096 };

void teffi_cgroup_read_line(const char *folder, const char *name, const char *prefix, char *line,
                            int size)
{
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    bool found = false;
    while (!found && fgets(line, size, file))
        found = strncmp(line, prefix, strlen(prefix)) == 0;
    if (!found)
        line[0] = '\0';
    fclose(file);
}

/* Does the list name the controller? in: controllers: the list, separated by commas; strsep()
 * overwrites the commas. */
static bool has_controller(char *controllers, const char *name)
{
    char *one;
    while ((one = strsep(&controllers, ",")) != NULL)
        if (strcmp(one, name) == 0)
            return true;
    return false;
}

typedef struct walk {
    const char *root, *controller;
    void (*visit)(void *arg, const char *folder, bool v2);
    void *arg;
} walk;

/* Visits the cgroup that a line names, and all cgroups above it, if it has the controller. in:
 * line: a line of /proc/self/cgroup, which is "hierarchy:controllers:path"; in cgroup version 2 the
 * controllers are empty. */
static void visit_cgroups_of_line(const walk *w, char *line)
{
    char folder[PATH_BYTES];
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(++controllers, ':') : NULL;
    if (!path)
        return;
    *path++ = '\0';
    bool v2 = !*controllers;
    if (!v2 && !has_controller(controllers, w->controller))
        return;
    int at = snprintf(folder, sizeof folder, "%s/sys/fs/cgroup%s%s", w->root, v2 ? "" : "/",
                      v2 ? "" : w->controller);
    if (at < 0 || (size_t)at + strlen(path) >= sizeof folder)
        return;
    memcpy(folder + at, path, strlen(path) + 1);
    for (;;) {
        w->visit(w->arg, folder, v2);
        char *end = strrchr(folder, '/');
        if (!end || end - folder < at)
            return;
        *end = '\0';
    }
}

void teffi_cgroups_walk(const char *root, const char *controller,
                        void (*visit)(void *arg, const char *folder, bool v2), void *arg)
{
    const walk w = {root, controller, visit, arg};
    char path[PATH_BYTES], line[LINE_BYTES];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        visit_cgroups_of_line(&w, line);
    }
    fclose(file);
}
