/* test_postgres_conformance.c - the suite, on a PostgreSQL server. */
#include "conformance.h"
#include "pg_server.h"

int main(int argc, char **argv)
{
    static const conf_engine engine = {
        .name = "postgres", .fresh = pg_server_fresh, .shared = true};
    int failed = conf_child(argc, argv);
    if (failed >= 0)
        return failed;
    if (!pg_server_open())
        return 77;
    failed = conf_run(&engine);
    pg_server_close();
    return failed;
}
