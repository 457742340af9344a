/* test_postgres_conformance.c - the suite, on a PostgreSQL server. */
#include "conformance.h"
#include "pg_server.h"
#include "pg_silence.h"
#include "proxy_faults.h"
#include "tcp_proxy.h"

#include <stdio.h>
#include <string.h>

static void open_faults(const char *address, char *via)
{
    char path[200];
    pg_server_socket(path, sizeof path);
    snprintf(via, CONF_ADDRESS_MAX, "postgres:host=127.0.0.1 port=%u user=teff %s",
             proxy_open_path(path), strstr(address, "dbname="));
}

/* A full disk is seldom at hand: a trigger raises the server's error. */
static void set_full(const char *address, bool is_full)
{
    (void)pg_server_run(address,
                        is_full ? "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ "
                                  "BEGIN RAISE 'no space' USING ERRCODE = '53100'; END $$;"
                                  "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON teff.rows "
                                  "FOR EACH ROW EXECUTE FUNCTION refuse()"
                                : "DROP FUNCTION refuse CASCADE");
}

static void set_read_only(const char *address, bool is_replica)
{
    (void)pg_server_run(address, is_replica ? "ALTER SYSTEM SET default_transaction_read_only = on"
                                            : "ALTER SYSTEM RESET default_transaction_read_only");
    (void)pg_server_run(address, "SELECT pg_reload_conf()");
}

static void begin_fault(conf_fault f, const char *address)
{
    if (f == CONF_RESTARTED)
        pg_server_kill();
    else if (f == CONF_FULL)
        set_full(address, true);
    else if (f == CONF_REPLICA)
        set_read_only(address, true);
    else if (f == CONF_DAMAGED)
        (void)pg_server_run(address, "UPDATE teff.rows SET value = 'bad' WHERE key = 'a'");
    else
        proxy_fault_begin(f);
}

/* For a silent server, the engine's time is moved until it has given up the connection. */
static void await_fault(conf_fault f)
{
    unsigned before = proxy_links();
    proxy_fault_await(f, NULL);
    if (f == CONF_SILENT) {
        pg_silence_let_pass();
        proxy_await_links(before + 1);
    }
}

static void end_fault(conf_fault f, const char *address)
{
    if (f == CONF_RESTARTED)
        pg_server_start();
    else if (f == CONF_FULL)
        set_full(address, false);
    else if (f == CONF_REPLICA)
        set_read_only(address, false);
    else
        proxy_fault_end(f);
}

static void deliver_late(void)
{
    (void)proxy_deliver();
}

int main(int argc, char **argv)
{
    static const conf_faults faults = {
        .doubt_waits = true,
        .damaged_err = TEFF_E_MALFORMED,
        .open = open_faults,
        .begin = begin_fault,
        .await = await_fault,
        .end = end_fault,
        .late = deliver_late,
        .close = proxy_close,
    };
    static const conf_engine engine = {
        .name = "postgres", .fresh = pg_server_fresh, .shared = true, .faults = &faults};
    int failed = conf_child(argc, argv);
    if (failed >= 0)
        return failed;
    if (!pg_server_open())
        return 77;
    failed = conf_run(&engine);
    pg_server_close();
    return failed;
}
