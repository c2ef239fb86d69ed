"""Copies and fills, against numpy doing the same."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .driver import INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, SUCCESS, Driver, driver

HOST, DEVICE, ARRAY, UNIFIED = 1, 2, 3, 4
POINTERS = ("host", "array", "reserved")
TYPES: dict[str, type] = {
    "type": ctypes.c_int,
    "device": ctypes.c_uint64,
    **dict.fromkeys(POINTERS, ctypes.c_void_p),
}


def copy_fields(side: str, extent: str) -> list[tuple[str, type]]:
    """Of a copy's descriptor: those of each side, then how much is copied."""
    names = [f"{one}_{name}" for one in ("src", "dst") for name in side.split()] + extent.split()
    return [(name, TYPES.get(name.rpartition("_")[2], ctypes.c_size_t)) for name in names]


class Copy2D(ctypes.Structure):
    _fields_ = copy_fields("x y type host device array pitch", "width height")


class Copy3D(ctypes.Structure):
    _fields_ = copy_fields("x y z lod type host device array reserved pitch height", "width height depth")


def noise(size: int) -> bytes:
    return np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8).tobytes()


@pytest.mark.parametrize("size", [1, 3, 4096, 65536, 65537, 5 << 20])
def test_round_trip_through_every_call(cu: Driver, context: int, size: int) -> None:
    data = noise(size)
    first, second = cu.alloc(size), cu.alloc(size)
    back = ctypes.create_string_buffer(size)
    cu.ok("cuMemcpyHtoDAsync_v2", first, data, size, 0)
    cu.ok("cuMemcpyDtoDAsync_v2", second, first, size, 0)
    cu.ok("cuMemcpyDtoHAsync_v2", back, second, size, 0)
    assert back.raw == data  # pageable memory: the call waited
    cu.ok("cuMemsetD8_v2", first, 0, size)
    cu.ok("cuMemcpy", first, second, size)
    cu.ok("cuMemcpy", ctypes.addressof(back), first, size)
    assert back.raw == data
    ctypes.memset(back, ord("#"), size)
    cu.ok("cuMemcpyAsync", second, ctypes.addressof(back), size, 0)
    assert cu.read(second, size) == b"#" * size
    cu.free(first)
    cu.free(second)


def test_pageable_source_may_change_after_the_call(cu: Driver, context: int) -> None:
    pointer = cu.alloc(70_000)
    for size in (1000, 70_000):
        source = ctypes.create_string_buffer(b"a" * size, size)
        cu.ok("cuMemcpyHtoDAsync_v2", pointer, source, size, 0)
        ctypes.memset(source, ord("b"), size)
        assert cu.read(pointer, size) == b"a" * size
    cu.free(pointer)


def test_overlap_is_as_memmove(cu: Driver, context: int) -> None:
    data = noise(1000)
    pointer = cu.alloc(1100)
    cu.write(pointer, data)
    cu.ok("cuMemcpyDtoD_v2", pointer + 50, pointer, 1000)
    assert cu.read(pointer + 50, 1000) == data
    cu.free(pointer)


