"""The connection breaks while the guest is told that its session is elsewhere, and while it goes there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from gpuferry.specs._generated import control_pb2
from gpuferry.specs._generated.frames import Frame, Header, Resume, Resumed

from tests.chaos.judge import judge
from tests.helpers.running import Outcome
from tests.migration.rounds import Program, migrate, native, program

from .frame_cutter import Cut, Streams
from .places import Site, two_places
from .running import RECONNECT

NAME = "moving_symbols"
RUNNING = control_pb2.SESSION_STATE_RUNNING
MOST = 100  # rounds of a program
DONE = control_pb2.MIGRATION_STATE_DONE
TOLD_BYTES = 16 + 32 + 32 + 32 + 8 + 2 + len("127.0.0.1:12345")
LEAVE_BYTES = Header.SIZE
RESUME_BYTES, RESUMED_BYTES = Header.SIZE + Resume.SIZE, Header.SIZE + Resumed.SIZE
pytestmark = pytest.mark.timeout(600)


class Place(Site):
    """Where a session is, or was."""

    def session(self, running: Program) -> Any:
        """The program's, once it is here."""

        def mine(status: Any) -> list[Any]:
            return [s for s in status.sessions if (s.guest_pid, s.state) == (running.pid, RUNNING)]

        (found,) = mine(self.monitor.wait_for(mine, "its session"))
        return found

    def end_sessions(self) -> None:
        """Those whose guests are waited for."""
        for session in self.monitor.status().sessions:
            self.monitor.run("session", "kill", str(session.id))


@pytest.fixture(scope="module")
def places() -> Iterator[tuple[Place, Place]]:
    with two_places(Place, devices=1) as both:
        yield both


@dataclass(frozen=True)
class Break:
    """Where it breaks: before the server that the session leaves, or the one to which it goes."""

    leaving: tuple[Cut, ...] = ()
    going: tuple[Cut, ...] = ()


def told(size: int) -> Break:
    return Break(leaving=(Cut(Frame.MOVED, False, size),))


def told_late(size: int) -> Break:
    """It is told in place of Frame.RESUMED, having come back to where the session was."""
    return Break(leaving=(Cut(Frame.MOVED, False, 0), Cut(Frame.MOVED, False, size)))


def leaves(size: int) -> Break:
    return Break(leaving=(Cut(Frame.MOVED, True, size),))


def farewell(size: int) -> Break:
    """The server's last frame there, behind the one that says where to go."""
    return Break(leaving=(Cut(Frame.MOVED, False, None), Cut(Frame.MOVED, False, size)))


def comes(size: int) -> Break:
    return Break(going=(Cut(Frame.RESUME, True, size),))


def has_come(size: int) -> Break:
    return Break(going=(Cut(Frame.RESUMED, False, size),))


def places_in(size: int, step: int | None) -> list[int]:
    """In a frame: every `step`-th byte and behind the last one, or where something in it begins or ends."""
    if step is not None:
        return [*range(0, size, step), size]
    head = Header.SIZE
    return sorted({at for at in (0, head - 1, head, size // 2, size - 1, size) if at <= size})


def breaks(step: int | None) -> list[Break]:
    found = []
    for kind, size in (
        (told, TOLD_BYTES),
        (told_late, TOLD_BYTES),
        (leaves, LEAVE_BYTES),
        (comes, RESUME_BYTES),
        (has_come, RESUMED_BYTES),
    ):
        found += [kind(at) for at in places_in(size, step)]
    return found


def moves(running: Program, now: Place, then: Place, at: Break) -> None:
    """From one to the other; the program has yet to call."""
    then.monitor.wait_idle(1)
    session = now.session(running)
    now.cutter.expect(*at.leaving)
    then.cutter.expect(*at.going)
    done = migrate(now.monitor, session.id, server=then.cutter.address)
    assert done.state == DONE, done.reason


def watch_another(places: tuple[Place, Place]) -> None:
    """Guest, that is: the next one."""
    streams = Streams()
    for place in places:
        place.cutter.streams = streams


def all_done(places: tuple[Place, Place]) -> bool:
    """Every cut that was expected; none is from here on."""
    left = [cut for place in places for cut in place.cutter.left()]
    return not left


def goes_around(places: tuple[Place, Place], wanted: list[Break]) -> None:
    """From one to the other and back, in one program."""
    watch_another(places)
    now, then = places
    settings = {"GPUFERRY_MONITOR": now.cutter.address, "GPUFERRY_LOG": "info", **RECONNECT}
    with program(NAME, now.monitor, len(wanted), **settings) as running:
        for number, at in enumerate(wanted, 1):
            running.to_round(number)
            assert all_done(places), wanted[number - 2]
            moves(running, now, then, at)
            running.go()
            now, then = then, now
        status, stdout, stderr = running.finish()
    assert all_done(places)
    assert stdout.splitlines() == native(NAME, len(wanted)).splitlines()
    assert status == 0, stderr
    for place in places:
        place.at_rest()


@pytest.mark.system
@pytest.mark.parametrize("step", [None, pytest.param(1, marks=pytest.mark.slow)])
def test_a_guest_that_reconnects_notices_nothing(places: tuple[Place, Place], step: int | None) -> None:
    wanted = breaks(step)
    for at in range(0, len(wanted), MOST):
        goes_around(places, wanted[at : at + MOST])


# A guest that does not count bytes has lost its session, unless nobody has heard of it yet where it goes.
ENDS = [(told, 1), (told, TOLD_BYTES), (leaves, 5), (leaves, LEAVE_BYTES), (has_come, 9), (farewell, 7)]


@pytest.mark.some(1)
@pytest.mark.parametrize(("kind", "size"), ENDS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_by_default_the_program_gets_an_error(
    places: tuple[Place, Place], kind: Callable[[int], Break], size: int
) -> None:
    assert verdict(places, kind(size)) == "error"


@pytest.mark.some(1)
@pytest.mark.parametrize("size", [0, 50, RESUME_BYTES - 1])
def test_by_default_it_may_ask_again(places: tuple[Place, Place], size: int) -> None:
    assert verdict(places, comes(size)) == "right"


@pytest.mark.slow
def test_by_default_wherever_it_breaks(places: tuple[Place, Place]) -> None:
    for kind, size in ((told, TOLD_BYTES), (leaves, LEAVE_BYTES), (farewell, LEAVE_BYTES - 1)):
        for at in range(size + 1):
            assert verdict(places, kind(at)) == "error", (kind, at)
    assert verdict(places, farewell(LEAVE_BYTES)) == "right"
    for at in range(RESUME_BYTES):
        assert verdict(places, comes(at)) == "right", at


def verdict(places: tuple[Place, Place], at: Break) -> str:
    """What becomes of a program that does not reconnect."""
    watch_another(places)
    now, then = places
    now.monitor.wait_idle(1)
    with program(NAME, now.monitor, 2, GPUFERRY_MONITOR=now.cutter.address) as running:
        running.to_round(1)
        moves(running, now, then, at)
        running.go()
        running.go()
        status, stdout, stderr = running.finish()
    assert all_done(places)
    right = Outcome(0, native(NAME, 2), "")
    found = judge(NAME, right, Outcome(status, stdout, stderr))
    for place in places:
        place.end_sessions()
        place.at_rest()
    return found
