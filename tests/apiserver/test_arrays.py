"""Arrays and textures on the server: boxes are checked, the quota holds, numbers are the driver's."""

from __future__ import annotations

from typing import Any

from tests.apiserver import arrays
from tests.apiserver.guest import Guest, handle
from tests.apiserver.server import Server

INVALID_VALUE, OUT_OF_MEMORY, INVALID_HANDLE = 1, 2, 400
ARRAY = handle("array", 0)
FAR = (1 << 64) - 1


def latched(guest: Guest) -> int:
    return guest.sync().latched


def read(guest: Guest, x: int, y: int, z: int, width: int, rows: int) -> bytes:
    reply = guest.call("sessionArrayOut", stream=0, array=ARRAY, x=x, y=y, z=z, width=width, rows=rows)
    assert reply.status == 0
    return bytes(reply.payload)


def test_boxes_stay_inside(guest: Guest) -> None:
    arrays.create(guest, ARRAY, 64, 8, 2)
    assert read(guest, 0, 0, 1, 64, 8) == bytes(512)
    box: dict[str, Any] = {"stream": 0, "array": ARRAY, "x": 3, "y": 2, "z": 1, "width": 4, "rows": 2}
    guest.send("sessionArrayIn", **box, payload=b"abcdefgh")
    assert read(guest, 2, 2, 1, 6, 2) == b"\0abcd\0\0efgh\0"
    for change in ({"x": 61}, {"y": 7}, {"z": 2}, {"x": FAR}, {"y": FAR}, {"z": FAR}):
        guest.send("sessionArrayIn", **{**box, **change}, payload=b"abcdefgh")
        assert latched(guest) == INVALID_VALUE, change
        assert guest.call("sessionArrayOut", **{**box, **change}).status == INVALID_VALUE, change
    guest.close()


def test_arrays_count(server: Server) -> None:
    guest = server.connect(quota=64 << 20)
    arrays.create(guest, ARRAY, 8192, 4096)
    assert latched(guest) == 0
    arrays.create(guest, handle("array", 1), 8192, 4097)
    assert latched(guest) == OUT_OF_MEMORY
    guest.send("sessionMemMap", address=guest.window, size=34 << 20)
    assert latched(guest) == OUT_OF_MEMORY
    guest.send("cuArrayDestroy", hArray=ARRAY)
    guest.send("sessionMemMap", address=guest.window, size=34 << 20)
    assert latched(guest) == 0
    guest.close()
    assert server.ended().clean


def test_levels_are_arrays_that_end_with_the_whole(server: Server) -> None:
    guest = server.connect(quota=64 << 20)
    mipmap = handle("mipmapped_array", 0)
    level: dict[str, Any] = {"pLevelArray": ARRAY, "hMipmappedArray": mipmap, "level": 1}
    arrays.create_mipmap(guest, mipmap, 8192, 4096, levels=99)
    guest.send("cuMipmappedArrayGetLevel", **level)
    assert latched(guest) == 0
    arrays.create(guest, handle("array", 1), 8192, 2731)
    assert latched(guest) == OUT_OF_MEMORY
    box: dict[str, Any] = {"stream": 0, "array": ARRAY, "x": 4092, "y": 2047, "z": 0, "width": 4, "rows": 1}
    guest.send("sessionArrayIn", **box, payload=b"abcd")
    assert read(guest, 4090, 2047, 0, 6, 1) == b"\0\0abcd"
    assert guest.call("sessionArrayOut", **{**box, "y": 2048}).status == INVALID_VALUE
    guest.send("cuMipmappedArrayGetLevel", **{**level, "pLevelArray": handle("array", 2), "level": 14})
    assert latched(guest) == INVALID_VALUE
    guest.send("cuArrayDestroy", hArray=ARRAY)
    assert latched(guest) == INVALID_VALUE
    guest.send("cuMipmappedArrayDestroy", hMipmappedArray=mipmap)
    assert guest.call("sessionArrayOut", **box).status == INVALID_HANDLE
    arrays.create(guest, ARRAY, 8192, 8192)
    assert latched(guest) == 0
    arrays.create_mipmap(guest, mipmap)
    assert latched(guest) == OUT_OF_MEMORY
    guest.send("cuArrayDestroy", hArray=ARRAY)
    arrays.create_mipmap(guest, mipmap)
    guest.send("cuMipmappedArrayGetLevel", **level)
    guest.close()
    assert server.ended().clean


def test_a_program_does_not_choose_numbers(guest: Guest) -> None:
    arrays.create(guest, ARRAY)
    new = handle("texture_object", 0)
    assert arrays.texture(guest, new, ARRAY, wanted=5).status == INVALID_VALUE
    made = arrays.texture(guest, new, ARRAY)
    assert made.status == 0
    assert made.values["value"] > 0
    guest.close()
