/* resident.h - how much memory this program has. */
#pragma once

/* bench_resident_bytes - now; 0: not known. Source: proc(5), statm */
double bench_resident_bytes(void);
