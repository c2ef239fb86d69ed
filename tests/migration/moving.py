"""Migrations between API servers that have no monitor: the test gives the orders."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import struct
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from gpuferry.migration.head import read_head
from gpuferry.migration.place import NewFile, existing
from gpuferry.migration.seal import seal, unseal
from gpuferry.specs._generated import migration_pb2, node_pb2, snapshot_pb2
from gpuferry.specs._generated.frames import Frame

from tests.apiserver import kernels
from tests.apiserver.guest import HEADER, Guest, handle
from tests.apiserver.server import DEADLINE, GIB, Process, Server
from tests.helpers.points import Held, Points
from tests.resume.guest import CountingGuest

MEMORY = "512MiB"
PAGE = 2 << 20
SECRET = b"of the files that tests write"
STOP = migration_pb2.STRATEGY_STOP
PRECOPY = migration_pb2.STRATEGY_PRECOPY


def devices(memory: str) -> dict[str, str]:
    """The environment of servers on two devices whose new memory is not zero."""
    return {"GPUFERRY_SIM_DEVICES": "2", "GPUFERRY_SIM_MEMORY": memory, "GPUFERRY_SIM_DIRTY": "1"}


class Given(Protocol):
    """A socket or a file that is given away."""

    def fileno(self) -> int: ...
    def close(self) -> None: ...


def order(server: Process, sockets: Sequence[Given], **message: object) -> None:
    """A message with sockets beside it, which are ours no longer."""
    data = node_pb2.ToServer(**message).SerializeToString()  # type: ignore[arg-type]
    try:
        socket.send_fds(server.control, [data], [each.fileno() for each in sockets])
    finally:
        for each in sockets:
            each.close()


def expect(server: Process, kind: str) -> node_pb2.FromServer:
    """The next message that is not about how far a migration is."""
    message = next_message(server)
    assert message.WhichOneof("message") == kind, message
    return message


def next_message(server: Process) -> node_pb2.FromServer:
    while True:
        message = server.message()
        if message.WhichOneof("message") != "moving":
            return message


def offer(destination: Server, session: int, **terms: object) -> socket.socket:
    """Grants the destination a session that comes over a link; returns the source's end of it."""
    ours, theirs = socket.socketpair()
    terms = {"memory_quota": GIB, **terms}
    grant = node_pb2.Grant(
        session=session,
        welcome_proof=b"p" * 32,
        restore=True,
        **terms,  # type: ignore[arg-type]
    )
    order(destination, [theirs], grant=grant)
    assert expect(destination, "started").started.session == session
    return ours


def move(
    source: Server,
    destination: Server,
    session: int,
    strategy: migration_pb2.Strategy = STOP,
    drain_seconds: float = 0,
    **terms: object,
) -> migration_pb2.Moved:
    """Moves a session to a server of the same machine; returns what the source says of it."""
    link = offer(destination, session, **terms)
    order_move(source, [link], session, strategy, drain_seconds, local={"device": 1})
    return expect(source, "moved").moved


def order_move(
    source: Server,
    sockets: list[socket.socket],
    session: int,
    strategy: migration_pb2.Strategy = STOP,
    drain_seconds: float = 0,
    file: migration_pb2.FileTarget | None = None,
    **target: object,
) -> None:
    beside = [*sockets, *(obliging(Path(file.path)) if file else [])]
    migrate = migration_pb2.Migrate(
        session=session,
        strategy=strategy,
        drain_seconds=drain_seconds,
        file=file,
        **target,  # type: ignore[arg-type]
    )
    order(source, beside, migrate=migrate)


def obliging(path: Path) -> list[Given]:
    """What a monitor gives whoever is to write a file: a socket to itself, and the file, which it names."""
    file = NewFile(path)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def serve() -> None:
        with ours, contextlib.closing(file), contextlib.suppress(OSError):
            while word := ours.recv(64):
                ours.send(file.oblige(word))

    threading.Thread(target=serve, daemon=True).start()
    return [theirs, os.fdopen(os.dup(file.fileno()), "wb")]


def settled(source: Server, destination: Server, moved: migration_pb2.Moved) -> None:
    """After a migration that succeeded: who has the session says so, who had it is idle."""
    assert moved.moved, moved
    assert expect(destination, "taken_over")
    ended = expect(source, "ended").ended
    assert (ended.reason, ended.clean) == ("moved", True), source.log.read_text()
    expect(source, "ready")


