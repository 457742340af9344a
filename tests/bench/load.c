/* load.c - how does the machine's other work look? Like a process that never waits.
 * Way:     bench.c, peers.py -> this program once more -> [load], until its input ends */
#include "load.h"

#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

enum { STEPS = 1 << 20 }; /* between two looks at the input: about a millisecond */

static int input_ended(void)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    char byte;
    return poll(&input, 1, 0) > 0 && read(0, &byte, 1) <= 0;
}

int bench_load(void)
{
    volatile uint64_t x = 1;
    if (nice(19) < 0)
        return 1;
    printf("ready\n");
    fflush(stdout);
    while (!input_ended())
        for (int i = 0; i < STEPS; i++)
            x = x * 0xbf58476d1ce4e5b9u + 1;
    return 0;
}
