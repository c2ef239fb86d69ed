"""cuLink*: the file that comes out, what libraries give, targets. tests/programs/link_*.c have the rest."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest
from gpuferry.migration import variables

from .driver import (
    INVALID_IMAGE,
    INVALID_PTX,
    INVALID_SOURCE,
    INVALID_VALUE,
    NOT_SUPPORTED,
    SUCCESS,
    UNKNOWN,
    CudaError,
    Driver,
)
from .kernels import Attribute, Config, function, launch, pack

NO_BINARY_FOR_GPU = 209
NEWER_PTX = 222
CUBIN, PTX, FATBINARY, OBJECT, LIBRARY, NVVM = range(6)
MAX_REGISTERS, ERROR_LOG, ERROR_LOG_SIZE, TARGET = 0, 5, 6, 9
NUM_REGS = 4

HEAD = ".version 7.0\n.target sm_80\n.address_size 64\n"
CALLER = (
    HEAD
    + """
.extern .func (.param .b32 out) supply();
.visible .global .align 4 .u32 words[4];
.visible .const .align 4 .u32 one = 1;
.visible .entry go(.param .u64 to)
{
    .reg .b32 %r<2>;
    .reg .b64 %d<2>;
    .param .b32 out;
    ld.param.u64 %d1, [to];
    call (out), supply, ();
    ld.param.b32 %r1, [out];
    st.global.u32 [%d1], %r1;
    ret;
}
"""
)


def supplier(value: int, name: str = "supply") -> str:
    return (
        HEAD + f".visible .func (.param .b32 out) {name}()\n"
        "{\n    .reg .b32 %r;\n"
        f"    mov.u32 %r, {value};\n    st.param.b32 [out], %r;\n    ret;\n}}\n"
    )


@dataclass
class Link:
    cu: Driver
    state: int

    def add(self, image: str | bytes, kind: int = PTX) -> int:
        data = image.encode() if isinstance(image, str) else image
        return self.cu.status("cuLinkAddData_v2", self.state, kind, data, len(data), b"part", 0, None, None)

    def complete(self) -> bytes:
        image, size = ctypes.c_void_p(), ctypes.c_size_t()
        self.cu.ok("cuLinkComplete", self.state, ctypes.byref(image), ctypes.byref(size))
        return ctypes.string_at(image, size.value)


def new_link(cu: Driver, target: int | None = None) -> Link:
    state = ctypes.c_uint64()
    options = (ctypes.c_int * 1)(TARGET)
    values = (ctypes.c_uint64 * 1)(target or 0)
    cu.ok("cuLinkCreate_v2", 1 if target else 0, options, values, ctypes.byref(state))
    return Link(cu, state.value)


def linked(cu: Driver, *inputs: tuple[str | bytes, int]) -> bytes:
    link = new_link(cu)
    for image, kind in inputs:
        assert link.add(image, kind) == SUCCESS
    data = link.complete()
    cu.ok("cuLinkDestroy", link.state)
    return data


def result(cu: Driver, image: bytes) -> int:
    pointer = cu.alloc(4)
    assert launch(cu, function(cu, cu.out("cuModuleLoadData", image), "go"), pack(pointer)) == SUCCESS
    return int.from_bytes(cu.read(pointer, 4), "little")


def fatbin(text: str, target: int = 80, kind: int = 1) -> bytes:
    payload = text.encode().ljust(-(-(len(text) + 1) // 8) * 8, b"\0")
    fields = (kind, 0x0101, 64, len(payload), 0, 0, 0, 7, target, 0x11, 0)
    entry = struct.pack("<HHIQIIHHI8xQ8xQ", *fields)
    entry += bytes(64 - len(entry))
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry + payload)) + entry + payload


def host_object(*fatbins: bytes) -> bytes:
    """An ELF object with these in .nv_fatbin, as nvcc -c makes it."""
    content = b"".join(fatbins)
    names = b"\0.nv_fatbin\0.shstrtab\0"
    table = 64 + len(content) + -len(content) % 8
    strings = table + 3 * 64
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01".ljust(16, b"\0"),
        *(1, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2),
    )
    sections = bytes(64)
    sections += struct.pack("<IIQQQQIIQQ", 1, 1, 0, 0, 64, len(content), 0, 0, 8, 0)
    sections += struct.pack("<IIQQQQIIQQ", 12, 3, 0, 0, strings, len(names), 0, 0, 1, 0)
    return header + content.ljust(table - 64, b"\0") + sections + names


def library(*members: bytes) -> bytes:
    """An archive as ar writes it, with its table of symbols."""
    data = b"!<arch>\n"
    for name, member in [(b"/", b"\0\0\0\0"), *((b"member.o/", each) for each in members)]:
        size = str(len(member)).encode()
        data += name.ljust(16) + b"0".ljust(32) + size.ljust(10) + b"`\n" + member + b"\n" * (len(member) % 2)
    return data


def test_the_file_is_a_cubin_to_those_who_look(cu: Driver, context: int) -> None:
    """Who moves a session finds its variables in it."""
    image = linked(cu, (CALLER, PTX), (supplier(5), PTX))
    machine, flags = struct.unpack_from("<H", image, 18)[0], struct.unpack_from("<I", image, 48)[0]
    assert (image[:4], image[7], machine, flags & 0xFF) == (b"\x7fELF", 51, 190, 80)
    found = variables.find(image)
    assert found.names == {"words", "one"}
    assert not found.heap
    assert result(cu, image) == 5


def test_a_kernel_that_allocates_is_seen_in_the_file(cu: Driver, context: int) -> None:
    allocating = supplier(1).replace(
        "    mov.u32",
        "    .param .b64 size; .param .b64 got; .reg .b64 %d; mov.u64 %d, 8; st.param.b64 [size], %d;\n"
        "    call (got), malloc, (size);\n    mov.u32",
    )
    declared = ".extern .func (.param .b64 got) malloc(.param .b64 size);\n"
    image = linked(cu, (CALLER, PTX), (allocating.replace(HEAD, HEAD + declared), PTX))
    assert variables.find(image).heap
    assert result(cu, image) == 1


@pytest.mark.system
def test_damaged_files_are_refused(cu: Driver, context: int, tmp_path: Path) -> None:
    """Out of files, whose size is known: else a wrong one of its own makes an image end behind its end."""
    image = linked(cu, (CALLER, PTX), (supplier(5), PTX))
    path = tmp_path / "image.cubin"
    for place in range(len(image)):
        damaged = bytearray(image)
        damaged[place] ^= 0x41
        path.write_bytes(damaged)
        module = ctypes.c_uint64()
        status = cu.status("cuModuleLoad", ctypes.byref(module), str(path).encode())
        assert status in (SUCCESS, INVALID_IMAGE, NO_BINARY_FOR_GPU, INVALID_PTX, NEWER_PTX), place
        if status == SUCCESS:
            cu.ok("cuModuleUnload", module.value)
    path.write_bytes(image[:64])
    module = ctypes.c_uint64()
    assert cu.status("cuModuleLoad", ctypes.byref(module), str(path).encode()) == NO_BINARY_FOR_GPU


def test_what_only_nvidias_compiler_reads_is_named(cu: Driver, context: int) -> None:
    """LTO-IR, as an input of its own and in a fatbin."""
    state, log = ctypes.c_uint64(), ctypes.create_string_buffer(1000)
    options = (ctypes.c_int * 2)(ERROR_LOG, ERROR_LOG_SIZE)
    values = (ctypes.c_uint64 * 2)(ctypes.addressof(log), len(log))
    cu.ok("cuLinkCreate_v2", 2, options, values, ctypes.byref(state))
    link = Link(cu, state.value)
    assert link.add(b"BC\xc0\xde", NVVM) == NOT_SUPPORTED
    assert link.add(fatbin("not PTX", kind=8), FATBINARY) == NO_BINARY_FOR_GPU
    assert link.add(supplier(5)) == SUCCESS
    first, second = log.value.decode().splitlines()
    assert "part: LTO-IR" in first
    assert "LTO-IR" in second
    assert "sm_80" in second
    cu.ok("cuLinkDestroy", link.state)


def test_target(cu: Driver, context: int) -> None:
    """What is linked for another device can be made, not loaded."""
    link = new_link(cu, target=90)
    assert link.add(CALLER.replace("sm_80", "sm_90")) == SUCCESS
    assert link.add(supplier(3)) == SUCCESS
    image = link.complete()
    assert struct.unpack_from("<I", image, 48)[0] & 0xFF == 90
    assert cu.status("cuModuleLoadData", ctypes.byref(ctypes.c_uint64()), image) == NO_BINARY_FOR_GPU
    link = new_link(cu, target=80)
    assert link.add(CALLER) == link.add(supplier(3)) == SUCCESS
    assert result(cu, link.complete()) == 3
    state = ctypes.byref(ctypes.c_uint64())
    wrong = (ctypes.c_uint64 * 1)(7)
    assert cu.status("cuLinkCreate_v2", 1, (ctypes.c_int * 1)(TARGET), wrong, state) == INVALID_VALUE


def test_registers(cu: Driver, context: int) -> None:
    """Code here has none, but what is told of them keeps to the limit (and occupancy follows)."""
    many = CALLER.replace("    .reg .b64 %d<2>;", "    .reg .b64 %d<400>;")

    def registers(limit: int) -> int:
        state = ctypes.c_uint64()
        values = (ctypes.c_uint64 * 1)(limit)
        cu.ok("cuLinkCreate_v2", 1, (ctypes.c_int * 1)(MAX_REGISTERS), values, ctypes.byref(state))
        link = Link(cu, state.value)
        assert link.add(many) == link.add(supplier(1)) == SUCCESS
        go = function(cu, cu.out("cuModuleLoadData", link.complete()), "go")
        return int(cu.out("cuFuncGetAttribute", NUM_REGS, go, type=ctypes.c_int))

    unlimited = registers(0)
    assert unlimited > 40
    assert registers(40) == 40
    assert registers(unlimited + 1) == unlimited


def test_objects_and_fatbins(cu: Driver, context: int) -> None:
    both = host_object(fatbin(supplier(6)), fatbin(supplier(7, "unused")))
    assert result(cu, linked(cu, (fatbin(CALLER), FATBINARY), (both, OBJECT))) == 6
    link = new_link(cu)
    assert link.add(host_object(fatbin(supplier(1), target=90)), OBJECT) == NO_BINARY_FOR_GPU
    for garbage in (b"nothing", b"\x7fELF" + bytes(100), b"!<arch>\n" + bytes(60), supplier(1).encode()):
        assert link.add(garbage, OBJECT) == INVALID_IMAGE


def test_a_library_gives_what_is_missing_only(cu: Driver, context: int) -> None:
    """Else its second definition of a name would be one too many, and code for other devices an error."""
    members = [host_object(fatbin(text)) for text in (supplier(8), supplier(9, "twin"))]
    whole = library(*members, host_object(fatbin(supplier(0), target=90)), b"no object")
    assert result(cu, linked(cu, (CALLER, PTX), (whole, LIBRARY))) == 8
    assert result(cu, linked(cu, (whole, LIBRARY), (CALLER, PTX), (supplier(11), PTX))) == 11
    twins = linked(cu, (CALLER, PTX), (supplier(12), PTX), (supplier(13, "twin"), PTX), (whole, LIBRARY))
    assert result(cu, twins) == 12
    link = new_link(cu)
    assert link.add(CALLER.replace("supply", "unknown")) == link.add(whole, LIBRARY) == SUCCESS
    with pytest.raises(CudaError) as error:
        link.complete()
    assert error.value.result == UNKNOWN


def test_grids_synchronise_by_the_device_runtime(cu: Driver, context: int) -> None:
    """As Numba does it: the real library holds machine code, only what it is called counts."""
    text = (
        HEAD
        + """
