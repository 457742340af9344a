/* collector.h - which activations were not used for their idle time? They are asked to end.
 * Way:     timer -> [collector] -> catalog -> activation (END)
 * Source:  ORLEANS 1, Collection */
#ifndef TEFFI_GRAINS_COLLECTOR_H
#define TEFFI_GRAINS_COLLECTOR_H

struct teffi_grains;

/* teffi_collector_start - a round each quarter of the shortest idle time, 10 ms to 1 min; of many
 * grains it takes as long as it needs, 1,024 looks or 256 ends a millisecond. */
void teffi_collector_start(struct teffi_grains *grains);
void teffi_collector_stop(struct teffi_grains *grains);

#endif
