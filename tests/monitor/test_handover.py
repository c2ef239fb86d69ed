"""When the guests of a crowd are handed over: broker/handover.py, without processes and without a clock."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpuferry.monitor.broker import handover
from gpuferry.monitor.broker.handover import HandOver
from gpuferry.monitor.door.handshake import Hello, Restore
from gpuferry.monitor.pool.channel import ChannelBroken
from gpuferry.monitor.service.patience import HEARD_SECONDS, Patience
from gpuferry.monitor.sessions.decision import Placement
from gpuferry.monitor.sessions.session import Session
from gpuferry.monitor.settings.monitor import Config
from gpuferry.monitor.tenants.tenancy import Tenancy


class Server:
    """An API server that takes whom it is given, unless its channel is broken."""

    def __init__(self, key: int, broken: bool = False) -> None:
        self.key, self.pid, self.broken, self.killed = key, 1000 + key, broken, False
        self.granted: list[int] = []

    def send(self, message: Any, connection: Any) -> None:
        if self.broken:
            raise ChannelBroken("gone")
        self.granted.append(message.grant.session)

    def kill(self, reason: str = "") -> None:
        self.killed = True


class Guest:
    welcome_proof, resume_key = bytes(32), bytes(32)

    def __init__(self, told: list[bytes]) -> None:
        self.connection = SimpleNamespace(setblocking=lambda _: None)
        self._told = told

    def welcome(self, frame: bytes) -> None:
        self._told.append(frame)


def granted(number: int, server: Server, **hello: Any) -> Any:
    guest: Any = Guest([])
    fields: dict[str, Any] = {
        "nonce": bytes(32),
        "pid": 1,
        "memory": 0,
        "tenant": "",
        "function": "",
        "program": "",
    }
    session: Any = Session(number, Hello(**(fields | hello)), "unix", guest)
    session.placement, session.server = Placement(number, 0, server.key, 1 << 20), server
    return session


@pytest.fixture
def made(tmp_path: Path) -> HandOver:
    config = Config(runtime=tmp_path, token=b"", simulated=True, devices=1, wall_limit=60.0)
    return HandOver(config, Tenancy({}), lambda server, grant: None, {})


def run(act: Any) -> None:
    async def main() -> None:
        act()

    asyncio.run(main())


def test_one_that_is_alone_is_handed_over_when_the_door_is_quiet(made: HandOver) -> None:
    server = Server(1)

    def act() -> None:
        made.grant(granted(7, server))
        made.flush_in_a_hush()
        assert server.granted == []
        made.quiet()
        assert server.granted == [7]

    run(act)


def test_several_wait_for_a_hush_and_go_in_the_order_in_which_they_came(made: HandOver) -> None:
    order: list[int] = []
    one, two = Server(1), Server(2)
    one.granted = two.granted = order

    def act() -> None:
        made.grant(granted(7, two))
        made.grant(granted(8, one))
        made.quiet()
        assert order == []
        made.flush()
        assert order == [7, 8]

    run(act)


def test_a_hush_comes_by_itself(made: HandOver) -> None:
    servers = [Server(1), Server(2)]

    async def main() -> None:
        for server in servers:
            made.grant(granted(server.key, server))
        made.flush_in_a_hush()
        while not all(server.granted for server in servers):
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(main(), 120))


def test_guests_that_come_without_end_hold_nobody_up_for_ever(
    made: HandOver, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(handover, "time", SimpleNamespace(monotonic=lambda: now))
    server, other = Server(1), Server(2)

    async def main() -> None:
        nonlocal now
        for number, each in ((7, server), (8, other)):
            session = granted(number, each)
            session.phase_began = now
            made.grant(session)
        made.arrived(now)
        made._look()
        assert (server.granted, other.granted) == ([], [])  # somebody has just come
        now += handover.WAIT_SECONDS
        made.arrived(now)
        made._look()
        assert (server.granted, other.granted) == ([7], [8])

    asyncio.run(main())


def test_what_a_dead_api_server_was_granted_is_not_handed_over(made: HandOver) -> None:
    server = Server(1)

    def act() -> None:
        made.grant(granted(7, server))
        made.forget(server.key)
        made.flush()
        assert server.granted == []

    run(act)


def test_an_api_server_that_cannot_be_told_ends(made: HandOver) -> None:
    server, session = Server(1, broken=True), None

    def act() -> None:
        nonlocal session
        session = granted(7, server)
        made.grant(session)
        made.flush()

    run(act)
    assert server.killed
    assert session
    assert session.timer is None  # its end brings the session back; nobody waits for it to start


@pytest.mark.parametrize(("asked", "limit"), [(0.0, 60.0), (10.0, 10.0), (90.0, 60.0)])
def test_of_two_limits_the_shorter_holds(made: HandOver, asked: float, limit: float) -> None:
    session = granted(7, Server(1), wall_limit=asked)

    def act() -> None:
        made.grant(session)
        made.flush()
        session.stop_timer()

    run(act)
    assert session.grant.wall_seconds == limit


def test_the_limit_of_a_program_counts_from_its_start_elsewhere_and_not_in_a_file(made: HandOver) -> None:
    """Who came from another GPU server had all of its time again; who forked after a suspension had none."""
    first = granted(7, Server(1), restore=Restore(3, 20.0))
    more = granted(8, Server(2), restore=Restore(4, 5.0))
    later = granted(9, Server(3))
    for joins in (more, later):
        joins.lease = first.lease
        first.lease.joining.append(joins.id)
        first.lease.take_seat(joins.id)
    first.lease.sharing.clear()

    def act() -> None:
        for session in (first, more):
            made.grant(session)
        made.flush()
        first.suspend("file", b"")
        first._suspended_at -= 30.0  # which pass for the lease too
        first.lease.began -= 30.0
        first.unsuspend()
        made.grant(later)
        made.flush()
        for session in (first, more, later):
            session.stop_timer()

    run(act)
    limits = [session.grant.wall_seconds for session in (first, more, later)]
    assert limits == pytest.approx([60.0, 45.0, 40.0], abs=4.0)
    assert [session.grant.age_seconds for session in (first, more, later)] == [20.0, 5.0, 0.0]


def test_welcomes_go_out_before_the_sockets(made: HandOver) -> None:
    told: list[bytes] = []
    guest: Any = Guest(told)

    def act() -> None:
        made.welcome(guest, b"one")
        made.welcome(guest, b"two")
        assert told == []
        made.send_welcomes()
        made.send_welcomes()
        assert told == [b"one", b"two"]

    run(act)


def test_an_api_server_has_its_time_to_begin_on_a_machine_with_too_much_to_do(
    made: HandOver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for a processor for most of the time. Killed, it would only be begun anew."""
    now, starved = 0.0, 0.0
    timers: list[Any] = []
    loop = SimpleNamespace(call_later=lambda *timer: timers.append(timer))
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    server = Server(1)
    session = granted(7, server)
    made._mind_start(session, Patience(server.pid, 10.0, lambda: now, lambda _: starved))

    def look(at: float, waited: float) -> float:
        """Whose turn it is. Returns when it looks again."""
        nonlocal now, starved
        now, starved = at, waited
        (_, call, *arguments) = timers.pop()
        call(*arguments)
        return timers[-1][0] if timers else 0.0

    assert timers[-1][0] == 10.0
    assert look(10.0, 9.0) == 9.0
    assert look(19.0, 9.0) == HEARD_SECONDS  # in which what it has said is heard
    assert look(19.2, 14.2) == pytest.approx(5.0)
    assert look(24.2, 14.2) == HEARD_SECONDS
    assert not server.killed
    assert look(24.4, 14.2) == 0.0
    assert server.killed


def test_nobody_has_for_ever_to_begin() -> None:
    now, starved = 0.0, 0.0
    patience = Patience(1, 10.0, lambda: now, lambda _: starved)
    now = starved = 119.0
    assert patience.left() == 1.0
