/* hints.c - words in lines of a cache's size, the newest first; silos by number.
 * Way:     route, directory (MOVED) -> [hints] -> the silo to send to
 * Threads: put and drop may meet in a line: then a hint is there twice, or lost. */
#include "hints.h"

#include <stdlib.h>

enum { LINE_BYTES = TEFFI_HINT_WAYS * sizeof(uint64_t) };

void teffi_hints_init(teffi_hints *hints)
{
    hints->memory = calloc(TEFFI_HINT_LINES + 1, LINE_BYTES); /* untouched pages cost nothing */
    if (hints->memory)
        hints->words =
            (void *)(((uintptr_t)hints->memory + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES);
    atomic_init(&hints->n_silos, 1); /* 0 is nobody */
}

void teffi_hints_fini(teffi_hints *hints)
{
    free(hints->memory);
    hints->memory = NULL;
    hints->words = NULL;
}

/* relaxed, everywhere here: as in teffi_hint_get */
static uint64_t load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static void store(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

/* ---- numbers ---- */

/* out: 0: it has none. */
static uint32_t number_of(const teffi_hints *hints, uint64_t silo)
{
    uint32_t n = atomic_load_explicit(&hints->n_silos, memory_order_relaxed);
    for (uint32_t i = 1; i < n; i++)
        if (load(&hints->silos[i]) == silo)
            return i;
    return 0;
}

static void add_silo(teffi_hints *hints, uint64_t silo)
{
    uint32_t n = atomic_load_explicit(&hints->n_silos, memory_order_relaxed), i = 1;
    while (i < n && load(&hints->silos[i]))
        i++;
    if (i == TEFFI_HINT_SILOS)
        return;
    store(&hints->silos[i], silo);
    if (i == n)
        atomic_store_explicit(&hints->n_silos, n + 1, memory_order_relaxed);
}

/* So that who gets the number next does not inherit them. One that is put just now may stay. */
static void drop_all(teffi_hints *hints, uint32_t number)
{
    for (size_t i = 0; hints->words && i < (size_t)TEFFI_HINT_LINES * TEFFI_HINT_WAYS; i++)
        if ((uint16_t)load(&hints->words[i]) == number)
            store(&hints->words[i], 0);
}

void teffi_hints_view(teffi_hints *hints, const teffi_view *view, teffi_node_id self)
{
    uint32_t n = atomic_load_explicit(&hints->n_silos, memory_order_relaxed);
    for (uint32_t i = 1; i < n; i++) {
        uint64_t silo = load(&hints->silos[i]);
        if (!silo || teffi_view_find(view, teffi_node_of_word(silo)))
            continue;
        store(&hints->silos[i], 0);
        drop_all(hints, i);
    }
    for (size_t i = 0; i < view->n_members; i++) {
        teffi_node_id node = view->members[i].node;
        if (!teffi_node_is(node, self) && !number_of(hints, teffi_node_word(node)))
            add_silo(hints, teffi_node_word(node));
    }
}

/* ---- hints ---- */

/* Where those before it move down to: its own older one, an empty place, or the oldest goes. */
static unsigned place_for(_Atomic uint64_t *line, uint64_t hash)
{
    unsigned empty = TEFFI_HINT_WAYS - 1;
    for (unsigned i = TEFFI_HINT_WAYS; i-- > 0;) {
        uint64_t word = load(&line[i]);
        if ((uint16_t)word == 0)
            empty = i;
        else if (teffi_hint_tag(word) == teffi_hint_tag(hash))
            return i;
    }
    return empty;
}

void teffi_hint_put(teffi_hints *hints, uint64_t hash, teffi_node_id silo)
{
    uint32_t number = number_of(hints, teffi_node_word(silo));
    if (!hints->words || !number)
        return;
    _Atomic uint64_t *line = teffi_hint_line(hints, hash);
    for (unsigned i = place_for(line, hash); i > 0; i--)
        store(&line[i], load(&line[i - 1]));
    store(&line[0], teffi_hint_tag(hash) | number);
}

void teffi_hint_drop(teffi_hints *hints, uint64_t hash, teffi_node_id silo)
{
    uint32_t number = number_of(hints, teffi_node_word(silo));
    if (!hints->words || !number)
        return;
    _Atomic uint64_t *line = teffi_hint_line(hints, hash);
    for (unsigned i = 0; i < TEFFI_HINT_WAYS; i++)
        if (load(&line[i]) == (teffi_hint_tag(hash) | number))
            store(&line[i], 0);
}
