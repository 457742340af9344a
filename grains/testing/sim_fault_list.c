/* sim_fault_list.c - which faults a run has, which of them are left out, what they did. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "sim.h"

bool sim_kept_parse(sim_kept *kept, const char *text)
{
    char *end;
    memset(kept, 0, sizeof *kept);
    if (strcmp(text, "all") == 0)
        return true;
    kept->chosen = true;
    if (strcmp(text, "none") == 0)
        return true;
    for (;; text = end + 1) {
        unsigned long no = strtoul(text, &end, 10);
        if (end == text || no == 0 || no > SIM_FAULTS_MAX || (*end && *end != ','))
            return false;
        kept->no[no] = true;
        if (!*end)
            return true;
    }
}

sim_fault *sim_fault_plan(struct sim *s)
{
    sim_fault_list *list = &s->list;
    sim_fault *fault = &list->of[list->n < SIM_FAULTS_MAX ? list->n++ : SIM_FAULTS_MAX - 1];
    fault->no = list->n;
    return fault;
}

/* A fault that shares its number keeps the text of the first one. */
static bool note_fault(sim *s, sim_fault *fault, uint64_t at_ns, const char *fmt, va_list args)
{
    if (s->list.kept.chosen && !s->list.kept.no[fault->no])
        return false;
    if (fault->happened)
        return true;
    fault->happened = true;
    fault->at_ns = at_ns;
    vsnprintf(fault->text, sizeof fault->text, fmt, args);
    return true;
}

bool sim_fault_happens(struct sim *s, sim_fault *fault, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    bool happens = note_fault(s, fault, s->now_ns, fmt, args);
    va_end(args);
    return happens;
}

bool sim_fault_is_in_run(struct sim *s, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    bool happens = note_fault(s, sim_fault_plan(s), 0, fmt, args);
    va_end(args);
    return happens;
}

unsigned sim_fault_list_count(const sim_fault_list *list)
{
    unsigned n = 0;
    for (unsigned i = 0; i < list->n; i++)
        n += list->of[i].happened;
    return n;
}

static bool is_printed_before(const sim_fault *a, const sim_fault *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->no < b->no;
}

/* out: the fault that is printed after `last`; NULL: none. */
static const sim_fault *find_next_printed(const sim_fault_list *list, const sim_fault *last)
{
    const sim_fault *next = NULL;
    for (unsigned i = 0; i < list->n; i++) {
        const sim_fault *fault = &list->of[i];
        if (fault->happened && (!last || is_printed_before(last, fault)) &&
            (!next || is_printed_before(fault, next)))
            next = fault;
    }
    return next;
}

void sim_fault_list_print(const sim_fault_list *list, FILE *to)
{
    for (const sim_fault *fault = NULL; (fault = find_next_printed(list, fault));)
        if (fault->at_ns)
            fprintf(to, "%12.3f s  %s\n", (double)fault->at_ns / 1e9, fault->text);
        else
            fprintf(to, "   in this run: %s\n", fault->text);
}

void sim_fault_list_numbers(const sim_fault_list *list, char numbers[SIM_NUMBERS_MAX])
{
    size_t len = 0;
    snprintf(numbers, SIM_NUMBERS_MAX, "none");
    for (unsigned i = 0; i < list->n; i++)
        if (list->of[i].happened)
            len += (size_t)snprintf(numbers + len, SIM_NUMBERS_MAX - len, "%s%u", len ? "," : "",
                                    list->of[i].no);
}
