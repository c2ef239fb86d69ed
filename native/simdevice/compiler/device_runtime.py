"""What takes the place of NVIDIA's device runtime library (cudadevrt) here, for that holds machine code."""

from __future__ import annotations

_HEAD = """
.version 7.0
.target sm_50
.address_size 64
"""

# Grid-wide synchronisation, as compilers call it that do not inline it. The block's first thread counts the
# block in; what all of them add together flips the counter's top bit, which each waits for. The counter is
# the second word of the grid's workspace (exec/engine.h, sim_run); environment registers hold its address,
# which is the handle: 0, where nobody can synchronise, in a grid that was not launched cooperatively.
_COOPERATIVE_GROUPS = """
.visible .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
    .reg .b32 %r<3>;
    .reg .b64 %d<2>;
    mov.u32 %r1, %envreg1;
    mov.u32 %r2, %envreg2;
    mov.b64 %d1, {%r2, %r1};
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


# Fills and copies of several rows are grids of one thread too. Ten words: where to, the pitch and the size of
# a plane there; where from (0: nowhere, it fills) and the same there; width, height, depth; the byte.
_BOX = """
.extern .func (.param .b64 room) __cudaCDP2GetParameterBufferV2(.param .b64 kernel,
    .param .align 4 .b8 grid[12], .param .align 4 .b8 block[12], .param .b32 shared);
.extern .func (.param .b32 status) __cudaCDP2LaunchDeviceV2(.param .b64 room, .param .b64 stream);

.entry __gpuferry_box(.param .align 8 .b8 box[80])
{
    .reg .pred %p, %copies;
    .reg .b32 %r;
    .reg .b64 %w<9>, %to, %from, %x, %y, %at;
    ld.param.b64 %w0, [box];
    ld.param.b64 %w1, [box+8];
    ld.param.b64 %w2, [box+16];
    ld.param.b64 %w3, [box+24];
    ld.param.b64 %w4, [box+32];
    ld.param.b64 %w5, [box+40];
    ld.param.b64 %w6, [box+48];
    ld.param.b64 %w7, [box+56];
    ld.param.b64 %w8, [box+64];
    ld.param.u32 %r, [box+72];
    setp.ne.u64 %copies, %w3, 0;
PLANE:
    setp.eq.u64 %p, %w8, 0;
    @%p ret;
    sub.u64 %w8, %w8, 1;
    mov.u64 %to, %w0;
    mov.u64 %from, %w3;
    mov.u64 %y, %w7;
ROW:
    setp.eq.u64 %p, %y, 0;
    @%p bra NEXT_PLANE;
    sub.u64 %y, %y, 1;
    mov.u64 %x, %w6;
BYTE:
    setp.eq.u64 %p, %x, 0;
    @%p bra NEXT_ROW;
    sub.u64 %x, %x, 1;
    add.u64 %at, %from, %x;
    @%copies ld.u8 %r, [%at];
    add.u64 %at, %to, %x;
    st.u8 [%at], %r;
    bra BYTE;
NEXT_ROW:
    add.u64 %to, %to, %w1;
    add.u64 %from, %from, %w4;
    bra ROW;
NEXT_PLANE:
    add.u64 %w0, %w0, %w2;
    add.u64 %w3, %w3, %w5;
    bra PLANE;
}
"""

_ONE_BOX = """
.visible .func (.param .b32 status) {name}({parameters}, .param .b64 stream)
{{
    .reg .pred %p;
    .reg .b32 %r;
    .reg .b64 %d<4>, %w<10>, %p1, %at;
    .param .align 4 .b8 one[12];
    {words}
    mov.u64 %d1, __gpuferry_box;
    st.param.b32 [one], 1;
    st.param.b32 [one+4], 1;
    st.param.b32 [one+8], 1;
    call (%d2), __cudaCDP2GetParameterBufferV2, (%d1, one, one, 0);
    mov.u32 %r, 2;
    setp.eq.u64 %p, %d2, 0;
    @%p bra DONE;
    {stores}
    ld.param.b64 %d3, [stream];
    call (%r), __cudaCDP2LaunchDeviceV2, (%d2, %d3);
DONE:
    st.param.b32 [status], %r;
    ret;
}}
"""


def _loads(*places: str) -> list[str]:
    """The words in order, each a parameter's place or a number."""
    return [
        f"mov.u64 %w{number}, {place};" if place.isdigit() else f"ld.param.b64 %w{number}, [{place}];"
        for number, place in enumerate(places)
    ]


