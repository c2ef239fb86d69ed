"""PTX texts for the tests of the compiler."""

from __future__ import annotations

HEADER = ".version 8.8\n.target sm_80\n.address_size 64\n"


def kernel(body: str, parameters: str = "", name: str = "k", head: str = "") -> str:
    """A module with one kernel; its body has some registers of each kind."""
    registers = ".reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %d<16>; .reg .f32 %f<8>; .reg .f64 %e<8>;"
    return f"{HEADER}{head}\n.visible .entry {name}({parameters})\n{{\n{registers}\n{body}\nret;\n}}\n"


SAXPY = kernel(
    """
    ld.param.u32 %r0, [n];
    ld.param.f32 %f0, [a];
    ld.param.u64 %d0, [x];
    ld.param.u64 %d1, [y];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    setp.ge.s32 %p1, %r4, %r0;
    @%p1 bra DONE;
    mul.wide.s32 %d2, %r4, 4;
    add.s64 %d0, %d0, %d2;
    add.s64 %d1, %d1, %d2;
    ld.global.f32 %f1, [%d0];
    ld.global.f32 %f2, [%d1];
    fma.rn.f32 %f2, %f0, %f1, %f2;
    st.global.f32 [%d1], %f2;
DONE:""",
    ".param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y",
    "saxpy",
)
