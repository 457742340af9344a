/* sched.h - how a silo's or a process system's scheduler is set up.
 * Way:     silo or process options -> [sched] -> runtime/sched
 * Threads: plain data, read when the scheduler starts.
 * Source:  the scheduler seeds */
#ifndef TEFF_SCHED_H
#define TEFF_SCHED_H

#include <stdint.h>
#include <teff/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct teff_sched_options { /* zeroed = all defaults */
    /* Threads at most, those that sit in blocking calls included: 2 .. 10,000; 0 = 10,000. At the
     * limit what is READY waits until a thread comes back, and the log says so. */
    uint32_t threads_max;
} teff_sched_options;

#ifdef __cplusplus
}
#endif
#endif
