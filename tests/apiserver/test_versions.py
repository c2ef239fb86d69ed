"""A session whose guest is of another build: what both lay out alike is served, the rest is passed over."""

from __future__ import annotations

import array
import os
import time
from pathlib import Path

import pytest
from gpuferry.migration.versions import COUNTERS
from gpuferry.specs._generated import operations

from tests.apiserver import migrant
from tests.apiserver.engine import Engine
from tests.apiserver.guest import Guest, encode
from tests.apiserver.guest import operations as layouts

NOT_SUPPORTED = 801
LARGE = 1 << 20  # more than the engine reads at once


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path / "engine.log")


def without(*names: str) -> bytes:
    """What a session speaks, as `begin` takes it."""
    foreign = {layouts()[name].variant.id for name in names}
    return array.array("H", sorted(operations.SPOKEN.keys() - foreign)).tobytes()


def nonsense(guest: Guest, op: str, size: int, request: int = 0) -> None:
    """A call as a build may send it that lays it out otherwise."""
    whole = encode(
        "sessionImageData", request, 1, os.urandom(size), {"hash": bytes(32), "size": 1, "offset": 0}
    )
    number = layouts()[op].variant.id.to_bytes(2, "little")
    guest.socket.sendall(whole[:4] + number + whole[6:])
    if request:
        guest._waiting[request] = op


@pytest.mark.parametrize("size", [0, 5, LARGE])
def test_what_was_not_agreed_on_is_passed_over(engine: Engine, size: int) -> None:
    """Whatever is in it: an answered call is refused, another one latched, and the session goes on."""
    with engine:
        guest = engine.session(spoken=without("sessionFill", "sessionCopyOut", "sessionCopyIn"))
        guest.map()
        nonsense(guest, "sessionFill", size)
        reply = guest.sync()
        assert (reply.latched, reply.latched_op) == (NOT_SUPPORTED, layouts()["sessionFill"].variant.id)
        nonsense(guest, "sessionCopyOut", size, request=500)
        assert guest.answer(500).status == NOT_SUPPORTED
        nonsense(guest, "sessionCopyIn", size, request=501)  # one whose payload its handler reads
        assert guest.answer(501).status == NOT_SUPPORTED
        assert guest.sync().latched == 0
        guest.close()
        assert engine.ended() == ("closed", True)


def test_the_next_session_speaks_everything(engine: Engine) -> None:
    with engine:
        first = engine.session(spoken=without("sessionCopyIn"))
        first.map()
        first.write(first.window, b"1234")
        assert first.sync().latched == NOT_SUPPORTED
        first.close()
        engine.ended()
        second = engine.session()
        second.write(second.map(), b"1234")
        assert second.read(second.window, 4) == b"1234"
        second.close()
        assert engine.ended() == ("closed", True)


@pytest.mark.parametrize("first_release", [False, True])
def test_a_session_moves_with_what_it_speaks(pair: tuple[Engine, Engine], first_release: bool) -> None:
    """The frames of the way there are allowed whatever its guest speaks; counters may go as the first release
    has them."""
    source, target = pair
    spoken = without("sessionFill", *(name for name, m in layouts().items() if m.variant.restore))
    guest = source.session(spoken=spoken)
    guest.write(guest.map(), b"here")
    guest.send("sessionUnsupported", function=500, calls=3)
    guest.sync()
    connection = source.theirs
    link = target.session(restore=True, spoken=spoken)
    migrant.move(source, target, link, connection, [COUNTERS] if first_release else [])
    connection.close()
    assert dict_of(source) == dict_of(target)
    assert target.call("unsupported") == [(500, 3)]
    before, after = source.call("stats"), target.call("stats")
    assert {name: before[name] for name in ("calls_sync", "launches")} == {
        name: after[name] for name in ("calls_sync", "launches")
    }
    assert guest.read(guest.window, 4) == b"here"
    nonsense(guest, "sessionFill", 9)
    assert guest.sync().latched == NOT_SUPPORTED
    guest.close()
    assert target.ended() == ("closed", True)


def dict_of(engine: Engine) -> dict[int, tuple[int, int]]:
    """Calls that succeeded and failed, but for those of the way."""
    while True:
        found = {op: (good, bad) for op, good, bad, *_ in engine.call("calls")}
        if found:
            return {op: calls for op, calls in found.items() if op not in operations.RESTORE}
        time.sleep(0.001)
