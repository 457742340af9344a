/* filter.h - runs the functions of filters around a call; the filters of a hosted type's methods.
 * Way:     request/outgoing (calls), turn -> the type's table (methods) -> [filter] -> the program
 * Threads: in the call's turn or thread. Lists are immutable after the start of the silo or client.
 *
 * A type without filters pays nothing: a type with filters has a table of methods of its own, whose
 * invoke functions are the filters' here. */
#pragma once

#include <teff/filter.h>
#include "activation/type.h"

typedef struct teffi_filters {
    size_t n;
    const teff_filter *of[TEFF_FILTERS_MAX];
} teffi_filters;

/* One call and its filters. */
typedef struct teffi_filter_run {
    const teffi_filters *filters;
    size_t begun;  /* the `before` of so many has returned TEFF_OK */
    bool outgoing; /* after an error, call.out is NULL */
    void *states[TEFF_FILTERS_MAX];
    teff_filter_call call;
} teffi_filter_run;

/* teffi_filters_add - append a list. in: list, may be NULL. out: false: there are too many. */
bool teffi_filters_add(teffi_filters *filters, const teff_filter *list);

/* teffi_filters_begin - call the `before` functions. in: run->filters and call are set, the rest is
 * zero. out: TEFF_OK: call the method, unless call.answered; else its outcome. In both cases,
 * teffi_filters_end must follow. */
teff_err teffi_filters_begin(teffi_filter_run *run);

/* teffi_filters_end - call the `after` functions. in: err, the outcome so far. out: the outcome. */
teff_err teffi_filters_end(teffi_filter_run *run, teff_err err);

/* teffi_type_add_filters - let the methods of a type run filters; if there are none, does nothing.
 * in:   type, before a silo starts with it. silo: the silo's list, may be NULL.
 * errs: TEFF_E_INVALID: too many; TEFF_E_NOMEM. Then the type is unchanged. */
TEFF_MUST_USE teff_err teffi_type_add_filters(teff_grain_type *type, const teff_filter *silo);
