"""Images: fat binaries of every make, PTX text, damaged and hostile ones."""

from __future__ import annotations

import contextlib
import ctypes
import struct
import subprocess
from pathlib import Path

import lz4.block
import numpy as np
import pytest
import zstandard
from gpuferry.native.simdevice.compiler import images
from gpuferry.native.simdevice.compiler.errors import ImageError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import toolkits

from . import driver
from .ptx import HEADER, entry, store

PTX, ELF = 1, 2
RAW, LZ4, ZSTD = 0x11, 0x2011, 0x8011


def text(value: int, target: str = "sm_80", isa: str = "8.0") -> bytes:
    """A kernel `k` that stores the value."""
    head = f".version {isa}\n.target {target}\n.address_size 64\n"
    return (head + entry(f"    mov.u32 %r10, {value};\n{store('%r10')}", "k", 1)).encode() + b"\0\0\0"


def fat_entry(
    payload: bytes, kind: int = PTX, target: int = 80, flags: int = RAW, isa: tuple[int, int] = (8, 0)
) -> bytes:
    stored = payload
    if flags & 0x2000:
        stored = lz4.block.compress(payload, store_size=False)
    elif flags & 0x8000:
        stored = zstandard.ZstdCompressor().compress(payload)
    compressed = len(stored) if flags & 0xA000 else 0
    padded = stored + bytes(-len(stored) % 8)
    size = len(payload) if compressed else 0
    head = struct.pack(
        "<HHIQIIHHI8xQ8xQ",
        kind,
        0x101,
        0x50,
        len(padded),
        compressed,
        0x40,
        isa[1],
        isa[0],
        target,
        flags,
        size,
    )
    return head + bytes(0x50 - len(head)) + padded


def container(*parts: bytes) -> bytes:
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 0x10, sum(map(len, parts))) + b"".join(parts)


def result(image: bytes) -> int:
    out = driver.Buffer(np.zeros(1, np.uint32))
    driver.Module(image).launch("k", out)
    return int(out.read()[0])


@pytest.mark.parametrize("flags", [RAW, LZ4, ZSTD], ids=["raw", "lz4", "zstd"])
def test_compression(flags: int) -> None:
    assert result(container(fat_entry(text(100 + flags), flags=flags))) == 100 + flags


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([fat_entry(text(1, "sm_50"), target=50), fat_entry(text(2, "sm_75"), target=75)], 2),
        ([fat_entry(text(3, "sm_75"), target=75), fat_entry(text(4, "sm_90"), target=90)], 3),
        ([fat_entry(b"\x7fELF" + bytes(99), ELF), fat_entry(text(5, "sm_70"), target=70)], 5),
        ([fat_entry(text(6, "sm_80a")), fat_entry(text(7, "sm_70"), target=70)], 6),
        ([fat_entry(text(8, "sm_75a"), target=75), fat_entry(text(9, "sm_70"), target=70)], 9),
        ([fat_entry(text(10, isa="99.0")), fat_entry(text(11, "sm_70"), target=70)], 11),
    ],
    ids=["highest", "not newer", "beside machine code", "own variant", "other's variant", "known version"],
)
def test_selection(entries: list[bytes], expected: int) -> None:
    assert result(container(*entries)) == expected


