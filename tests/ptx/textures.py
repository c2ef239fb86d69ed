"""Arrays, textures and surfaces of the simulated driver through ctypes, and what a fetch should give.

The reference follows the CUDA C++ Programming Guide ("Texture Fetching") with exact fractions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np

from .driver import call, use_device

LAYERED, SURFACE, CUBEMAP = 1, 2, 4
WRAP, CLAMP, MIRROR, BORDER = 0, 1, 2, 3
AS_INTEGER, NORMALIZED, SRGB, SEAMLESS = 1, 2, 0x10, 0x40
ARRAY, MIPMAPPED, LINEAR, PITCH2D = 0, 1, 2, 3
FORMATS = {"u1": 1, "u2": 2, "u4": 3, "i1": 8, "i2": 9, "i4": 10, "f2": 16, "f4": 32}


class ArrayDesc(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_size_t) for name in ("width", "height", "depth")),
        *((name, ctypes.c_uint) for name in ("format", "channels", "flags")),
    ]


class _Linear(ctypes.Structure):
    _fields_ = [
        ("pointer", ctypes.c_uint64),
        ("format", ctypes.c_uint),
        ("channels", ctypes.c_uint),
        ("width", ctypes.c_size_t),  # of linear memory: bytes
        ("height", ctypes.c_size_t),
        ("pitch", ctypes.c_size_t),
    ]


class _Resource(ctypes.Union):
    _fields_ = [("array", ctypes.c_void_p), ("memory", _Linear), ("reserved", ctypes.c_int * 32)]


class ResourceDesc(ctypes.Structure):
    _fields_ = [("type", ctypes.c_uint), ("resource", _Resource), ("flags", ctypes.c_uint)]


class TextureDesc(ctypes.Structure):
    _fields_ = [
        ("address", ctypes.c_uint * 3),
        ("filter", ctypes.c_uint),
        ("flags", ctypes.c_uint),
        ("anisotropy", ctypes.c_uint),
        ("mip_filter", ctypes.c_uint),
        ("bias", ctypes.c_float),
        ("least", ctypes.c_float),
        ("most", ctypes.c_float),
        ("border", ctypes.c_float * 4),
        ("reserved", ctypes.c_int * 12),
    ]


def _side(side: str) -> list[tuple[str, Any]]:
    sizes = [(f"{side}_{name}", ctypes.c_size_t) for name in ("x", "y", "z", "level")]
    pointers = [(f"{side}_{name}", ctypes.c_void_p) for name in ("host", "device", "array", "reserved")]
    rows = [(f"{side}_{name}", ctypes.c_size_t) for name in ("pitch", "height")]
    return [*sizes, (f"{side}_type", ctypes.c_uint), *pointers, *rows]


class Copy3D(ctypes.Structure):
    _fields_ = [
        *_side("src"),
        *_side("dst"),
        *((name, ctypes.c_size_t) for name in ("width", "height", "depth")),
    ]


def format_of(texels: np.ndarray) -> int:
    return FORMATS[texels.dtype.str[1:]]


def fill(handle: ctypes.c_void_p, texels: np.ndarray) -> None:
    """`texels` [z, y, x, channel] into an array."""
    depth, height, width, channels = texels.shape
    data = np.ascontiguousarray(texels)
    row = width * channels * texels.itemsize
    copy = Copy3D(src_type=1, src_host=data.ctypes.data, src_pitch=row, src_height=height)
    copy.dst_type, copy.dst_array = 3, handle
    copy.width, copy.height, copy.depth = row, height, depth
    call("cuMemcpy3D_v2", ctypes.byref(copy))


class Array:
    """A CUDA array that holds `texels` [z, y, x, channel]; `dimensions` says which extents are there."""

    keep = False

    def __init__(
        self, texels: np.ndarray, dimensions: int, flags: int = 0, texel_format: int | None = None
    ) -> None:
        """`texel_format`: other than that of the texels' numbers."""
        use_device()
        depth, height, width, channels = self.shape = texels.shape
        self.dtype = texels.dtype
        layered = bool(flags & (LAYERED | CUBEMAP))
        desc = ArrayDesc(width, height if dimensions > 1 else 0, depth if dimensions > 2 or layered else 0)
        desc.format, desc.channels, desc.flags = texel_format or format_of(texels), channels, flags
        self.handle = ctypes.c_void_p()
        call("cuArray3DCreate_v2", ctypes.byref(self.handle), ctypes.byref(desc))
        fill(self.handle, texels)

    def read(self) -> np.ndarray:
        data = np.empty(self.shape, self.dtype)
        depth, height, width, channels = self.shape
        row = width * channels * data.itemsize
        copy = Copy3D(src_type=3, src_array=self.handle, dst_type=1, dst_host=data.ctypes.data)
        copy.dst_pitch, copy.dst_height = row, height
        copy.width, copy.height, copy.depth = row, height, depth
        call("cuMemcpy3D_v2", ctypes.byref(copy))
        return data

    def __del__(self) -> None:
        if not self.keep:
            call("cuArrayDestroy", self.handle)


