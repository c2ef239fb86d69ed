"""The connection breaks while the session is in a file, and while it comes out of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from gpuferry.migration.frames import OPERATIONS
from gpuferry.specs._generated import control_pb2
from gpuferry.specs._generated.frames import Frame

from tests.migration.rounds import (
    Program,
    destination_waits,
    migrate,
    native,
    program,
    resume,
    session_of,
)
from tests.monitor import harness

from .frame_cutter import Cut, Streams
from .places import Site, two_places
from .running import RECONNECT
from .test_moved import RESUME_BYTES, RESUMED_BYTES, TOLD_BYTES

NAME = "moving_symbols"
SUSPENDED, RUNNING = control_pb2.SESSION_STATE_SUSPENDED, control_pb2.SESSION_STATE_RUNNING
DONE, FAILED = control_pb2.MIGRATION_STATE_DONE, control_pb2.MIGRATION_STATE_FAILED
CAME_BACK = Cut(Frame.RESUMED, False, None)
COPY_OUT = OPERATIONS["sessionCopyOut"]
ANSWER_BYTES = 16 + 8 + 64 * 4  # the first one of a round, with `words`
ROUNDS_AT_RANDOM = 12
MOST = 99  # rounds of a program, of which it has one to itself
pytestmark = pytest.mark.timeout(300)


class Place(Site):
    """Where sessions are suspended, and go on."""

    def state(self, running: Program) -> int:
        return int(session_of(self.monitor, running.pid).state)

    def suspend(self, running: Program, file: Path) -> int:
        """Which device it was on."""
        session = session_of(self.monitor, running.pid)
        done = migrate(self.monitor, session.id, file=str(file))
        assert done.state == DONE, done.reason
        assert self.state(running) == SUSPENDED
        self.monitor.wait_idle(2)
        return int(session.device)

    def resume(self, running: Program, file: Path, device: int) -> None:
        done = resume(self.monitor, file, device=device)
        assert done.state == DONE, done.reason
        session = session_of(self.monitor, running.pid)
        assert (session.state, session.device) == (RUNNING, device)
        file.unlink()

    def goes_away(self) -> None:
        """Its connection breaks, and it finds no other one until `may_come`."""
        self.cutter.refusing = True
        self.cutter.cut()

    def may_come(self, *cuts: Cut) -> None:
        """The guest, unless it is cut once more."""
        self.cutter.expect(*cuts, CAME_BACK)
        self.cutter.refusing = False

    def loses_it(self, *cuts: Cut) -> None:
        """The guest its connection; it comes back, unless it is cut once more."""
        self.cutter.expect(*cuts, CAME_BACK)
        self.cutter.cut()

    def all_passed(self) -> None:
        """What was expected of the cutter is done."""
        harness.wait_until(self.cutter.is_done, "a guest that comes back")


@pytest.fixture(scope="module")
def places() -> Iterator[tuple[Place, Place]]:
    with two_places(Place, devices=2, GPUFERRY_SIM_DIRTY="1") as both:
        yield both


@contextlib.contextmanager
def suspendable(places: Sequence[Place], rounds: int) -> Iterator[Program]:
    """A program at the first place, which notices nothing. In a last round nothing happens to it."""
    streams = Streams()
    for place in places:
        place.at_rest()
        place.cutter.streams, place.cutter.refusing = streams, False
        assert place.cutter.is_done()
    settings = {"GPUFERRY_MONITOR": places[0].cutter.address, "GPUFERRY_LOG": "info", **RECONNECT}
    with program(NAME, places[0].monitor, rounds + 1, **settings) as running:
        yield running
        running.to_round(rounds + 1)
        running.go()
        status, stdout, stderr = running.finish()
    assert stdout.splitlines() == native(NAME, rounds + 1).splitlines()
    assert status == 0, stderr
    for place in places:
        place.at_rest()


def handshakes(step: int) -> list[tuple[Cut, ...]]:
    """It breaks once, or once more at a byte of what the guest says when it comes back, or hears."""
    found: list[tuple[Cut, ...]] = [()]
    for op, up, size in ((Frame.RESUME, True, RESUME_BYTES), (Frame.RESUMED, False, RESUMED_BYTES)):
        found += [(Cut(op, up, at),) for at in [*range(0, size, step), size]]
    return found


@pytest.mark.system
@pytest.mark.parametrize("step", [19, pytest.param(1, marks=pytest.mark.slow)])
def test_it_comes_back_to_the_keeper(places: tuple[Place, Place], tmp_path: Path, step: int) -> None:
    """And its session is resumed on the other device, with the call that it made meanwhile."""
    place, _ = places
    wanted = handshakes(step)
    for at in range(0, len(wanted), MOST):
        some = wanted[at : at + MOST]
        with suspendable([place], len(some)) as running:
            for number, cuts in enumerate(some, 1):
                running.to_round(number)
                device = place.suspend(running, tmp_path / "file")
                place.loses_it(*cuts)
                running.go()
                place.all_passed()
                assert place.state(running) == SUSPENDED
                place.resume(running, tmp_path / "file", 1 - device)


@pytest.mark.system
@pytest.mark.parametrize("step", [37, pytest.param(1, marks=pytest.mark.slow)])
def test_it_stays_away_until_its_session_is_resumed(
    places: tuple[Place, Place], tmp_path: Path, step: int
) -> None:
    """The destination is handed a connection that is no more, and the guest comes there."""
    place, _ = places
    wanted = handshakes(step)
    for at in range(0, len(wanted), MOST):
        some = wanted[at : at + MOST]
        with suspendable([place], len(some)) as running:
            for number, cuts in enumerate(some, 1):
                running.to_round(number)
                device = place.suspend(running, tmp_path / "file")
                place.goes_away()
                if number % 2:  # else it is resumed before anybody noticed, perhaps
                    place.monitor.wait_for(lambda s: s.sessions[0].disconnected, "that the guest is away")
                place.resume(running, tmp_path / "file", 1 - device)
                place.may_come(*cuts)
                running.go()
                place.all_passed()


@pytest.mark.system
def test_it_has_a_part_of_an_answer(places: tuple[Place, Place], tmp_path: Path) -> None:
    """All of it was sent when the session went into its file; the connection breaks before it has come."""
    place, _ = places
    sizes = [0, 1, 15, 16, 23, 24, 100, ANSWER_BYTES - 1, ANSWER_BYTES]
    with suspendable([place], len(sizes)) as running:
        for number, size in enumerate(sizes, 1):
            running.to_round(number)
            with place.cutter.on_hold(Cut(COPY_OUT, False, size)):
                running.go()
                place.all_passed()
                device = place.suspend(running, tmp_path / "file")
                place.cutter.expect(CAME_BACK)
            place.all_passed()
            place.resume(running, tmp_path / "file", 1 - device)


@contextlib.contextmanager
def while_played(place: Place, file: Path, device: int) -> Iterator[Iterator[Any]]:
    """The steps of a resumption that has begun, and waits for its destination until this is over."""
    request = control_pb2.ResumeSessionRequest(file=str(file), device=device)
    ask = place.monitor.stub.ResumeSession
    with destination_waits(place.monitor, device, ask, request) as (steps, _):
        yield steps


@pytest.mark.system
def test_it_comes_back_while_its_file_is_played(places: tuple[Place, Place], tmp_path: Path) -> None:
    """Then the destination would be handed a dead connection: that is given up, and done again."""
    place, _ = places
    file = tmp_path / "file"
    with suspendable([place], 2) as running:
        for number in (1, 2):
            running.to_round(number)
            device = place.suspend(running, file)
            with while_played(place, file, 1 - device) as steps:
                place.loses_it()
                running.go()
                place.monitor.wait_for(lambda s: s.migrations[-1].state == FAILED, "end of the resumption")
                place.all_passed()
            *_, last = steps
            assert "came back with another" in last.reason
            assert place.state(running) == SUSPENDED
            place.monitor.wait_idle(2)
            place.resume(running, file, 1 - device)


@pytest.mark.system
def test_it_breaks_while_its_file_is_played(places: tuple[Place, Place], tmp_path: Path) -> None:
    """The guest comes when that is done."""
    place, _ = places
    file = tmp_path / "file"
    with suspendable([place], 2) as running:
        for number in (1, 2):
            running.to_round(number)
            device = place.suspend(running, file)
            with while_played(place, file, 1 - device) as steps:
                place.goes_away()
            *_, last = steps
            assert last.state == DONE, last.reason
            place.may_come()
            running.go()
            place.all_passed()
            assert session_of(place.monitor, running.pid).device == 1 - device
            file.unlink()


@pytest.mark.system
def test_it_comes_back_when_it_likes(places: tuple[Place, Place], tmp_path: Path) -> None:
    """Whatever of it comes first: a resumption is done, or given up for the guest that came back."""
    place, _ = places
    file = tmp_path / "file"
    with suspendable([place], ROUNDS_AT_RANDOM) as running:
        for number in range(1, ROUNDS_AT_RANDOM + 1):
            running.to_round(number)
            device = place.suspend(running, file)
            place.cutter.cut()
            running.go()
            while (last := resume(place.monitor, file, device=1 - device)).state != DONE:
                assert "came back with another" in last.reason
                place.monitor.wait_idle(2)
            file.unlink()


TOLD = [Cut(Frame.MOVED, False, at) for at in (0, 9, TOLD_BYTES)]


@pytest.mark.some(1)
@pytest.mark.parametrize("where", ["back", "away"])
@pytest.mark.parametrize("cuts", [(), *[(cut,) for cut in TOLD]], ids=["once", "0", "9", "all"])
def test_it_is_resumed_elsewhere(
    places: tuple[Place, Place], tmp_path: Path, where: str, cuts: tuple[Cut, ...]
) -> None:
    """By another monitor; the guest, back at the keeper or not, hears of it from the first one."""
    here, there = places
    file = tmp_path / "file"
    with suspendable(places, 1) as running:
        running.to_round(1)
        here.suspend(running, file)
        if where == "back":
            here.loses_it()
            running.go()
            here.all_passed()
        else:
            here.goes_away()
        here.cutter.expect(*cuts)
        there.cutter.expect(CAME_BACK)
        done = resume(here.monitor, file, server=there.cutter.address)
        assert done.state == DONE, done.reason
        here.cutter.refusing = False
        if where == "away":
            running.go()
        there.all_passed()
        here.all_passed()


def test_it_is_resumed_elsewhere_with_a_part_of_an_answer(
    places: tuple[Place, Place], tmp_path: Path
) -> None:
    """Nobody says anything to a guest that is within an answer but what is missing of that."""
    here, there = places
    file = tmp_path / "file"
    with suspendable(places, 1) as running:
        running.to_round(1)
        with here.cutter.on_hold(Cut(COPY_OUT, False, 100)):
            running.go()
            here.all_passed()
            here.suspend(running, file)
            here.cutter.expect(CAME_BACK)
        here.all_passed()
        there.cutter.expect(CAME_BACK)
        done = resume(here.monitor, file, server=there.cutter.address)
        assert done.state == DONE, done.reason
        there.all_passed()
