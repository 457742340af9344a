/* etcd_http.h - send one HTTP request to a member of an etcd cluster; did the request run?
 * Way:     etcd -> [etcd_http] -> libcurl -> the member's JSON gateway
 * Threads: a teffi_etcd_http belongs to one thread. */
#pragma once

#include <curl/curl.h>
#include "memory/arena.h"
#include "os/platform.h"
#include "store/login.h"

/* A growing buffer of bytes. To use its memory again, set len to 0 and failed to false. */
typedef struct teffi_etcd_text {
    char *data;
    size_t len, capacity;
    bool failed; /* no memory: a part of the bytes is missing */
} teffi_etcd_text;

/* teffi_etcd_text_add - append len bytes. teffi_etcd_text_add_string - append a string.
 * teffi_etcd_text_reserve - make room for len more bytes. out: false: no memory; text->failed is
 * set. */
void teffi_etcd_text_add(teffi_etcd_text *text, const void *data, size_t len);
void teffi_etcd_text_add_string(teffi_etcd_text *text, const char *string);
bool teffi_etcd_text_reserve(teffi_etcd_text *text, size_t len);
void teffi_etcd_text_fini(teffi_etcd_text *text);

enum {
    TEFFI_ETCD_RESPONSE_MAX = 16 * 1024 * 1024, /* bytes of a response */
    TEFFI_ETCD_CONNECT_MS = 1000                /* for a connection */
};

typedef enum teffi_etcd_sent {
    TEFFI_ETCD_RESPONDED,
    TEFFI_ETCD_UNSENT,  /* a part of the request was not sent, so etcd has not run it */
    TEFFI_ETCD_LOST,    /* no response: etcd may have run it, or may run it later */
    TEFFI_ETCD_TOO_LONG /* response over TEFFI_ETCD_RESPONSE_MAX bytes, or no memory for it */
} teffi_etcd_sent;

typedef struct teffi_etcd_http {
    CURL *curl;
    struct curl_slist *headers;
    const teffi_platform *platform;
    /* of the last request */
    const teffi_etcd_text *request;
    size_t given; /* bytes of it that libcurl has taken */
    teffi_etcd_text response;
    long status;               /* 200, 404 .. */
    char why[CURL_ERROR_SIZE]; /* the error, unless the result is RESPONDED */
    curl_off_t moved;          /* bytes sent and received until moved_ns */
    uint64_t moved_ns, silence_ns;
} teffi_etcd_http;

/* teffi_etcd_http_init - in: platform, kept until _fini. login: ca_file and cert_file are used, and
 * copied. errs: TEFF_E_NOMEM: *http holds nothing.
 * teffi_etcd_http_fini - close its connections and free its memory. */
TEFF_MUST_USE teff_err teffi_etcd_http_init(teffi_etcd_http *http, const teffi_platform *platform,
                                            const teffi_login *login);
void teffi_etcd_http_fini(teffi_etcd_http *http);

/* teffi_etcd_http_set_token - send this token with each request from now on.
 * in:   token, copied; NULL: none.
 * errs: TEFF_E_TOO_LARGE: over 4096 bytes; TEFF_E_NOMEM. Nothing changes. */
TEFF_MUST_USE teff_err teffi_etcd_http_set_token(teffi_etcd_http *http, const char *token);

/* teffi_etcd_post - send a request once, and wait for its response.
 * in:   url: "http://HOST:PORT" or "https://.."; path: "/v3/..". silence_ms: the request ends when
 *       no byte was sent or received for so long, or up to a second later.
 * out:  RESPONDED, with any status: http->status, http->response. Otherwise http->why. Valid until
 *       the next request. */
teffi_etcd_sent teffi_etcd_post(teffi_etcd_http *http, const char *url, const char *path,
                                const teffi_etcd_text *request, uint32_t silence_ms);
