/* teff.h - includes all public headers. */
#pragma once
#include <teff/arena.h>
#include <teff/engine.h>
#include <teff/error.h>
#include <teff/filter.h>
#include <teff/fork.h>
#include <teff/grain.h>
#include <teff/limits.h>
#include <teff/log.h>
#include <teff/observer.h>
#include <teff/pid.h>
#include <teff/process.h>
#include <teff/reminder.h>
#include <teff/sched.h>
#include <teff/silo.h>
#include <teff/timer.h>
#include <teff/version.h>
