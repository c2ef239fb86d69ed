"""Tickets by themselves: genuine, for here, fresh, once."""

from __future__ import annotations

import pytest
from gpuferry.monitor.door import tickets
from gpuferry.specs._generated.frames import Ticket
from hypothesis import given
from hypothesis import strategies as st

KEY = b"k" * 64


def test_a_ticket_is_good_once_and_not_for_long() -> None:
    now = 1000.0
    desk = tickets.TicketDesk(KEY, lambda: now, lambda: now)
    ticket = tickets.issue(KEY, desk.incarnation, "acme", now)
    assert desk.read(ticket) == ("acme", tickets.session_key(KEY, ticket))
    assert desk.read(ticket) is not None  # reading is not using: whoever only saw it cannot spoil it
    desk.use(ticket)
    assert desk.read(ticket) is None
    assert not desk.outdated(ticket)
    other = tickets.issue(KEY, desk.incarnation, "acme", now)
    now += tickets.LIFETIME + 1
    assert desk.read(other) is None
    assert desk.outdated(other)
    third = tickets.issue(KEY, desk.incarnation, "", now)
    desk.use(third)
    assert desk.read(ticket) is None  # forgotten as used, and expired


def test_a_ticket_is_for_one_start_of_one_monitor() -> None:
    desk, restarted = tickets.TicketDesk(KEY), tickets.TicketDesk(KEY)
    ticket = tickets.issue(KEY, desk.incarnation, "acme")
    assert restarted.read(ticket) is None
    assert restarted.outdated(ticket)
    assert not tickets.TicketDesk(b"x" * 64).outdated(ticket)
    assert tickets.TicketDesk(b"x" * 64).read(ticket) is None


@given(position=st.integers(0, Ticket.SIZE - 1), bit=st.integers(0, 7))
def test_a_changed_ticket_is_no_ticket(position: int, bit: int) -> None:
    desk = tickets.TicketDesk(KEY)
    ticket = bytearray(tickets.issue(KEY, desk.incarnation, "acme"))
    ticket[position] ^= 1 << bit
    assert desk.read(bytes(ticket)) is None
    assert not desk.outdated(bytes(ticket))


@pytest.mark.parametrize("ticket", [b"", b"x", bytes(Ticket.SIZE), bytes(Ticket.SIZE + 1)])
def test_rubbish_is_no_ticket(ticket: bytes) -> None:
    assert tickets.TicketDesk(KEY).read(ticket) is None


def test_those_that_were_used_are_known_until_long_after_they_expire() -> None:
    now, steady = 1000.0, 5.0
    desk = tickets.TicketDesk(KEY, lambda: now, lambda: steady)
    ticket = tickets.issue(KEY, desk.incarnation, "acme", now)
    assert desk.used() == []
    desk.use(ticket)
    now, steady = now + tickets.LIFETIME + 1, steady + tickets.LIFETIME + 1
    assert desk.used() == [tickets.number_of(ticket)]
    now, steady = now + tickets.LIFETIME, steady + tickets.LIFETIME
    assert desk.used() == []


def test_a_used_one_is_not_good_again_when_the_clock_is_set_back() -> None:
    now = 1000.0
    desk = tickets.TicketDesk(KEY, lambda: now, lambda: 5.0)
    ticket = tickets.issue(KEY, desk.incarnation, "acme", now)
    desk.use(ticket)
    now += tickets.LIFETIME + 1
    desk.used()
    now -= tickets.LIFETIME
    assert desk.read(ticket) is None
