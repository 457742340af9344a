/* guard.h - operations whose instructions are counted; each is run three times in a row.
 * Way:     guard.py -> callgrind -> guard OPERATION N -> [an operation] -> guard_mark
 * Threads: all of an operation's work, and guard_mark, are on one thread: a worker, or main. */
#pragma once

#include <stdint.h>
#include <teff/error.h>
#include <teff/grain.h>
#include <teff/sched.h>

/* guard_mark - callgrind writes down, and forgets, what the calling thread has done so far.
 * An operation does n, marks, n, marks, 2 n, marks: what the third part took more than the second
 * is what n cost, warm, and without start or end. */
void guard_mark(void);

/* guard_parts - do it so. runs: part(arg, n) three times. */
void guard_parts(void (*part)(void *arg, uint64_t n), void *arg, uint64_t n);

/* guard_sched - options of every scheduler: it tells when it takes another thread for its worker,
 * since that one's instructions would be missing. */
const teff_sched_options *guard_sched(void);

/* guard_must - end the program with a word unless err is TEFF_OK. */
void guard_must(teff_err err);

typedef void guard_operation(uint64_t n);

/* guard.c: on the parts of the runtime. */
guard_operation guard_group, guard_steal, guard_timer, guard_process;
guard_operation guard_encode, guard_decode;
/* guard_calls.c: turns of grains of one silo. in: operation, its name.
 * guard_target_new: the type that they call. */
void guard_calls(const char *operation, uint64_t n);
teff_grain_type *guard_target_new(void);
/* guard_client.c: a client's thread, and the silo of another process that it calls. */
void guard_client(const char *operation, uint64_t n);
void guard_silo(const char *transport);
