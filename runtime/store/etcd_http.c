/* etcd_http.c - send one HTTP request to a member of an etcd cluster. */
#include "store/etcd_http.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { URL_MAX = 512, TEXT_MIN = 4096, TOKEN_MAX = 4096 };

/* ---- growing buffers ---- */

bool teffi_etcd_text_reserve(teffi_etcd_text *text, size_t len)
{
    size_t capacity = text->capacity ? text->capacity : TEXT_MIN;
    while (capacity - text->len < len)
        capacity *= 2;
    char *data = capacity > text->capacity ? realloc(text->data, capacity) : text->data;
    if (!data) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    return true;
}

void teffi_etcd_text_add(teffi_etcd_text *text, const void *data, size_t len)
{
    if (len == 0 || !teffi_etcd_text_reserve(text, len))
        return;
    memcpy(text->data + text->len, data, len);
    text->len += len;
}

void teffi_etcd_text_add_string(teffi_etcd_text *text, const char *string)
{
    teffi_etcd_text_add(text, string, strlen(string));
}

void teffi_etcd_text_fini(teffi_etcd_text *text)
{
    free(text->data);
    *text = (teffi_etcd_text){0};
}

/* ---- libcurl's callbacks; arg is the teffi_etcd_http ---- */

/* libcurl calls this to get the next bytes of the request. No byte is given twice: etcd may have
 * run a request that was sent completely, and must not run it again. If a reused connection ends
 * without a response, libcurl tries to send the request again. It first calls
 * allow_rewind_if_unsent(), which refuses this if libcurl has taken any byte. */
static size_t copy_request_bytes(char *room, size_t size, size_t n, void *arg)
{
    teffi_etcd_http *http = arg;
    size_t left = http->request->len - http->given, len = size * n < left ? size * n : left;
    memcpy(room, http->request->data + http->given, len);
    http->given += len;
    return len;
}

/* libcurl calls this before it sends the request again. Allowed only if libcurl has not taken any
 * byte of the request yet. */
static int allow_rewind_if_unsent(void *arg, curl_off_t offset, int origin)
{
    const teffi_etcd_http *http = arg;
    return http->given == 0 && offset == 0 && origin == SEEK_SET ? CURL_SEEKFUNC_OK
                                                                 : CURL_SEEKFUNC_FAIL;
}

/* out: size * n: all bytes were appended. 0: the response is over the limit, or there is no memory;
 * libcurl then ends the request. */
static size_t append_response(char *data, size_t size, size_t n, void *arg)
{
    teffi_etcd_http *http = arg;
    if (size * n > TEFFI_ETCD_RESPONSE_MAX - http->response.len)
        http->response.failed = true;
    else
        teffi_etcd_text_add(&http->response, data, size * n);
    return http->response.failed ? 0 : size * n;
}

/* libcurl calls this when bytes were sent or received, and once a second. out: not 0: no byte was
 * sent or received for http->silence_ns, so libcurl ends the request. */
static int check_silence(void *arg, curl_off_t to_receive, curl_off_t received, curl_off_t to_send,
                         curl_off_t sent)
{
    teffi_etcd_http *http = arg;
    uint64_t now = teffi_now(http->platform);
    (void)to_receive;
    (void)to_send;
    if (received + sent != http->moved) {
        http->moved = received + sent;
        http->moved_ns = now;
    }
    return now - http->moved_ns > http->silence_ns;
}

/* ---- requests ---- */

static void init_curl_library(void)
{
    (void)curl_global_init(CURL_GLOBAL_SSL);
}

/* Makes the list of a request's headers. Without the empty header `Expect:`, libcurl would first
 * ask the server whether it may send a large request, and wait for the response.
 * in: authorization: a whole header; NULL: none. out: NULL: no memory. */
static struct curl_slist *make_header_list(const char *authorization)
{
    const char *const headers[] = {"Content-Type: application/json", "Expect:", authorization};
    struct curl_slist *list = NULL, *longer;
    for (size_t i = 0; i < (authorization ? 3 : 2); i++, list = longer) {
        longer = curl_slist_append(list, headers[i]);
        if (!longer) {
            curl_slist_free_all(list);
            return NULL;
        }
    }
    return list;
}

/* Takes ownership of headers. */
static void set_headers(teffi_etcd_http *http, struct curl_slist *headers)
{
    curl_easy_setopt(http->curl, CURLOPT_HTTPHEADER, headers);
    curl_slist_free_all(http->headers);
    http->headers = headers;
}

/* If login->ca_file is set, libcurl accepts only servers with a certificate that this CA has signed
 * for the host name in the URL. login->cert_file, if set, has the client's certificate and key. */
