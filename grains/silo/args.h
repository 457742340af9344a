/* args.h - parse the command line of a silo program.
 * Way:     main -> [args] -> teff_silo_new
 * Threads: main's. */
#pragma once

#include <teff/silo.h>

/* The program's options, each replaced by the command line's if that has it. */
typedef struct teffi_silo_args {
    teff_silo_options silo; /* silo.sched points to sched */
    teff_sched_options sched;
} teffi_silo_args;

/* teffi_args_parse - parse teff's options, and pass the program's own options to it.
 * in:   program: filled by teffi_options_check_and_copy(), borrowed. argv: borrowed for as long as
 *       args is used.
 * out:  -1: start the silo with args; else an exit status: the error, or --help's list, was
 *       printed. */
int teffi_args_parse(int argc, char **argv, const teff_silo_program *program,
                     teffi_silo_args *args);
