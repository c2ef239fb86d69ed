"""Where a session goes: over a link on this machine, over a link to another one, or into a file."""

from __future__ import annotations

import socket
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
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
from .link import Link, require

TAKE_OVER = REQUESTS["sessionRestoreTakeOver"]
DONE = REQUESTS["sessionRestoreDone"]


class Target(Protocol):
    """One way to go."""

    @property
    def wire(self) -> Wire: ...
    @property
    def memory(self) -> Memory: ...
    @property
    def lacks(self) -> Collection[int]:
        """Operations of this build that it has not, or lays out otherwise."""

    @property
    def comparable(self) -> bool:
        """Whether it can say what it holds."""

    def prepare(self, core: Movable) -> None:
        """Raises unless the session could live there."""

    def done(self, mapped_bytes: int) -> None:
        """Everything was sent; raises unless it is there and well."""

    def take_over(self, guest: int, unread: bytes, reply_begun: int) -> None:
        """The point of no return lies in here."""

    def undo(self) -> None:
        """The session stayed."""

    def patient(self, seconds: float) -> AbstractContextManager[None]:
        """For as long as this the other side may be silent."""


class _Linked:
    comparable = True
    lacks: Collection[int] = ()

    def __init__(self, link: Link) -> None:
        self.wire = self.link = link

    def done(self, mapped_bytes: int) -> None:
        self.link.tell("sessionRestoreDone", DONE.pack(mapped_bytes), context=PRIMARY)
        self.link.settle()

    def undo(self) -> None:
        """Whoever owns the link closes it."""

    def patient(self, seconds: float) -> AbstractContextManager[None]:
        return self.link.patient(seconds)


class Local(_Linked):
    """Another device of this machine."""

    def __init__(self, core: Movable, link: Link) -> None:
        super().__init__(link)
        self.memory = Nearby(core, link)
        self._core = core

    def prepare(self, core: Movable) -> None:
        devices.compare(devices.of_welcome(devices.welcome(core, 0)), devices.of_welcome(self.link.welcome()))

    def take_over(self, guest: int, unread: bytes, reply_begun: int) -> None:
        take_over(self.link, [guest], self._core.relayed)


class Remote(_Linked):
    """Another machine. The keeper takes over, so that a source that dies meanwhile loses nothing."""

    def __init__(
        self,
        core: Movable,
        link: Link,
        end: socket.socket,
        pair: socket.socket,
        session: int,
        remote: migration_pb2.RemoteTarget,
    ) -> None:
        super().__init__(link)
        self.memory = Streamed(core, link)
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
        handover.give(self._pair, message, [guest, self._end.fileno()])


class Suspended:
    """In a file; a keeper holds the guest's socket until somebody plays it."""

    comparable = False
    lacks: Collection[int] = ()

    def __init__(
        self, core: Movable, path: Path, pair: socket.socket, snapshot: snapshot_pb2.Snapshot
    ) -> None:
        self.writer = Writer(path)
        self.wire = self.writer
        self.memory = Filed(core, self.writer)
        self._core = core
        self._pair = pair
        self._snapshot = snapshot
        versions.stamp(snapshot)
        snapshot.welcome = devices.welcome(core, snapshot.grant.session)

    def prepare(self, core: Movable) -> None:
        """Any device will do that is like this one: whoever plays the file compares."""

    def done(self, mapped_bytes: int) -> None:
        self._snapshot.mapped_bytes = mapped_bytes
        self.writer.finish(self._snapshot)

    def take_over(self, guest: int, unread: bytes, reply_begun: int) -> None:
        message = custody(self._snapshot.grant.session, unread, reply_begun)
        message.relayed = self._core.relayed
        if (state := self._core.resume_state()) is not None:
            received, _, kept, _, sent = RESUMABLE.unpack(state)
            message.stream.CopyFrom(handover_pb2.Stream(received=received, kept=kept, sent=sent))
        handover.give(self._pair, message, [guest])

    def undo(self) -> None:
        self.writer.withdraw()

    def patient(self, seconds: float) -> AbstractContextManager[None]:
        return nullcontext()


def take_over(link: Link, guest: list[int], relayed: bool = False) -> None:
    """Asks the destination to have the session; with the guest's socket, or with the link for it. If it is
    relayed, the guest has yet to leave where it was before, and will say so."""
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
    """Of the frame that a stream ends in: what there is of its header, or how many bytes are missing."""
    at = 0
    while len(stream) - at >= HEADER.size:
        at += max(HEADER.size, HEADER.unpack_from(stream, at)[0])
    return (stream[at:], 0) if at < len(stream) else (b"", at - len(stream))
