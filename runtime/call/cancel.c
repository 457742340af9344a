/* cancel.c - the calls that a teff_cancel will end, listed by slot and generation. */
#include "call/calls.h"

#include <stdlib.h>
#include "call/relay.h"

enum { WATCHED_MIN = 8 };

typedef struct watched {
    teffi_home *home;
    uint32_t slot, generation;
} watched;

struct teff_cancel {
    pthread_mutex_t lock; /* guards the rest */
    bool fired;
    watched *calls;
    size_t n, room, reserved; /* n + reserved <= room, until it has fired */
};

teff_cancel *teff_cancel_new(void)
{
    teff_cancel *cancel = calloc(1, sizeof *cancel);
    if (cancel)
        pthread_mutex_init(&cancel->lock, NULL);
    return cancel;
}

void teff_cancel_free(teff_cancel *cancel)
{
    if (!cancel)
        return;
    pthread_mutex_destroy(&cancel->lock);
    free(cancel->calls);
    free(cancel);
}

static void remove_ended_calls(teff_cancel *cancel)
{
    size_t kept = 0;
    for (size_t i = 0; i < cancel->n; i++) {
        const watched *w = &cancel->calls[i];
        if (teffi_call_is_pending(w->home, w->slot, w->generation))
            cancel->calls[kept++] = *w;
    }
    cancel->n = kept;
}

/* Makes room for one more call. If the array is full, removes the calls that have ended. If the
 * other calls still fill at least half of the array, doubles its size, so that adding a call costs
 * O(1) on average. out: false: the array is full, and there is no memory for a larger one. */
static bool make_room(teff_cancel *cancel)
{
    if (cancel->n + cancel->reserved < cancel->room)
        return true;
    remove_ended_calls(cancel);
    if (cancel->n + cancel->reserved < cancel->room / 2)
        return true;
    size_t room = cancel->room ? cancel->room * 2 : WATCHED_MIN;
    watched *more = realloc(cancel->calls, room * sizeof *more);
    if (!more)
        return cancel->n + cancel->reserved < cancel->room;
    cancel->calls = more;
    cancel->room = room;
    return true;
}

teff_err teffi_cancel_reserve_room(teff_cancel *cancel)
{
    teff_err err = TEFF_OK;
    pthread_mutex_lock(&cancel->lock);
    if (cancel->fired)
        err = TEFF_E_CANCELLED;
    else if (!make_room(cancel))
        err = TEFF_E_NOMEM;
    else
        cancel->reserved++;
    pthread_mutex_unlock(&cancel->lock);
    return err;
}

/* in: call: NULL if it could not begin; in that case only the reserved room is given back. */
void teffi_cancel_add_call(teff_cancel *cancel, teffi_call *call)
{
    pthread_mutex_lock(&cancel->lock);
    bool fired = cancel->fired;
    cancel->reserved--;
    if (call && !fired)
        cancel->calls[cancel->n++] = (watched){call->home, call->slot, call->generation};
    pthread_mutex_unlock(&cancel->lock); /* teffi_cancel_call must be called without a lock */
    if (call && fired)
        teffi_cancel_call(call->home, call->slot, call->generation);
}

void teff_cancel_fire(teff_cancel *cancel)
{
    pthread_mutex_lock(&cancel->lock);
    watched *calls = cancel->calls;
    size_t n = cancel->n;
    cancel->fired = true;
    cancel->calls = NULL;
    cancel->n = cancel->room = 0;
    pthread_mutex_unlock(&cancel->lock);
    for (size_t i = 0; i < n; i++)
        teffi_cancel_call(calls[i].home, calls[i].slot, calls[i].generation);
    free(calls);
}
