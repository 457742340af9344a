/* proxy_faults.c - which mode of the proxy is which fault? */
#include "proxy_faults.h"

#include "tcp_proxy.h"

static unsigned links_before; /* connections when the fault began */

void proxy_fault_begin(conf_fault f)
{
    links_before = proxy_links();
    if (f == CONF_LOST)
        proxy_cut(PROXY_REFUSE);
    else
        proxy_set(f == CONF_UNKNOWN_AFTER || f == CONF_SLOW ? PROXY_HOLD_REPLIES
                                                            : PROXY_HOLD_REQUESTS);
}

/* Several refused connections show that the store tries again by itself. */
void proxy_fault_await(conf_fault f, const char *request_end)
{
    bool is_held_in_full = f == CONF_CONFLICT || f == CONF_UNKNOWN_BEFORE;
    if (f == CONF_LOST)
        proxy_await_links(links_before + 4);
    else if (is_held_in_full && request_end)
        proxy_await_end(request_end);
    else
        proxy_await_held();
}

void proxy_fault_end(conf_fault f)
{
    if (f == CONF_UNKNOWN_BEFORE || f == CONF_UNKNOWN_AFTER)
        proxy_cut(PROXY_PASS);
    else
        proxy_set(PROXY_PASS);
}
