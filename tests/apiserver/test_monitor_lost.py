"""A monitor that is gone is noticed where something is told to it, and is no concern of the session."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuferry.apiserver import server
from gpuferry.specs._generated import node_pb2

SECONDS = 60.0
DAY = 24 * 3600.0


class Engine:
    """A session engine without a device."""

    window = (1 << 40, 1 << 36)
    device_uuid, device_name, device_memory, driver_version, simulated = (
        bytes(16),
        "none",
        1 << 30,
        13050,
        True,
    )
    taken_over = following = arriving = waiting = awaits_room = False
    idle_seconds, stays = 0.0, ""
    turn = (0, -1.0)

    def __init__(self) -> None:
        self.bell = os.eventfd(0)
        self._over = threading.Event()
        self._reason = ""
        self.at_rest: Any = lambda: None  # called on the main thread

    def begin(self, *_: object, **__: object) -> None:
        """There is nothing to begin."""

    def welcome(self, *_: object) -> bytes:
        return b""

    def mapped_on(self) -> list[int]:
        return [0]

    def rest(self) -> None:
        self.at_rest()

    def wanted(self) -> None:
        """It opens nothing of another process."""

    def give_up_imports(self) -> None:
        """It opens nothing of another process, so there is nothing to give up."""

    def wish(self) -> None:
        """It waits for no memory."""

    wish_again = wish

    def give_up_turn(self) -> None:
        """It takes no turns."""

    def go_on_without_guest(self) -> None:
        """Nothing is to be done: no stream of this double waits for its guest."""

    def stats(self) -> dict[str, int]:
        names = ("calls_async", "calls_sync", "launches", "busy_nanoseconds", "memory_mapped")
        return dict.fromkeys(names, 0)

    def calls(self) -> list[Any]:
        return []

    unsupported = calls

    def serve(self) -> str:
        assert self._over.wait(SECONDS)
        return self._reason

    def end(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._over.set()

    def scrub(self) -> bool:
        return True


def message(control: socket.socket) -> node_pb2.FromServer:
    return node_pb2.FromServer.FromString(control.recv(1 << 16))


def order(control: socket.socket, *sockets: socket.socket, **what: Any) -> None:
    data = node_pb2.ToServer(**what).SerializeToString()
    socket.send_fds(control, [data], [each.fileno() for each in sockets])


@dataclasses.dataclass
class Serving:
    """A server on a thread, and its monitor's end of the control socket, which a test may replace."""

    server: server.Server
    control: socket.socket


@contextlib.contextmanager
def serving(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    """One that is ready, of a played engine; in the end it is told to go, and must."""
    monkeypatch.setattr(server, "Core", lambda _: engine)
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.settimeout(SECONDS)
    there = Serving(server.Server([0], theirs.detach()), control)
    status: list[int] = []
    thread = threading.Thread(target=lambda: status.append(there.server.run()))
    thread.start()
    try:
        assert message(control).HasField("ready")
        yield there
    finally:
        with contextlib.suppress(OSError):  # it has failed
            order(there.control, shutdown={})
        thread.join(SECONDS)
    assert status == [0]
    there.control.close()
    there.server._control._socket.close()
    os.close(engine.bell)


def test_one_that_is_gone_when_a_launch_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end is seen in the same round: that is not the end of the guest's connection."""
    engine = Engine()
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    guest, its = socket.socketpair()
    with door, guest, serving(engine, monkeypatch) as there:
        door.bind(os.path.relpath(tmp_path / "door"))
        door.listen()
        first = there.control
        order(first, door, home={"grace_seconds": 60})
        with its:
            grant = {"session": 7, "memory_quota": 1 << 30, "welcomed": True, "age_seconds": DAY}
            order(first, its, grant=grant)
        assert message(first).started.session == 7

        def goes_and_rings() -> None:
            first.close()
            os.eventfd_write(engine.bell, 1)

        engine.at_rest = goes_and_rings
        order(first, next_launch={"session": 7})
        there.control = control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.settimeout(SECONDS)
        control.connect(os.path.relpath(tmp_path / "door"))
        returned = message(control).returned
        assert returned.grant.session == 7
        assert returned.session_seconds >= DAY  # it counts from the session's beginning, not from its own
        engine.at_rest = lambda: None
        order(control, revoke={"session": 7, "reason": "enough"})
        ended = message(control).ended
        assert (ended.session, ended.reason, ended.clean) == (7, "revoked: enough", True)
        assert message(control).HasField("ready")
    there.server._control.door.close()
