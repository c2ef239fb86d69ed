"""The server refuses what the guest would have refused: every check that the spec states, of every operation.

The cases are made from the loaded spec: a valid frame of which one thing was made wrong. That the valid ones
are carried out is a test too. `pytest -s` prints how many frames each operation was refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from codegen.checks import FRAMING, Check
from tests.apiserver.engine import Engine
from tests.apiserver.guest import Ended, Guest, operations
from tests.apiserver.refusals import World, changed, checks, constants, framing, valid, violations
from tests.apiserver.server import Server

MALFORMED = 7
CHECKED = sorted(op for op in operations() if checks(op))
SERVED = [op for op in CHECKED if not operations()[op].variant.restore]
RESTORING = [op for op in CHECKED if operations()[op].variant.restore]

# No check of the spec refuses these, but they are not carried out either.
INCOMPLETE = {
    "sessionLaunch": "the kernel would be given an address that it must not touch",
    "sessionImageData": "its one byte would be taken for the image that is loaded later",
    "sessionLinkComplete": "the link is over: another operation asks for its image",
    "sessionHostCopyIn": "no stream waits for it",
    "sessionHostCopyOut": "no stream waits for it",
    "sessionMemUnmap": "nothing is mapped there",
    "sessionMemUnalias": "nothing is mapped there a second time",
    "sessionMemAccess": "nothing is mapped there a second time",
    "sessionMemAccessOn": "nothing is mapped there a second time",
    "sessionPeerAccess": "a device is no peer of its own",
    "sessionFindMemory": "no code has anything there",
    "sessionExportEvent": "the event is one that no other process may open",
    "sessionImportEvent": "nothing was found by that name",
}


class Sessions:
    """A server with one session under way, which is replaced when a test has spoilt it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._world: World | None = None

    def world(self) -> World:
        if self._world is None:
            self._world = World(self.server.connect()).furnish()
        return self._world

    def leave(self) -> None:
        if self._world is not None:
            self._world.guest.socket.close()
            self._world = None
            assert self.server.ended().clean
            self.server.ready()


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    log = tmp_path_factory.mktemp("refusals") / "server.log"
    with Server(log, GPUFERRY_SIM_MEMORY="256MiB") as server:
        server.ready()
        yield Sessions(server)


@pytest.fixture
def world(sessions: Sessions, request: pytest.FixtureRequest) -> Iterator[World]:
    yield sessions.world()
    if request.session.testsfailed or "spoils" in request.keywords:
        sessions.leave()


def refused(guest: Guest, op: str, values: dict[str, object], check: Check) -> None:
    """The call's error, now or latched; and the session goes on."""
    message = operations()[op].variant
    wanted = constants()[str(check.error)]
    status = latched = 0
    if message.klass.value == "sync":
        status = guest.call(op, **values).status
    else:
        guest.send(op, **values)  # type: ignore[arg-type]
    reply = guest.sync()
    assert reply.status == 0
    latched, culprit = reply.latched, reply.latched_op
    assert status or latched, f"{op} with {values} was not refused"
    assert (status or latched) == wanted, f"{op} with {values}: {check}"
    assert culprit in (0, message.id)


def refuse_all(world: World, op: str) -> int:
    """How many frames were refused."""
    number = 0
    for check in checks(op):
        if check.what in FRAMING:
            continue
        before = number
        for change in violations(world, op, check):
            refused(world.guest, op, changed(world, op, change), check)
            number += 1
        assert number > before, f"{op}: no frame breaks {check}"
    return number


@pytest.mark.parametrize("op", SERVED)
def test_what_the_guest_refuses_the_server_refuses(world: World, op: str) -> None:
    number = refuse_all(world, op)
    assert number > 0 or framing(op)
    print(f"{op}: {number} frames refused for {len(checks(op))} checks")


@pytest.mark.parametrize("op", [op for op in SERVED if framing(op)])
def test_a_wrong_length_ends_the_session(sessions: Sessions, op: str) -> None:
    found = [c for c in checks(op) if c.what in FRAMING]
    changes = [(c, i) for c in found for i, _ in enumerate(violations(sessions.world(), op, c))]
    assert changes
    for check, i in changes:
        world = sessions.world()
        values = changed(world, op, list(violations(world, op, check))[i])
        if operations()[op].variant.klass.value == "sync":
            world.guest.ask(op, **values)
        else:
            world.guest.send(op, **values)
        ended: Ended = world.guest.expect_end()
        assert ended.reason == MALFORMED
        sessions.leave()


@pytest.mark.parametrize("op", [op for op in SERVED if op not in INCOMPLETE])
def test_the_frames_are_valid_otherwise(sessions: Sessions, op: str) -> None:
    """Without this, a frame might be refused for another reason than the one tried."""
    world = sessions.world()
    values = valid(world, op)
    reply = world.guest.call(op, **values)
    assert reply.status == 0, f"{op} with {values}"
    sessions.leave()  # what was carried out is gone, waits or is current


@pytest.mark.parametrize("op", RESTORING)
def test_while_a_session_is_restored(tmp_path: Path, op: str) -> None:
    with Engine(tmp_path / "engine.log", GPUFERRY_SIM_MEMORY="64MiB") as engine:
        guest = engine.session(restore=True)
        world = World(guest).furnish()
        assert refuse_all(world, op) > 0
        guest.socket.close()
        engine.ended()


def test_every_operation_is_tried() -> None:
    """No check without a frame that breaks it, but those that no operation states."""
    stated = [op for op in operations() if checks(op)]
    assert stated == [op for op in operations() if op in SERVED + RESTORING]
    assert len(stated) > 40
