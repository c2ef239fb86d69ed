"""Tickets by themselves: genuine, for here, fresh, once."""

from __future__ import annotations

import time

import pytest
from gpuferry.monitor.cluster.registry import clocks
from gpuferry.monitor.door import tickets
from gpuferry.specs._generated import registry_pb2
from gpuferry.specs._generated.frames import Ticket
from hypothesis import given
from hypothesis import strategies as st

KEY = b"k" * 64


class Steady:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        return self.now


class Days:
    """The time of day of one machine, which anybody may set."""

    def __init__(self, now: float) -> None:
        self.now = now

    monotonic = staticmethod(time.monotonic)

    def time(self) -> float:
        return self.now


def server(desk: tickets.TicketDesk, sequence: int = 1) -> registry_pb2.Server:
    """A GPU server, as its heartbeat of now shows it."""
    load = registry_pb2.Load(incarnation=desk.incarnation, sequence=sequence, clock=int(desk.clock() * 1000))
    return registry_pb2.Server(alive=True, load=load)


def test_a_ticket_is_good_once_and_not_for_long() -> None:
    steady = Steady()
    desk = tickets.TicketDesk(KEY, steady)
    ticket = tickets.issue(KEY, desk.incarnation, "acme", desk.clock())
    assert desk.read(ticket) == ("acme", tickets.session_key(KEY, ticket))
    assert desk.read(ticket) is not None  # reading is not using: whoever only saw it cannot spoil it
    desk.use(ticket)
    assert desk.read(ticket) is None
    assert not desk.outdated(ticket)
    other = tickets.issue(KEY, desk.incarnation, "acme", desk.clock())
    steady.now += tickets.LIFETIME + 1
    assert desk.read(other) is None
    assert desk.outdated(other)
    third = tickets.issue(KEY, desk.incarnation, "", desk.clock())
    desk.use(third)
    assert desk.read(ticket) is None  # forgotten as used, and expired


def test_a_ticket_is_for_one_start_of_one_monitor() -> None:
    desk, restarted = tickets.TicketDesk(KEY), tickets.TicketDesk(KEY)
    ticket = tickets.issue(KEY, desk.incarnation, "acme", desk.clock())
    assert restarted.read(ticket) is None
    assert restarted.outdated(ticket)
    assert not tickets.TicketDesk(b"x" * 64).outdated(ticket)
    assert tickets.TicketDesk(b"x" * 64).read(ticket) is None


@given(position=st.integers(0, Ticket.SIZE - 1), bit=st.integers(0, 7))
def test_a_changed_ticket_is_no_ticket(position: int, bit: int) -> None:
    desk = tickets.TicketDesk(KEY)
    ticket = bytearray(tickets.issue(KEY, desk.incarnation, "acme", desk.clock()))
    ticket[position] ^= 1 << bit
    assert desk.read(bytes(ticket)) is None
    assert not desk.outdated(bytes(ticket))


@pytest.mark.parametrize("ticket", [b"", b"x", bytes(Ticket.SIZE), bytes(Ticket.SIZE + 1)])
def test_rubbish_is_no_ticket(ticket: bytes) -> None:
    assert tickets.TicketDesk(KEY).read(ticket) is None


def test_those_that_were_used_are_known_until_they_expire() -> None:
    steady = Steady()
    desk = tickets.TicketDesk(KEY, steady)
    ticket = tickets.issue(KEY, desk.incarnation, "acme", desk.clock())
    assert desk.used() == []
    desk.use(ticket)
    steady.now += tickets.LIFETIME - 1
    assert desk.used() == [tickets.number_of(ticket)]
    steady.now += 2
    assert desk.used() == []


def test_each_that_was_used_is_forgotten_when_its_own_time_is_over() -> None:
    """Also behind one that expires later, as a registry whose clock is wrong issues it."""
    steady = Steady()
    desk = tickets.TicketDesk(KEY, steady)
    issued = [
        tickets.issue(KEY, desk.incarnation, "acme", desk.clock() + ahead) for ahead in (3600.0, 0.0, 10.0)
    ]
    for ticket in issued:
        desk.use(ticket)
    left = []
    for _ in range(4):
        left.append({issued.index(ticket) for ticket in issued if tickets.number_of(ticket) in desk.used()})
        steady.now += tickets.LIFETIME + 2 if len(left) != 2 else 3600
    assert left == [{0, 1, 2}, {0, 2}, set(), set()]
    assert desk.read(issued[2]) is None


@pytest.mark.parametrize("here", [-3600.0, 0.0, 3600.0])
@pytest.mark.parametrize("there", [-3600.0, 3600.0])
def test_no_time_of_day_makes_them_live_longer_or_shorter(
    monkeypatch: pytest.MonkeyPatch, here: float, there: float
) -> None:
    """The registry's is wrong by so much, and the GPU server's is set when it runs, before and after use.
    All fail where tickets are taken by the time of day.
    """
    day = Days(1.7e9)
    monkeypatch.setattr(tickets, "time", day)
    monkeypatch.setattr(clocks, "time", Days(1.7e9 + here))
    steady, elsewhere = Steady(), Steady()
    desk, known = tickets.TicketDesk(KEY, steady), clocks.Clocks(elsewhere)
    day.now += there
    seen = server(desk)
    known.note([seen])
    steady.now += 2
    elsewhere.now += 2
    used, early, late = (tickets.issue(KEY, desk.incarnation, "", known.of(seen)) for _ in range(3))
    assert desk.read(used)
    desk.use(used)
    day.now -= there
    steady.now += tickets.LIFETIME - 1
    assert desk.read(early)
    assert desk.read(used) is None
    steady.now += 2
    assert desk.outdated(late)
    for moment in (day.now - 3600, day.now + 3600):
        day.now = moment
        desk.used()
        assert desk.read(used) is None


def test_what_a_servers_clock_shows_is_its_newest_heartbeat_and_the_time_since() -> None:
    steady, elsewhere = Steady(), Steady()
    desk, known = tickets.TicketDesk(KEY, steady), clocks.Clocks(elsewhere)
    first = server(desk)
    known.note([first])
    steady.now += 1.5
    elsewhere.now += 1.5
    known.note([first])  # another server's heartbeat made the view new
    assert known.of(first) == pytest.approx(desk.clock(), abs=0.01)
    steady.now += 100  # heartbeats were late, or the registry's machine slept
    second = server(desk, 2)
    assert known.of(second) == pytest.approx(desk.clock(), abs=0.01)  # read before the view has it
    known.note([second])
    elsewhere.now += 1
    assert known.of(second) == pytest.approx(desk.clock() + 1, abs=0.01)
    restarted = tickets.TicketDesk(KEY, Steady())
    assert known.of(server(restarted)) == pytest.approx(restarted.clock(), abs=0.01)
