"""The simulator's GPU that holds not all of its sessions, with the real arbiter and choice of who leaves."""

from __future__ import annotations

import pytest
from gpuferry.monitor.policy.quota import Fixed
from gpuferry.monitor.policy.sharing import SECOND
from gpuferry.monitor.policy.timeshare import TimeSharing
from gpuferry.monitor.policy.tokens import Client
from gpuferry.monitor.simulator import kubeshare
from gpuferry.monitor.simulator.residency import Memory, measured_bandwidth
from gpuferry.monitor.simulator.tokens import Busy, SharedGpu, shares

GIB = 1 << 30


def turns() -> TimeSharing:
    return TimeSharing(10 * SECOND, Fixed(SECOND // 10), 0)


def crowd(number: int, end: float = 60.0) -> list[Busy]:
    return [Busy(Client(1 + each), 0, end, GIB) for each in range(number)]


def test_what_fits_is_never_copied() -> None:
    gpu = SharedGpu(turns(), Memory(2 * GIB, 1e9))
    gpu.run(crowd(2))
    assert gpu.residence
    assert gpu.residence.copied == 0
    assert sum(end - begin for _, begin, end in gpu.turns) == 60 * SECOND


@pytest.mark.parametrize(("fitting", "at_work"), [(1.5, 0.75), (2.0, 0.99)])
def test_copies_take_no_more_than_a_quarter(fitting: float, at_work: float) -> None:
    """And nothing where another one's memory comes during a turn."""
    ((*had,),) = shares(turns(), crowd(3), [(0.0, 60.0)], Memory(int(fitting * GIB), 10e9))
    assert sum(had) == pytest.approx(at_work, abs=0.01)
    assert max(had) - min(had) <= 0.02


def test_the_more_slowly_memory_moves_the_less_is_worked() -> None:
    parts = [
        sum(shares(turns(), crowd(3), [(0.0, 60.0)], Memory(3 * GIB // 2, bandwidth))[0])
        for bandwidth in (0.5e9, 1e9, 2e9, 10e9)
    ]
    assert parts == sorted(parts)
    assert parts[0] < 0.5 < parts[-1]


def test_who_ends_makes_room() -> None:
    (one, *_), other = crowd(1, end=10.0), Busy(Client(9), 0, 20, GIB)
    gpu = SharedGpu(turns(), Memory(GIB, 1e9))
    gpu.run([one, other])
    last = [end - begin for session, begin, end in gpu.turns if session == 9 and begin >= 10 * SECOND]
    assert sum(last) >= 8 * SECOND


def test_the_bandwidth_is_measured_and_counts() -> None:
    assert measured_bandwidth() > 0
    slow, fast = (list(kubeshare.residency(bandwidth)) for bandwidth in (1e9, 20e9))
    assert all(one.holds for one in (*slow, *fast))
    assert sum(one.simulated for one in slow) < sum(one.simulated for one in fast)