class Mipmapped:
    """A mipmapped array of the given levels, each [z, y, x, channel]."""

    keep = False

    def __init__(self, levels: Sequence[np.ndarray]) -> None:
        use_device()
        _, height, width, channels = levels[0].shape
        desc = ArrayDesc(width, height, 0, format_of(levels[0]), channels, 0)
        self.handle = ctypes.c_void_p()
        call("cuMipmappedArrayCreate", ctypes.byref(self.handle), ctypes.byref(desc), len(levels))
        for number, texels in enumerate(levels):
            level = ctypes.c_void_p()
            call("cuMipmappedArrayGetLevel", ctypes.byref(level), self.handle, number)
            fill(level, texels)

    def __del__(self) -> None:
        if not self.keep:
            call("cuMipmappedArrayDestroy", self.handle)


class Texture:
    """A texture object over an array or mipmapped array."""

    keep = False

    def __init__(self, resource: Array | Mipmapped | ResourceDesc, **settings: Any) -> None:
        if isinstance(resource, ResourceDesc):
            described = resource
        else:
            described = ResourceDesc(ARRAY if isinstance(resource, Array) else MIPMAPPED)
            described.resource.array = resource.handle
        self.resource = resource
        address = settings.pop("address", CLAMP)
        desc = TextureDesc(**settings)
        desc.address[:] = [address] * 3
        value = ctypes.c_uint64()
        call("cuTexObjectCreate", ctypes.byref(value), ctypes.byref(described), ctypes.byref(desc), None)
        self.value = value.value

    def __del__(self) -> None:
        if hasattr(self, "value") and not self.keep:
            call("cuTexObjectDestroy", ctypes.c_uint64(self.value))


class Surface:
    keep = False

    def __init__(self, array: Array) -> None:
        described = ResourceDesc(ARRAY)
        described.resource.array = array.handle
        self.array = array
        value = ctypes.c_uint64()
        call("cuSurfObjectCreate", ctypes.byref(value), ctypes.byref(described))
        self.value = value.value

    def __del__(self) -> None:
        if not self.keep:
            call("cuSurfObjectDestroy", ctypes.c_uint64(self.value))


def inside(index: int, size: int, address: int) -> int | None:
    """Where an index beyond the edges is taken from; None: the border's colour."""
    if address == CLAMP:
        return min(max(index, 0), size - 1)
    if address == WRAP:
        return index % size
    if address == MIRROR:
        index %= 2 * size
        return index if index < size else 2 * size - 1 - index
    return index if 0 <= index < size else None


def texel_position(x: float, size: int, address: int, normalized: bool) -> Fraction:
    at = Fraction(float(np.float32(x)))
    if not normalized:
        return at
    if address == WRAP:
        at -= floor(at)
    elif address == MIRROR:
        at %= 2
    return at * size


def promoted(value: float, dtype: np.dtype[Any]) -> Fraction:
    """What a channel is as a fraction of its range; floats are what they are."""
    if dtype.kind == "f":
        return Fraction(float(value))
    most = np.iinfo(dtype).max
    return max(Fraction(float(np.float32(value) / np.float32(most))), Fraction(-1))


def fetch(
    texels: np.ndarray,
    at: Sequence[float],
    address: int = CLAMP,
    normalized: bool = False,
    linear: bool = False,
    layer: int | None = None,
    border: Callable[[int], float] = lambda channel: 0.0,
) -> list[float]:
    """The channels that a float fetch from [z, y, x, channel] gives."""
    depth, height, width, channels = texels.shape
    sizes = (width, height, depth)
    corners: list[tuple[list[int], Fraction]] = [([], Fraction(1))]
    for x, size in zip(at, sizes, strict=False):
        u = texel_position(x, size, address, normalized)
        if linear:
            fixed = floor((u - Fraction(1, 2)) * 256 + Fraction(1, 2))
            first, weight = fixed >> 8, Fraction(fixed & 255, 256)
            steps = [(first, 1 - weight), (first + 1, weight)]
        else:
            steps = [(floor(u), Fraction(1))]
        corners = [([*place, index], share * part) for place, share in corners for index, part in steps]
    result = []
    for channel in range(channels):
        total = Fraction(0)
        for place, share in corners:
            found = [inside(index, size, address) for index, size in zip(place, sizes, strict=False)]
            if share == 0:
                continue
            if None in found:
                total += share * Fraction(border(channel))
                continue
            x, y, z = (*(int(each or 0) for each in found), 0, 0)[:3]
            if layer is not None:
                z = min(max(layer, 0), depth - 1)
            total += share * promoted(texels[z, y, x, channel], texels.dtype)
        result.append(float(total))
    return result
