/* crash_alarm.h - the alarms of crash_silo: grains whose reminders must survive the kills.
 * Way:     crash_silo.c -> [crash_alarm] -> teff/reminder.h
 * Call n of an alarm registers reminder n, which has one tick, before it saves n. The first one
 * also registers a reminder that ticks again and again. The state says which ticks have come. So
 * each reminder up to n has ticked or is still registered, at every moment. */
#pragma once

#include "crash.teff.h"

teff_grain_type *alarm_type(void);
