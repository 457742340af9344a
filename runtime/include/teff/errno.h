/* errno.h - errno for the code of grains. Each x.teff.h includes it; no other header of teff does.
 * Way:     methods of grains -> [errno] -> the C library
 * Threads: as errno: each thread has its own. */
#pragma once

#include <errno.h>
#include <teff/error.h>

TEFF_BEGIN_C

/* teff_errno - the address of the current thread's errno. A turn may continue on another thread
 * after a call, and compilers cache &errno over calls; they may not cache this function's result.
 * Other thread-local variables have the same problem: do not use one before and after a call.
 * out:  the address, valid until the turn's next call of teff, in which it may wait or yield.
 * runs: anywhere. */
TEFF_API int *teff_errno(void);

/* A file without grain code may define TEFF_PLAIN_ERRNO before it includes an x.teff.h, to keep the
 * C library's own macro. */
#ifndef TEFF_PLAIN_ERRNO
#undef errno
#define errno (*teff_errno())
#endif

TEFF_END_C
