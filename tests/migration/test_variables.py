"""Module variables by name, in every form in which code comes."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import lz4.block
import pytest
import zstandard
from gpuferry.migration import variables
from gpuferry.migration.errors import Refused

from tests.helpers.toolkits import toolkit

PTX = b"""//
// .global .u32 commented; .visible .global .u32 out;
.version 8.0
.target sm_80
.address_size 64
.file 1 "a;.global .u32 in_a_text;b"
.visible .global .align 16 .b8 table[4][2] = {{1, 2}, {3, 4}}; .global .u32 a, b = 3, c[2] = {5, 6};
.visible .const .align 4 .f32 factor;
.extern .global .align 4 .b8 elsewhere[];
.global .attribute(.managed) .align 4 .u32 managed;
.global .texref texture;
.weak .global .v4 .f32 _Z1xE$1 = {0f00000000, generic(table)};
.common .global .align 8 .b8 error_state[24];
.visible .entry f(.param .u64 p)
{
    .reg .b32 %r; .shared .b32 shared_one;
    ld.global.u32 %r, [a];
    st.global.u32 [b], %r;
    ld.const.f32 %f, [factor];
}
.global .u32 after;
\0"""
NAMES = {"table", "a", "b", "c", "factor", "managed", "_Z1xE$1", "error_state", "after"}
MALLOC = b"""
.extern .func  (.param .b64 func_retval0) malloc
(
    .param .b64 malloc_param_0
)
;
"""
CUDA = """
__device__ int counter = 5;
__constant__ float factor[7];
static __device__ double hidden[3];
__global__ void f(int *p) { counter += *p; hidden[*p] = factor[*p]; }
"""
HEAP = "__global__ void f(void **p) { *p = malloc(100); }"


def container(payload: bytes, kind: int = 1, flags: int = 0, whole: int = 0, compressed: int = 0) -> bytes:
    stored = payload + bytes(-len(payload) % 8)
    entry = struct.pack(
        "<HHIQIIHHI8xQ8xQ", kind, 0x101, 64, len(stored), compressed, 0, 0, 8, 80, flags, whole
    )
    assert len(entry) == 64
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry + stored)) + entry + stored


def lz4_block(text: bytes) -> bytes:
    return bytes(lz4.block.compress(text, store_size=False))


def packed(compress: Callable[[bytes], bytes], flag: int, told: int) -> bytes:
    block = compress(PTX)
    return container(block, flags=flag, whole=told, compressed=len(block))


def link_set(*containers: bytes) -> bytes:
    offsets, at = [], 8 + 8 * len(containers)
    for each in containers:
        offsets.append(at)
        at += len(each)
    return struct.pack(f"<II{len(offsets)}Q", 0x4B4C4647, len(offsets), *offsets) + b"".join(containers)


@pytest.mark.parametrize(
    "image",
    [
        PTX,
        container(PTX),
        packed(lz4_block, 0x2000, len(PTX)),
        packed(lz4_block, 0x2000, 10),
        packed(zstandard.ZstdCompressor().compress, 0x8000, len(PTX)),
        link_set(container(b".version 8.0\n.global .u32 after;\n"), container(PTX)),
    ],
    ids=["text", "fatbin", "lz4", "lz4 of unknown size", "zstd", "link set"],
)
def test_every_form(image: bytes) -> None:
    found = variables.find(image)
    assert found.names == NAMES
    assert not found.heap


def test_heap_in_text() -> None:
    assert variables.find(PTX[:-1] + MALLOC).heap
    assert variables.find(PTX[:-1] + MALLOC.replace(b"malloc", b"__cuda_syscall_aligned_malloc")).heap
    assert not variables.find(PTX[:-1] + b".visible .func malloc_of_mine(.param .b64 x) { ret; }").heap


def compiled(folder: Path, source: str, form: str) -> bytes:
    (folder / "m.cu").write_text(source)
    command = [toolkit().nvcc, f"--{form}", "-arch=sm_80", "-o", folder / "m.out", folder / "m.cu"]
    subprocess.run([str(word) for word in command], check=True, timeout=120)
    return (folder / "m.out").read_bytes()


@pytest.mark.some(1)
@pytest.mark.parametrize("form", ["ptx", "cubin"])
def test_what_the_compiler_makes(tmp_path: Path, form: str) -> None:
    found = variables.find(compiled(tmp_path, CUDA, form))
    assert {"counter", "factor"} <= found.names
    assert any("hidden" in name for name in found.names)
    assert not found.heap
    assert variables.find(compiled(tmp_path, HEAP, form)).heap


@pytest.mark.parametrize(
    "image",
    [
        b"\x7fELF" + bytes(60),
        container(PTX)[:60],
        container(PTX, kind=8),
        container(b"\xff" * 64, flags=0x2000, whole=100, compressed=64),
        container(b"\xff" * 64, flags=0x8000, whole=100, compressed=64),
        link_set(b"nothing of the kind"),
        b"\x47\x46\x4c\x4b\xff\xff\xff\xff",
    ],
    ids=["ELF", "cut short", "another kind", "no LZ4", "no zstd", "no container", "no link set"],
)
def test_images_that_cannot_be_read_are_refused(image: bytes) -> None:
    with pytest.raises(Refused, match="cannot be listed"):
        variables.find(image)


# Each of these took a time that grew with the square, or a higher power, of its length: 709 bytes took 32 s.
SLOW = {
    "newlines": b"\n" * 200_000,
    "functions that do not end": b".extern .func " + b"a " * 100_000,
    "functions in functions": b".extern .func a(" * 20_000,
    "blanks": b".extern" + b" " * 200_000 + b".func" + b" " * 200_000,
    "comments that do not end": b"/*" * 100_000,
    "texts that do not end": b'"\\' * 100_000,
    "linkage": b".visible " * 50_000,
    "spaces without a variable": b".ptr .global .ptr .const " * 20_000,
    "attributes": b".global .attribute(" * 20_000 + b";",
    "braces": b".global .u32 a = {" + b"{" * 200_000 + b";",
}


@pytest.mark.some(5)
@pytest.mark.parametrize("name", SLOW)
def test_reading_takes_as_long_as_the_text(name: str) -> None:
    """Twice: what grew with the square would take the test's whole time."""
    for text in (SLOW[name], SLOW[name] * 8):
        variables.find(b".version 8.0\n" + text + b"\n.global .u32 a;\n.global .u32 b;")


def test_what_expands_without_end_is_refused() -> None:
    """1,190 bytes that expand to gigabytes, and many entries of which each is fine."""
    block = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    image = link_set(
        *(container(block, flags=0x8000, whole=64 << 20, compressed=len(block)) for _ in range(9))
    )
    with pytest.raises(Refused, match="expands by more than 256 MiB"):
        variables.find(image)


def test_a_refusal_names_no_control_characters() -> None:
    assert Refused("the variable \x1b[2Jx\n\x9b lies nowhere").reason == "the variable ?[2Jx?? lies nowhere"


def test_symbol_tables_that_lie_on_each_other_are_refused() -> None:
    """An ELF file of a megabyte may say of each of 65,535 sections that it is all the file's symbols."""
    symbols = bytes(24 * 1000)
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", 0, 2, 0, 0, 64, len(symbols), 0, 0, 8, 24) for _ in range(2000)
    )
    head = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01",
        2,
        190,
        1,
        0,
        0,
        64 + len(symbols),
        0,
        64,
        0,
        0,
        64,
        2000,
        0,
    )
    with pytest.raises(Refused, match="cannot be listed"):
        variables.find(head + symbols + table)
