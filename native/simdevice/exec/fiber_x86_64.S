/* Where a fiber begins, for x86-64 (System V). fiber.h has the switch. */
    .text

/* void sim_fiber_entry(void): the stack holds the argument, the function and where it returns to. */
    .globl sim_fiber_entry
    .hidden sim_fiber_entry
    .type sim_fiber_entry, @function
    .balign 16
sim_fiber_entry:
    .cfi_startproc
    .cfi_undefined rip
    popq %rdi
    popq %rax
    jmpq *%rax
    .size sim_fiber_entry, . - sim_fiber_entry

/* It does not: the address is where whoever walks the stack finds its end. */
    nop
    .globl sim_fiber_ended
    .hidden sim_fiber_ended
sim_fiber_ended:
    ud2
    .cfi_endproc

    .section .note.GNU-stack, "", @progbits
