/* attack.h - hostile connections to a silo: garbage, lies in the handshake, half-open and dripping
 * ones, floods of each frame, forged ids and roles.
 * Way:     test_hostile.c, bench/hostile.c -> [attack] -> sockets
 * Threads: attack_run() starts ATTACKERS threads, and waits for their ends. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct attack_plan {
    const char *address;       /* 127.0.0.1:PORT */
    unsigned long connections; /* it opens as many, or a few more */
    unsigned per_second;       /* connections; 0: as fast as possible */
    uint64_t seed, stream;     /* of what is random; other streams of a seed are independent */
    const _Atomic bool *stop;  /* true: it ends early; NULL: never */
} attack_plan;

typedef struct attack_result {
    unsigned long connected, failed; /* connections, and attempts to connect */
    double cpu_s;                    /* processor time of the attackers */
} attack_result;

/* attack_run - attack, and end all connections. in: SIGPIPE is ignored. */
attack_result attack_run(const attack_plan *plan);
