"""Sessions whose guests do nothing: they cost memory, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.adversity.sessions import PAGE, Bystander, session
from tests.apiserver.guest import Guest
from tests.load.footprint import naps, processor_seconds, proportional
from tests.monitor import harness

GIB = 1 << 30
PER_SERVER = 16 << 20  # bytes
OBSERVED = 20.0  # seconds
REST_SECONDS = 3.0


@contextmanager
def crowd(pool: int, guests: int) -> Iterator[tuple[harness.Monitor, list[Guest]]]:
    """Guests that have each used their session a little."""
    with ExitStack() as stack:
        monitor = stack.enter_context(
            harness.monitor(
                *("--pool", str(pool), "--log-level", "warning"),
                server=None,
                GPUFERRY_SIM_CODE="skip",
                GPUFERRY_SIM_MEMORY=str(1024 * GIB),
            )
        )
        monitor.wait_idle(pool, 1200)
        found = [stack.enter_context(session(monitor, memory=8 * PAGE)) for _ in range(guests)]
        for guest in found:
            Bystander(guest)
            assert guest.sync().status == 0
        yield monitor, found


def servers_of(monitor: harness.Monitor, guests: list[Guest]) -> list[int]:
    """Processes, once no thread of theirs runs: those that run work of the device retire after a second."""
    numbers = {guest.session for guest in guests}
    pids = [s.server_pid for s in monitor.status().sessions if s.id in numbers]
    assert len(pids) == len(guests)

    def at_rest() -> bool:
        try:
            before = [naps(pid) for pid in pids]
            time.sleep(REST_SECONDS)
            return [naps(pid) for pid in pids] == before
        except (FileNotFoundError, ProcessLookupError):  # a thread retired while it was looked at
            return False

    harness.wait_until(at_rest, "API servers at rest")
    return pids


def test_an_idle_session_wakes_nobody() -> None:
    with crowd(3, 3) as (monitor, guests):
        servers_of(monitor, guests)
        for guest in guests:
            assert guest.sync().status == 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_thousand_guests_of_which_most_are_idle() -> None:
    count, active = 1000, 50
    if available() < count * PER_SERVER:
        pytest.skip(f"{count} API servers need {count * PER_SERVER / GIB:.0f} GiB of free memory")
    with crowd(count, count) as (monitor, guests):
        busy = [Bystander(guest) for guest in guests[:active]]
        idle = servers_of(monitor, guests[active:])
        before = sum(map(processor_seconds, idle)), processor_seconds(monitor.process.pid)
        began = time.monotonic()
        while time.monotonic() < began + OBSERVED:
            for guest in busy:
                guest.is_fine()
        took = time.monotonic() - began
        spent = sum(map(processor_seconds, idle)) - before[0]
        monitors = processor_seconds(monitor.process.pid) - before[1]
        memory = sum(map(proportional, idle)) / len(idle)
        print(
            f"{len(idle)} idle sessions: {100 * spent / took:.3f} % of a core, "
            f"{memory / (1 << 20):.1f} MiB each; the monitor: {100 * monitors / took:.3f} %"
        )
        assert spent + monitors < took / 100


def available() -> int:
    """Bytes of memory that nobody uses."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) << 10
