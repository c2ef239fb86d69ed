"""What is remembered, and for how long."""

from __future__ import annotations

from gpuferry.monitor.views.stats import history
from gpuferry.monitor.views.stats.history import History
from gpuferry.specs._generated import control_pb2


def device(ordinal: int, used: int | None) -> control_pb2.Device:
    made = control_pb2.Device(ordinal=ordinal, memory_granted=5)
    if used is not None:
        made.memory_used = used
    return made


def test_points_and_gaps() -> None:
    kept = History()
    kept.add(1.0, [device(0, 10)])
    kept.add(2.0, [device(0, None)])
    kept.add(3.0, [device(0, 30), device(1, 1)])  # a device that came later
    everything = kept.all()
    assert everything["times"] == [1.0, 2.0, 3.0]
    assert everything["devices"]["0"]["memory_used"] == [10, None, 30]
    assert everything["devices"]["0"]["utilization"] == [None, None, None]
    assert everything["devices"]["1"]["memory_used"] == [None, None, 1]
    assert kept.latest()["devices"]["1"] == {
        "memory_used": 1,
        "memory_granted": 5,
        "memory_resident": 0,
        "memory_in_host": 0,
        "memory_on_disk": 0,
        "utilization": None,
        "shares": None,
    }


def test_shares_of_sessions_come_and_go() -> None:
    kept = History()
    told = device(0, 10)
    told.turns.shares.add(session=7, share=0.3004)
    kept.add(1.0, [told])
    told.turns.shares.add(session=2**40, share=0.25)
    kept.add(2.0, [told])
    del told.turns.shares[:]
    kept.add(3.0, [told])
    assert kept.all()["devices"]["0"]["shares"] == [[7, 300], [7, 300, 2**40, 250], []]


def test_it_is_bounded() -> None:
    kept = History()
    for second in range(history.POINTS + 50):
        kept.add(float(second), [device(0, second)])
    everything = kept.all()
    assert len(everything["times"]) == history.POINTS
    assert everything["times"][0] == everything["devices"]["0"]["memory_used"][0] == 50
