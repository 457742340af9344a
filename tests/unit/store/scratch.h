/* scratch.h - a directory of a test's own, with files that come and go.
 * Way:     tests of file engines -> [scratch] -> the system's temporary directory
 * Threads: the test's main one. */
#pragma once

#include <stddef.h>

enum { SCRATCH_PATH_MAX = 400 };

int scratch_open(void);   /* make the directory; 0 when it worked */
void scratch_close(void); /* remove it and all files in it */

/* scratch_path - a name in the directory. in: path, SCRATCH_PATH_MAX bytes. */
void scratch_path(char *path, const char *name);

/* scratch_fresh - the address of an SQLite file that is not there yet, 512 bytes. */
void scratch_fresh(char *address);

/* scratch_write, _read - whole files. out: _read: bytes read, at most max. */
void scratch_write(const char *path, const void *data, size_t n);
size_t scratch_read(const char *path, void *data, size_t max);

/* scratch_patch - overwrite n bytes of a file with one byte, from offset on. */
void scratch_patch(const char *path, long offset, int byte, size_t n);
