/* address.c - checks the form of an address; does not resolve it. */
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include "message/hello.h"
#include "stream/stream.h"

static bool is_port(const char *text)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    unsigned long port = strtoul(text, &end, 10);
    return *end == '\0' && end - text <= 5 && port <= 65535;
}

static bool is_host_name(const char *name, size_t n)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    return n > 0 && strspn(name, letters) >= n;
}

static bool is_bracketed_ipv6(const char *name, size_t n)
{
    return n > 2 && name[0] == '[' && name[n - 1] == ']' &&
           strspn(name + 1, "0123456789abcdefABCDEF:.") == n - 2;
}

const char *teffi_address_path(const char *address)
{
    return strncmp(address, "unix:", 5) == 0 ? address + 5 : NULL;
}

static bool is_socket_path(const char *path)
{
    if (path[0] != '/' || !path[1] || strlen(path) >= sizeof((struct sockaddr_un *)0)->sun_path)
        return false;
    for (; *path; path++)
        if ((uint8_t)*path <= ' ' || *path == ',' || *path == 0x7f)
            return false;
    return true;
}

bool teffi_address_is_valid(const char *address)
{
    if (teffi_address_path(address))
        return is_socket_path(teffi_address_path(address));
    const char *colon = strrchr(address, ':');
    if (!colon || strlen(address) > TEFFI_ADDRESS_MAX || !is_port(colon + 1))
        return false;
    size_t host = (size_t)(colon - address);
    return is_host_name(address, host) || is_bracketed_ipv6(address, host);
}
