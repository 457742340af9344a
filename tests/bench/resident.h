/* resident.h - how much memory a program has. */
#pragma once

/* bench_resident_bytes - of this program, now; 0: not known. Source: proc(5), statm
 * bench_resident_bytes_of - of another process. */
double bench_resident_bytes(void);
double bench_resident_bytes_of(int pid);
