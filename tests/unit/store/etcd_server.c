/* etcd_server.c - an etcd cluster of a test's own. */
#include "etcd_server.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "scratch.h"

enum { TRIES = 10, NOT_INSTALLED = 127 };

typedef struct member {
    unsigned port, peer_port;
    pid_t pid; /* 0: it does not run */
    int life;  /* at its end when the process has ended */
} member;

static member members[ETCD_MEMBERS_MAX];
static unsigned n_members, clusters, stores;
static const char *scheme = "http";
static struct curl_slist *token_header;
static int notices = -1; /* "READY=1" of each member, as for systemd */

/* out: a port that nobody has now. The socket stays open until all ports are found. */
static unsigned find_port(int *holder)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    *holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*holder < 0 || bind(*holder, (struct sockaddr *)&at, sizeof at) != 0 ||
        getsockname(*holder, (struct sockaddr *)&at, &len) != 0)
        abort();
    return ntohs(at.sin_port);
}

static void find_ports(void)
{
    int holders[2 * ETCD_MEMBERS_MAX];
    for (unsigned i = 0; i < n_members; i++) {
        members[i].port = find_port(&holders[2 * i]);
        members[i].peer_port = find_port(&holders[2 * i + 1]);
    }
    for (unsigned i = 0; i < 2 * n_members; i++)
        close(holders[i]);
}

static void open_notices(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char path[SCRATCH_PATH_MAX];
    scratch_path(path, "notify");
    snprintf(at.sun_path, sizeof at.sun_path, "%.100s", path);
    unlink(path);
    notices = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (notices < 0 || bind(notices, (struct sockaddr *)&at, sizeof at) != 0 ||
        setenv("NOTIFY_SOCKET", path, 1) != 0)
        abort();
}

static void get_data_dir(char *path, unsigned i)
{
    char name[32];
    snprintf(name, sizeof name, "etcd-%u-%u", clusters, i);
    scratch_path(path, name);
}

static void become_member(unsigned i)
{
    char name[8], url[40], peer_url[40], data[SCRATCH_PATH_MAX], token[16], all[200] = "";
    snprintf(name, sizeof name, "m%u", i);
    snprintf(url, sizeof url, "%s://127.0.0.1:%u", scheme, members[i].port);
    snprintf(peer_url, sizeof peer_url, "http://127.0.0.1:%u", members[i].peer_port);
    snprintf(token, sizeof token, "t%u", clusters);
    get_data_dir(data, i);
    for (unsigned k = 0; k < n_members; k++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%sm%u=http://127.0.0.1:%u",
                 k ? "," : "", k, members[k].peer_port);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDWR);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execlp("etcd", "etcd", "--name", name, "--data-dir", data, "--listen-client-urls", url,
           "--advertise-client-urls", url, "--listen-peer-urls", peer_url,
           "--initial-advertise-peer-urls", peer_url, "--initial-cluster", all,
           "--initial-cluster-token", token, "--initial-cluster-state", "new", (char *)NULL);
    _exit(NOT_INSTALLED);
}

void etcd_server_spawn(unsigned i)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        abort();
    members[i].life = ends[0];
    members[i].pid = fork();
    if (members[i].pid == 0) {
        fcntl(ends[1], F_SETFD, 0); /* it keeps this end */
        become_member(i);
    }
    close(ends[1]);
    if (members[i].pid < 0)
        abort();
}

static int wait_member(unsigned i)
{
    int status = 0;
    waitpid(members[i].pid, &status, 0);
    close(members[i].life);
    members[i].pid = 0;
    return status;
}

/* out: a member that has ended, or n_members: one more of them serves. */
static unsigned await_notice(void)
{
    struct pollfd fds[1 + ETCD_MEMBERS_MAX] = {{.fd = notices, .events = POLLIN}};
    char text[100] = "";
    for (unsigned i = 0; i < n_members; i++)
        fds[1 + i] = (struct pollfd){.fd = members[i].pid ? members[i].life : -1};
    for (;;) {
        (void)poll(fds, 1 + n_members, -1);
        for (unsigned i = 0; i < n_members; i++)
            if (fds[1 + i].revents)
                return i;
        if (recv(notices, text, sizeof text - 1, MSG_DONTWAIT) > 0 && strstr(text, "READY=1"))
            return n_members;
    }
}

static void kill_all(void)
{
    for (unsigned i = 0; i < n_members; i++)
        if (members[i].pid)
            etcd_server_kill(i);
}

bool etcd_server_start(unsigned n)
{
    n_members = n;
    if (notices < 0)
        open_notices();
    for (int tries = 0; tries < TRIES; tries++) {
        unsigned ready = 0, ended = n_members;
        clusters++;
        if (tries > 0 || !members[n - 1].port)
            find_ports();
        for (unsigned i = 0; i < n_members; i++)
            etcd_server_spawn(i);
        while (ready < n_members && ended == n_members) {
            ended = await_notice();
            ready++;
        }
        if (ended == n_members)
            return true;
        int status = wait_member(ended);
        kill_all();
        if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_INSTALLED)
            return false;
    }
    abort(); /* each time somebody else has taken a port */
}

