"""PTX texts for kernels that are not a row of a table."""

from __future__ import annotations

SIZE = ".address_size 64\n"
# What is tested here is what instructions do, not who has them (test_targets.py).
ANY_TARGET = "// gpuferry: any target\n"
HEADER = f".version 8.8\n.target sm_80\n{SIZE}{ANY_TARGET}"

REGISTERS = """
    .reg .pred %p<8>;
    .reg .b16 %h<16>;
    .reg .b32 %r<32>;
    .reg .b64 %x<24>;
    .reg .f32 %f<16>;
    .reg .f64 %g<16>;
"""


def kernel(body: str, name: str = "k", pointers: int = 2, directives: str = "", module: str = "") -> str:
    """A kernel of `pointers` u64 parameters, loaded into %x0, %x1, …; %r0 is the thread's index in its block,
    %r1 the grid-wide one of a one-dimensional launch."""
    return HEADER + module + entry(body, name, pointers, directives)


def entry(body: str, name: str = "k", pointers: int = 2, directives: str = "") -> str:
    parameters = ", ".join(f".param .u64 p{i}" for i in range(pointers))
    loads = "\n".join(f"    ld.param.u64 %x{i}, [p{i}];" for i in range(pointers))
    return f"""
.visible .entry {name}({parameters}) {directives}
{{{REGISTERS}{loads}
    mov.u32 %r0, %tid.z;
    mov.u32 %r1, %ntid.y;
    mov.u32 %r2, %tid.y;
    mad.lo.u32 %r0, %r0, %r1, %r2;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %tid.x;
    mad.lo.u32 %r0, %r0, %r1, %r2;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r1, %r2, %r1, %r0;
{body}
    ret;
}}
"""


def store(register: str, pointer: str = "%x0", index: str = "%r1", type_: str = "u32") -> str:
    """pointer[index] = register"""
    size = int(type_.lstrip("busf")) // 8
    return f"    mad.wide.u32 %x23, {index}, {size}, {pointer};\n    st.global.{type_} [%x23], {register};"


def load(register: str, pointer: str = "%x1", index: str = "%r1", type_: str = "u32") -> str:
    size = int(type_.lstrip("busf")) // 8
    return f"    mad.wide.u32 %x23, {index}, {size}, {pointer};\n    ld.global.{type_} {register}, [%x23];"


# In front of a body: what follows runs a thread at a time, since lanes wait for each other on both sides.
APART = """
    and.b32 %r31, %r0, 1;
    setp.ne.u32 %p7, %r31, 0;
    @%p7 bra apart;
    bar.warp.sync 0x55555555;
    bra together;
apart:
    bar.warp.sync 0xaaaaaaaa;
together:
"""
UNITS = {"warp": "", "thread": APART}

# A kernel whose threads call themselves without end.
RECURSION = (
    HEADER
    + """
.func (.param .b32 result) deep(.param .b32 n)
{
    .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %x; .local .align 4 .b8 frame[512];
    ld.param.u32 %r0, [n];
    st.local.u32 [frame], %r0;
    mov.u64 %x, frame;
    st.local.u32 [%x+16], %r0;
    add.u32 %r2, %r0, 1;
    {
        .param .b32 in; .param .b32 out;
        st.param.b32 [in], %r2;
        call.uni (out), deep, (in);
        ld.param.b32 %r3, [out];
    }
    ld.local.u32 %r1, [%x+16];
    add.u32 %r3, %r3, %r1;
    st.param.b32 [result], %r3;
    ret;
}
"""
    + entry(
        """
    {
        .param .b32 in; .param .b32 out;
        st.param.b32 [in], %r0;
        call.uni (out), deep, (in);
        ld.param.b32 %r10, [out];
    }
"""
        + store("%r10"),
        "k",
        1,
    )
)
