/* sim_alloc.h - memory of a run: counted, filled with a pattern, at addresses that differ between
 * runs, so that code which depends on addresses or fresh bytes gives different traces. The linker
 * replaces malloc and its family by these (--wrap). */
#pragma once

#include <stdint.h>

/* sim_alloc_shuffle - from now on fresh bytes are fill, and sizes vary by salt. */
void sim_alloc_shuffle(uint64_t salt, int fill);

/* sim_alloc_live - blocks made and not freed. */
int64_t sim_alloc_live(void);
