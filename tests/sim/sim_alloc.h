/* sim_alloc.h - memory of a run: counted, filled with a pattern, moved by an offset that differs
 * from run to run, so that what depends on addresses or on fresh bytes gives different traces.
 * The linker puts these in the place of malloc and its family (--wrap). */
#ifndef SIM_ALLOC_H
#define SIM_ALLOC_H

#include <stdint.h>

/* sim_alloc_shuffle - from now on fresh bytes are fill, and sizes vary by salt. */
void sim_alloc_shuffle(uint64_t salt, int fill);

/* sim_alloc_live - blocks made and not freed. */
int64_t sim_alloc_live(void);

#endif
