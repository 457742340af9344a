/* switch_x86_64.S - exchange stacks, System V ABI: rbx rbp r12-r15, mxcsr, x87 control word.
 * Frame, from the saved stack pointer up: mxcsr and x87 word, r12, r13, r14, r15, rbx,
 * rbp, return. */
    .text

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

/* rdi = top, rsi = arg (kept in r12 until the first switch). The new stack inherits the control
 * words of who makes it. */
    .globl teffi_switch_frame
    .hidden teffi_switch_frame
    .type teffi_switch_frame, @function
    .p2align 4
teffi_switch_frame:
    .cfi_startproc
    endbr64
    leaq -80(%rdi), %rax
    stmxcsr (%rax)
    fnstcw 4(%rax)
    movq %rsi, 8(%rax)
    xorl %ecx, %ecx
    movq %rcx, 16(%rax)
    movq %rcx, 24(%rax)
    movq %rcx, 32(%rax)
    movq %rcx, 40(%rax)
    movq %rcx, 48(%rax)
    leaq first(%rip), %rdx
    movq %rdx, 56(%rax)
    ret
    .cfi_endproc
    .size teffi_switch_frame, . - teffi_switch_frame

/* Where a new stack begins; 0 leaves rsp as the ABI wants it, and no caller to unwind to. Jumped
 * to, not called: the call would never return, and put every return of the resumer's, once the
 * fiber has ended, out of step with what the processor expects. */
    .type first, @function
    .p2align 4
first:
    .cfi_startproc
    .cfi_undefined %rip
    endbr64
    movq %r12, %rdi
    pushq $0
    jmp teffi_fiber_entry
    .cfi_endproc
    .size first, . - first

    .section .note.GNU-stack, "", @progbits

/* IBT and SHSTK notes: indirect entries carry endbr64; the first frame is entered by ret, which a
 * shadow stack refuses, so only IBT is claimed. */
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
