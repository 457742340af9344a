/* fork.h - parts of a turn that other workers may run; the rest is <teff/fork.h>.
 * Threads: the turn's own, on its fiber; it may resume on another thread. */
#pragma once

/* teffi_joins_wait - wait for all open joins of a turn that is abandoned in its middle, since their
 * parts may use the turn's stack. */
void teffi_joins_wait(void);
