/* Fibers: a function on a stack of its own, switched to and from by hand. Not tied to kernels. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct sim_context {
    void *sp, *bp, *pc; /* where it goes on; first, as sim_fiber_jump knows */
    /* what the sanitizers need to know */
    const void *stack_low;
    size_t stack_size;
    void *sanitizer;
    struct sim_context *before; /* which switched to it last */
};

void sim_context_init(struct sim_context *context, uint8_t *stack_low, size_t stack_size,
                      void (*entry)(void *), void *argument);
/* Called first in `entry`, with its context. */
static inline void sim_context_entered(struct sim_context *context);
static inline void sim_context_switch(struct sim_context *from, struct sim_context *to);
/* Switches away for the last time: nothing returns to `from`. */
static inline void sim_context_leave(struct sim_context *from, struct sim_context *to)
    __attribute__((noreturn));
/* Its frames are dropped; gives the stack pointer with which a function can be called on the empty stack. */
uintptr_t sim_context_rewind(struct sim_context *context);
/* A fiber that will not be entered again is forgotten by the sanitizers. */
static inline void sim_context_destroy(struct sim_context *context);

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SIM_SANITIZED = 1 };
#else
enum { SIM_SANITIZED = 0 };
#endif
/* What sanitizers are told. */
void sim_sanitizer_switching(struct sim_context *from, struct sim_context *to, int leaving);
void sim_sanitizer_switched(struct sim_context *from);
void sim_sanitizer_entered(struct sim_context *context);
void sim_sanitizer_destroyed(struct sim_context *context);

static inline void sim_context_entered(struct sim_context *context) {
    if (SIM_SANITIZED)
        sim_sanitizer_entered(context);
}

static inline void sim_context_destroy(struct sim_context *context) {
    if (SIM_SANITIZED)
        sim_sanitizer_destroyed(context);
}

#if !defined(__x86_64__)
#error "the simulated device's engine knows x86-64 only: add a jump, fiber_<machine>.S and its first frame"
#endif

/* Switching is part of the function that does it, which keeps what it needs. A processor foresees where
 * functions return to by the calls that it has seen: a function that one fiber calls and another returns from
 * costs it more than all the rest. MXCSR and the x87 control word are the same in all fibers of a worker. */
static inline __attribute__((always_inline)) void sim_fiber_jump(struct sim_context *from,
                                                                 struct sim_context *to) {
    __asm__ volatile("leaq 1f(%%rip), %%rax\n\t"
                     "movq %%rsp, (%0)\n\t"
                     "movq %%rbp, 8(%0)\n\t"
                     "movq %%rax, 16(%0)\n\t"
                     "movq (%1), %%rsp\n\t"
                     "movq 8(%1), %%rbp\n\t"
                     "jmpq *16(%1)\n"
                     "1:"
                     : "+D"(from), "+S"(to)
                     :
                     : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
                       "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
                       "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "memory", "cc");
}

static inline __attribute__((always_inline)) void sim_context_switch(struct sim_context *from,
                                                                     struct sim_context *to) {
    if (SIM_SANITIZED)
        sim_sanitizer_switching(from, to, 0);
    sim_fiber_jump(from, to);
    if (SIM_SANITIZED)
        sim_sanitizer_switched(from);
}

static inline __attribute__((always_inline)) void sim_context_leave(struct sim_context *from,
                                                                    struct sim_context *to) {
    if (SIM_SANITIZED)
        sim_sanitizer_switching(from, to, 1);
    sim_fiber_jump(from, to);
    __builtin_unreachable();
}
