"""Where a session goes: over a link to another device, over a link to another machine, or into a file."""

from __future__ import annotations

import socket
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from gpuferry.specs._generated import handover_pb2, migration_pb2, snapshot_pb2
from gpuferry.specs._generated.frames import TakeOverFlag
from gpuferry.specs._generated.wire import REQUESTS

from . import devices, handover, versions
from .abc import Memory, Movable, Wire
from .copy import Filed, Nearby, Streamed
from .errors import LinkBroken, Lost
from .file import Writer
from .frames import HEADER, PRIMARY, RESUMABLE
from .link import Answer, Link, require
from .place import GivenFile, NewFile

TAKE_OVER = REQUESTS["sessionRestoreTakeOver"]
DONE = REQUESTS["sessionRestoreDone"]


class Ask(Protocol):
    """Sends a request to the other end and has `take` take its answer; as Link.ask does."""

    def __call__(
        self, op: str, body: bytes, take: Answer, payload: bytes | memoryview = b"", context: int = 0, /
    ) -> None: ...


class Target(Protocol):
    """One way to move a session, with what the source needs of its other end."""

    @property
    def wire(self) -> Wire: ...
    @property
    def memory(self) -> Memory: ...
    @property
    def lacks(self) -> Collection[int]:
        """Wire ids of operations of this build that the target lacks or lays out otherwise."""

    @property
    def ask(self) -> Ask | None:
        """Sends a frame and takes its answer; None: nobody is there yet who could answer."""

    @property
    def comparable(self) -> bool:
        """Whether the target can say what memory it holds."""

    def prepare(self, core: Movable) -> None:
        """Raise MigrationError unless the session could live there."""

    def done(self, mapped_bytes: int) -> None:
        """Say that everything was sent. Raises MigrationError unless all is there and well."""

    def commit(self) -> None:
        """Let nobody stop the move from here on."""

    def take_over(self, guest: int, unread: bytes, reply_begun: int) -> None:
        """Give the session away. The point of no return lies in here: raises Lost past it."""

    def undo(self) -> None:
        """Undo what was prepared: the session stays where it is."""

    def patient(self, seconds: float) -> AbstractContextManager[None]:
        """Let the other side be silent for so many seconds within this context."""


class LinkEnd(Protocol):
    """The link as somebody else goes on with it."""

    def fileno(self) -> int: ...
    def tls_state(self) -> bytes:
        """What TLS needs to go on there; empty: it is in clear."""


class _Linked:
    lacks: Collection[int] = ()

    def __init__(self, link: Link, away: bool) -> None:
        """`away`: the session's memory is not on its device, which could tell what it holds."""
        self.wire = self.link = link
        self.comparable = not away

    @property
    def ask(self) -> Ask | None:
        return self.link.ask

    def done(self, mapped_bytes: int) -> None:
        self.link.tell("sessionRestoreDone", DONE.pack(mapped_bytes), context=PRIMARY)
        self.link.settle()

    def commit(self) -> None:
        self.link.commit()

    def undo(self) -> None:
        """Whoever owns the link closes it."""

    def patient(self, seconds: float) -> AbstractContextManager[None]:
        return self.link.patient(seconds)


class Local(_Linked):
    """A move to another device of this machine, by way of a link to its API server."""

    def __init__(self, core: Movable, link: Link, away: bool = False) -> None:
        super().__init__(link, away)
        self.memory: Memory = Streamed(core, link) if away else Nearby(core, link)
        self._core = core

    def prepare(self, core: Movable) -> None:
        devices.compare(devices.of_welcome(devices.welcome(core, 0)), devices.of_welcome(self.link.welcome()))

    def take_over(self, guest: int, unread: bytes, reply_begun: int) -> None:
        take_over(self.link, [guest], self._core.relayed, self._core.tls_state())


