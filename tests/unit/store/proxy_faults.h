/* proxy_faults.h - faults of a connection, for the conformance suite: the proxy causes them.
 * Way:     test_NAME_conformance -> [proxy_faults] -> tcp_proxy */
#pragma once

#include "conformance.h"

/* The faults from CONF_CONFLICT to CONF_LOST, through an open proxy.
 * in: request_end: how a request of a write ends, if it may arrive in parts; NULL: it does not. */
void proxy_fault_begin(conf_fault f);
void proxy_fault_await(conf_fault f, const char *request_end);
void proxy_fault_end(conf_fault f);
