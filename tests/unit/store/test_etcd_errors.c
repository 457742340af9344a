/* test_etcd_errors.c - which of etcd's errors mean that nothing was written, and which leave a
 * write in doubt, so that its fence is raised. The server is the test. */
#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "ask.h"
#include "setup.h"

enum { CONNECTIONS = 32, REQUEST_MAX = 8192 };

static int listener, accepted[CONNECTIONS];
static pthread_t acceptor, servers[CONNECTIONS];
static unsigned n_accepted;       /* by the acceptor; read when it has ended */
static atomic_uint fences, asked; /* puts of fences, transactions */
static int status;                /* of the answer to a transaction; set while none is asked */
static const char *answer;

/* out: false: the connection has ended. */
static bool read_request(int fd, char *request)
{
    size_t len = 0;
    for (ssize_t n; (n = recv(fd, request + len, REQUEST_MAX - 1 - len, 0)) > 0;) {
        len += (size_t)n;
        request[len] = '\0';
        const char *body = strstr(request, "\r\n\r\n");
        const char *length = strstr(request, "Content-Length: ");
        if (body && length && strlen(body + 4) == strtoul(length + 16, NULL, 10))
            return true;
    }
    return false;
}

static void send_answer(int fd, int code, const char *body)
{
    char text[REQUEST_MAX];
    int len = snprintf(text, sizeof text, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n\r\n%s", code,
                       strlen(body), body);
    (void)!send(fd, text, (size_t)len, MSG_NOSIGNAL);
}

static void *serve_connection(void *arg)
{
    static const char ready[] = "{\"header\":{\"cluster_id\":\"7\"},\"leader\":\"1\",\"ID\":\"5\"}";
    int fd = *(int *)arg;
    char request[REQUEST_MAX];
    while (read_request(fd, request)) {
        if (strstr(request, "/v3/kv/txn")) {
            asked++;
            send_answer(fd, status, answer);
        } else if (strstr(request, "/v3/kv/range")) { /* of the format: "1" */
            send_answer(fd, 200,
                        "{\"header\":{\"cluster_id\":\"7\"},\"kvs\":[{\"value\":\"MQ==\"}]}");
        } else {
            fences += strstr(request, "/v3/kv/put") != NULL;
            send_answer(fd, 200, ready);
        }
    }
    close(fd);
    return NULL;
}

static void *accept_connections(void *arg)
{
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0 && n_accepted < CONNECTIONS;) {
        accepted[n_accepted] = fd;
        if (pthread_create(&servers[n_accepted], NULL, serve_connection, &accepted[n_accepted]))
            abort();
        n_accepted++;
    }
    return arg;
}

static teffi_store *open_server(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    char address[64];
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 8) != 0 ||
        getsockname(listener, (struct sockaddr *)&at, &len) != 0 ||
        pthread_create(&acceptor, NULL, accept_connections, NULL) != 0)
        abort();
    snprintf(address, sizeof address, "etcd://127.0.0.1:%u", ntohs(at.sin_port));
    return ask_open(address);
}

static void close_server(teffi_store *store)
{
    teffi_store_close(store);
    shutdown(listener, SHUT_RDWR);
    pthread_join(acceptor, NULL);
    close(listener);
    for (unsigned i = 0; i < n_accepted; i++)
        pthread_join(servers[i], NULL);
}

static void errors_of_etcd(void **state)
{
#define ERROR(code, message) "{\"message\":\"" message "\",\"code\":" #code "}"
    static const struct {
        int status;
        const char *answer;
        teff_err err;
    } errors[] = {
        {503, ERROR(14, "etcdserver: request timed out"), TEFF_E_UNKNOWN},
        {503, ERROR(14, "etcdserver: leader changed"), TEFF_E_UNKNOWN},
        {500, ERROR(2, "anything"), TEFF_E_UNKNOWN},
        {504, ERROR(4, "context deadline exceeded"), TEFF_E_UNKNOWN},
        {502, "<html>Bad Gateway</html>", TEFF_E_UNKNOWN},
        {500, "{}", TEFF_E_UNKNOWN},
        {200, "not JSON", TEFF_E_UNKNOWN},
        {200, "{}", TEFF_E_UNKNOWN},
        {200, "{\"header\":{\"cluster_id\":\"7\",\"revision\":\"3\"}}", TEFF_E_UNKNOWN},
        {400, ERROR(3, "etcdserver: request is too large"), TEFF_E_TOO_LARGE},
        {400, ERROR(3, "etcdserver: too many operations in txn request"), TEFF_E_TOO_LARGE},
        {400, ERROR(3, "anything"), TEFF_E_IO},
        {429, ERROR(8, "etcdserver: mvcc: database space exceeded"), TEFF_E_IO},
        {403, ERROR(7, "etcdserver: permission denied"), TEFF_E_IO},
        {400, ERROR(9, "etcdserver: authentication is not enabled"), TEFF_E_IO},
        {501, ERROR(12, "unimplemented"), TEFF_E_IO},
        {401, ERROR(16, "etcdserver: invalid auth token"), TEFF_E_IO},
        {200, "{\"header\":{\"cluster_id\":\"8\",\"revision\":\"3\"}}", TEFF_E_IO},
    };
#undef ERROR
    teffi_store *store = open_server();
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        unsigned before = fences, asked_before = asked;
        uint64_t etag = 4;
        status = errors[i].status;
        answer = errors[i].answer;
        teff_err err = ask_put(store, "words", ask_str("a"), ask_str("x"), &etag);
        if (err != errors[i].err)
            fail_msg("%s: %s", answer, teff_err_name(err));
        assert_int_equal(etag, 4);
        assert_int_equal(asked, asked_before + 1); /* not sent again */
        assert_int_equal(fences, before + (err == TEFF_E_UNKNOWN));
    }
    close_server(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(errors_of_etcd)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
