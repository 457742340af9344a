/* pg_server.h - a PostgreSQL server of a test's own: a scratch folder, a Unix socket, no port.
 * Threads: one. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* pg_server_open - create the server's files and start it. Reads of SQL and files that fail end the
 * test's program. out: false: PostgreSQL is not installed, and a line said so. */
bool pg_server_open(void);
/* pg_server_close - stop it and remove its files. */
void pg_server_close(void);

void pg_server_start(void);
/* pg_server_kill - SIGKILL to all of its processes, as when its machine dies. */
void pg_server_kill(void);

/* pg_server_socket - out: the path of the server's Unix socket. */
void pg_server_socket(char *path, size_t max);

/* pg_server_fresh - create an empty database. out: its address, at most 512 bytes. */
void pg_server_fresh(char *address);

/* pg_server_run - run SQL in the database of an address. out: the first value, as a number. */
long pg_server_run(const char *address, const char *sql);

/* pg_server_begin - run SQL in a transaction of another client, which stays open.
 * pg_server_commit, pg_server_roll_back - end that transaction. */
void pg_server_begin(const char *address, const char *sql);
void pg_server_commit(void);
void pg_server_roll_back(void);

/* pg_server_bench - run pgbench with a script in the database of an address.
 * in:   clients, each with a connection. out: its transactions per second. */
double pg_server_bench(const char *address, const char *script, unsigned clients, double seconds);

/* pg_server_session - out: the server's process of an open session in the address's database. */
pid_t pg_server_session(const char *address);