def test_ranges_are_checked(cu: Driver, context: int) -> None:
    pointer, buffer = cu.alloc(100), ctypes.create_string_buffer(200)
    cases = [
        ("cuMemcpyHtoD_v2", (pointer, buffer, 101)),
        ("cuMemcpyHtoD_v2", (pointer + 100, buffer, 1)),
        ("cuMemcpyHtoD_v2", (pointer - 1, buffer, 2)),
        ("cuMemcpyHtoD_v2", (0, buffer, 1)),
        ("cuMemcpyHtoD_v2", (pointer, None, 1)),
        ("cuMemcpyDtoH_v2", (buffer, pointer, 101)),
        ("cuMemcpyDtoH_v2", (buffer, 0x1234, 1)),
        ("cuMemcpyDtoD_v2", (pointer, pointer + 50, 51)),
        ("cuMemcpyDtoD_v2", (ctypes.addressof(buffer), pointer, 1)),
        ("cuMemcpyDtoH_v2", (buffer, pointer, 2**64 - 1)),
        ("cuMemsetD8_v2", (pointer, 1, 101)),
        ("cuMemsetD32_v2", (pointer, 1, 26)),
        ("cuMemsetD32_v2", (pointer + 2, 1, 1)),
        ("cuMemsetD16_v2", (pointer + 1, 1, 1)),
        ("cuMemsetD8_v2", (pointer, 1, 2**64 - 1)),
        ("cuMemsetD32_v2", (pointer, 1, 2**62 + 1)),
        ("cuMemsetD2D8_v2", (pointer, 10, 1, 11, 2)),
        ("cuMemsetD2D8_v2", (pointer, 50, 1, 50, 3)),
    ]
    for function, arguments in cases:
        assert cu.status(function, *arguments) == INVALID_VALUE, (function, arguments)
    for function, arguments in [
        ("cuMemcpyHtoD_v2", (0, None, 0)),
        ("cuMemcpyDtoH_v2", (None, pointer, 0)),
        ("cuMemsetD8_v2", (pointer, 1, 0)),
    ]:
        assert cu.status(function, *arguments) == SUCCESS, (function, arguments)
    assert cu.status("cuMemcpyHtoDAsync_v2", pointer, buffer, 1, 0x12340) == INVALID_HANDLE
    cu.free(pointer)


def test_fills(cu: Driver, context: int) -> None:
    size = 4096
    pointer = cu.alloc(size)
    image = np.zeros(size, np.uint8)
    cu.ok("cuMemsetD8_v2", pointer + 3, 0xAB, 100)
    image[3:103] = 0xAB
    cu.ok("cuMemsetD16_v2", pointer + 200, 0xBEEF, 50)
    image[200:300].view(np.uint16)[:] = 0xBEEF
    cu.ok("cuMemsetD32Async", pointer + 400, 0xDEADBEEF, 25, 0)
    image[400:500].view(np.uint32)[:] = 0xDEADBEEF
    for call, kind, value in (
        ("D2D8", np.uint8, 7),
        ("D2D16", np.uint16, 0x1234),
        ("D2D32", np.uint32, 0x12345678),
    ):
        start = {"D2D8": 1024, "D2D16": 2048, "D2D32": 3072}[call]
        cu.ok(f"cuMemset{call}_v2", pointer + start, 128, value, 10, 5)
        rows = image[start : start + 128 * 5].view(kind).reshape(5, -1)
        rows[:, :10] = value
    assert cu.read(pointer, size) == image.tobytes()
    cu.free(pointer)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_boxes_equal_numpy(data: st.DataObject) -> None:
    cu = driver()
    width, height, depth = (data.draw(st.integers(0, n)) for n in (20, 5, 4))
    sides = []
    for _ in range(2):
        x, y, z = (data.draw(st.integers(0, 3)) for _ in range(3))
        pitch, rows = (
            x + width + data.draw(st.integers(0, 4)) + 1,
            y + height + data.draw(st.integers(0, 2)) + 1,
        )
        sides.append((x, y, z, pitch, rows, data.draw(st.sampled_from([HOST, DEVICE, UNIFIED]))))
    shapes = [(z + depth + 1, rows, pitch) for _, _, z, pitch, rows, _ in sides]
    source = np.frombuffer(noise(int(np.prod(shapes[0]))), np.uint8).reshape(shapes[0])
    expected = np.zeros(shapes[1], np.uint8)
    (sx, sy, sz, *_), (dx, dy, dz, *_) = sides
    expected[dz : dz + depth, dy : dy + height, dx : dx + width] = source[
        sz : sz + depth, sy : sy + height, sx : sx + width
    ]
    with cu.context():
        copy = Copy3D(width=width, height=height, depth=depth)
        buffers = []
        for name, shape, (x, y, z, pitch, rows, kind) in zip(("src_", "dst_"), shapes, sides, strict=True):
            size = int(np.prod(shape))
            host = (ctypes.c_ubyte * size)()
            device = cu.alloc(size)
            if name == "src_":
                ctypes.memmove(host, source.tobytes(), size)
                cu.write(device, source.tobytes())
            buffers.append((host, device))
            fields = {"x": x, "y": y, "z": z, "pitch": pitch, "height": rows, "type": kind, "device": device}
            fields["host"] = ctypes.addressof(host)
            for field, value in fields.items():
                setattr(copy, name + field, value)
        call = data.draw(st.sampled_from(["cuMemcpy3D_v2", "cuMemcpy3DAsync_v2"]))
        cu.ok(call, ctypes.byref(copy), *([0] if call.endswith("Async_v2") else []))
        host, device = buffers[1]
        got = bytes(host) if sides[1][5] == HOST else cu.read(device, int(np.prod(shapes[1])))
        assert got == expected.tobytes()


