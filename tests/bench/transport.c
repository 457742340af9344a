/* transport.c - how are the transports called?
 * Way:     bench.c, peer_side.c -> [transport] -> options of silos and clients */
#include "transport.h"

#include <string.h>

static const char *const names[] = {NULL, "nng", "reactor"};

const char *bench_transport_name(teff_transport transport)
{
    return names[transport];
}

bool bench_transport_of(const char *name, teff_transport *transport)
{
    for (int t = TEFF_TRANSPORT_NNG; t <= TEFF_TRANSPORT_REACTOR; t++) {
        if (strcmp(name, names[t]) != 0)
            continue;
        *transport = (teff_transport)t;
        return true;
    }
    return false;
}
