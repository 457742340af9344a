/* sched_actor.h - the least that a process layer puts upon groups: actors that receive messages.
 * Way:     a row's start -> [actor_send -> group -> worker -> receive] -> row_done
 * Threads: spawn and send from any thread; receive and quit on the actor's worker. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "sched/exec.h"

typedef struct actor actor;

typedef struct message {
    teffi_item item; /* kind: the row's own numbering */
    actor *from;
    int64_t value;
} message;

typedef void actor_receive(actor *self, const message *m);

struct actor { /* first in each row's own struct */
    teffi_group group;
    actor_receive *receive;
};

enum { ACTOR_BYTES_MAX = 192 };

extern teffi_platform bench_platform;
extern teffi_exec *bench_exec;

/* actor_spawn - a new one, idle. in: bytes of the row's struct; what follows actor is zeroed. */
void *actor_spawn(size_t bytes, actor_receive *receive);

/* actor_send - in: to, has not quit. from, for the receiver; may be NULL. */
void actor_send(actor *to, actor *from, uint32_t kind, int64_t value);

/* actor_quit - inside receive: no more messages are taken; its memory goes. */
void actor_quit(actor *self);

/* row_begin, row_done, row_wait - wait until row_done was called count times since row_begin. */
void row_begin(int count);
void row_done(void);
void row_wait(void);

/* What a row measured. */
typedef struct result {
    int64_t ops;
    double seconds; /* 0: the time from the row's start to its end */
    double p99_us;  /* 0: not measured */
    double bytes;   /* 0: not measured */
} result;

typedef result row_run(int64_t n);

/* Runs a row on groups. */
row_run row_ping_pong, row_ring, row_counting;
row_run row_fork_join_throughput, row_big, row_chameneos;
row_run row_fork_join_create, row_skynet, row_idle_bytes;
row_run row_timers, row_fair, row_hog;

/* The same on processes, between open and close. */
void row_processes_open(unsigned workers);
void row_processes_close(void);
row_run row_process_ping_pong, row_process_ring, row_process_counting;
row_run row_process_create, row_process_idle_bytes;
