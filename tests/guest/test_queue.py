"""A monitor that goes away while a program is in its queue: the program joins the queue of the next one."""

from __future__ import annotations

import pytest

from tests.guest.conftest import Guest
from tests.guest.fake_server import FakeServer

MAX_WAIT = 3
LINES = 'print(cu("cuInit", 0))'
UNAVAILABLE = 46


def wishes(server: FakeServer) -> list[int]:
    """Milliseconds that each HELLO wanted to wait at most."""
    return [int.from_bytes(hello.extensions[MAX_WAIT], "little") for hello in server.hellos]


@pytest.mark.sanitize
def test_a_place_in_the_queue_is_lost_and_another_found(server: FakeServer, guest: Guest) -> None:
    server.leave = [(2, 0.25), (1, 0.25)]
    outcome = guest(LINES, GPUFERRY_MAX_WAIT="100")
    assert (outcome.stdout, outcome.stderr) == ("0\n", "")
    first, second, third = wishes(server)
    assert first == 100_000
    assert first - 250 >= second >= third + 250, "what was waited is not waited again"
    assert len({hello.nonce for hello in server.hellos}) == 3


def test_it_says_so_if_asked(server: FakeServer, guest: Guest) -> None:
    server.leave = [(3, 0.0)]
    outcome = guest(LINES, GPUFERRY_LOG="info")
    said = [line.partition(": ")[2] for line in outcome.stderr.splitlines()]
    assert said[0] == "waiting for a GPU: place 3 of 3 in the queue"
    assert "connecting again" in said[1]
    assert outcome.stdout == "0\n"


def test_who_is_dropped_at_the_door_comes_again(server: FakeServer, guest: Guest) -> None:
    """A monitor with too many handshakes of one machine ends the oldest, which may be anybody's."""
    server.leave = [(0, 0.0), (0, 0.0)]
    outcome = guest(LINES)
    assert (outcome.stdout, outcome.stderr) == ("0\n", "")
    assert len({hello.nonce for hello in server.hellos}) == 3


def test_who_is_dropped_again_and_again_is_told(server: FakeServer, guest: Guest) -> None:
    server.leave = [(0, 0.0)] * 100
    outcome = guest(LINES)
    assert outcome.stdout == f"{UNAVAILABLE}\n"
    assert "closed the connection during the handshake" in outcome.stderr
    assert len(server.hellos) == 5


def test_a_refusal_is_final(server: FakeServer, guest: Guest) -> None:
    server.leave = [(1, 0.0)]
    server.refusal = (4, 2, "nothing is free")
    outcome = guest(LINES)
    assert outcome.stdout == "2\n"
    assert outcome.stderr.count("nothing is free") == 1
    assert len(server.hellos) == 2


def test_no_longer_than_the_program_wants_to_wait(server: FakeServer, guest: Guest) -> None:
    """It comes again, and the second monitor goes when the time is over, however late all that was."""
    server.leave = [(1, 0.0), (1, 6.5)]
    outcome = guest(LINES, GPUFERRY_MAX_WAIT="6")
    assert outcome.stdout == f"{UNAVAILABLE}\n"
    assert "went away while this program waited" in outcome.stderr
    assert len(outcome.stderr.splitlines()) == 1
    assert len(server.hellos) == 2
