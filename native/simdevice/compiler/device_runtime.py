"""What takes the place of NVIDIA's device runtime library (cudadevrt) here, for that holds machine code."""

from __future__ import annotations

# Grid-wide synchronisation, as compilers call it that do not inline it. The block's first thread counts the
# block in; what all of them add together flips the counter's top bit, which each waits for. The counter is
# the second word of the grid's workspace (exec/engine.h, sim_run); environment registers hold its address.
PTX = """
.version 7.0
.target sm_50
.address_size 64

.visible .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
    .reg .b64 %d<2>;
    mov.u64 %d1, 1;
    st.param.b64 [handle], %d1;
    ret;
}

.visible .func (.param .b32 status) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)
{
    .reg .pred %p<4>;
    .reg .b32 %r<16>;
    .reg .b64 %d<4>;
    bar.sync 0;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %tid.y;
    mov.u32 %r3, %tid.z;
    or.b32 %r1, %r1, %r2;
    or.b32 %r1, %r1, %r3;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra TOGETHER;

    mov.u32 %r4, %nctaid.x;
    mov.u32 %r5, %nctaid.y;
    mov.u32 %r6, %nctaid.z;
    mul.lo.u32 %r4, %r4, %r5;
    mul.lo.u32 %r4, %r4, %r6;
    mov.u32 %r7, %ctaid.x;
    mov.u32 %r8, %ctaid.y;
    mov.u32 %r9, %ctaid.z;
    or.b32 %r7, %r7, %r8;
    or.b32 %r7, %r7, %r9;
    setp.eq.u32 %p2, %r7, 0;
    sub.u32 %r10, 0x80000001, %r4;
    selp.b32 %r10, %r10, 1, %p2;

    mov.u32 %r11, %envreg1;
    mov.u32 %r12, %envreg2;
    cvt.u64.u32 %d1, %r11;
    cvt.u64.u32 %d2, %r12;
    shl.b64 %d1, %d1, 32;
    or.b64 %d1, %d1, %d2;
    membar.gl;
    atom.global.add.u32 %r13, [%d1+4], %r10;
AGAIN:
    ld.volatile.global.u32 %r14, [%d1+4];
    xor.b32 %r14, %r14, %r13;
    setp.ge.s32 %p3, %r14, 0;
    @%p3 bra AGAIN;
    membar.gl;

TOGETHER:
    bar.sync 0;
    mov.u32 %r15, 0;
    st.param.b32 [status], %r15;
    ret;
}
"""
