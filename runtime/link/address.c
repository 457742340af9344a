/* address.c - checks addresses and formats them. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "link/steps.h"

static bool is_port(const char *text)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    unsigned long port = strtoul(text, &end, 10);
    return *end == '\0' && end - text <= 5 && port <= 65535;
}

static bool is_name(const char *name, size_t n)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    return n > 0 && strspn(name, letters) >= n;
}

static bool is_v6(const char *name, size_t n)
{
    return n > 2 && name[0] == '[' && name[n - 1] == ']' &&
           strspn(name + 1, "0123456789abcdefABCDEF:.") == n - 2;
}

bool teffi_address_ok(const char *address)
{
    const char *colon = strrchr(address, ':');
    if (!colon || strlen(address) > TEFFI_ADDRESS_MAX || !is_port(colon + 1))
        return false;
    size_t host = (size_t)(colon - address);
    return is_name(address, host) || is_v6(address, host);
}

bool teffi_link_address_url(const char *address, bool tls, char *url, size_t n)
{
    if (!teffi_address_ok(address))
        return false;
    snprintf(url, n, "%s://%s", tls ? "tls+tcp" : "tcp", address);
    return true;
}

void teffi_link_address_remote(nng_stream *stream, char *text, size_t n)
{
    nng_sockaddr sa;
    char host[INET6_ADDRSTRLEN] = "?";
    if (nng_stream_get_addr(stream, NNG_OPT_REMADDR, &sa) != 0)
        sa.s_family = NNG_AF_UNSPEC;
    if (sa.s_family == NNG_AF_INET) {
        inet_ntop(AF_INET, &sa.s_in.sa_addr, host, sizeof host);
        snprintf(text, n, "%s:%u", host, ntohs(sa.s_in.sa_port));
    } else if (sa.s_family == NNG_AF_INET6) {
        inet_ntop(AF_INET6, sa.s_in6.sa_addr, host, sizeof host);
        snprintf(text, n, "[%s]:%u", host, ntohs(sa.s_in6.sa_port));
    } else {
        snprintf(text, n, "peer");
    }
}
