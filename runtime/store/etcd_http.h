/* etcd_http.h - one HTTP request to a member of an etcd cluster, and whether it may have run.
 * Way:     etcd -> [etcd_http] -> libcurl -> the member's JSON gateway
 * Threads: an http belongs to one thread. */
#pragma once

#include <curl/curl.h>
#include "memory/arena.h"
#include "os/platform.h"
#include "store/login.h"

/* Bytes that grow. The memory stays for the next use. */
typedef struct teffi_etcd_text {
    char *data;
    size_t len, capacity;
    bool failed; /* no memory: what was appended is not complete */
} teffi_etcd_text;

/* teffi_etcd_add - append len bytes. teffi_etcd_add_text - append a string.
 * teffi_etcd_reserve - make room for len bytes after data + text->len. out: false: no memory, and
 * failed is set. */
void teffi_etcd_add(teffi_etcd_text *text, const void *data, size_t len);
void teffi_etcd_add_text(teffi_etcd_text *text, const char *string);
bool teffi_etcd_reserve(teffi_etcd_text *text, size_t len);
void teffi_etcd_text_fini(teffi_etcd_text *text);

enum {
    TEFFI_ETCD_ANSWER_MAX = 16 * 1024 * 1024, /* bytes of an answer */
    TEFFI_ETCD_CONNECT_MS = 1000              /* for a connection */
};

typedef enum teffi_etcd_sent {
    TEFFI_ETCD_ANSWERED,
    TEFFI_ETCD_UNSENT,  /* libcurl has not taken all of the request, so etcd has not run it */
    TEFFI_ETCD_LOST,    /* no answer: etcd may have run it, or run it later */
    TEFFI_ETCD_TOO_LONG /* an answer of over TEFFI_ETCD_ANSWER_MAX bytes */
} teffi_etcd_sent;

typedef struct teffi_etcd_http {
    CURL *curl;
    struct curl_slist *headers;
    const teffi_platform *platform;
    /* of the last request */
    const teffi_etcd_text *request;
    size_t given; /* bytes of it that libcurl has taken */
    teffi_etcd_text answer;
    long status;               /* 200, 404 .. */
    char why[CURL_ERROR_SIZE]; /* if it was not answered */
    curl_off_t moved;          /* bytes sent and received, when they last changed */
    uint64_t moved_ns, silence_ns;
} teffi_etcd_http;

/* teffi_etcd_http_init - in: login: its files of certificates, borrowed. errs: TEFF_E_NOMEM.
 * teffi_etcd_http_fini - end its connections. */
TEFF_MUST_USE teff_err teffi_etcd_http_init(teffi_etcd_http *http, const teffi_platform *platform,
                                            const teffi_login *login);
void teffi_etcd_http_fini(teffi_etcd_http *http);

/* teffi_etcd_http_set_token - send this token with each request from now on. in: NULL: none.
 * errs: TEFF_E_NOMEM: nothing changes. */
TEFF_MUST_USE teff_err teffi_etcd_http_set_token(teffi_etcd_http *http, const char *token);

/* teffi_etcd_post - send a request once, and wait for its answer.
 * in:   url, path: "http://HOST:PORT" or "https://..", "/v3/..". silence_ms: without a byte for
 *       so long, and at most a second more, the connection is lost.
 * out:  ANSWERED: http->status, http->answer. Otherwise http->why. */
teffi_etcd_sent teffi_etcd_post(teffi_etcd_http *http, const char *url, const char *path,
                                const teffi_etcd_text *request, uint32_t silence_ms);
