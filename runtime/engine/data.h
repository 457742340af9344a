/* data.h - instances of data: created by owners, bound by users, claimed by tasks, freed with the
 * last reference; and the components that wait for them.
 * Way:     life (owners publish, users bind), task -> [data, claim: grant or wait -> poke]
 *          -> process/send
 * Threads: the turn of the component that is given; pokes: any. */
#ifndef TEFFI_ENGINE_DATA_H
#define TEFFI_ENGINE_DATA_H

#include "engine/engine.h"

/* teffi_instance_new - an instance owned by w, or local to it. out: NULL: memory is out, or, if
 * owned, the scheduler already has an owner of this type. */
teffi_instance *teffi_instance_new(teff_component *w, const teff_data_type *type, bool owned);

/* teffi_instance_publish - let other components bind the instance. */
void teffi_instance_publish(teff_engine *engine, teffi_instance *instance);

/* teffi_instance_bind - bind w to a published instance of type->data[i], and take a reference. When
 * the instance is retired, w is cancelled. in: any: of any scheduler, not only w's.
 * out:  NULL: there is none; w is poked when data is published. */
teffi_instance *teffi_instance_bind(teff_component *w, size_t i, bool any);

/* teffi_instance_retire - forbid to bind or claim the instance from now on. Claims that wait for it
 * are closed, components bound to it are cancelled. out: true: no claim holds it. */
bool teffi_instance_retire(teff_engine *engine, teffi_instance *instance);

/* teffi_instance_drop - drop w's reference to data[i]; the last one frees the instance. */
void teffi_instance_drop(teff_component *w, size_t i);

/* teffi_claim_add - add an instance to a claim that was not started. */
void teffi_claim_add(teffi_claim *claim, teffi_instance *instance, teff_access access);

/* teffi_claim_start - hold all instances or wait, unless it was started before. The component is
 * poked when a waiting claim's state changes. out: the state now. */
teffi_claim_state teffi_claim_start(teffi_claim *claim, teff_component *w);

/* teffi_claim_end - release the claim's data, or stop waiting, and empty the claim. */
void teffi_claim_end(teffi_claim *claim);

/* teffi_claims_close - close the claims that wait for the instance. engine.lock held. */
void teffi_claims_close(teff_engine *engine, teffi_instance *instance);

/* teffi_claim_is_held - does the component hold the instance with this access? */
bool teffi_claim_is_held(teff_component *w, teffi_instance *instance, teff_access access);

/* teffi_component_poke - make a component check its wait condition again. */
void teffi_component_poke(teff_component *w);

/* teffi_sleepers_add, teffi_sleepers_remove - list or unlist a component that waits for unpublished
 * data or a condition. teffi_sleepers_poke - poke all listed ones. _add, _poke: engine.lock is
 * held. */
void teffi_sleepers_add(teff_component *w);
void teffi_sleepers_remove(teff_component *w);
void teffi_sleepers_poke(teff_engine *engine);

#endif
