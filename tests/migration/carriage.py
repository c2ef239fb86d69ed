"""Carries programs through API servers that have no monitor, and moves them at chosen boundaries of calls.

Stands between the guest library and the API servers: it shakes hands, counts the guest's calls, and at each
chosen one it moves the session to the other server, directly or through a file.
"""

from __future__ import annotations

import contextlib
import queue
import secrets
import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuferry.monitor.door import handshake
from gpuferry.specs._generated import migration_pb2, node_pb2
from gpuferry.specs._generated.frames import Hello

from tests.apiserver.server import Server
from tests.helpers.door import Door
from tests.migration.gate import SECONDS, TRY_AGAIN, Gate, Journey, Passage, Stop, Way, attempts
from tests.migration.moving import (
    Keeper,
    expect,
    new_file,
    next_message,
    offer,
    order,
    order_move,
    stayed,
)

HEADER = 16
TOKEN = "a token of the tests"
QUOTA = 3 << 30


@dataclass(frozen=True)
class Over:
    """A session that ended."""

    clean: bool
    ready: bool = False  # and its server has said so


class Carriage:
    """Use as a context manager. One program at a time; it may have several sessions."""

    def __init__(self, folder: Path, servers: int = 2) -> None:
        self._folder = folder
        self._idle: queue.Queue[Server] = queue.Queue()
        self._all: list[Server] = []
        self._wanted = servers
        self._path = folder / "s"
        self._journey = Journey()
        self._way = Way.GPU
        self._sessions: list[threading.Thread] = []
        self._files = 0
        self._gone = 0  # servers that ended with a session

    def __enter__(self) -> Carriage:
        self._stack = contextlib.ExitStack()
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(self._path))
        listening.listen()
        for _ in range(self._wanted):
            self._add()
        self._door = Door(listening, self._come).__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._door.close()
        self._stack.close()

    @property
    def settings(self) -> dict[str, str]:
        """What the guest library reads to find us."""
        return {"GPUFERRY_MONITOR": f"unix:{self._path}", "GPUFERRY_TOKEN": TOKEN}

    def begin(self, stops: Sequence[Stop], way: Way = Way.GPU) -> Journey:
        """For the next program."""
        self._journey = Journey(stops)
        self._way = way
        self._sessions = []
        return self._journey

    def finish(self) -> None:
        """After the program's end: waits until its sessions are over, and raises what went wrong."""
        for thread in self._sessions:
            thread.join(SECONDS)
            assert not thread.is_alive(), "a session does not end"
        for failure in self._journey.failures:
            raise failure
        while self._gone:  # not by a session's thread: a server ends with the thread that started it
            self._gone -= 1
            self._add()

    def _add(self) -> None:
        device = len(self._all) % 2
        log = self._folder / f"server{len(self._all)}.log"
        server = self._stack.enter_context(Server(log, device, GPUFERRY_SIM_DEVICES="2"))
        self._all.append(server)
        server.ready()
        self._idle.put(server)

    def _come(self, guest: socket.socket) -> None:
        self._sessions.append(self._door.begin(self._carry, guest, self._journey))

    def _carry(self, guest: socket.socket, journey: Journey) -> None:
        try:
            with guest:
                proof = shake_hands(guest)
                if proof is not None:
                    self._session(guest, proof, journey)
        except BaseException as error:
            journey.failures.append(error)

    def _session(self, guest: socket.socket, proof: bytes, journey: Journey) -> None:
        server = self._idle.get(timeout=SECONDS)
        here, there = socket.socketpair()
        with here:
            session = grant(server, there, proof)
            gate = Gate(journey.stops)
            passage = Passage(gate, guest, here)
            passage.start()
            over = None
            try:
                for stop in journey.stops:
                    if over is None and gate.reached(stop):
                        server, over = self._move(server, session, stop, journey)
                    gate.go_on(stop)
            finally:
                gate.go_on(*gate.stops())
                passage.join()
            journey.sessions += 1
            journey.calls = max(journey.calls, gate.calls)
        self._give_back(server, over or Over(expect(server, "ended").ended.clean))

    def _give_back(self, server: Server, over: Over) -> None:
        """After a session: a server whose scrub failed, or took too long, ends."""
        if over.clean:
            if not over.ready:
                expect(server, "ready")
            self._idle.put(server)
        else:
            server.wait_for_exit()
            self._gone += 1

    def _move(self, server: Server, session: int, stop: Stop, journey: Journey) -> tuple[Server, Over | None]:
        """Returns the server that has it afterwards; and how it ended, if it did so meanwhile."""
        for _ in attempts():
            server, over, reason = self._try(server, session, stop, journey)
            if TRY_AGAIN not in reason:
                break
        if reason:
            journey.refused.append(reason)
        return server, over

    def _try(
        self, server: Server, session: int, stop: Stop, journey: Journey
    ) -> tuple[Server, Over | None, str]:
        """The same, and why the session stayed if it did."""
        try:
            other = self._idle.get_nowait()
        except queue.Empty:
            return server, None, "no other server is idle"
        move = self._by_file if self._way is Way.FILE else self._directly
        moved, over = move(server, other, session, stop)
        if moved.moved:
            expect(other, "taken_over")
            ended = expect(server, "ended").ended
            assert ended.reason == "moved", server.log.read_text()
            self._give_back(server, Over(ended.clean))
            journey.moved += 1
            return other, None, ""
        assert not moved.lost, moved
        self._idle.put(other)
        return server, over, moved.reason

    def _directly(
        self, server: Server, other: Server, session: int, stop: Stop
    ) -> tuple[migration_pb2.Moved, Over | None]:
        link = offer(other, session, memory_quota=QUOTA)
        with contextlib.suppress(BrokenPipeError):  # then it has ended, and not cleanly
            order_move(server, [link], session, stop.strategy, local={"device": 1})
        moved, over = outcome(server)
        if not moved.moved:
            stayed(server, other, moved)
        return moved, over

    def _by_file(
        self, server: Server, other: Server, session: int, _: Stop
    ) -> tuple[migration_pb2.Moved, Over | None]:
        self._files += 1
        path = self._folder / f"session{self._files}"
        with Keeper(self._folder / "keeper.log") as keeper:
            pair = keeper.keep(session, file={"path": str(path)})
            with contextlib.suppress(BrokenPipeError):
                order_move(server, [pair], session, file=new_file(path))
            moved, over = outcome(server)
            if not moved.moved:
                return moved, over
            expect(keeper, "taken_over")
            played = keeper.play(session, path, other, memory_quota=QUOTA)
            assert played.moved, played
        path.unlink()
        return moved, over


