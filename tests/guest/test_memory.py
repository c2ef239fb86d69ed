"""What the guest asks the server for when a program allocates."""

from __future__ import annotations

import struct

from tests.guest.conftest import Guest
from tests.guest.fake_server import FIRST, MIB, Answer, FakeServer, Frame

MEMORY = ("sessionMemMap", "sessionMemUnmap", "sessionFence")


def requests(server: FakeServer) -> list[tuple[str, ...] | tuple[str, int, int]]:
    """Map, unmap and fence, in order; offsets in the window and sizes in MiB."""
    found: list[tuple[str, ...] | tuple[str, int, int]] = []
    for frame in server.frames:
        if frame.name == "sessionFence":
            found.append(("fence",))
        elif frame.name in MEMORY:
            address, size = struct.unpack("<QQ", frame.body)
            found.append((frame.name[10:].lower(), (address - FIRST) // MIB, size // MIB))
    return found


def test_small_allocations_share_backing(server: FakeServer, guest: Guest) -> None:
    outcome = guest(
        """
start()
addresses = [made("cuMemAlloc_v2", 1000) for _ in range(1000)]
print(len(set(addresses)), all(a % 512 == 0 for a in addresses), stats()["round_trips"])
"""
    )
    assert outcome.stdout == "1000 True 0\n"
    assert requests(server) == [("map", 0, 2)]


def test_a_large_allocation_gives_its_backing_back_at_once(server: FakeServer, guest: Guest) -> None:
    guest('start(); memory = made("cuMemAlloc_v2", 5 << 20); ok("cuMemFree_v2", memory)')
    assert requests(server) == [("map", 0, 6), ("unmap", 0, 6)]


def test_pairs_cost_nothing_while_no_work_is_under_way(server: FakeServer, guest: Guest) -> None:
    guest('start()\nfor _ in range(10_000): ok("cuMemFree_v2", made("cuMemAlloc_v2", 4096))')
    assert requests(server) == [("map", 0, 2)]


def test_memory_is_fenced_before_it_is_handed_out_again(server: FakeServer, guest: Guest) -> None:
    guest(
        """
start()
memory = made("cuMemAlloc_v2", 4096)
for _ in range(3):
    ok("cuMemsetD8Async", memory, 1, 4096, 0)
    ok("cuMemFree_v2", memory)
    memory = made("cuMemAlloc_v2", 4096)
ok("cuMemsetD8Async", memory, 1, 4096, 0)
ok("cuMemFree_v2", memory)
ok("cuCtxSynchronize")
made("cuMemAlloc_v2", 4096)
"""
    )
    assert requests(server) == [("map", 0, 2), ("fence",), ("fence",), ("fence",)]
    order = [name for name in server.names if name in ("sessionFill", "sessionFence")]
    assert order == ["sessionFill", "sessionFence"] * 3 + ["sessionFill"]


def test_a_stream_reuses_its_own_memory_without_a_fence(server: FakeServer, guest: Guest) -> None:
    guest(
        """
start()
one, other = made("cuStreamCreate", 1), made("cuStreamCreate", 1)
for stream in (one, one, other):
    memory = made("cuMemAllocAsync", 4096, stream)
    ok("cuMemsetD8Async", memory, 1, 4096, stream)
    ok("cuMemFreeAsync", memory, stream)
"""
    )
    assert requests(server) == [("map", 0, 2), ("fence",)]


def test_the_quota_is_kept_here(server: FakeServer, guest: Guest) -> None:
    server.quota = 16 * MIB
    outcome = guest(
        """
start()
def info():
    free, total = u64(), u64()
    ok("cuMemGetInfo_v2", byref(free), byref(total))
    return free.value >> 20, total.value >> 20
out, first = u64(), made("cuMemAlloc_v2", 10 << 20)
print(info(), cu("cuMemAlloc_v2", byref(out), 8 << 20), cu("cuMemAlloc_v2", byref(out), 1 << 60))
second = made("cuMemAlloc_v2", 6 << 20)
print(info(), cu("cuMemAlloc_v2", byref(out), 1))
ok("cuMemFree_v2", first)
print(info(), made("cuMemAlloc_v2", 10 << 20) == first, stats()["round_trips"])
"""
    )
    assert outcome.stdout.splitlines() == ["(6, 16) 2 2", "(0, 16) 2", "(10, 16) True 0"]


def test_addresses_are_checked_before_anything_is_sent(server: FakeServer, guest: Guest) -> None:
    outcome = guest(
        """
start()
memory = made("cuMemAlloc_v2", 1000)
buffer = ctypes.create_string_buffer(4096)
print(*[
    cu("cuMemcpyHtoD_v2", memory, buffer, 1000), cu("cuMemcpyHtoD_v2", memory, buffer, 1001),
    cu("cuMemcpyDtoD_v2", memory, memory + 999, 2), cu("cuMemsetD32_v2", memory + 1, 0, 1),
    cu("cuMemsetD8_v2", memory + 1000, 0, 1), cu("cuMemcpyDtoH_v2", buffer, 12345, 1),
    cu("cuMemFree_v2", memory + 512), cu("cuMemFree_v2", memory), cu("cuMemFree_v2", memory),
    cu("cuMemFree_v2", 0),
])
"""
    )
    assert outcome.stdout == "0 1 1 1 1 1 1 0 1 0\n"
    assert server.names == ["sessionMemMap", "sessionCopyIn", "sessionClose"]


def test_rows_are_packed(server: FakeServer, guest: Guest) -> None:
    guest(
        """
start()
pitch, memory = u64(), u64()
ok("cuMemAllocPitch_v2", byref(memory), byref(pitch), 100, 8, 4)
host = bytes(range(240)) * 2
# srcX, srcY, type, host, device, array, pitch; dst the same; width, height
plane = struct.pack("<QQIxxxxQQQQQQIxxxxQQQQQQ", 5, 1, 1, ctypes.cast(host, ctypes.c_void_p).value, 0, 0, 60,
                    8, 2, 2, 0, memory.value, 0, pitch.value, 7, 3)
ok("cuMemcpy2D_v2", plane)
"""
    )
    copy = next(frame for frame in server.frames if frame.name == "sessionCopyIn")
    host = bytes(range(240)) * 2
    assert struct.unpack_from("<QQQQQ", copy.body) == (0, FIRST + 2 * 512 + 8, 512, 7, 3)
    assert copy.body[40:] == b"".join(host[65 + 60 * row : 72 + 60 * row] for row in range(3))


def test_slices_and_layers_are_asked_for_before_the_first_arrives(server: FakeServer, guest: Guest) -> None:
    """A copy of a volume into the program's memory makes few round trips, however many slices it has."""
    asked: list[Frame] = []

    def together(frame: Frame) -> Answer | None:
        if not frame.name.endswith("Out"):
            return Answer()
        asked.append(frame)
        if len(asked) % 4 == 0:
            for number, late in enumerate(asked[-4:], len(asked) - 4):
                server.reply(late, Answer(body=bytes([number + 1] * 6)))
        return None

    server.answer = together
    server.attributes |= dict.fromkeys((24, 25, 49), 4)  # MAXIMUM_TEXTURE3D_WIDTH, _HEIGHT, _DEPTH_ALTERNATE
    outcome = guest(
        """
start()
memory = made("cuMemAlloc_v2", 160)
array = made("cuArray3DCreate_v2", struct.pack("<QQQIII4x", 3, 2, 4, 1, 1, 0))  # of bytes
for source in (2, memory, 0), (3, 0, array):  # type, device, array
    host = ctypes.create_string_buffer(64)
    target = 1, ctypes.addressof(host), 5, 3  # type, host, pitch, height
    ok("cuMemcpy3D_v2", struct.pack("<32xI4x8xQQ8xQQ32xI4xQ24xQQQQQ", *source, 8, 5, *target, 3, 2, 4))
    print(*host.raw[:60])
"""
    )
    slices = [f"{n} {n} {n} 0 0 {n} {n} {n} 0 0 0 0 0 0 0" for n in range(1, 9)]
    assert outcome.stdout.splitlines() == [" ".join(slices[:4]), " ".join(slices[4:])], outcome.stderr


def test_a_word_is_sent_behind_what_it_tells_of(server: FakeServer, guest: Guest) -> None:
    def zeros(frame: Frame) -> Answer:
        return Answer(
            body=bytes(struct.unpack("<5Q", frame.body)[3]) if frame.name == "sessionCopyOut" else None
        )

    server.answer = zeros
    outcome = guest(
        """
start()
elsewhere = made("cuMemAlloc_v2", 4)
before, data, after = (made("cuMemHostAlloc", size, 2) for size in (4, 3 << 12, 4))
def send(word, *written):
    for address in written:
        ctypes.c_uint32.from_address(address).value = word
    ok("cuStreamWriteValue32_v2", 0, elsewhere, 1, 0)
send(1, before, data, data + 8192, after)
send(2, after, before)
send(3, before, after)
print(before, data, after)
"""
    )
    before, data, after = map(int, outcome.stdout.split())
    copies = [f.body for f in server.frames if f.name == "sessionCopyIn"]
    # By what was written: while the device works, a page may be sent on the way, even before it is written.
    sent: dict[int, list[int]] = {}
    for body in copies:
        to = sent.setdefault(struct.unpack_from("<I", body, 40)[0], [])
        to.append(struct.unpack_from("<QQ", body)[1])
    assert sorted(sent[1][:2]) == [data, data + 8192]
    assert sorted(sent[1][2:4]) == sorted((before, after))
    assert sent[2] == [after, before]
    assert sent[3] == [before, after]
