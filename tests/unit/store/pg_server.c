/* pg_server.c - a PostgreSQL server of a test's own. It refuses to run as root, so a test that runs
 * as root starts it as the user postgres. */
#include "pg_server.h"

#include <dirent.h>
#include <glob.h>
#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_BYTES = 400, WAIT_MS = 60 * 1000 };

static char folder[200], programs[PATH_BYTES];
static pid_t server;
static unsigned databases;
static PGconn *held; /* of pg_server_begin() */

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "pg_server: %s: %s\n", what, why);
    exit(1);
}

static bool find_programs(void)
{
    glob_t found;
    bool is_there = glob("/usr/lib/postgresql/*/bin/initdb", 0, NULL, &found) == 0;
    if (is_there) {
        const char *initdb = found.gl_pathv[found.gl_pathc - 1];
        snprintf(programs, sizeof programs, "%.*s", (int)(strlen(initdb) - 7), initdb);
    }
    globfree(&found);
    return is_there;
}

/* Starts one of PostgreSQL's programs; what it prints goes to a file. */
static pid_t spawn(const char *program, const char *const *args)
{
    char path[PATH_BYTES * 2], log[PATH_BYTES];
    const char *argv[16] = {path};
    for (size_t i = 0; args[i]; i++)
        argv[i + 1] = args[i];
    snprintf(path, sizeof path, "%s/%s", programs, program);
    snprintf(log, sizeof log, "%s/log", folder);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    const struct passwd *user = getuid() == 0 ? getpwnam("postgres") : NULL;
    if (user && (setgid(user->pw_gid) != 0 || setuid(user->pw_uid) != 0))
        _exit(126);
    setpgid(0, 0);
    if (chdir(folder) != 0 || !freopen(log, "a", stdout) || !freopen(log, "a", stderr))
        _exit(126);
    execv(path, (char *const *)argv);
    _exit(127);
}

static void make_files(void)
{
    char data[PATH_BYTES];
    int status = -1;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.100s/teff-pg-XXXXXX", tmp ? tmp : P_tmpdir);
    if (!mkdtemp(folder) || chmod(folder, 0777) != 0)
        fail(folder, "no scratch folder");
    snprintf(data, sizeof data, "%s/data", folder);
    const char *const args[] = {"-D", data,   "-A",         "trust",     "-U", "teff",
                                "-E", "UTF8", "--locale=C", "--no-sync", NULL};
    pid_t pid = spawn("initdb", args);
    if (waitpid(pid, &status, 0) != pid || status != 0)
        fail(folder, "initdb failed, see its log");
}

static PGconn *connect_to(const char *address)
{
    return PQconnectdb(address + strlen("postgres:"));
}

static void get_address(char *address, const char *database)
{
    snprintf(address, 512, "postgres:host=%s user=teff dbname=%s", folder, database);
}

void pg_server_socket(char *path, size_t max)
{
    snprintf(path, max, "%s/.s.PGSQL.5432", folder);
}

void pg_server_start(void)
{
    char data[PATH_BYTES], address[512];
    snprintf(data, sizeof data, "%s/data", folder);
    const char *const args[] = {"-D", data,
                                "-k", folder,
                                "-c", "listen_addresses=",
                                "-c", "max_connections=120",
                                "-c", "shared_buffers=16MB",
                                NULL};
    server = spawn("postgres", args);
    get_address(address, "postgres");
    for (int ms = 0;; ms += 20) {
        PGconn *conn = connect_to(address);
        bool up = PQstatus(conn) == CONNECTION_OK;
        if (ms > WAIT_MS)
            fail("the server does not start", PQerrorMessage(conn));
        PQfinish(conn);
        if (up)
            return;
        /* It ends at once while a process of a killed server still has the shared memory. */
        if (waitpid(server, NULL, WNOHANG) == server)
            server = spawn("postgres", args);
        usleep(20 * 1000);
    }
}

bool pg_server_open(void)
{
    if (!find_programs()) {
        fputs("skipped: no PostgreSQL server in /usr/lib/postgresql (package postgresql)\n",
              stderr);
        return false;
    }
    make_files();
    pg_server_start();
    return true;
}

