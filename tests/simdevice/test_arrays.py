"""Arrays, mipmapped arrays and texture objects: what may be made, what is refused, what copies reach."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from tests.ptx.textures import (
    ARRAY,
    CUBEMAP,
    LAYERED,
    LINEAR,
    SURFACE,
    ArrayDesc,
    ResourceDesc,
    TextureDesc,
)

from .driver import INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, SUCCESS, Driver
from .test_copies import Copy3D

GATHER, SPARSE = 8, 0x40
U8, U32, FLOAT, NV12 = 1, 3, 0x20, 0xB0


def create(cu: Driver, *desc: int) -> int:
    return int(cu.out("cuArray3DCreate_v2", ctypes.byref(ArrayDesc(*desc))))


@pytest.mark.parametrize(
    ("desc", "result"),
    [
        ((1, 0, 0, U8, 1, 0), SUCCESS),
        ((131072, 0, 0, U8, 1, 0), SUCCESS),
        ((131073, 0, 0, U8, 1, 0), INVALID_VALUE),
        ((0, 0, 0, U8, 1, 0), INVALID_VALUE),
        ((4, 4, 0, 0, 1, 0), INVALID_VALUE),
        ((4, 4, 0, U8, 3, 0), INVALID_VALUE),
        ((4, 4, 0, 0x77, 1, 0), INVALID_VALUE),
        ((4, 4, 0, NV12, 3, 0), NOT_SUPPORTED),
        ((4, 0, 4, U8, 1, 0), INVALID_VALUE),
        ((4, 0, 4, U8, 1, LAYERED), SUCCESS),
        ((2, 2, 16385, U8, 1, 0), SUCCESS),
        ((16385, 2, 2, U8, 1, 0), INVALID_VALUE),
        ((4, 4, 0, U8, 1, LAYERED), INVALID_VALUE),
        ((4, 4, 6, FLOAT, 4, CUBEMAP), SUCCESS),
        ((4, 4, 5, FLOAT, 4, CUBEMAP), INVALID_VALUE),
        ((4, 3, 6, FLOAT, 4, CUBEMAP), INVALID_VALUE),
        ((4, 4, 12, FLOAT, 4, CUBEMAP | LAYERED), SUCCESS),
        ((4, 4, 13, FLOAT, 4, CUBEMAP | LAYERED), INVALID_VALUE),
        ((4, 4, 0, U8, 1, 0xDEADBEEF), INVALID_VALUE),
        ((4, 4, 0, U8, 1, GATHER), SUCCESS),
        ((4, 4, 0, U8, 1, GATHER | SURFACE), SUCCESS),
        ((4, 4, 6, U8, 1, GATHER | CUBEMAP), INVALID_VALUE),
        ((4, 0, 0, U8, 1, GATHER), INVALID_VALUE),
        ((4, 4, 0, U8, 1, SPARSE), NOT_SUPPORTED),
        ((4, 0, 0, U8, 1, SPARSE), INVALID_VALUE),
        ((65536, 65536, 0, U8, 1, 0), OUT_OF_MEMORY),
    ],
)
def test_what_an_array_may_be(cu: Driver, context: int, desc: tuple[int, ...], result: int) -> None:
    array = ctypes.c_uint64()
    before = cu.used()
    assert cu.status("cuArray3DCreate_v2", ctypes.byref(array), ctypes.byref(ArrayDesc(*desc))) == result
    if result == SUCCESS:
        assert cu.used() > before
        back = ArrayDesc()
        cu.ok("cuArray3DGetDescriptor_v2", ctypes.byref(back), array.value)
        assert bytes(back) == bytes(ArrayDesc(*desc))
        cu.ok("cuArrayDestroy", array.value)
    assert cu.used() == before


def test_handles(cu: Driver, context: int) -> None:
    desc = ArrayDesc(4, 4, 0, U8, 1, 0)
    array = create(cu, 4, 4, 0, U8, 1, 0)
    cu.ok("cuArrayDestroy", array)
    for call in ("cuArray3DGetDescriptor_v2", "cuArrayGetDescriptor_v2"):
        assert cu.status(call, ctypes.byref(desc), array) == INVALID_HANDLE
    for gone in (array, 0, 0x1230):
        assert cu.status("cuArrayDestroy", gone) == INVALID_HANDLE
        assert cu.status("cuMipmappedArrayDestroy", gone) == INVALID_HANDLE
    assert cu.status("cuArray3DCreate_v2", None, ctypes.byref(desc)) == INVALID_VALUE
    assert cu.status("cuArrayCreate_v2", ctypes.byref(ctypes.c_uint64()), None) == INVALID_VALUE


def test_mipmapped(cu: Driver, context: int) -> None:
    before = cu.used()
    desc = ArrayDesc(8, 4, 0, FLOAT, 1, 0)
    mipmap = int(cu.out("cuMipmappedArrayCreate", ctypes.byref(desc), 4))
    sizes = []
    for number in range(4):
        level = cu.out("cuMipmappedArrayGetLevel", mipmap, number)
        back = ArrayDesc()
        cu.ok("cuArray3DGetDescriptor_v2", ctypes.byref(back), level)
        sizes.append((back.width, back.height))
    assert sizes == [(8, 4), (4, 2), (2, 1), (1, 1)]
    out = ctypes.byref(ctypes.c_uint64())
    assert cu.status("cuMipmappedArrayGetLevel", out, mipmap, 4) == INVALID_VALUE
    assert cu.status("cuArrayDestroy", level) == INVALID_VALUE
    cu.ok("cuMipmappedArrayDestroy", mipmap)
    assert cu.status("cuArrayDestroy", level) == INVALID_HANDLE
    assert cu.status("cuMipmappedArrayGetLevel", out, 0, 0) == INVALID_HANDLE
    for wanted, last in ((0, 0), (9, 3)):  # the number is brought into the range that there may be
        mipmap = int(cu.out("cuMipmappedArrayCreate", ctypes.byref(desc), wanted))
        cu.ok("cuMipmappedArrayGetLevel", out, mipmap, last)
        assert cu.status("cuMipmappedArrayGetLevel", out, mipmap, last + 1) == INVALID_VALUE
        cu.ok("cuMipmappedArrayDestroy", mipmap)
    assert cu.used() == before


def test_copies_by_offset(cu: Driver, context: int) -> None:
    array, other = create(cu, 64, 0, 0, U32, 1, 0), create(cu, 64, 0, 0, U32, 1, 0)
    flat = create(cu, 64, 4, 0, U32, 1, 0)
    data, back = bytes(range(256)), ctypes.create_string_buffer(256)
    cu.ok("cuMemcpyHtoA_v2", array, 0, data, 256)
    cu.ok("cuMemcpyAtoA_v2", other, 128, array, 0, 128)
    cu.ok("cuMemcpyAtoA_v2", other, 0, array, 128, 128)
    cu.ok("cuMemcpyAtoHAsync_v2", back, other, 0, 256, 0)
    assert back.raw == data[128:] + data[:128]
    memory = cu.alloc(256)
    cu.ok("cuMemcpyAtoD_v2", memory, array, 0, 256)
    assert cu.read(memory, 256) == data
    cu.write(memory, data[::-1])
    cu.ok("cuMemcpyDtoA_v2", array, 4, memory, 8)
    cu.ok("cuMemcpyAtoH_v2", back, array, 0, 16)
    assert back.raw[:16] == data[:4] + data[::-1][:8] + data[12:16]
    cu.ok("cuMemcpyHtoA_v2", array, 0, data, 0)
    cu.ok("cuMemcpyHtoA_v2", flat, 0, data, 256)  # its first line
    for target, offset, size in ((array, 4, 256), (array, 256, 4), (flat, 4, 256), (flat, 256, 4), (0, 0, 4)):
        assert cu.status("cuMemcpyHtoA_v2", target, offset, data, size) == INVALID_VALUE
    for each in (array, other, flat):
        cu.ok("cuArrayDestroy", each)
    assert cu.status("cuMemcpyHtoA_v2", array, 0, data, 4) == INVALID_HANDLE
    cu.free(memory)


def test_boxes(cu: Driver, context: int) -> None:
    array = create(cu, 4, 3, 2, U8, 2, 0)
    data = bytes(range(24))
    address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    copy = Copy3D(src_type=1, src_host=address, src_pitch=8, src_height=3, width=8, height=3)
    copy.dst_type, copy.dst_array, copy.depth = 3, array, 1
    copy.dst_z = 1
    cu.ok("cuMemcpy3D_v2", ctypes.byref(copy))
    back = ctypes.create_string_buffer(4)
    part = Copy3D(src_type=3, src_array=array, src_x=2, src_y=1, src_z=1, width=2, height=2, depth=1)
    part.dst_type, part.dst_host, part.dst_pitch = 1, ctypes.addressof(back), 2
    cu.ok("cuMemcpy3D_v2", ctypes.byref(part))
    assert back.raw == data[10:12] + data[18:20]
    for name, value in (("dst_z", 2), ("dst_x", 2), ("dst_x", 1), ("dst_y", 1), ("width", 3)):
        wrong = Copy3D.from_buffer_copy(copy)
        setattr(wrong, name, value)
        assert cu.status("cuMemcpy3D_v2", ctypes.byref(wrong)) == INVALID_VALUE, name
    cu.ok("cuArrayDestroy", array)


def described(array: int) -> ResourceDesc:
    desc = ResourceDesc(ARRAY)
    desc.resource.array = array
    return desc


def test_objects(cu: Driver, context: int) -> None:
    array, plain = create(cu, 4, 4, 0, FLOAT, 1, SURFACE), create(cu, 4, 4, 0, FLOAT, 1, 0)
    resource, sampler, out = described(array), TextureDesc(), ctypes.c_uint64()
    by = ctypes.byref
    first = int(cu.out("cuTexObjectCreate", by(resource), by(sampler), None))
    second = int(cu.out("cuSurfObjectCreate", by(resource)))
    assert second == first + 1
    cu.ok("cuTexObjectDestroy", first)
    assert cu.out("cuTexObjectCreate", by(resource), by(sampler), None) == first  # the lowest that is free
    back: Any = ResourceDesc()
    cu.ok("cuTexObjectGetResourceDesc", by(back), first)
    assert back.resource.array == array
    cu.ok("cuSurfObjectGetResourceDesc", by(back), second)
    cu.ok("cuTexObjectGetTextureDesc", by(TextureDesc()), first)
    for number in (0, second, 1 << 40):
        assert cu.status("cuTexObjectGetResourceDesc", by(back), number) == INVALID_VALUE
        cu.ok("cuTexObjectDestroy", number)  # as NVIDIA's driver does not say that there is none
    assert cu.status("cuTexObjectGetResourceDesc", None, first) == INVALID_VALUE
    plain_surface = int(cu.out("cuSurfObjectCreate", by(described(plain))))  # SURFACE is for references
    cu.ok("cuSurfObjectDestroy", plain_surface)
    assert cu.status("cuSurfObjectCreate", by(out), by(described(0x1230))) == INVALID_HANDLE
    assert cu.status("cuTexObjectCreate", by(out), by(described(0x1230)), by(sampler), None) == INVALID_HANDLE
    assert cu.status("cuTexObjectCreate", by(out), None, by(sampler), None) == INVALID_VALUE
    linear = ResourceDesc(LINEAR)
    memory = cu.alloc(4096)
    linear.resource.memory.format, linear.resource.memory.channels = FLOAT, 1
    for address, size, result in ((memory, 4096, 0), (memory + 4, 64, 1), (memory, 4100, 1), (0, 64, 1)):
        linear.resource.memory.pointer, linear.resource.memory.width = address, size
        assert cu.status("cuTexObjectCreate", by(out), by(linear), by(sampler), None) == result
    for each in (array, plain):
        cu.ok("cuArrayDestroy", each)
    cu.free(memory)
