"""Arrays, textures and surfaces as frames."""

from __future__ import annotations

import struct

from tests.apiserver.guest import PRIMARY, Guest, Reply, handle

UNSIGNED_INT8, SURFACE = 1, 2
KEPT = handle("array", 7)  # one that a test of frames has all along
SAMPLER = bytes(104)
NO_PART = b"\0"


def description(width: int, height: int = 0, depth: int = 0, flags: int = SURFACE) -> bytes:
    """CUDA_ARRAY3D_DESCRIPTOR of single bytes."""
    return struct.pack("<3Q3I4x", width, height, depth, UNSIGNED_INT8, 1, flags)


def resource(array: int) -> bytes:
    """CUDA_RESOURCE_DESC of an array."""
    return struct.pack("<I4xQ128x", 0, array)


def create(guest: Guest, array: int, width: int = 64, height: int = 64, depth: int = 0) -> None:
    guest.send("cuArray3DCreate_v2", pHandle=array, pAllocateArray=description(width, height, depth))


def create_mipmap(guest: Guest, mipmap: int, width: int = 64, height: int = 64, levels: int = 3) -> None:
    guest.send(
        "cuMipmappedArrayCreate",
        pHandle=mipmap,
        pMipmappedArrayDesc=description(width, height),
        numMipmapLevels=levels,
    )


def texture(guest: Guest, new: int, array: int, wanted: int = 0) -> Reply:
    return guest.call(
        "sessionTextureCreate",
        context=PRIMARY,
        object=new,
        wanted=wanted,
        resource=resource(array),
        texture=SAMPLER,
        payload=NO_PART,
    )


def surface(guest: Guest, new: int, array: int) -> Reply:
    return guest.call("sessionSurfaceCreate", object=new, wanted=0, resource=resource(array))