def _side(first: int, pointer: int, position: int) -> list[str]:
    """Three words of a cudaMemcpy3DParms at %p1: a cudaPitchedPtr and a cudaPos in it, and no array."""
    to, pitch, plane = (f"%w{first + number}" for number in range(3))
    return [
        f"ld.b64 {to}, [%p1+{pointer}];",
        f"ld.b64 {pitch}, [%p1+{pointer + 8}];",
        f"ld.b64 %at, [%p1+{pointer + 24}];",
        f"mul.lo.u64 {plane}, {pitch}, %at;",
        f"ld.b64 %at, [%p1+{position}];",
        f"add.u64 {to}, {to}, %at;",
        f"ld.b64 %at, [%p1+{position + 8}];",
        f"mad.lo.u64 {to}, %at, {pitch}, {to};",
        f"ld.b64 %at, [%p1+{position + 16}];",
        f"mad.lo.u64 {to}, %at, {plane}, {to};",
        f"ld.b64 %at, [%p1+{position - 8}];",  # device code copies no arrays
        "mov.u32 %r, 1;",
        "setp.ne.u64 %p, %at, 0;",
        "@%p bra DONE;",
    ]


_BOXES = {
    "Memset2DAsync": (
        ".param .b64 to, .param .b64 pitch, .param .b32 what, .param .b64 width, .param .b64 height",
        [*_loads("to", "pitch", "0", "0", "0", "0", "width", "height", "1"), "ld.param.u32 %w9, [what];"],
    ),
    "Memset3DAsync": (
        ".param .align 8 .b8 to[32], .param .b32 what, .param .align 8 .b8 extent[24]",
        [
            *_loads("to", "to+8", "to+24", "0", "0", "0", "extent", "extent+8", "extent+16"),
            *("mul.lo.u64 %w2, %w2, %w1;", "ld.param.u32 %w9, [what];"),
        ],
    ),
    "Memcpy2DAsync": (
        ".param .b64 to, .param .b64 pitch, .param .b64 from, .param .b64 from_pitch, .param .b64 width, "
        ".param .b64 height, .param .b32 kind",
        _loads("to", "pitch", "0", "from", "from_pitch", "0", "width", "height", "1", "0"),
    ),
    "Memcpy3DAsync": (
        ".param .b64 asked",
        [
            "ld.param.b64 %p1, [asked];",
            *_side(0, 96, 72),
            *_side(3, 32, 8),
            *(f"ld.b64 %w{6 + number}, [%p1+{128 + 8 * number}];" for number in range(3)),
            "mov.u64 %w9, 0;",
        ],
    ),
}


def _boxes() -> str:
    parts = [_BOX]
    stores = "\n    ".join(f"st.b64 [%d2+{8 * number}], %w{number};" for number in range(10))
    for name, (parameters, words) in _BOXES.items():
        for suffix in _PER_THREAD:
            full = f"__cudaCDP2{name}{suffix}"
            lines = "\n    ".join(words)
            parts.append(_ONE_BOX.format(name=full, parameters=parameters, words=lines, stores=stores))
    return "".join(parts)


