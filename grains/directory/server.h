/* server.h - handle other silos' requests to this silo's part of the directory; recover partitions
 * that this silo newly owns: ask each other silo of the view for its activations (recover.c).
 * Way:     node's system target -> [server] -> partition, recover, location cache
 *          partition (LOCKED) -> [recover] -> each silo's shards -> partition (SERVING)
 * Threads: on the system target's group; teffi_recover_start, teffi_recover_cancel_timer: any. A
 *          request whose sender has seen a newer view is parked until this silo has adopted that
 *          view. One task at a time recovers.
 * Source:  Orleans' src/Orleans.Runtime/GrainDirectory/GrainDirectoryPartition.cs: recovery */
#pragma once

#include "directory/partition.h"

/* teffi_directory_handle_request - the handler of the system target TEFFI_SLOT_DIRECTORY. Owns
 * msg. */
void teffi_directory_handle_request(teffi_node *node, teffi_msg *msg);

/* teffi_recover_start - start the task that recovers all LOCKED partitions, unless it runs. If no
 * memory is left, a timer tries again, unless the silo is closing.
 * teffi_recover_cancel_timer - cancel that timer for good. in: grains->closed is set. */
void teffi_recover_start(teffi_grains *grains);
void teffi_recover_cancel_timer(teffi_grains *grains);

/* teffi_recover_respond - respond to a RECOVER with the next part of this silo's registered
 * activations in the partitions that it names. in: msg, unpacked, owned. */
void teffi_recover_respond(teffi_grains *grains, teffi_msg *msg);
