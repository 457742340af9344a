/* claim.c - who holds which data? All that a task names at once, or nothing of it.
 * Way:     task.c, life.c -> [claim: take or wait -> granted] -> a poke
 * Threads: everything under engine.lock.
 * All or nothing: who waits holds nothing by that claim, so tasks cannot block each other in a
 * circle. Oldest first: a claim does not overtake an older one that wants the same. Tasks inside
 * tasks do hold what the outer one took: they may overtake (the older one may wait for them), and
 * a circle among them is found when it would close. */
#include "process/engine.h"

void teffi_claim_add(teffi_claim *claim, teffi_instance *instance, teff_access access)
{
    for (uint32_t i = 0; i < claim->n; i++)
        if (claim->holds[i].instance == instance) {
            if (access == TEFF_WRITE)
                claim->holds[i].access = access;
            return;
        }
    claim->holds[claim->n++] = (teffi_hold){.instance = instance, .access = access, .claim = claim};
}

static bool clash(const teffi_hold *a, const teffi_hold *b)
{
    return a->instance == b->instance && a->claim->worker != b->claim->worker &&
           (a->access == TEFF_WRITE || b->access == TEFF_WRITE);
}

static bool is_held(const teffi_claim *claim)
{
    for (uint32_t i = 0; i < claim->n; i++)
        for (teffi_hold *h = claim->holds[i].instance->held; h; h = h->next)
            if (clash(h, &claim->holds[i]))
                return true;
    return false;
}

static bool wants_same(const teffi_claim *a, const teffi_claim *b)
{
    for (uint32_t i = 0; i < a->n; i++)
        for (uint32_t k = 0; k < b->n; k++)
            if (clash(&a->holds[i], &b->holds[k]))
                return true;
    return false;
}

static bool may_take(teff_engine *engine, const teffi_claim *claim)
{
    if (is_held(claim))
        return false;
    if (claim->worker->n_granted)
        return true;
    for (teffi_claim *older = engine->first_waiter; older && older != claim; older = older->next)
        if (wants_same(older, claim))
            return false;
    return true;
}

static void take(teffi_claim *claim)
{
    claim->state = TEFFI_CLAIM_GRANTED;
    claim->worker->n_granted++;
    claim->worker->waiting = NULL;
    for (uint32_t i = 0; i < claim->n; i++) {
        teffi_hold *h = &claim->holds[i];
        h->prev = NULL;
        h->next = h->instance->held;
        if (h->next)
            h->next->prev = h;
        h->instance->held = h;
    }
}

static void let_go(teffi_claim *claim)
{
    claim->worker->n_granted--;
    for (uint32_t i = 0; i < claim->n; i++) {
        teffi_hold *h = &claim->holds[i];
        *(h->prev ? &h->prev->next : &h->instance->held) = h->next;
        if (h->next)
            h->next->prev = h->prev;
    }
}

static void enqueue(teff_engine *engine, teffi_claim *claim)
{
    claim->state = TEFFI_CLAIM_WAITING;
    claim->worker->waiting = claim;
    claim->next = NULL;
    claim->prev = engine->last_waiter;
    *(claim->prev ? &claim->prev->next : &engine->first_waiter) = claim;
    engine->last_waiter = claim;
}

static void dequeue(teff_engine *engine, teffi_claim *claim)
{
    claim->worker->waiting = NULL;
    *(claim->prev ? &claim->prev->next : &engine->first_waiter) = claim->next;
    *(claim->next ? &claim->next->prev : &engine->last_waiter) = claim->prev;
}

static bool owner_is_gone(const teffi_claim *claim)
{
    for (uint32_t i = 0; i < claim->n; i++)
        if (claim->holds[i].instance->gone)
            return true;
    return false;
}

/* Would this claim wait for something that waits for its own worker? */
static bool leads_to(teff_engine *engine, const teffi_claim *claim, const teff_worker *target)
{
    for (uint32_t i = 0; i < claim->n; i++)
        for (teffi_hold *h = claim->holds[i].instance->held; h; h = h->next) {
            if (!clash(h, &claim->holds[i]))
                continue;
            teff_worker *holder = h->claim->worker;
            if (holder == target)
                return true;
            if (holder->visit == engine->visit || !holder->waiting)
                continue;
            holder->visit = engine->visit;
            if (leads_to(engine, holder->waiting, target))
                return true;
        }
    return false;
}

teffi_claim_state teffi_claim_start(teffi_claim *claim, teff_worker *w)
{
    teff_engine *engine = w->engine;
    claim->worker = w;
    pthread_mutex_lock(&engine->lock);
    engine->visit++;
    if (owner_is_gone(claim))
        claim->state = TEFFI_CLAIM_CLOSED;
    else if (may_take(engine, claim))
        take(claim);
    else if (w->n_granted && leads_to(engine, claim, w))
        claim->state = TEFFI_CLAIM_DEADLOCK;
    else
        enqueue(engine, claim);
    teffi_claim_state state = claim->state;
    pthread_mutex_unlock(&engine->lock);
    return state;
}

teffi_claim_state teffi_claim_look(teffi_claim *claim)
{
    pthread_mutex_lock(&claim->worker->engine->lock);
    teffi_claim_state state = claim->state;
    pthread_mutex_unlock(&claim->worker->engine->lock);
    return state;
}

static void grant_waiters(teff_engine *engine)
{
    teffi_claim *next;
    for (teffi_claim *claim = engine->first_waiter; claim; claim = next) {
        next = claim->next;
        if (!may_take(engine, claim))
            continue;
        dequeue(engine, claim);
        take(claim);
        teffi_poke(claim->worker);
    }
}

void teffi_claim_end(teffi_claim *claim)
{
    if (!claim->worker)
        return;
    teff_engine *engine = claim->worker->engine;
    pthread_mutex_lock(&engine->lock);
    if (claim->state == TEFFI_CLAIM_GRANTED)
        let_go(claim);
    else if (claim->state == TEFFI_CLAIM_WAITING)
        dequeue(engine, claim);
    grant_waiters(engine);
    pthread_mutex_unlock(&engine->lock);
    *claim = (teffi_claim){0};
}

void teffi_claim_gone(teff_engine *engine, teffi_instance *instance)
{
    teffi_claim *next;
    for (teffi_claim *claim = engine->first_waiter; claim; claim = next) {
        next = claim->next;
        for (uint32_t i = 0; i < claim->n; i++)
            if (claim->holds[i].instance == instance && claim->state == TEFFI_CLAIM_WAITING) {
                dequeue(engine, claim);
                claim->state = TEFFI_CLAIM_CLOSED;
                teffi_poke(claim->worker);
            }
    }
    grant_waiters(engine);
}

bool teffi_claim_held(teff_worker *w, teffi_instance *instance, teff_access access)
{
    bool held = false;
    pthread_mutex_lock(&w->engine->lock);
    for (teffi_hold *h = instance->held; h && !held; h = h->next)
        held = h->claim->worker == w && h->access >= access;
    pthread_mutex_unlock(&w->engine->lock);
    return held;
}