# What device code may ask of its device and of kernels, and what it takes from its own heap. The service
# (../asked.c, which has the same numbers) gives what is asked for, or a cudaError_t, negated.
_SERVICE = """
.extern .func (.param .b64 answer) __gpuferry_asked(.param .b32 what, .param .b64 of, .param .b64 more,
    .param .b64 most);
.extern .func (.param .b64 taken) malloc(.param .b64 size);
.extern .func free(.param .b64 pointer);

.visible .func (.param .b32 status) __cudaCDP2Malloc(.param .b64 to, .param .b64 size)
{
    .reg .pred %p;
    .reg .b32 %r;
    .reg .b64 %d<4>;
    ld.param.b64 %d1, [size];
    call (%d2), malloc, (%d1);
    ld.param.b64 %d3, [to];
    st.b64 [%d3], %d2;
    setp.eq.u64 %p, %d2, 0;
    selp.b32 %r, 2, 0, %p;
    st.param.b32 [status], %r;
    ret;
}

.visible .func (.param .b32 status) __cudaCDP2Free(.param .b64 pointer)
{
    .reg .b64 %d;
    ld.param.b64 %d, [pointer];
    call free, (%d);
    st.param.b32 [status], 0;
    ret;
}
"""

_ASKED = """
.visible .func (.param .b32 status) {name}({parameters})
{{
    .reg .pred %p;
    .reg .b32 %r;
    .reg .b64 %to, %of, %more, %most, %answer;
    mov.u64 %of, 0;
    mov.u64 %more, 0;
    mov.u64 %most, 0;
    ld.param.b64 %to, [to];
    {lines}
    st.param.b32 [status], 0;
    ret;
FAILED:
    neg.s64 %answer, %answer;
    cvt.u32.u64 %r, %answer;
    st.param.b32 [status], %r;
    ret;
}}
"""


def _ask(what: int, to: str) -> list[str]:
    """Puts one answer where it belongs."""
    return [
        f"call (%answer), __gpuferry_asked, ({what}, %of, %more, %most);",
        "setp.lt.s64 %p, %answer, 0;",
        "@%p bra FAILED;",
        to,
    ]


_ORDINAL, _COUNT, _ATTRIBUTE, _LIMIT, _VERSION, _NO_CHOICE, _BLOCKS, _OF_FUNCTION = range(8)
_INT, _SIZE = "st.b32 [%to], %answer;", "st.b64 [%to], %answer;"
_KERNEL = "ld.param.b64 %of, [kernel];"
_FIELDS = {  # of cudaFuncAttributes: CUfunction_attribute, bytes
    **{offset: (attribute, 8) for offset, attribute in ((0, 1), (8, 2), (16, 3))},
    **{
        offset: (attribute, 4)
        for offset, attribute in zip(range(24, 52, 4), (0, 4, 5, 6, 7, 8, 9), strict=True)
    },
}
_OCCUPANCY = ".param .b64 to, .param .b64 kernel, .param .b32 threads, .param .b64 shared"
_OCCUPANCY_ASKED = [
    *(_KERNEL, "ld.param.s32 %more, [threads];", "ld.param.b64 %most, [shared];"),
    *_ask(_BLOCKS, _INT),
]
_QUESTIONS = {
    "GetDevice": (".param .b64 to", _ask(_ORDINAL, _INT)),
    "GetDeviceCount": (".param .b64 to", _ask(_COUNT, _INT)),
    "RuntimeGetVersion": (".param .b64 to", _ask(_VERSION, _INT)),
    "DeviceGetCacheConfig": (".param .b64 to", _ask(_NO_CHOICE, _INT)),
    "DeviceGetSharedMemConfig": (".param .b64 to", _ask(_NO_CHOICE, _INT)),
    "DeviceGetAttribute": (
        ".param .b64 to, .param .b32 attribute, .param .b32 device",
        ["ld.param.s32 %of, [attribute];", "ld.param.s32 %more, [device];", *_ask(_ATTRIBUTE, _INT)],
    ),
    "DeviceGetLimit": (
        ".param .b64 to, .param .b32 limit",
        ["ld.param.s32 %of, [limit];", *_ask(_LIMIT, _SIZE)],
    ),
    "OccupancyMaxActiveBlocksPerMultiprocessor": (_OCCUPANCY, _OCCUPANCY_ASKED),
    "OccupancyMaxActiveBlocksPerMultiprocessorWithFlags": (
        f"{_OCCUPANCY}, .param .b32 flags",
        _OCCUPANCY_ASKED,
    ),
    "FuncGetAttributes": (
        ".param .b64 to, .param .b64 kernel",
        [
            _KERNEL,
            *(
                line
                for offset, (attribute, size) in _FIELDS.items()
                for line in (
                    f"mov.u64 %more, {attribute};",
                    *_ask(_OF_FUNCTION, f"st.b{8 * size} [%to+{offset}], %answer;"),
                )
            ),
        ],
    ),
}

