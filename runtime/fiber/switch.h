/* switch.h - the assembly part: exchange one stack for another.
 * Way:     fiber.c -> [switch] -> switch_x86_64.S | switch_aarch64.S */
#ifndef TEFFI_FIBER_SWITCH_H
#define TEFFI_FIBER_SWITCH_H

/* teffi_switch - save the callee-saved registers and the floating-point control words on this
 * stack, leave its pointer in *save, go on where load was saved. Returns when switched back to. */
void teffi_switch(void **save, void *load);

/* teffi_switch_frame - lay out a first frame below top (16-aligned): a switch to the returned
 * pointer calls teffi_fiber_entry(arg) on the new stack. */
void *teffi_switch_frame(void *top, void *arg);

/* What a new stack runs; never returns. Called by the assembly only. */
_Noreturn void teffi_fiber_entry(void *arg);

#endif
