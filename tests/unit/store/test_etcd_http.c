/* test_etcd_http.c - was a request sent, whatever its connection does? The server is the test. */
#include "store/etcd_http.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "setup.h"
#include "os/thread.h"

enum { SILENCE_MS = 20 * 1000, LONG = 32 * 1024 * 1024 };

typedef struct client {
    teffi_platform platform;
    teffi_etcd_http http;
    teffi_etcd_text request;
    char url[64];
    pthread_t thread;
    teffi_etcd_sent sent;
} client;

static int listener;
static const teffi_login no_login;

static void init_client(client *c, const char *request)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    *c = (client){0};
    teffi_platform_init_real(&c->platform, TEFF_LOG_WARN);
    assert_int_equal(teffi_etcd_http_init(&c->http, &c->platform, &no_login), TEFF_OK);
    teffi_etcd_text_add_string(&c->request, request);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    snprintf(c->url, sizeof c->url, "http://127.0.0.1:%u", ntohs(at.sin_port));
}

static void fini_client(client *c)
{
    close(listener);
    teffi_etcd_text_fini(&c->request);
    teffi_etcd_http_fini(&c->http);
}

static void *run_client(void *arg)
{
    client *c = arg;
    c->sent = teffi_etcd_post(&c->http, c->url, "/x", &c->request, SILENCE_MS);
    return NULL;
}

static void start_post(client *c)
{
    assert_int_equal(pthread_create(&c->thread, NULL, run_client, c), 0);
}

static teffi_etcd_sent await_post(client *c)
{
    pthread_join(c->thread, NULL);
    return c->sent;
}

static int accept_client(void)
{
    int fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    return fd;
}

/* Reads until the text has come. out: false: the connection ended before. */
static bool read_until(int fd, const char *end)
{
    char text[8192];
    size_t len = 0;
    for (ssize_t n; (n = recv(fd, text + len, sizeof text - 1 - len, 0)) > 0;) {
        len += (size_t)n;
        text[len] = '\0';
        if (strstr(text, end))
            return true;
    }
    return false;
}

static void send_text(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void an_answer_is_kept(void **state)
{
    client c;
    init_client(&c, "question");
    start_post(&c);
    int fd = accept_client();
    assert_true(read_until(fd, "question"));
    send_text(fd, "HTTP/1.1 503 X\r\nContent-Length: 6\r\n\r\nanswer");
    assert_int_equal(await_post(&c), TEFFI_ETCD_RESPONDED);
    assert_int_equal(c.http.status, 503);
    assert_int_equal(c.http.response.len, 6);
    assert_memory_equal(c.http.response.data, "answer", 6);
    close(fd);
    fini_client(&c);
}

static void without_a_connection_nothing_is_sent(void **state)
{
    client c;
    init_client(&c, "question");
    close(listener);
    start_post(&c);
    assert_int_equal(await_post(&c), TEFFI_ETCD_UNSENT);
    assert_true(c.http.why[0]);
    fini_client(&c);
}

/* Libcurl would send it again on another connection. in: serves: another one is possible. */
static void lose_reused_connection(bool serves)
{
    client c;
    init_client(&c, "question");
    start_post(&c);
    int fd = accept_client();
    assert_true(read_until(fd, "question"));
    send_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_int_equal(await_post(&c), TEFFI_ETCD_RESPONDED);
    start_post(&c);
    assert_true(read_until(fd, "question"));
    if (!serves)
        close(listener);
    close(fd);
    if (serves) {
        fd = accept_client();
        assert_false(read_until(fd, "question"));
        close(fd);
    }
    assert_int_equal(await_post(&c), TEFFI_ETCD_LOST);
    fini_client(&c);
}

static void a_request_is_sent_once(void **state)
{
    lose_reused_connection(true);
}

static void a_failed_second_attempt_does_not_unsend(void **state)
{
    lose_reused_connection(false);
}

/* More than all buffers between libcurl and the server hold. */
static void half_a_request_is_unsent(void **state)
{
    client c;
    init_client(&c, "");
    assert_true(teffi_etcd_text_reserve(&c.request, LONG));
    memset(c.request.data, ' ', LONG);
    c.request.len = LONG;
    start_post(&c);
    int fd = accept_client();
    for (int waiting = 0; waiting == 0; teffi_thread_yield())
        assert_int_equal(ioctl(fd, FIONREAD, &waiting), 0);
    close(listener);
    close(fd);
    assert_int_equal(await_post(&c), TEFFI_ETCD_UNSENT);
    fini_client(&c);
}

static void a_long_answer_is_cut(void **state)
{
    client c;
    char head[100], *rest = calloc(1, TEFFI_ETCD_RESPONSE_MAX + 1);
    for (size_t more = 0; more < 2; more++) {
        size_t len = TEFFI_ETCD_RESPONSE_MAX + more, at = 0;
        init_client(&c, "question");
        start_post(&c);
        int fd = accept_client();
        assert_true(read_until(fd, "question"));
        snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", len);
        send_text(fd, head);
        for (ssize_t n; at < len && (n = send(fd, rest + at, len - at, MSG_NOSIGNAL)) > 0;)
            at += (size_t)n;
        assert_int_equal(await_post(&c), more ? TEFFI_ETCD_TOO_LONG : TEFFI_ETCD_RESPONDED);
        close(fd);
        fini_client(&c);
    }
    free(rest);
}

/* A clock that advances by half the limit at each look. */
static uint64_t tick(void *arg)
{
    static uint64_t now;
    (void)arg;
    return now += SILENCE_MS * UINT64_C(1000000) / 2;
}

static void a_silent_server_is_lost(void **state)
{
    client c;
    init_client(&c, "question");
    c.platform.mono_ns = tick;
    start_post(&c);
    int fd = accept_client();
    teffi_etcd_sent sent = await_post(&c);
    assert_true(sent == TEFFI_ETCD_LOST || sent == TEFFI_ETCD_UNSENT);
    assert_string_equal(c.http.why, "no response in time");
    close(fd);
    fini_client(&c);
}

/* ---- the login token ---- */

static void a_token_is_sent_whole_or_refused(void **state)
{
    enum { LONGEST = 4096 };
    char token[LONGEST + 2] = "";
    client c;
    init_client(&c, "question");
    memset(token, 't', LONGEST + 1);
    assert_int_equal(teffi_etcd_http_set_token(&c.http, token), TEFF_E_TOO_LARGE);
    strcpy(token + LONGEST - 4, "end.");
    assert_int_equal(teffi_etcd_http_set_token(&c.http, token), TEFF_OK);
    start_post(&c);
    int fd = accept_client();
    assert_true(read_until(fd, "end.\r\n"));
    close(fd);
    (void)await_post(&c);
    fini_client(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_kept),
        cmocka_unit_test(without_a_connection_nothing_is_sent),
        cmocka_unit_test(a_request_is_sent_once),
        cmocka_unit_test(a_failed_second_attempt_does_not_unsend),
        cmocka_unit_test(half_a_request_is_unsent),
        cmocka_unit_test(a_long_answer_is_cut),
        cmocka_unit_test(a_silent_server_is_lost),
        cmocka_unit_test(a_token_is_sent_whole_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
