"""Textures and surfaces that read what has ended: they keep their numbers, and their session moves."""

from __future__ import annotations

import struct

from tests.apiserver import arrays, kernels
from tests.apiserver.guest import Guest, Reply, handle
from tests.apiserver.server import Server
from tests.migration.moving import close, move, settled

MEMORY = 2  # CU_RESOURCE_TYPE_LINEAR
THERE, GONE = handle("array", 0), handle("array", 1)


def of_memory(address: int, size: int = 4096) -> bytes:
    """CUDA_RESOURCE_DESC of single bytes."""
    return struct.pack("<I4xQIIQ112x", MEMORY, address, arrays.UNSIGNED_INT8, 1, size)


def texture(guest: Guest, place: int, resource: bytes) -> Reply:
    made = guest.call(
        "sessionTextureCreate",
        object=handle("texture_object", place),
        wanted=0,
        resource=resource,
        texture=arrays.SAMPLER,
        payload=arrays.NO_PART,
    )
    assert made.status == 0
    return made


def end(guest: Guest, memory: int) -> None:
    """What is read."""
    guest.send("cuArrayDestroy", hArray=GONE)
    guest.send("sessionMemUnmap", address=memory, size=guest.granularity)
    assert guest.sync().latched == 0


def test_objects_keep_their_numbers(source: Server, destination: Server) -> None:
    """Those that are left as others end, and those that come after the moves."""
    guest, memory = source.connect(), 0
    memory = guest.map()
    for array in (THERE, GONE):
        arrays.create(guest, array)
    made = [texture(guest, 0, arrays.resource(GONE)), texture(guest, 1, of_memory(memory))]
    made += [
        texture(guest, 2, arrays.resource(THERE)),
        arrays.surface(guest, handle("surface_object", 0), GONE),
    ]
    numbers = [each.values["value"] for each in made]
    end(guest, memory)
    settled(source, destination, move(source, destination, guest.session))
    guest.send("cuTexObjectDestroy", texObject=handle("texture_object", 1))
    assert guest.sync().latched == 0
    settled(destination, source, move(destination, source, guest.session))
    new = [texture(guest, place, arrays.resource(THERE)).values["value"] for place in (3, 4)]
    assert not set(new) & {number for number in numbers if number != numbers[1]}
    for place in (0, 2, 3, 4):
        guest.send("cuTexObjectDestroy", texObject=handle("texture_object", place))
    guest.send("cuSurfObjectDestroy", surfObject=handle("surface_object", 0))
    assert guest.sync().latched == 0
    close(guest, source)


def test_references_to_what_has_ended(source: Server, destination: Server) -> None:
    """Nothing is bound to them at the destination, until something else is."""
    guest, module = source.connect(), handle("module", 0)
    memory = guest.map()
    arrays.create(guest, GONE)
    assert guest.load(kernels.PTX, module, kernels.digest())[0].status == 0
    surface, *textures = handle("surface_reference", 0), *(handle("texture_reference", i) for i in range(2))
    made = guest.call("sessionSurfaceReference", reference=surface, module=module, payload=b"canvas")
    assert made.status == 0
    made = guest.call("sessionTextureReference", reference=textures[0], module=module, payload=b"picture")
    assert made.status == 0
    guest.send("cuTexRefCreate", pTexRef=textures[1])
    for reference, resource in zip(textures, (arrays.resource(GONE), of_memory(memory)), strict=True):
        assert guest.call("sessionTextureBind", reference=reference, payload=b"\1" + resource).status == 0
    guest.send("cuSurfRefSetArray", hSurfRef=surface, hArray=GONE, Flags=0)
    assert guest.sync().latched == 0
    end(guest, memory)
    settled(source, destination, move(source, destination, guest.session))
    settled(destination, source, move(destination, source, guest.session))
    arrays.create(guest, THERE)
    for reference in textures:
        bound = guest.call("sessionTextureBind", reference=reference, payload=b"\1" + arrays.resource(THERE))
        assert bound.status == 0
    guest.send("cuSurfRefSetArray", hSurfRef=surface, hArray=THERE, Flags=0)
    assert guest.sync().latched == 0
    settled(source, destination, move(source, destination, guest.session))
    close(guest, destination)
