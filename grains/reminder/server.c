/* server.c - handles other silos' requests about the reminders of this silo's partitions. */
#include "reminder/server.h"

#include "node/deliver.h"
#include "reminder/schedule.h"

/* out: false: the request is not valid. *noted: this silo owns the partition. */
static bool apply_change(teffi_node *node, const Teff__Cluster__ReminderChanged *changed,
                         bool *noted)
{
    teffi_reminders *all = node->grains->reminders;
    teffi_bytes row = {changed->key.data, changed->key.len};
    teffi_reminder_key key;
    teffi_reminder_value value;
    if (!teffi_reminder_parse_key(node->cluster, row, &key) ||
        (changed->reminder && !teffi_reminder_read_value(changed->reminder, &value)))
        return false;
    *noted = changed->reminder
                 ? teffi_reminders_note(all, row, key.partition, changed->reminder->type,
                                        changed->etag, &value)
                 : teffi_reminders_forget(all, row, key.partition, changed->etag);
    return true;
}

void teffi_reminders_handle_request(teffi_node *node, teffi_msg *msg)
{
    Teff__Cluster__ReminderNoted response = TEFF__CLUSTER__REMINDER_NOTED__INIT;
    bool noted = false;
    teff_err err = teffi_msg_unpack(msg, &teff__cluster__reminder_changed__descriptor);
    if (!err && !apply_change(node, (const Teff__Cluster__ReminderChanged *)msg->body, &noted))
        err = TEFF_E_MALFORMED;
    response.owner = noted;
    response.view = node->grains->shards->version;
    if (err)
        teffi_node_respond_with_err(node, msg, err, "reminder: the request is malformed");
    else
        teffi_node_respond_with_body(node, msg, &response.base);
}
