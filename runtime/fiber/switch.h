/* switch.h - the assembly part: exchange one stack for another.
 * Way:     fiber.c -> [switch] -> switch_x86_64.S | switch_aarch64.S */
#ifndef TEFFI_FIBER_SWITCH_H
#define TEFFI_FIBER_SWITCH_H

/* teffi_switch - save the callee-saved registers and the floating-point control words on this
 * stack, leave its pointer in *save, go on where load was saved. Returns when switched back to. */
void teffi_switch(void **save, void *load);

/* teffi_switch_first - as teffi_switch, to a new stack: teffi_fiber_main(top) is called there. It
 * keeps the control words of who resumes it first. in: top, 16-aligned. */
void teffi_switch_first(void **save, void *top);

/* What a new stack runs, called by the assembly only.
 * out:  where its last resumer saved its own stack pointer: there it goes on. */
void *teffi_fiber_main(void *top);

#endif
