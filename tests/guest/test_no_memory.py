"""The guest's own memory is at an end: each call that makes something says so, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guest.fake_server import Answer, FakeServer, Frame
from tests.guest.test_modules import table
from tests.helpers import toolchain
from tests.helpers.monitor import monitor
from tests.helpers.running import guest_environment, run

NOT_FOUND = 500


def program() -> Path:
    return toolchain.program(Path(__file__).with_name("no_memory.c"), ["-rdynamic"])


@pytest.mark.system
def test_an_allocation_that_fails_is_told_and_the_session_goes_on() -> None:
    with monitor("--pool", "1", "--log-level", "warning") as running:
        outcome = running.run([program()])
    assert outcome.status == 0, outcome.stdout + outcome.stderr
    assert int(outcome.stderr.removeprefix("failed ")) > 40


def test_what_the_server_loaded_in_vain_is_unloaded(server: FakeServer) -> None:
    """All but the module that the program keeps to its end."""

    def answer(frame: Frame) -> Answer:
        if frame.name == "sessionGetManaged":
            return Answer(NOT_FOUND)
        loads = frame.name == "sessionLoadImage"
        return Answer(body=table(("store", [(0, 8), (8, 4)]), ("load", []))) if loads else Answer()

    server.answer = answer
    outcome = run([program(), "code"], guest_environment(server.settings))
    server.settle()
    assert outcome.status == 0, outcome.stdout + outcome.stderr
    loaded = server.names.count("sessionLoadImage")
    assert loaded > 3
    assert server.names.count("cuModuleUnload") + server.names.count("cuLibraryUnload") == loaded - 1
