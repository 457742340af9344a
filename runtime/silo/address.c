/* address.c - checks of addresses and cluster ids. */
#include "silo/address.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "wire/net.h"

static bool port_ok(const char *port)
{
    size_t n = strlen(port);
    if (n < 1 || n > 5 || strspn(port, "0123456789") != n)
        return false;
    return strtol(port, NULL, 10) <= 65535;
}

static bool host_ok(const char *host, size_t n)
{
    if (n > 2 && host[0] == '[')
        return host[n - 1] == ']' && strspn(host + 1, "0123456789abcdefABCDEF:.%") >= n - 2;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)host[i]) && host[i] != '.' && host[i] != '-')
            return false;
    return n > 0;
}

bool teffi_address_ok(const char *address)
{
    const char *colon = strrchr(address, ':');
    return colon && strlen(address) <= TEFFI_ADDRESS_MAX &&
           host_ok(address, (size_t)(colon - address)) && port_ok(colon + 1);
}

static bool starts(const char *address, const char *with)
{
    return strncmp(address, with, strlen(with)) == 0;
}

bool teffi_address_loopback(const char *address)
{
    size_t number = strspn(address, "0123456789.");
    return (starts(address, "127.") && address[number] == ':') || starts(address, "[::1]:") ||
           starts(address, "localhost:");
}

bool teffi_address_any(const char *address)
{
    return starts(address, "0.0.0.0:") || starts(address, "[::]:");
}

bool teffi_cluster_ok(const char *cluster)
{
    size_t n = strlen(cluster);
    if (n < 1 || n > TEFFI_CLUSTER_MAX)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)cluster[i]) && !strchr("._-", cluster[i]))
            return false;
    return true;
}
