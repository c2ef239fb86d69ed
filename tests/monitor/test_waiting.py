"""Places in the queue, of a crowd."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from gpuferry.monitor.broker.waiting import WaitingRoom
from gpuferry.monitor.door.handshake import Hello
from gpuferry.monitor.policy.build import build
from gpuferry.monitor.policy.interface import Request
from gpuferry.monitor.sessions.session import Session


def test_a_crowd_whose_time_is_over_is_looked_at_once() -> None:
    """Of a thousand that came at once each one's place was sought among all when their time was over, so that
    for seconds the monitor did nothing else.
    """
    looks = 0
    sessions = {
        number: Session(number, Hello(b"", 1, 0, f"tenant-{number % 2}", "", "p"), "unix", None)
        for number in range(1, 101)
    }

    def waiting() -> list[int]:
        nonlocal looks
        looks += 1
        return list(sessions)

    async def main() -> None:
        placer: Any = SimpleNamespace(waiting=waiting)
        nothing: Any = None
        room = WaitingRoom(placer, sessions, 60.0, nothing, nothing)
        places = [room.place(session) for session in sessions.values()]
        assert places == [((number + 1) // 2, 50) for number in sessions]
        assert looks == 1
        await asyncio.sleep(0)
        del sessions[1]
        assert room.place(sessions[3]) == (1, 49)
        assert looks == 2

    asyncio.run(main())


def test_who_waits_is_found_without_a_look_at_all() -> None:
    for queue in ("fcfs", "backfill"):
        policy = build(queue=queue)
        for number in range(4):
            policy.on_arrival(Request(number, 1, tenant=f"tenant-{number % 2}"), 0.0)
        policy.on_leave(2)
        assert [policy.find(number) is None for number in range(5)] == [False, False, True, False, True]
