/* switch_aarch64.S - exchange stacks, AAPCS64: x19-x30, d8-d15, fpcr.
 * Frame, from the saved stack pointer up: x19..x30 (96 bytes), d8..d15 (64), fpcr (8), pad (8). */
    .text

/* x0 = save, x1 = load: the stack pointer saved by an earlier switch. */
    .globl teffi_switch
    .hidden teffi_switch
    .type teffi_switch, %function
    .p2align 4
teffi_switch:
    .cfi_startproc
    hint #34 /* bti c */
    sub sp, sp, #176
    .cfi_adjust_cfa_offset 176
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    .cfi_rel_offset x29, 80
    .cfi_rel_offset x30, 88
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mrs x9, fpcr
    str x9, [sp, #160]
    mov x10, sp
    str x10, [x0]
    mov sp, x1
    ldr x9, [sp, #160]
    msr fpcr, x9
    ldp d14, d15, [sp, #144]
    ldp d12, d13, [sp, #128]
    ldp d10, d11, [sp, #112]
    ldp d8, d9, [sp, #96]
    ldp x29, x30, [sp, #80]
    ldp x27, x28, [sp, #64]
    ldp x25, x26, [sp, #48]
    ldp x23, x24, [sp, #32]
    ldp x21, x22, [sp, #16]
    ldp x19, x20, [sp, #0]
    add sp, sp, #176
    .cfi_adjust_cfa_offset -176
    .cfi_restore x29
    .cfi_restore x30
    ret
    .cfi_endproc
    .size teffi_switch, . - teffi_switch

/* x0 = save, x1 = fiber and top of its stack, 16-aligned; its first word is the fpcr. The function
 * called there returns the stack pointer of the fiber's last resumer. */
    .globl teffi_switch_first
    .hidden teffi_switch_first
    .type teffi_switch_first, %function
    .p2align 4
teffi_switch_first:
    .cfi_startproc
    hint #34
    sub sp, sp, #176
    .cfi_adjust_cfa_offset 176
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    .cfi_rel_offset x29, 80
    .cfi_rel_offset x30, 88
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mrs x9, fpcr
    str x9, [sp, #160]
    mov x10, sp
    str x10, [x0]
    mov sp, x1
    .cfi_remember_state
    .cfi_undefined x30
    ldr x9, [x1]
    msr fpcr, x9
    mov x0, x1
    mov x29, xzr
    bl teffi_fiber_main
    mov sp, x0
    .cfi_restore_state
    ldr x9, [sp, #160]
    msr fpcr, x9
    ldp d14, d15, [sp, #144]
    ldp d12, d13, [sp, #128]
    ldp d10, d11, [sp, #112]
    ldp d8, d9, [sp, #96]
    ldp x29, x30, [sp, #80]
    ldp x27, x28, [sp, #64]
    ldp x25, x26, [sp, #48]
    ldp x23, x24, [sp, #32]
    ldp x21, x22, [sp, #16]
    ldp x19, x20, [sp, #0]
    add sp, sp, #176
    .cfi_adjust_cfa_offset -176
    .cfi_restore x29
    .cfi_restore x30
    ret
    .cfi_endproc
    .size teffi_switch_first, . - teffi_switch_first

/* x0 = control. Stores the fpcr. */
    .globl teffi_switch_control
    .hidden teffi_switch_control
    .type teffi_switch_control, %function
    .p2align 4
teffi_switch_control:
    .cfi_startproc
    hint #34
    mrs x9, fpcr
    str x9, [x0]
    ret
    .cfi_endproc
    .size teffi_switch_control, . - teffi_switch_control

    .section .note.GNU-stack, "", %progbits
