/* pg_silence.h - the time for which engine `postgres` waits for its server, moved by hand.
 * Way:     test_postgres, test_postgres_conformance -> [pg_silence] <- store/postgres
 * The linker must be told to --wrap=poll. Threads: any. */
#pragma once

/* pg_silence_waits - how often the engine has begun to wait: all that could be sent was sent.
 * pg_silence_let_pass - let the time of one wait, the present one or the next, pass. */
unsigned pg_silence_waits(void);
void pg_silence_let_pass(void);