void etcd_server_use_tls(const char *cert_file, const char *ca_file)
{
    scheme = "https";
    if (setenv("ETCD_CERT_FILE", cert_file, 1) || setenv("ETCD_KEY_FILE", cert_file, 1) ||
        setenv("ETCD_TRUSTED_CA_FILE", ca_file, 1) || setenv("ETCD_CLIENT_CERT_AUTH", "true", 1))
        abort();
}

void etcd_server_kill(unsigned i)
{
    kill(members[i].pid, SIGKILL);
    wait_member(i);
}

void etcd_server_restart(unsigned i)
{
    etcd_server_spawn(i);
    if (await_notice() != n_members)
        abort();
}

static void remove_files(const char *path)
{
    char inner[SCRATCH_PATH_MAX * 2];
    DIR *dir = opendir(path);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        snprintf(inner, sizeof inner, "%s/%.255s", path, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && unlink(inner) != 0)
            remove_files(inner);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

void etcd_server_stop(void)
{
    char data[SCRATCH_PATH_MAX];
    kill_all();
    for (unsigned i = 0; i < n_members; i++) {
        get_data_dir(data, i);
        remove_files(data);
    }
}

unsigned etcd_server_port(unsigned i)
{
    return members[i].port;
}

void etcd_server_fresh(char *address)
{
    size_t len = (size_t)snprintf(address, 512, "etcd://");
    for (unsigned i = 0; i < n_members; i++)
        len += (size_t)snprintf(address + len, 512 - len, "%s127.0.0.1:%u", i ? "," : "",
                                members[i].port);
    snprintf(address + len, 512 - len, "/test-%u", stores++);
}

typedef struct cut_text {
    char *text;
    size_t len, max;
} cut_text;

static size_t keep_text(char *data, size_t size, size_t n, void *arg)
{
    cut_text *t = arg;
    size_t room = t->max - 1 - t->len, len = size * n < room ? size * n : room;
    memcpy(t->text + t->len, data, len);
    t->len += len;
    t->text[t->len] = '\0';
    return size * n;
}

long etcd_server_post(unsigned i, const char *path, const char *json, char *answer, size_t max)
{
    char url[100];
    long status = 0;
    cut_text kept = {.text = answer, .max = max};
    CURL *curl = curl_easy_init();
    snprintf(url, sizeof url, "http://127.0.0.1:%u%s", members[i].port, path);
    answer[0] = '\0';
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, token_header);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, json);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, keep_text);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &kept);
    if (curl_easy_perform(curl) == CURLE_OK)
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(curl);
    return status;
}

void etcd_server_set_token(const char *token)
{
    char header[200];
    curl_slist_free_all(token_header);
    snprintf(header, sizeof header, "Authorization: %.180s", token ? token : "");
    token_header = token ? curl_slist_append(NULL, header) : NULL;
}

unsigned etcd_server_peer_port(unsigned i)
{
    return members[i].peer_port;
}

/* ---- a plain client ---- */

typedef struct plain_client {
    pthread_t thread;
    unsigned no;
    uint64_t until_ns, writes;
} plain_client;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static size_t drop_answer(char *data, size_t size, size_t n, void *arg)
{
    (void)data;
    (void)arg;
    return size * n;
}

static void *write_keys(void *arg)
{
    plain_client *c = arg;
    char url[100], json[100];
    CURL *curl = curl_easy_init();
    snprintf(url, sizeof url, "http://127.0.0.1:%u/v3/kv/put", members[0].port);
    snprintf(json, sizeof json, "{\"key\":\"%08u\",\"value\":\"dHdlbHZlIGJ5dGVz\"}", c->no);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, json);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop_answer);
    while (now_ns() < c->until_ns && curl_easy_perform(curl) == CURLE_OK)
        c->writes++;
    curl_easy_cleanup(curl);
    return NULL;
}

double etcd_server_bench(unsigned n, double seconds)
{
    plain_client *clients = calloc(n, sizeof *clients);
    uint64_t writes = 0, begin = now_ns();
    for (unsigned i = 0; clients && i < n; i++) {
        clients[i].no = i;
        clients[i].until_ns = begin + (uint64_t)(seconds * 1e9);
        if (pthread_create(&clients[i].thread, NULL, write_keys, &clients[i]))
            abort();
    }
    for (unsigned i = 0; clients && i < n; i++) {
        pthread_join(clients[i].thread, NULL);
        writes += clients[i].writes;
    }
    free(clients);
    return (double)writes * 1e9 / (double)(now_ns() - begin);
}

void etcd_server_encode(char *text, const char *bytes, size_t len)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *out = text + strlen(text);
    for (size_t i = 0; i < len; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        unsigned bits = 0;
        for (size_t k = 0; k < 3; k++)
            bits = bits << 8 | (k < n ? (unsigned char)bytes[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            *out++ = k <= n ? letters[bits >> (18 - 6 * k) & 63] : '=';
    }
    *out = '\0';
}
