/* transport.h - the transports by name, for options and for what is printed.
 * Way:     programs of this folder -> [transport] -> options of silos and clients */
#pragma once

#include <stdbool.h>
#include <teff/silo.h>

/* bench_transport_name - out: "nng", "reactor"; NULL: the default. */
const char *bench_transport_name(teff_transport transport);

/* bench_transport_of - in: name, as above. out: false: there is no such transport. */
bool bench_transport_of(const char *name, teff_transport *transport);
