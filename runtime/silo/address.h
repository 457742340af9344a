/* address.h - "host:port" as users write it: checked before anything is opened. */
#ifndef TEFFI_SILO_ADDRESS_H
#define TEFFI_SILO_ADDRESS_H

#include <stdbool.h>

/* teffi_address_ok - "name:port", "1.2.3.4:port", "[v6]:port" with a port of 0..65535. */
bool teffi_address_ok(const char *address);

/* teffi_address_loopback - does it name this machine only? */
bool teffi_address_loopback(const char *address);

/* teffi_address_any - does it name every interface ("0.0.0.0", "[::]")? */
bool teffi_address_any(const char *address);

/* teffi_cluster_ok - 1..64 of [A-Za-z0-9._-]. */
bool teffi_cluster_ok(const char *cluster);

#endif
