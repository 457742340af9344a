/* server.h - the system target for reminders: other silos' news of rows that they have written.
 * Threads: as teffi_target_fn. */
#pragma once

#include "node/node.h"

/* teffi_reminders_handle_request - handle a teff.cluster.ReminderChanged. */
void teffi_reminders_handle_request(teffi_node *node, teffi_msg *msg);