_ERRORS = {
    0: ("cudaSuccess", "no error"),
    1: ("cudaErrorInvalidValue", "invalid argument"),
    2: ("cudaErrorMemoryAllocation", "out of memory"),
    9: ("cudaErrorInvalidConfiguration", "invalid configuration argument"),
    65: ("cudaErrorLaunchMaxDepthExceeded", "launch would exceed maximum depth of nested launches"),
    69: (
        "cudaErrorLaunchPendingCountExceeded",
        "launch failed because launch would exceed cudaLimitDevRuntimePendingLaunchCount",
    ),
    98: ("cudaErrorInvalidDeviceFunction", "invalid device function"),
    101: ("cudaErrorInvalidDevice", "invalid device ordinal"),
    -1: ("unrecognized error code", "unrecognized error code"),
}

_ERROR_TEXT = """
.visible .func (.param .b64 text) __cudaCDP2GetError{kind}(.param .b32 error)
{{
    .reg .pred %p;
    .reg .b32 %r;
    .reg .b64 %d<2>;
    ld.param.b32 %r, [error];
    mov.u64 %d0, {kind}_other;
    {lines}
    cvta.global.u64 %d0, %d0;
    st.param.b64 [text], %d0;
    ret;
}}
"""


def _asked() -> str:
    parts = [_SERVICE]
    for name, (parameters, lines) in _QUESTIONS.items():
        full = f"__cudaCDP2{name}"
        parts.append(_ASKED.format(name=full, parameters=parameters, lines="\n    ".join(lines)))
    for position, kind in enumerate(("Name", "String")):
        lines = []
        for error, texts in _ERRORS.items():
            data = [*texts[position].encode(), 0]
            name = f"{kind}_{'other' if error < 0 else error}"
            parts.append(f"\n.global .b8 {name}[{len(data)}] = {{{', '.join(map(str, data))}}};")
            if error >= 0:
                lines += [
                    f"mov.u64 %d1, {name};",
                    f"setp.eq.u32 %p, %r, {error};",
                    "selp.b64 %d0, %d1, %d0, %p;",
                ]
        parts.append(_ERROR_TEXT.format(kind=kind, lines="\n    ".join(lines)))
    return "".join(parts)


# cudaErrorNotSupported, as the host hears that instantiates a graph for it or makes a node that device code
# may update: what else an image holds can run.
_GRAPH = """
.visible .func (.param .b32 status) {name}({parameters})
{{
    st.param.b32 [status], 801;
    ret;
}}
"""
_OF_GRAPHS = {
    "Launch": ".param .b64 graph, .param .b64 stream",
    "KernelNodeSetParam": ".param .b64 node, .param .b64 offset, .param .b64 value, .param .b64 size",
    "KernelNodeSetEnabled": ".param .b64 node, .param .b32 enable",
    "KernelNodeSetGridDim": ".param .b64 node, .param .align 4 .b8 grid[12]",
    "KernelNodeUpdatesApply": ".param .b64 updates, .param .b64 count",
}


def _graphs() -> str:
    return "".join(
        _GRAPH.format(name=f"cudaGraph{name}", parameters=parameters)
        for name, parameters in _OF_GRAPHS.items()
    )


# Each is joined to a module that needs something of it.
TEXTS = tuple(
    _HEAD + text for text in (_COOPERATIVE_GROUPS, _launches(), _bytes(), _boxes(), _asked(), _graphs())
)
