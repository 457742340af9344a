/* scratch.c - a directory of a test's own. */
#include "scratch.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char directory[200];
static unsigned files;

int scratch_open(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%.150s/teff-store-XXXXXX", tmp ? tmp : P_tmpdir);
    return mkdtemp(directory) ? 0 : -1;
}

void scratch_close(void)
{
    char path[SCRATCH_PATH_MAX * 2];
    DIR *dir = opendir(directory);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        snprintf(path, sizeof path, "%s/%s", directory, e->d_name);
        if (e->d_name[0] != '.' && unlink(path) != 0)
            rmdir(path);
    }
    if (dir)
        closedir(dir);
    rmdir(directory);
}

void scratch_path(char *path, const char *name)
{
    snprintf(path, SCRATCH_PATH_MAX, "%s/%s", directory, name);
}

void scratch_fresh(char *address)
{
    snprintf(address, 512, "sqlite:%s/%u.db", directory, files++);
}

void scratch_write(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0)
        abort();
}

size_t scratch_read(const char *path, void *data, size_t max)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        abort();
    size_t n = fread(data, 1, max, f);
    fclose(f);
    return n;
}

void scratch_patch(const char *path, long offset, int byte, size_t n)
{
    FILE *f = fopen(path, "r+b");
    if (!f || fseek(f, offset, SEEK_SET) != 0)
        abort();
    for (; n > 0; n--)
        if (fputc(byte, f) == EOF)
            abort();
    if (fclose(f) != 0)
        abort();
}