/* The server's processes are in sessions of their own, so its children are killed by name. */
void pg_server_kill(void)
{
    char path[100], line[200];
    DIR *proc = opendir("/proc");
    kill(server, SIGSTOP); /* so that it starts no more */
    for (struct dirent *e = proc ? readdir(proc) : NULL; e; e = readdir(proc)) {
        int parent = 0;
        snprintf(path, sizeof path, "/proc/%.20s/stat", e->d_name);
        FILE *file = e->d_name[0] >= '0' && e->d_name[0] <= '9' ? fopen(path, "r") : NULL;
        if (!file)
            continue;
        if (fgets(line, sizeof line, file) && strrchr(line, ')') &&
            sscanf(strrchr(line, ')'), ") %*c %d", &parent) == 1 && parent == server)
            kill(atoi(e->d_name), SIGKILL);
        fclose(file);
    }
    if (proc)
        closedir(proc);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
}

static void remove_tree(const char *path)
{
    char inner[PATH_BYTES * 2];
    DIR *dir = opendir(path);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        snprintf(inner, sizeof inner, "%s/%.255s", path, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && unlink(inner) != 0)
            remove_tree(inner);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

void pg_server_close(void)
{
    pg_server_kill();
    remove_tree(folder);
}

void pg_server_fresh(char *address)
{
    char sql[100], name[20];
    get_address(address, "postgres");
    snprintf(name, sizeof name, "t%u", databases++);
    snprintf(sql, sizeof sql, "CREATE DATABASE %s", name);
    (void)pg_server_run(address, sql);
    get_address(address, name);
}

static long run_on(PGconn *conn, const char *sql)
{
    PGresult *result = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        fail(sql, PQerrorMessage(conn));
    bool has_value = status == PGRES_TUPLES_OK && PQntuples(result) > 0;
    long value = has_value ? atol(PQgetvalue(result, 0, 0)) : 0;
    PQclear(result);
    return value;
}

long pg_server_run(const char *address, const char *sql)
{
    PGconn *conn = connect_to(address);
    long value = run_on(conn, sql);
    PQfinish(conn);
    return value;
}

void pg_server_begin(const char *address, const char *sql)
{
    held = connect_to(address);
    (void)run_on(held, "BEGIN");
    (void)run_on(held, sql);
}

void pg_server_commit(void)
{
    (void)run_on(held, "COMMIT");
    PQfinish(held);
}

void pg_server_roll_back(void)
{
    (void)run_on(held, "ROLLBACK");
    PQfinish(held);
}

/* pgbench counts from before its clients are connected, and says no figure when none of them wrote
 * in time. out: writes per second, 0: none was written */
static double run_pgbench(const char *database, const char *script, unsigned clients, int seconds)
{
    char command[PATH_BYTES * 4], line[300] = "";
    double per_second = 0;
    snprintf(command, sizeof command,
             "%s/pgbench -n -M prepared -c %u -j 2 -T %d -f %s -h %s -U teff %s 2>&1", programs,
             clients, seconds, script, folder, database);
    FILE *file = popen(command, "r");
    while (file && fgets(line, sizeof line, file))
        (void)sscanf(line, "tps = %lf", &per_second);
    if (!file || pclose(file) != 0)
        fail(command, line);
    return per_second;
}

double pg_server_bench(const char *address, const char *script, unsigned clients, double seconds)
{
    char path[PATH_BYTES];
    double per_second = 0;
    snprintf(path, sizeof path, "%s/script", folder);
    FILE *file = fopen(path, "w");
    if (!file || fputs(script, file) < 0 || fclose(file) != 0)
        fail(path, "not written");
    const char *database = strstr(address, "dbname=") + strlen("dbname=");
    for (int s = seconds < 1 ? 1 : (int)seconds; per_second <= 0; s *= 2) {
        if (s > 100)
            fail("pgbench", "wrote nothing within 64 s");
        per_second = run_pgbench(database, path, clients, s);
    }
    return per_second;
}

pid_t pg_server_session(const char *address)
{
    return (pid_t)pg_server_run(address, "SELECT min(pid) FROM pg_stat_activity WHERE datname = "
                                         "current_database() AND application_name = 'teff'");
}