@pytest.mark.parametrize(
    ("image", "status"),
    [
        (container(), driver.NO_BINARY_FOR_GPU),
        (container(fat_entry(b"\x7fELF" + bytes(99), ELF)), driver.NO_BINARY_FOR_GPU),
        (container(fat_entry(text(1, "sm_90"), target=90)), driver.NO_BINARY_FOR_GPU),
        (container(fat_entry(text(1, isa="42.0"))), driver.UNSUPPORTED_PTX_VERSION),
        (text(1, isa="42.0"), driver.UNSUPPORTED_PTX_VERSION),
        (text(1, "sm_120"), driver.INVALID_PTX),
        (b"\x7fELF\2\1\1" + bytes(100), driver.NO_BINARY_FOR_GPU),
        (b"hello, world\0", driver.INVALID_IMAGE),
        (b".version 8.0\0", driver.INVALID_PTX),
        (HEADER.encode() + b".visible .entry k( {{{\0", driver.INVALID_PTX),
        (container(fat_entry(b"// nothing here\0")), driver.INVALID_PTX),
        (b"\0\0\0\0", driver.INVALID_IMAGE),
        (struct.pack("<IHHQ", 0xBA55ED50, 1, 0x10, 1 << 30), driver.INVALID_IMAGE),
        (struct.pack("<IHHQ", 0xBA55ED50, 1, 0, 16) + bytes(16), driver.INVALID_IMAGE),
        (container(fat_entry(text(1))[:0x60]), driver.INVALID_IMAGE),
    ],
)
def test_refusals_say_why(image: bytes, status: int) -> None:
    with pytest.raises(driver.CudaError) as caught:
        driver.Module(image)
    assert caught.value.status == status
    assert caught.value.log


class Wrapper(ctypes.Structure):
    _fields_ = (
        ("magic", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("data", ctypes.c_void_p),
        ("more", ctypes.c_void_p),
    )


@pytest.mark.parametrize("version", [1, 2])
def test_wrapper(version: int) -> None:
    first = ctypes.create_string_buffer(container(fat_entry(text(21))) if version == 1 else container())
    assert wrapped(first, [container(fat_entry(text(22)))] if version == 2 else []) == (20 + version)


def wrapped(first: ctypes.Array[ctypes.c_char], others: list[bytes]) -> int:
    """What the kernel of a wrapper stores: of what nvcc has linked, and of what it was compiled to before."""
    kept = [ctypes.create_string_buffer(each) for each in others]
    more = (ctypes.c_void_p * (len(kept) + 1))(*map(ctypes.addressof, kept), None)
    version, there = (2, ctypes.addressof(more)) if kept else (1, None)
    return result(bytes(Wrapper(0x466243B1, version, ctypes.addressof(first), there)))


@pytest.mark.parametrize("count", [2, 40])
def test_what_was_compiled_apart_is_linked(count: int) -> None:
    """As in a library of many files (-rdc=true) with machine code for other devices and PTX of each file."""
    apart = [
        f"{HEADER}.visible .func (.param .b32 r) part{i}() {{ st.param.b32 [r], {i + 1}; ret; }}\n"
        for i in range(count)
    ]
    called = "".join(
        f"    {{ .param .b32 r; call (r), part{i}, (); ld.param.u32 %r11, [r]; }} add.u32 %r10, %r10, %r11;\n"
        for i in range(count)
    )
    declared = "".join(f".extern .func (.param .b32 r) part{i}();\n" for i in range(count))
    whole = HEADER + declared + entry(f"    mov.u32 %r10, 0;\n{called}{store('%r10')}", "k", 1)
    containers = [container(fat_entry(each.encode() + b"\0")) for each in [*apart, whole]]
    linked = ctypes.create_string_buffer(container(fat_entry(b"\x7fELF" + bytes(99), ELF)))
    assert wrapped(linked, containers) == count * (count + 1) // 2


SOURCE = 'extern "C" __global__ void k(unsigned *out) { out[blockIdx.x * blockDim.x + threadIdx.x] = 77; }\n'


@pytest.mark.some(2)
@pytest.mark.parametrize("mode", ["none", "speed", "balance", "size"])
@pytest.mark.parametrize("code", ["compute_80", "sm_80,compute_80"], ids=["ptx", "ptx and machine code"])
def test_nvcc(tmp_path: Path, mode: str, code: str) -> None:
    nvcc = toolkits.toolkit().nvcc
    if nvcc is None:
        pytest.skip("no nvcc")
    (tmp_path / "k.cu").write_text(SOURCE)
    generate = [f"arch=compute_80,code=[{code}]", "-fatbin", f"--compress-mode={mode}"]
    subprocess.run(
        [nvcc, "-ccbin", "g++", "-gencode", *generate, "k.cu"], cwd=tmp_path, check=True, timeout=240
    )
    assert result((tmp_path / "k.fatbin").read_bytes()) == 77


SEEDS = [
    container(fat_entry(text(31)), fat_entry(text(32, "sm_70"), target=70, flags=ZSTD)),
    container(fat_entry(text(33), flags=LZ4), fat_entry(b"\x7fELF" + bytes(99), ELF)),
    b"GFSIMLNK"
    + struct.pack("<QIIII", 32 + 16 + 8, 1, 80, 0, 0)
    + struct.pack("<QII", 8, 0, 0)
    + b".version",
    text(34),
]


@pytest.mark.system
@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_damaged_images_are_refused_or_read(data: st.DataObject) -> None:
    """Bytes changed and cut off: an ImageError or PTX text, nothing else."""
    image = bytearray(data.draw(st.sampled_from(SEEDS)))
    for _ in range(data.draw(st.integers(0, 6))):
        image[data.draw(st.integers(0, len(image) - 1))] = data.draw(
            st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, 0x20])
        )
    cut = bytes(image[: data.draw(st.integers(0, len(image)))]) if data.draw(st.booleans()) else bytes(image)
    with contextlib.suppress(ImageError):
        assert all(isinstance(each, bytes) for each in [each.text for each in images.sources(cut, 80)])


