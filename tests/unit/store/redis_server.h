/* redis_server.h - a Redis server of a test's own: on a free port, with its files in the scratch
 * directory.
 * Way:     test_conformance, test_redis -> [redis_server] -> redis-server
 * Threads: the test's main one. The server ends with the thread that started it. */
#pragma once

#include <stdbool.h>

/* redis_server_start - start it, after a kill with the same port and files; wait until it serves.
 * in:  appendonly: "yes" or "no".
 * out: false: the program is not installed. Ends the test if it does not start. */
bool redis_server_start(const char *appendonly);

void redis_server_kill(void); /* at once, as by a crash; its files stay */
void redis_server_stop(void); /* kill it, and remove its files */

unsigned redis_server_port(void);

/* redis_server_bench - run redis-benchmark for about so many seconds: SET of twelve bytes.
 * out:  requests a second. */
double redis_server_bench(unsigned clients, double seconds);

/* redis_server_fresh - the address of an empty store there, 512 bytes. */
void redis_server_fresh(char *address);
