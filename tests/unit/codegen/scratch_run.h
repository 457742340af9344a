/* scratch_run.h - run protoc, the plugin and compilers in a scratch folder of their own.
 * Way:     meson's environment (see meson.build) -> [scratch_run] -> test_*.c */
#pragma once

#include <stdbool.h>

#include "test.h"

/* run_setup, run_teardown - for cmocka: a fresh folder with an empty out/ in it; its removal. */
int run_setup(void **state);
int run_teardown(void **state);

/* run_write - make a file in the folder. */
void run_write(const char *name, const char *text);
void run_write_bytes(const char *name, const void *data, size_t n);

/* run_read - a file of the folder, or of anywhere when the name begins with a slash.
 * out:  NULL when it is not there; ends with a zero byte; the caller frees it. */
char *run_read(const char *name, size_t *n);

/* run - a shell command in the folder, with $PROTOC, $PLUGIN, $PROTO, $INCLUDE, $CC, $CXX set.
 * out:  its exit status; run_output has what it wrote to stdout and stderr. */
int run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
extern char run_output[65536];

/* run_protoc - protoc with the plugin, to out/. in: parameter, of the plugin, or "". */
int run_protoc(const char *parameter, const char *files);

/* run_out_empty - is there nothing in out/? */
bool run_out_empty(void);

/* run_refused - x.proto with this text is an error that says all of this, and leaves no file.
 * in:   where, "x.proto:3"; what, a part of the message. */
void run_refused(const char *proto, const char *where, const char *what);

/* run_accepted - x.proto with this text becomes four files, which compile as C11 and as C++17. */
void run_accepted(const char *proto);

/* run_compiles - out/<stem>.teff.c compiles as C11 and as C++17 without a warning. */
void run_compiles(const char *stem);

/* run_request - the request that protoc makes of the folder's files. out: the caller frees it. */
uint8_t *run_request(const char *files, size_t *n);
