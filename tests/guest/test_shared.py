"""Memory that program and device share, where something else is in its place, or before there is any."""

from __future__ import annotations

import struct

from tests.guest.conftest import Guest
from tests.guest.fake_server import Answer, FakeServer, Frame

OUT_OF_MEMORY = 2
PAGE = 4096


def numbers(frame: Frame) -> Answer:
    """Each page that is fetched is full of its number."""
    if frame.name != "sessionCopyOut":
        return Answer()
    _, address, size = struct.unpack_from("3Q", frame.body)
    pages = range(address // PAGE, (address + size) // PAGE)
    return Answer(body=b"".join(struct.pack("Q", page) * (PAGE // 8) for page in pages))


def test_what_a_program_has_where_the_window_would_be_stays_its_own(guest: Guest) -> None:
    outcome = guest(
        f"""
import mmap
from tests.guest.fake_server import FIRST

SIZE = 16 << 20
libc = ctypes.CDLL(None)
libc.mmap.restype = u64
own = libc.mmap(u64(FIRST), u64(SIZE), 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100000, -1, u64(0))
assert own == FIRST
libc.memset(u64(own), 0x5A, u64(SIZE))
start()
assert cu("cuMemAllocManaged", byref(u64()), 4096, 1) == {OUT_OF_MEMORY}
assert cu("cuMemHostAlloc", byref(u64()), 4096, 2) == {OUT_OF_MEMORY}
plain = made("cuMemHostAlloc", 4096, 0)
assert not own <= plain < own + SIZE
libc.memset(u64(plain), 1, u64(4096))
ok("cuMemFreeHost", plain)
assert ctypes.string_at(own, SIZE) == bytes([0x5A]) * SIZE
"""
    )
    assert outcome.status == 0, outcome.stderr
    assert "taken in this process" in outcome.stderr


def test_where_the_window_is_not_to_be_had_its_parts_are(guest: Guest) -> None:
    """`ulimit -v` allows no window of TiB: a program had no managed memory, and was told it was taken."""
    outcome = guest(
        """
import resource
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
start()
def used(name, *arguments):
    memory = made(name, *arguments)
    u32.from_address(memory).value += 1
    return memory, u32.from_address(memory).value
for _ in range(2):
    managed, mapped = used("cuMemAllocManaged", 4096, 1), used("cuMemHostAlloc", 4096, 2)
    plain = used("cuMemHostAlloc", 4096, 0)
    print(managed[1], mapped[1], plain[1])
    ok("cuMemFree_v2", managed[0])
    ok("cuMemFreeHost", mapped[0])
    ok("cuMemFreeHost", plain[0])
resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 8 << 30))
print(cu("cuMemAllocManaged", byref(u64()), 1 << 20, 1))
"""
    )
    assert outcome.stdout == "1 1 1\n1 1 1\n2\n", outcome
    assert "ulimit -v" in outcome.stderr


def test_memory_that_comes_while_the_device_works_disturbs_no_descriptor(guest: Guest) -> None:
    """A word that is written then is exchanged at once, by a thread that there is by then."""
    outcome = guest(
        """
import socket

ours, theirs = socket.socketpair()
os.dup2(theirs.fileno(), 0)
start()
ok("cuMemFree_v2", made("cuMemAllocManaged", 4096, 1))
ok("cuStreamWriteValue32_v2", 0, made("cuMemAlloc_v2", 4), 1, 0)
word = u32.from_address(made("cuMemAllocManaged", 4096, 1))
word.value = 1
ok("cuStreamQuery", 0)
word.value = 2
ours.setblocking(False)
try:
    raise AssertionError(ours.recv(64))
except BlockingIOError:
    pass
"""
    )
    assert (outcome.status, outcome.stderr) == (0, "")


def test_many_small_allocations_are_fetched_together_and_freed_without_a_wait(
    server: FakeServer, guest: Guest
) -> None:
    """Each of a list's nodes cost a round trip when it was looked at and two when it was freed."""
    server.answer = numbers
    outcome = guest(
        f"""
start()
nodes = [made("cuMemAllocManaged", 8, 1) for _ in range(256)]
ok("cuMemsetD32_v2", nodes[0], 7, 2)
ok("cuCtxSynchronize")
before = stats()["round_trips"]
for each in (*nodes[128:], *reversed(nodes[:128])):
    assert u64.from_address(each).value == each // {PAGE}
    u64.from_address(each).value = 1
fetched = stats()["round_trips"] - before
for each in nodes:
    ok("cuMemFree_v2", each)
print(fetched, stats()["round_trips"] - before - fetched)
"""
    )
    assert outcome.stdout == "6 0\n", outcome


def test_while_the_device_works_one_allocation_brings_no_other(server: FakeServer, guest: Guest) -> None:
    """The program may poll one for a sign that the other is written."""
    server.answer = numbers
    outcome = guest(
        f"""
start()
word, data = made("cuMemAllocManaged", 8, 1), made("cuMemAllocManaged", 8, 1)
assert abs(data - word) == {PAGE}
ok("cuMemsetD32Async", word, 7, 2, made("cuStreamCreate", 1))
print(*(u64.from_address(each).value - each // {PAGE} for each in (word, data)))
"""
    )
    assert outcome.stdout == "0 0\n", outcome
    fetched = [frame for frame in server.frames if frame.name == "sessionCopyOut"]
    assert {struct.unpack_from("3Q", frame.body)[2] for frame in fetched} == {PAGE}


def test_work_that_another_thread_gives_during_a_wait_is_waited_for_by_a_free(
    server: FakeServer, guest: Guest
) -> None:
    waiting: list[Frame] = []

    def answer(frame: Frame) -> Answer | None:
        if frame.name == "cuCtxSynchronize" and not waiting:
            waiting.append(frame)
            return None
        if frame.name == "cuStreamQuery" and len(waiting) == 1:
            server.reply(waiting[0], Answer())
            waiting.append(frame)
        return Answer()

    server.answer = answer
    outcome = guest(
        """
start()
context, stream = made("cuDevicePrimaryCtxRetain", 0), made("cuStreamCreate", 1)
memory, waited = made("cuMemAllocManaged", 8, 1), []

def gives():
    ok("cuCtxSetCurrent", context)
    while not waited:
        ok("cuMemsetD32Async", memory, 7, 2, stream)
        ok("cuStreamQuery", stream)

thread = threading.Thread(target=gives)
thread.start()
waited.append(cu("cuCtxSynchronize"))
thread.join()
ok("cuMemFree_v2", memory)
"""
    )
    assert outcome.status == 0, outcome
    assert server.names.count("cuCtxSynchronize") == 2
