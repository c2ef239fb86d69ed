"""Memory that program and device share, where something else is in its place, or before there is any."""

from __future__ import annotations

from tests.guest.conftest import Guest

OUT_OF_MEMORY = 2


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