@pytest.mark.system
def test_damaged_images_do_not_crash_the_driver() -> None:
    """Here the driver finds out the size by itself."""
    rng = np.random.default_rng(5)
    for seed in (*SEEDS[:2], linked(text(31))):
        for _ in range(20):
            image = bytearray(seed)
            for place in rng.integers(0, min(len(image), 200), rng.integers(1, 5)):
                image[place] = rng.integers(0, 256)
            with contextlib.suppress(driver.CudaError):
                driver.Module(bytes(image))
    assert result(SEEDS[0]) == 31


def linked(*texts: bytes) -> bytes:
    """Through cuLinkAddData and cuLinkComplete."""
    driver.use_device()
    state, image, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    driver.call("cuLinkCreate_v2", 0, None, None, ctypes.byref(state))
    for each in texts:
        driver.call("cuLinkAddData_v2", state, 1, each, ctypes.c_size_t(len(each)), b"part", 0, None, None)
    driver.call("cuLinkComplete", state, ctypes.byref(image), ctypes.byref(size))
    blob = ctypes.string_at(image, size.value)
    driver.call("cuLinkDestroy", state)
    return blob


def test_linking_one_text() -> None:
    assert result(linked(text(55))) == 55


def test_linking_resolves_functions_and_variables_across_texts() -> None:
    user = (
        HEADER + ".extern .func (.param .b32 r) supply();\n.extern .global .align 4 .u32 shared_value;\n"
        ".global .align 4 .u32 own = 1000;\n"
        + entry(
            "    { .param .b32 r; call.uni (r), supply; ld.param.b32 %r10, [r]; }\n"
            "    ld.global.u32 %r11, [shared_value];\n    ld.global.u32 %r12, [own];\n"
            "    add.u32 %r10, %r10, %r11;\n    add.u32 %r10, %r10, %r12;\n" + store("%r10"),
            "k",
            1,
        )
    )
    supplier = (
        HEADER + ".visible .global .align 4 .u32 shared_value = 20;\n.global .align 4 .u32 own = 3;\n"
        ".visible .func (.param .b32 r) supply()\n"
        "{ .reg .b32 %r; ld.global.u32 %r, [own]; st.param.b32 [r], %r; ret; }\n"
    )
    assert result(linked(user.encode() + b"\0", supplier.encode() + b"\0")) == 1023
