/* switch_x86_64.S - exchange stacks, System V ABI: rbx rbp r12-r15, mxcsr, x87 control word.
 * Frame, from the saved stack pointer up: mxcsr and x87 word, r12, r13, r14, r15, rbx,
 * rbp, return. */
    .text

/* rdi = save, rsi = load: the stack pointer saved by an earlier switch. */
    .globl teffi_switch
    .hidden teffi_switch
    .type teffi_switch, @function
    .p2align 4
teffi_switch:
    .cfi_startproc
    endbr64
    pushq %rbp
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %rbp, 0
    pushq %rbx
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %rbx, 0
    pushq %r15
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %r15, 0
    pushq %r14
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %r14, 0
    pushq %r13
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %r13, 0
    pushq %r12
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %r12, 0
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    stmxcsr (%rsp)
    fnstcw 4(%rsp)
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    ldmxcsr (%rsp)
    fldcw 4(%rsp)
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %r12
    .cfi_adjust_cfa_offset -8
    .cfi_restore %r12
    popq %r13
    .cfi_adjust_cfa_offset -8
    .cfi_restore %r13
    popq %r14
    .cfi_adjust_cfa_offset -8
    .cfi_restore %r14
    popq %r15
    .cfi_adjust_cfa_offset -8
    .cfi_restore %r15
    popq %rbx
    .cfi_adjust_cfa_offset -8
    .cfi_restore %rbx
    popq %rbp
    .cfi_adjust_cfa_offset -8
    .cfi_restore %rbp
    ret
    .cfi_endproc
    .size teffi_switch, . - teffi_switch

/* rdi = save, rsi = fiber and top of its stack, 16-aligned; its first word holds the control words.
 * The function called there returns the stack pointer of the fiber's last resumer. It is entered by
 * call, not jmp, so that the CPU's return predictor stays in step. */
    .globl teffi_switch_first
    .hidden teffi_switch_first
    .type teffi_switch_first, @function
    .p2align 4
teffi_switch_first:
    .cfi_startproc
    endbr64
    pushq %rbp
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %rbp, 0
    pushq %rbx
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %rbx, 0
    pushq %r15
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %r15, 0
    pushq %r14
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %r14, 0
    pushq %r13
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %r13, 0
    pushq %r12
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %r12, 0
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    stmxcsr (%rsp)
    fnstcw 4(%rsp)
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    .cfi_remember_state
    .cfi_undefined %rip
    ldmxcsr (%rsi)
    fldcw 4(%rsi)
    movq %rsi, %rdi
    xorl %ebp, %ebp
    call teffi_fiber_main
    movq %rax, %rsp
    .cfi_restore_state
    ldmxcsr (%rsp)
    fldcw 4(%rsp)
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %r12
    .cfi_adjust_cfa_offset -8
    .cfi_restore %r12
    popq %r13
    .cfi_adjust_cfa_offset -8
    .cfi_restore %r13
    popq %r14
    .cfi_adjust_cfa_offset -8
    .cfi_restore %r14
    popq %r15
    .cfi_adjust_cfa_offset -8
    .cfi_restore %r15
    popq %rbx
    .cfi_adjust_cfa_offset -8
    .cfi_restore %rbx
    popq %rbp
    .cfi_adjust_cfa_offset -8
    .cfi_restore %rbp
    ret
    .cfi_endproc
    .size teffi_switch_first, . - teffi_switch_first

/* rdi = control. Stores mxcsr without its exception flags, and the x87 control word. */
    .globl teffi_switch_control
    .hidden teffi_switch_control
    .type teffi_switch_control, @function
    .p2align 4
teffi_switch_control:
    .cfi_startproc
    endbr64
    movq $0, (%rdi)
    stmxcsr (%rdi)
    andl $-64, (%rdi)
    fnstcw 4(%rdi)
    ret
    .cfi_endproc
    .size teffi_switch_control, . - teffi_switch_control

    .section .note.GNU-stack, "", @progbits

/* Only IBT is claimed: indirect entries have endbr64. SHSTK is not: a shadow stack would refuse the
 * ret that enters another stack. */
    .section .note.gnu.property, "a"
    .p2align 3
    .long 4
    .long 16
    .long 5
    .asciz "GNU"
    .long 0xc0000002
    .long 4
    .long 1
    .long 0
