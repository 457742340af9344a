/* admission.h - may a request start beside the running turns?
 * Way:     activation -> [admission] -> turn
 * A request is compared with every running turn, by counters per class. Orleans compares with only
 * one turn, so that a writer may start beside a reader that still runs.
 *
 *     may start beside:   EXCLUSIVE  READ_ONLY  FREE
 *     EXCLUSIVE              no         no       yes
 *     READ_ONLY              no         yes      yes
 *     FREE                   yes        yes      yes
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <teff/generated.h>

typedef enum teffi_class { TEFFI_EXCLUSIVE = 0, TEFFI_READ_ONLY = 1, TEFFI_FREELY = 2 } teffi_class;

/* teffi_class_of_method - the admission class of requests for this method of a grain type. */
static inline teffi_class teffi_class_of_method(const teff_type_info *type,
                                                const teff_method *method)
{
    if ((type->flags & TEFF_TYPE_REENTRANT) || (method->flags & TEFF_METHOD_ALWAYS_INTERLEAVE))
        return TEFFI_FREELY;
    return method->flags & TEFF_METHOD_READ_ONLY ? TEFFI_READ_ONLY : TEFFI_EXCLUSIVE;
}

/* teffi_class_may_start - may a request of class c start now?
 * in:   running_of: for each class, the number of running turns. */
static inline bool teffi_class_may_start(const uint32_t running_of[3], teffi_class c)
{
    if (c == TEFFI_FREELY)
        return true;
    return running_of[TEFFI_EXCLUSIVE] == 0 &&
           (c == TEFFI_READ_ONLY || running_of[TEFFI_READ_ONLY] == 0);
}