.extern .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope);
.extern .func (.param .b32 status) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);
.visible .entry go(.param .u64 words)
{
    .reg .pred %p;
    .reg .b32 %r<8>;
    .reg .b64 %d<6>;
    .param .b32 scope;
    .param .b32 flags;
    .param .b64 handle;
    .param .b32 status;
    ld.param.u64 %d1, [words];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, 20;
ROUND:
    mul.wide.u32 %d2, %r1, 4;
    add.u64 %d2, %d1, %d2;
    ld.volatile.global.u32 %r3, [%d2];
    mov.u32 %r4, 1;
    st.param.b32 [scope], %r4;
    call (handle), cudaCGGetIntrinsicHandle, (scope);
    ld.param.b64 %d3, [handle];
    st.param.b64 [handle], %d3;
    st.param.b32 [flags], 0;
    call (status), cudaCGSynchronize, (handle, flags);
    mov.u32 %r5, %nctaid.x;
    add.u32 %r1, %r1, 1;
    rem.u32 %r1, %r1, %r5;
    mul.wide.u32 %d2, %r1, 4;
    add.u64 %d2, %d1, %d2;
    mov.u32 %r6, %tid.x;
    setp.ne.u32 %p, %r6, 0;
    add.u32 %r3, %r3, 1;
    @!%p st.volatile.global.u32 [%d2], %r3;
    st.param.b64 [handle], %d3;
    call (status), cudaCGSynchronize, (handle, flags);
    sub.u32 %r2, %r2, 1;
    setp.ne.u32 %p, %r2, 0;
    @%p bra ROUND;
    ret;
}
"""
    )
    link = new_link(cu)
    assert link.add(text) == SUCCESS
    with pytest.raises(CudaError):
        link.complete()
    link = new_link(cu)
    assert link.add(text) == SUCCESS
    assert link.add(library(), LIBRARY) == SUCCESS
    go = function(cu, cu.out("cuModuleLoadData", link.complete()), "go")
    blocks = 7
    words = cu.alloc(4 * blocks)
    cu.write(words, b"".join(value.to_bytes(4, "little") for value in range(0, 100 * blocks, 100)))
    cooperative = Attribute(2, 0, (1,))
    config = Config((blocks, 1, 1), (40, 1, 1), 0, 0, ctypes.addressof(cooperative), 1)
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(pointer := ctypes.c_uint64(words)))
    cu.ok("cuLaunchKernelEx", ctypes.byref(config), go, parameters, None)
    cu.ok("cuCtxSynchronize")
    assert pointer.value == words
    got = struct.unpack(f"<{blocks}I", cu.read(words, 4 * blocks))
    assert sorted(got) == [100 * block + 20 for block in range(blocks)]
    assert got.index(20) == 20 % blocks


def test_other_results_than_declared_are_zero(cu: Driver, context: int) -> None:
    """Numba declares a result where C has none."""
    nothing = HEAD + ".visible .func supply()\n{\n    ret;\n}\n"
    assert result(cu, linked(cu, (CALLER, PTX), (nothing, PTX))) == 0


OTHER_PROTOTYPES = {
    "another argument": ".visible .func (.param .b32 out) supply(.param .b32 more)",
    "a larger result": ".visible .func (.param .b64 out) supply()",
    "a float": ".visible .func (.param .f32 out) supply()",
    "bytes": ".visible .func (.param .align 4 .b8 out[4]) supply()",
    "declared once more": ".extern .func (.param .b64 out) supply()",
}


@pytest.mark.parametrize("definition_first", [False, True])
@pytest.mark.parametrize("head", OTHER_PROTOTYPES.values(), ids=OTHER_PROTOTYPES)
def test_prototypes_are_compared(cu: Driver, context: int, head: str, definition_first: bool) -> None:
    """As nvlink compares them: when the second one comes, which leaves the link as it was."""
    other = HEAD + head + (";\n" if "extern" in head else "\n{\n    ret;\n}\n")
    link = new_link(cu)
    first, second = (other, CALLER) if definition_first else (CALLER, other)
    assert link.add(first) == SUCCESS
    assert link.add(second) == INVALID_SOURCE
    if not definition_first:
        assert link.add(supplier(4)) == SUCCESS
        assert result(cu, link.complete()) == 4


def test_a_result_that_is_not_declared(cu: Driver, context: int) -> None:
    """The reverse of what Numba does is refused, as nvlink does."""
    caller = CALLER.replace("(.param .b32 out) supply", "supply").replace("(out), supply", "supply")
    link = new_link(cu)
    assert link.add(caller) == SUCCESS
    assert link.add(supplier(1)) == INVALID_SOURCE


def test_prototypes_within_a_text(cu: Driver, context: int) -> None:
    """As ptxas: declaration and definition have the same sizes."""
    for head in (".func supply()", ".func (.param .b32 out) supply(.param .b32 more)"):
        text = CALLER.replace(".extern", "") + head + "{ ret; }\n"
        assert new_link(cu).add(text) == INVALID_PTX
        assert cu.status("cuModuleLoadData", ctypes.byref(ctypes.c_uint64()), text.encode()) == INVALID_PTX
