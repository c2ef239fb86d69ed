"""What a lease says about time, seen from a program."""

from __future__ import annotations

import pytest
from gpuferry.monitor.door.handshake import Extension

from tests.adversity.running import remote
from tests.adversity.sessions import open_session, session
from tests.monitor import harness


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("GPUFERRY_IDLE_LIMIT", "no CUDA call for 1 s, which is the limit"),
        ("GPUFERRY_WALL_LIMIT", "the time limit of 1 s is over"),
    ],
)
def test_the_program_is_told_why_its_session_ended(monitor: harness.Monitor, setting: str, text: str) -> None:
    """Whatever it was about to do when the time was over, which is soon: its first call, or none."""
    with remote(monitor, **{setting: "1"}) as program:
        program.call("start")
        monitor.wait_for(lambda status: not status.sessions, "end of the session")
        status, _ = program.call("sync")
        assert status != 0
        _, errors = program.finish()
        assert text in errors


def test_a_limit_that_nothing_lives_to_see_ends_no_api_server(monitor: harness.Monitor) -> None:
    """An API server ended itself over an order of more than 31 years, as did the next one that was given the
    session; after some of them the GPU was taken out.
    """
    forever = b"\xff" * 4
    before = {server.pid for server in monitor.status().servers}
    extensions = {Extension.WALL_LIMIT: forever, Extension.IDLE_LIMIT: forever}
    with session(monitor, extensions=extensions) as guest:
        assert guest.sync().status == 0
        assert {server.pid for server in monitor.status().servers} == before


def test_the_program_is_told_its_place_in_the_queue(monitor: harness.Monitor) -> None:
    second = open_session(monitor)
    with session(monitor), second.socket, remote(monitor, GPUFERRY_LOG="info") as program:
        program.tell("start")
        monitor.wait_for(lambda status: len(status.queue) == 1, "one in the queue")
        second.close()
        assert program.answer()[0] == 0
        _, errors = program.finish()
        assert "place 1 of 1 in the queue" in errors


def test_the_program_waits_no_longer_than_it_wants(monitor: harness.Monitor) -> None:
    with session(monitor), session(monitor), remote(monitor, GPUFERRY_MAX_WAIT="0.2") as program:
        assert program.call("start")[0] == 46
        _, errors = program.finish()
        assert "no API server became free within 0.2 s" in errors


def test_a_limit_that_is_no_number(monitor: harness.Monitor) -> None:
    with remote(monitor, GPUFERRY_MAX_WAIT="soon") as program:
        assert program.call("start")[0] != 0
        _, errors = program.finish()
        assert "GPUFERRY_MAX_WAIT=soon" in errors