def test_2d(cu: Driver, context: int) -> None:
    source = np.arange(60, dtype=np.uint8).reshape(6, 10)
    pointer = cu.alloc(512 * 6)
    raw = source.tobytes()
    address = ctypes.cast(ctypes.c_char_p(raw), ctypes.c_void_p).value
    copy = Copy2D(src_type=HOST, src_host=address, src_pitch=10, src_x=2, src_y=1, width=7, height=4)
    copy.dst_type, copy.dst_device, copy.dst_pitch = DEVICE, pointer, 512
    for call in ("cuMemcpy2D_v2", "cuMemcpy2DUnaligned_v2"):
        cu.ok("cuMemsetD8_v2", pointer, 0, 512 * 6)
        cu.ok(call, ctypes.byref(copy))
        got = np.frombuffer(cu.read(pointer, 512 * 6), np.uint8).reshape(6, 512)
        assert (got[:4, :7] == source[1:5, 2:9]).all()
        assert got.sum() == source[1:5, 2:9].sum()
    copy.src_pitch = 8  # less than x + width
    assert cu.status("cuMemcpy2D_v2", ctypes.byref(copy)) == INVALID_VALUE
    copy.src_pitch, copy.dst_type = 10, ARRAY
    assert cu.status("cuMemcpy2D_v2", ctypes.byref(copy)) == INVALID_VALUE  # no array is named
    copy.dst_array = 0x1230
    assert cu.status("cuMemcpy2D_v2", ctypes.byref(copy)) == INVALID_HANDLE
    copy.dst_type = 9
    assert cu.status("cuMemcpy2D_v2", ctypes.byref(copy)) == INVALID_VALUE
    copy.dst_type, copy.height = DEVICE, 50
    assert cu.status("cuMemcpy2D_v2", ctypes.byref(copy)) == INVALID_VALUE
    assert cu.status("cuMemcpy2D_v2", None) == INVALID_VALUE
    cu.free(pointer)


def test_peer(cu: Driver, context: int) -> None:
    with cu.context(1) as other:
        there = cu.alloc(1000)
        cu.ok("cuCtxPushCurrent_v2", context)
        here = cu.alloc(1000)
        cu.write(here, noise(1000))
        cu.ok("cuMemcpyPeer", there, other, here, context, 1000)
        cu.ok("cuMemsetD8_v2", here, 0, 1000)
        cu.ok("cuMemcpyPeerAsync", here, context, there, other, 1000, 0)
        assert cu.read(here, 1000) == noise(1000)
        assert cu.status("cuMemcpyPeer", there, 0x123, here, context, 1) == INVALID_CONTEXT
        cu.free(here)
        cu.ok("cuCtxPopCurrent_v2", None)
        cu.free(there)


def test_per_thread_twins_exist_and_work(cu: Driver, context: int) -> None:
    pointer, back = cu.alloc(64), ctypes.create_string_buffer(64)
    cu.ok("cuMemcpyHtoD_v2_ptds", pointer, b"x" * 64, 64)
    cu.ok("cuMemsetD8_v2_ptds", pointer, ord("y"), 32)
    cu.ok("cuMemcpyDtoH_v2_ptds", back, pointer, 64)
    assert back.raw == b"y" * 32 + b"x" * 32
    cu.ok("cuMemsetD8Async_ptsz", pointer, ord("z"), 64, 0)
    cu.ok("cuStreamSynchronize_ptsz", 0)
    assert cu.read(pointer, 1) == b"z"
    cu.free(pointer)
