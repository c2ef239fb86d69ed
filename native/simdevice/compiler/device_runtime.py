"""What takes the place of NVIDIA's device runtime library (cudadevrt) here, for that holds machine code."""

from __future__ import annotations

_HEAD = """
.version 7.0
.target sm_50
.address_size 64
"""

# Grid-wide synchronisation, as compilers call it that do not inline it. The block's first thread counts the
# block in; what all of them add together flips the counter's top bit, which each waits for. The counter is
# the second word of the grid's workspace (exec/engine.h, sim_run); environment registers hold its address.
_COOPERATIVE_GROUPS = """
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

# Kernels that launch kernels (exec/launches.h). What a grid launches runs when its blocks have run, one after
# another in the order of the launches: so streams and events of device code need do nothing.
_LAUNCHES = """
.extern .func (.param .b64 room) __gpuferry_launch_room(.param .b64 kernel, .param .b32 gx, .param .b32 gy,
    .param .b32 gz, .param .b32 bx, .param .b32 by, .param .b32 bz, .param .b32 shared);
.extern .func (.param .b32 status) __gpuferry_launch(.param .b64 room, .param .b64 stream);
.extern .func (.param .b32 status) __gpuferry_launch_error(.param .b32 clear);

.visible .func (.param .b64 room) __cudaCDP2GetParameterBufferV2(.param .b64 kernel,
    .param .align 4 .b8 grid[12], .param .align 4 .b8 block[12], .param .b32 shared)
{
    .reg .b32 %r<8>;
    .reg .b64 %d<3>;
    ld.param.b64 %d1, [kernel];
    ld.param.b32 %r1, [grid];
    ld.param.b32 %r2, [grid+4];
    ld.param.b32 %r3, [grid+8];
    ld.param.b32 %r4, [block];
    ld.param.b32 %r5, [block+4];
    ld.param.b32 %r6, [block+8];
    ld.param.b32 %r7, [shared];
    call (%d2), __gpuferry_launch_room, (%d1, %r1, %r2, %r3, %r4, %r5, %r6, %r7);
    st.param.b64 [room], %d2;
    ret;
}
"""

_LAUNCH = """
.visible .func (.param .b32 status) {name}(.param .b64 room, .param .b64 stream)
{{
    .reg .b32 %r<2>;
    .reg .b64 %d<3>;
    ld.param.b64 %d1, [room];
    ld.param.b64 %d2, [stream];
    call (%r1), __gpuferry_launch, (%d1, %d2);
    st.param.b32 [status], %r1;
    ret;
}}
"""

_LAST_ERROR = """
.visible .func (.param .b32 status) {name}()
{{
    .reg .b32 %r<2>;
    call (%r1), __gpuferry_launch_error, ({clear});
    st.param.b32 [status], %r1;
    ret;
}}
"""

_MADE = """
.visible .func (.param .b32 status) {name}(.param .b64 to, .param .b32 flags)
{{
    .reg .b64 %d<2>;
    ld.param.b64 %d1, [to];
    st.b64 [%d1], 256;
    st.param.b32 [status], 0;
    ret;
}}
"""

_NOTHING = """
.visible .func (.param .b32 status) {name}({parameters})
{{
    st.param.b32 [status], 0;
    ret;
}}
"""

_DONE_ALREADY = {  # bytes of what they take
    "StreamDestroy": [8],
    "EventDestroy": [8],
    "EventRecord": [8, 8],
    "EventRecordWithFlags": [8, 8, 4],
    "StreamWaitEvent": [8, 8, 4],
}
_PER_THREAD = ("", "_ptsz")

# Fills and copies are grids of one thread among the others. From the end, so that the count is the place.
_BYTES = """
.extern .func (.param .b64 room) __cudaCDP2GetParameterBufferV2(.param .b64 kernel,
    .param .align 4 .b8 grid[12], .param .align 4 .b8 block[12], .param .b32 shared);
.extern .func (.param .b32 status) __cudaCDP2LaunchDeviceV2(.param .b64 room, .param .b64 stream);

