/* pg_silence.c - the engine's poll(), whose time does not pass by itself. */
#include "pg_silence.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { SILENCE_MS = 15 * 1000 }; /* as in postgres.c */

static atomic_uint waits;
static atomic_bool is_over;

int __real_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    if (timeout_ms != SILENCE_MS)
        return __real_poll(fds, n, timeout_ms);
    atomic_fetch_add(&waits, 1);
    int ready;
    do
        ready = __real_poll(fds, n, 1);
    while (ready == 0 && !atomic_exchange(&is_over, false));
    return ready;
}

unsigned pg_silence_waits(void)
{
    return atomic_load(&waits);
}

void pg_silence_let_pass(void)
{
    atomic_store(&is_over, true);
}