def outcome(server: Server) -> tuple[migration_pb2.Moved, Over | None]:
    """What the source says of a migration; and of the end of its session, if that comes first."""
    said: dict[str, node_pb2.FromServer] = {}
    while "moved" not in said:
        try:
            message = next_message(server)
        except (ConnectionResetError, AssertionError):
            server.wait_for_exit()  # it was not clean when it ended
            return migration_pb2.Moved(reason="the session is over"), Over(clean=False)
        said[message.WhichOneof("message") or ""] = message
    assert said.keys() <= {"moved", "ended", "ready"}
    over = Over(said["ended"].ended.clean, "ready" in said) if "ended" in said else None
    return said["moved"].moved, over


def shake_hands(guest: socket.socket) -> bytes | None:
    """As a monitor does; the proof for WELCOME, or None: the guest went away."""
    nonce = secrets.token_bytes(32)
    guest.sendall(handshake.greeting(nonce))
    header = exactly(guest, HEADER)
    if not header:
        return None
    body = exactly(guest, struct.unpack_from("<I", header)[0] - HEADER)
    guest_nonce = Hello.unpack(body).nonce
    return handshake.server_proof(TOKEN.encode(), nonce, guest_nonce)


def exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            return b""
        data += part
    return data


def grant(server: Server, guest: socket.socket, proof: bytes) -> int:
    """A session on a server, with as much memory as a monitor with two API servers would give."""
    session = secrets.randbits(32)
    terms = node_pb2.Grant(session=session, memory_quota=QUOTA, welcome_proof=proof, tenant="t", program="p")
    order(server, [guest], grant=terms)
    assert expect(server, "started").started.session == session
    return session
