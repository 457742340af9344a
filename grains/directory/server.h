/* server.h - handle other silos' requests to this silo's part of the directory; rebuild newly owned
 * partitions by asking every silo of the view for its activations (recover.c).
 * Way:     node's system target -> [server] -> partition, recover, location cache
 *          partition (LOCKED) -> [recover] -> each silo's shards -> partition (SERVING)
 * Threads: on the system target's group; a request whose sender has seen a newer view waits until
 *          this silo has adopted it. One task at a time recovers.
 * Source:  recovery: Orleans' RecoverRegisteredActivations */
#ifndef TEFFI_DIRECTORY_SERVER_H
#define TEFFI_DIRECTORY_SERVER_H

#include "directory/partition.h"

typedef struct teffi_directory {
    pthread_mutex_t lock; /* guards the rest */
    teffi_queue behind;   /* requests that wait for a newer view (teffi_msg.link) */
    bool catching_up;     /* the task that adopts it runs */
} teffi_directory;

/* teffi_directory_init - in zeroed memory. */
void teffi_directory_init(teffi_directory *dir);
void teffi_directory_fini(teffi_directory *dir);

/* teffi_directory_handle - the handler of the system target TEFFI_SLOT_DIRECTORY. Owns msg. */
void teffi_directory_handle(teffi_node *node, teffi_msg *msg);

/* teffi_recover_start - start the task that recovers all LOCKED partitions, unless it runs. */
void teffi_recover_start(teffi_grains *grains);

/* teffi_recover_respond - respond with this silo's activations in these partitions, found under the
 * shards' locks. Owns msg. */
void teffi_recover_respond(teffi_grains *grains, teffi_msg *msg);

#endif
