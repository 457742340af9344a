/* claim.c - claims of data: a claim is granted all its data at once, or waits and holds nothing, so
 * tasks cannot deadlock. A claim does not overtake an older one that conflicts with it. Exception:
 * a task inside a task holds the outer one's data. Its claim may overtake, since the older claim
 * may wait for that data; a cycle among such claims is detected before it closes.
 * Threads: static functions run under engine.lock; for the others see engine.h. */
#include "engine/engine.h"

#include "process/send.h"

/* ---- pokes: signals by which a component checks its wait condition again ---- */

void teffi_component_poke(teff_component *component)
{
    (void)teffi_process_signal(component->scheduler->system, component->pid, TEFFI_SIGNAL_POKE);
}

/* engine.lock held. */
void teffi_sleepers_poke(teff_engine *engine)
{
    teff_component *component;
    LIST_FOREACH (component, &engine->sleepers, sleeper)
        teffi_component_poke(component);
}

/* engine.lock held. (teffi_sleepers_remove takes the lock itself.) */
void teffi_sleepers_add(teff_component *component)
{
    if (component->asleep)
        return;
    component->asleep = true;
    LIST_INSERT_HEAD(&component->engine->sleepers, component, sleeper);
}

void teffi_sleepers_remove(teff_component *component)
{
    pthread_mutex_lock(&component->engine->lock);
    if (component->asleep)
        LIST_REMOVE(component, sleeper);
    component->asleep = false;
    pthread_mutex_unlock(&component->engine->lock);
}

void teff_engine_notify(teff_engine *engine)
{
    /* A waiting component first adds itself to engine->sleepers, also under this lock, and checks
     * its condition afterwards. Either this call finds the component in the list and pokes it, or
     * the component checks its condition after the caller's change. */
    pthread_mutex_lock(&engine->lock);
    teffi_sleepers_poke(engine);
    pthread_mutex_unlock(&engine->lock);
}

/* ---- claims ---- */

void teffi_claim_add_instance(teffi_claim *claim, teffi_instance *instance, teff_access access)
{
    for (uint32_t i = 0; i < claim->n; i++)
        if (claim->holds[i].instance == instance) {
            if (access == TEFF_WRITE)
                claim->holds[i].access = access;
            return;
        }
    claim->holds[claim->n++] = (teffi_hold){.instance = instance, .access = access, .claim = claim};
}

static bool holds_conflict(const teffi_hold *a, const teffi_hold *b)
{
    return a->instance == b->instance && a->claim->component != b->claim->component &&
           (a->access == TEFF_WRITE || b->access == TEFF_WRITE);
}

/* Does another component hold data of the claim with a conflicting access (see holds_conflict)? */
static bool conflicts_with_holder(const teffi_claim *claim)
{
    teffi_hold *h;
    for (uint32_t i = 0; i < claim->n; i++)
        LIST_FOREACH (h, &claim->holds[i].instance->held, link)
            if (holds_conflict(h, &claim->holds[i]))
                return true;
    return false;
}

static bool claims_conflict(const teffi_claim *a, const teffi_claim *b)
{
    for (uint32_t i = 0; i < a->n; i++)
        for (uint32_t k = 0; k < b->n; k++)
            if (holds_conflict(&a->holds[i], &b->holds[k]))
                return true;
    return false;
}

/* May the claim be granted? It must not conflict with data that other components hold. It must also
 * not conflict with an older waiting claim, unless the component of `claim` already holds data.
 * in: claim: new, or one of engine->waiters, which are sorted, the oldest first. */
static bool may_grant(teff_engine *engine, const teffi_claim *claim)
{
    if (conflicts_with_holder(claim))
        return false;
    if (claim->component->n_granted)
        return true;
    teffi_claim *older;
    TAILQ_FOREACH (older, &engine->waiters, link)
        if (older == claim || claims_conflict(older, claim))
            return older == claim;
    return true;
}

static void grant_claim(teffi_claim *claim)
{
    claim->state = TEFFI_CLAIM_GRANTED;
    claim->component->n_granted++;
    claim->component->waiting = NULL;
    for (uint32_t i = 0; i < claim->n; i++) {
        teffi_hold *h = &claim->holds[i];
        LIST_INSERT_HEAD(&h->instance->held, h, link);
    }
}

/* Release the claim's data. The caller then calls grant_waiters, as other claims may wait for the
 * data. */
static void release_claim(teffi_claim *claim)
{
    claim->component->n_granted--;
    for (uint32_t i = 0; i < claim->n; i++)
        LIST_REMOVE(&claim->holds[i], link);
}

