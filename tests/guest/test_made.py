"""What the server has made is the program's, though the answer tells of an earlier call's failure.

Of that the program is told by a call that only waits.
"""

from __future__ import annotations

import struct

import pytest

from tests.guest.conftest import Guest
from tests.guest.fake_server import WINDOW, Answer, FakeServer, Frame

INVALID_CLUSTER_SIZE = 912
MEMORY, EVENT = 1, 2
MIB = 1 << 20

BEGIN = """
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]

start()
"""


def handle(kind: int) -> str:
    """One of another session's, as an expression."""
    packed = struct.pack("<IIQQ32sQ", 0x70694667, kind, 8, 0, bytes(range(32)), 0)
    return f"Handle.from_buffer_copy({packed!r})"


def tell_late(server: FakeServer, operation: str) -> None:
    """The first answer to this operation tells of an earlier failure; what is found are 4 KiB, at 8 KiB."""
    left = [INVALID_CLUSTER_SIZE]

    def answer(frame: Frame) -> Answer:
        latched = left.pop() if frame.name == operation and left else 0
        found = struct.pack("<QQQ", 2 * MIB, 8192, 4096) if frame.name == "sessionImportFind" else None
        return Answer(latched=latched, body=found)

    server.answer = answer


@pytest.mark.parametrize("operation", ["sessionImportFind", "sessionImportMap"])
def test_opened_memory(server: FakeServer, guest: Guest, operation: str) -> None:
    tell_late(server, operation)
    outcome = guest(
        BEGIN
        + f"""
address = made("cuIpcOpenMemHandle_v2", {handle(MEMORY)}, 1)
print(hex(address % {2 * MIB}))
for _ in range(2):
    print(cu("cuCtxSynchronize"))
ok("cuIpcCloseMemHandle", address)
"""
    )
    assert outcome.stdout.split() == [hex(8192), str(INVALID_CLUSTER_SIZE), "0"], outcome.stderr
    mapped, unmapped = (f for f in server.frames if f.name in ("sessionImportMap", "sessionMemUnmap"))
    base = struct.unpack_from("<Q", mapped.body, 32)[0]
    assert base >= WINDOW
    assert unmapped.body == struct.pack("<QQ", base, 2 * MIB)


def test_opened_event(server: FakeServer, guest: Guest) -> None:
    tell_late(server, "sessionImportEvent")
    outcome = guest(
        BEGIN
        + f"""
event = made("cuIpcOpenEventHandle", {handle(EVENT)})
for _ in range(2):
    print(cu("cuCtxSynchronize"))
ok("cuEventDestroy_v2", event)
"""
    )
    assert outcome.stdout.split() == [str(INVALID_CLUSTER_SIZE), "0"], outcome.stderr
    opened, ended = (f for f in server.frames if f.name in ("sessionImportEvent", "cuEventDestroy_v2"))
    assert ended.body in opened.body


def test_exported_event(server: FakeServer, guest: Guest) -> None:
    """It is exported once, and its handle is the same however often it is asked for."""
    tell_late(server, "sessionExportEvent")
    outcome = guest(
        BEGIN
        + """
event, told = made("cuEventCreate", 4 | 2), [Handle(), Handle()]
for one in told:
    ok("cuIpcGetEventHandle", byref(one), event)
print(bytes(told[0]) == bytes(told[1]))
print(cu("cuCtxSynchronize"))
"""
    )
    assert outcome.stdout.split() == ["True", str(INVALID_CLUSTER_SIZE)], outcome.stderr
    assert server.names.count("sessionExportEvent") == 1