static void set_certificates(CURL *curl, const teffi_login *login)
{
    if (login->ca_file[0]) {
        curl_easy_setopt(curl, CURLOPT_CAINFO, login->ca_file);
        curl_easy_setopt(curl, CURLOPT_CAPATH, NULL);
    }
    if (login->cert_file[0]) {
        curl_easy_setopt(curl, CURLOPT_SSLCERT, login->cert_file);
        curl_easy_setopt(curl, CURLOPT_SSLKEY, login->cert_file);
    }
}

static void set_curl_options(teffi_etcd_http *http)
{
    CURL *curl = http->curl;
    curl_easy_setopt(curl, CURLOPT_POST, 1L);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_PROXY, ""); /* none, even if the environment names one */
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)TEFFI_ETCD_CONNECT_MS);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, http->why);
    curl_easy_setopt(curl, CURLOPT_READFUNCTION, copy_request_bytes);
    curl_easy_setopt(curl, CURLOPT_READDATA, http);
    curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, allow_rewind_if_unsent);
    curl_easy_setopt(curl, CURLOPT_SEEKDATA, http);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, append_response);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, http);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, check_silence);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, http);
}

teff_err teffi_etcd_http_init(teffi_etcd_http *http, const teffi_platform *platform,
                              const teffi_login *login)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_curl_library);
    *http = (teffi_etcd_http){.platform = platform};
    http->curl = curl_easy_init();
    struct curl_slist *headers = make_header_list(NULL);
    if (!http->curl || !headers) {
        curl_slist_free_all(headers);
        teffi_etcd_http_fini(http);
        return TEFF_E_NOMEM;
    }
    set_curl_options(http);
    set_headers(http, headers);
    set_certificates(http->curl, login);
    return TEFF_OK;
}

teff_err teffi_etcd_http_set_token(teffi_etcd_http *http, const char *token)
{
    char header[TOKEN_MAX + sizeof "Authorization: "];
    int len = snprintf(header, sizeof header, "Authorization: %s", token ? token : "");
    if (len < 0 || (size_t)len >= sizeof header)
        return TEFF_E_TOO_LARGE;
    struct curl_slist *headers = make_header_list(token ? header : NULL);
    if (!headers)
        return TEFF_E_NOMEM;
    set_headers(http, headers);
    return TEFF_OK;
}

void teffi_etcd_http_fini(teffi_etcd_http *http)
{
    curl_easy_cleanup(http->curl);
    curl_slist_free_all(http->headers);
    teffi_etcd_text_fini(&http->response);
    http->curl = NULL;
    http->headers = NULL;
}

/* Classifies libcurl's result, `code`. Sets http->status and, unless RESPONDED, http->why.
 * out: UNSENT: libcurl has not taken the whole request (http->given). Then etcd has not run it,
 * since etcd runs no incomplete JSON. libcurl's own count of sent bytes cannot be used: each
 * attempt to connect sets that count to 0. */
static teffi_etcd_sent classify_curl_result(teffi_etcd_http *http, CURLcode code)
{
    (void)curl_easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, &http->status);
    if (code == CURLE_OK)
        return TEFFI_ETCD_RESPONDED;
    if (http->response.failed) {
        snprintf(http->why, sizeof http->why, "no memory for the response, or it is over %d bytes",
                 TEFFI_ETCD_RESPONSE_MAX);
        return TEFFI_ETCD_TOO_LONG;
    }
    if (code == CURLE_ABORTED_BY_CALLBACK)
        snprintf(http->why, sizeof http->why, "no response in time");
    else if (code == CURLE_SEND_FAIL_REWIND)
        snprintf(http->why, sizeof http->why, "the server ended it");
    else if (!http->why[0])
        snprintf(http->why, sizeof http->why, "%s", curl_easy_strerror(code));
    return http->given < http->request->len ? TEFFI_ETCD_UNSENT : TEFFI_ETCD_LOST;
}

teffi_etcd_sent teffi_etcd_post(teffi_etcd_http *http, const char *url, const char *path,
                                const teffi_etcd_text *request, uint32_t silence_ms)
{
    char at[URL_MAX];
    snprintf(at, sizeof at, "%s%s", url, path);
    http->request = request;
    http->given = 0;
    http->response.len = 0;
    http->response.failed = false;
    http->status = 0;
    http->why[0] = '\0';
    http->moved = 0;
    http->moved_ns = teffi_now(http->platform);
    http->silence_ns = silence_ms * UINT64_C(1000000);
    (void)curl_easy_setopt(http->curl, CURLOPT_URL, at);
    (void)curl_easy_setopt(http->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->len);
    return classify_curl_result(http, curl_easy_perform(http->curl));
}
