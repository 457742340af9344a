/* sim_plant.h - bugs planted into frames, to see that the checkers of a world find them.
 * Way:     world -> sim.plant_frame, sim.plant_twice -> [sim_plant] <- sim_conn, sim_wire */
#pragma once

#include "sim_net.h"

/* sim_plant_frame - out: true: the frame is not delivered. */
bool sim_plant_frame(sim_conn *conn, int to, teffi_msg *msg);
/* sim_plant_twice - shall this request be delivered a second time? */
bool sim_plant_twice(sim *s, const teffi_msg *msg);