def stayed(source: Server, destination: Server, moved: migration_pb2.Moved) -> None:
    """After one that failed: the destination is idle again."""
    assert not moved.moved, moved
    assert not moved.lost, moved
    ended = expect(destination, "ended").ended
    assert ended.clean, ended
    expect(destination, "ready")


class Work:
    """A guest with one of everything, which can tell whether it is all still there."""

    def __init__(self, guest: Guest, pages: int = 6) -> None:
        self.guest = guest
        self.pages = pages
        self.memory = guest.map(pages)
        self.contents = [hashlib.sha256(bytes([i])).digest() * (PAGE // 32) for i in range(pages)]
        for i, page in enumerate(self.contents):
            if i != 2:
                guest.write(self.memory + i * PAGE, page)
            else:
                self.contents[i] = bytes(PAGE)
        self.names = [kernel.name for kernel in kernels.load(guest)]
        self.kernel = handle("kernel", 0)
        guest.send(
            "sessionGetFunction", function=self.kernel, owner=kernels.LIBRARY, index=self.names.index("scale")
        )
        self.stream = handle("stream", 1)
        guest.send("cuStreamCreateWithPriority", phStream=self.stream, flags=1, priority=-1)
        self.events = [handle("event", i) for i in range(3)]
        for event in self.events:
            guest.send("cuEventCreate", phEvent=event, Flags=0)
        guest.send("cuEventRecordWithFlags", hEvent=self.events[0], hStream=self.stream, flags=0)
        reply = guest.call("sessionGetGlobal", owner=kernels.LIBRARY, payload=b"variable")
        self.variable = reply.values["address"]
        guest.write(self.variable, struct.pack("<4I", 9, 8, 7, 6))
        assert guest.sync().status == 0

    def check(self) -> None:
        """Everything is as it was, and works."""
        guest = self.guest
        for i, page in enumerate(self.contents):
            assert guest.read(self.memory + i * PAGE, PAGE) == page, i
        reply = guest.call("sessionGetGlobal", owner=kernels.LIBRARY, payload=b"variable")
        assert reply.values["address"] == self.variable
        assert guest.read(self.variable, 16) == struct.pack("<4I", 9, 8, 7, 6)
        assert guest.call("cuEventQuery", hEvent=self.events[0]).status == 0
        guest.send("cuEventRecordWithFlags", hEvent=self.events[1], hStream=self.stream, flags=0)
        assert guest.call("cuEventSynchronize", hEvent=self.events[1]).status == 0
        elapsed = guest.call("cuEventElapsedTime_v2", hStart=self.events[0], hEnd=self.events[1])
        assert elapsed.status == 0
        assert 0 <= elapsed.values["pMilliseconds"] < 1000 * DEADLINE
        self.scale(3)
        assert guest.call("cuStreamQuery", hStream=self.stream).status == 0
        assert guest.sync().latched == 0

    def scale(self, factor: int) -> None:
        """A launch on our stream, in memory of ours."""
        page = bytearray(self.contents[0])
        before = struct.unpack_from("<4I", page)
        self.guest.launch(
            self.kernel, struct.pack("<QI", self.memory, factor), block=(4, 1, 1), stream=self.stream
        )
        assert self.guest.call("cuStreamSynchronize", hStream=self.stream).status == 0
        struct.pack_into("<4I", page, 0, *(value * factor & 0xFFFFFFFF for value in before))
        self.contents[0] = bytes(page)
        assert self.guest.read(self.memory, PAGE) == page


def close(guest: Guest, server: Server) -> None:
    """The program ends where its session is."""
    guest.close()
    ended = expect(server, "ended").ended
    assert (ended.reason, ended.clean) == ("closed", True)
    expect(server, "ready")


# Points of an API server: the steps of a migration, at its source.
STEPS = ("prepare", "snapshot", "rebuild", "precopy", "hold", "drain", "catch_up", "verify", "take_over")
SOURCE = "gpuferry.migration.source:Source._"
BEGINS = "gpuferry.apiserver.moving:Mover._source"
SERVED = (
    "gpuferry.apiserver.session:Session.serve!"  # the session is over, and the server has yet to hear of it
)
STARTS = "gpuferry.apiserver.session:Session.__init__"  # it has said so, and WELCOME is not sent
BOTH_ENDS = [SOURCE + step + end for step in STEPS for end in ("", "!")]
AT = (BEGINS, SERVED, STARTS, SOURCE + "leave", *BOTH_ENDS)
# What may be set at one of them: silence of the destination is borne for so long.
IMPATIENT = {
    f"gpuferry.migration.{where}_PATIENCE": 1.0
    for where in ("link:RUN", "source:REBUILD", "source:RUN", "source:PAUSE")
}


class Faulty(Server):
    """An API server that fails, or waits, as it is told at these points. A step is named without more."""

    command: ClassVar[list[str]] = Points.command("gpuferry.apiserver")

    def __init__(self, folder: Path, device: int = 0, **environment: str) -> None:
        self._points = Points(*AT, restores=SOURCE + "prepare").__enter__()
        super().__init__(folder / "log", device, **self._points.environment, **environment)

    def __exit__(self, *_: object) -> None:
        self.let_go()
        try:
            super().__exit__()
        finally:
            self._points.__exit__()

    def fail(self, step: str, how: str) -> None:
        """At the next migration: `raise`, or `kill` yourself."""
        self.at(step).go(how)

    def at(self, step: str) -> Held:
        """The next time that it comes there, it waits."""
        return self._points.at(step if ":" in step else SOURCE + step)

    def let_go(self) -> None:
        """Nothing that was wanted of it before holds any more."""
        self._points.let_all_go()


class Keeper(Process):
    """A keeper process; the test is its monitor."""

    def __init__(self, log: Path) -> None:
        super().__init__(log, [sys.executable, "-m", "gpuferry.apiserver.keeper"], {})
        assert expect(self, "ready").ready.keeper

    def keep(self, session: int, resume_seconds: float = 60, **terms: object) -> socket.socket:
        """Tells it whose guest will come; returns the source's end of the pair."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        grant = node_pb2.Grant(
            session=session, memory_quota=GIB, resume_key=b"k" * 32, resume_seconds=resume_seconds
        )
        order(self, [theirs], keep=node_pb2.Keep(grant=grant, **terms))  # type: ignore[arg-type]
        return ours

    def play(self, session: int, path: Path, destination: Server, **terms: object) -> migration_pb2.Moved:
        """Resumes the session of a file on a server; returns what the keeper says of it."""
        self.order_to_play(session, path, offer(destination, session, **terms))
        return expect(self, "moved").moved

    def order_to_play(self, session: int, path: Path, link: socket.socket) -> None:
        """As a monitor does that has the key."""
        play = node_pb2.Play(session=session, path=str(path), key=key_of(path), local={"device": 1})
        order(self, [link, path.open("rb")], play=play)


def new_file(path: Path, session: int = 7) -> migration_pb2.FileTarget:
    """What an API server must know to write a file, with the tests' key."""
    head, key = seal(SECRET, snapshot_pb2.About(session=session, program="p"))
    return migration_pb2.FileTarget(path=str(path), head=head, key=key)


def key_of(path: Path) -> bytes:
    """The key of the contents of a file that was written so."""
    with existing(path) as file:
        return unseal(SECRET, read_head(file), str(path))[1]


def suspend(source: Server, keeper: Keeper, session: int, path: Path) -> migration_pb2.Moved:
    """Suspends a session into a file; returns what the source says of it."""
    pair = keeper.keep(session, file={"path": str(path)})
    order_move(source, [pair], session, file=new_file(path, session))
    return expect(source, "moved").moved


def suspended(source: Server, keeper: Keeper, moved: migration_pb2.Moved) -> None:
    """After a suspension that succeeded."""
    assert moved.moved, moved
    assert expect(keeper, "taken_over")
    ended = expect(source, "ended").ended
    assert (ended.reason, ended.clean) == ("moved", True)
    expect(source, "ready")


def ask_to_resume(server: Process, guest: Guest, received: int) -> socket.socket:
    """By another connection; the guest's end of it."""
    guest.socket.close()
    ours, theirs = socket.socketpair()
    ours.settimeout(DEADLINE)
    order(server, [theirs], resume={"session": guest.session, "proof": b"r" * 32, "received": received})
    return ours


def comes_back(server: Process, guest: CountingGuest, received: int | None = None) -> int:
    """By another connection; how many bytes of what it said are there."""
    ours = ask_to_resume(server, guest, guest.received if received is None else received)
    size, op, *_ = HEADER.unpack(ours.recv(HEADER.size, socket.MSG_WAITALL))
    body = ours.recv(size - HEADER.size, socket.MSG_WAITALL)
    assert op == Frame.RESUMED, body
    assert body[:32] == b"r" * 32
    guest.adopt(ours)
    return int.from_bytes(body[32:], "little")