class Remote(_Linked):
    """Another machine. A keeper takes over there, so that a source that dies meanwhile loses nothing."""

    def __init__(
        self,
        core: Movable,
        link: Link,
        end: LinkEnd,
        pair: socket.socket,
        session: int,
        remote: migration_pb2.RemoteTarget,
        away: bool = False,
    ) -> None:
        super().__init__(link, away)
        self.memory = Streamed(core, link)
        self._core = core
        self.lacks = remote.lacks
        self._end = end
        self._pair = pair
        self._session = session
        self._welcome = remote.welcome

    def prepare(self, core: Movable) -> None:
        devices.compare(devices.of_welcome(devices.welcome(core, 0)), devices.of_welcome(self._welcome))

    def take_over(self, guest: int, unread: bytes, reply_begun: int) -> None:
        self.link.commit()
        message = custody(self._session, unread, reply_begun)
        message.take_over = True
        message.guest_tls, message.link_tls = self._core.tls_state(), self._end.tls_state()
        handover.give(self._pair, message, [guest, self._end.fileno()])


class Suspended:
    """A file. A keeper holds the guest's socket until somebody plays it."""

    ask = None
    comparable = False
    lacks: Collection[int] = ()

    def __init__(
        self,
        core: Movable,
        file: NewFile | GivenFile,
        order: migration_pb2.FileTarget,
        pair: socket.socket,
        snapshot: snapshot_pb2.Snapshot,
    ) -> None:
        versions.stamp(snapshot)
        snapshot.welcome = devices.welcome(core, snapshot.grant.session)
        self.wire = self._writer = Writer(file, order.head, order.key, snapshot)
        self.memory = Filed(core, self._writer)
        self._core = core
        self._pair = pair
        self._session = snapshot.grant.session

    def prepare(self, core: Movable) -> None:
        """Do nothing: any device like this one will do, and whoever plays the file compares."""

    def done(self, mapped_bytes: int) -> None:
        self._writer.finish(mapped_bytes)

    def commit(self) -> None:
        """Do nothing: what is written can still be withdrawn."""

    def take_over(self, guest: int, unread: bytes, reply_begun: int) -> None:
        message = custody(self._session, unread, reply_begun)
        message.relayed = self._core.relayed
        message.guest_tls = self._core.tls_state()
        if (state := self._core.resume_state()) is not None:
            received, _, kept, _, sent = RESUMABLE.unpack(state)
            message.stream.CopyFrom(handover_pb2.Stream(received=received, kept=kept, sent=sent))
        handover.give(self._pair, message, [guest])

    def undo(self) -> None:
        self._writer.withdraw()

    def patient(self, seconds: float) -> AbstractContextManager[None]:
        return nullcontext()


def take_over(link: Link, guest: list[int], relayed: bool = False, tls: bytes = b"") -> None:
    """Ask the destination to have the session: with the guest's socket beside the frame, or with the link
    in its place. `relayed`: the guest has yet to leave where it was before, and will say so. `tls`: what TLS
    needs to go on, on the guest's socket; empty: it is in clear.
    """
    if tls:
        link.tell("sessionRestoreTls", payload=tls, context=PRIMARY)
        link.settle()
    sent = link.sent
    flags = (TakeOverFlag.SOCKET if guest else 0) | (TakeOverFlag.RELAYED if relayed else 0)
    link.commit()
    try:
        link.ask(
            "sessionRestoreTakeOver",
            TAKE_OVER.pack(flags),
            lambda status, _: require(status, "taking over"),
            context=PRIMARY,
            descriptors=guest,
        )
        link.settle()
    except LinkBroken as error:
        if link.sent == sent:
            raise
        raise Lost(f"nobody said that he has taken over: {error.reason}") from None


def custody(session: int, unread: bytes, reply_begun: int) -> handover_pb2.Handover:
    """What a keeper must know to find the frames in what it passes on."""
    head, missing = begun(unread)
    return handover_pb2.Handover(
        session=session, request_head=head, request_missing=missing, reply_begun=reply_begun
    )


def begun(stream: bytes) -> tuple[bytes, int]:
    """How the frame stands in which a stream ends: the bytes of its header so far, or how many bytes of it
    are missing.
    """
    at = 0
    while len(stream) - at >= HEADER.size:
        at += max(HEADER.size, HEADER.unpack_from(stream, at)[0])
    return (stream[at:], 0) if at < len(stream) else (b"", at - len(stream))
