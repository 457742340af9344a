/* sim_shrink.h - which faults does a failed run need? Runs of the same seed with fewer faults, each
 * in a process of its own, as a broken run cannot be freed. */
#pragma once

#include "sim.h"

/* sim_shrink - print to stderr the faults that are left when none of them can be left out any more,
 * and how to replay that run. in: the failed run. program, args: the command that replays it, but
 * for its seed and faults; args ends with NULL. Runs with fewer faults get "--try". */
void sim_shrink(const sim *s, const char *program, const char *const args[]);

/* sim_shrink_report - a run with "--try" has failed: its violation and faults, to the parent. */
void sim_shrink_report(const sim *s);
