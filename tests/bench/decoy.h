/* decoy.h - a server that does as little as possible for hostile connections: it accepts, answers
 * a hello, and reads. So an attack on it costs the machine what any server would cost.
 * Way:     bench/hostile -> [decoy] -> sockets */
#pragma once

#include <stdbool.h>

/* decoy_run - in a child: listen, say the address by a line of output, and serve until the input
 * ends. in: accepts_silos, accepts_clients: the roles whose hello it answers. out: the exit
 * status. */
int decoy_run(bool accepts_silos, bool accepts_clients);
