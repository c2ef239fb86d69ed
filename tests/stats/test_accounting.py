"""Counters over sessions: nothing twice, nothing lost, never backwards."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from gpuferry.monitor.views.stats.accounting import Accounting
from gpuferry.specs._generated import node_pb2, wire

MISSED = min(wire.UNSUPPORTED)


def stats(session: int, calls: int) -> node_pb2.Stats:
    return node_pb2.Stats(session=session, calls_async=calls, bytes_in=10 * calls)


def server(key: int = 1) -> Any:
    return SimpleNamespace(key=key, session=0, stats=node_pb2.Stats())


def ended(session: int, calls: int) -> node_pb2.SessionEnded:
    return node_pb2.SessionEnded(session=session, clean=True, stats=stats(session, calls))


def test_a_session_counts_once() -> None:
    accounting = Accounting()
    one = server()
    one.session = 1
    for calls in (5, 5, 9):
        one.stats = stats(1, calls)
        accounting.count(one)
    assert accounting.totals["calls_async"] == 9
    accounting.session_ended(one, ended(1, 12))
    assert accounting.totals["calls_async"] == 12
    assert accounting.totals["bytes_in"] == 120
    # The answer of before the end is still lying there; the next session has not been asked yet.
    one.session = 0
    accounting.count(one)
    accounting.server_ready(one)
    accounting.count(one)
    one.session = 2
    accounting.count(one)
    assert accounting.totals["calls_async"] == 12
    one.stats = stats(2, 3)
    accounting.count(one)
    assert accounting.totals["calls_async"] == 15


def test_one_that_nobody_asked_about_counts_at_its_end() -> None:
    accounting = Accounting()
    one = server()
    for session in (1, 2):
        one.session = session
        accounting.session_ended(one, ended(session, 4))
        one.session = 0
    assert accounting.totals["calls_async"] == 8


def test_figures_of_another_session_are_not_heard() -> None:
    """Nothing that the other calls would count from then on, and each number would be remembered for good."""
    accounting = Accounting()
    one, other = server(), server(2)
    one.session, other.session = 1, 2
    accounting.session_ended(one, node_pb2.SessionEnded(session=1, clean=True, stats=stats(2, 1000)))
    other.stats = stats(2, 7)
    accounting.count(other)
    assert accounting.totals["calls_async"] == 7


def test_a_server_that_dies_keeps_what_it_said_last() -> None:
    accounting = Accounting()
    one = server()
    one.session, one.stats = 1, stats(1, 6)
    accounting.server_lost(one)
    assert accounting.totals["calls_async"] == 6


def calls(succeeded: int, failed: int = 0, session: int = 1) -> node_pb2.Stats:
    return node_pb2.Stats(
        session=session,
        calls=[
            node_pb2.Calls(
                operation=14, succeeded=succeeded, failed=failed, timed=succeeded, seconds=succeeded
            )
        ],
        unsupported=[node_pb2.Unsupported(function=MISSED, calls=failed)],
    )


def test_operations_count_once() -> None:
    accounting = Accounting()
    one = server()
    one.session = 1
    for stats_now in (calls(2), calls(2), calls(5, failed=3), calls(5, failed=4)):
        one.stats = stats_now
        accounting.count(one)
    counted = accounting.calls
    assert (counted.succeeded[14], counted.failed[14], counted.timed[14]) == (5, 4, 5)
    assert counted.seconds[14] == 5.0
    assert counted.unsupported[MISSED] == 4
    two = server(key=2)
    two.session, two.stats = 2, calls(1, failed=1, session=2)
    accounting.count(two)
    assert (counted.succeeded[14], counted.failed[14], counted.unsupported[MISSED]) == (6, 5, 5)


def test_numbers_of_no_operation_take_no_memory() -> None:
    accounting = Accounting()
    one = server()
    for session in (1, 2):
        made_up = range(10**6 * session, 10**6 * session + 1000)
        invented = node_pb2.Stats(
            session=session,
            calls=[node_pb2.Calls(operation=number, succeeded=1) for number in made_up],
            unsupported=[node_pb2.Unsupported(function=number, calls=1) for number in made_up],
        )
        one.session = session
        accounting.session_ended(one, node_pb2.SessionEnded(session=session, stats=invented))
        accounting.forget(session)
    counted = accounting.calls
    assert [len(found) for found in (counted.succeeded, counted.seconds, counted.unsupported)] == [0, 0, 0]


def test_a_session_that_moves_counts_once() -> None:
    accounting = Accounting()
    one, two = server(), server(key=2)
    one.session, one.stats = 1, calls(5)
    accounting.count(one)
    one.session, two.session, two.stats = 0, 1, calls(7)
    accounting.count(two)
    one.stats = calls(6)  # an answer that was on its way
    accounting.count(one)
    accounting.count(two)
    assert accounting.calls.succeeded[14] == 7


def test_a_session_from_another_server_was_counted_there() -> None:
    async def main() -> Accounting:
        accounting = Accounting(lambda session: session == 1)
        one = server()
        one.session = 1

        async def refresh_stats(limit: float) -> None:
            one.stats = calls(1000)

        one.refresh_stats = refresh_stats
        accounting.taken_over(one, 1)
        await asyncio.sleep(0)
        await asyncio.gather(*accounting._asking)
        assert accounting.calls.succeeded[14] == 0
        accounting.session_ended(one, node_pb2.SessionEnded(session=1, stats=calls(1003)))
        return accounting

    accounting = asyncio.run(main())
    assert accounting.calls.succeeded[14] == 3
    assert accounting.totals["calls_async"] == 0