static void waiters_append(teff_engine *engine, teffi_claim *claim)
{
    claim->state = TEFFI_CLAIM_WAITING;
    claim->component->waiting = claim;
    TAILQ_INSERT_TAIL(&engine->waiters, claim, link);
}

static void waiters_remove(teff_engine *engine, teffi_claim *claim)
{
    claim->component->waiting = NULL;
    TAILQ_REMOVE(&engine->waiters, claim, link);
}

static bool has_retired_data(const teffi_claim *claim)
{
    for (uint32_t i = 0; i < claim->n; i++)
        if (claim->holds[i].instance->retired)
            return true;
    return false;
}

/* Would this claim wait, directly or through other claims, for data that target holds? A component
 * whose `search` equals engine->search has been visited already. */
static bool waits_for_component(teff_engine *engine, const teffi_claim *claim,
                                const teff_component *target)
{
    teffi_hold *h;
    for (uint32_t i = 0; i < claim->n; i++)
        LIST_FOREACH (h, &claim->holds[i].instance->held, link) {
            if (!holds_conflict(h, &claim->holds[i]))
                continue;
            teff_component *holder = h->claim->component;
            if (holder == target)
                return true;
            if (holder->search == engine->search || !holder->waiting)
                continue;
            holder->search = engine->search;
            if (waits_for_component(engine, holder->waiting, target))
                return true;
        }
    return false;
}

/* Grant the claim, queue it in engine->waiters, or refuse it (CLOSED, DEADLOCK). A deadlock is
 * possible only if the component already holds data: otherwise no claim waits for the component. */
static void grant_queue_or_refuse_claim(teffi_claim *claim, teff_component *component)
{
    teff_engine *engine = component->engine;
    claim->component = component;
    engine->search++;
    if (has_retired_data(claim))
        claim->state = TEFFI_CLAIM_CLOSED;
    else if (may_grant(engine, claim))
        grant_claim(claim);
    else if (component->n_granted && waits_for_component(engine, claim, component))
        claim->state = TEFFI_CLAIM_DEADLOCK;
    else
        waiters_append(engine, claim);
}

teffi_claim_state teffi_claim_start(teffi_claim *claim, teff_component *component)
{
    pthread_mutex_lock(&component->engine->lock);
    if (!claim->component) /* not started before */
        grant_queue_or_refuse_claim(claim, component);
    teffi_claim_state state = claim->state;
    pthread_mutex_unlock(&component->engine->lock);
    return state;
}

/* Grant the waiting claims that may be granted now, the oldest first. */
static void grant_waiters(teff_engine *engine)
{
    teffi_claim *next;
    for (teffi_claim *claim = TAILQ_FIRST(&engine->waiters); claim; claim = next) {
        next = TAILQ_NEXT(claim, link);
        if (!may_grant(engine, claim))
            continue;
        waiters_remove(engine, claim);
        grant_claim(claim);
        teffi_component_poke(claim->component);
    }
}

void teffi_claim_end(teffi_claim *claim)
{
    if (!claim->component)
        return;
    teff_engine *engine = claim->component->engine;
    pthread_mutex_lock(&engine->lock);
    if (claim->state == TEFFI_CLAIM_GRANTED)
        release_claim(claim);
    else if (claim->state == TEFFI_CLAIM_WAITING)
        waiters_remove(engine, claim);
    grant_waiters(engine);
    pthread_mutex_unlock(&engine->lock);
    *claim = (teffi_claim){0};
}

/* engine.lock held. in: instance, just retired. */
void teffi_instance_close_waiting_claims(teff_engine *engine, teffi_instance *instance)
{
    teffi_claim *next;
    for (teffi_claim *claim = TAILQ_FIRST(&engine->waiters); claim; claim = next) {
        next = TAILQ_NEXT(claim, link);
        for (uint32_t i = 0; i < claim->n; i++)
            if (claim->holds[i].instance == instance && claim->state == TEFFI_CLAIM_WAITING) {
                waiters_remove(engine, claim);
                claim->state = TEFFI_CLAIM_CLOSED;
                teffi_component_poke(claim->component);
            }
    }
    grant_waiters(engine); /* younger claims may have waited behind the closed ones */
}

bool teffi_instance_is_held_by(teffi_instance *instance, teff_component *component,
                               teff_access access)
{
    bool held = false;
    teffi_hold *h;
    pthread_mutex_lock(&component->engine->lock);
    LIST_FOREACH (h, &instance->held, link)
        held |= h->claim->component == component && h->access >= access;
    pthread_mutex_unlock(&component->engine->lock);
    return held;
}