.entry __gpuferry_fill(.param .b64 to, .param .b64 value, .param .b64 count)
{
    .reg .pred %p;
    .reg .b32 %r;
    .reg .b64 %d<4>;
    ld.param.b64 %d1, [to];
    ld.param.b32 %r, [value];
    ld.param.b64 %d2, [count];
FILL:
    setp.eq.u64 %p, %d2, 0;
    @%p ret;
    sub.u64 %d2, %d2, 1;
    add.u64 %d3, %d1, %d2;
    st.u8 [%d3], %r;
    bra FILL;
}

.entry __gpuferry_copy(.param .b64 to, .param .b64 from, .param .b64 count)
{
    .reg .pred %p;
    .reg .b32 %r;
    .reg .b64 %d<5>;
    ld.param.b64 %d1, [to];
    ld.param.b64 %d2, [from];
    ld.param.b64 %d3, [count];
COPY:
    setp.eq.u64 %p, %d3, 0;
    @%p ret;
    sub.u64 %d3, %d3, 1;
    add.u64 %d4, %d2, %d3;
    ld.u8 %r, [%d4];
    add.u64 %d4, %d1, %d3;
    st.u8 [%d4], %r;
    bra COPY;
}
"""

_ONE_THREAD = """
.visible .func (.param .b32 status) {name}({parameters})
{{
    .reg .pred %p;
    .reg .b32 %r<2>;
    .reg .b64 %d<6>;
    .param .align 4 .b8 one[12];
    mov.u64 %d1, {kernel};
    st.param.b32 [one], 1;
    st.param.b32 [one+4], 1;
    st.param.b32 [one+8], 1;
    call (%d2), __cudaCDP2GetParameterBufferV2, (%d1, one, one, 0);
    mov.u32 %r1, 2;
    setp.eq.u64 %p, %d2, 0;
    @%p bra DONE;
    ld.param.b64 %d3, [to];
    st.b64 [%d2], %d3;
    ld.param.{what} %d4, [what];
    st.b64 [%d2+8], %d4;
    ld.param.b64 %d5, [count];
    st.b64 [%d2+16], %d5;
    ld.param.b64 %d3, [stream];
    call (%r1), __cudaCDP2LaunchDeviceV2, (%d2, %d3);
DONE:
    st.param.b32 [status], %r1;
    ret;
}}
"""
_FILL = ("__gpuferry_fill", "u32", ".param .b64 to, .param .b32 what, .param .b64 count, .param .b64 stream")
_COPY = (
    *("__gpuferry_copy", "b64"),
    ".param .b64 to, .param .b64 what, .param .b64 count, .param .b32 kind, .param .b64 stream",
)


def _launches() -> str:
    parts = [_LAUNCHES]
    for suffix in _PER_THREAD:
        parts.append(_LAUNCH.format(name=f"__cudaCDP2LaunchDeviceV2{suffix}"))
    for name, clear in (("GetLastError", 1), ("PeekAtLastError", 0)):
        parts.append(_LAST_ERROR.format(name=f"__cudaCDP2{name}", clear=clear))
    parts += [_MADE.format(name=f"__cudaCDP2{kind}CreateWithFlags") for kind in ("Stream", "Event")]
    for name, sizes in _DONE_ALREADY.items():
        parameters = ", ".join(f".param .b{8 * size} p{number}" for number, size in enumerate(sizes))
        for suffix in _PER_THREAD:
            parts.append(_NOTHING.format(name=f"__cudaCDP2{name}{suffix}", parameters=parameters))
    return "".join(parts)


def _bytes() -> str:
    parts = [_BYTES]
    for name, (kernel, what, parameters) in (("MemsetAsync", _FILL), ("MemcpyAsync", _COPY)):
        for suffix in _PER_THREAD:
            full = f"__cudaCDP2{name}{suffix}"
            parts.append(_ONE_THREAD.format(name=full, kernel=kernel, what=what, parameters=parameters))
    return "".join(parts)


# Each is joined to a module that needs something of it.
TEXTS = tuple(_HEAD + text for text in (_COOPERATIVE_GROUPS, _launches(), _bytes()))
