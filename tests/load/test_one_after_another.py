"""Many sessions, one after another: the last finds everything as the first did."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable, Iterator

import pytest

from tests.adversity.sessions import PAGE, open_session
from tests.apiserver import kernels
from tests.apiserver.guest import Guest, handle
from tests.load.footprint import Footprint, footprint
from tests.monitor import harness

POOL = 2
DEVICE = 64 << 20  # so little that no leak of device memory would go unnoticed
WARM = 40  # sessions, and a fifth of many: only when they come fast do timers and allocators have their size
SETTLED = 60.0  # seconds
ALLOWED = 1 << 20  # bytes of memory, all processes together: an allocator is never quite the same


@pytest.fixture(scope="module")
def monitor() -> Iterator[harness.Monitor]:
    with harness.monitor("--pool", str(POOL), server=None, GPUFERRY_SIM_MEMORY=str(DEVICE)) as running:
        running.wait_idle(POOL)
        yield running


def copies(guest: Guest) -> None:
    """All of its memory, written and read."""
    pages = guest.quota // PAGE
    address = guest.map(pages)
    for page in range(pages):
        guest.write(address + page * PAGE, bytes([page]) * 4096)
    assert guest.read(address + (pages - 1) * PAGE, 4096) == bytes([pages - 1]) * 4096
    guest.close()


def streams(guest: Guest) -> None:
    """Streams and events, none of which it destroys."""
    for slot in range(20):
        guest.send("cuStreamCreateWithPriority", phStream=handle("stream", slot), flags=1, priority=0)
        guest.write(guest.map(1, at=slot % 4), b"abc", handle("stream", slot))
        guest.send("sessionMemUnmap", address=guest.window + slot % 4 * PAGE, size=PAGE)
    assert guest.sync().status == 0
    guest.close()


def launches(guest: Guest) -> None:
    address = guest.map()
    guest.write(address, struct.pack("<I", 6))
    guest.launch(kernels.bind(guest, "scale"), struct.pack("<QI", address, 7), block=(1, 1, 1))
    assert guest.read(address, 4) == struct.pack("<I", 42)
    guest.close()


def vanishes(guest: Guest) -> None:
    """In the middle of a copy."""
    address = guest.map(4)
    guest.write(address, bytes(PAGE))
    guest.ask_read(address, PAGE)
    guest.socket.close()


def breaks_the_protocol(guest: Guest) -> None:
    guest.map(2)
    guest.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert guest.expect_end().reason == 7


KINDS: tuple[Callable[[Guest], None], ...] = (copies, streams, launches, vanishes, breaks_the_protocol)


def many(monitor: harness.Monitor, count: int, chance: random.Random) -> None:
    """So many sessions, until the pool is whole again."""
    for _ in range(count):
        guest = open_session(monitor)
        with guest.socket:
            chance.choice(KINDS)(guest)
    monitor.wait_idle(POOL)


@pytest.mark.system
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(100, id="100"),
        pytest.param(10_000, id="10000", marks=pytest.mark.timeout(1800)),
    ],
)
def test_many_sessions_leave_everything_as_it_was(monitor: harness.Monitor, count: int) -> None:
    chance = random.Random(count)
    many(monitor, max(WARM, count // 5), chance)
    before = harness.wait_until(lambda: quiet(monitor), "threads to retire")
    many(monitor, count, chance)
    # What is about to be gone goes; what leaked stays.
    after = eventually(monitor, before)
    print(f"{count} sessions: {(after.memory - before.memory) >> 10:+} KiB of {before.memory >> 10} KiB")
    assert not after.growth(before)
    assert after.memory <= before.memory + ALLOWED
    assert monitor.status().devices[0].memory_granted == 0


def quiet(monitor: harness.Monitor) -> Footprint | None:
    """Once threads that run work of the device have retired."""
    try:
        now = footprint(monitor.process.pid)
    except (FileNotFoundError, ProcessLookupError):  # something ended while it was looked at
        return None
    servers = {server.pid for server in monitor.status().servers}
    return now if all(now.threads.get(pid, 3) <= 2 for pid in servers) else None


def eventually(monitor: harness.Monitor, before: Footprint) -> Footprint:
    """The first that is as it was before, or the last of many."""
    last: list[Footprint] = []

    def as_before() -> bool:
        last[:] = [harness.wait_until(lambda: quiet(monitor), "threads to retire")]
        return not last[0].growth(before)

    with contextlib.suppress(AssertionError):
        harness.wait_until(as_before, "all as it was", SETTLED)
    return last[0]
