/* Stack switching for x86-64 (System V). MXCSR and the x87 control word are the same in all fibers of a worker,
 * so only the callee-saved registers are kept. */
    .text

/* void sim_fiber_jump(void **save, void *load) */
    .globl sim_fiber_jump
    .hidden sim_fiber_jump
    .type sim_fiber_jump, @function
    .balign 16
sim_fiber_jump:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size sim_fiber_jump, . - sim_fiber_jump

/* Where a new fiber's first jump returns to: r12 = function, r13 = its argument. */
    .globl sim_fiber_entry
    .hidden sim_fiber_entry
    .type sim_fiber_entry, @function
    .balign 16
sim_fiber_entry:
    .cfi_startproc
    .cfi_undefined rip
    movq %r13, %rdi
    xorl %ebp, %ebp
    callq *%r12
    ud2
    .cfi_endproc
    .size sim_fiber_entry, . - sim_fiber_entry

    .section .note.GNU-stack, "", @progbits
