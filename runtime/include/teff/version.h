/* version.h - the version of the headers and the version of the library.
 * Way:     meson.build -> [version] -> programs
 * Threads: any. */
#pragma once

#include <teff/error.h>

TEFF_BEGIN_C

/* The headers' version. */
#define TEFF_VERSION_MAJOR 0
#define TEFF_VERSION_MINOR 1
#define TEFF_VERSION_PATCH 0

/* The version as one number, for comparison: #if TEFF_VERSION >= TEFF_VERSION_OF(0, 2, 0). */
#define TEFF_VERSION_OF(major, minor, patch) ((major)*1000000 + (minor)*1000 + (patch))
#define TEFF_VERSION TEFF_VERSION_OF(TEFF_VERSION_MAJOR, TEFF_VERSION_MINOR, TEFF_VERSION_PATCH)

/* teff_version - the library's version; TEFF_VERSION is the headers'. A program compiled with older
 * headers runs with a newer library of the same major version, if it reads no statistics. That is
 * why an options struct begins with the size that the program's headers know: members that these
 * headers lack have their defaults. A size that is not set, or a member that is set and unknown to
 * an older library: TEFF_E_INVALID. Structs that the library fills in have no size and may change
 * with the minor version: teff_process_stats, _info and _count, teff_stop_report,
 * teff_engine_stats, teff_sched_metrics, teff_sched_worker. A program that uses them is compiled
 * again for each minor version.
 * out:  TEFF_VERSION_OF(major, minor, patch).
 * runs: anywhere. */
TEFF_API int teff_version(void);

TEFF_END_C
