/* sim_fault_list.h - the faults of a run, numbered in the order in which they were drawn, and which
 * of them happen.
 * A fault that is left out draws its random numbers, and does nothing: the rest of the run changes
 * as little as possible. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { SIM_FAULTS_MAX = 1000, SIM_FAULT_TEXT = 120 };

struct sim;

typedef struct sim_kept {
    bool chosen; /* false: no fault is left out */
    bool no[SIM_FAULTS_MAX + 1];
} sim_kept;

typedef struct sim_fault {
    unsigned no;    /* from 1 */
    bool happened;  /* and was not left out */
    uint64_t at_ns; /* 0: in the whole run */
    char text[SIM_FAULT_TEXT];
} sim_fault;

typedef struct sim_fault_list {
    sim_kept kept;
    unsigned n;
    sim_fault of[SIM_FAULTS_MAX];
} sim_fault_list;

/* sim_kept_parse - in: "all", "none", or numbers such as "2,7". out: false: it is none of these. */
bool sim_kept_parse(sim_kept *kept, const char *text);

/* sim_fault_plan - the next number. Past the maximum, faults share the last one. */
sim_fault *sim_fault_plan(struct sim *s);

/* sim_fault_happens - now, with a text for readers. out: false: it is left out. */
bool sim_fault_happens(struct sim *s, sim_fault *fault, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* sim_fault_is_in_run - plans a fault of the whole run. out: false: it is left out. */
bool sim_fault_is_in_run(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* sim_fault_list_count - those that happened. sim_fault_list_print - one a
 * line, by time. sim_fault_list_numbers - "2,7" or "none", as sim_kept_parse reads it. */
unsigned sim_fault_list_count(const sim_fault_list *list);
void sim_fault_list_print(const sim_fault_list *list, FILE *to);
enum { SIM_NUMBERS_MAX = 5 * SIM_FAULTS_MAX };
void sim_fault_list_numbers(const sim_fault_list *list, char numbers[SIM_NUMBERS_MAX]);
