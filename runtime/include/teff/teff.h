/* teff.h - everything a program that uses teff includes. */
#ifndef TEFF_H
#define TEFF_H
#include <teff/arena.h>
#include <teff/engine.h>
#include <teff/error.h>
#include <teff/fork.h>
#include <teff/grain.h>
#include <teff/process.h>
#include <teff/sched.h>
#include <teff/silo.h>
#endif
