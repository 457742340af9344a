/* dump.c - which activations are there, and which have most to do? In lines.
 * Way:     teff_silo_dump -> layer -> [dump] -> catalog
 * Threads: any. A shard's lock is held while its activations are looked at: their identity is
 *          guarded by it, the rest is read from atomics. */
#include <inttypes.h>
#include <stdio.h>
#include "grains.h"

enum { TOP = 16, KEY_MAX = 104 };

typedef struct entry {
    uint32_t queued, slot;
    teffi_group_state state;
    const char *type, *doing; /* constant strings */
    char key[KEY_MAX];
} entry;

typedef struct survey {
    uint64_t n, queued, in_state[TEFFI_GROUP_COMPLETE + 1];
    unsigned n_top;
    entry top[TOP]; /* most queued first */
} survey;

static void put_key(char *text, const teff_key *key)
{
    char number[40] = "";
    const uint8_t *u = key->uuid.bytes;
    if (key->kind == TEFF_KEY_INT64 || key->kind == TEFF_KEY_INT64_STRING)
        snprintf(number, sizeof number, "%" PRId64, key->number);
    else if (key->kind != TEFF_KEY_STRING)
        for (int i = 0; i < 16; i++)
            snprintf(number + 2 * i, 3, "%02x", u[i]);
    snprintf(text, KEY_MAX, "%s%s%.60s", number, number[0] && key->text ? "/" : "",
             key->text ? key->text : "");
}

static void put(entry *e, teffi_activation *act, uint32_t queued, teffi_group_state state)
{
    const char *doing = atomic_load_explicit(&act->doing, memory_order_relaxed);
    *e =
        (entry){queued, act->slot, state, act->type->info->name, doing ? doing : "nothing yet", ""};
    teff_key key;
    teffi_activation_key(act, &key);
    put_key(e->key, &key);
}

/* Those with the longest queues, of those that have anything to do. */
static bool visit(void *arg, teffi_activation *act)
{
    survey *s = arg;
    uint32_t queued = atomic_load_explicit(&act->queued, memory_order_relaxed);
    queued = (int32_t)queued < 0 ? 0 : queued;
    teffi_group_state state = teffi_group_state_of(&act->group);
    s->n++;
    s->queued += queued;
    s->in_state[state]++;
    unsigned at = s->n_top;
    while (at > 0 && s->top[at - 1].queued < queued)
        at--;
    if (at == TOP || (!queued && state == TEFFI_GROUP_IDLE))
        return true;
    s->n_top += s->n_top < TOP;
    memmove(&s->top[at + 1], &s->top[at], (s->n_top - 1 - at) * sizeof *s->top);
    put(&s->top[at], act, queued, state);
    return true;
}

void teffi_grains_dump(teffi_node *node, const teffi_lines *to)
{
    survey s = {0};
    for (unsigned i = 0; i < TEFFI_PARTITIONS; i++) {
        uint64_t at = 0;
        (void)teffi_catalog_each(node->grains, i, &at, visit, &s);
    }
    teffi_line(to,
               "grains: %llu activations: %llu idle, %llu ready, %llu running; %llu requests wait; "
               "look-ups under way: %s",
               (unsigned long long)s.n, (unsigned long long)s.in_state[TEFFI_GROUP_IDLE],
               (unsigned long long)s.in_state[TEFFI_GROUP_READY],
               (unsigned long long)s.in_state[TEFFI_GROUP_RUNNING], (unsigned long long)s.queued,
               teffi_locating_any(node->grains) ? "yes" : "no");
    for (unsigned i = 0; i < s.n_top; i++)
        teffi_line(to, "grain %s %s (slot %u): %s, %u requests wait; last turn: %s", s.top[i].type,
                   s.top[i].key, s.top[i].slot, teffi_group_state_name(s.top[i].state),
                   s.top[i].queued, s.top[i].doing);
}
